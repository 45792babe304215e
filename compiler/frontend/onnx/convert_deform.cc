// DeformConv: a convolution whose filters look at pixels beside those that they would look at. What each element of a
// filter sees is sampled first, and a product with the filters follows.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/strides.h"
#include "compiler/frontend/onnx/sampling.h"
#include "compiler/frontend/onnx/window.h"

namespace temper::onnx_frontend {
namespace {

struct DeformSizes {
  int64_t batch = 0, channels = 0, filters = 0, groups = 1, of_offsets = 1;  // of_offsets: groups with own offsets
  int64_t taps = 0, pixels = 0;                                              // of a filter, of the result
  Shape out;                                                                 // the result's spatial axes
};

absl::StatusOr<DeformSizes> DeformSizesOf(Context& c, const OnnxNode& n, const Window& w) {
  const Shape x = c.ShapeOf(n.Input(0)), weight = c.ShapeOf(n.Input(1)), offset = c.ShapeOf(n.Input(2));
  DeformSizes s{x[0], x[1], weight[0], n.Int("group", 1), n.Int("offset_group", 1), NumElements(w.kernel), 1, {}};
  if (s.groups < 1 || s.filters % s.groups != 0 || weight[1] * s.groups != s.channels)
    return absl::InvalidArgumentError("group does not fit the channels");
  if (s.of_offsets < 1 || s.channels % s.of_offsets != 0)
    return absl::InvalidArgumentError("offset_group divides the channels");
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    const int64_t span = (w.kernel[d] - 1) * w.dilations[d] + 1, room = x[d + 2] + w.pads[d] + w.pads[d + x.size() - 2];
    if (x[d + 2] < 1 || w.kernel[d] < 1 || room < span)
      return absl::InvalidArgumentError("the image is smaller than the kernel");
    s.out.push_back((room - span) / w.strides[d] + 1);
  }
  s.pixels = NumElements(s.out);
  Shape wanted = {s.batch, s.of_offsets * s.taps * std::ssize(w.kernel)};
  wanted.insert(wanted.end(), s.out.begin(), s.out.end());
  if (offset != wanted) return absl::InvalidArgumentError(absl::StrCat("the offsets are [", ShapeText(wanted), "]"));
  wanted[1] = s.of_offsets * s.taps;
  if (n.Input(4) != kNoValue && c.ShapeOf(n.Input(4)) != wanted)
    return absl::InvalidArgumentError(absl::StrCat("the mask is [", ShapeText(wanted), "]"));
  if (n.Input(3) != kNoValue && c.ShapeOf(n.Input(3)) != Shape{s.filters})
    return absl::InvalidArgumentError(absl::StrCat("the bias is [", s.filters, "]"));
  return s;
}

// Where the elements of a filter lie along an axis before they are moved: [pixels, taps].
NDArray UnmovedPlaces(DType dtype, const Window& w, const DeformSizes& s, size_t axis) {
  const std::vector<int64_t> of_pixel = RowMajorStrides(s.out), of_tap = RowMajorStrides(w.kernel);
  NDArray places(dtype, {1, s.pixels, s.taps, 1});
  for (int64_t i = 0; i < places.size(); ++i) {
    const int64_t pixel = i / s.taps / of_pixel[axis] % s.out[axis], tap = i % s.taps / of_tap[axis] % w.kernel[axis];
    places.Set(i, static_cast<double>(pixel * w.strides[axis] + tap * w.dilations[axis] - w.pads[axis]));
  }
  return places;
}

// What the filters see, [batch * of_offsets, pixels, taps, channels of a group with own offsets].
absl::StatusOr<ValueId> SeenByFilters(Context& c, const OnnxNode& n, const Window& w, const DeformSizes& s) {
  const Shape x = c.ShapeOf(n.Input(0));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  const int64_t axes = std::ssize(w.kernel), parts = s.batch * s.of_offsets;
  // Narrow floats do not tell a pixel's neighbours apart.
  Formula f(c, dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  TEMPER_ASSIGN_OR_RETURN(ValueId offset, c.Reshape(n.Input(2), {parts, s.taps, axes, s.pixels}));
  TEMPER_ASSIGN_OR_RETURN(offset, c.Cast(offset, dtype == DType::kF64 ? DType::kF64 : DType::kF32));
  std::vector<std::vector<Tap>> taps;
  for (int64_t d = 0; d < axes; ++d) {
    const size_t axis = static_cast<size_t>(d);
    TEMPER_ASSIGN_OR_RETURN(ValueId along, c.Element(offset, 2, d));
    TEMPER_ASSIGN_OR_RETURN(along, c.Transpose(along, {0, 2, 1}));
    TEMPER_ASSIGN_OR_RETURN(along, c.NewAxis(along, 3));
    const ValueId position = f.Add(along, c.Constant(UnmovedPlaces(c.TypeOf(offset).dtype, w, s, axis)));
    TEMPER_RETURN_IF_ERROR(f.status());
    taps.push_back(Axis1d(f, x[axis + 2], true, Padding::kZeros).TapsAt(position, Sampling::kLinear));
  }
  Shape image = x;
  image[0] = parts;
  image[1] = s.channels / s.of_offsets;
  TEMPER_ASSIGN_OR_RETURN(const ValueId grouped, c.Reshape(n.Input(0), std::move(image)));
  TEMPER_ASSIGN_OR_RETURN(ValueId seen, Sampled(c, f, grouped, taps, {parts, s.pixels, s.taps}));
  if (n.Input(4) == kNoValue) return seen;
  TEMPER_ASSIGN_OR_RETURN(ValueId mask, c.Reshape(n.Input(4), {parts, s.taps, s.pixels}));
  TEMPER_ASSIGN_OR_RETURN(mask, c.Transpose(mask, {0, 2, 1}));
  TEMPER_ASSIGN_OR_RETURN(mask, c.NewAxis(mask, 3));
  return c.Call("mul", {}, {seen, mask});
}

}  // namespace

absl::Status DeformConv(Context& c, const OnnxNode& n) {
  const Shape x = c.ShapeOf(n.Input(0)), weight = c.ShapeOf(n.Input(1));
  if ((x.size() != 4 && x.size() != 5) || weight.size() != x.size())
    return absl::UnimplementedError(absl::StrCat("rank ", x.size(), " is not supported, only 4 and 5"));
  const Ints kernel(weight.begin() + 2, weight.end());
  if (n.Ints("kernel_shape", kernel) != kernel)
    return absl::InvalidArgumentError("kernel_shape is not that of the weight");
  TEMPER_ASSIGN_OR_RETURN(const Window w, WindowOf(n, kernel, x));
  TEMPER_ASSIGN_OR_RETURN(const DeformSizes s, DeformSizesOf(c, n, w));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, SeenByFilters(c, n, w, s));
  // As [batch, groups, pixels, taps * channels of a group].
  if (s.of_offsets > 1) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s.batch, s.of_offsets, s.pixels, s.taps, s.channels / s.of_offsets}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 2, 3, 1, 4}));
  }
  const int64_t depth = s.channels / s.groups;
  if (s.groups > 1) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s.batch, s.pixels, s.taps, s.groups, depth}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 3, 1, 2, 4}));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s.batch, s.groups, s.pixels, s.taps * depth}));
  TEMPER_ASSIGN_OR_RETURN(ValueId filters, c.Reshape(n.Input(1), {s.groups, s.filters / s.groups, depth, s.taps}));
  TEMPER_ASSIGN_OR_RETURN(filters, c.Transpose(filters, {0, 3, 2, 1}));
  TEMPER_ASSIGN_OR_RETURN(filters, c.Reshape(filters, {1, s.groups, s.taps * depth, s.filters / s.groups}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("matmul", {}, {v, filters}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 1, 3, 2}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s.batch, s.filters, 1, s.pixels}));
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, n.Input(3)));
  Shape shape = {s.batch, s.filters};
  shape.insert(shape.end(), s.out.begin(), s.out.end());
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(shape)));
  return c.Set(n, v);
}

}  // namespace temper::onnx_frontend
