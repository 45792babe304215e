// Norms that exporters write out. A layer norm, before opset 17: (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon)
// * scale + bias.
#include <algorithm>

#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

// If `v` is the mean of its operand over all axes from some axis to the last: that operand and axis.
struct Mean {
  ValueId of = kNoValue;
  int64_t axis = 0;
};
std::optional<Mean> TrailingMean(const Rewriter& r, ValueId v) {
  const Node* mean = r.Producer(v, "reduce_mean");
  if (mean == nullptr || mean->attrs.Int("keepdims", 1) == 0) return std::nullopt;
  const int64_t rank = static_cast<int64_t>(r.ShapeOf(mean->inputs[0]).size());
  std::vector<int64_t> axes = mean->attrs.Ints("axes");
  if (axes.empty() || rank == 0) return std::nullopt;
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != rank - static_cast<int64_t>(axes.size()) + static_cast<int64_t>(i)) return std::nullopt;
  }
  return Mean{mean->inputs[0], axes[0]};
}

// If `v` is x - mean(x): x and the axis.
std::optional<Mean> Centered(const Rewriter& r, ValueId v) {
  const Node* sub = r.Producer(v, "sub");
  if (sub == nullptr) return std::nullopt;
  std::optional<Mean> mean = TrailingMean(r, sub->inputs[1]);
  return mean.has_value() && mean->of == sub->inputs[0] ? mean : std::nullopt;
}

// If `v` is a square: of what.
ValueId SquareRootOf(const Rewriter& r, ValueId v) {
  if (const Node* mul = r.Producer(v, "mul"); mul != nullptr && mul->inputs[0] == mul->inputs[1]) return mul->inputs[0];
  const Node* pow = r.Producer(v, "pow");
  return pow != nullptr && Uniform(r.Constant(pow->inputs[1])) == 2.0 ? pow->inputs[0] : kNoValue;
}

// If `v` is sqrt(mean(square of x - mean(x)) + epsilon): x, the axis and epsilon.
struct Deviation {
  Mean centered;
  double epsilon = 0;
};
std::optional<Deviation> StandardDeviation(const Rewriter& r, ValueId v) {
  const Node* root = r.Producer(v, "sqrt");
  const Node* sum = root != nullptr ? r.Producer(root->inputs[0], "add") : nullptr;
  if (sum == nullptr) return std::nullopt;
  const size_t constant = r.Constant(sum->inputs[0]) != nullptr ? 0 : 1;
  const std::optional<double> epsilon = Uniform(r.Constant(sum->inputs[constant]));
  const std::optional<Mean> variance = TrailingMean(r, sum->inputs[1 - constant]);
  if (!epsilon.has_value() || !variance.has_value() || r.ShapeOf(sum->output) != r.ShapeOf(sum->inputs[1 - constant]))
    return std::nullopt;
  const ValueId difference = SquareRootOf(r, variance->of);
  const std::optional<Mean> centered = difference == kNoValue ? std::nullopt : Centered(r, difference);
  if (!centered.has_value() || centered->axis != variance->axis) return std::nullopt;
  return Deviation{*centered, *epsilon};
}

absl::StatusOr<bool> RecogniseLayerNorm(Rewriter& r, Node& node) {
  if (node.op != "div") return false;
  const std::optional<Deviation> deviation = StandardDeviation(r, node.inputs[1]);
  const std::optional<Mean> centered = Centered(r, node.inputs[0]);
  if (!deviation.has_value() || !centered.has_value() || centered->of != deviation->centered.of ||
      centered->axis != deviation->centered.axis) {
    return false;
  }
  const TensorType& x = r.TypeOf(centered->of);
  NDArray ones(x.dtype, Shape(x.shape.begin() + centered->axis, x.shape.end()));
  for (int64_t i = 0; i < ones.size(); ++i) ones.Set(i, 1);
  Attrs attrs;
  attrs.Set("axis", centered->axis);
  attrs.Set("epsilon", deviation->epsilon);
  r.Become(node, "layer_norm", std::move(attrs), {centered->of, r.AddConstant(std::move(ones))});
  return true;
}

