#include "compiler/ir/canonical.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace temper::ir {
namespace {

constexpr int64_t kHuge = int64_t{1} << 61;  // past it, intervals are given up rather than overflow
constexpr int64_t kLargestDivisor = int64_t{1} << 40;

std::optional<Interval> Checked(__int128 low, __int128 high) {
  if (low < -kHuge || high > kHuge) return std::nullopt;
  return Interval{static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

int64_t Gcd(const Sum& sum, int64_t start) {
  for (const Term& term : sum.terms) start = std::gcd(start, term.coefficient);
  return start;
}

// The constant a div or mod atom divides by.
int64_t DivisorOf(const Expr& atom) { return atom->args[1]->int_value; }
bool IsBy(const Expr& atom, ExprKind kind) {
  return atom->kind == kind && atom->dtype == DType::kI64 && AsInt(atom->args[1]).value_or(0) > 0;
}

// `sum` taken apart by d: part whose coefficients d divides (divided by it), and the others with the constant.
struct Parts {
  Sum multiple, other;
};
Parts SplitBy(const Sum& sum, int64_t d) {
  Parts parts;
  for (const Term& term : sum.terms) {
    if (term.coefficient % d == 0) {
      parts.multiple.terms.push_back({term.coefficient / d, term.atom});
    } else {
      parts.other.terms.push_back(term);
    }
  }
  parts.other.constant = sum.constant;
  return parts;
}

// Divisors worth splitting by, largest first: gcd(coefficient, modulus), or the coefficients themselves for modulus 0.
std::vector<int64_t> SplitCandidates(const Sum& sum, int64_t modulus) {
  std::vector<int64_t> candidates;
  for (const Term& term : sum.terms) {
    int64_t d = std::gcd(term.coefficient, modulus);
    if (d > 1) candidates.push_back(d);
  }
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  return candidates;
}

void FlattenJunction(const Expr& e, ExprKind kind, std::vector<Expr>& out) {
  if (e->kind != kind) return out.push_back(e);
  for (const Expr& arg : e->args) FlattenJunction(arg, kind, out);
}

}  // namespace

// --- expressions ---

Expr Canonicalizer::Any(const Expr& e) {
  bool memoize = e.shared() && !e->args.empty();
  if (memoize) {
    if (auto it = memo_.find(e.get()); it != memo_.end()) return it->second.result;
  }
  Expr result = e;
  if (e->dtype == DType::kI64) {
    result = ToExpr(Linear(e));
  } else if (e->dtype == DType::kBool && e->kind != ExprKind::kLoad && e->kind != ExprKind::kCast) {
    result = Condition(e);
  } else if (e->kind == ExprKind::kSelect) {
    result = Select(e);
  } else if (!e->args.empty()) {
    std::vector<Expr> args;
    args.reserve(e->args.size());
    bool changed = false;
    for (const Expr& arg : e->args) {
      args.push_back(Any(arg));
      changed |= args.back().get() != arg.get();
    }
    if (changed) result = WithArgs(e, std::move(args));
  }
  if (memoize) {
    if (StructurallyEqual(result, e)) result = e;  // keeps sharing, and tells callers that nothing changed
    memo_.emplace(e.get(), Simplified{e, result});
  }
  return result;
}

Expr Canonicalizer::Select(const Expr& e) {
  Expr cond = Any(e->args[0]);
  if (auto decided = AsInt(cond)) return Any(e->args[*decided ? 1 : 2]);
  Expr a = Any(e->args[1]), b = Any(e->args[2]);
  return StructurallyEqual(a, b) ? a : ir::Select(cond, a, b);
}

Sum Canonicalizer::Linear(const Expr& e) {
  Sum sum;
  Accumulate(e, 1, sum);
  Recombine(sum);
  return sum;
}

void Canonicalizer::Accumulate(const Expr& e, int64_t factor, Sum& into) {
  if (e->args.empty() || !e.shared()) return AccumulateNode(e, factor, into);
  auto known = linear_memo_.find(e.get());
  if (known == linear_memo_.end()) {
    Sum sum;
    AccumulateNode(e, 1, sum);
    known = linear_memo_.emplace(e.get(), Linearized{e, std::move(sum)}).first;
  }
  into.AddScaled(known->second.result, factor);
}

void Canonicalizer::AccumulateNode(const Expr& e, int64_t factor, Sum& into) {
  switch (e->kind) {
    case ExprKind::kInt:
      return Flatten(e, factor, into);
    case ExprKind::kAdd:
    case ExprKind::kSub:
      Accumulate(e->args[0], factor, into);
      return Accumulate(e->args[1], e->kind == ExprKind::kAdd ? factor : -factor, into);
    case ExprKind::kMul:
      for (int side : {1, 0}) {
        Sum constant = Linear(e->args[side]);
        if (!constant.is_constant()) continue;
        Sum other = Linear(e->args[1 - side]);
        return into.AddScaled(other, factor * constant.constant);
      }
      break;
    default:
      break;
  }
  into.AddScaled(LinearAtom(e), factor);
}

// Anything but sums and products with constants.
Sum Canonicalizer::LinearAtom(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kVar: {
      Sum sum;
      sum.terms.push_back({1, e});
      auto bounds = BoundsOfAtom(e);
      if (bounds && bounds->min == bounds->max) sum = Sum{{}, bounds->min};
      return sum;
    }
    case ExprKind::kMul: {
      Expr a = ToExpr(Linear(e->args[0])), b = ToExpr(Linear(e->args[1]));
      return Flatten(Compare(a, b) <= 0 ? a * b : b * a);
    }
    case ExprKind::kDiv:
    case ExprKind::kMod: {
      Sum a = Linear(e->args[0]), b = Linear(e->args[1]);
      if (!b.is_constant() || b.constant <= 0) return Flatten(Binary(e->kind, ToExpr(a), ToExpr(b)));
      Quotient q = Divide(a, b.constant);
      return e->kind == ExprKind::kDiv ? q.quotient : q.remainder;
    }
    case ExprKind::kMin:
    case ExprKind::kMax:
      return MinMax(e);
    case ExprKind::kSelect:
      return Flatten(Select(e));
    default: {
      std::vector<Expr> args;
      for (const Expr& arg : e->args) args.push_back(Any(arg));
      return Flatten(WithArgs(e, std::move(args)));
    }
  }
}

Sum Canonicalizer::MinMax(const Expr& e) {
  Sum a = Linear(e->args[0]), b = Linear(e->args[1]);
  Sum difference = a;
  difference.AddScaled(b, -1);
  Recombine(difference);
  if (auto bounds = BoundsOf(difference)) {
    bool is_min = e->kind == ExprKind::kMin;
    if (bounds->max <= 0) return is_min ? a : b;
    if (bounds->min >= 0) return is_min ? b : a;
  }
  Expr x = ToExpr(a), y = ToExpr(b);
  if (a.is_constant() || (!b.is_constant() && Compare(y, x) < 0)) std::swap(x, y);
  return Flatten(Binary(e->kind, x, y));
}

Expr Canonicalizer::ToExpr(const Sum& sum) const {
  std::vector<Term> terms = sum.terms;
  // Large strides first reads like the loops; after them subtractions, then the constant.
  std::sort(terms.begin(), terms.end(), [this](const Term& a, const Term& b) {
    if ((a.coefficient > 0) != (b.coefficient > 0)) return a.coefficient > 0;
    int64_t p = std::abs(a.coefficient), q = std::abs(b.coefficient);
    return p != q ? p > q : Compare(a.atom, b.atom) < 0;
  });
  int64_t constant = sum.constant;
  Expr result;
  for (const Term& term : terms) {
    if (!result && term.coefficient < 0 && constant > 0) {
      result = Int(constant);  // 15 - i rather than i*-1 + 15
      constant = 0;
    }
    if (!result) {
      result = term.atom * Int(term.coefficient);
    } else if (term.coefficient > 0) {
      result = result + term.atom * Int(term.coefficient);
    } else {
      result = result - term.atom * Int(-term.coefficient);
    }
  }
  return result ? result + Int(constant) : Int(constant);
}

// --- conditions ---

Expr Canonicalizer::Condition(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kLt:
    case ExprKind::kLe:
      if (auto sum = AsNegative(e)) return Order(*std::move(sum));
      break;
    case ExprKind::kEq:
      return Equality(e);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return Junction(e);
    case ExprKind::kNot:
      return Negation(e);
    case ExprKind::kSelect:
      return Select(e);
    default:
      break;
  }
  std::vector<Expr> args;
  for (const Expr& arg : e->args) args.push_back(Any(arg));
  return args.empty() ? e : WithArgs(e, std::move(args));
}

