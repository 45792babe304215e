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
  std::vector<int64_t> reached = {1};  // every step that some run of digits from the lowest leads to
  for (size_t i = 0; i < reached.size(); ++i) {
    if (bounds.has_value() && bounds->min >= 0 && bounds->max < reached[i]) return true;
    for (const Expr& k : known) {
      const Digits d = DigitsOf(k);
      if (d.low != reached[i] || !ir::StructurallyEqual(d.base, base)) continue;
      if (d.high == 0) return true;
      if (std::count(reached.begin(), reached.end(), d.high) == 0) reached.push_back(d.high);
    }
  }
  return false;
}

// A number times a factor, in a sum whose value is known.
struct Part {
  int64_t coefficient;
  ir::Interval bounds;
  Expr number;
};

// Whether the sum of the parts tells each of them: like digits, each step is larger than all smaller ones together.
bool StandApart(std::vector<Part> parts) {
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return std::abs(a.coefficient) < std::abs(b.coefficient); });
  int64_t reach = 0;
  for (const Part& p : parts) {
    if (std::abs(p.coefficient) <= reach) return false;
    reach += std::abs(p.coefficient) * std::max<int64_t>(0, p.bounds.max - p.bounds.min);
  }
  return true;
}

// A condition sum < limit on the points looked at.
struct Guard {
  Expr sum;
  int64_t limit;
  std::vector<Term> terms;
};

// Finds out which numbers are known once the bindings' values are.
class Telling {
 public:
  Telling(const std::vector<Expr>& sums, const Expr& predicate, const std::vector<Stmt>& loops,
          const ir::Simplifier& simplifier)
      : simplifier_(simplifier) {
    for (const Expr& c : Conjuncts(predicate)) {
      if (c->kind != ExprKind::kLt || !ir::AsInt(c->args[1])) continue;
      guards_.push_back({simplifier.Simplify(c->args[0]), *ir::AsInt(c->args[1]), {}});
      Flatten(guards_.back().sum, 1, guards_.back().terms);
      std::erase_if(guards_.back().terms, [](const Term& t) { return ir::AsInt(t.atom).has_value(); });
    }
    // Narrow conditions first: a part that is the whole sum tells nothing.
    std::stable_sort(guards_.begin(), guards_.end(), [](const Guard& a, const Guard& b) {
      return std::pair(a.terms.size(), a.limit) < std::pair(b.terms.size(), b.limit);
    });
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

  // A known sum whose unknown parts stand apart tells them. A part may be a sum itself that a condition bounds.
  bool TakeApart(const Expr& sum) {
    std::vector<Term> terms;
    Flatten(sum, 1, terms);
    std::erase_if(terms, [&](const Term& t) { return !UsesAny(t.atom, unknown_) || IsIn(t.atom, known_); });
    if (terms.empty()) return false;
    if (TellParts(terms, {})) return true;
    // Conditions may nest, so each is tried as the narrowest to be used.
    for (size_t first = 0; first < guards_.size(); ++first) {
      std::vector<Term> rest = terms;
      std::vector<Part> guarded;
      for (size_t i = first; i < guards_.size(); ++i) {
        if (std::optional<Part> part = TakeGuarded(guards_[i], rest)) guarded.push_back(*part);
      }
      if (!guarded.empty() && TellParts(rest, std::move(guarded))) return true;
    }
    return false;
  }

  bool TellParts(const std::vector<Term>& terms, std::vector<Part> parts) {
    const size_t sums = parts.size();
    for (const Term& t : terms) {
      std::optional<ir::Interval> bounds = simplifier_.Bounds(t.atom);
      if (!bounds.has_value()) return false;
      parts.push_back({t.coefficient, *bounds, t.atom});
    }
    if (!StandApart(parts)) return false;
    bool progress = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      std::vector<Expr>& list = i < sums ? sums_ : known_;
      if (IsIn(parts[i].number, list)) continue;
      list.push_back(parts[i].number);
      progress = true;
      if (parts[i].number->kind == ExprKind::kVar) unknown_.erase(parts[i].number->var.get());
    }
    return progress;
  }

