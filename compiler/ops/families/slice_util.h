// The meaning of slice's attributes, by ONNX: what type rule, tensor expression and reference agree on.
#pragma once

#include <vector>

#include "compiler/ops/attrs.h"

namespace temper::ops {

// Along one axis: elements start, start + step, ... (count of them).
struct AxisSlice {
  int64_t start, step, count;
};
// One per axis of `shape`. Starts and ends are clamped, negative ones count from the end.
absl::StatusOr<std::vector<AxisSlice>> SlicesOf(const Attrs& attrs, const Shape& shape);

}  // namespace temper::ops
