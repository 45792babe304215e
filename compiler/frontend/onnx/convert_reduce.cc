// Reductions, softmax, the normalisations and determinants.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/context.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// An ONNX reduction as Temper's, with elementwise work before and after.
struct Reduction {
  std::string_view onnx;
  const char* before;
  const char* op;
  const char* after;
  bool in_floats = false;  // integers are computed as f64, and the result rounded towards zero
};
constexpr Reduction kReductions[] = {
    {"ReduceSum", "", "reduce_sum", ""},
    {"ReduceMean", "", "reduce_mean", ""},
    {"ReduceMax", "", "reduce_max", ""},
    {"ReduceMin", "", "reduce_min", ""},
    {"ReduceProd", "", "reduce_prod", ""},
    {"ReduceL2", "", "reduce_l2", "", true},
    {"ReduceL1", "abs", "reduce_sum", ""},
    {"ReduceSumSquare", "square", "reduce_sum", ""},
    {"ReduceLogSum", "", "reduce_sum", "log", true},
};

absl::StatusOr<ValueId> UnaryIfAny(Context& c, std::string_view op, ValueId v) {
  if (op.empty()) return v;
  if (op == "square") return c.Call("mul", {}, {v, v});
  return c.Call(std::string(op), {}, {v});
}

// How many bools hold, of which the numbers are added up, all of them: what a shape is made of, too. nullopt: others
// are added up.
absl::StatusOr<std::optional<ValueId>> CountOfBools(Context& c, const OnnxNode& n, const std::vector<int64_t>& axes) {
  const ValueId x = n.Input(0), holds = BoolsOf(c, x);
  if (n.proto.op_type() != "ReduceSum" || holds == x || c.Known(x) != nullptr || NumElements(c.ShapeOf(x)) == 0)
    return std::nullopt;
  Shape shape;
  for (int64_t d = 0; d < c.Rank(x); ++d) {
    const bool added = std::ranges::find(axes, d) != axes.end();
    const bool single = c.ShapeOf(x)[static_cast<size_t>(d)] == 1 && c.VaryingAlong(x, d) == nullptr;
    if (!added && !single) return std::nullopt;
    if (!added || n.Int("keepdims", 1) != 0) shape.push_back(1);
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId count, CountOf(c, holds));
  TEMPER_ASSIGN_OR_RETURN(count, c.Reshape(count, std::move(shape)));
  TEMPER_ASSIGN_OR_RETURN(count, c.Cast(count, c.TypeOf(x).dtype));
  return count;
}

absl::Status Reduce(Context& c, const OnnxNode& n) {
  const auto* rule = std::find_if(std::begin(kReductions), std::end(kReductions),
                                  [&](const Reduction& r) { return r.onnx == n.proto.op_type(); });
  TEMPER_ASSIGN_OR_RETURN(auto axes, AxesOf(c, n, 1, c.Rank(n.Input(0))));
  const bool none = !axes.has_value() || axes->empty();
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (!(none && n.Int("noop_with_empty_axes", 0) != 0)) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<ValueId> count,
                            CountOfBools(c, n, none ? AxesFrom(0, c.Rank(n.Input(0))) : *axes));
    if (count.has_value()) return c.Set(n, *count);
  }
  ValueId v = n.Input(0);
  const std::string_view op = rule->op;
  if (rule->in_floats && !IsFloat(dtype)) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, DType::kF64));
  } else if (dtype == DType::kBool && (op == "reduce_max" || op == "reduce_min")) {  // any of them, or all
    TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, DType::kU8));
  }
  TEMPER_ASSIGN_OR_RETURN(v, UnaryIfAny(c, rule->before, v));
  if (!(none && n.Int("noop_with_empty_axes", 0) != 0)) {
    Attrs attrs;
    if (!none) attrs.Set("axes", *axes);
    attrs.Set("keepdims", n.Int("keepdims", 1));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call(rule->op, std::move(attrs), {v}));
  } else if (op == "reduce_l2") {  // the square root of the square
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("abs", {}, {v}));
  }
  TEMPER_ASSIGN_OR_RETURN(v, UnaryIfAny(c, rule->after, v));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, dtype));
  return c.Set(n, v);
}

