// If, Loop and Scan. What decides them is known while importing, as shapes are, and their bodies become part of the
// graph, a loop's as often as it turns. Where only the run knows a condition, both branches are computed, or all turns
// that there may be, and their results chosen from.
#include <algorithm>
#include <limits>
#include <set>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/frontend/onnx/bounds.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/nodes.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostTurns = 4096;

// What numbers an operand of a comparison can be.
Bounds BoundsOfLength(Context& c, ValueId v) {
  const Context::Agreements before = c.agreements();
  const absl::StatusOr<Dims> dims = DimsOf(c, v, "a condition");
  c.SetAgreements(before);
  if (!dims.ok() || dims->most.size() != 1) return BoundsOf(c, v);
  const double most = static_cast<double>(dims->most[0]);
  if (dims->varyings.empty()) return {most, most};
  const ValueId extent = dims->varyings[0].extent;
  return {c.SumOf(extent).less.empty() ? static_cast<double>(c.LeastOf(extent)) : -most, most};
}

// What a comparison of lengths is at each length that a run may have: exporters ask whether an axis has one element.
std::optional<bool> AlwaysSo(Context& c, ValueId condition) {
  const std::optional<Node> made = c.MakerOf(condition);
  if (!made.has_value() || made->inputs.size() != 2) return std::nullopt;
  const bool equal = made->op == "equal", more = made->op == "greater" || made->op == "less_equal";
  if (!equal && !more && made->op != "less" && made->op != "greater_equal") return std::nullopt;
  const Bounds a = BoundsOfLength(c, made->inputs[0]), b = BoundsOfLength(c, made->inputs[1]);
  if (equal) return a.most < b.least || b.most < a.least ? std::optional(false) : std::nullopt;
  // a > b and a <= b, or a < b and a >= b.
  const bool strict = made->op == "greater" || made->op == "less";
  const Bounds &high = more ? a : b, &low = more ? b : a;
  if (high.least > low.most) return strict;
  return high.most <= low.least ? std::optional(!strict) : std::nullopt;
}

// Of a comparison of lengths the sum that is more than nothing where it holds; nullopt: it is none.
std::optional<Context::Sum> HoldsAbove(Context& c, ValueId condition) {
  std::optional<Node> made = c.MakerOf(condition);
  constexpr int kMostMoves = 16;
  for (int i = 0; made.has_value() && i < kMostMoves && (made->op == "reshape" || made->op == "identity"); ++i)
    made = c.MakerOf(made->inputs[0]);
  if (!made.has_value()) return std::nullopt;
  const bool less = made->op == "less" || made->op == "less_equal";
  if (!less && made->op != "greater" && made->op != "greater_equal") return std::nullopt;
  const Context::Agreements before = c.agreements();
  const absl::StatusOr<Dims> low = DimsOf(c, made->inputs[less ? 0 : 1], "a condition");
  const absl::StatusOr<Dims> high = DimsOf(c, made->inputs[less ? 1 : 0], "a condition");
  c.SetAgreements(before);
  if (!low.ok() || !high.ok()) return std::nullopt;
  std::optional<Context::Sum> sum = SumLeft(c, *high, *low);
  if (sum.has_value() && made->op.ends_with("_equal")) ++sum->number;
  return sum;
}

// True, false, or what the run decides.
absl::StatusOr<std::optional<bool>> KnownTruth(Context& c, ValueId condition) {
  if (NumElements(c.ShapeOf(condition)) != 1 || c.TypeOf(condition).dtype != DType::kBool)
    return absl::InvalidArgumentError("a condition is one boolean");
  const NDArray* known = c.Known(condition);
  return known == nullptr ? std::nullopt : std::optional<bool>(known->At(0) != 0);
}

