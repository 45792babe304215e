// What the operators' type rules share.
#pragma once

#include <span>
#include <string_view>

#include "compiler/ops/op.h"

namespace temper::ops {

enum class AttrKind { kInt, kFloat, kString, kInts };  // kFloat takes integers as well
struct AttrRule {
  std::string_view name;
  AttrKind kind;
};
// Every attribute present is among the rules and of its kind, so that a misspelt one is an error and not a default.
absl::Status CheckAttrs(const Attrs& attrs, const std::vector<AttrRule>& rules);

// From attributes saturate and rounding ("nearest", "up", "down") of cast.
absl::StatusOr<CastMode> CastModeOf(const Attrs& attrs);

// A contraction's operands are numbers of one type, or, with attribute `result`, u8 or i16 and i8.
absl::Status CheckFactors(const Attrs& attrs, DType a, DType b);
// A contraction's result of a first operand of `dtype`: that type, or with attribute `result` the one of its sums.
absl::StatusOr<DType> ContractionResult(const Attrs& attrs, DType dtype);

absl::Status InvalidType(std::string_view rule);  // InvalidArgument

// NumPy's rule: aligned at the last axis, equal or 1.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);
// axis in [-rank, rank) as [0, rank).
absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, int64_t rank);
// Sorted, without repetition; none given means all.
absl::StatusOr<std::vector<int64_t>> NormalizeAxes(const std::vector<int64_t>& axes, int64_t rank);

// A sliding window over the two last axes of an NCHW tensor.
struct Window {
  int64_t kernel[2], stride[2], dilation[2], pad_begin[2], pad_end[2];
  int64_t Span(int i) const { return (kernel[i] - 1) * dilation[i] + 1; }  // input elements that it covers
};
// From attributes strides, pads [top,left,bottom,right], dilations; checked. `rank4` shapes only.
absl::StatusOr<Window> WindowOf(const Attrs& attrs, int64_t kernel_h, int64_t kernel_w);

// Pairs of a position in [0, outputs) and a tap in [0, taps) that see the image: 0 <= position * stride + tap *
// dilation
// - before < image. In closed form, for numbers of any size that a workload may have.
int64_t TapsInside(int64_t outputs, int64_t taps, int64_t stride, int64_t dilation, int64_t before, int64_t image);

inline int64_t Rank(const TensorType& t) { return static_cast<int64_t>(t.shape.size()); }
// Elements as a double, so that products of dimensions do not overflow on the way.
double Elements(const TensorType& t);

}  // namespace temper::ops
