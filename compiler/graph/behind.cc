#include "compiler/graph/behind.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "compiler/ops/physical_axis.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/ops/templates/winograd.h"
#include "compiler/schedule/skip_behind.h"

namespace temper {
namespace {

// As OperandFacts::counts.
int64_t Counts(const Value& v) {
  if (!v.constant.has_value() || v.type.dtype != DType::kI64 || !v.type.perm.empty()) return 0;
  const std::span<const int64_t> data = v.constant->as<int64_t>();
  const auto again = std::find(data.begin() + (data.empty() ? 0 : 1), data.end(), 0);
  const int64_t period = again - data.begin();
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i] != static_cast<int64_t>(i) % period) return 0;
  }
  return period;
}

bool IsNatural(const Value& v) {
  if (!v.constant.has_value() || v.type.dtype != DType::kI64) return false;
  return std::ranges::all_of(v.constant->as<int64_t>(), [](int64_t number) { return number >= 0; });
}

// Whether the operator makes whole numbers of floats, other than one by one, such as where the largest of them is:
// these are in range, whatever the floats are.
bool MakesPlaces(const Graph& g, const Node& node) {
  const bool of_floats = std::ranges::all_of(
      node.inputs, [&](ValueId v) { return v == kNoValue || IsFloat(g.values[static_cast<size_t>(v)].type.dtype); });
  const bool floats = IsFloat(g.values[static_cast<size_t>(node.output)].type.dtype);
  return of_floats && !floats && FindOp(node.op)->pattern != OpPattern::kElementwise;
}

// Whether the operator divides whole numbers: of some, such as of zero, it has no result, and the run would end.
bool DividesWhole(const OpDef& op, const TensorType& result) {
  return !IsFloat(result.dtype) && std::ranges::find(op.numbers, Numbers::kPositive) != op.numbers.end();
}

// GraphBehind::places.
std::vector<bool> PlacesIn(const Graph& g) {
  std::vector<bool> places(g.values.size(), false);
  for (size_t i = g.groups.size(); i-- > 0;) {
    for (const int at : std::views::reverse(g.groups[i].nodes)) {
      const Node& node = g.nodes[static_cast<size_t>(at)];
      const OpDef& op = *FindOp(node.op);
      const auto output = static_cast<size_t>(node.output);
      const bool all = (places[output] && !MakesPlaces(g, node)) || DividesWhole(op, g.values[output].type);
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const bool is_place = node.inputs[k] != kNoValue && (all || op.NumbersOf(k) == Numbers::kPlace);
        if (is_place) places[static_cast<size_t>(node.inputs[k])] = true;
      }
    }
  }
  return places;
}

// What is not below the limit along an axis of a value.
Behind UnreadAlong(const TensorType& type, int64_t axis, const ExtentBound& limit) {
  Behind b{.extent = limit.extent, .shape = type.PhysicalShape(), .index = IndexOf(type.shape.size())};
  b.place = PlaceOf(limit, ir::Expr(b.index[PhysicalAxis(type, axis)]));
  return b;
}

// By operand: whether kernels may make neighbouring elements together, each from what all of them read of it. They may
// where filters of several taps go over floats.
std::vector<bool> MixedOperands(const Workload& w) {
  const size_t inputs = w.inputs.size();
  std::vector<bool> mixed(inputs + w.calls.size(), false);
  for (size_t i = w.calls.size(); i-- > 0;) {
    const Workload::Call& call = w.calls[i];
    const OpDef* op = FindOp(call.op);
    const bool filters = op != nullptr && op->windows && op->terms && call.args.size() > 1 && call.args[1] >= 0;
    if (filters && IsFloat(w.TypeOf(call.args[0]).dtype)) {
      const bool several = NumElements(std::span(w.TypeOf(call.args[1]).shape).last(2)) > 1;
      mixed[static_cast<size_t>(call.args[0])] = mixed[static_cast<size_t>(call.args[0])] || several;
    }
    for (const int arg : call.args) {
      if (arg >= 0 && mixed[inputs + i]) mixed[static_cast<size_t>(arg)] = true;
    }
  }
  mixed.resize(inputs);
  return mixed;
}