// Inputs of the model of few numbers that decide a value, such as a rate, by their names.
std::vector<std::string> DecidersOf(Context& c, ValueId value) {
  constexpr int64_t kFew = 8;
  const Graph& g = c.graph();
  const auto own = std::span(g.inputs).first(g.inputs.size() - static_cast<size_t>(g.hidden_inputs));  // no lengths
  std::vector<std::string> names;
  std::set<ValueId> met = {value};
  for (std::vector<ValueId> left = {value}; !left.empty();) {
    const ValueId v = left.back();
    left.pop_back();
    const bool input = std::ranges::count(own, v) > 0;
    if (input && NumElements(c.ShapeOf(v)) <= kFew && !c.Varies(v)) names.push_back(g.values[v].name);
    const std::optional<Node> maker = c.MakerOf(v);
    if (!maker.has_value()) continue;
    for (const ValueId from : maker->inputs) {
      if (met.insert(from).second) left.push_back(from);
    }
  }
  return names;
}

// What is wrong with one of two branches that are both computed, and how to have only one of them; said once where one
// is within another.
absl::Status OfBothBranches(Context& c, const absl::Status& wrong, ValueId condition) {
  constexpr const char* kAdvice = "=... would choose one branch";
  const std::vector<std::string> names = DecidersOf(c, condition);
  if (wrong.ok() || names.empty() || absl::EndsWith(wrong.message(), kAdvice)) return wrong;
  const std::string options = absl::StrJoin(names, "=... --value ");
  return absl::Status(wrong.code(), absl::StrCat(wrong.message(), "; --value ", options, kAdvice));
}

absl::Status ShapeDepends() {
  return absl::UnimplementedError("its condition depends on the model's inputs, and so would the shape of a result");
}

// The only axis along which the two may have different numbers of elements; an error if there is another one.
absl::StatusOr<int64_t> VaryingAxis(Context& c, ValueId a, ValueId b) {
  std::optional<int64_t> found;
  const Shape &one = c.ShapeOf(a), &other = c.ShapeOf(b);
  if (one.size() != other.size()) return ShapeDepends();
  for (int64_t axis = 0; axis < std::ssize(one); ++axis) {
    const auto varies = [&](ValueId v) { return c.VaryingAlong(v, axis) != nullptr; };
    if (one[static_cast<size_t>(axis)] == other[static_cast<size_t>(axis)] && !varies(a) && !varies(b)) continue;
    if (found.has_value()) return ShapeDepends();
    found = axis;
  }
  return found.has_value() ? absl::StatusOr<int64_t>(*found) : ShapeDepends();
}

// `v` with room for `most` elements along the axis.
absl::StatusOr<ValueId> WithRoom(Context& c, ValueId v, int64_t axis, int64_t most) {
  Shape shape = c.ShapeOf(v);
  int64_t& extent = shape[static_cast<size_t>(axis)];
  if (extent == 0) {
    extent = most;
    return c.Constant(NDArray(c.TypeOf(v).dtype, std::move(shape)));
  }
  std::vector<int64_t> pads(2 * shape.size(), 0);
  pads[shape.size() + static_cast<size_t>(axis)] = most - extent;
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole("identity", {}, {v}));
  return c.Pad(v, std::move(pads));
}

// As below, of values that differ in how many elements they have.
absl::StatusOr<ValueId> ChooseVarying(Context& c, ValueId condition, ValueId a, ValueId b) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, VaryingAxis(c, a, b));
  for (const ValueId v : {a, b}) TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "If"));
  const auto room = [&](ValueId v) { return c.ShapeOf(v)[static_cast<size_t>(axis)]; };
  const auto extent = [&](ValueId v) {
    const Varying* own = c.VaryingAlong(v, axis);
    return own != nullptr ? own->extent : c.Scalar(DType::kI64, static_cast<double>(room(v)));
  };
  const int64_t most = std::max(room(a), room(b));
  TEMPER_ASSIGN_OR_RETURN(const ValueId chosen, c.Call("where", {}, {condition, extent(a), extent(b)}));
  TEMPER_ASSIGN_OR_RETURN(a, WithRoom(c, a, axis, most));
  TEMPER_ASSIGN_OR_RETURN(b, WithRoom(c, b, axis, most));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.CallWhole("where", {}, {condition, a, b}));
  c.SetVaryings(v, {{axis, chosen}});
  return v;
}