absl::Status ArgExtreme(Context& c, const OnnxNode& n) {
  Attrs attrs;
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  attrs.Set("axis", axis);
  attrs.Set("keepdims", n.Int("keepdims", 1));
  if (n.Int("select_last_index", 0) != 0) attrs.Set("select_last_index", int64_t{1});
  const char* op = n.proto.op_type() == "ArgMax" ? "arg_max" : "arg_min";
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call(op, std::move(attrs), {n.Input(0)}));
  return c.Set(n, v);
}

// log(sum(exp(x - m))) + m, where m is the largest finite element: no exponential overflows.
absl::Status ReduceLogSumExp(Context& c, const OnnxNode& n) {
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Cast(n.Input(0), IsFloat(dtype) ? dtype : DType::kF64));
  TEMPER_ASSIGN_OR_RETURN(auto given, AxesOf(c, n, 1, c.Rank(x)));
  std::vector<int64_t> axes = given.value_or(std::vector<int64_t>());
  if (axes.empty() && n.Int("noop_with_empty_axes", 0) != 0) return c.Set(n, n.Input(0));
  if (axes.empty()) axes = AxesFrom(0, c.Rank(x));
  TEMPER_ASSIGN_OR_RETURN(ValueId most, c.Reduce("reduce_max", x, axes, true));
  Attrs finite;
  finite.Set("min", static_cast<double>(std::numeric_limits<float>::lowest()));
  finite.Set("max", static_cast<double>(std::numeric_limits<float>::max()));
  TEMPER_ASSIGN_OR_RETURN(most, c.Call("clip", std::move(finite), {most}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("sub", {}, {x, most}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("exp", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_sum", v, axes, true));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("log", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, most}));
  if (n.Int("keepdims", 1) == 0) {
    Shape shape;
    for (size_t d = 0; d < c.ShapeOf(x).size(); ++d) {
      if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d))) shape.push_back(c.ShapeOf(x)[d]);
    }
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(shape)));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, dtype));
  return c.Set(n, v);
}

// Before opset 13 the axis says where to flatten to a matrix, whose rows count one by one; since then it is one axis.
struct Lines {
  ValueId value = kNoValue;
  int64_t axis = 0;
};
absl::StatusOr<Lines> LinesOf(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", n.opset < 13 ? 1 : -1), c.Rank(x)));
  if (n.opset >= 13 || axis + 1 == c.Rank(x)) return Lines{x, axis};
  const std::span<const int64_t> dims(c.ShapeOf(x));
  const size_t split = static_cast<size_t>(axis);
  TEMPER_ASSIGN_OR_RETURN(const ValueId flat,
                          c.Reshape(x, {NumElements(dims.first(split)), NumElements(dims.subspan(split))}));
  return Lines{flat, 1};
}

absl::Status Softmax(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const Lines lines, LinesOf(c, n));
  Attrs attrs;
  attrs.Set("axis", lines.axis);
  const char* op = n.proto.op_type() == "Softmax" ? "softmax" : "log_softmax";
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call(op, std::move(attrs), {lines.value}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  return c.Set(n, v);
}

// Means over the axes, which stay with one element, and what lies around them.
struct Moments {
  ValueId mean, centred, variance;
};
absl::StatusOr<Moments> MomentsOf(Context& c, ValueId x, const std::vector<int64_t>& axes) {
  Moments m;
  TEMPER_ASSIGN_OR_RETURN(m.mean, c.Reduce("reduce_mean", x, axes, true));
  TEMPER_ASSIGN_OR_RETURN(m.centred, c.Call("sub", {}, {x, m.mean}));
  TEMPER_ASSIGN_OR_RETURN(m.variance, c.Call("mul", {}, {m.centred, m.centred}));
  TEMPER_ASSIGN_OR_RETURN(m.variance, c.Reduce("reduce_mean", m.variance, axes, true));
  return m;
}

// sqrt(v + epsilon), by the node's epsilon.
absl::StatusOr<ValueId> RootOf(Context& c, const OnnxNode& n, ValueId v) {
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, c.Scalar(c.TypeOf(v).dtype, n.Float("epsilon", 1e-5))}));
  return c.Call("sqrt", {}, {v});
}

bool PixelsVary(Context& c, ValueId x) {
  return std::ranges::any_of(c.VaryingsOf(x), [](const Varying& v) { return v.axis > 1; });
}

