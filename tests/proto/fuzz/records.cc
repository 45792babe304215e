#include "storage/store.h"
#include "tests/proto/fuzz/targets.h"

namespace temper::fuzz {

void Records(std::string_view bytes) {
  const absl::StatusOr<Record> record = RecordFromJsonLine(bytes);
  if (!record.ok()) return;
  const absl::StatusOr<Record> back = RecordFromJsonLine(ToJsonLine(*record));
  Expect(back.ok() && ToJsonLine(*back) == ToJsonLine(*record), "a record's line gives it back");
  const absl::StatusOr<std::unique_ptr<Store>> store = OpenStore("memory:");
  if (store.ok()) (void)(*store)->Import(std::span(&*record, 1));
}

}  // namespace temper::fuzz
