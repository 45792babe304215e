// Random expressions over ranged variables: what they are before and after simplification must agree everywhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "compiler/ir/simplify.h"
#include "compiler/ir/sum.h"

namespace temper::ir {
namespace {

struct Ranged {
  Var var;
  Interval range;
  int64_t value = 0;
};

class World {
 public:
  explicit World(uint64_t seed) : rng_(seed) {
    for (const char* name : {"a", "b", "c", "d"}) {
      int64_t min = rng_.Below(4) == 0 ? rng_.Below(20) - 10 : 0;
      static constexpr int64_t kExtents[] = {1, 2, 3, 4, 7, 8, 14, 16, 28, 50};
      vars_.push_back({MakeVar(name), {min, min + kExtents[rng_.Below(10)] - 1}});
      facts_.BindRange(vars_.back().var, vars_.back().range);
    }
  }

  Expr Integer(int depth) {
    if (depth == 0) return rng_.Below(4) == 0 ? Expr(rng_.Below(40) - 10) : Expr(vars_[rng_.Below(4)].var);
    switch (rng_.Below(12)) {
      case 0:
      case 1:
        return Integer(depth - 1) + Integer(depth - 1);
      case 2:
        return Integer(depth - 1) - Integer(depth - 1);
      case 3:
      case 4:
        return Integer(depth - 1) * Expr(Factor() * (rng_.Below(8) == 0 ? -1 : 1));
      case 5:
      case 6:
        return Integer(depth - 1) / Expr(Factor());
      case 7:
      case 8:
        return Integer(depth - 1) % Expr(Factor());
      case 9:
        return rng_.Below(2) ? Min(Integer(depth - 1), Integer(depth - 1))
                             : Max(Integer(depth - 1), Integer(depth - 1));
      case 10:
        return Select(Condition(depth - 1), Integer(depth - 1), Integer(depth - 1));
      default:
        return Recombining(depth);
    }
  }

  Expr Condition(int depth) {
    switch (rng_.Below(8)) {
      case 0:
        return depth > 0 ? And(Condition(depth - 1), Condition(depth - 1)) : Integer(0) < Integer(0);
      case 1:
        return depth > 0 ? Or(Condition(depth - 1), Condition(depth - 1)) : Integer(0) <= Integer(0);
      case 2:
        return Not(depth > 0 ? Condition(depth - 1) : Integer(0) < Integer(0));
      case 3:
        return Eq(Integer(depth), Integer(depth));
      case 4:
      case 5:
        return Integer(depth) <= Integer(depth);
      default:
        return Integer(depth) < Integer(depth);
    }
  }

  void Roll() {
    for (Ranged& v : vars_) v.value = v.range.min + rng_.Below(v.range.max - v.range.min + 1);
  }

  int64_t Eval(const Expr& e) const {
    auto arg = [&](int i) { return Eval(e->args[i]); };
    switch (e->kind) {
      case ExprKind::kInt:
        return e->int_value;
      case ExprKind::kVar:
        for (const Ranged& v : vars_) {
          if (v.var == e->var) return v.value;
        }
        break;
      case ExprKind::kAdd:
        return arg(0) + arg(1);
      case ExprKind::kSub:
        return arg(0) - arg(1);
      case ExprKind::kMul:
        return arg(0) * arg(1);
      case ExprKind::kDiv:
        return static_cast<int64_t>(std::floor(static_cast<double>(arg(0)) / static_cast<double>(arg(1))));
      case ExprKind::kMod:
        return arg(0) -
               arg(1) * static_cast<int64_t>(std::floor(static_cast<double>(arg(0)) / static_cast<double>(arg(1))));
      case ExprKind::kMin:
        return std::min(arg(0), arg(1));
      case ExprKind::kMax:
        return std::max(arg(0), arg(1));
      case ExprKind::kLt:
        return arg(0) < arg(1);
      case ExprKind::kLe:
        return arg(0) <= arg(1);
      case ExprKind::kEq:
        return arg(0) == arg(1);
      case ExprKind::kAnd:
        return arg(0) && arg(1);
      case ExprKind::kOr:
        return arg(0) || arg(1);
      case ExprKind::kNot:
        return !arg(0);
      case ExprKind::kSelect:
        return arg(0) ? arg(1) : arg(2);
      default:
        break;
    }
    ADD_FAILURE() << "unexpected " << Name(e->kind);
    return 0;
  }

