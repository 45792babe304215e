// Integers rounded up.
#pragma once

#include <cstdint>

namespace temper {

// The least integer that is no less than a / b; b > 0.
inline constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a > 0 ? (a - 1) / b + 1 : a / b; }

// The least multiple of b that is no less than a; b > 0.
inline constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

}  // namespace temper
