// What is said of regions and of points, against counting them out.
#include "compiler/schedule/region.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace temper::nest {
namespace {

using ir::Expr;

struct Loops {
  std::vector<Stmt> loops;
  ir::Simplifier ranges;
};

Loops RandomLoops(Rng& rng) {
  Loops l;
  for (int64_t i = 0, n = 1 + rng.Below(3); i < n; ++i) {
    l.loops.push_back(
        ir::For(ir::MakeVar("v" + std::to_string(i)), 1 + rng.Below(6), ir::ForKind::kSerial, ir::Seq({})));
  }
  BindLoops(l.loops, l.ranges);
  return l;
}

Expr RandomIndex(Rng& rng, const Loops& l, int depth) {
  if (depth == 0 || rng.Below(5) == 0) {
    return rng.Below(8) == 0 ? Expr(rng.Below(4))
                             : Expr(l.loops[static_cast<size_t>(rng.Below(static_cast<int64_t>(l.loops.size())))]->var);
  }
  const Expr a = RandomIndex(rng, l, depth - 1);
  switch (rng.Below(5)) {
    case 0:
      return a / Expr(1 + rng.Below(5));
    case 1:
      return a % Expr(1 + rng.Below(5));
    case 2:
      return a * Expr(1 + rng.Below(6));
    default:
      return a + RandomIndex(rng, l, depth - 1);
  }
}

// Calls `f` with the values of the loops at every point.
void ForEachPoint(const Loops& l, const std::function<void(const std::vector<ir::VarBinding>&)>& f) {
  int64_t points = 1;
  for (const Stmt& loop : l.loops) points *= loop->extent;
  for (int64_t p = 0; p < points; ++p) {
    std::vector<ir::VarBinding> at;
    int64_t rest = p;
    for (const Stmt& loop : l.loops) {
      at.push_back({loop->var, Expr(rest % loop->extent)});
      rest /= loop->extent;
    }
    f(at);
  }
}

int64_t ValueAt(const Expr& e, const std::vector<ir::VarBinding>& at) { return *ir::AsInt(ir::Substitute(e, at)); }

TEST(Region, ToldLoopsAreTold) {
  Rng rng(1);
  int told = 0;
  for (int i = 0; i < 1500; ++i) {
    const Loops l = RandomLoops(rng);
    std::vector<Expr> bindings;
    for (int64_t n = 1 + rng.Below(3); n > 0; --n) bindings.push_back(RandomIndex(rng, l, 3));
    const Expr predicate = rng.Below(2) == 0 ? Expr() : RandomIndex(rng, l, 2) < Expr(1 + rng.Below(8));
    const std::vector<Stmt> untold = UntoldLoops(bindings, predicate, l.loops, l.ranges);
    std::map<std::vector<int64_t>, std::vector<ir::VarBinding>> first;
    ForEachPoint(l, [&](const std::vector<ir::VarBinding>& at) {
      if (predicate && ValueAt(predicate, at) == 0) return;
      std::vector<int64_t> values;
      for (const Expr& b : bindings) values.push_back(ValueAt(b, at));
      auto [it, is_new] = first.try_emplace(values, at);
      for (size_t k = 0; !is_new && k < l.loops.size(); ++k) {
        if (std::count(untold.begin(), untold.end(), l.loops[k]) > 0) continue;
        ASSERT_EQ(ir::AsInt(it->second[k].value), ir::AsInt(at[k].value)) << i << ": loop " << l.loops[k]->var->name;
      }
    });
    if (HasFatalFailure()) return;
    told += untold.size() < l.loops.size();
  }
  EXPECT_GT(told, 300);
}

TEST(Region, RangesCoverWhatIsTouched) {
  Rng rng(2);
  int known = 0;
  for (int i = 0; i < 1500; ++i) {
    const Loops l = RandomLoops(rng);
    const Expr index = RandomIndex(rng, l, 3);
    VarSet inner;
    for (const Stmt& loop : l.loops) {
      if (rng.Below(2) == 0) inner.insert(loop->var.get());
    }
    std::optional<Range> range = RangeOf(index, l.ranges, inner);
    if (!range.has_value()) continue;
    ++known;
    EXPECT_FALSE(UsesAny(range->min, inner));
    ForEachPoint(l, [&](const std::vector<ir::VarBinding>& at) {
      const int64_t value = ValueAt(index, at), min = ValueAt(range->min, at);
      ASSERT_TRUE(min <= value && value < min + range->extent) << ir::Text(index);
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(known, 700);
}

TEST(Region, ClipCutsConstantStartsAndKeepsOthers) {
  const Expr v = ir::MakeVar("v");
  EXPECT_EQ(Clip(Range{Expr(-2), 5}, 10).extent, 3);
  EXPECT_EQ(Clip(Range{Expr(8), 5}, 10).extent, 2);
  EXPECT_EQ(Clip(Range{v, 5}, 10).extent, 5);
  EXPECT_TRUE(IsWhole(Clip(Range{v, 10}, 10), 10));
  EXPECT_TRUE(IsWhole(Clip(std::nullopt, 10), 10));
}

TEST(Region, UnionNeedsAConstantOffset) {
  const ir::Simplifier s;
  const Expr v = ir::MakeVar("v"), w = ir::MakeVar("w");
  const std::optional<Range> both = Union({v + Expr(2), 3}, {v, 1}, s);
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->extent, 5);
  EXPECT_EQ(ir::Text(both->min), "v");
  EXPECT_FALSE(Union({v, 3}, {w, 3}, s).has_value());
}

}  // namespace
}  // namespace temper::nest