// Of such an operand what lies so far behind that nothing before the end is made together with it. nullopt:
// that is not known.
std::optional<Behind> BeyondTiles(const Behind& b) {
  std::vector<ir::VarBinding> before;
  for (const ir::Var& var : b.index) {
    if (!GrowsWith(b.place, var)) return std::nullopt;
    before.push_back({var, ir::Expr(var) - ir::Expr(kLargestWinogradTile - 1)});
  }
  Behind beyond = b;
  beyond.place = ir::Substitute(b.place, before);
  return beyond;
}

// Of two that hold the one that is about more, as far as that is known.
std::optional<Behind> MoreOf(const std::optional<Behind>& a, const std::optional<Behind>& b) {
  if (!a || !b) return a ? a : b;
  const std::optional<Behind> less = BehindBoth(*a, *b);
  return less && Text(*less) == Text(*a) ? b : a;
}

// The axis that counts lines which are made dense along another one, and the output that tells how many of them count:
// they become an output of which nothing else is read. Lines are those of one axis alone.
struct Lines {
  int64_t axis = 0;
  int told_by = 0;
};
std::optional<Lines> LinesOf(const Graph& g, const Node& counted, int64_t along) {
  ValueId v = counted.output;
  const auto reads = [&](const Node& node) { return std::ranges::find(node.inputs, v) != node.inputs.end(); };
  for (auto reader = std::ranges::find_if(g.nodes, reads);
       reader != g.nodes.end() && FindOp(reader->op)->move == Move::kReshapes;
       reader = std::ranges::find_if(g.nodes, reads))
    v = reader->output;
  if (std::ranges::count(g.outputs, v) != 1 || !EndsWithItsLines(g, counted)) return std::nullopt;
  const Shape &made = g.values[static_cast<size_t>(v)].type.shape,
              &shape = g.values[static_cast<size_t>(counted.inputs[0])].type.shape;
  const int64_t lines = NumElements(std::span(shape).first(static_cast<size_t>(along)));
  for (const Extent& e : g.extents) {
    const auto axis = static_cast<size_t>(e.axis);
    if (g.outputs[static_cast<size_t>(e.output)] != v || lines == 1 || made[axis] != lines) continue;
    if (NumElements(std::span(made).first(axis)) != 1) continue;
    const auto counts = std::ranges::find(shape, lines);
    if (counts - shape.begin() < along) return Lines{counts - shape.begin(), e.told_by};
  }
  return std::nullopt;
}

constexpr size_t kMostExtents = 64;  // more are no sums that a model means

// Of the values of a graph those that its inputs, its outputs and its kernels tell.
class Finder {
 public:
  Finder(const Graph& g, std::span<const ir::Func> schedules) : g_(g), schedules_(schedules) {
    found_.of.resize(g.values.size());
    found_.limits.resize(g.values.size());
    found_.numbers.resize(g.values.size());
    found_.extents.assign(g.inputs.end() - g.hidden_inputs, g.inputs.end());
    made_.resize(found_.extents.size(), -1);
    found_.places = PlacesIn(g);
    found_.unread_inputs.resize(g.inputs.size(), false);
  }

  GraphBehind Find() && {
    for (const InputExtent& e : g_.input_extents) OfInput(e);
    for (const Group& group : g_.groups) Forward(group);
    FindUnread();
    FindUnreadInputs();
    return std::move(found_);
  }

 private:
  using Unread = std::optional<std::vector<Behind>>;  // nullopt: nobody reads any of it

  struct Step {
    Extracted kernel;
    std::vector<OperandFacts> facts;
    std::optional<ir::Func> stages;
    const ir::Func* schedule = nullptr;
  };

  template <typename T>
  static auto& At(T& by_value, ValueId v) {
    return by_value[static_cast<size_t>(v)];
  }
  const TensorType& TypeOf(ValueId v) const { return At(g_.values, v).type; }

