#include "measure_worker/device.h"

#include <algorithm>

#include "measure_worker/inputs.h"

namespace temper::worker {

absl::StatusOr<std::unique_ptr<Block>> Device::AllocateStandIns(std::span<const int64_t> bytes) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Block> block, AllocateGuarded(bytes));
  std::vector<char> numbers(bytes.empty() ? 0 : static_cast<size_t>(std::ranges::max(bytes)));
  FillWithSmallNumbers(numbers);
  for (size_t i = 0; i < bytes.size(); ++i) TEMPER_RETURN_IF_ERROR(block->Write(i, numbers.data()));
  TEMPER_RETURN_IF_ERROR(block->MakeReadOnly());
  return block;
}

}  // namespace temper::worker
