// Registers of NVIDIA's GPUs, on every architecture that there is code for.
#pragma once

#include <algorithm>
#include <cstdint>

namespace temper {

inline constexpr int64_t kUnitRegisters = 64 << 10;  // of a unit, as many of them of one group
inline constexpr int64_t kRegistersAtOnce = 8;       // that a thread is given

// That a thread of a group of so many can have.
constexpr int64_t MostRegisters(int64_t threads) {
  constexpr int64_t kOfThread = 255;
  return std::min(kOfThread, kUnitRegisters / threads / kRegistersAtOnce * kRegistersAtOnce);
}

}  // namespace temper
