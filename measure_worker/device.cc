#include "measure_worker/device.h"

#include <algorithm>
#include <cstring>

namespace temper::worker {

void FillWithSmallNumbers(std::span<char> bytes) {
  // Exponents a little below that of 1, whether they have 4, 5 or 8 bits; the sign and what is left are random.
  constexpr uint32_t kExponent = 0x38383838, kRandom = 0x83838383;
  uint32_t state = 1;
  for (size_t at = 0; at < bytes.size(); at += sizeof state) {
    state = state * 1664525 + 1013904223;
    const uint32_t four = kExponent | ((state ^ state >> 16) & kRandom);
    std::memcpy(&bytes[at], &four, std::min(sizeof four, bytes.size() - at));
  }
}

absl::StatusOr<std::unique_ptr<Block>> Device::AllocateStandIns(std::span<const int64_t> bytes) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Block> block, AllocateGuarded(bytes));
  std::vector<char> numbers(bytes.empty() ? 0 : static_cast<size_t>(std::ranges::max(bytes)));
  FillWithSmallNumbers(numbers);
  for (size_t i = 0; i < bytes.size(); ++i) TEMPER_RETURN_IF_ERROR(block->Write(i, numbers.data()));
  TEMPER_RETURN_IF_ERROR(block->MakeReadOnly());
  return block;
}

}  // namespace temper::worker
