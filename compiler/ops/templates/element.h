// The element type of the templates' tiles, and what follows from its size.
#pragma once

#include "base/dtype.h"

namespace temper {

// What the templates beside "default" compute in: they match workloads of this type alone.
inline constexpr DType kElement = DType::kF32;
inline const int64_t kElementBytes = SizeOf(kElement);
inline constexpr int64_t kLineBytes = 64;
inline const int64_t kLineElements = kLineBytes / kElementBytes;  // of a cache line: all fetched for one of them

}  // namespace temper
