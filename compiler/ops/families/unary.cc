// Elementwise operators of one operand, and cast.
#include <cmath>
#include <limits>

#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

using ir::Expr;
using ir::ExprKind;

enum class Domain { kFloat, kNumber, kBool, kAny };
using Formula = Expr (*)(const Expr& x, const Attrs& attrs);

struct UnaryRule {
  std::string_view name;
  Domain domain;
  std::vector<AttrRule> attrs;
  Formula formula;
  double flops = 1;  // per element; a function counts as the polynomial that computes it
  Numbers operand = Numbers::kAny;
  bool steps = false, exact = false;
};

Expr Like(const Expr& x, double value) { return ir::Const(value, x->dtype); }
Expr Sigmoid(const Expr& x) { return Like(x, 1) / (Like(x, 1) + ir::Exp(Like(x, -1) * x)); }
Expr Clamp(const Expr& x, double low, double high) { return ir::Min(ir::Max(x, Like(x, low)), Like(x, high)); }

Expr Relu(const Expr& x, const Attrs&) { return ir::Max(x, Like(x, 0)); }
Expr SigmoidOf(const Expr& x, const Attrs&) { return Sigmoid(x); }
Expr Silu(const Expr& x, const Attrs&) { return x / (Like(x, 1) + ir::Exp(Like(x, -1) * x)); }
Expr Neg(const Expr& x, const Attrs&) { return Like(x, -1) * x; }
Expr Abs(const Expr& x, const Attrs&) {
  if (IsUnsigned(x->dtype)) return x;
  return IsFloat(x->dtype) ? ir::Unary(ExprKind::kAbs, x) : ir::Max(x, Like(x, 0) - x);
}
Expr Reciprocal(const Expr& x, const Attrs&) { return Like(x, 1) / x; }
Expr Not(const Expr& x, const Attrs&) { return ir::Not(x); }
Expr IdentityOf(const Expr& x, const Attrs&) { return x; }
template <ExprKind kind>
Expr Function(const Expr& x, const Attrs&) {
  return ir::Unary(kind, x);
}

Expr Clip(const Expr& x, const Attrs& attrs) {
  Expr result = x;
  if (attrs.Has("min")) result = ir::Max(result, Like(x, attrs.Float("min", 0)));
  if (attrs.Has("max")) result = ir::Min(result, Like(x, attrs.Float("max", 0)));
  return result;
}

Expr LeakyRelu(const Expr& x, const Attrs& attrs) {
  return ir::Select(x < Like(x, 0), x * Like(x, attrs.Float("alpha", 0.01)), x);
}

Expr Elu(const Expr& x, const Attrs& attrs) {
  return ir::Select(x < Like(x, 0), (ir::Exp(x) - Like(x, 1)) * Like(x, attrs.Float("alpha", 1)), x);
}

Expr HardSigmoid(const Expr& x, const Attrs& attrs) {
  return Clamp(x * Like(x, attrs.Float("alpha", 0.2)) + Like(x, attrs.Float("beta", 0.5)), 0, 1);
}

Expr HardSwish(const Expr& x, const Attrs&) { return x * Clamp(x * Like(x, 1.0 / 6) + Like(x, 0.5), 0, 1); }

// log(1 + exp(x)) without overflow.
Expr Softplus(const Expr& x, const Attrs&) {
  Expr magnitude = ir::Unary(ExprKind::kAbs, x);
  return ir::Max(x, Like(x, 0)) + ir::Unary(ExprKind::kLog, Like(x, 1) + ir::Exp(Like(x, -1) * magnitude));
}

Expr Gelu(const Expr& x, const Attrs& attrs) {
  if (attrs.String("approximate", "none") == "tanh") {
    Expr inner = x * (Like(x, 0.044715) * x * x + Like(x, 1)) * Like(x, std::sqrt(2 / M_PI));
    return Like(x, 0.5) * x * (ir::Unary(ExprKind::kTanh, inner) + Like(x, 1));
  }
  return Like(x, 0.5) * x * (ir::Unary(ExprKind::kErf, x * Like(x, M_SQRT1_2)) + Like(x, 1));
}

