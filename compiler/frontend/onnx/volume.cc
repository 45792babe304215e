// Convolutions and pools over three axes: the planes that a window sees through one output of its first axis are
// further channels of a convolution over the other two, and a pool is one over the last two axes, then one over the
// first.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/window.h"

namespace temper::onnx_frontend {
namespace {

// The window's last two axes, and its first as the first of two.
Window Plane(const Window& w) {
  const auto last = [](const Ints& v) { return Ints{v[1], v[2]}; };
  return {last(w.kernel), last(w.strides), last(w.dilations), {w.pads[1], w.pads[2], w.pads[4], w.pads[5]}};
}
Window Depth(const Window& w) {
  return {{w.kernel[0], 1}, {w.strides[0], 1}, {w.dilations[0], 1}, {w.pads[0], 0, w.pads[3], 0}};
}

// [n, c, d, h, w] as [n * d, c, h, w], and back with `d` as given.
absl::StatusOr<ValueId> AsPlanes(Context& c, ValueId v) {
  const Shape s = c.ShapeOf(v);
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 2, 1, 3, 4}));
  return c.Reshape(v, {s[0] * s[2], s[1], s[3], s[4]});
}
absl::StatusOr<ValueId> AsVolume(Context& c, ValueId v, int64_t n, int64_t d) {
  const Shape s = c.ShapeOf(v);
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {n, d, s[1], s[2], s[3]}));
  return c.Transpose(v, {0, 2, 1, 3, 4});
}

// Every `step`-th plane, `count` of them.
absl::StatusOr<ValueId> PlanesFrom(Context& c, ValueId v, int64_t start, int64_t step, int64_t count) {
  Attrs attrs;
  attrs.Set("axes", Ints{2});
  attrs.Set("starts", Ints{start});
  attrs.Set("ends", Ints{start + (count - 1) * step + 1});
  attrs.Set("steps", Ints{step});
  return c.Call("slice", std::move(attrs), {v});
}

}  // namespace

absl::Status VolumeConv(Context& c, const OnnxNode& n) {
  constexpr int64_t kDeepest = 64;
  const Shape filter = c.ShapeOf(n.Input(1));
  if (filter.size() != 5) return absl::InvalidArgumentError("data and weight differ in rank");
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, Ints(filter.begin() + 2, filter.end()), c.ShapeOf(n.Input(0))));
  const int64_t group = n.Int("group", 1), taps = filter[2];
  if (taps < 1 || taps > kDeepest)
    return absl::UnimplementedError(absl::StrCat("kernels of 1 to ", kDeepest, " planes are supported, not ", taps));
  if (w.pads[0] < 0 || w.pads[3] < 0 || w.dilations[0] < 1)
    return absl::InvalidArgumentError("pads are not negative, dilations are at least 1");
  TEMPER_ASSIGN_OR_RETURN(ValueId x, c.Pad(n.Input(0), {0, 0, w.pads[0], 0, 0, 0, 0, w.pads[3], 0, 0}));
  const Shape s = c.ShapeOf(x);
  if (group < 1 || s[1] % group != 0) return absl::InvalidArgumentError("group divides the channels");
  const int64_t room = s[2] - 1 - (taps - 1) * w.dilations[0], planes = room / w.strides[0] + 1;
  if (room < 0) return absl::InvalidArgumentError("the kernel is larger than the padded input");
  std::vector<ValueId> parts;
  for (int64_t tap = 0; tap < taps; ++tap) {
    TEMPER_ASSIGN_OR_RETURN(ValueId part, PlanesFrom(c, x, tap * w.dilations[0], w.strides[0], planes));
    TEMPER_ASSIGN_OR_RETURN(part, AsPlanes(c, part));
    TEMPER_ASSIGN_OR_RETURN(part, c.Reshape(part, {s[0] * planes, group, s[1] / group, s[3], s[4]}));
    parts.push_back(part);
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Concat(std::move(parts), 2));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0] * planes, s[1] * taps, s[3], s[4]}));
  TEMPER_ASSIGN_OR_RETURN(ValueId weight, c.Transpose(n.Input(1), {0, 2, 1, 3, 4}));
  TEMPER_ASSIGN_OR_RETURN(weight, c.Reshape(weight, {filter[0], taps * filter[1], filter[3], filter[4]}));
  Attrs attrs = WindowAttrs(Plane(w));
  attrs.Set("group", group);
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("conv2d", std::move(attrs), {v, weight}));
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, n.Input(2)));
  TEMPER_ASSIGN_OR_RETURN(v, AsVolume(c, v, s[0], planes));
  return c.Set(n, v);
}

