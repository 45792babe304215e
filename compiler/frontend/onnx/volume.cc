// Convolutions and pools over three axes: the planes that a window sees through one output of its first axis are
// further channels of a convolution over the other two, and a pool is one over the last two axes, then one over the
// first.
#include <algorithm>
#include <numeric>

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

// What a window along the planes of volumes, each of `depth` planes, sees: as channels. `pads` are planes of zeros
// before and after a volume, where they are negative planes that are left out.
struct PlaneTaps {
  int64_t depth, taps, stride, dilation;
  Ints pads;
};
absl::StatusOr<ValueId> Unfolded(Context& c, ValueId planes, const PlaneTaps& t, int64_t group) {
  if (t.taps == 1 && t.stride == 1 && t.pads == Ints{0, 0}) return planes;
  Attrs attrs;
  attrs.Set("depth", t.depth);
  attrs.Set("taps", t.taps);
  attrs.Set("stride", t.stride);
  attrs.Set("dilation", t.dilation);
  attrs.Set("pads", t.pads);
  attrs.Set("group", group);
  return c.Call("unfold_planes", std::move(attrs), {planes});
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
  ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(const Varyings moved, MoveAlongVarying(c, n, 0, w, x));
  const Shape s = c.ShapeOf(x);
  if (group < 1 || s[1] % group != 0) return absl::InvalidArgumentError("group divides the channels");
  const int64_t room = s[2] + w.pads[0] + w.pads[3] - 1 - (taps - 1) * w.dilations[0];
  if (room < 0) return absl::InvalidArgumentError("the kernel is larger than the padded input");
  TEMPER_ASSIGN_OR_RETURN(ValueId v, AsPlanes(c, x));
  TEMPER_ASSIGN_OR_RETURN(v, Unfolded(c, v, {s[2], taps, w.strides[0], w.dilations[0], {w.pads[0], w.pads[3]}}, group));
  TEMPER_ASSIGN_OR_RETURN(ValueId weight, c.Transpose(n.Input(1), {0, 2, 1, 3, 4}));
  TEMPER_ASSIGN_OR_RETURN(weight, c.Reshape(weight, {filter[0], taps * filter[1], filter[3], filter[4]}));
  Attrs attrs = WindowAttrs(Plane(w));
  attrs.Set("group", group);
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("conv2d", std::move(attrs), {v, weight}));
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, n.Input(2)));
  TEMPER_ASSIGN_OR_RETURN(v, AsVolume(c, v, s[0], room / w.strides[0] + 1));
  c.AddVaryings(v, moved);
  return c.Set(n, v);
}

namespace {

// Every `stride`-th plane of a transposed convolution's result, `count` of them: which taps of the kernel's first axis
// reach them, and which planes of the input they see. Tap t of plane i reaches plane i * stride + t * dilation of the
// result with its pads.
struct Phase {
  int64_t taps, last, step;  // so many, backward from `last` by `step`: as planes follow one another
  int64_t dilation, before, after;
  Phase(const Window& w, int64_t depth, int64_t first, int64_t count) {
    const int64_t stride = w.strides[0], common = std::gcd(stride, w.dilations[0]), begin = first + w.pads[0];
    step = stride / common, dilation = w.dilations[0] / common;
    taps = 0, last = 0;
    for (int64_t t = 0; t < w.kernel[0]; ++t) {
      if ((begin - t * w.dilations[0]) % stride == 0) ++taps, last = t;
    }
    before = (last * w.dilations[0] - begin) / stride;
    after = count - depth - before + (taps - 1) * dilation;
  }
};

// The phase's planes, [n * count, channels, h, w], of the input's, volumes of `depth`; kNoValue if no tap reaches them.
absl::StatusOr<ValueId> PlanesOf(Context& c, const OnnxNode& n, ValueId planes, int64_t depth, const Phase& phase,
                                 Attrs attrs) {
  if (phase.taps == 0) return kNoValue;
  const int64_t group = n.Int("group", 1), first = phase.last - (phase.taps - 1) * phase.step;
  const Shape filter = c.ShapeOf(n.Input(1));
  Attrs taps;
  taps.Set("axes", Ints{2});
  taps.Set("starts", Ints{phase.last});
  taps.Set("ends", Ints{first > 0 ? first - 1 : -filter[2] - 1});
  taps.Set("steps", Ints{-phase.step});
  TEMPER_ASSIGN_OR_RETURN(ValueId weight, c.Call("slice", std::move(taps), {n.Input(1)}));
  TEMPER_ASSIGN_OR_RETURN(weight,
                          c.Reshape(weight, {group, filter[0] / group, filter[1], phase.taps, filter[3], filter[4]}));
  TEMPER_ASSIGN_OR_RETURN(weight, c.Transpose(weight, {0, 3, 1, 2, 4, 5}));
  TEMPER_ASSIGN_OR_RETURN(weight, c.Reshape(weight, {filter[0] * phase.taps, filter[1], filter[3], filter[4]}));
  const PlaneTaps seen_by = {depth, phase.taps, 1, phase.dilation, {phase.before, phase.after}};
  TEMPER_ASSIGN_OR_RETURN(const ValueId seen, Unfolded(c, planes, seen_by, group));
  return c.Call("conv_transpose2d", std::move(attrs), {seen, weight});
}

// A transposed convolution's planes, `stride` phases that take turns, `turns` times: [n * turns * stride, channels, h,
// w].
absl::StatusOr<ValueId> Phases(Context& c, const OnnxNode& n, ValueId x, const Window& w, int64_t turns,
                               const Attrs& attrs) {
  const int64_t depth = c.ShapeOf(x)[2];
  TEMPER_ASSIGN_OR_RETURN(const ValueId planes, AsPlanes(c, x));
  std::vector<ValueId> phases;
  Shape shape;
  for (int64_t i = 0; i < w.strides[0]; ++i) {
    const Phase phase(w, depth, i, turns);
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, PlanesOf(c, n, planes, depth, phase, attrs));
    phases.push_back(v);
    if (v != kNoValue) shape = c.ShapeOf(v);
  }
  for (ValueId& v : phases) {
    if (v == kNoValue) v = c.Constant(NDArray(c.TypeOf(planes).dtype, shape));
  }
  // One below another: with channels last, as convolutions have them, that is where they belong.
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Concat(std::move(phases), 2));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {shape[0], shape[1], w.strides[0], shape[2], shape[3]}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 2, 1, 3, 4}));
  return c.Reshape(v, {shape[0] * w.strides[0], shape[1], shape[2], shape[3]});
}

}  // namespace

