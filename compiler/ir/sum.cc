#include "compiler/ir/sum.h"

#include <algorithm>
#include <unordered_map>

namespace temper::ir {
namespace {

int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrappingMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

class Flattener {
 public:
  void Node(const Expr& e, int64_t factor, Sum& into);

 private:
  // A node that several parents share is flattened once.
  void Below(const Expr& e, int64_t factor, Sum& into) {
    if (!e.shared() || e->args.empty()) return Node(e, factor, into);
    auto known = known_.find(e.get());
    if (known == known_.end()) {
      Sum sum;
      Node(e, 1, sum);
      known = known_.emplace(e.get(), std::move(sum)).first;
    }
    into.AddScaled(known->second, factor);
  }

  std::unordered_map<const ExprNode*, Sum> known_;
};

void Flattener::Node(const Expr& e, int64_t factor, Sum& into) {
  switch (e->kind) {
    case ExprKind::kInt:
      into.constant = WrappingAdd(into.constant, WrappingMul(factor, e->int_value));
      return;
    case ExprKind::kAdd:
    case ExprKind::kSub:
      Below(e->args[0], factor, into);
      return Below(e->args[1], e->kind == ExprKind::kAdd ? factor : -factor, into);
    case ExprKind::kMul:
      if (auto b = AsInt(e->args[1])) return Below(e->args[0], WrappingMul(factor, *b), into);
      if (auto a = AsInt(e->args[0])) return Below(e->args[1], WrappingMul(factor, *a), into);
      break;
    default:
      break;
  }
  into.Add(factor, e);
}

}  // namespace

int64_t FloorMod(int64_t a, int64_t b) {
  if (b == -1) return 0;  // the one divisor whose remainder may trap
  int64_t m = a % b;
  return m != 0 && ((m < 0) != (b < 0)) ? m + b : m;
}

int64_t FloorDiv(int64_t a, int64_t b) {
  if (b == -1) return WrappingMul(a, -1);
  int64_t quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

const Expr* Sum::single_atom() const {
  return terms.size() == 1 && terms[0].coefficient == 1 && constant == 0 ? &terms[0].atom : nullptr;
}

int64_t Sum::CoefficientOf(const Expr& atom) const {
  for (const Term& term : terms) {
    if (StructurallyEqual(term.atom, atom)) return term.coefficient;
  }
  return 0;
}

void Sum::Add(int64_t coefficient, const Expr& atom) {
  if (coefficient == 0) return;
  for (auto it = terms.begin(); it != terms.end(); ++it) {
    if (!StructurallyEqual(it->atom, atom)) continue;
    it->coefficient = WrappingAdd(it->coefficient, coefficient);
    if (it->coefficient == 0) terms.erase(it);
    return;
  }
  terms.push_back({coefficient, atom});
}

void Sum::AddScaled(const Sum& other, int64_t factor) {
  for (const Term& term : other.terms) Add(WrappingMul(term.coefficient, factor), term.atom);
  constant = WrappingAdd(constant, WrappingMul(other.constant, factor));
}

bool Sum::ContainsScaled(const Sum& part, int64_t factor) const {
  return std::all_of(part.terms.begin(), part.terms.end(), [&](const Term& term) {
    return CoefficientOf(term.atom) == WrappingMul(term.coefficient, factor);
  });
}

void Flatten(const Expr& e, int64_t factor, Sum& into) {
  Flattener flattener;
  flattener.Node(e, factor, into);
}

Sum Flatten(const Expr& e) {
  Sum sum;
  Flatten(e, 1, sum);
  return sum;
}

bool SameTerms(const Sum& a, const Sum& b) { return a.terms.size() == b.terms.size() && a.ContainsScaled(b, 1); }

}  // namespace temper::ir
