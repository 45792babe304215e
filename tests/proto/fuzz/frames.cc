#include "measure_worker/sandbox/messages.h"
#include "tests/proto/fuzz/targets.h"

namespace temper::fuzz {

void Frames(std::string_view bytes) {
  worker::FrameReader reader;
  reader.Feed(bytes);
  while (true) {
    const absl::StatusOr<std::optional<worker::Frame>> next = reader.Next();
    if (!next.ok() || !next->has_value()) return;
    const worker::Frame& frame = **next;
    // Encoded again, what was understood says the same.
    if (const auto batch = worker::DecodeBatch(frame); batch.ok()) worker::Encode(*batch);
    if (const auto model = worker::DecodeModel(frame); model.ok()) worker::Encode(*model);
    if (const auto finals = worker::DecodeFinals(frame); finals.ok()) worker::Encode(*finals);
    if (const auto trial = worker::DecodeTrial(frame); trial.ok()) worker::Encode(*trial);
    if (const auto result = worker::DecodeModelResult(frame); result.ok()) worker::Encode(*result);
    (void)worker::DecodeBegin(frame);
    (void)worker::DecodeBuilt(frame);
  }
}

}  // namespace temper::fuzz
