#include "compiler/schedule/region.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace temper::nest {
namespace {

using ir::ExprKind;

struct Term {
  int64_t coefficient;
  Expr atom;
};

// `e` as a sum of terms.
void Flatten(const Expr& e, int64_t scale, std::vector<Term>& terms) {
  if (e->kind == ExprKind::kAdd || e->kind == ExprKind::kSub) {
    Flatten(e->args[0], scale, terms);
    Flatten(e->args[1], e->kind == ExprKind::kAdd ? scale : -scale, terms);
    return;
  }
  if (e->kind == ExprKind::kMul) {
    for (int side : {0, 1}) {
      if (std::optional<int64_t> c = ir::AsInt(e->args[side])) return Flatten(e->args[1 - side], scale * *c, terms);
    }
  }
  terms.push_back({scale, e});
}

// floor(v / low) mod (high / low): the digits of a variable between two steps. `high` 0 is without end.
struct Digits {
  int64_t low, high;
};
std::optional<Digits> DigitsOf(const Expr& e) {
  if (e->kind == ExprKind::kVar) return Digits{1, 0};
  if (e->kind != ExprKind::kDiv && e->kind != ExprKind::kMod) return std::nullopt;
  std::optional<Digits> d = DigitsOf(e->args[0]);
  std::optional<int64_t> by = ir::AsInt(e->args[1]);
  if (!d.has_value() || !by.has_value() || *by <= 0) return std::nullopt;
  const int64_t step = d->low * *by;
  if (d->high != 0 && d->high % step != 0) return std::nullopt;
  return e->kind == ExprKind::kDiv ? Digits{step, d->high} : Digits{d->low, step};
}

// Whether the values of `atoms`, all over `loop` alone, tell where the loop stands: their digits join.
bool Tell(const std::vector<Expr>& atoms, const Stmt& loop) {
  int64_t reached = 1;
  for (bool progress = true; progress && reached < loop->extent;) {
    progress = false;
    for (const Expr& a : atoms) {
      std::optional<Digits> d = DigitsOf(a);
      if (!d.has_value() || d->low != reached || d->high == reached) continue;
      if (d->high == 0) return true;
      reached = d->high;
      progress = true;
    }
  }
  return reached >= loop->extent;
}

// Whether the sum of the terms tells the value of every atom: like digits, each step is larger than all smaller ones
// together.
bool TellsAtoms(std::vector<Term> terms, const ir::Simplifier& simplifier) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return std::abs(a.coefficient) < std::abs(b.coefficient); });
  int64_t reach = 0;
  for (const Term& t : terms) {
    std::optional<ir::Interval> bounds = simplifier.Bounds(t.atom);
    if (!bounds.has_value() || std::abs(t.coefficient) <= reach) return false;
    reach += std::abs(t.coefficient) * (bounds->max - bounds->min);
  }
  return true;
}

}  // namespace

std::vector<Stmt> UntoldLoops(const std::vector<Expr>& bindings, const std::vector<Stmt>& loops,
                              const ir::Simplifier& simplifier) {
  std::vector<Stmt> open;
  VarSet unknown;
  for (const Stmt& loop : loops) {
    if (loop->extent <= 1) continue;
    open.push_back(loop);
    unknown.insert(loop->var.get());
  }
  std::vector<Expr> known;
  // Each round a binding whose unknown atoms stand apart tells them; a loop is known when its atoms tell it.
  for (bool progress = true; progress && !open.empty();) {
    progress = false;
    for (const Expr& binding : bindings) {
      std::vector<Term> terms;
      Flatten(simplifier.Simplify(binding), 1, terms);
      std::erase_if(terms, [&](const Term& t) {
        return !UsesAny(t.atom, unknown) ||
               std::any_of(known.begin(), known.end(), [&](const Expr& k) { return ir::StructurallyEqual(k, t.atom); });
      });
      if (terms.empty() || !TellsAtoms(terms, simplifier)) continue;
      for (const Term& t : terms) known.push_back(t.atom);
      progress = true;
    }
    std::erase_if(open, [&](const Stmt& loop) {
      std::vector<Expr> atoms;
      for (const Expr& k : known) {
        if (UsesOnly(k, {loop->var.get()}) && ir::UsesVar(k, loop->var)) atoms.push_back(k);
      }
      if (!Tell(atoms, loop)) return false;
      unknown.erase(loop->var.get());
      progress = true;
      return true;
    });
  }
  return open;
}

