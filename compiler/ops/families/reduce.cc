// Reductions of one operand over chosen axes, and where along an axis the largest or least element stands.
#include <algorithm>
#include <limits>

#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

using ir::Expr;

struct ReduceRule {
  std::string_view name;
  ir::Combiner combiner;
  bool floats_only;
  Expr (*before)(const Expr& x);                  // applied to each element
  Expr (*after)(const Expr& sum, int64_t count);  // applied to the combined value
};

Expr Same(const Expr& x) { return x; }
Expr Square(const Expr& x) { return x * x; }
Expr Combined(const Expr& x, int64_t) { return x; }
Expr Root(const Expr& sum, int64_t) { return ir::Sqrt(sum); }
Expr Mean(const Expr& sum, int64_t count) {
  if (IsFloat(sum->dtype)) return sum * ir::Const(1.0 / static_cast<double>(count), sum->dtype);
  return TruncatedDiv(sum, ir::Int(count, sum->dtype));
}

constexpr ReduceRule kRules[] = {
    {"reduce_sum", ir::Combiner::kSum, false, Same, Combined},
    {"reduce_mean", ir::Combiner::kSum, false, Same, Mean},
    {"reduce_max", ir::Combiner::kMax, false, Same, Combined},
    {"reduce_min", ir::Combiner::kMin, false, Same, Combined},
    {"reduce_prod", ir::Combiner::kProd, false, Same, Combined},
    {"reduce_l2", ir::Combiner::kSum, true, Square, Root},
};

absl::StatusOr<TensorType> InferReduce(const ReduceRule& rule, const Attrs& attrs, const TensorType& x) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axes", AttrKind::kInts}, {"keepdims", AttrKind::kInt}}));
  if (x.dtype == DType::kBool) return InvalidType("takes numbers");
  if (rule.floats_only && !IsFloat(x.dtype)) return InvalidType("takes floats");
  if (rule.after == Mean && !IsFloat(x.dtype) && NumElements(x.shape) == 0)
    return InvalidType("no integers have no mean");
  TEMPER_ASSIGN_OR_RETURN(std::vector<int64_t> axes,
                          NormalizeAxes(attrs.Ints("axes"), static_cast<int64_t>(x.shape.size())));
  TensorType result{x.dtype, {}, {}};
  for (size_t i = 0; i < x.shape.size(); ++i) {
    bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    if (!reduced)
      result.shape.push_back(x.shape[i]);
    else if (attrs.Int("keepdims", 1) != 0)
      result.shape.push_back(1);
  }
  return result;
}

// The operand's index from the result's and the reduced axes' (sorted).
Index OperandIndex(const std::vector<int64_t>& axes, bool keep, const Index& result, const Index& reduce) {
  Index full;
  const size_t rank = keep ? result.size() : result.size() + axes.size();
  for (size_t axis = 0, reduced = 0, kept = 0; axis < rank; ++axis) {
    const bool is_reduced = reduced < axes.size() && axes[reduced] == static_cast<int64_t>(axis);
    full.push_back(is_reduced ? reduce[reduced++] : result[keep ? axis : kept++]);
  }
  return full;
}

absl::StatusOr<ir::Tensor> ComputeReduce(const ReduceRule& rule, ir::ProgramBuilder& b, const Attrs& attrs,
                                         const ir::Tensor& x, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<int64_t> axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
  if (axes.empty())
    return ir::Tensor(output.dtype, output.shape,
                      [x, &rule](const Index& i) { return rule.after(rule.before(x(i)), 1); });
  bool keep = attrs.Int("keepdims", 1) != 0;
  std::vector<int64_t> extents;
  int64_t count = 1;
  for (int64_t axis : axes) {
    extents.push_back(x.shape()[axis]);
    count *= extents.back();
  }
  ir::Tensor combined = ReduceStage(
      b, std::string(rule.name), output, extents, rule.combiner,
      [=, &rule](const Index& i, const Index& r) { return rule.before(x(OperandIndex(axes, keep, i, r))); });
  return ir::Tensor(output.dtype, output.shape,
                    [combined, count, &rule](const Index& i) { return rule.after(combined(i), count); });
}