  void OfInput(const InputExtent& e) {
    const auto input = static_cast<size_t>(e.input), told_by = static_cast<size_t>(e.told_by);
    std::optional<ExtentBound>& limit = At(found_.limits, g_.inputs[told_by]);
    const auto hidden = g_.inputs.size() - static_cast<size_t>(g_.hidden_inputs);
    const TensorType& type = TypeOf(g_.inputs[input]);
    limit = ExtentItself(static_cast<int>(told_by - hidden), e.least, type.shape[static_cast<size_t>(e.axis)]);
    At(found_.of, g_.inputs[input]).push_back(UnreadAlong(type, e.axis, *limit));
  }

  void Forward(const Group& group) {
    absl::StatusOr<Extracted> kernel = Extract(g_, group);
    if (!kernel.ok()) return;
    Step& step = steps_.emplace_back();
    step.kernel = *std::move(kernel);
    const auto index = static_cast<size_t>(&group - g_.groups.data());
    const bool is_scheduled = index < schedules_.size() && !schedules_[index].params.empty();
    if (is_scheduled) step.schedule = &schedules_[index];
    step.facts = FactsOf(g_, step.kernel, found_);
    absl::StatusOr<ir::Func> stages = BuildStages(step.kernel.workload);
    if (!stages.ok()) return;
    step.stages = *std::move(stages);
    const bool any = std::ranges::any_of(
        step.facts, [](const OperandFacts& f) { return !f.behind.empty() || f.limit || f.numbers.most; });
    if (!any) return;
    const BehindFacts facts(*step.stages, step.facts);
    const ir::Buffer& output = step.stages->params.back();
    At(found_.of, step.kernel.output) = facts.Of(output);
    At(found_.numbers, step.kernel.output) = facts.NumbersOf(output);
    std::optional<ExtentBound>& limit = At(found_.limits, step.kernel.output);
    limit = facts.BoundOf(output);
    const std::optional<NumberRange> sum = facts.SumOf(output);
    if (!sum || sum->least < 0 || found_.extents.size() >= kMostExtents) return;
    limit = ExtentItself(static_cast<int>(found_.extents.size()), sum->least, sum->most);
    found_.extents.push_back(step.kernel.output);
    made_.push_back(static_cast<int>(steps_.size()) - 1);
  }

  // A slice reads a part of an axis alone, and none of it in runs that have no more of an extent than `place` says;
  // there 0 says that all read it.
  struct PartRead {
    int64_t axis, end;
    std::map<int, int64_t> place;  // by extent
  };

  // From the outputs to the inputs: what nobody reads need not be made, nor what only that is made of.
  void FindUnread() {
    unread_.resize(g_.values.size());
    parts_.resize(g_.values.size());
    for (size_t i = 0; i < g_.outputs.size(); ++i) Meet(g_.outputs[i], OfOutput(static_cast<int>(i)));
    for (int i = static_cast<int>(steps_.size()); i-- > 0;) Backward(i);
    for (const InputExtent& e : g_.input_extents) Add(g_.inputs[static_cast<size_t>(e.input)], -1);
  }

  // Those of which nobody reads anything behind any end, nor takes it for a place.
  void FindUnreadInputs() {
    std::set<int> ended, read;
    for (const InputExtent& e : g_.input_extents) {
      ended.insert(e.input);
      if (!IsUnread(e)) read.insert(e.input);
    }
    for (const int input : ended) {
      const ValueId v = g_.inputs[static_cast<size_t>(input)];
      found_.unread_inputs[static_cast<size_t>(input)] =
          !read.contains(input) && !found_.places[static_cast<size_t>(v)];
    }
  }

  // Behind this end.
  bool IsUnread(const InputExtent& e) const {
    const ValueId v = g_.inputs[static_cast<size_t>(e.input)];
    const std::optional<ExtentBound>& limit = At(found_.limits, g_.inputs[static_cast<size_t>(e.told_by)]);
    const Unread& unread = At(unread_, v);
    if (!limit || !unread) return false;
    const Behind own = UnreadAlong(TypeOf(v), e.axis, *limit);
    return std::ranges::any_of(*unread, [&](const Behind& b) {
      const std::optional<Behind> both = BehindBoth(own, b);
      return both && Text(*both) == Text(own);
    });
  }