// Channels that are normalised in groups, over pixels of which only the run knows how many there are.
absl::StatusOr<ValueId> NormalizedVarying(Context& c, const OnnxNode& n, ValueId x, int64_t groups, ValueId scale,
                                          ValueId bias) {
  const Shape shape = c.ShapeOf(x);
  Shape apart = shape, per_channel(shape.size() - 1, 1);
  per_channel[0] = shape[1];
  apart[1] = groups;
  apart.insert(apart.begin() + 2, shape[1] / groups);
  TEMPER_ASSIGN_OR_RETURN(const ValueId grouped, groups == shape[1] ? absl::StatusOr<ValueId>(x) : c.Reshape(x, apart));
  TEMPER_ASSIGN_OR_RETURN(const Moments m, MomentsOf(c, grouped, AxesFrom(2, c.Rank(grouped))));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, RootOf(c, n, m.variance));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {m.centred, v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  TEMPER_ASSIGN_OR_RETURN(scale, c.Reshape(scale, per_channel));
  TEMPER_ASSIGN_OR_RETURN(bias, c.Reshape(bias, per_channel));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, scale}));
  return c.Call("add", {}, {v, bias});
}

// One value a group or a channel as one a channel.
absl::StatusOr<ValueId> PerChannel(Context& c, ValueId v, int64_t groups, int64_t channels) {
  const int64_t count = NumElements(c.ShapeOf(v));
  if (count != groups && count != channels)
    return absl::InvalidArgumentError("scale and bias have one value a group or channel");
  if (count != channels) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {count, 1}));
    TEMPER_ASSIGN_OR_RETURN(v, c.Expand(v, {count, channels / count}));
  }
  return c.Reshape(v, {channels});
}

// The image whose channels are the value's in groups, each group's pixels one behind the other: as exporters write a
// GroupNormalization. What they reshape back costs nothing then.
std::optional<ValueId> GroupedImage(Context& c, ValueId v) {
  const std::optional<Context::Reshaped> made = c.ReshapedFrom(v);
  if (!made.has_value() || c.Rank(v) != 3 || c.Rank(made->from) < 3) return std::nullopt;
  const Shape &image = c.ShapeOf(made->from), &grouped = c.ShapeOf(v);
  const auto of_pixels = [](const Varying& varying) { return varying.axis > 1; };
  const bool fits = image[0] == grouped[0] && grouped[1] > 0 && image[1] % grouped[1] == 0 &&
                    std::ranges::all_of(c.VaryingsOf(made->from), of_pixels) &&
                    std::ranges::all_of(c.VaryingsOf(v), of_pixels);
  return fits ? std::optional(made->from) : std::nullopt;
}

absl::Status InstanceNormalization(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  if (PixelsVary(c, x) && n.Input(1) != kNoValue && n.Input(2) != kNoValue) {
    const int64_t channels = c.ShapeOf(x)[1];
    ValueId v = kNoValue;
    if (const std::optional<ValueId> image = GroupedImage(c, x)) {
      const int64_t all = c.ShapeOf(*image)[1];
      TEMPER_ASSIGN_OR_RETURN(const ValueId scale, PerChannel(c, n.Input(1), channels, all));
      TEMPER_ASSIGN_OR_RETURN(const ValueId bias, PerChannel(c, n.Input(2), channels, all));
      TEMPER_ASSIGN_OR_RETURN(v, NormalizedVarying(c, n, *image, channels, scale, bias));
      TEMPER_ASSIGN_OR_RETURN(v, ReshapedLike(c, v, x));
    } else {
      TEMPER_ASSIGN_OR_RETURN(v, NormalizedVarying(c, n, x, channels, n.Input(1), n.Input(2)));
    }
    return c.Set(n, v);
  }
  Attrs attrs;
  attrs.Set("epsilon", n.Float("epsilon", 1e-5));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("group_norm", std::move(attrs), n.inputs));
  return c.Set(n, v);
}