// `a` where the condition holds, else `b`.
absl::StatusOr<Bound> Choose(Context& c, ValueId condition, const Bound& a, const Bound& b) {
  if (a.value != kNoValue && a.value == b.value) return a;
  const bool tensors = a.value != kNoValue && b.value != kNoValue;
  if (!tensors || c.TypeOf(a.value).dtype != c.TypeOf(b.value).dtype) return ShapeDepends();
  TEMPER_ASSIGN_OR_RETURN(condition, c.Reshape(condition, {}));
  if (c.ShapeOf(a.value) != c.ShapeOf(b.value) || c.Varies(a.value) || c.Varies(b.value)) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, ChooseVarying(c, condition, a.value, b.value));
    return Bound{v, std::nullopt};
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("where", {}, {condition, a.value, b.value}));
  return Bound{v, std::nullopt};
}

absl::Status SetAll(Context& c, const OnnxNode& n, std::vector<Bound> results) {
  if (static_cast<size_t>(n.proto.output_size()) > results.size())
    return absl::InvalidArgumentError("it has more results than its body");
  for (int i = 0; i < n.proto.output_size(); ++i) {
    Bound& result = results[static_cast<size_t>(i)];
    if (result.sequence.has_value()) {
      c.SetSequence(n, *std::move(result.sequence), i);
    } else if (result.value != kNoValue) {
      TEMPER_RETURN_IF_ERROR(c.Set(n, result.value, i));
    }
  }
  return absl::OkStatus();
}

absl::Status BothBranches(Context& c, const OnnxNode& n, const onnx::GraphProto& yes, const onnx::GraphProto& no) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<Bound> results, Inline(c, yes, {}, n.opset));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Bound> others, Inline(c, no, {}, n.opset));
  if (results.size() != others.size()) return absl::InvalidArgumentError("its branches differ in their results");
  for (size_t i = 0; i < results.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(results[i], Choose(c, n.Input(0), results[i], others[i]));
  }
  return SetAll(c, n, std::move(results));
}

absl::Status If(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const onnx::GraphProto* yes, BodyOf(n, "then_branch"));
  TEMPER_ASSIGN_OR_RETURN(const onnx::GraphProto* no, BodyOf(n, "else_branch"));
  TEMPER_ASSIGN_OR_RETURN(std::optional<bool> known, KnownTruth(c, n.Input(0)));
  if (!known.has_value()) known = AlwaysSo(c, n.Input(0));
  if (known.has_value()) {
    TEMPER_ASSIGN_OR_RETURN(std::vector<Bound> results, Inline(c, *known ? *yes : *no, {}, n.opset));
    return SetAll(c, n, std::move(results));
  }
  return OfBothBranches(c, BothBranches(c, n, *yes, *no), n.Input(0));
}

// What the turns of a loop give, one behind the other along a new axis.
absl::StatusOr<ValueId> Stacked(Context& c, const std::vector<Bound>& turns, int64_t axis) {
  if (turns.empty()) return absl::UnimplementedError("a loop without turns has no results of them");
  std::vector<ValueId> parts;
  for (const Bound& turn : turns) {
    if (turn.value == kNoValue) return absl::UnimplementedError("a turn's result is no tensor");
    TEMPER_ASSIGN_OR_RETURN(const int64_t at, Axis(axis, c.Rank(turn.value) + 1));
    TEMPER_ASSIGN_OR_RETURN(const ValueId part, c.NewAxis(turn.value, at));
    parts.push_back(part);
  }
  TEMPER_ASSIGN_OR_RETURN(axis, Axis(axis, c.Rank(parts[0])));
  return parts.size() == 1 ? parts[0] : c.Concat(std::move(parts), axis);
}

// Whether a run has that many turns and one more.
absl::StatusOr<ValueId> IsBefore(Context& c, int64_t turn, ValueId count) {
  return c.Call("less", {}, {c.Scalar(DType::kI64, static_cast<double>(turn)), count});
}
// The number of the turn, or of the last one where there are not so many.
absl::StatusOr<ValueId> LastUpTo(Context& c, int64_t turn, ValueId count) {
  Formula f(c, DType::kI64);
  const ValueId last = f.Call("max", {f.Plus(count, -1), f.Number(0)});
  const ValueId number = f.Call("min", {f.Number(static_cast<double>(turn)), last});
  TEMPER_RETURN_IF_ERROR(f.status());
  return number;
}

