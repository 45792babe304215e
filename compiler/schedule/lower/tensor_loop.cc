#include "compiler/schedule/lower/tensor_loop.h"

namespace temper::nest {

using ir::ExprKind;
using ir::ForKind;

namespace {

// The load in a factor of a product that tensor loops may sum; null: it is none.
Expr LoadOfFactor(const Expr& e) {
  const bool as_f32 = e->kind == ExprKind::kCast && e->dtype == DType::kF32 &&
                      (e->args[0]->dtype == DType::kF16 || e->args[0]->dtype == DType::kBF16);
  if (!as_f32 && e->kind != ExprKind::kTf32) return {};
  const Expr& load = e->args[0];
  return load->kind == ExprKind::kLoad && load->buffer->scope == ir::Scope::kShared ? load : Expr();
}

}  // namespace

std::optional<int64_t> ValueAt(const Expr& e, const Point& point) {
  if (e->kind == ExprKind::kInt) return e->int_value;
  if (e->kind == ExprKind::kVar) {
    const auto found = point.find(e->var.get());
    return found == point.end() ? std::nullopt : std::optional(found->second);
  }
  if (e->args.size() != 2 || e->dtype != DType::kI64) return std::nullopt;
  const std::optional<int64_t> a = ValueAt(e->args[0], point), b = ValueAt(e->args[1], point);
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  switch (e->kind) {
    case ExprKind::kAdd:
      return *a + *b;
    case ExprKind::kSub:
      return *a - *b;
    case ExprKind::kMul:
      return *a * *b;
    case ExprKind::kDiv:
      return *b == 0 ? std::nullopt : std::optional(ir::FloorDiv(*a, *b));
    case ExprKind::kMod:
      return *b == 0 ? std::nullopt : std::optional(ir::FloorMod(*a, *b));
    default:
      return std::nullopt;
  }
}

Stmt UnrolledOver(const std::vector<Stmt>& loops, const std::function<Stmt(const std::vector<ir::VarBinding>&)>& body) {
  std::vector<ir::VarBinding> renamed;
  for (const Stmt& loop : loops) renamed.push_back({loop->var, ir::MakeVar(loop->var->name)});
  Stmt s = body(renamed);
  for (size_t i = loops.size(); i-- > 0;) s = ir::For(renamed[i].value->var, loops[i]->extent, ForKind::kUnrolled, s);
  return s;
}

Factors FactorsOf(const Stmt& store) {
  const Expr& v = store->value;
  const bool adds = v->kind == ExprKind::kAdd &&
                    ir::StructurallyEqual(v->args[0], ir::Load(store->buffer, store->indices)) &&
                    v->args[1]->kind == ExprKind::kMul;
  if (!adds) return {};
  return {LoadOfFactor(v->args[1]->args[0]), LoadOfFactor(v->args[1]->args[1])};
}

}  // namespace temper::nest