bool IsInjective(const std::vector<Expr>& bindings, const std::vector<Stmt>& loops, const ir::Simplifier& simplifier) {
  return UntoldLoops(bindings, loops, simplifier).empty();
}

absl::Status CheckRaces(const Func& f) {
  absl::Status status;
  ir::VisitStmt(f.body, [&](const Stmt& parallel) {
    if (!status.ok() || parallel->kind != StmtKind::kFor || parallel->for_kind != ir::ForKind::kParallel) return;
    for (const Stmt& block : BlocksIn(parallel)) {
      const bool own = !IsParam(f, block->buffer) &&
                       ReadersOf(f.body, block->buffer).size() == ReadersOf(parallel, block->buffer).size() &&
                       WritersOf(f.body, block->buffer).size() == WritersOf(parallel, block->buffer).size();
      if (own) continue;
      const std::vector<Stmt> around = LoopsOf(PathToBlock(f.body, block->block.name));
      ir::Simplifier ranges;
      BindLoops(around, ranges);
      const auto from = std::find(around.begin(), around.end(), parallel);
      for (const Stmt& loop : UntoldLoops(block->block.bindings, {from, around.end()}, ranges)) {
        if (loop != parallel) continue;
        status = absl::FailedPreconditionError(absl::StrCat("iterations of parallel loop '", loop->var->name,
                                                            "' may write the same elements in block '",
                                                            block->block.name, "'"));
      }
    }
  });
  return status;
}

std::optional<Range> RangeOf(const Expr& index, const ir::Simplifier& simplifier, const VarSet& inner) {
  const Expr e = simplifier.Simplify(index);
  if (HasLoad(e)) return std::nullopt;
  if (UsesOnly(e, inner)) {
    std::optional<ir::Interval> bounds = simplifier.Bounds(e);
    if (!bounds.has_value()) return std::nullopt;
    return Range{Expr(bounds->min), bounds->max - bounds->min + 1};
  }
  std::vector<Term> terms;
  Flatten(e, 1, terms);
  Expr base(0);
  int64_t low = 0, high = 0;
  for (const Term& t : terms) {
    if (!UsesAny(t.atom, inner)) {
      base = base + t.atom * Expr(t.coefficient);
      continue;
    }
    if (!UsesOnly(t.atom, inner)) return std::nullopt;
    std::optional<ir::Interval> bounds = simplifier.Bounds(t.atom);
    if (!bounds.has_value()) return std::nullopt;
    const int64_t a = t.coefficient * bounds->min, b = t.coefficient * bounds->max;
    low += std::min(a, b);
    high += std::max(a, b);
  }
  return Range{simplifier.Simplify(base + Expr(low)), high - low + 1};
}

std::optional<Range> Union(const Range& a, const Range& b, const ir::Simplifier& simplifier) {
  std::optional<int64_t> offset = ir::AsInt(simplifier.Simplify(b.min - a.min));
  if (!offset.has_value()) return std::nullopt;
  const int64_t low = std::min<int64_t>(0, *offset), high = std::max(a.extent, *offset + b.extent);
  return Range{low < 0 ? b.min : a.min, high - low};
}

Range Clip(const std::optional<Range>& range, int64_t dim) {
  if (!range.has_value()) return {Expr(0), dim};
  std::optional<int64_t> start = ir::AsInt(range->min);
  if (!start.has_value()) return range->extent < dim ? *range : Range{Expr(0), dim};
  const int64_t low = std::clamp<int64_t>(*start, 0, dim), high = std::clamp<int64_t>(*start + range->extent, low, dim);
  return {Expr(low), high - low};
}

bool IsWhole(const Range& range, int64_t dim) { return ir::AsInt(range.min) == 0 && range.extent >= dim; }

bool SameStart(const Range& a, const Range& b, const ir::Simplifier& simplifier) {
  return ir::AsInt(simplifier.Simplify(b.min - a.min)) == 0;
}

void RegionUnion::Add(const std::vector<Expr>& indices) {
  if (!started_) ranges_.resize(indices.size());
  for (size_t d = 0; d < indices.size(); ++d) {
    std::optional<Range> range = RangeOf(indices[d], simplifier_, inner_);
    if (!started_) {
      ranges_[d] = range;
    } else if (ranges_[d].has_value()) {
      ranges_[d] = range.has_value() ? Union(*ranges_[d], *range, simplifier_) : std::nullopt;
    }
  }
  started_ = true;
}

}  // namespace temper::nest