std::optional<Sum> Canonicalizer::AsNegative(const Expr& cond) {
  if ((cond->kind != ExprKind::kLt && cond->kind != ExprKind::kLe) || cond->args[0]->dtype != DType::kI64)
    return std::nullopt;
  Sum sum;
  Accumulate(cond->args[0], 1, sum);
  Accumulate(cond->args[1], -1, sum);
  if (cond->kind == ExprKind::kLe) {
    if (sum.constant == std::numeric_limits<int64_t>::min()) return std::nullopt;
    sum.constant -= 1;
  }
  Recombine(sum);
  return WithoutDivision(std::move(sum));
}

// z/q < c is z < c*q, and c < z/q is c*q + q - 1 < z: loops are cut where such conditions change.
Sum Canonicalizer::WithoutDivision(Sum sum) {
  while (sum.terms.size() == 1 && std::abs(sum.terms[0].coefficient) == 1 && IsBy(sum.terms[0].atom, ExprKind::kDiv)) {
    const Term div = sum.terms[0];
    const int64_t q = DivisorOf(div.atom);
    const __int128 constant = static_cast<__int128>(sum.constant) * q + (div.coefficient < 0 ? q - 1 : 0);
    if (!Checked(constant, constant)) break;
    sum = Sum{{}, static_cast<int64_t>(constant)};
    sum.AddScaled(Linear(div.atom->args[0]), div.coefficient);
  }
  return sum;
}

