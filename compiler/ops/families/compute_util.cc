#include "compiler/ops/families/compute_util.h"

namespace temper::ops {

using ir::Expr;
using ir::Tensor;

Index BroadcastIndex(const Index& index, const Shape& shape) {
  Index result;
  size_t offset = index.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) result.push_back(shape[i] == 1 ? Expr(0) : index[offset + i]);
  return result;
}

Tensor ReduceStage(ir::ProgramBuilder& b, const std::string& name, const TensorType& out,
                   std::vector<int64_t> reduce_extents, ir::Combiner combiner,
                   const std::function<Expr(const Index&, const Index&)>& fn) {
  std::vector<int> perm = out.perm;
  ir::Buffer buffer = b.Reduce(name, out.dtype, out.PhysicalShape(), std::move(reduce_extents), combiner,
                               [perm, fn](const Index& physical, const Index& reduce) {
                                 Index logical = physical;
                                 for (size_t i = 0; i < perm.size(); ++i) logical[perm[i]] = physical[i];
                                 return fn(logical, reduce);
                               });
  return Tensor::OfBuffer(buffer, perm);
}

Tensor MaterializeFormula(ir::ProgramBuilder& b, const std::string& name, const Tensor& t,
                          const TensorType& layout_like) {
  Index index;
  for (int i = 0; i < t.rank(); ++i) index.push_back(ir::MakeVar("i"));
  ir::ExprKind kind = t(index)->kind;
  if (kind == ir::ExprKind::kLoad || kind == ir::ExprKind::kInt || kind == ir::ExprKind::kFloat) return t;
  bool same_rank = static_cast<int>(layout_like.perm.size()) == t.rank();
  return b.Materialize(name, t, same_rank ? layout_like.perm : std::vector<int>());
}

Expr TruncatedDiv(const Expr& a, const Expr& b) {
  const Expr floor = a / b;
  if (IsUnsigned(a->dtype)) return floor;
  // No absolute values: the least integer has none.
  const Expr zero = ir::Int(0, a->dtype);
  const Expr crossed = ir::And(ir::Not(ir::Eq(a < zero, b < zero)), ir::Not(ir::Eq(floor * b, a)));
  return ir::Select(crossed, floor + ir::Int(1, a->dtype), floor);
}

Expr ConvertTo(const Expr& x, DType to, CastMode mode) {
  if (x->dtype == to) return x;
  if (to == DType::kBool) {
    const Expr wide = ir::Cast(x, Info(x->dtype).wide);
    return ir::Not(ir::Eq(wide, ir::Const(0, wide->dtype)));
  }
  const bool through = CastsThroughF32(to) && IsNative(x->dtype);
  return ir::Cast(through ? ir::Cast(x, DType::kF32) : x, to, mode);
}

Expr InBounds(const std::vector<Expr>& conditions, const Expr& value, const Expr& otherwise) {
  if (conditions.empty()) return value;
  Expr all = conditions[0];
  for (size_t i = 1; i < conditions.size(); ++i) all = ir::And(all, conditions[i]);
  return ir::Select(all, value, otherwise);
}

}  // namespace temper::ops
