#include "compiler/schedule/behind.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/ir/walk.h"
#include "compiler/schedule/nest.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Simplifier;
using ir::StmtNode;
using nest::VarSet;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMostPasses = 4;                      // over the blocks: each may know what the one before it has found
constexpr int64_t kLargestStep = int64_t{1} << 30;  // whose products are no more than 64 bits

bool IsSame(const BehindFacts::Place& a, const BehindFacts::Place& b) {
  return a.extent == b.extent && ir::StructurallyEqual(a.at, b.at);
}

// What an index tells of one of its terms, over `at`, which stands for the index.
struct Told {
  Expr value;
  bool exact;  // else it is the least that the term may be
};
std::optional<Told> ToldOf(const ir::Sum& index, const ir::Term& term, const ir::Var& at, const Simplifier& ranges) {
  const std::optional<ir::Interval> own = ranges.Bounds(term.atom);
  const int64_t step = term.coefficient;
  if (step <= 0 || !own || own->max > kFar / step) return std::nullopt;
  // Terms that are whole spans, in each of which the term takes all its values once.
  int64_t span = 0;
  const auto is_span = [&](const ir::Term& t) {
    return own->min >= 0 && t.coefficient >= step * (own->max + 1) && t.coefficient % step == 0;
  };
  for (const ir::Term& t : index.terms) {
    if (&t != &term && is_span(t)) span = std::gcd(span, t.coefficient);
  }
  const bool has_spans = span >= step * (own->max + 1);
  Expr rest(index.constant), less(index.constant);  // less: without what is whole spans
  for (const ir::Term& t : index.terms) {
    if (&t == &term) continue;
    rest = rest + t.atom * Expr(t.coefficient);
    if (!has_spans || !is_span(t)) less = less + t.atom * Expr(t.coefficient);
  }
  const std::optional<ir::Interval> inner = ranges.Bounds(less), all = ranges.Bounds(rest);
  if (inner && inner->min >= 0 && inner->max < step) {
    const Expr whole = Expr(at) / Expr(step);
    return Told{has_spans ? whole % Expr(span / step) : whole, true};
  }
  if (!all || std::abs(all->max) > kFar) return std::nullopt;
  // (at - the rest) / step, rounded up; what is divided is not negative.
  const int64_t more = step - 1 - all->max, wholes = std::max<int64_t>(0, (step - 1 - more) / step);
  return Told{(Expr(at) + Expr(more + wholes * step)) / Expr(step) - Expr(wholes), false};
}

}  // namespace

Expr VariableBy(const ir::Var& var, const std::vector<Expr>& index, const std::vector<ir::Var>& at,
                const Simplifier& ranges, bool exact) {
  const auto divides = [&](const Expr& e, ExprKind kind) {
    const bool of_var = e->kind == kind && e->args[0]->kind == ExprKind::kVar && e->args[0]->var == var;
    return of_var ? ir::AsInt(e->args[1]).value_or(0) : 0;
  };
  for (size_t i = 0; i < index.size(); ++i) {
    const ir::Sum sum = ir::Flatten(index[i]);
    for (const ir::Term& term : sum.terms) {
      const bool is_var = term.atom->kind == ExprKind::kVar && term.atom->var == var;
      const int64_t divisor = is_var ? 1 : divides(term.atom, ExprKind::kDiv);
      if (divisor <= 0) continue;
      const std::optional<Told> told = ToldOf(sum, term, at[i], ranges);
      if (!told || (exact && !told->exact)) continue;
      if (is_var) return told->value;
      const Expr parts = told->value * Expr(divisor);
      for (size_t j = 0; j < index.size(); ++j) {
        if (divides(index[j], ExprKind::kMod) == divisor) return parts + Expr(at[j]);
      }
      if (!exact) return parts;
    }
  }
  return {};
}

namespace {

// A place over iterators as one over the element that they make. Empty: its index does not tell them.
Expr ByElement(const StmtNode& block, const Expr& place, const std::vector<ir::Var>& index, const Simplifier& ranges) {
  VarSet left;
  nest::CollectVars(place, left);
  std::vector<ir::VarBinding> told;
  for (const ir::IterVar& iter : block.block.iters) {
    if (left.erase(iter.var.get()) == 0) continue;
    const Expr by = VariableBy(iter.var, block.indices, index, ranges, true);
    if (!by) return {};
    told.push_back({iter.var, by});
  }
  return left.empty() ? ir::Substitute(place, told) : Expr();
}

}  // namespace