Expr Canonicalizer::Order(Sum sum) {
  if (auto bounds = BoundsOf(sum)) {
    if (bounds->max < 0) return Bool(true);
    if (bounds->min >= 0) return Bool(false);
  }
  // d*A + B < limit is A <= v where floor((limit - 1 - B) / d) is v for every B in range.
  for (bool changed = true; changed;) {
    changed = false;
    for (int64_t d : SplitCandidates(sum, 0)) {
      Parts parts = SplitBy(sum, d);
      auto other = BoundsOf(parts.other);
      if (!other) continue;
      int64_t v = FloorDiv(-1 - other->min, d);
      if (v != FloorDiv(-1 - other->max, d)) continue;
      sum = std::move(parts.multiple);
      sum.constant = -v - 1;
      sum = WithoutDivision(std::move(sum));
      changed = true;
      break;
    }
  }
  return SidesOf(ExprKind::kLt, std::move(sum));
}

Expr Canonicalizer::Equality(const Expr& e) {
  if (e->args[0]->dtype != DType::kI64) {
    Expr a = Any(e->args[0]), b = Any(e->args[1]);
    if (!IsFloat(a->dtype) && StructurallyEqual(a, b)) return Bool(true);
    return Eq(a, b);
  }
  Sum sum;
  Accumulate(e->args[0], 1, sum);
  Accumulate(e->args[1], -1, sum);
  Recombine(sum);
  if (sum.is_constant()) return Bool(sum.constant == 0);
  auto bounds = BoundsOf(sum);
  if (bounds && (bounds->min > 0 || bounds->max < 0)) return Bool(false);
  int64_t g = Gcd(sum, 0);
  if (FloorMod(sum.constant, g) != 0) return Bool(false);
  for (Term& term : sum.terms) term.coefficient /= g;
  sum.constant = FloorDiv(sum.constant, g);
  // Of S == 0 and -S == 0 the one whose leading term is positive.
  const Term& leading = *std::min_element(sum.terms.begin(), sum.terms.end(), [this](const Term& a, const Term& b) {
    int64_t p = std::abs(a.coefficient), q = std::abs(b.coefficient);
    return p != q ? p > q : Compare(a.atom, b.atom) < 0;
  });
  if (leading.coefficient < 0) {
    Sum negated;
    negated.AddScaled(sum, -1);
    sum = std::move(negated);
  }
  return SidesOf(ExprKind::kEq, std::move(sum));
}

Expr Canonicalizer::SidesOf(ExprKind kind, Sum sum) const {
  Sum left, right;
  for (const Term& term : sum.terms) {
    if (term.coefficient > 0) {
      left.terms.push_back(term);
    } else {
      right.terms.push_back({-term.coefficient, term.atom});
    }
  }
  if (left.is_constant()) {
    left.constant = sum.constant;
  } else {
    right.constant = -sum.constant;
  }
  return Binary(kind, ToExpr(left), ToExpr(right));
}

