#include "compiler/schedule/region.h"

#include <algorithm>

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

}  // namespace

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
