#include "compiler/ir/simplify.h"

#include <algorithm>

#include "compiler/ir/canonical.h"

namespace temper::ir {
namespace {

// Simplifies a nest with the facts that hold at each place; null where nothing is left.
class StmtSimplifier {
 public:
  Stmt Run(const Stmt& s);

 private:
  Stmt RunFor(const Stmt& s);
  Stmt RunIf(const Stmt& s);
  Stmt RunSeq(const Stmt& s);
  Stmt RunLeaf(const Stmt& s);
  Stmt Under(const Expr& cond, const Stmt& s);

  Simplifier facts_;
};

Stmt StmtSimplifier::Run(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return RunFor(s);
    case StmtKind::kIf:
      return RunIf(s);
    case StmtKind::kSeq:
      return RunSeq(s);
    case StmtKind::kAlloc: {
      Stmt body = Run(s->body);
      return body && body != s->body ? Alloc(s->buffer, body) : body ? s : nullptr;
    }
    case StmtKind::kStore:
    case StmtKind::kBlock:
    case StmtKind::kPrefetch:
    case StmtKind::kInstruction:
      return RunLeaf(s);
    case StmtKind::kBarrier:
      return s;
  }
  return s;
}

Stmt StmtSimplifier::RunFor(const Stmt& s) {
  if (s->extent <= 0) return nullptr;
  facts_.Bind(s->var, s->extent);
  Stmt body = Run(s->body);
  facts_.Unbind(s->var);
  // The variable's range already made it 0 everywhere. Group and thread loops stay: they say where their body runs.
  const bool stays = IsGroup(s->for_kind) || IsThread(s->for_kind);
  if (!body || (s->extent == 1 && !stays)) return body;
  return body == s->body ? s : For(s->var, s->extent, s->for_kind, body);
}

Stmt StmtSimplifier::Under(const Expr& cond, const Stmt& s) {
  if (!s) return nullptr;
  Simplifier outside = facts_;
  facts_.Assume(cond);
  Stmt result = Run(s);
  facts_ = std::move(outside);
  return result;
}

Stmt StmtSimplifier::RunIf(const Stmt& s) {
  Expr cond = facts_.Simplify(s->cond);
  if (auto decided = AsInt(cond)) {
    if (*decided) return Run(s->body);
    return s->else_body ? Run(s->else_body) : nullptr;
  }
  Expr negated = facts_.Simplify(Not(cond));
  Stmt then_body = Under(cond, s->body);
  Stmt else_body = Under(negated, s->else_body);
  if (!then_body) return else_body ? If(negated, else_body) : nullptr;
  bool same = cond.get() == s->cond.get() && then_body == s->body && else_body == s->else_body;
  return same ? s : If(cond, then_body, else_body);
}

Stmt StmtSimplifier::RunSeq(const Stmt& s) {
  std::vector<Stmt> kept;
  for (const Stmt& child : s->stmts) {
    if (Stmt result = Run(child)) kept.push_back(std::move(result));
  }
  if (kept.empty()) return nullptr;
  return kept == s->stmts ? s : Seq(std::move(kept));
}

Stmt StmtSimplifier::RunLeaf(const Stmt& s) {
  auto copy = std::make_shared<StmtNode>(*s);
  bool changed = false;
  auto simplify = [&](Expr& e) {
    if (!e) return;
    Expr simple = facts_.Simplify(e);
    changed |= simple.get() != e.get();
    e = std::move(simple);
  };
  for (Expr& binding : copy->block.bindings) simplify(binding);
  simplify(copy->block.predicate);
  if (auto decided = AsInt(copy->block.predicate)) {
    if (!*decided) return nullptr;
    copy->block.predicate = Expr();
    changed = true;
  }
  for (const IterVar& iter : s->block.iters) facts_.Bind(iter.var, iter.extent);
  for (Expr& index : copy->indices) simplify(index);
  simplify(copy->value);
  simplify(copy->block.init);
  for (size_t i = s->block.iters.size(); i-- > 0;) facts_.Unbind(s->block.iters[i].var);
  return changed ? copy : s;
}

// Adds factor * e to `linear`; false where e is not linear in `vars`.
bool AddLinear(const Expr& e, int64_t factor, const std::vector<Var>& vars, Linear& linear) {
  switch (e->kind) {
    case ExprKind::kVar:
      for (size_t i = 0; i < vars.size(); ++i) {
        if (vars[i] != e->var) continue;
        linear.coefficients[i] += factor;
        return true;
      }
      break;
    case ExprKind::kAdd:
    case ExprKind::kSub:
      return AddLinear(e->args[0], factor, vars, linear) &&
             AddLinear(e->args[1], e->kind == ExprKind::kAdd ? factor : -factor, vars, linear);
    case ExprKind::kMul:
      if (auto b = AsInt(e->args[1])) return AddLinear(e->args[0], factor * *b, vars, linear);
      if (auto a = AsInt(e->args[0])) return AddLinear(e->args[1], factor * *a, vars, linear);
      break;
    default:
      break;
  }
  if (std::any_of(vars.begin(), vars.end(), [&](const Var& v) { return UsesVar(e, v); })) return false;
  linear.rest = linear.rest + e * Int(factor);
  return true;
}

}  // namespace