Expr Canonicalizer::Junction(const Expr& e) {
  std::vector<Expr> parts;
  FlattenJunction(Any(e->args[0]), e->kind, parts);
  bool absorbing = e->kind == ExprKind::kOr;  // true decides an or, false an and
  auto decides = [&](const Expr& part) { return part->kind == ExprKind::kInt && (part->int_value != 0) == absorbing; };
  if (decides(parts[0])) return parts[0];
  FlattenJunction(Any(e->args[1]), e->kind, parts);
  std::vector<Expr> kept;
  for (const Expr& part : parts) {
    if (decides(part)) return part;
    bool seen = part->kind == ExprKind::kInt ||
                std::any_of(kept.begin(), kept.end(), [&](const Expr& k) { return StructurallyEqual(k, part); });
    if (!seen) kept.push_back(part);
  }
  if (kept.empty()) return Bool(!absorbing);
  Expr result = kept[0];
  for (size_t i = 1; i < kept.size(); ++i) result = Binary(e->kind, result, kept[i]);
  return result;
}

Expr Canonicalizer::Negation(const Expr& e) {
  const Expr& inner = e->args[0];
  if (inner->kind == ExprKind::kNot) return Any(inner->args[0]);
  bool order = inner->kind == ExprKind::kLt || inner->kind == ExprKind::kLe;
  if (order && inner->args[0]->dtype == DType::kI64) {
    ExprKind opposite = inner->kind == ExprKind::kLt ? ExprKind::kLe : ExprKind::kLt;
    return Any(Binary(opposite, inner->args[1], inner->args[0]));
  }
  return Not(Any(inner));
}

// --- division ---

Canonicalizer::Quotient Canonicalizer::Divide(const Sum& sum, int64_t divisor) {
  if (divisor == 1) return {sum, Sum{}};
  // (c*q*a + r) / q is c*a + r/q.
  Sum whole, rest;
  for (const Term& term : sum.terms) {
    if (term.coefficient % divisor == 0) {
      whole.terms.push_back({term.coefficient / divisor, term.atom});
    } else {
      rest.terms.push_back(term);
    }
  }
  whole.constant = FloorDiv(sum.constant, divisor);
  rest.constant = FloorMod(sum.constant, divisor);
  Quotient result{{}, rest};
  if (!rest.is_constant() && !DivideByRange(rest, divisor, result) && !DivideByGcd(rest, divisor, result) &&
      !DivideByPeriod(rest, divisor, result)) {
    result = DivideAtoms(rest, divisor);
  }
  result.quotient.AddScaled(whole, 1);
  return result;
}

bool Canonicalizer::DivideByRange(const Sum& rest, int64_t divisor, Quotient& out) const {
  auto bounds = BoundsOf(rest);
  if (!bounds) return false;
  int64_t period = FloorDiv(bounds->min, divisor);
  if (period != FloorDiv(bounds->max, divisor)) return false;
  out = {Sum{{}, period}, rest};
  out.remainder.constant -= period * divisor;
  return true;
}

// (g*y + c) / (g*q) with 0 <= c < g after its multiples went into y.
bool Canonicalizer::DivideByGcd(const Sum& rest, int64_t divisor, Quotient& out) {
  int64_t g = Gcd(rest, divisor);
  if (g == 1) return false;
  Parts parts = SplitBy(rest, g);
  parts.multiple.constant = FloorDiv(rest.constant, g);
  Quotient inner = Divide(parts.multiple, divisor / g);
  out.quotient = std::move(inner.quotient);
  out.remainder = Sum{{}, FloorMod(rest.constant, g)};
  out.remainder.AddScaled(inner.remainder, g);
  return true;
}

// (d*A + B) / (d*q) is (A + k) / q where B lies within [k*d, (k+1)*d).
bool Canonicalizer::DivideByPeriod(const Sum& rest, int64_t divisor, Quotient& out) {
  for (int64_t d : SplitCandidates(rest, divisor)) {
    Parts parts = SplitBy(rest, d);
    auto bounds = BoundsOf(parts.other);
    if (!bounds) continue;
    int64_t k = FloorDiv(bounds->min, d);
    if (k != FloorDiv(bounds->max, d)) continue;
    parts.multiple.constant = k;
    Quotient inner = Divide(parts.multiple, divisor / d);
    out.quotient = std::move(inner.quotient);
    out.remainder = std::move(parts.other);
    out.remainder.constant -= k * d;
    out.remainder.AddScaled(inner.remainder, d);
    return true;
  }
  return false;
}

