// Integer simplification under known ranges: what makes div/mod of fused and split loops disappear again.
#pragma once

#include <utility>

#include "compiler/ir/stmt.h"
#include "compiler/ir/sum.h"

namespace temper::ir {

struct Interval {  // inclusive; empty optionals would be infinity, which static shapes never need
  int64_t min, max;
};

class Simplifier {
 public:
  void Bind(const Var& v, int64_t extent);  // v in [0, extent)
  void BindRange(const Var& v, Interval range);
  void Unbind(const Var& v);  // the latest binding of v
  // `cond` holds from here on. Understood: comparisons of linear forms and conjunctions of them. To leave the scope of
  // an assumption again, make it on a copy of the simplifier.
  void Assume(const Expr& cond);

  // Canonical form: integer expressions become sums of coefficient * atom (atoms ordered, constants last) with
  //   (c*q*a + r) / q -> c*a + r/q   and   (c*q*a + r) % q -> r % q            (exact, floor semantics)
  //   x / q -> constant, x % q -> x - constant where the range of x lies within one period
  //   q*(x/q) + x%q -> x, and the same scaled;   ((x / a) / b) -> x / (a*b);   (x % (a*b)) / a, (x % (a*b)) % a
  //   comparisons and min/max decided by range;  and/or/select with constant conditions
  // Float expressions are kept but for their integer parts (indices and conditions of loads and selects).
  Expr Simplify(const Expr& e) const;
  bool CanProve(const Expr& cond) const;  // cond is true for every value in range
  // Bounds of an integer expression; nullopt when it depends on a load or an unbound variable.
  std::optional<Interval> Bounds(const Expr& e) const;

 private:
  friend class Canonicalizer;
  struct Assumption {  // terms <= max
    Sum terms;
    int64_t max;
  };
  std::vector<std::pair<Var, Interval>> ranges_;
  std::vector<Assumption> assumptions_;
};

// All expressions of the statement simplified with the ranges of its loops (and the conditions of its Ifs), decided
// Ifs and empty or single-trip loops removed (single-trip group and thread loops stay).
Stmt Simplify(const Stmt& s);

// e as sum(coefficient_i * var_i) + rest over `vars`, where rest does not use them; nullopt if e is not linear in them.
struct Linear {
  std::vector<int64_t> coefficients;
  Expr rest;
};
std::optional<Linear> AsLinear(const Expr& e, const std::vector<Var>& vars);

// e < bound as v < the result, where `e` grows with `v` and `bound` does not use it. Empty: it can not be said so.
Expr BoundOf(const Var& v, const Expr& e, const Expr& bound);

// The buffer's row-major flat element index.
Expr FlatIndex(const Buffer& buffer, const std::vector<Expr>& indices);

}  // namespace temper::ir
