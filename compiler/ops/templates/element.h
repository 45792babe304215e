// The element type of the templates' tiles, and what follows from its size.
#pragma once

#include "compiler/ops/workload.h"

namespace temper {

// What the templates beside "default" compute in: they match anchors of this type alone.
inline constexpr DType kElement = DType::kF32;
inline const int64_t kElementBytes = SizeOf(kElement);
// Its operands and its result are of the type.
bool IsOfElement(const Workload& w, const Workload::Call& call, DType element = kElement);
inline constexpr int64_t kLineBytes = 64;
inline const int64_t kLineElements = kLineBytes / kElementBytes;  // of a cache line: all fetched for one of them

}  // namespace temper