// In training the moments are the batch's own, and the running ones go on by them.
absl::Status BatchNormalization(Context& c, const OnnxNode& n) {
  if (n.Int("spatial", 1) == 0) return absl::UnimplementedError("spatial = 0 is not supported");
  std::vector<ValueId> inputs = n.inputs;
  if (n.Int("training_mode", 0) != 0) {
    if (inputs.size() != 5 || c.Rank(inputs[0]) < 2)
      return absl::InvalidArgumentError("takes [batch, channels, ...] and four vectors");
    std::vector<int64_t> axes = AxesFrom(2, c.Rank(inputs[0]));
    axes.insert(axes.begin(), 0);
    TEMPER_ASSIGN_OR_RETURN(const Moments m, MomentsOf(c, inputs[0], axes));
    const double kept = n.Float("momentum", 0.9);
    for (size_t i = 3; i < 5; ++i) {
      if (inputs[i] == kNoValue) return absl::InvalidArgumentError("an operand is missing");
      const DType dtype = c.TypeOf(inputs[i]).dtype;
      TEMPER_ASSIGN_OR_RETURN(ValueId own, c.Reshape(i == 3 ? m.mean : m.variance, {c.ShapeOf(inputs[0])[1]}));
      TEMPER_ASSIGN_OR_RETURN(own, c.Cast(own, dtype));
      TEMPER_ASSIGN_OR_RETURN(const ValueId old, c.Call("mul", {}, {inputs[i], c.Scalar(dtype, kept)}));
      TEMPER_ASSIGN_OR_RETURN(const ValueId added, c.Call("mul", {}, {own, c.Scalar(dtype, 1 - kept)}));
      TEMPER_ASSIGN_OR_RETURN(const ValueId running, c.Call("add", {}, {old, added}));
      TEMPER_RETURN_IF_ERROR(c.Set(n, running, static_cast<int>(i) - 2));
      inputs[i] = own;
    }
  }
  Attrs attrs;
  attrs.Set("epsilon", n.Float("epsilon", 1e-5));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("batch_norm", std::move(attrs), std::move(inputs)));
  return c.Set(n, v);
}

absl::Status MeanVarianceNormalization(Context& c, const OnnxNode& n) {
  std::vector<int64_t> axes = n.Ints("axes", {0, 2, 3});
  for (int64_t& axis : axes) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(axis, c.Rank(n.Input(0))));
  }
  TEMPER_ASSIGN_OR_RETURN(const Moments m, MomentsOf(c, n.Input(0), axes));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("sqrt", {}, {m.variance}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, c.Scalar(c.TypeOf(v).dtype, 1e-9)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {m.centred, v}));
  return c.Set(n, v);
}

// The second and third output, where the model has them: mean and 1 / sqrt(variance + epsilon), in f32.
absl::Status SetMoments(Context& c, const OnnxNode& n, int64_t axis) {
  const auto wanted = [&](int i) { return n.proto.output_size() > i && !n.proto.output(i).empty(); };
  if (!wanted(1) && !wanted(2)) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Cast(n.Input(0), DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(const Moments m, MomentsOf(c, x, AxesFrom(axis, c.Rank(x))));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, RootOf(c, n, m.variance));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("reciprocal", {}, {v}));
  if (wanted(1)) TEMPER_RETURN_IF_ERROR(c.Set(n, m.mean, 1));
  return wanted(2) ? c.Set(n, v, 2) : absl::OkStatus();
}

