// Where a value's axes lie in memory.
#pragma once

#include <algorithm>

#include "compiler/ops/workload.h"

namespace temper {

// The physical dimension that stores the logical axis.
inline size_t PhysicalAxis(const TensorType& type, int64_t axis) {
  if (type.perm.empty()) return static_cast<size_t>(axis);
  return static_cast<size_t>(std::ranges::find(type.perm, static_cast<int>(axis)) - type.perm.begin());
}

}  // namespace temper