void Simplifier::Bind(const Var& v, int64_t extent) { BindRange(v, {0, extent - 1}); }
void Simplifier::BindRange(const Var& v, Interval range) { ranges_.emplace_back(v, range); }

void Simplifier::Unbind(const Var& v) {
  auto it = std::find_if(ranges_.rbegin(), ranges_.rend(), [&](const auto& range) { return range.first == v; });
  if (it == ranges_.rend()) return;
  ranges_.erase(std::next(it).base());
  std::erase_if(assumptions_, [&v](const Assumption& assumption) {
    const std::vector<Term>& terms = assumption.terms.terms;
    return std::any_of(terms.begin(), terms.end(), [&v](const Term& term) { return UsesVar(term.atom, v); });
  });
}

void Simplifier::Assume(const Expr& cond) {
  if (cond->kind == ExprKind::kAnd) {
    Assume(cond->args[0]);
    return Assume(cond->args[1]);
  }
  if (cond->kind == ExprKind::kEq && cond->args[0]->dtype == DType::kI64) {
    Assume(cond->args[0] <= cond->args[1]);
    return Assume(cond->args[1] <= cond->args[0]);
  }
  if (cond->kind == ExprKind::kNot) {
    Expr pushed = Simplify(cond);
    return pushed->kind == ExprKind::kNot ? void() : Assume(pushed);
  }
  auto sum = Canonicalizer(*this).AsNegative(cond);
  if (!sum || sum->is_constant()) return;
  int64_t max = -sum->constant - 1;
  sum->constant = 0;
  const Term& first = sum->terms[0];
  if (sum->terms.size() == 1 && first.atom->kind == ExprKind::kVar) {
    for (auto it = ranges_.rbegin(); it != ranges_.rend(); ++it) {
      if (it->first != first.atom->var) continue;
      if (first.coefficient > 0) {
        it->second.max = std::min(it->second.max, FloorDiv(max, first.coefficient));
      } else {
        it->second.min = std::max(it->second.min, -FloorDiv(max, -first.coefficient));
      }
      return;
    }
  }
  assumptions_.push_back({*std::move(sum), max});
}

Expr Simplifier::Simplify(const Expr& e) const {
  Expr result = Canonicalizer(*this).Any(e);
  return StructurallyEqual(result, e) ? e : result;
}

bool Simplifier::CanProve(const Expr& cond) const { return AsInt(Simplify(cond)).value_or(0) != 0; }

std::optional<Interval> Simplifier::Bounds(const Expr& e) const {
  Canonicalizer canonicalizer(*this);
  if (e->dtype != DType::kI64) return std::nullopt;
  return canonicalizer.BoundsOf(canonicalizer.Linear(e));
}

Stmt Simplify(const Stmt& s) {
  Stmt result = StmtSimplifier().Run(s);
  return result ? result : Seq({});
}

std::optional<Linear> AsLinear(const Expr& e, const std::vector<Var>& vars) {
  Linear linear{std::vector<int64_t>(vars.size(), 0), Int(0)};
  if (!AddLinear(e, 1, vars, linear)) return std::nullopt;
  return linear;
}

Expr BoundOf(const Var& v, const Expr& e, const Expr& bound) {
  const Sum sum = Flatten(e);
  const Term* term = nullptr;
  Expr rest(sum.constant);
  for (const Term& t : sum.terms) {
    if (!UsesVar(t.atom, v)) {
      rest = rest + t.atom * Expr(t.coefficient);
    } else if (term != nullptr) {
      return {};
    } else {
      term = &t;
    }
  }
  if (term == nullptr || term->coefficient <= 0) return {};
  const Expr end = (bound - rest + Expr(term->coefficient - 1)) / Expr(term->coefficient);
  if (term->atom->kind == ExprKind::kVar) return end;
  if (term->atom->kind != ExprKind::kDiv) return {};
  const std::optional<int64_t> divisor = AsInt(term->atom->args[1]);
  return divisor.value_or(0) > 0 ? BoundOf(v, term->atom->args[0], end * Expr(*divisor)) : Expr();
}

Expr FlatIndex(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr flat = Int(0);
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t stride = NumElements(std::span(buffer->shape).subspan(i + 1));
    flat = flat + indices[i] * Int(stride);
  }
  return flat;
}

}  // namespace temper::ir