  // An output whose end along its outermost axis another output tells; within that one its elements lie dense.
  std::vector<Behind> OfOutput(int output) const {
    const ValueId v = g_.outputs[static_cast<size_t>(output)];
    for (const Extent& e : g_.extents) {
      if (e.output != output) continue;
      const std::optional<ExtentBound>& limit = At(found_.limits, g_.outputs[static_cast<size_t>(e.told_by)]);
      const Shape& shape = TypeOf(v).shape;
      const bool is_line = NumElements(std::span(shape).first(static_cast<size_t>(e.axis))) == 1;
      if (limit && is_line) return {UnreadAlong(TypeOf(v), e.axis, *limit)};
    }
    return {};
  }

  void Backward(int at) {
    const Step& step = steps_[static_cast<size_t>(at)];
    Add(step.kernel.output, at);
    std::vector<std::vector<Behind>> unread(step.kernel.inputs.size());
    const Workload::Call& first = step.kernel.workload.calls[0];
    if (std::optional<PartRead> part = PartReadBy(step)) {
      At(parts_, step.kernel.inputs[0]).push_back(*std::move(part));
      return;
    }
    if (FindOp(first.op)->counted) {
      unread[0] = OfCounted(step, first.attrs.Int("axis", 0));
    } else if (step.stages) {
      FindUnreadOperands(step, unread);
    }
    for (size_t i = 0; i < unread.size(); ++i) Meet(step.kernel.inputs[i], std::move(unread[i]));
  }

  void FindUnreadOperands(const Step& step, std::vector<std::vector<Behind>>& unread) const {
    const std::vector<bool> mixed = MixedOperands(step.kernel.workload);
    const bool is_place = found_.places[static_cast<size_t>(step.kernel.output)];
    const std::vector<Behind> output = is_place ? std::vector<Behind>() : At(found_.of, step.kernel.output);
    std::set<int> extents;
    for (const Behind& b : output) extents.insert(b.extent);
    for (const OperandFacts& f : step.facts) {
      for (const Behind& b : f.behind) extents.insert(b.extent);
      if (f.limit) extents.insert(f.limit->extent);
      if (f.numbers.most) extents.insert(f.numbers.most->extent);
    }
    for (const int extent : extents) {
      const auto here = UnreadOperands(*step.stages, step.facts, output, extent, Schedules::kAny);
      std::vector<std::optional<Behind>> by_loops(unread.size());
      if (step.schedule != nullptr && !is_place)
        by_loops = UnreadOperands(*step.schedule, step.facts, output, extent, Schedules::kThisOne);
      for (size_t i = 0; i < unread.size(); ++i) {
        const std::optional<Behind> beyond = here[i] && mixed[i] ? BeyondTiles(*here[i]) : here[i];
        if (by_loops[i]) by_loops[i] = InShape(*by_loops[i], TypeOf(step.kernel.inputs[i]).PhysicalShape());
        if (const std::optional<Behind> most = MoreOf(beyond, by_loops[i])) unread[i].push_back(*most);
      }
    }
  }

  // Of an operand of which only what lies before a number is read. Lines keep their order within.
  std::vector<Behind> OfCounted(const Step& step, int64_t axis) const {
    const std::optional<ExtentBound>& limit = At(found_.limits, step.kernel.inputs[1]);
    const TensorType& type = TypeOf(step.kernel.inputs[0]);
    const int64_t along = axis < 0 ? axis + std::ssize(type.shape) : axis;
    std::vector<Behind> unread;
    if (limit) unread.push_back(UnreadAlong(type, along, *limit));
    const auto node = std::ranges::find(g_.nodes, step.kernel.output, &Node::output);
    if (const std::optional<Lines> lines = LinesOf(g_, *node, along)) {
      const std::optional<ExtentBound>& told = At(found_.limits, g_.outputs[static_cast<size_t>(lines->told_by)]);
      if (told) unread.push_back(UnreadAlong(type, lines->axis, *told));
    }
    if (!type.perm.empty()) return unread;  // the axis is not that of the index then
    for (const Behind& output : At(found_.of, step.kernel.output)) {
      const Behind b = InShape(output, type.PhysicalShape());
      const auto moved = std::span(b.index).first(static_cast<size_t>(along) + 1);
      const bool within = std::ranges::none_of(moved, [&](const ir::Var& v) { return ir::UsesVar(b.place, v); });
      if (b.kind == Behind::kUnread && within) unread.push_back(b);
    }
    return unread;
  }