// One where the first of the largest is, zero elsewhere.
absl::Status Hardmax(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(MustBeKnown(c, n.Input(0), "Hardmax"));
  const Shape shape = c.ShapeOf(n.Input(0));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  TEMPER_ASSIGN_OR_RETURN(const Lines lines, LinesOf(c, n));
  const Shape of_lines = c.ShapeOf(lines.value);
  Attrs attrs;
  attrs.Set("axis", lines.axis);
  attrs.Set("keepdims", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(const ValueId most, c.Call("arg_max", std::move(attrs), {lines.value}));
  std::vector<int64_t> numbers(static_cast<size_t>(of_lines[static_cast<size_t>(lines.axis)]));
  std::iota(numbers.begin(), numbers.end(), 0);
  Shape along(of_lines.size() - static_cast<size_t>(lines.axis), 1);
  along[0] = static_cast<int64_t>(numbers.size());
  TEMPER_ASSIGN_OR_RETURN(const ValueId places, c.Reshape(c.IntVector(numbers), std::move(along)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId there, c.Call("equal", {}, {most, places}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("where", {}, {there, c.Scalar(dtype, 1), c.Scalar(dtype, 0)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  return c.Set(n, v);
}

absl::Status LayerNormalization(Context& c, const OnnxNode& n) {
  Attrs attrs;
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, Axis(n.Int("axis", -1), c.Rank(n.Input(0))));
  attrs.Set("axis", axis);
  attrs.Set("epsilon", n.Float("epsilon", 1e-5));
  std::vector<ValueId> inputs = {n.Input(0), n.Input(1)};
  if (n.Input(2) != kNoValue) inputs.push_back(n.Input(2));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("layer_norm", std::move(attrs), std::move(inputs)));
  TEMPER_RETURN_IF_ERROR(SetMoments(c, n, axis));
  return c.Set(n, v);
}

absl::Status GroupNormalization(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  const int64_t groups = n.Int("num_groups", 1);
  if (shape.size() < 3 || groups < 1 || shape[1] % groups != 0)
    return absl::InvalidArgumentError("num_groups divides the channels");
  TEMPER_ASSIGN_OR_RETURN(ValueId scale, PerChannel(c, n.Input(1), groups, shape[1]));
  TEMPER_ASSIGN_OR_RETURN(ValueId bias, PerChannel(c, n.Input(2), groups, shape[1]));
  if (PixelsVary(c, n.Input(0))) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, NormalizedVarying(c, n, n.Input(0), groups, scale, bias));
    return c.Set(n, v);
  }
  Attrs attrs;
  attrs.Set("groups", groups);
  attrs.Set("epsilon", n.Float("epsilon", 1e-5));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("group_norm", std::move(attrs), {n.Input(0), scale, bias}));
  return c.Set(n, v);
}

// x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` on.
absl::Status RmsNormalization(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", -1), c.Rank(x)));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("mul", {}, {x, x}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_mean", v, AxesFrom(axis, c.Rank(x)), true));
  TEMPER_ASSIGN_OR_RETURN(v, RootOf(c, n, v));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {x, v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, n.Input(1)}));
  return c.Set(n, v);
}

// x / (bias + alpha / size * the sum of the squares of `size` neighbouring channels) ^ beta
absl::Status Lrn(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  const Shape shape = c.ShapeOf(x);
  const DType dtype = c.TypeOf(x).dtype;
  const int64_t size = n.Int("size", 0);
  if (shape.size() < 2 || size < 1) return absl::InvalidArgumentError("size is the number of channels to look at");
  if (size > 64) return absl::UnimplementedError("a size above 64 is not supported");
  std::vector<int64_t> pads(2 * shape.size(), 0);
  pads[1] = (size - 1) / 2;
  pads[shape.size() + 1] = size / 2;
  TEMPER_ASSIGN_OR_RETURN(ValueId squares, c.Call("mul", {}, {x, x}));
  TEMPER_ASSIGN_OR_RETURN(squares, c.Pad(squares, std::move(pads)));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Slice(squares, 1, 0, shape[1]));
  for (int64_t i = 1; i < size; ++i) {
    TEMPER_ASSIGN_OR_RETURN(ValueId next, c.Slice(squares, 1, i, i + shape[1]));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, next}));
  }
  const double share = n.Float("alpha", 1e-4) / static_cast<double>(size);
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, c.Scalar(dtype, share)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, c.Scalar(dtype, n.Float("bias", 1))}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("pow", {}, {v, c.Scalar(dtype, n.Float("beta", 0.75))}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {x, v}));
  return c.Set(n, v);
}