// (y + z/a) / b is (a*y + z) / (a*b).
std::optional<Sum> Canonicalizer::FlattenNestedDiv(const Sum& rest, int64_t divisor) {
  for (const Term& term : rest.terms) {
    if (term.coefficient != 1 || !IsBy(term.atom, ExprKind::kDiv)) continue;
    int64_t a = DivisorOf(term.atom);
    if (a > kLargestDivisor / divisor) continue;
    Sum others = rest;
    others.Add(-1, term.atom);
    Sum flat = Flatten(term.atom->args[0]);
    flat.AddScaled(others, a);
    return Divide(flat, a * divisor).quotient;
  }
  return std::nullopt;
}

// No range helps: what remains are atoms, in a form that does not depend on how the division was written.
Canonicalizer::Quotient Canonicalizer::DivideAtoms(const Sum& rest, int64_t divisor) {
  Quotient result;
  if (auto flattened = FlattenNestedDiv(rest, divisor)) {
    result.quotient = *std::move(flattened);
    if (result.quotient.is_constant()) {
      result.remainder = rest;
      result.remainder.constant -= result.quotient.constant * divisor;
      return result;
    }
  }
  // Modulo q, c*(z%m) is c*z where q divides c*m.
  for (const Term& term : rest.terms) {
    if (!IsBy(term.atom, ExprKind::kMod)) continue;
    int64_t m = DivisorOf(term.atom);
    if (FloorMod(FloorMod(term.coefficient, divisor) * FloorMod(m, divisor), divisor) != 0) continue;
    Sum inner = Flatten(term.atom->args[0]);
    Sum without = rest;
    without.Add(-term.coefficient, term.atom);
    without.AddScaled(inner, term.coefficient);
    result.remainder = Divide(without, divisor).remainder;
    if (rest.single_atom() != nullptr) {  // (z % (a*q)) / q is (z/q) % a
      result.quotient = Divide(Divide(inner, divisor).quotient, m / divisor).remainder;
      return result;
    }
    if (result.quotient.terms.empty()) result.quotient.Add(1, Binary(ExprKind::kDiv, ToExpr(rest), Int(divisor)));
    return result;
  }
  Expr dividend = ToExpr(rest);
  if (result.quotient.terms.empty()) result.quotient.Add(1, Binary(ExprKind::kDiv, dividend, Int(divisor)));
  result.remainder.Add(1, Binary(ExprKind::kMod, dividend, Int(divisor)));
  return result;
}

// --- recombination ---

void Canonicalizer::Recombine(Sum& sum) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < sum.terms.size() && !changed; ++i) {
      Term term = sum.terms[i];
      if (IsBy(term.atom, ExprKind::kDiv)) changed = RecombineDiv(sum, term);
      if (IsBy(term.atom, ExprKind::kMod)) changed = RecombineMod(sum, term);
    }
  }
}

bool Canonicalizer::RecombineDiv(Sum& sum, const Term& div) {
  if (sum.terms.size() < 2) return false;
  int64_t q = DivisorOf(div.atom);
  // c*q*(z/q) + c*(z%q) is c*z; and -c*q*(z/q) + c*z is c*(z%q).
  if (div.coefficient % q == 0) {
    int64_t c = div.coefficient / q;
    Sum z = Flatten(div.atom->args[0]);
    Sum remainder = Divide(z, q).remainder;
    for (bool gather : {true, false}) {
      const Sum& found = gather ? remainder : z;
      const Sum& replacement = gather ? z : remainder;
      int64_t factor = gather ? c : -c;
      if (found.is_constant() || !sum.ContainsScaled(found, factor)) continue;
      sum.Add(-div.coefficient, div.atom);
      sum.AddScaled(found, -factor);
      sum.AddScaled(replacement, factor);
      return true;
    }
  }
  // c*A - c*b*(A/b) is c*(A%b), where A is itself a quotient y/a and A/b was flattened to y/(a*b).
  for (const Term& other : sum.terms) {
    if (!IsBy(other.atom, ExprKind::kDiv)) continue;
    int64_t a = DivisorOf(other.atom);
    if (q % a != 0 || q == a || div.coefficient != -other.coefficient * (q / a)) continue;
    Sum single;
    single.Add(1, other.atom);
    Quotient divided = Divide(single, q / a);
    const Expr* atom = divided.quotient.single_atom();
    if (atom == nullptr || !StructurallyEqual(*atom, div.atom)) continue;
    Term taken = other;
    sum.Add(-div.coefficient, div.atom);
    sum.Add(-taken.coefficient, taken.atom);
    sum.AddScaled(divided.remainder, taken.coefficient);
    return true;
  }
  return false;
}