std::vector<ir::Var> IndexOf(size_t rank) {
  std::vector<ir::Var> index;
  for (size_t i = 0; i < rank; ++i) index.push_back(ir::MakeVar(absl::StrCat("d", i)));
  return index;
}

ir::Simplifier RangesOf(const StmtNode& block) {
  Simplifier ranges;
  for (const ir::IterVar& iter : block.block.iters) ranges.Bind(iter.var, iter.extent);
  return ranges;
}

Behind InShape(const Behind& b, const Shape& shape) {
  if (shape == b.shape) return b;
  Behind result = b;
  result.shape = shape;
  result.index = IndexOf(shape.size());
  Simplifier ranges;
  for (size_t i = 0; i < shape.size(); ++i) ranges.Bind(result.index[i], shape[i]);
  const Expr flat = ir::FlatIndex(ir::MakeBuffer("", DType::kI64, shape), {result.index.begin(), result.index.end()});
  std::vector<ir::VarBinding> element;
  int64_t stride = 1;
  for (size_t i = b.shape.size(); i-- > 0; stride *= b.shape[i])
    element.push_back({b.index[i], flat / Expr(stride) % Expr(b.shape[i])});
  result.place = ranges.Simplify(ir::Substitute(b.place, element));
  return result;
}

Expr PlaceAt(const Behind& b, const std::vector<Expr>& index, const Simplifier& ranges) {
  std::vector<ir::VarBinding> element;
  for (size_t i = 0; i < b.index.size(); ++i) element.push_back({b.index[i], index[i]});
  const Expr place = ranges.Simplify(ir::Substitute(b.place, element));
  return ir::HasLoad(place) ? Expr() : place;
}

std::string Text(const Behind& b) {
  std::vector<ir::VarBinding> named;
  const std::vector<ir::Var> names = IndexOf(b.index.size());
  for (size_t i = 0; i < names.size(); ++i) named.push_back({b.index[i], Expr(names[i])});
  return absl::StrFormat("%d:%.17g:%d:%s", b.kind, b.value, b.extent, ir::Text(ir::Substitute(b.place, named)));
}

bool GrowsWith(const Expr& e, const ir::Var& var) {
  if (!ir::UsesVar(e, var)) return true;
  const auto grows = [&](size_t i) { return GrowsWith(e->args[i], var); };
  const auto positive = [&](size_t i) { return ir::AsInt(e->args[i]).value_or(0) > 0; };
  switch (e->kind) {
    case ExprKind::kVar:
      return true;
    case ExprKind::kAdd:
    case ExprKind::kMax:
      return grows(0) && grows(1);
    case ExprKind::kSub:
      return grows(0) && !ir::UsesVar(e->args[1], var);
    case ExprKind::kMul:
      return (positive(1) && grows(0)) || (positive(0) && grows(1));
    case ExprKind::kDiv:
      return positive(1) && grows(0);
    default:
      return false;
  }
}

bool IsAtMost(const Expr& a, const Expr& b, const Simplifier& ranges) {
  if (ranges.CanProve(a <= b)) return true;
  const auto all = [&](const Expr& arg) { return IsAtMost(arg, b, ranges); };
  const auto any = [&](const Expr& arg) { return IsAtMost(a, arg, ranges); };
  if (a->kind == ExprKind::kMax) return std::ranges::all_of(a->args, all);
  return b->kind == ExprKind::kMax && std::ranges::any_of(b->args, any);
}

std::optional<Behind> BehindBoth(const Behind& a, const Behind& b) {
  const Behind other = InShape(b, a.shape);
  Simplifier ranges;
  for (size_t i = 0; i < a.shape.size(); ++i) ranges.Bind(a.index[i], a.shape[i]);
  const Expr place = PlaceAt(other, {a.index.begin(), a.index.end()}, ranges);
  if (a.extent != b.extent || !place) return std::nullopt;
  Behind both = a;
  if (ir::StructurallyEqual(a.place, place) || IsAtMost(a.place, place, ranges)) return both;
  both.place = place;
  return IsAtMost(place, a.place, ranges) ? std::optional(both) : std::nullopt;
}