// x / |x|, and zero where |x| is.
absl::Status LpNormalization(Context& c, const OnnxNode& n) {
  const int64_t p = n.Int("p", 2);
  if (p != 1 && p != 2) return absl::InvalidArgumentError("p is 1 or 2");
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, Axis(n.Int("axis", -1), c.Rank(n.Input(0))));
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, UnaryIfAny(c, p == 1 ? "abs" : "", n.Input(0)));
  TEMPER_ASSIGN_OR_RETURN(ValueId norm, c.Reduce(p == 1 ? "reduce_sum" : "reduce_l2", x, {axis}, true));
  const ValueId zero = c.Scalar(c.TypeOf(norm).dtype, 0);
  TEMPER_ASSIGN_OR_RETURN(ValueId nothing, c.Call("equal", {}, {norm, zero}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("div", {}, {n.Input(0), norm}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("where", {}, {nothing, zero, v}));
  return c.Set(n, v);
}

// Determinants of the last `rows` rows and of as many columns, each by its bits, from those of one row less.
using Minors = std::map<unsigned, ValueId>;
absl::StatusOr<Minors> WithRowAbove(Context& c, const std::vector<ValueId>& row, const Minors& below) {
  Minors minors;
  for (unsigned columns = 1; columns < 1u << row.size(); ++columns) {
    ValueId sum = kNoValue;
    int sign = 0;  // the signs of a row alternate
    for (unsigned j = 0; j < row.size(); ++j) {
      if ((columns >> j & 1) == 0) continue;
      const auto rest = below.find(columns & ~(1u << j));
      if (rest == below.end()) break;
      TEMPER_ASSIGN_OR_RETURN(const ValueId part, c.Call("mul", {}, {row[j], rest->second}));
      const char* op = sign++ % 2 == 0 ? "add" : "sub";
      if (sum == kNoValue) {
        sum = part;
        continue;
      }
      TEMPER_ASSIGN_OR_RETURN(sum, c.Call(op, {}, {sum, part}));
    }
    if (sum != kNoValue) minors[columns] = sum;
  }
  return minors;
}

// By cofactors: 40 products for four rows. Narrow floats are computed in f32.
absl::Status Det(Context& c, const OnnxNode& n) {
  const int64_t rank = c.Rank(n.Input(0));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  Shape shape = c.ShapeOf(n.Input(0));
  if (!IsFloat(dtype) || rank < 2 || shape.back() != shape[shape.size() - 2])
    return absl::InvalidArgumentError("takes square matrices of floats");
  const int64_t rows = shape.back();
  if (rows < 1 || rows > 4)
    return absl::UnimplementedError(absl::StrCat("matrices of 1 to 4 rows are supported, not of ", rows));
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Cast(n.Input(0), dtype == DType::kF64 ? dtype : DType::kF32));
  Minors minors = {{0, c.Scalar(c.TypeOf(x).dtype, 1)}};
  for (int64_t i = rows; i-- > 0;) {
    std::vector<ValueId> row;
    TEMPER_ASSIGN_OR_RETURN(const ValueId whole, c.Slice(x, rank - 2, i, i + 1));
    for (int64_t j = 0; j < rows; ++j) {
      TEMPER_ASSIGN_OR_RETURN(const ValueId element, c.Slice(whole, rank - 1, j, j + 1));
      row.push_back(element);
    }
    TEMPER_ASSIGN_OR_RETURN(minors, WithRowAbove(c, row, minors));
  }
  shape.resize(shape.size() - 2);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reshape(minors.begin()->second, std::move(shape)));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, dtype));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> ReduceTable() {
  static const std::vector<TableEntry> table = [] {
    std::vector<TableEntry> t = {{"ArgMax", ArgExtreme, 1, Extents::kAlongAnyAxis},
                                 {"ArgMin", ArgExtreme, 1, Extents::kAlongAnyAxis},
                                 {"Softmax", Softmax, 1, Extents::kAlongAnyAxis},
                                 {"LogSoftmax", Softmax, 1, Extents::kAlongAnyAxis},
                                 {"BatchNormalization", BatchNormalization, 5, Extents::kAlongAnyAxis},
                                 {"InstanceNormalization", InstanceNormalization, 3, Extents::kAlongAnyAxis},
                                 {"LayerNormalization", LayerNormalization, 2, Extents::kAlongAnyAxis},
                                 {"GroupNormalization", GroupNormalization, 3, Extents::kAlongAnyAxis},
                                 {"MeanVarianceNormalization", MeanVarianceNormalization, 1, Extents::kAlongAnyAxis},
                                 {"Hardmax", Hardmax},
                                 {"LpNormalization", LpNormalization, 1, Extents::kAlongAnyAxis},
                                 {"Det", Det},
                                 {"LRN", Lrn},
                                 {"RMSNormalization", RmsNormalization, 2, Extents::kAlongAnyAxis},
                                 {"ReduceLogSumExp", ReduceLogSumExp, 1, Extents::kAlongAnyAxis}};
    for (const Reduction& r : kReductions) t.push_back({r.onnx, Reduce, 1, Extents::kAlongAnyAxis});
    return t;
  }();
  return table;
}

}  // namespace temper::onnx_frontend
