// The two sides of a roofline, measured: what a kernel can do at most on this machine as it is now. Clocks vary, so
// callers measure around, or between, what they judge, and keep the best.
#pragma once

#include <cstdint>

#include "compiler/runtime/kernel_abi.h"

namespace temper {

struct Roofline {
  double flops_per_s = 0;
  double bytes_per_s = 0;

  // What so much work takes at least.
  double Seconds(double flops, double bytes) const;
  // Operations a byte at which both sides take the same time.
  double ridge() const { return flops_per_s / bytes_per_s; }
  // Keeps the higher of each side.
  void Raise(const Roofline& other);
};

// Operations a second (a multiply-add is two) of loops of nothing else, on vectors of `vector_bits` (512, 256, 128, as
// far as this CPU has them) and all threads of the launcher: the best of loops with 8 to 28 accumulators, over about
// `seconds`.
double MeasureFlops(temper_launcher* launcher, int vector_bits, double seconds);

// Bytes a second of all threads reading an array of `array_bytes` in one to four streams each, the best pass within
// about `seconds`. Of memory where the array is several times the last cache.
double MeasureBandwidth(temper_launcher* launcher, int64_t array_bytes, double seconds);

// Both, for about `seconds` in all, with an array that no cache holds.
Roofline MeasureRoofline(temper_launcher* launcher, int vector_bits, int64_t l3_bytes, double seconds);

}  // namespace temper
