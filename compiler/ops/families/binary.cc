// Elementwise operators of two operands with NumPy's broadcasting, and where.
#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

using ir::Expr;

enum class Kind { kArithmetic, kComparison, kEquality, kLogic };
using Formula = Expr (*)(const Expr& a, const Expr& b, const Attrs& attrs);

struct BinaryRule {
  std::string_view name;
  Kind kind;
  Formula formula;
  double flops = 1;
  Numbers left = Numbers::kAny, right = Numbers::kAny;
  bool exact = false;
};

Expr Add(const Expr& a, const Expr& b, const Attrs&) { return a + b; }
Expr Sub(const Expr& a, const Expr& b, const Attrs&) { return a - b; }
Expr Mul(const Expr& a, const Expr& b, const Attrs&) { return a * b; }
Expr Div(const Expr& a, const Expr& b, const Attrs&) { return IsFloat(a->dtype) ? a / b : TruncatedDiv(a, b); }
Expr Min(const Expr& a, const Expr& b, const Attrs&) { return ir::Min(a, b); }
Expr Max(const Expr& a, const Expr& b, const Attrs&) { return ir::Max(a, b); }
Expr Equal(const Expr& a, const Expr& b, const Attrs&) { return ir::Eq(a, b); }
Expr Less(const Expr& a, const Expr& b, const Attrs&) { return a < b; }
Expr LessEqual(const Expr& a, const Expr& b, const Attrs&) { return a <= b; }
Expr Greater(const Expr& a, const Expr& b, const Attrs&) { return b < a; }
Expr GreaterEqual(const Expr& a, const Expr& b, const Attrs&) { return b <= a; }
Expr And(const Expr& a, const Expr& b, const Attrs&) { return ir::And(a, b); }
Expr Or(const Expr& a, const Expr& b, const Attrs&) { return ir::Or(a, b); }
Expr PRelu(const Expr& x, const Expr& slope, const Attrs&) {
  return ir::Select(x < ir::Const(0, x->dtype), x * slope, x);
}

Expr Pow(const Expr& a, const Expr& b, const Attrs&) {
  if (IsFloat(a->dtype)) return ir::Binary(ir::ExprKind::kPow, a, ConvertTo(b, a->dtype));
  Expr power = ir::Binary(ir::ExprKind::kPow, ConvertTo(a, DType::kF64), ConvertTo(b, DType::kF64));
  return ir::Cast(ir::Unary(ir::ExprKind::kRound, power), a->dtype);
}

Expr Mod(const Expr& a, const Expr& b, const Attrs& attrs) {
  if (!IsFloat(a->dtype)) return attrs.Int("fmod", 0) != 0 ? a - b * TruncatedDiv(a, b) : a % b;
  Expr quotient = a / b;
  Expr whole = ir::Select(quotient < ir::Const(0, a->dtype), ir::Unary(ir::ExprKind::kCeil, quotient),
                          ir::Unary(ir::ExprKind::kFloor, quotient));
  return a - b * whole;
}

constexpr BinaryRule kRules[] = {
    {"add", Kind::kArithmetic, Add},
    {"sub", Kind::kArithmetic, Sub},
    {"mul", Kind::kArithmetic, Mul, 1, Numbers::kFactor, Numbers::kFactor},
    {"div", Kind::kArithmetic, Div, 1, Numbers::kFactor, Numbers::kPositive},
    {"pow", Kind::kArithmetic, Pow, 25, Numbers::kPositive, Numbers::kFactor},
    {"min", Kind::kArithmetic, Min, 1, Numbers::kAny, Numbers::kAny, true},
    {"max", Kind::kArithmetic, Max, 1, Numbers::kAny, Numbers::kAny, true},
    {"mod", Kind::kArithmetic, Mod, 4, Numbers::kAny, Numbers::kPositive},
    {"prelu", Kind::kArithmetic, PRelu, 2},
    {"equal", Kind::kEquality, Equal},
    {"less", Kind::kComparison, Less},
    {"less_equal", Kind::kComparison, LessEqual},
    {"greater", Kind::kComparison, Greater},
    {"greater_equal", Kind::kComparison, GreaterEqual},
    {"and", Kind::kLogic, And},
    {"or", Kind::kLogic, Or},
};