ExtentBound ExtentItself(int extent, int64_t least, int64_t most) {
  const ir::Var position = ir::MakeVar("p");
  return {extent, least, most, position, Expr(position)};
}

Expr PlaceOf(const ExtentBound& limit, const Expr& position) {
  return ir::Substitute(limit.place, {{limit.position, position}});
}

std::string Text(const ExtentBound& limit) {
  const ir::Var named = ir::MakeVar("p");
  return absl::StrCat(limit.extent, ":", ir::Text(PlaceOf(limit, named)));
}

class BehindFacts::Evaluation {
 public:
  Evaluation(const BehindFacts& facts, const StmtNode& block, const Simplifier& ranges, const Place& behind)
      : facts_(facts), block_(block), ranges_(ranges), behind_(behind) {
    nest::CollectVars(behind.at, vars_);
  }

  Element Of(const Expr& e) {
    if (const auto known = known_.find(e.get()); known != known_.end()) return known->second;
    const Element element = Evaluate(e);
    return known_.emplace(e.get(), element).first->second;
  }

 private:
  Element Evaluate(const Expr& e) {
    if (const std::optional<Place> inside = facts_.AsCondition(e, ranges_); inside && IsSame(*inside, behind_))
      return {Is::kNumber, 0};
    switch (e->kind) {
      case ExprKind::kInt:
        return {Is::kNumber, static_cast<double>(e->int_value)};
      case ExprKind::kFloat:
        return {Is::kNumber, e->float_value};
      case ExprKind::kVar:
        return {vars_.contains(e->var.get()) ? Is::kOwn : Is::kAlike};
      case ExprKind::kLoad:
        return OfLoad(e);
      case ExprKind::kSelect:
        return OfSelect(e);
      default:
        return OfArithmetic(e);
    }
  }

  static Element Joined(const std::vector<Element>& elements) {
    const auto any = [&](Is is) { return std::ranges::any_of(elements, [&](const Element& e) { return e.is == is; }); };
    if (any(Is::kOwn)) return {Is::kOwn};
    return {any(Is::kUnread) ? Is::kUnread : Is::kAlike};
  }

  Element OfLoad(const Expr& load) {
    if (nest::LoadsOwn(block_, load)) return {Is::kAlike};
    const Known* known = facts_.Find(load->buffer);
    if (known == nullptr || facts_.BoundOf(load->buffer)) return {Is::kOwn};
    if (known->operand.number) return {Is::kNumber, *known->operand.number};
    for (const Behind& b : facts_.Of(load->buffer)) {
      if (const Expr place = PlaceAt(b, load->args, ranges_); place && IsSame({b.extent, place}, behind_))
        return {b.kind == Behind::kUnread ? Is::kUnread : Is::kNumber, b.value};
    }
    // Where another element says which it is, it is as unread as that one.
    std::vector<Element> indices;
    for (const Expr& e : load->args) {
      ir::Visit(e, [&](const Expr& node) {
        if (node->kind == ExprKind::kLoad) indices.push_back(Of(node));
      });
    }
    const Element index = Joined(indices);
    if (index.is != Is::kAlike || known->operand.constant) return index;
    const bool moves = std::ranges::any_of(load->args, [&](const Expr& e) { return nest::UsesAny(e, vars_); });
    return {moves ? Is::kOwn : Is::kAlike};
  }

  Element OfSelect(const Expr& e) {
    const Element condition = Of(e->args[0]);
    if (condition.is == Is::kNumber) return Of(e->args[condition.number != 0 ? 1 : 2]);
    const Element yes = Of(e->args[1]), no = Of(e->args[2]);
    const bool same = yes.is == Is::kNumber && no.is == Is::kNumber && yes.number == no.number;
    if (same) return yes;
    return Joined({condition, yes, no});
  }