// The layer norm that only this node reads, and the node's other operand, which must be a constant no larger.
const Node* LayerNormOperand(const Rewriter& r, const Node& node, ValueId* other) {
  for (size_t i = 0; i < 2; ++i) {
    const Node* norm = r.Producer(node.inputs[i], "layer_norm");
    *other = node.inputs[1 - i];
    if (norm != nullptr && r.OnlyUse(norm->output) && r.Constant(*other) != nullptr &&
        r.ShapeOf(node.output) == r.ShapeOf(norm->output)) {
      return norm;
    }
  }
  return nullptr;
}

// Scale and bias have an axis at least.
ValueId AsVector(Rewriter& r, ValueId v) {
  return r.ShapeOf(v).empty() ? r.AddConstant(r.Constant(v)->Reshaped({1})) : v;
}

absl::StatusOr<bool> AbsorbScale(Rewriter& r, Node& node) {
  if (node.op != "mul") return false;
  ValueId scale = kNoValue;
  const Node* norm = LayerNormOperand(r, node, &scale);
  if (norm == nullptr || norm->inputs.size() != 2 || Uniform(r.Constant(norm->inputs[1])) != 1.0) return false;
  r.Become(node, "layer_norm", norm->attrs, {norm->inputs[0], AsVector(r, scale)});
  return true;
}

absl::StatusOr<bool> AbsorbBias(Rewriter& r, Node& node) {
  if (node.op != "add") return false;
  ValueId bias = kNoValue;
  const Node* norm = LayerNormOperand(r, node, &bias);
  if (norm == nullptr || norm->inputs.size() != 2) return false;
  r.Become(node, "layer_norm", norm->attrs, {norm->inputs[0], norm->inputs[1], AsVector(r, bias)});
  return true;
}

// A constant with one value a group as one with a value for each of its channels.
NDArray ForEachChannel(const NDArray& group, int64_t channels) {
  NDArray result(group.dtype(), {channels});
  for (int64_t c = 0; c < channels; ++c) result.Set(c, group.At(c / (channels / group.size())));
  return result;
}

// Exporters write a group norm as an instance norm in which each group is one channel, between two reshapes.
absl::StatusOr<bool> RecogniseGroupNorm(Rewriter& r, Node& node) {
  if (node.op != "reshape") return false;
  const Node* norm = r.Producer(node.inputs[0], "group_norm");
  const Node* grouped = norm != nullptr ? r.Producer(norm->inputs[0], "reshape") : nullptr;
  if (grouped == nullptr || !r.OnlyUse(norm->output) || norm->attrs.Has("groups") ||
      r.TypeOf(grouped->inputs[0]) != r.TypeOf(node.output))
    return false;
  const Shape &shape = r.ShapeOf(node.output), &groups = r.ShapeOf(norm->output);
  const NDArray *scale = r.Constant(norm->inputs[1]), *bias = r.Constant(norm->inputs[2]);
  if (scale == nullptr || bias == nullptr || shape.size() < 3 || shape[0] != groups[0] || groups[1] == 0 ||
      shape[1] % groups[1] != 0)
    return false;
  Attrs attrs = norm->attrs;
  attrs.Set("groups", groups[1]);
  NDArray scales = ForEachChannel(*scale, shape[1]), biases = ForEachChannel(*bias, shape[1]);
  const ValueId x = grouped->inputs[0], scale_id = r.AddConstant(std::move(scales));
  r.Become(node, "group_norm", std::move(attrs), {x, scale_id, r.AddConstant(std::move(biases))});
  return true;
}

}  // namespace

std::span<const Rewriter::Rule> NormRules() {
  static const std::vector<Rewriter::Rule> rules = {RecogniseLayerNorm, AbsorbScale, AbsorbBias, RecogniseGroupNorm};
  return rules;
}

}  // namespace temper::passes