  // nullopt: it is no such slice, or it is not whole steps that it does not read.
  std::optional<PartRead> PartReadBy(const Step& step) const {
    const Workload& w = step.kernel.workload;
    if (w.calls.size() != 1 || FindOp(w.calls[0].op)->move != Move::kSlices) return std::nullopt;
    const Attrs& attrs = w.calls[0].attrs;
    const std::vector<int64_t> axes = attrs.Ints("axes"), steps = attrs.Ints("steps", {1});
    const Shape& whole = TypeOf(step.kernel.inputs[0]).shape;
    if (axes.size() != 1 || steps != std::vector<int64_t>{1}) return std::nullopt;
    const int64_t axis = axes[0] < 0 ? axes[0] + std::ssize(whole) : axes[0], most = whole[static_cast<size_t>(axis)];
    const int64_t end = attrs.Ints("ends")[0];
    PartRead part{axis, end < 0 ? end + most : std::min(end, most)};
    for (const Behind& b : At(found_.of, step.kernel.output)) {
      if (b.kind != Behind::kUnread) continue;
      const std::optional<int64_t> place = ir::AsInt(b.place);
      if (!place) return std::nullopt;
      part.place[b.extent] = std::max<int64_t>(0, *place);
    }
    return part;
  }

  // What none of the slices of a value reads.
  std::vector<Behind> UnreadByParts(ValueId v) const {
    const std::vector<PartRead>& parts = At(parts_, v);
    std::set<int> extents;
    for (const PartRead& part : parts) {
      for (const auto& [extent, place] : part.place) extents.insert(extent);
    }
    std::vector<Behind> unread;
    for (const int extent : extents) {
      int64_t least = kFar;
      bool along = true;
      for (const PartRead& part : parts) {
        const auto place = part.place.find(extent);
        const int64_t own = place == part.place.end() ? 0 : place->second;
        least = std::min(least, own);
        along = along && part.axis == parts[0].axis && own >= part.end - 1;
      }
      const std::optional<ExtentBound>& limit = At(found_.limits, found_.extents[static_cast<size_t>(extent)]);
      if ((!along && least == 0) || !limit) continue;
      unread.push_back(UnreadAlong(TypeOf(v), parts[0].axis, *limit));
      if (!along) unread.back().place = ir::Expr(least);
    }
    return unread;
  }

  // One more reads the value, but for what lies behind.
  void Meet(ValueId v, std::vector<Behind> behind) {
    Unread& unread = At(unread_, v);
    if (!unread) {
      unread = std::move(behind);
      return;
    }
    std::vector<Behind> both;
    for (const Behind& a : *unread) {
      for (const Behind& b : behind) {
        if (std::optional<Behind> met = BehindBoth(a, b)) both.push_back(*std::move(met));
      }
    }
    unread = std::move(both);
  }

  // What is not read of a value all of whose readers are known now, as far as the step that makes it can know the end.
  void Add(ValueId v, int step) {
    if (!At(parts_, v).empty()) Meet(v, UnreadByParts(v));
    const Unread& unread = At(unread_, v);
    if (!unread || found_.places[static_cast<size_t>(v)]) return;
    std::vector<Behind>& facts = At(found_.of, v);
    for (const Behind& b : *unread) {
      const bool known = std::ranges::any_of(
          facts, [&](const Behind& f) { return f.kind == Behind::kUnread && f.extent == b.extent; });
      if (!known && made_[static_cast<size_t>(b.extent)] < step) facts.push_back(b);
    }
  }

  const Graph& g_;
  const std::span<const ir::Func> schedules_;
  GraphBehind found_;
  std::vector<Step> steps_;                   // in order
  std::vector<int> made_;                     // by extent: the step that makes it; -1: it is an input
  std::vector<std::vector<PartRead>> parts_;  // by value
  std::vector<Unread> unread_;                // by value, as far as its readers are known
};

}  // namespace

