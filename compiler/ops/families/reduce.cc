// Reductions of one operand over chosen axes, and arg_max.
#include <algorithm>

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
      b, std::string(rule.name), output, extents, rule.combiner, [=, &rule](const Index& i, const Index& r) {
        Index full;
        size_t reduced = 0, kept = 0;
        for (int axis = 0; axis < x.rank(); ++axis) {
          bool is_reduced = reduced < axes.size() && axes[reduced] == axis;
          full.push_back(is_reduced ? r[reduced++] : i[keep ? static_cast<size_t>(axis) : kept++]);
        }
        return rule.before(x(full));
      });
  return ir::Tensor(output.dtype, output.shape,
                    [combined, count, &rule](const Index& i) { return rule.after(combined(i), count); });
}

OpDef ReduceOp(const ReduceRule& rule) {
  OpDef op{rule.name, OpPattern::kReduction, 1, 1};
  op.infer = [&rule](const Attrs& attrs, std::span<const TensorType> in) { return InferReduce(rule, attrs, in[0]); };
  op.compute = [&rule](ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                       const TensorType& output) { return ComputeReduce(rule, b, attrs, in[0], output); };
  op.flops = [](const Attrs&, std::span<const TensorType> in, const TensorType&) { return Elements(in[0]); };
  return op;
}

absl::StatusOr<TensorType> InferArgMax(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"axis", AttrKind::kInt}, {"keepdims", AttrKind::kInt}}));
  if (in[0].dtype == DType::kBool) return InvalidType("takes numbers");
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis", 0), static_cast<int64_t>(in[0].shape.size())));
  TensorType result{DType::kI64, in[0].shape, {}};
  if (attrs.Int("keepdims", 1) != 0)
    result.shape[axis] = 1;
  else
    result.shape.erase(result.shape.begin() + axis);
  return result;
}

}  // namespace

std::vector<OpDef> ReduceOps() {
  std::vector<OpDef> ops;
  for (const ReduceRule& rule : kRules) ops.push_back(ReduceOp(rule));
  ops.push_back({"arg_max", OpPattern::kOpaque, 1, 1, InferArgMax, nullptr,
                 [](const Attrs&, std::span<const TensorType> in, const TensorType&) { return Elements(in[0]); }});
  return ops;
}

}  // namespace temper::ops
