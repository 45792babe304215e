// Linear combinations of integer expressions: what the simplifier computes with.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/expr.h"

namespace temper::ir {

int64_t FloorDiv(int64_t a, int64_t b);  // b != 0
int64_t FloorMod(int64_t a, int64_t b);

// sum of coefficient * atom, plus a constant. Atoms are i64 expressions other than constants, sums and products with a
// constant; they are pairwise different and no coefficient is zero. Arithmetic wraps, as the generated code's does.
struct Term {
  int64_t coefficient;
  Expr atom;
};
struct Sum {
  std::vector<Term> terms;
  int64_t constant = 0;

  bool is_constant() const { return terms.empty(); }
  // The only term, if the sum is exactly one atom with coefficient 1.
  const Expr* single_atom() const;
  int64_t CoefficientOf(const Expr& atom) const;
  void Add(int64_t coefficient, const Expr& atom);
  void AddScaled(const Sum& other, int64_t factor);
  // Every term of `part`, times `factor`, is here with just that coefficient (constants are not looked at).
  bool ContainsScaled(const Sum& part, int64_t factor) const;
};

// Adds factor * e, taking sums and products with constants apart; everything else is an atom.
void Flatten(const Expr& e, int64_t factor, Sum& into);
Sum Flatten(const Expr& e);
bool SameTerms(const Sum& a, const Sum& b);

}  // namespace temper::ir
