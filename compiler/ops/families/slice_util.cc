#include "compiler/ops/families/slice_util.h"

#include <algorithm>

#include "compiler/ops/families/infer_util.h"

namespace temper::ops {

absl::StatusOr<std::vector<AxisSlice>> SlicesOf(const Attrs& attrs, const Shape& shape) {
  int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<int64_t> starts = attrs.Ints("starts"), ends = attrs.Ints("ends"), axes = attrs.Ints("axes"),
                       steps = attrs.Ints("steps");
  for (int64_t i = 0; axes.empty() && i < static_cast<int64_t>(starts.size()); ++i) axes.push_back(i);
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != axes.size() || starts.size() != steps.size()) {
    return InvalidType("starts, ends, axes and steps are of one length");
  }
  std::vector<AxisSlice> result;
  for (int64_t extent : shape) result.push_back({0, 1, extent});
  std::vector<bool> sliced(shape.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(axes[i], rank));
    if (sliced[axis]) return InvalidType("an axis is given twice");
    sliced[axis] = true;
    int64_t extent = shape[axis];
    // A step beyond the extent reaches one element, whatever its size.
    int64_t step = std::clamp(steps[i], -std::max<int64_t>(extent, 1), std::max<int64_t>(extent, 1));
    if (step == 0) return InvalidType("a step is 0");
    if (extent == 0) continue;
    // ONNX clamps a start to an element even where NumPy would leave nothing.
    int64_t last = step > 0 ? extent : extent - 1;
    auto position = [extent](int64_t at) { return at < 0 ? at + extent : at; };
    int64_t start = std::clamp<int64_t>(position(starts[i]), 0, last);
    int64_t end = std::clamp<int64_t>(position(ends[i]), step > 0 ? 0 : -1, last);
    int64_t length = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    result[axis] = {start, step, length > 0 ? (length + stride - 1) / stride : 0};
  }
  return result;
}

}  // namespace temper::ops