// What a scan sees of an operand in one of its turns, of which there are `count`, or `steps` where it is kNoValue.
absl::StatusOr<ValueId> Scanned(Context& c, ValueId v, int64_t axis, int64_t step, int64_t steps, ValueId count,
                                bool back) {
  if (count == kNoValue) return c.Element(v, axis, back ? steps - 1 - step : step);
  if (!back && step < c.LeastOf(count)) return c.Element(v, axis, step);
  TEMPER_ASSIGN_OR_RETURN(ValueId at, LastUpTo(c, step, count));
  if (back) {
    Formula f(c, DType::kI64);
    at = f.Call("max", {f.Sub(f.Plus(count, -1), at), f.Number(0)});
    TEMPER_RETURN_IF_ERROR(f.status());
  }
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
  return c.Gather(v, at, axis);
}

// The operands of a node from `first` on: tensors and sequences.
std::vector<Bound> OperandsFrom(Context& c, const OnnxNode& n, int first) {
  std::vector<Bound> operands;
  for (int i = first; i < n.proto.input_size(); ++i) {
    const Bound* bound = c.Find(n.proto.input(i));
    operands.push_back(bound == nullptr ? Bound{} : *bound);
  }
  return operands;
}

class LoopTurns {
 public:
  LoopTurns(Context& c, const OnnxNode& n, const onnx::GraphProto& body)
      : c_(c), n_(n), body_(body), carried_(OperandsFrom(c, n, 2)) {}

  absl::Status Run() {
    const int kept = static_cast<int>(carried_.size()) + 1;
    if (body_.output_size() < kept) return absl::InvalidArgumentError("its body has too few results");
    turns_.resize(static_cast<size_t>(body_.output_size() - kept));
    const std::vector<Bound> first = carried_;
    const absl::Status status = TakeTurns();
    if (status.ok() || !miscounted_) return status;
    // A counter that goes by other steps says when the loop ends, and not how often it turns.
    carried_ = first;
    kept_.clear();
    for (std::vector<Bound>& turns : turns_) turns.clear();
    count_ = kNoValue;
    by_condition_ = counts_ = false;
    return TakeTurns();
  }

 private:
  absl::Status TakeTurns() {
    TEMPER_ASSIGN_OR_RETURN(const int64_t most, MostTurns());
    ValueId goes_on = n_.Input(1) == kNoValue ? Truth(true) : n_.Input(1);
    for (int64_t turn = 0; turn < most; ++turn) {
      if (by_condition_ && turn >= c_.MostOf(count_)) return Finish();
      TEMPER_ASSIGN_OR_RETURN(const std::optional<bool> known, GoesOn(turn, goes_on));
      if (known == false) return Finish();
      if (turn >= kMostTurns || (!known.has_value() && !bounded_)) return Endless(known.has_value());
      if (known.has_value() && count_ != kNoValue && turn >= c_.LeastOf(count_)) {
        TEMPER_RETURN_IF_ERROR(CountedTurn(turn, goes_on));
      } else {
        if (count_ != kNoValue && !known.has_value())
          return absl::UnimplementedError("its end depends on the model's inputs, and so does the number of turns");
        TEMPER_RETURN_IF_ERROR(Turn(turn, known.has_value(), goes_on));
      }
    }
    return Finish();
  }

  ValueId Truth(bool value) {
    NDArray data(DType::kBool, {});
    data.Set(0, value ? 1 : 0);
    return c_.Constant(std::move(data));
  }

  // Whether there is such a turn, if there were all before it and count_ does not say otherwise; nullopt: nobody knows.
  absl::StatusOr<std::optional<bool>> GoesOn(int64_t turn, ValueId condition) {
    TEMPER_ASSIGN_OR_RETURN(std::optional<bool> known, KnownTruth(c_, condition));
    if (!known.has_value()) known = AlwaysSo(c_, condition);
    const bool ends_by_it = by_condition_ && turn >= c_.LeastOf(count_);
    if (known == false || (known == true && !ends_by_it)) return known;
    std::optional<Context::Sum> above = known.has_value() ? std::nullopt : HoldsAbove(c_, condition);
    if (above.has_value()) {
      above->number += turn;  // as many turns as that
      if (count_ == kNoValue && counts_) TEMPER_RETURN_IF_ERROR(CountBy(*above, turn));
      if (count_ != kNoValue && *above == end_) {
        by_condition_ = true;
        return true;
      }
    }
    miscounted_ = by_condition_ && n_.Input(0) != kNoValue;
    return std::nullopt;
  }