const std::vector<UnaryRule>& Rules() {
  constexpr AttrKind kF = AttrKind::kFloat;
  static const std::vector<UnaryRule> rules = {
      {"relu", Domain::kNumber, {}, Relu, 1, Numbers::kAny, false, true},
      {"sigmoid", Domain::kFloat, {}, SigmoidOf, 12},
      {"silu", Domain::kFloat, {}, Silu, 13},
      {"tanh", Domain::kFloat, {}, Function<ExprKind::kTanh>, 15},
      {"erf", Domain::kFloat, {}, Function<ExprKind::kErf>, 20},
      {"exp", Domain::kFloat, {}, Function<ExprKind::kExp>, 10},
      {"log", Domain::kFloat, {}, Function<ExprKind::kLog>, 12, Numbers::kPositive},
      {"sqrt", Domain::kFloat, {}, Function<ExprKind::kSqrt>, 1, Numbers::kPositive},
      {"neg", Domain::kNumber, {}, Neg, 1, Numbers::kAny, false, true},
      {"abs", Domain::kNumber, {}, Abs, 1, Numbers::kAny, false, true},
      {"floor", Domain::kFloat, {}, Function<ExprKind::kFloor>, 1, Numbers::kAny, true},
      {"ceil", Domain::kFloat, {}, Function<ExprKind::kCeil>, 1, Numbers::kAny, true},
      {"round", Domain::kFloat, {}, Function<ExprKind::kRound>, 1, Numbers::kAny, true},
      {"sin", Domain::kFloat, {}, Function<ExprKind::kSin>, 15},
      {"cos", Domain::kFloat, {}, Function<ExprKind::kCos>, 15},
      {"reciprocal", Domain::kFloat, {}, Reciprocal, 1, Numbers::kPositive},
      {"not", Domain::kBool, {}, Not},
      {"identity", Domain::kAny, {}, IdentityOf, 0},
      {"layout_copy", Domain::kAny, {}, IdentityOf, 0},
      {"clip", Domain::kNumber, {{"min", kF}, {"max", kF}}, Clip, 2, Numbers::kAny, false, true},
      {"leaky_relu", Domain::kFloat, {{"alpha", kF}}, LeakyRelu, 2},
      {"elu", Domain::kFloat, {{"alpha", kF}}, Elu, 12},
      {"hard_sigmoid", Domain::kFloat, {{"alpha", kF}, {"beta", kF}}, HardSigmoid, 4},
      {"hard_swish", Domain::kFloat, {}, HardSwish, 5},
      {"softplus", Domain::kFloat, {}, Softplus, 25},
      {"gelu", Domain::kFloat, {{"approximate", AttrKind::kString}}, Gelu, 25},
  };
  return rules;
}

absl::StatusOr<TensorType> InferUnary(const UnaryRule& rule, const Attrs& attrs, const TensorType& x) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, rule.attrs));
  bool is_bool = x.dtype == DType::kBool;
  if (rule.domain == Domain::kFloat && !IsFloat(x.dtype)) return InvalidType("takes floats");
  if (rule.domain == Domain::kNumber && is_bool) return InvalidType("takes numbers");
  if (rule.domain == Domain::kBool && !is_bool) return InvalidType("takes booleans");
  std::string approximate = attrs.String("approximate", "none");
  if (approximate != "none" && approximate != "tanh") return InvalidType("approximate is 'none' or 'tanh'");
  return TensorType{x.dtype, x.shape, {}};
}

OpDef UnaryOp(const UnaryRule& rule) {
  OpDef op{rule.name, OpPattern::kElementwise, 1, 1};
  if (rule.name == "layout_copy") op.pattern = OpPattern::kInjective;
  if (rule.domain == Domain::kAny) {
    op.types = OpTypes::kMoves;
    op.move = Move::kSame;
  }
  op.numbers = {rule.operand};
  op.steps = rule.steps;
  op.exact = rule.exact;
  op.infer = [&rule](const Attrs& attrs, std::span<const TensorType> inputs) {
    return InferUnary(rule, attrs, inputs[0]);
  };
  op.compute = [&rule](ir::ProgramBuilder&, const Attrs& attrs, std::span<const ir::Tensor> inputs,
                       const TensorType& output) -> absl::StatusOr<ir::Tensor> {
    return ir::Tensor(output.dtype, output.shape,
                      [x = inputs[0], attrs, &rule](const Index& i) { return rule.formula(x(i), attrs); });
  };
  op.flops = [&rule](const Attrs&, std::span<const TensorType>, const TensorType& out) {
    return rule.flops * Elements(out);
  };
  return op;
}

absl::StatusOr<TensorType> InferCast(const Attrs& attrs, std::span<const TensorType> inputs) {
  TEMPER_RETURN_IF_ERROR(
      CheckAttrs(attrs, {{"to", AttrKind::kString}, {"saturate", AttrKind::kInt}, {"rounding", AttrKind::kString}}));
  TEMPER_ASSIGN_OR_RETURN(DType to, DTypeFromName(attrs.String("to", "")));
  TEMPER_ASSIGN_OR_RETURN(CastMode mode, CastModeOf(attrs));
  if (mode.saturate && !HasCastMode(to)) return InvalidType("saturate is of floats of eight bits");
  if (mode.rounding != Rounding::kNearest && to != DType::kF8E8M0) return InvalidType("rounding is of f8e8m0");
  return TensorType{to, inputs[0].shape, {}};
}

absl::StatusOr<ir::Tensor> ComputeCast(ir::ProgramBuilder&, const Attrs& attrs, std::span<const ir::Tensor> inputs,
                                       const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(CastMode mode, CastModeOf(attrs));
  return ir::Tensor(output.dtype, output.shape,
                    [x = inputs[0], to = output.dtype, mode](const Index& i) { return ConvertTo(x(i), to, mode); });
}

}  // namespace

std::vector<OpDef> UnaryOps() {
  std::vector<OpDef> ops;
  for (const UnaryRule& rule : Rules()) ops.push_back(UnaryOp(rule));
  ops.push_back({"cast", OpPattern::kElementwise, 1, 1, InferCast, ComputeCast,
                 [](const Attrs&, std::span<const TensorType>, const TensorType& out) { return Elements(out); },
                 OpTypes::kConverts});
  return ops;
}

}  // namespace temper::ops