  // The terms of a guard, if all of them are among `terms` by one factor, as one part.
  std::optional<Part> TakeGuarded(const Guard& guard, std::vector<Term>& terms) const {
    std::optional<ir::Interval> bounds = simplifier_.Bounds(guard.sum);
    std::vector<Term> rest = terms;
    int64_t factor = 0;
    for (const Term& w : guard.terms) {
      auto it =
          std::find_if(rest.begin(), rest.end(), [&](const Term& t) { return ir::StructurallyEqual(t.atom, w.atom); });
      if (it == rest.end() || it->coefficient % w.coefficient != 0) return std::nullopt;
      if (factor != 0 && it->coefficient != factor * w.coefficient) return std::nullopt;
      factor = it->coefficient / w.coefficient;
      rest.erase(it);
    }
    if (factor == 0 || !bounds.has_value()) return std::nullopt;
    terms = std::move(rest);
    return Part{factor, {bounds->min, std::min(bounds->max, guard.limit - 1)}, guard.sum};
  }

  static bool IsIn(const Expr& e, const std::vector<Expr>& list) {
    return std::any_of(list.begin(), list.end(), [&](const Expr& other) { return ir::StructurallyEqual(e, other); });
  }

  const ir::Simplifier& simplifier_;
  std::vector<Guard> guards_;
  std::vector<Expr> sums_, known_;
  VarSet unknown_;
};

}  // namespace

std::vector<Stmt> UntoldLoops(const std::vector<Expr>& bindings, const Expr& predicate, const std::vector<Stmt>& loops,
                              const ir::Simplifier& simplifier) {
  ir::Simplifier within = simplifier;
  if (predicate) within.Assume(predicate);
  Telling telling(bindings, predicate, loops, within);
  const VarSet& unknown = telling.Run();
  std::vector<Stmt> untold = loops;
  std::erase_if(untold, [&](const Stmt& loop) { return unknown.count(loop->var.get()) == 0; });
  return untold;
}

bool IsInjective(const std::vector<Expr>& bindings, const Expr& predicate, const std::vector<Stmt>& loops,
                 const ir::Simplifier& simplifier) {
  return UntoldLoops(bindings, predicate, loops, simplifier).empty();
}

namespace {

// Whether each iteration of the loop may have scratch of its own in the scope.
bool HasOwn(ir::ForKind kind, ir::Scope scope) {
  if (ir::IsGroup(kind)) return scope != ir::Scope::kMemory;
  return !ir::IsThread(kind) || scope == ir::Scope::kRegister;
}

}  // namespace

bool UsedOnlyIn(const Stmt& loop, const Func& f, const Buffer& buffer) {
  return !IsParam(f, buffer) && ReadersOf(f.body, buffer).size() == ReadersOf(loop, buffer).size() &&
         WritersOf(f.body, buffer).size() == WritersOf(loop, buffer).size();
}

absl::Status CheckRaces(const Func& f) {
  absl::Status status;
  ir::VisitStmt(f.body, [&](const Stmt& parallel) {
    if (!status.ok() || parallel->kind != StmtKind::kFor || !ir::IsConcurrent(parallel->for_kind)) return;
    for (const Stmt& block : BlocksIn(parallel)) {
      const bool own = HasOwn(parallel->for_kind, block->buffer->scope) && UsedOnlyIn(parallel, f, block->buffer);
      if (own) continue;
      const std::vector<Stmt> around = LoopsOf(PathToBlock(f.body, block->block.name));
      ir::Simplifier ranges;
      BindLoops(around, ranges);
      const auto from = std::find(around.begin(), around.end(), parallel);
      for (const Stmt& loop :
           UntoldLoops(block->block.bindings, block->block.predicate, {from, around.end()}, ranges)) {
        if (loop != parallel) continue;
        status = absl::FailedPreconditionError(
            absl::StrCat("iterations of ", std::string(ir::Word(loop->for_kind)), " loop '", loop->var->name,
                         "' may write the same elements in block '", block->block.name, "'"));
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

void RegionUnion::Add(const std::vector<Expr>& indices, const ir::Simplifier& within) {
  if (!started_) ranges_.resize(indices.size());
  for (size_t d = 0; d < indices.size(); ++d) {
    std::optional<Range> range = RangeOf(indices[d], within, inner_);
    if (!started_) {
      ranges_[d] = range;
    } else if (ranges_[d].has_value()) {
      ranges_[d] = range.has_value() ? Union(*ranges_[d], *range, simplifier_) : std::nullopt;
    }
  }
  started_ = true;
}

}  // namespace temper::nest