  // A loop with a counter that has to be less than a length has as many turns.
  absl::Status CountBy(const Context::Sum& end, int64_t turn) {
    Context::Sum left = end;
    left.number -= turn;
    TEMPER_ASSIGN_OR_RETURN(const std::optional<Dims> more, MoreThanNothing(c_, left));
    if (!more.has_value() || more->varyings.empty()) return absl::OkStatus();
    TEMPER_ASSIGN_OR_RETURN(count_, StopsOf(c_, more->varyings[0].extent, turn - 1, 1));
    if (!bounded_ && c_.MostOf(count_) > kMostTurns) return Endless(true);
    end_ = end;
    bounded_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> MostTurns() {
    bounded_ = n_.Input(0) != kNoValue;
    if (!bounded_) return std::numeric_limits<int64_t>::max();
    constexpr const char* kWhat = "the number of turns";
    if (c_.Known(n_.Input(0)) == nullptr && NumElements(c_.ShapeOf(n_.Input(0))) == 1) {
      TEMPER_ASSIGN_OR_RETURN(const Dims told, DimsOf(c_, n_.Input(0), kWhat));
      if (!told.varyings.empty()) {
        count_ = told.varyings[0].extent;
        end_ = c_.SumOf(count_);
      }
      bounded_ = told.most[0] <= kMostTurns;
      return told.most[0];
    }
    TEMPER_ASSIGN_OR_RETURN(const int64_t known, c_.KnownInt(n_.Input(0), kWhat));
    bounded_ = known <= kMostTurns;
    return known;
  }

  // One that a run may have no more: then it does again what the last one did, and nothing comes of it. A counter by
  // which the loop ends goes on, so that each turn knows its number.
  absl::Status CountedTurn(int64_t turn, ValueId& goes_on) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId there, IsBefore(c_, turn, count_));
    TEMPER_ASSIGN_OR_RETURN(const ValueId number, LastUpTo(c_, turn, count_));
    TEMPER_ASSIGN_OR_RETURN(std::vector<Bound> results, Body(number, goes_on));
    if (kept_.empty()) kept_ = carried_;
    for (size_t i = 0; i < carried_.size(); ++i) {
      const ValueId next = results[i + 1].value;
      TEMPER_ASSIGN_OR_RETURN(kept_[i], Choose(c_, there, results[i + 1], kept_[i]));
      carried_[i] = by_condition_ && next != kNoValue && c_.Known(next) != nullptr ? results[i + 1] : kept_[i];
    }
    for (size_t i = 0; i < turns_.size(); ++i) turns_[i].push_back(results[carried_.size() + 1 + i]);
    goes_on = results[0].value;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Bound>> Body(ValueId number, ValueId goes_on) {
    std::vector<Bound> inputs = {Bound{number, std::nullopt}, Bound{goes_on, std::nullopt}};
    inputs.insert(inputs.end(), carried_.begin(), carried_.end());
    TEMPER_ASSIGN_OR_RETURN(std::vector<Bound> results, Inline(c_, body_, inputs, n_.opset));
    if (results[0].value == kNoValue) return absl::InvalidArgumentError("its body's first result is no condition");
    return results;
  }

  absl::Status Endless(bool known) const {
    if (known) return absl::UnimplementedError(absl::StrCat("more than ", kMostTurns, " turns are not supported"));
    return absl::UnimplementedError("its end depends on the model's inputs, and no number of turns bounds it");
  }