OpDef ReduceOp(const ReduceRule& rule) {
  OpDef op{rule.name, OpPattern::kReduction, 1, 1};
  op.exact = rule.combiner == ir::Combiner::kMax || rule.combiner == ir::Combiner::kMin;
  op.infer = [&rule](const Attrs& attrs, std::span<const TensorType> in) { return InferReduce(rule, attrs, in[0]); };
  op.compute = [&rule](ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                       const TensorType& output) { return ComputeReduce(rule, b, attrs, in[0], output); };
  op.flops = [](const Attrs&, std::span<const TensorType> in, const TensorType&) { return Elements(in[0]); };
  return op;
}

struct ArgRule {
  std::string_view name;
  ir::Combiner extreme;
  double beyond;  // what no element is beyond
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr ArgRule kArgRules[] = {{"arg_max", ir::Combiner::kMax, kInfinity},
                                 {"arg_min", ir::Combiner::kMin, -kInfinity}};

absl::StatusOr<TensorType> InferArg(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(
      attrs, {{"axis", AttrKind::kInt}, {"keepdims", AttrKind::kInt}, {"select_last_index", AttrKind::kInt}}));
  if (in[0].dtype == DType::kBool) return InvalidType("takes numbers");
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", 0), static_cast<int64_t>(in[0].shape.size())));
  if (in[0].shape[axis] == 0) return InvalidType("the axis has no elements");
  TensorType result{DType::kI64, in[0].shape, {}};
  if (attrs.Int("keepdims", 1) != 0)
    result.shape[axis] = 1;
  else
    result.shape.erase(result.shape.begin() + axis);
  return result;
}

// The extreme element of each row, then the first or last place where it stands.
absl::StatusOr<ir::Tensor> ComputeArg(const ArgRule& rule, ir::ProgramBuilder& b, const Attrs& attrs,
                                      const ir::Tensor& x, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", 0), x.rank()));
  const bool keep = attrs.Int("keepdims", 1) != 0, last = attrs.Int("select_last_index", 0) != 0;
  const std::vector<int64_t> extents = {x.shape()[axis]};
  const auto element = [=, &rule](const Index& i, const Index& r) {
    Expr v = x(OperandIndex({axis}, keep, i, r));
    if (!IsFloat(v->dtype)) return v;
    // No comparison holds of NaN, and which one a target's maximum keeps is not said.
    const Expr beyond = ir::Const(rule.beyond, v->dtype);
    return ir::Select(rule.beyond > 0 ? v <= beyond : beyond <= v, v, beyond);
  };
  const TensorType values{x.dtype(), output.shape, output.perm};
  const ir::Tensor extreme = ReduceStage(b, std::string(rule.name) + "_value", values, extents, rule.extreme, element);
  return ReduceStage(b, std::string(rule.name), output, extents, last ? ir::Combiner::kMax : ir::Combiner::kMin,
                     [=](const Index& i, const Index& r) {
                       const Expr nowhere = ir::Int(last ? -1 : extents[0]);
                       return ir::Select(ir::Eq(element(i, r), extreme(i)), r[0], nowhere);
                     });
}

OpDef ArgOp(const ArgRule& rule) {
  OpDef op{rule.name, OpPattern::kReduction, 1, 1, InferArg};
  op.compute = [&rule](ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                       const TensorType& output) { return ComputeArg(rule, b, attrs, in[0], output); };
  op.flops = [](const Attrs&, std::span<const TensorType> in, const TensorType&) { return Elements(in[0]); };
  return op;
}

}  // namespace

std::vector<OpDef> ReduceOps() {
  std::vector<OpDef> ops;
  for (const ReduceRule& rule : kRules) ops.push_back(ReduceOp(rule));
  for (const ArgRule& rule : kArgRules) ops.push_back(ArgOp(rule));
  return ops;
}

}  // namespace temper::ops