namespace {

// Planes of a transposed convolution, [n, planes, channels, taps, h, w], whose taps overlap: each of them lands at its
// plane's number times the stride and its own times the dilation. Those that land `p` behind a multiple of the stride
// are summed up for each p, and the sums take turns: [n, channels, count, h, w].
absl::StatusOr<ValueId> Overlapped(Context& c, ValueId v, const Window& w, int64_t extra) {
  const Shape s = c.ShapeOf(v);
  const int64_t stride = w.strides[0], taps = s[3], dilation = w.dilations[0];
  const int64_t full = (s[1] - 1) * stride + (taps - 1) * dilation + 1 + extra, turns = (full + stride - 1) / stride;
  const int64_t count = full - w.pads[0] - w.pads[3];
  if (w.pads[0] < 0 || w.pads[3] < 0 || count < 1)
    return absl::InvalidArgumentError("the pads are not negative, and leave something of the result");
  std::vector<ValueId> sums(static_cast<size_t>(stride), kNoValue);
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t before = tap * dilation / stride;
    ValueId& sum = sums[static_cast<size_t>(tap * dilation % stride)];
    TEMPER_ASSIGN_OR_RETURN(ValueId part, c.Element(v, 3, tap));
    TEMPER_ASSIGN_OR_RETURN(part, c.Pad(part, {0, before, 0, 0, 0, 0, turns - s[1] - before, 0, 0, 0}));
    if (sum != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(part, c.Call("add", {}, {sum, part}));
    }
    sum = part;
  }
  for (ValueId& sum : sums) {
    if (sum == kNoValue) sum = c.Constant(NDArray(c.TypeOf(v).dtype, {s[0], turns, s[2], s[4], s[5]}));
    TEMPER_ASSIGN_OR_RETURN(sum, c.NewAxis(sum, 2));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Concat(std::move(sums), 2));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0], turns * stride, s[2], s[4], s[5]}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, 1, w.pads[0], w.pads[0] + count));
  return c.Transpose(v, {0, 2, 1, 3, 4});
}

}  // namespace

// Each plane makes planes of its own, as further channels. Where the kernel's first axis is as long as its stride, they
// lie one behind another.
absl::Status VolumeConvTranspose(Context& c, const OnnxNode& n) {
  constexpr int64_t kDeepest = 64;
  const Shape image = c.ShapeOf(n.Input(0)), filter = c.ShapeOf(n.Input(1));
  if (filter.size() != 5) return absl::InvalidArgumentError("data and weight differ in rank");
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, Ints(filter.begin() + 2, filter.end()), image));
  Ints extra = n.Ints("output_padding", {0, 0, 0});
  if (extra.size() != 3) return absl::InvalidArgumentError("output_padding has one element a spatial axis");
  const int64_t taps = w.kernel[0], group = n.Int("group", 1);
  if (taps < 1 || taps > kDeepest || w.strides[0] > kDeepest || w.dilations[0] < 1 || w.dilations[0] > kDeepest)
    return absl::UnimplementedError(
        absl::StrCat("kernels, strides and dilations of 1 to ", kDeepest, " planes are supported"));
  TEMPER_RETURN_IF_ERROR(SetTransposedPads(n, image, extra, w));
  if (extra[0] < 0 || extra[0] >= std::max(w.strides[0], w.dilations[0]))
    return absl::InvalidArgumentError("output_padding is less than a stride or a dilation");
  TEMPER_ASSIGN_OR_RETURN(ValueId v, AsPlanes(c, n.Input(0)));
  TEMPER_ASSIGN_OR_RETURN(ValueId weight, c.Reshape(n.Input(1), {filter[0], filter[1] * taps, filter[3], filter[4]}));
  Attrs attrs = WindowAttrs(Plane(w));
  attrs.Set("group", group);
  attrs.Set("output_padding", Ints{extra[1], extra[2]});
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("conv_transpose2d", std::move(attrs), {v, weight}));
  const Shape plane = c.ShapeOf(v);
  const int64_t channels = plane[1] / taps;
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {image[0], image[2], channels, taps, plane[2], plane[3]}));
  const bool apart = taps == w.strides[0] && w.dilations[0] == 1 && w.pads[0] == 0 && w.pads[3] == 0 && extra[0] == 0;
  if (apart) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 2, 1, 3, 4, 5}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {image[0], channels, image[2] * taps, plane[2], plane[3]}));
  } else {
    TEMPER_ASSIGN_OR_RETURN(v, Overlapped(c, v, w, extra[0]));
  }
  if (n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(ValueId bias, c.Reshape(n.Input(2), {NumElements(c.ShapeOf(n.Input(2))), 1, 1, 1}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, bias}));
  }
  return c.Set(n, v);
}

// How many of a window's elements count is a product of one number an axis, so that averages too come axis by axis.
absl::Status VolumePool(Context& c, const OnnxNode& n) {
  const Shape s = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, n.Ints("kernel_shape"), s));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, AsPlanes(c, n.Input(0)));
  TEMPER_ASSIGN_OR_RETURN(v, PoolOf(c, n, Plane(w), v));
  // With channels last, as convolutions have them, a plane is one run of memory.
  const Shape plane = c.ShapeOf(v);
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 2, 3, 1}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0], 1, s[2], plane[1] * plane[2] * plane[3]}));
  TEMPER_ASSIGN_OR_RETURN(v, PoolOf(c, n, Depth(w), v));
  const int64_t planes = c.ShapeOf(v)[2];
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0] * planes, plane[2], plane[3], plane[1]}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 3, 1, 2}));
  TEMPER_ASSIGN_OR_RETURN(v, AsVolume(c, v, s[0], planes));
  return c.Set(n, v);
}

}  // namespace temper::onnx_frontend
