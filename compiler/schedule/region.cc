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

// floor(base / low) mod (high / low): the digits of a number between two steps. `high` 0 is without end.
struct Digits {
  Expr base;
  int64_t low, high;
};
Digits DigitsOf(const Expr& e) {
  if (e->kind != ExprKind::kDiv && e->kind != ExprKind::kMod) return {e, 1, 0};
  std::optional<int64_t> by = ir::AsInt(e->args[1]);
  if (!by.has_value() || *by <= 0) return {e, 1, 0};
  const Digits d = DigitsOf(e->args[0]);
  const int64_t step = d.low * *by;
  if (d.high != 0 && d.high % step != 0) return {e, 1, 0};
  return e->kind == ExprKind::kDiv ? Digits{d.base, step, d.high} : Digits{d.base, d.low, step};
}

// Whether the known digits of `base` join from its lowest to its highest, so that they tell the number.
bool DigitsTell(const Expr& base, const std::vector<Expr>& known, const ir::Simplifier& simplifier) {
  std::optional<ir::Interval> bounds = simplifier.Bounds(base);
  int64_t reached = 1;
  for (bool progress = true; progress;) {
    progress = false;
    for (const Expr& k : known) {
      const Digits d = DigitsOf(k);
      if (d.low != reached || d.high == reached || !ir::StructurallyEqual(d.base, base)) continue;
      if (d.high == 0) return true;
      reached = d.high;
      progress = true;
    }
    if (bounds.has_value() && bounds->min >= 0 && bounds->max < reached) return true;
  }
  return false;
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

namespace {

// Finds out which numbers are known once the bindings' values are.
class Telling {
 public:
  Telling(std::vector<Expr> sums, const std::vector<Stmt>& loops, const ir::Simplifier& simplifier)
      : simplifier_(simplifier) {
    // As they are, div and mod of fused loops still have the same numerator; simplified, sums stand apart.
    for (const Expr& e : sums) sums_.insert(sums_.end(), {e, simplifier.Simplify(e)});
    for (const Stmt& loop : loops) {
      if (loop->extent > 1) unknown_.insert(loop->var.get());
    }
  }

  // The loops' variables that stay unknown.
  const VarSet& Run() {
    while (!unknown_.empty() && Step()) {
    }
    return unknown_;
  }

 private:
  bool Step() {
    bool progress = false;
    for (size_t i = 0; i < sums_.size(); ++i) progress = TakeApart(sums_[i]) || progress;
    for (size_t i = 0; i < known_.size(); ++i) {
      const Expr base = DigitsOf(known_[i]).base;
      if (!UsesAny(base, unknown_) || IsIn(base, sums_) || !DigitsTell(base, known_, simplifier_)) continue;
      sums_.push_back(base);
      progress = true;
    }
    return progress;
  }

  // A known sum whose unknown atoms stand apart tells them.
  bool TakeApart(const Expr& sum) {
    std::vector<Term> terms;
    Flatten(sum, 1, terms);
    std::erase_if(terms, [&](const Term& t) { return !UsesAny(t.atom, unknown_) || IsIn(t.atom, known_); });
    if (terms.empty() || !TellsAtoms(terms, simplifier_)) return false;
    for (const Term& t : terms) {
      known_.push_back(t.atom);
      if (t.atom->kind == ExprKind::kVar) unknown_.erase(t.atom->var.get());
    }
    return true;
  }

  static bool IsIn(const Expr& e, const std::vector<Expr>& list) {
    return std::any_of(list.begin(), list.end(), [&](const Expr& other) { return ir::StructurallyEqual(e, other); });
  }

  const ir::Simplifier& simplifier_;
  std::vector<Expr> sums_, known_;
  VarSet unknown_;
};

}  // namespace

std::vector<Stmt> UntoldLoops(const std::vector<Expr>& bindings, const std::vector<Stmt>& loops,
                              const ir::Simplifier& simplifier) {
  Telling telling(bindings, loops, simplifier);
  const VarSet& unknown = telling.Run();
  std::vector<Stmt> untold = loops;
  std::erase_if(untold, [&](const Stmt& loop) { return unknown.count(loop->var.get()) == 0; });
  return untold;
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