bool Canonicalizer::RecombineMod(Sum& sum, const Term& mod) {
  if (sum.terms.size() < 2) return false;
  int64_t b = DivisorOf(mod.atom);
  int64_t scaled = mod.coefficient * b;
  // Without a term of this coefficient there is no partner.
  if (std::none_of(sum.terms.begin(), sum.terms.end(), [&](const Term& t) { return t.coefficient % scaled == 0; }))
    return false;
  Sum y = Flatten(mod.atom->args[0]);
  Sum quotient = Divide(y, b).quotient;
  if (!quotient.is_constant() && sum.ContainsScaled(quotient, scaled)) {
    sum.Add(-mod.coefficient, mod.atom);
    sum.AddScaled(quotient, -scaled);
    sum.AddScaled(y, mod.coefficient);
    return true;
  }
  // y%b + b*(z%c), where z is y/b + w, is (y + b*w) % (b*c).
  for (const Term& other : sum.terms) {
    if (other.coefficient != scaled || !IsBy(other.atom, ExprKind::kMod)) continue;
    int64_t c = DivisorOf(other.atom);
    Sum z = Flatten(other.atom->args[0]);
    if (c > kLargestDivisor / b || quotient.is_constant() || !z.ContainsScaled(quotient, 1)) continue;
    Term taken = other;
    z.AddScaled(quotient, -1);
    y.AddScaled(z, b);
    sum.Add(-mod.coefficient, mod.atom);
    sum.Add(-taken.coefficient, taken.atom);
    sum.AddScaled(Divide(y, b * c).remainder, mod.coefficient);
    return true;
  }
  return false;
}

// --- ranges ---

std::optional<Interval> Canonicalizer::BoundsOf(const Sum& sum) const {
  auto bounds = BoundsByTerms(sum);
  if (!bounds || sum.is_constant()) return bounds;
  for (const Simplifier::Assumption& assumption : facts_.assumptions_) {
    const Term& first = assumption.terms.terms[0];
    int64_t coefficient = sum.CoefficientOf(first.atom);
    if (coefficient == 0 || coefficient % first.coefficient != 0) continue;
    int64_t k = coefficient / first.coefficient;
    if (!sum.ContainsScaled(assumption.terms, k)) continue;
    Sum others = sum;
    others.AddScaled(assumption.terms, -k);
    auto rest = BoundsByTerms(others);
    if (!rest) continue;
    if (k > 0) {
      bounds->max = std::min(bounds->max, k * assumption.max + rest->max);
    } else {
      bounds->min = std::max(bounds->min, k * assumption.max + rest->min);
    }
  }
  return bounds;
}

std::optional<Interval> Canonicalizer::BoundsByTerms(const Sum& sum) const {
  __int128 low = sum.constant, high = sum.constant;
  for (const Term& term : sum.terms) {
    auto atom = BoundsOfAtom(term.atom);
    if (!atom) return std::nullopt;
    __int128 at_min = static_cast<__int128>(term.coefficient) * atom->min;
    __int128 at_max = static_cast<__int128>(term.coefficient) * atom->max;
    low += std::min(at_min, at_max);
    high += std::max(at_min, at_max);
    if (low < -kHuge || high > kHuge) return std::nullopt;
  }
  return Checked(low, high);
}

std::optional<Interval> Canonicalizer::BoundsOfAtom(const Expr& atom) const {
  if (atom->args.empty() || !atom.shared()) return ComputeBoundsOfAtom(atom);
  if (const auto known = bounds_memo_.find(atom.get()); known != bounds_memo_.end()) return known->second.result;
  const std::optional<Interval> bounds = ComputeBoundsOfAtom(atom);
  bounds_memo_.emplace(atom.get(), Bounded{atom, bounds});
  return bounds;
}