  std::string Where() const {
    std::string text;
    for (const Ranged& v : vars_) {
      text += v.var->name + "=" + std::to_string(v.value) + " in [" + std::to_string(v.range.min) + "," +
              std::to_string(v.range.max) + "] ";
    }
    return text;
  }

  Simplifier& facts() { return facts_; }

 private:
  int64_t Factor() {
    static constexpr int64_t kFactors[] = {1, 2, 3, 4, 5, 6, 7, 8, 14, 16, 28, 56};
    return kFactors[rng_.Below(12)];
  }
  // Shapes that split and fuse leave behind, so that the recombination rules have work.
  Expr Recombining(int depth) {
    Expr x = Integer(depth - 1);
    int64_t p = Factor(), q = Factor(), k = rng_.Below(3) + 1;
    switch (rng_.Below(5)) {
      case 0:
        return x / p * (k * p) + x % p * k;
      case 1:
        return x - x / p * p;
      case 2:
        return x / p % q * p + x % p;
      case 3:
        return x / (p * q) * (p * q) + x % (p * q) / p * p + x % p;
      default:
        return x / p - x / (p * q) * q;
    }
  }

  Rng rng_;
  std::vector<Ranged> vars_;
  Simplifier facts_;
};

// TEMPER_FUZZ_ROUNDS multiplies the work of a long run.
uint64_t Rounds(uint64_t usual) {
  const char* factor = std::getenv("TEMPER_FUZZ_ROUNDS");
  return factor == nullptr ? usual : usual * std::strtoull(factor, nullptr, 10);
}

TEST(SimplifyFuzz, IntegersKeepTheirValues) {
  for (uint64_t seed = 0; seed < Rounds(15000); ++seed) {
    World world(seed);
    Expr e = world.Integer(1 + static_cast<int>(seed % 5));
    Expr simple = world.facts().Simplify(e);
    auto bounds = world.facts().Bounds(e);
    for (int n = 0; n < 20; ++n) {
      world.Roll();
      int64_t value = world.Eval(e);
      ASSERT_EQ(value, world.Eval(simple))
          << seed << ": " << Text(e) << "\n -> " << Text(simple) << "\n at " << world.Where();
      if (!bounds) continue;
      ASSERT_TRUE(bounds->min <= value && value <= bounds->max) << seed << ": " << Text(e) << " at " << world.Where();
    }
  }
}

TEST(SimplifyFuzz, ConditionsKeepTheirValues) {
  for (uint64_t seed = 0; seed < Rounds(8000); ++seed) {
    World world(seed + (1u << 20));
    Expr e = world.Condition(1 + static_cast<int>(seed % 4));
    Expr simple = world.facts().Simplify(e);
    for (int n = 0; n < 20; ++n) {
      world.Roll();
      ASSERT_EQ(world.Eval(e), world.Eval(simple))
          << seed << ": " << Text(e) << "\n -> " << Text(simple) << "\n at " << world.Where();
    }
  }
}

TEST(SimplifyFuzz, UnderAssumptionsValuesAgreeWhereTheAssumptionHolds) {
  int64_t points = 0;
  for (uint64_t seed = 0; seed < Rounds(8000); ++seed) {
    World world(seed + (2u << 20));
    Expr cond = world.Condition(1);
    Expr e = world.Integer(2);
    Simplifier facts = world.facts();
    facts.Assume(cond);
    Expr simple = facts.Simplify(e);
    for (int n = 0; n < 20; ++n) {
      world.Roll();
      if (!world.Eval(cond)) continue;
      ++points;
      ASSERT_EQ(world.Eval(e), world.Eval(simple))
          << seed << ": " << Text(e) << " if " << Text(cond) << "\n -> " << Text(simple) << "\n at " << world.Where();
    }
  }
  EXPECT_GT(points, 10000);
}

TEST(SimplifyFuzz, ASecondPassHardlyEverFindsMore) {
  int changed = 0;
  const int rounds = 4000;
  for (uint64_t seed = 0; seed < rounds; ++seed) {
    World world(seed + (3u << 20));
    Expr once = world.facts().Simplify(world.Integer(1 + static_cast<int>(seed % 4)));
    changed += !StructurallyEqual(once, world.facts().Simplify(once));
  }
  EXPECT_LT(changed, rounds / 100);
}

}  // namespace
}  // namespace temper::ir