absl::StatusOr<TensorType> InferBinary(const BinaryRule& rule, const Attrs& attrs, const TensorType& a,
                                       const TensorType& b) {
  std::vector<AttrRule> attr_rules;
  if (rule.name == "mod") attr_rules = {{"fmod", AttrKind::kInt}};
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, attr_rules));
  bool mixed = rule.name == "pow";
  if (a.dtype != b.dtype && !mixed) return InvalidType("operands are of one dtype");
  bool boolean = a.dtype == DType::kBool || b.dtype == DType::kBool;
  if (rule.kind == Kind::kLogic && !boolean) return InvalidType("takes booleans");
  if ((rule.kind == Kind::kArithmetic || rule.kind == Kind::kComparison) && boolean)
    return InvalidType("takes numbers");
  if (rule.name == "mod" && IsFloat(a.dtype) && attrs.Int("fmod", 0) == 0) return InvalidType("of floats needs fmod=1");
  TEMPER_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(a.shape, b.shape));
  if (rule.name == "prelu" && shape != a.shape) return InvalidType("slope broadcasts to x, not x to slope");
  return TensorType{rule.kind == Kind::kArithmetic ? a.dtype : DType::kBool, std::move(shape), {}};
}

OpDef BinaryOp(const BinaryRule& rule) {
  OpDef op{rule.name, OpPattern::kElementwise, 2, 2};
  op.infer = [&rule](const Attrs& attrs, std::span<const TensorType> in) {
    return InferBinary(rule, attrs, in[0], in[1]);
  };
  op.compute = [&rule](ir::ProgramBuilder&, const Attrs& attrs, std::span<const ir::Tensor> in,
                       const TensorType& output) -> absl::StatusOr<ir::Tensor> {
    return ir::Tensor(output.dtype, output.shape, [a = in[0], b = in[1], attrs, &rule](const Index& i) {
      return rule.formula(a(BroadcastIndex(i, a.shape())), b(BroadcastIndex(i, b.shape())), attrs);
    });
  };
  op.numbers = {rule.left, rule.right};
  op.exact = rule.exact;
  op.flops = [&rule](const Attrs&, std::span<const TensorType>, const TensorType& out) {
    return rule.flops * Elements(out);
  };
  return op;
}

absl::StatusOr<TensorType> InferWhere(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {}));
  if (in[0].dtype != DType::kBool) return InvalidType("the condition is boolean");
  if (in[1].dtype != in[2].dtype) return InvalidType("both choices are of one dtype");
  TEMPER_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[1].shape, in[2].shape));
  TEMPER_ASSIGN_OR_RETURN(shape, BroadcastShapes(in[0].shape, shape));
  return TensorType{in[1].dtype, std::move(shape), {}};
}

absl::StatusOr<ir::Tensor> ComputeWhere(ir::ProgramBuilder&, const Attrs&, std::span<const ir::Tensor> in,
                                        const TensorType& output) {
  return ir::Tensor(output.dtype, output.shape, [c = in[0], a = in[1], b = in[2]](const Index& i) {
    return ir::Select(c(BroadcastIndex(i, c.shape())), a(BroadcastIndex(i, a.shape())),
                      b(BroadcastIndex(i, b.shape())));
  });
}

}  // namespace

std::vector<OpDef> BinaryOps() {
  std::vector<OpDef> ops;
  for (const BinaryRule& rule : kRules) ops.push_back(BinaryOp(rule));
  ops.push_back({"where", OpPattern::kElementwise, 3, 3, InferWhere, ComputeWhere,
                 [](const Attrs&, std::span<const TensorType>, const TensorType& out) { return Elements(out); },
                 OpTypes::kMoves});
  return ops;
}

}  // namespace temper::ops