  // Where it is not known that the loop goes on, what it carries stays as it is once it does not.
  absl::Status Turn(int64_t turn, bool known, ValueId& goes_on) {
    if (!known && !turns_.empty())
      return absl::UnimplementedError("its end depends on the model's inputs, and so would the shape of a result");
    TEMPER_ASSIGN_OR_RETURN(std::vector<Bound> results,
                            Body(c_.Scalar(DType::kI64, static_cast<double>(turn)), goes_on));
    for (size_t i = 0; i < carried_.size(); ++i) {
      Bound& next = results[i + 1];
      if (!known) {
        TEMPER_ASSIGN_OR_RETURN(next, Choose(c_, goes_on, next, carried_[i]));
      }
      carried_[i] = std::move(next);
    }
    for (size_t i = 0; i < turns_.size(); ++i) turns_[i].push_back(results[carried_.size() + 1 + i]);
    if (known) {
      goes_on = results[0].value;
      return absl::OkStatus();
    }
    TEMPER_ASSIGN_OR_RETURN(goes_on, c_.Reshape(goes_on, {}));
    TEMPER_ASSIGN_OR_RETURN(const ValueId next, c_.Reshape(results[0].value, {}));
    TEMPER_ASSIGN_OR_RETURN(goes_on, c_.Call("and", {}, {goes_on, next}));
    return absl::OkStatus();
  }

  absl::Status Finish() {
    std::vector<Bound> results = std::move(kept_.empty() ? carried_ : kept_);
    for (const std::vector<Bound>& turns : turns_) {
      const size_t i = results.size();
      if (i >= static_cast<size_t>(n_.proto.output_size()) || n_.proto.output(static_cast<int>(i)).empty()) {
        results.emplace_back();
        continue;
      }
      TEMPER_ASSIGN_OR_RETURN(ValueId v, Stacked(c_, turns, 0));
      if (count_ != kNoValue) {
        TEMPER_ASSIGN_OR_RETURN(const ValueId count, NoMoreThan(std::ssize(turns)));
        TEMPER_ASSIGN_OR_RETURN(v, WithVaryings(c_, v, {{0, count}}));
      }
      results.push_back(Bound{v, std::nullopt});
    }
    return SetAll(c_, n_, std::move(results));
  }

  // count_, where the loop also ends after so many turns.
  absl::StatusOr<ValueId> NoMoreThan(int64_t turns) {
    if (c_.MostOf(count_) <= turns) return count_;
    TEMPER_ASSIGN_OR_RETURN(const ValueId count,
                            c_.Call("min", {}, {count_, c_.Scalar(DType::kI64, static_cast<double>(turns))}));
    c_.SetMost(count, turns);
    c_.SetLeast(count, std::min(c_.LeastOf(count_), turns));
    return count;
  }

  Context& c_;
  const OnnxNode& n_;
  const onnx::GraphProto& body_;
  std::vector<Bound> carried_;
  std::vector<Bound> kept_;                // the same as the last turn of the run leaves it, where that varies
  std::vector<std::vector<Bound>> turns_;  // of each result that is stacked
  bool bounded_ = false;
  ValueId count_ = kNoValue;   // of turns, where only the run knows it
  Context::Sum end_;           // the same as a sum that may be less than nothing
  bool counts_ = true;         // by its condition, where that is known to count
  bool miscounted_ = false;    // so, and its number of turns is bounded besides
  bool by_condition_ = false;  // it is the condition that says so
};

absl::Status Loop(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const onnx::GraphProto* body, BodyOf(n, "body"));
  return LoopTurns(c, n, *body).Run();
}

// One number for each of `count`, from an attribute or else zeros.
absl::StatusOr<Ints> Each(const OnnxNode& n, std::string_view name, size_t count) {
  Ints values = n.Ints(name, Ints(count, 0));
  if (values.size() != count)
    return absl::InvalidArgumentError(absl::StrCat(std::string(name), " has ", values.size(), " numbers for ", count));
  return values;
}