std::vector<OperandFacts> FactsOf(const Graph& g, const Extracted& kernel, const GraphBehind& behind) {
  std::vector<OperandFacts> facts;
  for (ValueId id : kernel.inputs) {
    const Value& v = g.values[static_cast<size_t>(id)];
    const bool known = v.constant.has_value() && v.type.shape.empty();
    WholeNumbers numbers = behind.numbers[static_cast<size_t>(id)];
    numbers.natural = numbers.natural || IsNatural(v);
    facts.push_back({.behind = behind.of[static_cast<size_t>(id)],
                     .constant = v.is_constant,
                     .counts = Counts(v),
                     .number = known ? std::optional(v.constant->At(0)) : std::nullopt,
                     .limit = behind.limits[static_cast<size_t>(id)],
                     .numbers = std::move(numbers)});
  }
  return facts;
}

GraphBehind BehindOf(const Graph& g, std::span<const ir::Func> schedules) {
  if (!g.input_extents.empty()) return Finder(g, schedules).Find();
  GraphBehind nothing;
  nothing.of.resize(g.values.size());
  nothing.limits.resize(g.values.size());
  nothing.numbers.resize(g.values.size());
  nothing.places.resize(g.values.size(), false);
  nothing.unread_inputs.resize(g.inputs.size(), false);
  return nothing;
}

namespace {

// The same number under its first name.
ValueId Original(const Graph& g, ValueId v) {
  const auto makes = [&](const Node& node) { return node.output == v && FindOp(node.op)->move == Move::kSame; };
  for (auto maker = std::ranges::find_if(g.nodes, makes); maker != g.nodes.end();
       maker = std::ranges::find_if(g.nodes, makes))
    v = maker->inputs[0];
  return v;
}

// Up to how many of `most` elements along an axis lines were moved to the front.
struct Moved {
  int64_t most;
  ValueId extent;
};
Moved MovedBy(const Graph& g, const Node& counted) {
  const Shape& shape = g.values[static_cast<size_t>(counted.inputs[0])].type.shape;
  const int64_t axis = counted.attrs.Int("axis", 0);
  return {shape[static_cast<size_t>(axis < 0 ? axis + std::ssize(shape) : axis)], Original(g, counted.inputs[1])};
}

// Whether an output is told to have as many along an axis of its own for each.
bool IsTold(const Graph& g, int output, const std::vector<Moved>& moved) {
  const Shape& shape = g.values[static_cast<size_t>(g.outputs[static_cast<size_t>(output)])].type.shape;
  std::set<int64_t> taken;
  return std::ranges::all_of(moved, [&](const Moved& m) {
    return std::ranges::any_of(g.extents, [&](const Extent& e) {
      return e.output == output && shape[static_cast<size_t>(e.axis)] == m.most &&
             Original(g, g.outputs[static_cast<size_t>(e.told_by)]) == m.extent && taken.insert(e.axis).second;
    });
  });
}

// Whether the value, of which this was moved, is read as an output alone that is told to have as many. Lines of lines:
// an output of so many along both axes has none of those that were moved behind the last one.
bool IsToldToEnd(const Graph& g, ValueId v, const std::vector<Moved>& moved) {
  bool told = false;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.outputs[i] != v) continue;
    told = IsTold(g, static_cast<int>(i), moved);
    if (!told) return false;
  }
  for (const Node& node : g.nodes) {
    if (std::ranges::find(node.inputs, v) == node.inputs.end()) continue;
    const OpDef& op = *FindOp(node.op);
    std::vector<Moved> all = moved;
    if (op.counted && node.inputs[1] != v) all.push_back(MovedBy(g, node));
    told = (op.move == Move::kReshapes || all.size() > moved.size()) && IsToldToEnd(g, node.output, all);
    if (!told) return false;
  }
  return told;
}

}  // namespace

bool EndsWithItsLines(const Graph& g, const Node& counted) {
  return IsToldToEnd(g, counted.output, {MovedBy(g, counted)});
}

}  // namespace temper
