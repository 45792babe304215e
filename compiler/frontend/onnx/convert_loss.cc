// Losses of classifications: minus what each sample's class has, which is a gather from the flat tensor.
#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {
namespace {

// 0, step, 2 * step, ...
ValueId Multiples(Context& c, Shape shape, int64_t step) {
  NDArray data(DType::kI64, std::move(shape));
  for (int64_t i = 0; i < data.size(); ++i) data.as<int64_t>()[static_cast<size_t>(i)] = i * step;
  return c.Constant(std::move(data));
}

// The samples' losses and the weights that these have, [n, d] each; no weights where all are one.
struct Losses {
  ValueId values = kNoValue, weights = kNoValue;
};
absl::StatusOr<Losses> LossesOf(Context& c, const OnnxNode& n, ValueId x) {
  const Shape s = c.ShapeOf(x);
  const int64_t classes = s[1], inner = NumElements(std::span(s).subspan(2));
  const DType dtype = c.TypeOf(x).dtype;
  TEMPER_ASSIGN_OR_RETURN(ValueId target, c.Cast(n.Input(1), DType::kI64));
  TEMPER_ASSIGN_OR_RETURN(target, c.Reshape(target, {s[0], inner}));
  // What is ignored may be no class at all, but its element is read.
  Attrs bounds;
  bounds.Set("min", 0.0);
  bounds.Set("max", static_cast<double>(classes - 1));
  TEMPER_ASSIGN_OR_RETURN(const ValueId known, c.Call("clip", std::move(bounds), {target}));
  TEMPER_ASSIGN_OR_RETURN(ValueId at, c.Call("mul", {}, {known, c.Scalar(DType::kI64, static_cast<double>(inner))}));
  TEMPER_ASSIGN_OR_RETURN(at, c.Call("add", {}, {at, Multiples(c, {s[0], 1}, classes * inner)}));
  TEMPER_ASSIGN_OR_RETURN(at, c.Call("add", {}, {at, Multiples(c, {inner}, 1)}));
  Losses losses;
  TEMPER_ASSIGN_OR_RETURN(const ValueId flat, c.Reshape(x, {NumElements(s)}));
  TEMPER_ASSIGN_OR_RETURN(losses.values, c.Gather(flat, at, 0));
  TEMPER_ASSIGN_OR_RETURN(losses.values, c.Call("neg", {}, {losses.values}));
  if (n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId weight, c.Cast(n.Input(2), dtype));
    TEMPER_ASSIGN_OR_RETURN(losses.weights, c.Gather(weight, known, 0));
    TEMPER_ASSIGN_OR_RETURN(losses.values, c.Call("mul", {}, {losses.values, losses.weights}));
  }
  if (!n.Has("ignore_index")) return losses;
  const ValueId zero = c.Scalar(dtype, 0), one = c.Scalar(dtype, 1);
  const ValueId index = c.Scalar(DType::kI64, static_cast<double>(n.Int("ignore_index", 0)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId ignored, c.Call("equal", {}, {target, index}));
  TEMPER_ASSIGN_OR_RETURN(losses.values, c.Call("where", {}, {ignored, zero, losses.values}));
  const ValueId weights = losses.weights == kNoValue ? one : losses.weights;
  TEMPER_ASSIGN_OR_RETURN(losses.weights, c.Call("where", {}, {ignored, zero, weights}));
  return losses;
}

absl::StatusOr<ValueId> Reduced(Context& c, const OnnxNode& n, const Losses& losses, const Shape& target) {
  const std::string reduction = n.String("reduction", "mean");
  if (reduction == "none") return c.Reshape(losses.values, target);
  if (reduction != "sum" && reduction != "mean")
    return absl::InvalidArgumentError("reduction is 'none', 'sum' or 'mean'");
  const bool plain_mean = reduction == "mean" && losses.weights == kNoValue;
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reduce(plain_mean ? "reduce_mean" : "reduce_sum", losses.values, {0, 1}, false));
  if (reduction == "sum" || plain_mean) return v;
  TEMPER_ASSIGN_OR_RETURN(const ValueId weight, c.Reduce("reduce_sum", losses.weights, {0, 1}, false));
  return c.Call("div", {}, {v, weight});
}

// `x` has what the classes score, [n, classes, ...]; the result has the type of the node's operand.
absl::Status SetLoss(Context& c, const OnnxNode& n, ValueId x) {
  TEMPER_ASSIGN_OR_RETURN(const Losses losses, LossesOf(c, n, x));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Reduced(c, n, losses, c.ShapeOf(n.Input(1))));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, c.TypeOf(n.Input(0)).dtype));
  return c.Set(n, v);
}

// The scores in a type to add up in: narrow floats are summed in f32.
absl::StatusOr<ValueId> Scores(Context& c, const OnnxNode& n) {
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  Shape shape = c.ShapeOf(n.Input(0));
  if (!IsFloat(dtype) || shape.size() < 2 || shape[1] < 1)
    return absl::InvalidArgumentError("scores are floats, [n, classes, ...]");
  const int64_t classes = shape[1];
  shape.erase(shape.begin() + 1);
  if (c.ShapeOf(n.Input(1)) != shape || IsFloat(c.TypeOf(n.Input(1)).dtype))
    return absl::InvalidArgumentError("there is one class, an integer, for each sample");
  if (n.Input(2) != kNoValue && c.ShapeOf(n.Input(2)) != Shape{classes})
    return absl::InvalidArgumentError(absl::StrCat("there is one weight for each of the ", classes, " classes"));
  return c.Cast(n.Input(0), dtype == DType::kF64 ? dtype : DType::kF32);
}

absl::Status NegativeLogLikelihoodLoss(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, Scores(c, n));
  return SetLoss(c, n, x);
}

absl::Status SoftmaxCrossEntropyLoss(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId x, Scores(c, n));
  Attrs attrs;
  attrs.Set("axis", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(x, c.Call("log_softmax", std::move(attrs), {x}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId log_prob, c.Cast(x, c.TypeOf(n.Input(0)).dtype));
  TEMPER_RETURN_IF_ERROR(c.Set(n, log_prob, 1));
  return SetLoss(c, n, x);
}

}  // namespace

std::span<const TableEntry> LossTable() {
  static constexpr TableEntry kTable[] = {{"NegativeLogLikelihoodLoss", NegativeLogLikelihoodLoss, 2},
                                          {"SoftmaxCrossEntropyLoss", SoftmaxCrossEntropyLoss, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