absl::Status Scan(Context& c, const OnnxNode& n) {
  if (n.opset < 9) return absl::UnimplementedError("Scan is supported from opset 9 on");
  TEMPER_ASSIGN_OR_RETURN(const onnx::GraphProto* body, BodyOf(n, "body"));
  const int64_t scanned = n.Int("num_scan_inputs", 0), operands = std::ssize(n.inputs);
  const int64_t states = operands - std::clamp<int64_t>(scanned, 0, operands), stacked = body->output_size() - states;
  if (scanned < 1 || scanned > operands || stacked < 0)
    return absl::InvalidArgumentError("num_scan_inputs does not fit its operands and its body");
  TEMPER_ASSIGN_OR_RETURN(Ints axes, Each(n, "scan_input_axes", static_cast<size_t>(scanned)));
  TEMPER_ASSIGN_OR_RETURN(const Ints back, Each(n, "scan_input_directions", static_cast<size_t>(scanned)));
  TEMPER_ASSIGN_OR_RETURN(const Ints out_axes, Each(n, "scan_output_axes", static_cast<size_t>(stacked)));
  TEMPER_ASSIGN_OR_RETURN(const Ints out_back, Each(n, "scan_output_directions", static_cast<size_t>(stacked)));
  std::vector<Bound> inputs = OperandsFrom(c, n, 0);
  int64_t steps = -1;
  ValueId count = kNoValue;  // of steps, where only the run knows it
  for (size_t i = 0; i < axes.size(); ++i) {
    const ValueId v = inputs[static_cast<size_t>(states) + i].value;
    if (v == kNoValue) return absl::InvalidArgumentError("what it scans are tensors");
    TEMPER_ASSIGN_OR_RETURN(axes[i], Axis(axes[i], c.Rank(v)));
    const int64_t extent = c.ShapeOf(v)[static_cast<size_t>(axes[i])];
    if (steps >= 0 && extent != steps) return absl::InvalidArgumentError("what it scans differs in length");
    steps = extent;
    const Varying* own = c.VaryingAlong(v, axes[i]);
    if (i > 0 && (own == nullptr) != (count == kNoValue))
      return absl::UnimplementedError("what it scans has a length that is known and one that is not");
    if (own == nullptr) continue;
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "Scan"));
    if (i > 0 && own->extent != count) c.MustAgree(own->extent, count);
    count = own->extent;
  }
  if (count != kNoValue && std::ranges::count(out_back, 0) != std::ssize(out_back))
    return absl::UnimplementedError("what only the run knows the end of does not begin there");
  if (steps > kMostTurns) return absl::UnimplementedError(absl::StrCat(steps, " turns are not supported"));
  const std::vector<Bound> whole = inputs;
  std::vector<std::vector<Bound>> turns(static_cast<size_t>(stacked));
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t operand = static_cast<size_t>(states) + i;
      TEMPER_ASSIGN_OR_RETURN(inputs[operand].value,
                              Scanned(c, whole[operand].value, axes[i], step, steps, count, back[i] != 0));
    }
    TEMPER_ASSIGN_OR_RETURN(std::vector<Bound> results, Inline(c, *body, inputs, n.opset));
    for (size_t i = 0; i < static_cast<size_t>(states); ++i) {
      if (count != kNoValue && step >= c.LeastOf(count)) {
        TEMPER_ASSIGN_OR_RETURN(const ValueId there, IsBefore(c, step, count));
        TEMPER_ASSIGN_OR_RETURN(inputs[i], Choose(c, there, results[i], inputs[i]));
      } else {
        inputs[i] = results[i];
      }
    }
    for (size_t i = 0; i < turns.size(); ++i) {
      turns[i].insert(out_back[i] != 0 ? turns[i].begin() : turns[i].end(), results[static_cast<size_t>(states) + i]);
    }
  }
  std::vector<Bound> results(inputs.begin(), inputs.begin() + states);
  for (size_t i = 0; i < turns.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(ValueId v, Stacked(c, turns[i], out_axes[i]));
    if (count != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(out_axes[i], c.Rank(v)));
      TEMPER_ASSIGN_OR_RETURN(v, WithVaryings(c, v, {{axis, count}}));
    }
    results.push_back(Bound{v, std::nullopt});
  }
  return SetAll(c, n, std::move(results));
}

}  // namespace

std::span<const TableEntry> ControlTable() {
  static constexpr TableEntry kTable[] = {{"If", If, 1, Extents::kAlongAnyAxis},
                                          {"Loop", Loop, 0, Extents::kAlongAnyAxis},
                                          {"Scan", Scan, 0, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
