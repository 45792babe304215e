// Multiplications and additions of constants: into one of each, and from there into weights. Batch norm is one of them.
#include <algorithm>
#include <cmath>

#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

bool IsFloatNode(const Rewriter& r, const Node& node) { return IsFloat(r.TypeOf(node.output).dtype); }

// Batch norm with known parameters: x * scale + shift, per channel.
absl::StatusOr<bool> ExpandBatchNorm(Rewriter& r, Node& node) {
  if (node.op != "batch_norm") return false;
  const NDArray* p[4];
  for (size_t i = 0; i < 4; ++i) {
    p[i] = r.Constant(node.inputs[i + 1]);
    if (p[i] == nullptr) return false;
  }
  const double epsilon = node.attrs.Float("epsilon", 1e-5);
  Shape shape(r.ShapeOf(node.output).size() - 1, 1);
  shape[0] = p[0]->size();
  NDArray scale(p[0]->dtype(), shape), shift(p[0]->dtype(), shape);
  for (int64_t c = 0; c < p[0]->size(); ++c) {
    const double factor = p[0]->At(c) / std::sqrt(p[3]->At(c) + epsilon);
    scale.Set(c, factor);
    shift.Set(c, p[1]->At(c) - p[2]->At(c) * factor);
  }
  const ValueId scale_id = r.AddConstant(std::move(scale)), shift_id = r.AddConstant(std::move(shift));
  TEMPER_ASSIGN_OR_RETURN(ValueId scaled, r.Emit("mul", {}, {node.inputs[0], scale_id}));
  r.Become(node, "add", {}, {scaled, shift_id});
  return true;
}

// Constants stand on the right of additions and multiplications.
absl::StatusOr<bool> ConstantToTheRight(Rewriter& r, Node& node) {
  if (node.op != "add" && node.op != "mul") return false;
  if (r.Constant(node.inputs[0]) == nullptr || r.Constant(node.inputs[1]) != nullptr) return false;
  r.Become(node, node.op, {}, {node.inputs[1], node.inputs[0]});
  return true;
}

// x - c and x / c are x + (-c) and x * (1 / c).
absl::StatusOr<bool> SubtractAndDivide(Rewriter& r, Node& node) {
  const bool divides = node.op == "div";
  if ((!divides && node.op != "sub") || !IsFloatNode(r, node)) return false;
  const NDArray* c = r.Constant(node.inputs[1]);
  if (c == nullptr || r.Constant(node.inputs[0]) != nullptr) return false;
  NDArray other(c->dtype(), c->shape());
  for (int64_t i = 0; i < c->size(); ++i) {
    if (divides && !std::isnormal(1 / c->At(i))) return false;
    other.Set(i, divides ? 1 / c->At(i) : -c->At(i));
  }
  r.Become(node, divides ? "mul" : "add", {}, {node.inputs[0], r.AddConstant(std::move(other))});
  return true;
}

// A constant's leading axes of extent 1 say nothing where the other operand has them all.
absl::StatusOr<bool> TrimConstant(Rewriter& r, Node& node) {
  if (node.op != "add" && node.op != "mul") return false;
  const NDArray* c = r.Constant(node.inputs[1]);
  if (c == nullptr || c->shape().empty() || c->shape()[0] != 1 || r.ShapeOf(node.inputs[0]).size() < c->shape().size())
    return false;
  const Shape& shape = c->shape();
  const auto first = std::find_if(shape.begin(), shape.end(), [](int64_t d) { return d != 1; });
  r.Become(node, node.op, {}, {node.inputs[0], r.AddConstant(c->Reshaped(Shape(first, shape.end())))});
  return true;
}

absl::StatusOr<bool> RemoveNeutral(Rewriter& r, Node& node) {
  if (node.op != "add" && node.op != "mul") return false;
  if (r.TypeOf(node.inputs[0]) != r.TypeOf(node.output)) return false;
  const std::optional<double> c = Uniform(r.Constant(node.inputs[1]));
  if (c != (node.op == "mul" ? 1.0 : 0.0)) return false;
  return r.ReplaceOutput(node, node.inputs[0]);
}