absl::Status VolumeConvTranspose(Context& c, const OnnxNode& n) {
  constexpr int64_t kDeepest = 64;
  const Shape image = c.ShapeOf(n.Input(0)), filter = c.ShapeOf(n.Input(1));
  if (filter.size() != 5) return absl::InvalidArgumentError("data and weight differ in rank");
  TEMPER_ASSIGN_OR_RETURN(Window w, WindowOf(n, Ints(filter.begin() + 2, filter.end()), image));
  Ints extra = n.Ints("output_padding", {0, 0, 0});
  if (extra.size() != 3) return absl::InvalidArgumentError("output_padding has one element a spatial axis");
  const int64_t taps = w.kernel[0], group = n.Int("group", 1), stride = w.strides[0];
  if (taps < 1 || taps > kDeepest || stride < 1 || stride > kDeepest || w.dilations[0] < 1 ||
      w.dilations[0] > kDeepest) {
    return absl::UnimplementedError(
        absl::StrCat("kernels, strides and dilations of 1 to ", kDeepest, " planes are supported"));
  }
  TEMPER_RETURN_IF_ERROR(SetTransposedPads(n, image, extra, w));
  if (extra[0] < 0 || extra[0] >= std::max(stride, w.dilations[0]))
    return absl::InvalidArgumentError("output_padding is less than a stride or a dilation");
  if (group < 1 || filter[0] % group != 0) return absl::InvalidArgumentError("group divides the channels");
  const int64_t count = (image[2] - 1) * stride + (taps - 1) * w.dilations[0] + 1 + extra[0] - w.pads[0] - w.pads[3];
  if (w.pads[0] < 0 || w.pads[3] < 0 || count < 1)
    return absl::InvalidArgumentError("the pads are not negative, and leave something of the result");
  Attrs attrs = WindowAttrs(Plane(w));
  attrs.Set("group", group);
  attrs.Set("output_padding", Ints{extra[1], extra[2]});
  const int64_t turns = (count + stride - 1) / stride;
  ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(const Varyings spread, SpreadAlongVarying(c, n, w, extra, x));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Phases(c, n, x, w, turns, attrs));
  TEMPER_ASSIGN_OR_RETURN(v, AddBias(c, v, n.Input(2)));
  TEMPER_ASSIGN_OR_RETURN(v, AsVolume(c, v, image[0], turns * stride));
  TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, 2, 0, count));
  c.AddVaryings(v, spread);
  return c.Set(n, v);
}

// How many of a window's elements count is a product of one number an axis, so that averages too come axis by axis.
absl::StatusOr<ValueId> PooledVolume(Context& c, const OnnxNode& n, const Window& w, ValueId x, bool counts_pads) {
  const Shape s = c.ShapeOf(x);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, AsPlanes(c, x));
  TEMPER_ASSIGN_OR_RETURN(v, PooledImage(c, n, Plane(w), v, counts_pads));
  // With channels last, as convolutions have them, a plane is one run of memory.
  const Shape plane = c.ShapeOf(v);
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 2, 3, 1}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0], 1, s[2], plane[1] * plane[2] * plane[3]}));
  TEMPER_ASSIGN_OR_RETURN(v, PooledImage(c, n, Depth(w), v, counts_pads));
  const int64_t planes = c.ShapeOf(v)[2];
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {s[0] * planes, plane[2], plane[3], plane[1]}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 3, 1, 2}));
  return AsVolume(c, v, s[0], planes);
}

}  // namespace temper::onnx_frontend