std::optional<Interval> Canonicalizer::ComputeBoundsOfAtom(const Expr& atom) const {
  auto bounds_of_arg = [&](int i) { return BoundsOf(Flatten(atom->args[i])); };
  switch (atom->kind) {
    case ExprKind::kVar:
      for (auto it = facts_.ranges_.rbegin(); it != facts_.ranges_.rend(); ++it) {
        if (it->first == atom->var) return it->second;
      }
      return std::nullopt;
    case ExprKind::kDiv:
    case ExprKind::kMod: {
      if (AsInt(atom->args[1]).value_or(0) <= 0) return std::nullopt;
      int64_t q = DivisorOf(atom);
      auto a = bounds_of_arg(0);
      if (!a) return std::nullopt;
      if (atom->kind == ExprKind::kDiv) return Interval{FloorDiv(a->min, q), FloorDiv(a->max, q)};
      if (FloorDiv(a->min, q) == FloorDiv(a->max, q)) return Interval{FloorMod(a->min, q), FloorMod(a->max, q)};
      return Interval{0, q - 1};
    }
    case ExprKind::kMin:
    case ExprKind::kMax:
    case ExprKind::kMul: {
      auto a = bounds_of_arg(0), b = bounds_of_arg(1);
      if (!a || !b) return std::nullopt;
      if (atom->kind == ExprKind::kMin) return Interval{std::min(a->min, b->min), std::min(a->max, b->max)};
      if (atom->kind == ExprKind::kMax) return Interval{std::max(a->min, b->min), std::max(a->max, b->max)};
      auto corners = {static_cast<__int128>(a->min) * b->min, static_cast<__int128>(a->min) * b->max,
                      static_cast<__int128>(a->max) * b->min, static_cast<__int128>(a->max) * b->max};
      return Checked(std::min(corners), std::max(corners));
    }
    case ExprKind::kSelect: {
      auto a = bounds_of_arg(1), b = bounds_of_arg(2);
      if (!a || !b) return std::nullopt;
      return Interval{std::min(a->min, b->min), std::max(a->max, b->max)};
    }
    case ExprKind::kAbs: {
      auto a = bounds_of_arg(0);
      if (!a) return std::nullopt;
      int64_t low = a->min > 0 ? a->min : a->max < 0 ? -a->max : 0;
      return Interval{low, std::max(-a->min, a->max)};
    }
    case ExprKind::kCast:
      if (atom->args[0]->dtype == DType::kBool && atom->args[0]->kind != ExprKind::kLoad) return Interval{0, 1};
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// --- order of atoms ---

// Variables in the order of their binding, so that forms do not depend on addresses; unbound ones come last.
size_t Canonicalizer::RankOf(const Var& v) const {
  for (size_t i = facts_.ranges_.size(); i-- > 0;) {
    if (facts_.ranges_[i].first == v) return i;
  }
  return facts_.ranges_.size();
}

int Canonicalizer::Compare(const Expr& a, const Expr& b) const {
  auto three_way = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.get() == b.get()) return 0;
  if (a->kind != b->kind) return three_way(a->kind, b->kind);
  if (a->dtype != b->dtype) return three_way(a->dtype, b->dtype);
  int order = 0;
  switch (a->kind) {
    case ExprKind::kInt:
      return three_way(a->int_value, b->int_value);
    case ExprKind::kFloat:
      return three_way(a->float_value, b->float_value);
    case ExprKind::kVar:
      if ((order = three_way(RankOf(a->var), RankOf(b->var))) != 0) return order;
      if ((order = three_way(a->var->name, b->var->name)) != 0) return order;
      return three_way(a->var.get(), b->var.get());
    case ExprKind::kLoad:
      if ((order = three_way(a->buffer->name, b->buffer->name)) != 0) return order;
      if ((order = three_way(a->buffer.get(), b->buffer.get())) != 0) return order;
      break;
    case ExprKind::kCast:
      if ((order = three_way(a->cast_mode.saturate, b->cast_mode.saturate)) != 0) return order;
      if ((order = three_way(a->cast_mode.flush, b->cast_mode.flush)) != 0) return order;
      if ((order = three_way(a->cast_mode.rounding, b->cast_mode.rounding)) != 0) return order;
      break;
    default:
      break;
  }
  if ((order = three_way(a->args.size(), b->args.size())) != 0) return order;
  for (size_t i = 0; i < a->args.size(); ++i) {
    const Expr &x = a->args[i], &y = b->args[i];
    if (x.shared() && y.shared() && StructurallyEqual(x, y)) continue;
    if ((order = Compare(x, y)) != 0) return order;
  }
  return 0;
}

}  // namespace temper::ir