  Element OfArithmetic(const Expr& e) {
    std::vector<Element> args;
    for (const Expr& arg : e->args) args.push_back(Of(arg));
    const auto is = [&](size_t i, double number) { return args[i].is == Is::kNumber && args[i].number == number; };
    if (e->kind == ExprKind::kAnd && (is(0, 0) || is(1, 0))) return {Is::kNumber, 0};
    const Element joined = Joined(args);
    if (joined.is != Is::kAlike) return joined;
    const bool compares = e->kind == ExprKind::kLt || e->kind == ExprKind::kLe || e->kind == ExprKind::kEq;
    if (compares && nest::UsesAny(e, vars_) && !IsConstant(e)) return {Is::kOwn};  // the place and a number of the run
    switch (e->kind) {
      case ExprKind::kAdd:
        if (is(0, -kInfinity) || is(1, -kInfinity)) return {Is::kNumber, -kInfinity};
        break;
      case ExprKind::kSub:
        if (is(0, -kInfinity)) return args[0];
        break;
      case ExprKind::kMul:
        if (is(0, 0) || is(1, 0)) return {Is::kNumber, 0};
        break;
      case ExprKind::kDiv:
        if (is(0, 0)) return args[0];
        break;
      case ExprKind::kExp:
        if (is(0, -kInfinity)) return {Is::kNumber, 0};
        break;
      case ExprKind::kCast:
        if (is(0, 0) || (is(0, -kInfinity) && IsFloat(e->dtype))) return args[0];
        break;
      default:
        break;
    }
    return joined;
  }

  bool IsConstant(const Expr& e) const {
    return !ir::AnyNode(e, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad) return false;
      const Known* known = facts_.Find(node->buffer);
      return known == nullptr || !known->operand.constant;
    });
  }

  const BehindFacts& facts_;
  const StmtNode& block_;
  const Simplifier& ranges_;
  const Place& behind_;
  VarSet vars_;
  std::unordered_map<const ir::ExprNode*, Element> known_;  // nodes are shared, and the block keeps them
};

BehindFacts::BehindFacts(const ir::Func& scheduled, const std::vector<OperandFacts>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Buffer& buffer = scheduled.params[i];
    Known& known = known_[buffer.get()];
    known.operand = operands[i];
    known.limit = operands[i].limit;
    known.numbers = operands[i].numbers;
    for (const Behind& b : operands[i].behind) known.behind.push_back(InShape(b, buffer->shape));
  }
  const std::vector<ir::Stmt> blocks = nest::BlocksIn(scheduled.body);
  for (const ir::Stmt& block : blocks) ++known_[block->buffer.get()].writers;
  // Copies of blocks may stand behind those that read what they write: what all of them say is known the next time.
  bool more = true;
  for (int pass = 0; more && pass < kMostPasses; ++pass) {
    more = false;
    for (const ir::Stmt& block : blocks) more |= Follow(*block);
  }
}

const BehindFacts::Known* BehindFacts::Find(const ir::Buffer& buffer) const {
  const auto known = known_.find(buffer.get());
  return known == known_.end() ? nullptr : &known->second;
}

std::vector<Behind> BehindFacts::Of(const ir::Buffer& buffer) const {
  const Known* known = Find(buffer);
  return known == nullptr ? std::vector<Behind>() : known->behind;
}

std::optional<ExtentBound> BehindFacts::BoundOf(const ir::Buffer& buffer) const {
  const Known* known = Find(buffer);
  return known == nullptr ? std::nullopt : known->limit;
}

WholeNumbers BehindFacts::NumbersOf(const ir::Buffer& buffer) const {
  const Known* known = Find(buffer);
  return known == nullptr ? WholeNumbers() : known->numbers;
}

std::optional<NumberRange> BehindFacts::SumOf(const ir::Buffer& buffer) const {
  const Known* known = Find(buffer);
  return known == nullptr ? std::nullopt : known->sum;
}

