// The simplifier's rules. One Canonicalizer serves one call: it keeps a memo of shared nodes.
#pragma once

#include <unordered_map>

#include "compiler/ir/simplify.h"

namespace temper::ir {

class Canonicalizer {
 public:
  explicit Canonicalizer(const Simplifier& facts) : facts_(facts) {}

  Expr Any(const Expr& e);
  Sum Linear(const Expr& e);  // of an i64 expression; recombined
  Expr ToExpr(const Sum& sum) const;
  std::optional<Interval> BoundsOf(const Sum& sum) const;
  // `cond` as sum < 0, if it is an order of i64 expressions.
  std::optional<Sum> AsNegative(const Expr& cond);

 private:
  struct Quotient {
    Sum quotient, remainder;
  };

  void Accumulate(const Expr& e, int64_t factor, Sum& into);
  void AccumulateNode(const Expr& e, int64_t factor, Sum& into);
  Sum LinearAtom(const Expr& e);
  Sum MinMax(const Expr& e);
  Expr Select(const Expr& e);
  Expr Condition(const Expr& e);
  Expr Order(Sum sum);  // sum < 0
  // Of sum < 0, what says the same without a division.
  Sum WithoutDivision(Sum sum);
  Expr Equality(const Expr& e);
  Expr Junction(const Expr& e);  // and, or
  Expr Negation(const Expr& e);
  Expr SidesOf(ExprKind kind, Sum sum) const;  // sum `kind` 0 with positive terms left, negative ones right

  // Floor division of a sum by a positive constant; quotient * divisor + remainder is the sum.
  Quotient Divide(const Sum& sum, int64_t divisor);
  bool DivideByRange(const Sum& rest, int64_t divisor, Quotient& out) const;
  bool DivideByGcd(const Sum& rest, int64_t divisor, Quotient& out);
  bool DivideByPeriod(const Sum& rest, int64_t divisor, Quotient& out);
  Quotient DivideAtoms(const Sum& rest, int64_t divisor);
  std::optional<Sum> FlattenNestedDiv(const Sum& rest, int64_t divisor);

  // Puts quotients and remainders of the same division together again.
  void Recombine(Sum& sum);
  bool RecombineDiv(Sum& sum, const Term& div);
  bool RecombineMod(Sum& sum, const Term& mod);

  std::optional<Interval> BoundsOfAtom(const Expr& atom) const;
  std::optional<Interval> ComputeBoundsOfAtom(const Expr& atom) const;
  std::optional<Interval> BoundsByTerms(const Sum& sum) const;
  int Compare(const Expr& a, const Expr& b) const;
  size_t RankOf(const Var& v) const;

  const Simplifier& facts_;
  // Results for nodes that several parents share. The node is kept too: its address must not be used again meanwhile.
  struct Simplified {
    Expr node, result;
  };
  struct Linearized {
    Expr node;
    Sum result;
  };
  struct Bounded {
    Expr node;
    std::optional<Interval> result;
  };
  std::unordered_map<const ExprNode*, Simplified> memo_;
  std::unordered_map<const ExprNode*, Linearized> linear_memo_;
  mutable std::unordered_map<const ExprNode*, Bounded> bounds_memo_;
};

}  // namespace temper::ir