// Powers that few multiplications, a root or a division make: a library's takes as long as thirty multiplications.
absl::StatusOr<bool> SimplifyPower(Rewriter& r, Node& node) {
  if (node.op != "pow" || !IsFloatNode(r, node) || r.ShapeOf(node.inputs[0]) != r.ShapeOf(node.output)) return false;
  const std::optional<double> power = Uniform(r.Constant(node.inputs[1]));
  const ValueId x = node.inputs[0];
  if (power == 1.0) return r.ReplaceOutput(node, x);
  if (power == 2.0) {
    r.Become(node, "mul", {}, {x, x});
  } else if (power == 3.0) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId square, r.Emit("mul", {}, {x, x}));
    r.Become(node, "mul", {}, {square, x});
  } else if (power == 0.5) {
    r.Become(node, "sqrt", {}, {x});
  } else if (power == -1.0) {
    r.Become(node, "reciprocal", {}, {x});
  } else {
    return false;
  }
  return true;
}

// (x * c) * d is x * (c * d), and so for additions.
absl::StatusOr<bool> MergeChain(Rewriter& r, Node& node) {
  if (node.op != "add" && node.op != "mul") return false;
  const Node* inner = r.Producer(node.inputs[0], node.op);
  if (inner == nullptr || !r.OnlyUse(inner->output)) return false;
  const NDArray* a = r.Constant(inner->inputs[1]);
  const NDArray* b = r.Constant(node.inputs[1]);
  if (a == nullptr || b == nullptr) return false;
  TEMPER_ASSIGN_OR_RETURN(NDArray merged, Evaluate(node.op, *a, *b));
  // Two small constants along different axes would make a large one.
  if (merged.size() > std::max(a->size(), b->size())) return false;
  r.Become(node, node.op, {}, {inner->inputs[0], r.AddConstant(std::move(merged))});
  return true;
}

// Which axis of the constant `c`, aligned to a shape of `rank` axes, runs along `axis` of it; true also for one value
// for all. False if it varies along any other axis.
bool VariesOnlyAlong(const NDArray& c, size_t rank, size_t axis) {
  if (c.shape().size() > rank) return false;
  const size_t offset = rank - c.shape().size();
  for (size_t i = 0; i < c.shape().size(); ++i) {
    if (c.shape()[i] != 1 && i + offset != axis) return false;
  }
  return true;
}

bool IsContraction(const Node* node) {
  return node != nullptr && (node->op == "conv2d" || node->op == "matmul" ||
                             (node->op == "conv_transpose2d" && node->attrs.Int("group", 1) == 1));
}

// The axis of a contraction's result along which its weight's columns run.
size_t ColumnAxis(const Rewriter& r, const Node& node) {
  return node.op == "matmul" ? r.ShapeOf(node.output).size() - 1 : 1;
}

// A factor per column, or one for all, can go into the weight.
bool TakesFactor(const Rewriter& r, const Node* node, const NDArray& factor) {
  return IsContraction(node) && r.OnlyUse(node->output) && r.Constant(node->inputs[1]) != nullptr &&
         IsFloat(r.TypeOf(node->inputs[1]).dtype) &&
         VariesOnlyAlong(factor, r.ShapeOf(node->output).size(), ColumnAxis(r, *node));
}

// The factor shaped so that it multiplies `weight` along `axis` of it.
NDArray AlongAxis(const NDArray& factor, const Shape& weight, size_t axis) {
  Shape shape(weight.size(), 1);
  shape[axis] = factor.size();
  return factor.Reshaped(shape);
}

size_t WeightColumnAxis(const Node& node, size_t weight_rank) {
  if (node.op == "conv2d") return 0;
  if (node.op == "conv_transpose2d") return 1;
  return weight_rank - (node.attrs.Int("trans_b", 0) != 0 ? 2 : 1);
}

absl::StatusOr<bool> FactorIntoWeight(Rewriter& r, Node& node) {
  if (node.op != "mul") return false;
  const NDArray* factor = r.Constant(node.inputs[1]);
  const Node* contraction = r.Producer(node.inputs[0]);
  if (factor == nullptr || !TakesFactor(r, contraction, *factor) || r.ShapeOf(node.output) != r.ShapeOf(node.inputs[0]))
    return false;
  const NDArray& weight = *r.Constant(contraction->inputs[1]);
  const size_t axis = WeightColumnAxis(*contraction, weight.shape().size());
  TEMPER_ASSIGN_OR_RETURN(NDArray scaled, Evaluate("mul", weight, AlongAxis(*factor, weight.shape(), axis)));
  const std::string name = contraction->name;
  r.Become(node, contraction->op, contraction->attrs, {contraction->inputs[0], r.AddConstant(std::move(scaled))});
  node.name = name;
  return true;
}