std::optional<int64_t> BehindFacts::NumberOf(const Expr& e) const {
  const auto number = [&](size_t i) { return NumberOf(e->args[i]); };
  switch (e->kind) {
    case ExprKind::kLoad: {
      const Known* known = Find(e->buffer);
      const bool is_known = known != nullptr && known->operand.number && !IsFloat(e->dtype);
      return is_known ? std::optional(static_cast<int64_t>(*known->operand.number)) : std::nullopt;
    }
    case ExprKind::kNot:
      return number(0) ? std::optional<int64_t>(*number(0) == 0) : std::nullopt;
    case ExprKind::kAnd:
      return number(0) == 0 || number(1) == 0 ? std::optional<int64_t>(0) : std::nullopt;
    case ExprKind::kEq:
      return number(0) && number(1) ? std::optional<int64_t>(*number(0) == *number(1)) : std::nullopt;
    case ExprKind::kLt: {
      const std::optional<int64_t> bound = number(1);
      if (bound && number(0)) return *number(0) < *bound ? 1 : 0;
      if (bound && *bound <= 0 && IsNatural(e->args[0])) return 0;
      const std::optional<ExtentBound> limit = bound ? BoundAs(e->args[0]) : std::nullopt;
      if (limit && limit->most < *bound) return 1;
      return limit && limit->least >= *bound ? std::optional<int64_t>(0) : std::nullopt;
    }
    default:
      return ir::AsInt(e);
  }
}

// As far as it is arithmetic with constants that keeps the order.
std::optional<ExtentBound> BehindFacts::BoundAs(const Expr& e) const {
  if (e->kind == ExprKind::kLoad) return BoundOf(e->buffer);
  if (e->kind == ExprKind::kCast && !IsFloat(e->dtype)) return BoundAs(e->args[0]);
  if (e->kind == ExprKind::kSelect) {
    const std::optional<int64_t> condition = NumberOf(e->args[0]);
    return condition ? BoundAs(e->args[*condition != 0 ? 1 : 2]) : std::nullopt;
  }
  if (e->args.size() != 2) return std::nullopt;
  const bool swaps = NumberOf(e->args[0]).has_value() && e->kind != ExprKind::kSub && e->kind != ExprKind::kDiv;
  const std::optional<int64_t> number = NumberOf(e->args[swaps ? 0 : 1]);
  std::optional<ExtentBound> limit = number ? BoundAs(e->args[swaps ? 1 : 0]) : std::nullopt;
  if (!limit || std::abs(*number) > kLargestStep) return std::nullopt;
  const int64_t n = e->kind == ExprKind::kSub ? -*number : *number;
  const Expr p(limit->position);
  switch (e->kind) {
    case ExprKind::kAdd:
    case ExprKind::kSub:
      return ExtentBound{limit->extent, limit->least + n, limit->most + n, limit->position,
                         PlaceOf(*limit, p - Expr(n))};
    case ExprKind::kMul:
      if (n <= 0 || limit->least < 0 || limit->most > kLargestStep) return std::nullopt;
      return ExtentBound{limit->extent, limit->least * n, limit->most * n, limit->position,
                         PlaceOf(*limit, p / Expr(n))};
    case ExprKind::kDiv:
      if (n <= 0 || limit->least < 0) return std::nullopt;
      return ExtentBound{limit->extent, limit->least / n, limit->most / n, limit->position,
                         PlaceOf(*limit, (p + Expr(1)) * Expr(n) - Expr(1))};
    case ExprKind::kMax:
      return limit->least >= n ? limit : std::nullopt;
    case ExprKind::kMin:
      return limit->most <= n ? limit : std::nullopt;
    default:
      return std::nullopt;
  }
}

bool BehindFacts::IsNatural(const Expr& e) const {
  if (const std::optional<int64_t> number = NumberOf(e)) return *number >= 0;
  if (const std::optional<ExtentBound> limit = BoundAs(e)) return limit->least >= 0;
  const auto natural = [&](const Expr& arg) { return IsNatural(arg); };
  switch (e->kind) {
    case ExprKind::kLoad:
      return NumbersOf(e->buffer).natural;
    case ExprKind::kCast:
      return !IsFloat(e->args[0]->dtype) && IsNatural(e->args[0]);
    case ExprKind::kMax:
      return std::ranges::any_of(e->args, natural);
    case ExprKind::kMin:
    case ExprKind::kAdd:
      return std::ranges::all_of(e->args, natural);
    default:
      return false;
  }
}