// (conv + bias) * factor is conv * factor + bias * factor, and the factor then goes into the weight.
absl::StatusOr<bool> FactorPastBias(Rewriter& r, Node& node) {
  if (node.op != "mul") return false;
  const NDArray* factor = r.Constant(node.inputs[1]);
  const Node* sum = r.Producer(node.inputs[0], "add");
  if (factor == nullptr || sum == nullptr || !r.OnlyUse(sum->output) ||
      r.ShapeOf(node.output) != r.ShapeOf(sum->inputs[0]))
    return false;
  const NDArray* bias = r.Constant(sum->inputs[1]);
  if (bias == nullptr || !TakesFactor(r, r.Producer(sum->inputs[0]), *factor)) return false;
  TEMPER_ASSIGN_OR_RETURN(NDArray scaled, Evaluate("mul", *bias, *factor));
  const ValueId x = sum->inputs[0];
  TEMPER_ASSIGN_OR_RETURN(ValueId product, r.Emit("mul", {}, {x, node.inputs[1]}));
  r.Become(node, "add", {}, {product, r.AddConstant(std::move(scaled))});
  return true;
}

// conv(x * factor) with a factor for each input channel, or one for all: zeros of padding stay zeros.
absl::StatusOr<bool> InputFactorIntoWeight(Rewriter& r, Node& node) {
  if (node.op != "conv2d" && node.op != "matmul") return false;
  const Node* product = r.Producer(node.inputs[0], "mul");
  const NDArray* weight = r.Constant(node.inputs[1]);
  if (product == nullptr || weight == nullptr || !IsFloat(weight->dtype()) || !r.OnlyUse(product->output)) return false;
  const NDArray* factor = r.Constant(product->inputs[1]);
  if (factor == nullptr || r.ShapeOf(product->inputs[0]) != r.ShapeOf(product->output)) return false;
  const size_t rank = r.ShapeOf(product->output).size();
  const bool is_conv = node.op == "conv2d";
  const bool for_all = factor->size() == 1;
  // Groups see channels of their own, so that one weight row stands for different channels.
  if (is_conv ? !for_all && node.attrs.Int("group", 1) != 1 : node.attrs.Int("trans_a", 0) != 0) return false;
  if (!VariesOnlyAlong(*factor, rank, is_conv ? 1 : rank - 1)) return false;
  const size_t weight_rank = weight->shape().size();
  const size_t axis = is_conv ? 1 : weight_rank - (node.attrs.Int("trans_b", 0) != 0 ? 1 : 2);
  TEMPER_ASSIGN_OR_RETURN(NDArray scaled, Evaluate("mul", *weight, AlongAxis(*factor, weight->shape(), axis)));
  r.Become(node, node.op, node.attrs, {product->inputs[0], r.AddConstant(std::move(scaled))});
  return true;
}

// One factor for all of an operand of a product of two activations is applied to the result instead, where it costs
// nothing: attention's scale, mostly.
absl::StatusOr<bool> FactorPastMatmul(Rewriter& r, Node& node) {
  if (node.op != "matmul" || !IsFloat(r.TypeOf(node.inputs[0]).dtype)) return false;
  for (size_t i = 0; i < 2; ++i) {
    const Node* product = r.Producer(node.inputs[i], "mul");
    if (product == nullptr || !r.OnlyUse(product->output)) continue;
    const NDArray* factor = r.Constant(product->inputs[1]);
    if (factor == nullptr || factor->size() != 1 || r.ShapeOf(product->inputs[0]) != r.ShapeOf(product->output))
      continue;
    std::vector<ValueId> inputs = node.inputs;
    inputs[i] = product->inputs[0];
    const ValueId scalar = r.AddConstant(factor->Reshaped({}));
    TEMPER_ASSIGN_OR_RETURN(ValueId unscaled, r.Emit("matmul", node.attrs, std::move(inputs)));
    r.Become(node, "mul", {}, {unscaled, scalar});
    return true;
  }
  return false;
}

}  // namespace

std::span<const Rewriter::Rule> AffineRules() {
  static const std::vector<Rewriter::Rule> rules = {
      ExpandBatchNorm, ConstantToTheRight, SubtractAndDivide, TrimConstant,          RemoveNeutral,   SimplifyPower,
      MergeChain,      FactorIntoWeight,   FactorPastBias,    InputFactorIntoWeight, FactorPastMatmul};
  return rules;
}

}  // namespace temper::passes