std::optional<ExtentBound> BehindFacts::MostAs(const Expr& e) const {
  if (std::optional<ExtentBound> limit = BoundAs(e)) return limit;
  switch (e->kind) {
    case ExprKind::kLoad:
      return NumbersOf(e->buffer).most;
    case ExprKind::kCast:
      return IsFloat(e->args[0]->dtype) ? std::nullopt : MostAs(e->args[0]);
    case ExprKind::kSelect: {
      const std::optional<int64_t> condition = NumberOf(e->args[0]);
      return condition ? MostAs(e->args[*condition != 0 ? 1 : 2]) : std::nullopt;
    }
    case ExprKind::kMin: {
      const std::optional<ExtentBound> first = MostAs(e->args[0]);
      return first ? first : MostAs(e->args[1]);
    }
    case ExprKind::kMax: {
      const bool swaps = NumberOf(e->args[0]).has_value();
      const std::optional<int64_t> number = NumberOf(e->args[swaps ? 0 : 1]);
      const std::optional<ExtentBound> limit = number ? MostAs(e->args[swaps ? 1 : 0]) : std::nullopt;
      return limit && limit->least >= *number ? limit : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// A term too: of one extent, of several, or of none.
std::optional<NumberRange> BehindFacts::SumAs(const Expr& e) const {
  if (const std::optional<ExtentBound> limit = BoundAs(e)) return NumberRange{limit->least, limit->most};
  if (const std::optional<int64_t> number = NumberOf(e)) return NumberRange{*number, *number};
  if (e->kind == ExprKind::kLoad) return SumOf(e->buffer);
  if (e->kind != ExprKind::kAdd) return std::nullopt;
  const std::optional<NumberRange> a = SumAs(e->args[0]), b = SumAs(e->args[1]);
  const auto fits = [](const std::optional<NumberRange>& r) {
    return r && r->least >= -kLargestStep && r->most <= kLargestStep;
  };
  return fits(a) && fits(b) ? std::optional(NumberRange{a->least + b->least, a->most + b->most}) : std::nullopt;
}

std::optional<BehindFacts::Place> BehindFacts::AsCondition(const Expr& e, const Simplifier& ranges) const {
  if (e->kind == ExprKind::kLoad) {
    for (const Behind& b : Of(e->buffer)) {
      if (b.kind != Behind::kMask) continue;
      if (const Expr place = PlaceAt(b, e->args, ranges)) return Place{b.extent, place};
    }
    return std::nullopt;
  }
  const std::optional<ExtentBound> limit = e->kind == ExprKind::kLt ? BoundAs(e->args[1]) : std::nullopt;
  if (!limit) return std::nullopt;
  Expr position = e->args[0];
  if (position->kind == ExprKind::kLoad) {
    const Known* counts = Find(position->buffer);
    if (counts == nullptr || counts->operand.counts == 0) return std::nullopt;
    position = ir::FlatIndex(position->buffer, position->args) % Expr(counts->operand.counts);
  }
  const Expr place = ranges.Simplify(PlaceOf(*limit, position));
  if (ir::HasLoad(place)) return std::nullopt;
  return Place{limit->extent, place};
}

std::optional<BehindFacts::Place> BehindFacts::NoBehind(const Expr& e, const Simplifier& ranges) const {
  if (std::optional<Place> mask = AsCondition(e, ranges)) return mask;
  if (e->kind == ExprKind::kAnd) {
    const std::optional<Place> place = NoBehind(e->args[0], ranges);
    return place ? place : NoBehind(e->args[1], ranges);
  }
  if (e->kind != ExprKind::kLoad || e->dtype != DType::kBool) return std::nullopt;
  for (const Behind& b : Of(e->buffer)) {
    if (b.kind != Behind::kValue || b.value != 0) continue;
    if (const Expr place = PlaceAt(b, e->args, ranges)) return Place{b.extent, place};
  }
  return std::nullopt;
}

std::vector<BehindFacts::Place> BehindFacts::PlacesIn(const Expr& value, const Simplifier& ranges) const {
  std::vector<Place> places;
  const auto add = [&](const Place& place) {
    VarSet vars;
    nest::CollectVars(place.at, vars);
    if (vars.empty() || std::ranges::any_of(places, [&](const Place& p) { return IsSame(p, place); })) return;
    places.push_back(place);
  };
  ir::Visit(value, [&](const Expr& e) {
    if (const std::optional<Place> condition = AsCondition(e, ranges)) add(*condition);
    if (e->kind != ExprKind::kLoad) return;
    for (const Behind& b : Of(e->buffer)) {
      if (const Expr place = PlaceAt(b, e->args, ranges)) add({b.extent, place});
    }
  });
  return places;
}

std::vector<Behind> BehindFacts::OfBlock(const StmtNode& block) const {
  const Simplifier ranges = RangesOf(block);
  std::vector<Behind> facts;
  const std::optional<Place> mask = AsCondition(block.value, ranges), no = NoBehind(block.value, ranges);
  // Of a whole step: no extent is less than 1.
  if (no && ir::AsInt(no->at).value_or(0) > 0) {
    const Behind::Kind kind = mask ? Behind::kMask : Behind::kValue;
    facts.push_back({.kind = kind, .extent = no->extent, .shape = block.buffer->shape});
    facts.back().index = IndexOf(block.indices.size());
    facts.back().place = no->at;
  }
  for (const Place& place : PlacesIn(block.value, ranges)) {
    Behind b{.extent = place.extent, .shape = block.buffer->shape, .index = IndexOf(block.indices.size())};
    b.place = ByElement(block, place.at, b.index, ranges);
    if (!b.place) continue;
    const Element element = Evaluation(*this, block, ranges, place).Of(block.value);
    if (mask && IsSame(*mask, place)) {
      b.kind = Behind::kMask;
    } else if (element.is == Is::kNumber) {
      b.kind = Behind::kValue;
      b.value = element.number;
    } else if (element.is != Is::kUnread) {
      continue;
    }
    facts.push_back(std::move(b));
  }
  return facts;
}

bool BehindFacts::Follow(const StmtNode& block) {
  std::vector<Behind> facts = OfBlock(block);
  Known& known = known_[block.buffer.get()];
  // Of several blocks that write a buffer all have to say it.
  const auto said = [&](const Behind& b) {
    return std::ranges::any_of(facts, [&](const Behind& other) { return Text(b) == Text(other); });
  };
  if (known.seen++ == 0) {
    known.said = std::move(facts);
    const bool one = known.writers == 1 && NumElements(block.buffer->shape) == 1 && !IsFloat(block.buffer->dtype);
    if (one) known.limit = BoundAs(block.value);
    if (one && !known.limit) known.sum = SumAs(block.value);
    if (known.writers == 1 && !block.block.init && !IsFloat(block.buffer->dtype))
      known.numbers = {IsNatural(block.value), MostAs(block.value)};
  } else {
    std::erase_if(known.said, [&](const Behind& b) { return !said(b); });
  }
  if (known.seen < known.writers) return false;
  known.seen = 0;
  const bool more = known.said.size() > known.behind.size();
  if (more) known.behind = known.said;
  return more && known.writers > 1;
}

std::vector<BehindFacts::Place> BehindFacts::IdleTerms(const StmtNode& block) const {
  const Expr& value = block.value;
  double idle = 0;
  if (value->kind == ExprKind::kMax) idle = -kInfinity;
  if (value->kind == ExprKind::kMin) idle = kInfinity;
  if (value->kind != ExprKind::kAdd && idle == 0) return {};
  const bool first = value->args[0]->kind == ExprKind::kLoad && nest::LoadsOwn(block, value->args[0]);
  const bool second = value->args[1]->kind == ExprKind::kLoad && nest::LoadsOwn(block, value->args[1]);
  if (first == second) return {};
  const Expr& term = value->args[first ? 1 : 0];
  const Simplifier ranges = RangesOf(block);
  std::vector<Place> places = PlacesIn(term, ranges);
  std::erase_if(places, [&](const Place& place) {
    const Element element = Evaluation(*this, block, ranges, place).Of(term);
    return element.is != Is::kNumber || element.number != idle;
  });
  return places;
}

}  // namespace temper
