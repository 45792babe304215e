#include "compiler/frontend/onnx/extents.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;
using Result = absl::StatusOr<std::optional<Varying>>;  // nullopt: the axis is gone

absl::Status Refused(std::string_view op) {
  return absl::UnimplementedError(absl::StrCat(
      "an operand has as many elements along an axis as only the run knows, which ", std::string(op), " must know"));
}

// The same along another axis.
Varying Along(int64_t axis, Varying v) {
  v.axis = axis;
  return v;
}

// Whether a model that runs has as many of both, wherever their axes are: they are the same number where they are
// largest, as their shapes say. Where one of them may be 1, that might stand for many in some models; of ranges that
// have names of their own it is no length that is taken then.
bool Agree(Context& c, const Varying& one, const Varying& other) {
  if (Along(other.axis, one) == other) return true;
  const bool several = c.LeastOf(one.extent) > 1 && c.LeastOf(other.extent) > 1;
  const bool of_ranges = IsOfRanges(c, one.extent) && IsOfRanges(c, other.extent);
  const bool folded = one.line != kNoValue;
  if ((!several && !of_ranges) || one.lines != other.lines || folded != (other.line != kNoValue)) return false;
  c.MustAgree(one.extent, other.extent);
  if (folded) c.MustAgree(one.line, other.line);
  return true;
}

// All but that along the axis.
Varyings Without(const Varyings& all, int64_t axis) {
  Varyings rest = all;
  std::erase_if(rest, [axis](const Varying& v) { return v.axis == axis; });
  return rest;
}

int64_t FromFront(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

bool Names(const Ints& axes, int64_t axis, int64_t rank) {
  return std::ranges::any_of(axes, [&](int64_t a) { return FromFront(a, rank) == axis; });
}

// What a reduction may find behind the end without a trace; nullopt: nothing is.
std::optional<double> Neutral(std::string_view op, DType dtype) {
  // The extremes of 64 bits are no doubles, and what is beyond them becomes them.
  const bool exact = !IsFloat(dtype) && Info(dtype).bits <= 32;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (op == "reduce_sum" || op == "reduce_l2") return 0;
  if (op == "reduce_prod") return 1;
  if (op == "reduce_max" || op == "arg_max" || op == "softmax" || op == "log_softmax")
    return exact ? Lowest(dtype) : -kInfinity;
  if (op == "reduce_min" || op == "arg_min") return exact ? Largest(dtype) : kInfinity;
  return std::nullopt;
}

// The axes that a reduction combines, or a normalisation over one axis.
Ints Combined(const Attrs& attrs, int64_t rank) {
  if (attrs.Has("axis")) return {attrs.Int("axis", 0)};
  Ints axes = attrs.Ints("axes");
  return axes.empty() ? AxesFrom(0, rank) : axes;
}

bool Scatters(std::string_view op) { return op == "scatter" || op == "scatter_reduce"; }
bool CombinesAxes(std::string_view op) { return op.starts_with("reduce_") || op.starts_with("arg_"); }
bool KeepsAxes(std::string_view op) { return op == "softmax" || op == "log_softmax"; }

// A node, and what its operands have. Operands may vary along several axes. Those that meet in one axis of the result
// are looked at together, as if nothing else varied.
class Rule {
 public:
  Rule(Context& c, const Node& node) : c_(c), node_(node), op_(*FindOp(node.op)), result_(c.ShapeOf(node.output)) {}

  absl::StatusOr<Varyings> Find() {
    Varyings all;
    for (auto& [where, met] : Meetings()) {
      met_ = std::move(met);
      TEMPER_ASSIGN_OR_RETURN(const std::optional<Varying> one, FindOne());
      if (!one.has_value()) continue;
      if (std::ranges::count(all, one->axis, &Varying::axis) > 0) return Refused(node_.op);
      all.push_back(*one);
      if (one->lines == 1) all.back().extent = c_.PlainOf(one->extent);
    }
    return all;
  }

 private:
  using Met = std::vector<const Varying*>;  // by operand; null: it does not vary there

  // Where operands vary: by the axis, counted from the last one, and the operand, where others do not meet it.
  std::map<std::pair<int64_t, size_t>, Met> Meetings() const {
    constexpr size_t kAll = SIZE_MAX;
    std::map<std::pair<int64_t, size_t>, Met> meetings;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] == kNoValue) continue;
      for (const Varying& v : c_.VaryingsOf(node_.inputs[i])) {
        const int64_t from_back = v.axis - std::ssize(ShapeAt(i));
        const bool meets = IsAligned() || op_.move == Move::kConcatenates || (node_.op == "matmul" && from_back < -2);
        auto where = std::pair(from_back, meets ? kAll : i);
        if (Scatters(node_.op)) where = {0, kAll};
        Met& met = meetings.try_emplace(where, node_.inputs.size()).first->second;
        met[i] = &v;
      }
    }
    return meetings;
  }

  bool IsAligned() const {
    return op_.pattern == OpPattern::kElementwise || node_.op == "expand" || op_.move == Move::kSame;
  }

  Result FindOne() {
    if (IsAligned()) return Aligned();
    // Of most operators only the first operand may vary.
    if (met_[0] == nullptr && node_.op != "matmul" && op_.move != Move::kConcatenates && op_.move != Move::kPicks)
      return Refused(node_.op);
    switch (op_.move) {
      case Move::kReshapes:
        return Reshaped();
      case Move::kTransposes:
        return Transposed();
      case Move::kSlices:
        return Sliced();
      case Move::kConcatenates:
        return Concatenated();
      case Move::kPicks:
        return Picked();
      case Move::kSame:
      case Move::kNone:
        break;
    }
    if (CombinesAxes(node_.op)) return Reduced();
    if (KeepsAxes(node_.op) || node_.op == "cum_sum") return BesideOne();
    if (node_.op == "layer_norm") return Before(FromFront(node_.attrs.Int("axis", -1), c_.Rank(node_.inputs[0])));
    if (node_.op == "top_k") return Before(c_.Rank(node_.inputs[0]) - 1);
    if (node_.op == "matmul") return Multiplied();
    if (Scatters(node_.op)) return Scattered();
    if (node_.op == "tile") return Tiled();
    if (node_.op == "pad") return Padded();
    if (node_.op == "unfold_planes") return Unfolded();
    if (op_.windows || node_.op == "conv2d" || node_.op == "group_norm" ||
        (node_.op == "resize" && result_[0] == ShapeAt(0)[0]))
      return Before(1);
    return Refused(node_.op);
  }

  const Varying* At(size_t i) const { return met_[i]; }
  bool Agree(const Varying& a, const Varying& b) const { return a.axis == b.axis && onnx_frontend::Agree(c_, a, b); }
  const Shape& ShapeAt(size_t i) const { return c_.ShapeOf(node_.inputs[i]); }

  // Of operands that are aligned at their last axes: along the varying one each other has one element, or the same
  // extent.
  Result Aligned() const {
    std::optional<Varying> found;
    const int64_t rank = std::ssize(result_);
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] == kNoValue || At(i) == nullptr) continue;
      const Varying v = Along(At(i)->axis + rank - std::ssize(ShapeAt(i)), *At(i));
      // One element, perhaps, that stands for many.
      if (ShapeAt(i)[static_cast<size_t>(At(i)->axis)] != result_[static_cast<size_t>(v.axis)])
        return Refused(node_.op);
      if (found.has_value() && !Agree(*found, v)) return Refused(node_.op);
      if (!found.has_value()) found = v;
    }
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] == kNoValue || At(i) != nullptr) continue;
      const Shape& shape = ShapeAt(i);
      if (op_.per_channel && i > 0 && shape.size() == 1) {
        if (found->axis == 1) return Refused(node_.op);
        continue;
      }
      const int64_t axis = found->axis + std::ssize(shape) - rank;
      if (axis >= 0 && shape[static_cast<size_t>(axis)] != 1) return Refused(node_.op);
    }
    return found;
  }

  // The axis stays one, takes in axes behind it, or is parted where its extent is whole parts.
  Result Reshaped() const {
    const Varying v = *At(0);
    const Shape from = ShapeAt(0);
    if (from == result_) return v;
    const int64_t most = from[static_cast<size_t>(v.axis)];
    for (size_t d = 0; d < result_.size() && most > 1; ++d) {
      if (result_[d] < most && !IsWhole(v.extent, most, result_[d])) continue;
      TEMPER_ASSIGN_OR_RETURN(const std::optional<Varying> moved, MovedTo(c_, v, from, result_, d));
      if (moved.has_value() && moved->lines == v.lines && moved->line == v.line) return moved;
    }
    return Refused(node_.op);
  }

  // Whether the extent, `most` at most, is whole parts, of which there are `parts` at most.
  bool IsWhole(ValueId extent, int64_t most, int64_t parts) const {
    const auto multiple = c_.MultipleOf(extent);
    return parts > 0 && most % parts == 0 && multiple.has_value() && multiple->second % (most / parts) == 0;
  }

  // Whole volumes stay whole.
  Result Unfolded() const {
    const Varying v = *At(0);
    const int64_t planes = ShapeAt(0)[0], volumes = planes / node_.attrs.Int("depth", 1);
    if (v.axis != 0 || v.lines > 1 || !IsWhole(v.extent, planes, volumes)) return Refused(node_.op);
    TEMPER_ASSIGN_OR_RETURN(const ValueId extent, ScaledExtent(c_, v.extent, result_[0], planes));
    return Varying{0, extent};
  }

  Result Transposed() const {
    const Ints perm = node_.attrs.Ints("perm");
    return Along(std::ranges::find(perm, At(0)->axis) - perm.begin(), *At(0));
  }

  // Along the axis itself, what is behind some first elements, or each of so many: up to a number of them, or to one of
  // the last.
  Result Sliced() const {
    const Varying v = *At(0);
    const int64_t rank = c_.Rank(node_.inputs[0]), length = result_[static_cast<size_t>(v.axis)];
    const int64_t most = ShapeAt(0)[static_cast<size_t>(v.axis)];
    const Ints axes = node_.attrs.Ints("axes"), starts = node_.attrs.Ints("starts"), ends = node_.attrs.Ints("ends");
    const Ints steps = node_.attrs.Ints("steps");
    for (size_t i = 0; i < axes.size(); ++i) {
      if (FromFront(axes[i], rank) != v.axis) continue;
      const int64_t step = steps.empty() ? 1 : steps[i];
      if (starts[i] < 0 || step < 1) return Refused(node_.op);
      if (starts[i] == 0 && length == most) return v;
      if (v.lines > 1) return Refused(node_.op);
      if (ends[i] < 0 || ends[i] >= most) {
        const int64_t missing = ends[i] < 0 ? std::max(ends[i], -most) : 0;
        TEMPER_ASSIGN_OR_RETURN(const ValueId left, StopsOf(c_, v.extent, missing - starts[i] - 1, step));
        return Varying{v.axis, left};
      }
      if (c_.LeastOf(v.extent) >= ends[i]) return std::nullopt;  // they are always there
      TEMPER_ASSIGN_OR_RETURN(ValueId left, StopsOf(c_, v.extent, -starts[i] - 1, step));
      const ValueId all = c_.Scalar(DType::kI64, static_cast<double>(length));
      TEMPER_ASSIGN_OR_RETURN(left, c_.Call("min", {}, {left, all}));
      return Varying{v.axis, left};
    }
    return v;
  }

  Result Concatenated() const {
    std::optional<Varying> found;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const Varying* v = At(i);
      if (v == nullptr || v->axis == FromFront(node_.attrs.Int("axis", 0), std::ssize(result_)) ||
          (found.has_value() && !Agree(*found, *v)))
        return Refused(node_.op);
      if (!found.has_value()) found = *v;
    }
    return found;
  }

  Result Picked() const {
    const int64_t axis = FromFront(node_.attrs.Int("axis", 0), c_.Rank(node_.inputs[0])),
                  added = c_.Rank(node_.inputs[1]);
    std::optional<Varying> found;
    if (At(1) != nullptr) found = Along(axis + At(1)->axis, *At(1));
    if (At(0) == nullptr || At(0)->axis == axis) return found;
    return Along(At(0)->axis + (At(0)->axis > axis ? added - 1 : 0), *At(0));
  }

  Result Reduced() const {
    const Varying v = *At(0);
    const int64_t rank = c_.Rank(node_.inputs[0]);
    const Ints axes = Combined(node_.attrs, rank);
    if (Names(axes, v.axis, rank)) return Refused(node_.op);
    if (node_.attrs.Int("keepdims", 1) != 0) return v;
    int64_t gone = 0;
    for (int64_t axis = 0; axis < v.axis; ++axis) gone += Names(axes, axis, rank) ? 1 : 0;
    return Along(v.axis - gone, v);
  }

  // Along other axes.
  Result Padded() const {
    const Ints pads = node_.attrs.Ints("pads");
    const size_t axis = static_cast<size_t>(At(0)->axis);
    if (pads[axis] != 0 || pads[axis + pads.size() / 2] != 0) return Refused(node_.op);
    return Before(std::ssize(result_));
  }

  // Along other axes.
  Result Tiled() const {
    if (node_.attrs.Ints("repeats")[static_cast<size_t>(At(0)->axis)] != 1) return Refused(node_.op);
    return *At(0);
  }

  // As many as there were. Places and updates have the axes before the scattered one, and updates those behind it.
  Result Scattered() const {
    const int64_t axis = FromFront(node_.attrs.Int("axis", 0), std::ssize(result_));
    const auto agrees = [&](size_t i, bool has) {
      return has ? At(i) != nullptr && *At(i) == *At(0) : At(i) == nullptr;
    };
    for (const ValueId v : node_.inputs) {
      if (c_.VaryingsOf(v).size() > 1) return Refused(node_.op);
    }
    if (!agrees(1, At(0)->axis < axis) || !agrees(2, At(0)->axis != axis)) return Refused(node_.op);
    return *At(0);
  }

  Result BesideOne() const {
    const int64_t rank = c_.Rank(node_.inputs[0]);
    // A running sum from the front sees nothing behind its element.
    const bool along = FromFront(node_.attrs.Int("axis", KeepsAxes(node_.op) ? -1 : 0), rank) == At(0)->axis;
    if (along && (node_.op != "cum_sum" || node_.attrs.Int("reverse", 0) != 0 || At(0)->lines > 1))
      return Refused(node_.op);
    return *At(0);
  }

  // Of the first operand alone, along one of its first axes.
  Result Before(int64_t axis) const {
    for (size_t i = 1; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] != kNoValue && At(i) != nullptr) return Refused(node_.op);
    }
    if (At(0)->axis >= axis) return Refused(node_.op);
    return *At(0);
  }

  // Rows of the first operand, columns of the second, or matrices of either where the other has one for all or as many.
  Result Multiplied() const {
    const size_t with = At(0) != nullptr ? 0 : 1;
    if (with == 0 && At(1) != nullptr) {
      const int64_t first = At(0)->axis - std::ssize(ShapeAt(0)), second = At(1)->axis - std::ssize(ShapeAt(1));
      if (first != second || first >= -2 || !Agree(*At(0), *At(1))) return Refused(node_.op);
      return Along(std::ssize(result_) + first, *At(0));
    }
    const Varying v = *At(with);
    const int64_t rank = std::ssize(ShapeAt(with)), from_back = v.axis - rank, result = std::ssize(result_);
    const bool transposed = node_.attrs.Int(with == 0 ? "trans_a" : "trans_b", 0) != 0;
    if (from_back >= -2) {
      const bool first = (from_back == -2) != transposed;
      if (first != (with == 0)) return Refused(node_.op);
      return Along(result - (with == 0 ? 2 : 1), v);
    }
    const Shape& other = ShapeAt(1 - with);
    const int64_t there = std::ssize(other) + from_back;
    if (there >= 0 && other[static_cast<size_t>(there)] != 1) return Refused(node_.op);
    return Along(result + from_back, v);
  }

  Context& c_;
  const Node node_;
  const OpDef& op_;
  const Shape result_;
  Met met_;
};

// Where elements lie that are counted one behind another, of lines of `length` that begin every `apart` elements.
absl::StatusOr<ValueId> PlacesInLines(Context& c, ValueId at, ValueId length, int64_t apart) {
  const auto number = [&c](int64_t n) { return c.Scalar(DType::kI64, static_cast<double>(n)); };
  TEMPER_ASSIGN_OR_RETURN(length, c.Call("max", {}, {length, number(1)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId line, c.Call("div", {}, {at, length}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId gap, c.Call("sub", {}, {number(apart), length}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId skipped, c.Call("mul", {}, {line, gap}));
  return c.Call("add", {}, {at, skipped});
}

// Where the elements of an axis of `most` lie that indices name, which count what there is.
absl::StatusOr<ValueId> PlacesAlong(Context& c, const Varying& v, int64_t most, ValueId indices) {
  TEMPER_ASSIGN_OR_RETURN(ValueId at, c.Cast(indices, DType::kI64));
  TEMPER_ASSIGN_OR_RETURN(at, CountedFromFront(c, at, v.extent));
  if (v.lines == 1) return at;
  TEMPER_ASSIGN_OR_RETURN(const ValueId own, LineOf(c, v));
  return PlacesInLines(c, at, own, most / v.lines);
}

// Whether it is known to be zero behind its end along the axis, as what softmax makes of one element or more is, unless
// the product is no number anyway.
bool IsZeroBehind(Context& c, ValueId v, int64_t axis) {
  constexpr int kMostSteps = 16;
  const Varying end = *c.VaryingAlong(v, axis);
  for (int step = 0; step < kMostSteps; ++step) {
    const std::optional<Node> made = c.MakerOf(v);
    if (!made.has_value()) return false;
    if (made->op == "softmax") {
      const Varying* own = c.VaryingAlong(v, FromFront(made->attrs.Int("axis", -1), c.Rank(v)));
      return own != nullptr && *own == end && c.LeastOf(end.extent) > 0;
    }
    if (made->op != "identity" && made->op != "cast") return false;
    v = made->inputs[0];
  }
  return false;
}

// As FilledAlong, before the elements were moved, where that is known: there it is a part of the kernel that made them.
absl::StatusOr<ValueId> FilledBeforeMoves(Context& c, ValueId v, int64_t axis, double value, int moves = 4) {
  const std::optional<Node> made = moves > 0 ? c.MakerOf(v) : std::nullopt;
  std::optional<int64_t> from;  // the axis before the move
  if (made.has_value() && made->op == "transpose") from = made->attrs.Ints("perm")[static_cast<size_t>(axis)];
  if (made.has_value() && made->op == "reshape") {
    const Shape old = c.ShapeOf(made->inputs[0]);
    const Varyings olds = c.VaryingsOf(made->inputs[0]);
    for (const Varying& own : olds) {
      TEMPER_ASSIGN_OR_RETURN(const std::optional<Varying> moved,
                              MovedTo(c, own, old, c.ShapeOf(v), static_cast<size_t>(axis)));
      // The same elements, with others behind them or not.
      if (moved == *c.VaryingAlong(v, axis) && moved->extent == own.extent) from = own.axis;
    }
  }
  if (!from.has_value() || c.VaryingAlong(made->inputs[0], *from) == nullptr) return FilledAlong(c, v, axis, value);
  Varyings rest = Without(c.VaryingsOf(v), axis);
  TEMPER_ASSIGN_OR_RETURN(const ValueId filled, FilledBeforeMoves(c, made->inputs[0], *from, value, moves - 1));
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole(made->op, made->attrs, {filled}));
  c.SetVaryings(v, std::move(rest));
  return v;
}

// Readies factors that are multiplied over an axis whose extent varies: behind the end are zeros.
absl::Status FillReduced(Context& c, const Attrs& attrs, std::vector<ValueId>& factors) {
  const int64_t a = c.Rank(factors[0]) - (attrs.Int("trans_a", 0) != 0 ? 2 : 1);
  const int64_t b = c.Rank(factors[1]) - (attrs.Int("trans_b", 0) != 0 ? 1 : 2);
  const Varying *one = c.VaryingAlong(factors[0], a), *other = c.VaryingAlong(factors[1], b);
  if (one == nullptr && other == nullptr) return absl::OkStatus();
  if (one == nullptr || other == nullptr || !Agree(c, *one, *other)) return Refused("matmul");
  for (const auto& [factor, axis] : {std::pair(&factors[0], a), {&factors[1], b}}) {
    TEMPER_ASSIGN_OR_RETURN(*factor, IsZeroBehind(c, *factor, axis) ? WholeAlong(c, *factor, axis)
                                                                    : FilledBeforeMoves(c, *factor, axis, 0));
  }
  return absl::OkStatus();
}

// `v` with so many of the second axis of its elements' shape `as`, in which they lie one behind another then.
absl::StatusOr<ValueId> Compacted(Context& c, ValueId v, Shape as, ValueId count) {
  if (as[0] == 1) return v;
  const Shape shape = c.ShapeOf(v);
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole("identity", {}, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(as)));
  Attrs along;
  along.Set("axis", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole("compact", std::move(along), {v, count}));
  return c.Reshape(v, shape);
}

}  // namespace

absl::StatusOr<Varyings> PrepareVarying(Context& c, std::string_view op, const Attrs& attrs,
                                        std::vector<ValueId>& inputs) {
  if ((op == "div" || op == "mod") && !IsFloat(c.TypeOf(inputs[1]).dtype)) {
    // Nobody reads the quotients behind the end, but a division by zero ends the program, and so does that of the
    // lowest number by -1.
    for (const size_t i : {0, 1}) {
      Varyings own = c.VaryingsOf(inputs[i]);
      TEMPER_ASSIGN_OR_RETURN(inputs[i], Filled(c, inputs[i], static_cast<double>(i)));
      if (!own.empty()) c.SetVaryings(inputs[i], std::move(own));
    }
  }
  if (Scatters(op)) {
    TEMPER_RETURN_IF_ERROR(CutUpdates(c, inputs[0], inputs[1], inputs[2]));
    return Varyings{};
  }
  if (op == "matmul") {
    TEMPER_RETURN_IF_ERROR(FillReduced(c, attrs, inputs));
    return Varyings{};
  }
  const int64_t rank = c.Rank(inputs[0]);
  if (op == "cum_sum" && attrs.Int("reverse", 0) != 0) {
    const Varying* along = c.VaryingAlong(inputs[0], FromFront(attrs.Int("axis", 0), rank));
    if (along == nullptr || along->lines > 1) return Varyings{};
    Varyings own = {*along};
    TEMPER_ASSIGN_OR_RETURN(inputs[0], FilledAlong(c, inputs[0], own[0].axis, 0));
    return own;
  }
  const Ints combined = KeepsAxes(op) ? Ints{attrs.Int("axis", -1)} : Combined(attrs, rank);
  Varyings kept;
  for (const Varying v : Varyings(c.VaryingsOf(inputs[0]))) {
    // What is behind the end may be as extreme as what is before it, and comes last.
    const bool last = attrs.Int("select_last_index", 0) != 0;
    if (op.starts_with("arg_") && (last || v.lines > 1) && Names(combined, v.axis, rank)) return Refused(op);
    if (op == "gather" && FromFront(attrs.Int("axis", 0), rank) == v.axis) {
      TEMPER_ASSIGN_OR_RETURN(inputs[1],
                              PlacesAlong(c, v, c.ShapeOf(inputs[0])[static_cast<size_t>(v.axis)], inputs[1]));
      continue;
    }
    const std::optional<double> neutral = Neutral(op, c.TypeOf(inputs[0]).dtype);
    if (!neutral.has_value() || !Names(combined, v.axis, rank)) continue;
    TEMPER_ASSIGN_OR_RETURN(inputs[0], FilledAlong(c, inputs[0], v.axis, *neutral));
    if (KeepsAxes(op)) kept.push_back(v);
  }
  return kept;
}

bool CombinesVarying(Context& c, const Attrs& attrs, ValueId x) {
  const int64_t rank = c.Rank(x);
  const Ints combined = Combined(attrs, rank);
  return IsFloat(c.TypeOf(x).dtype) &&
         std::ranges::any_of(c.VaryingsOf(x), [&](const Varying& v) { return Names(combined, v.axis, rank); });
}

absl::StatusOr<ValueId> MeanOf(Context& c, const Attrs& attrs, ValueId x) {
  const DType dtype = c.TypeOf(x).dtype, wide = SizeOf(dtype) < 4 ? DType::kF32 : dtype;
  const int64_t rank = c.Rank(x);
  double known = 1;
  std::vector<ValueId> extents;
  for (const int64_t axis : Combined(attrs, rank)) {
    const int64_t at = FromFront(axis, rank);
    const Varying* v = c.VaryingAlong(x, at);
    if (v != nullptr) extents.push_back(v->extent);
    if (v == nullptr) known *= static_cast<double>(c.ShapeOf(x)[static_cast<size_t>(at)]);
  }
  ValueId count = c.Scalar(wide, known);
  for (ValueId extent : extents) {
    TEMPER_ASSIGN_OR_RETURN(extent, c.Cast(extent, wide));
    TEMPER_ASSIGN_OR_RETURN(count, c.Call("mul", {}, {count, extent}));
  }
  // Of nothing it is zero.
  TEMPER_ASSIGN_OR_RETURN(count, c.Call("max", {}, {count, c.Scalar(wide, 1)}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Cast(x, wide));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("reduce_sum", attrs, {v}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {v, count}));
  return c.Cast(v, dtype);
}

absl::StatusOr<Varyings> VaryingsOfResult(Context& c, const Node& node) { return Rule(c, node).Find(); }

absl::Status MustBeOneLine(Context& c, ValueId v, std::string_view what) {
  const bool has_more = std::ranges::any_of(c.VaryingsOf(v), [](const Varying& own) { return own.lines > 1; });
  return has_more ? Refused(what) : absl::OkStatus();
}

Result MovedTo(Context& c, const Varying& v, std::span<const int64_t> from, std::span<const int64_t> shape, size_t to) {
  // Lines in all, and the elements of each of them.
  const size_t at = static_cast<size_t>(v.axis);
  const int64_t all = NumElements(from.first(at)) * v.lines, before = NumElements(shape.first(to));
  const int64_t most = from[at] / v.lines;
  if (before < 1 || all % before != 0) return std::nullopt;
  const int64_t lines = all / before, length = shape[to] / std::max<int64_t>(lines, 1);
  const bool fits = lines > 0 && length * lines == shape[to] && length > 0 && (length > 1 || most == 1) &&
                    (length % most == 0 || most % length == 0);
  if (v.line != kNoValue)
    return fits && shape[to] == from[at] ? Result(Along(static_cast<int64_t>(to), v)) : std::nullopt;
  if (!fits) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(const ValueId extent, ScaledExtent(c, v.extent, shape[to], from[at]));
  return Varying{static_cast<int64_t>(to), extent, lines};
}

absl::StatusOr<ValueId> WithinExtent(Context& c, const Varying& varying, int64_t most) {
  TEMPER_RETURN_IF_ERROR(CheckPlaces({most}));
  const std::string what = absl::StrCat("within extent ", varying.extent, " in ", varying.lines, " of ", most,
                                        varying.line == kNoValue ? "" : absl::StrCat(", each ", varying.line));
  if (const ValueId known = c.Made(what); known != kNoValue) return known;
  const int64_t room = most / varying.lines;
  const auto less = [&](auto number, ValueId end) {
    NDArray numbers(DType::kI64, {most});
    for (int64_t i = 0; i < most; ++i) numbers.as<int64_t>()[static_cast<size_t>(i)] = number(i);
    return c.Call("less", {}, {c.Constant(std::move(numbers)), end});
  };
  TEMPER_ASSIGN_OR_RETURN(const ValueId length, LineOf(c, varying));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, less([room](int64_t i) { return i % room; }, length));
  if (varying.counted != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId counts, less([room](int64_t i) { return i / room; }, varying.counted));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("and", {}, {v, counts}));
  }
  c.KeepMade(what, v);
  return v;
}

absl::StatusOr<ValueId> LyingAlong(Context& c, ValueId vector, int64_t axis, ValueId like) {
  Shape along(static_cast<size_t>(c.Rank(like) - axis), 1);
  along[0] = c.ShapeOf(vector)[0];
  return c.Reshape(vector, std::move(along));
}

namespace {
std::string FilledTold(ValueId v, int64_t axis, double value) {
  return absl::StrCat(v, " has ", value, " behind its end along ", axis);
}
}  // namespace

absl::StatusOr<ValueId> FilledToVary(Context& c, ValueId v, int64_t axis, double value) {
  const Varyings own = c.VaryingsOf(v);
  TEMPER_ASSIGN_OR_RETURN(v, FilledAlong(c, v, axis, value));
  c.SetVaryings(v, own);
  c.KeepMade(FilledTold(v, axis, value), v);
  return v;
}

absl::StatusOr<ValueId> FilledAlong(Context& c, ValueId v, int64_t axis, double value) {
  const Varying* varying = c.VaryingAlong(v, axis);
  if (varying == nullptr) return v;
  if (c.Made(FilledTold(v, axis, value)) == v) return WholeAlong(c, v, axis);
  Varyings rest = Without(c.VaryingsOf(v), axis);
  TEMPER_ASSIGN_OR_RETURN(ValueId within, WithinExtent(c, *varying, c.ShapeOf(v)[static_cast<size_t>(axis)]));
  TEMPER_ASSIGN_OR_RETURN(within, LyingAlong(c, within, axis, v));
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole("where", {}, {within, v, c.Scalar(c.TypeOf(v).dtype, value)}));
  c.SetVaryings(v, std::move(rest));
  return v;
}

absl::StatusOr<ValueId> Filled(Context& c, ValueId v, double value) {
  for (const Varying varying : Varyings(c.VaryingsOf(v))) {
    TEMPER_ASSIGN_OR_RETURN(v, FilledAlong(c, v, varying.axis, value));
  }
  return v;
}

absl::StatusOr<ValueId> WholeAlong(Context& c, ValueId v, int64_t axis) {
  if (c.VaryingAlong(v, axis) == nullptr) return v;
  Varyings rest = Without(c.VaryingsOf(v), axis);
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole("identity", {}, {v}));
  c.SetVaryings(v, std::move(rest));
  return v;
}

absl::Status CutUpdates(Context& c, ValueId data, ValueId& at, ValueId& updates) {
  const Varyings &places = c.VaryingsOf(at), &own = c.VaryingsOf(data);
  const auto lines = [&] { return own == places && own[0].axis + 1 < c.Rank(at); };
  if (places.empty()) return absl::OkStatus();
  if (places.size() > 1) return Refused("a scatter");
  if (lines()) return absl::OkStatus();
  if (c.VaryingsOf(updates) != places) return Refused("a scatter of other updates");
  TEMPER_ASSIGN_OR_RETURN(at, Filled(c, at, -1));
  TEMPER_ASSIGN_OR_RETURN(updates, c.CallWhole("identity", {}, {updates}));
  return absl::OkStatus();
}

absl::StatusOr<ValueId> ScaledExtent(Context& c, ValueId extent, int64_t factor, int64_t divisor) {
  if (factor == 0 || divisor == 0) return c.Scalar(DType::kI64, 0);
  // Of one that is a multiple already, the number that it is one of.
  if (const auto multiple = c.MultipleOf(extent); multiple.has_value()) {
    if (multiple->second > kMostExtent / factor) return Refused("a multiple of a multiple");
    extent = multiple->first;
    factor *= multiple->second;
  }
  const int64_t common = std::gcd(factor, divisor);
  factor /= common;
  divisor /= common;
  ValueId scaled = extent;
  if (factor != 1) {
    const std::string what = absl::StrCat("extent ", extent, " mul ", factor);
    scaled = c.Made(what);
    if (scaled == kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(scaled, c.Call("mul", {}, {extent, c.Scalar(DType::kI64, static_cast<double>(factor))}));
      c.SetMultiple(scaled, extent, factor);
      if (const int64_t most = c.MostOf(extent); most > 0) c.SetMost(scaled, most * factor);
      c.SetLeast(scaled, c.LeastOf(extent) * factor);
      c.KeepMade(what, scaled);
    }
  }
  return divisor == 1 ? scaled : StopsOf(c, scaled, -divisor, divisor);
}

absl::StatusOr<ValueId> ProductOfExtents(Context& c, ValueId one, ValueId other) {
  // Of multiples it is a multiple: whatever steps lead to one number, it is one value.
  const auto [of, times] = c.MultipleOf(one).value_or(std::pair(one, int64_t{1}));
  const auto [other_of, other_times] = c.MultipleOf(other).value_or(std::pair(other, int64_t{1}));
  if (times > 1 || other_times > 1) {
    if (times > kMostExtent / other_times) return Refused("a product of multiples");
    TEMPER_ASSIGN_OR_RETURN(const ValueId product, ProductOfExtents(c, of, other_of));
    return ScaledExtent(c, product, times * other_times, 1);
  }
  const std::string what = absl::StrCat("extent ", std::min(one, other), " times ", std::max(one, other));
  if (const ValueId known = c.Made(what); known != kNoValue) return known;
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("mul", {}, {one, other}));
  // 0: nobody knows.
  const auto product = [](int64_t a, int64_t b) { return b < 1 || a > kMostExtent / b ? 0 : a * b; };
  c.SetLeast(v, product(c.LeastOf(one), c.LeastOf(other)));
  if (const int64_t most = product(c.MostOf(one), c.MostOf(other)); most > 0) c.SetMost(v, most);
  c.KeepMade(what, v);
  return v;
}

absl::StatusOr<ValueId> LineOf(Context& c, const Varying& v) {
  if (v.line != kNoValue) return v.line;
  return ScaledExtent(c, v.extent, 1, v.lines);
}

bool IsOfRanges(Context& c, ValueId extent) {
  constexpr size_t kMostLooked = 64;
  const std::vector<ValueId>& inputs = c.graph().inputs;
  const auto hidden = inputs.end() - c.graph().hidden_inputs;
  std::vector<ValueId> open = {extent};
  for (size_t i = 0; i < open.size(); ++i) {
    if (c.Known(open[i]) != nullptr || std::find(hidden, inputs.end(), open[i]) != inputs.end()) continue;
    const std::optional<Node> made = c.MakerOf(open[i]);
    if (!made.has_value()) return false;
    open.insert(open.end(), made->inputs.begin(), made->inputs.end());
    if (open.size() > kMostLooked) break;
  }
  return true;
}

std::string StopsTold(ValueId extent, int64_t more, int64_t stride) {
  return absl::StrCat("stops in extent ", extent, " + ", more, " by ", stride);
}

absl::StatusOr<ValueId> StopsOf(Context& c, ValueId extent, int64_t more, int64_t stride) {
  // Stops in stops are stops of a longer stride: whatever steps lead to one number, it is one value.
  ValueId base = extent;
  const auto fits = [](int64_t n, int64_t times) { return std::abs(n) <= kMostExtent / times; };
  if (const auto inner = c.StopsIn(extent); inner && fits(stride, inner->stride) && fits(more + 1, inner->stride)) {
    base = inner->of;
    more = inner->more + inner->stride * (more + 1);
    stride *= inner->stride;
  }
  if (more == -1 && stride == 1) return base;
  // Of a multiple of the stride they are one each, and some more.
  if (const auto multiple = c.MultipleOf(base);
      multiple && stride > 1 && multiple->second % stride == 0 && more >= -stride) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId stops, ScaledExtent(c, multiple->first, multiple->second / stride, 1));
    return StopsOf(c, stops, (more + stride) / stride - 1, 1);
  }
  const std::string what = StopsTold(base, more, stride);
  if (const ValueId known = c.Made(what); known != kNoValue) return known;
  const auto number = [&](int64_t n) { return c.Scalar(DType::kI64, static_cast<double>(n)); };
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("add", {}, {base, number(more + stride)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("max", {}, {v, number(0)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {v, number(stride)}));
  const auto stops = [&](int64_t e) { return std::max<int64_t>(e + more + stride, 0) / stride; };
  if (const int64_t most = c.MostOf(base); most > 0) c.SetMost(v, stops(most));
  c.SetLeast(v, stops(c.LeastOf(base)));
  if (c.LeastOf(base) + more + stride >= 0) c.SetStops(v, {base, more, stride});
  c.KeepMade(what, v);
  return v;
}

absl::StatusOr<ValueId> Dense(Context& c, ValueId v) {
  const Varyings varyings = c.VaryingsOf(v);
  const Shape shape = c.ShapeOf(v);
  // From the outermost axis to the innermost: what is before an axis then has lines of a known length, and those that
  // count come first.
  for (const Varying& varying : varyings) {
    const size_t axis = static_cast<size_t>(varying.axis);
    const int64_t outer = NumElements(std::span(shape).first(axis)), room = shape[axis] / varying.lines;
    const Shape inner(shape.begin() + varying.axis + 1, shape.end());
    if (varying.counted != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(v, Compacted(c, v, {outer, varying.lines, room * NumElements(inner)}, varying.counted));
    }
    // Along an axis with lines there are more of them.
    Shape lines = {outer * varying.lines, room};
    lines.insert(lines.end(), inner.begin(), inner.end());
    TEMPER_ASSIGN_OR_RETURN(const ValueId own, LineOf(c, varying));
    TEMPER_ASSIGN_OR_RETURN(v, Compacted(c, v, std::move(lines), own));
  }
  c.SetVaryings(v, varyings);
  return v;
}

absl::Status MustBeKnown(Context& c, ValueId v, std::string_view what) {
  return c.Varies(v) ? Refused(what) : absl::OkStatus();
}

absl::Status MustBeKnownAlong(Context& c, ValueId v, const std::vector<int64_t>& axes, std::string_view what) {
  const bool varies =
      std::ranges::any_of(c.VaryingsOf(v), [&](const Varying& own) { return Names(axes, own.axis, c.Rank(v)); });
  return varies ? Refused(what) : absl::OkStatus();
}

absl::StatusOr<ValueId> FirstOf(Context& c, ValueId v, const Varying& count) {
  const int64_t room = c.ShapeOf(v)[static_cast<size_t>(count.axis)];
  const Varying* own = c.VaryingAlong(v, count.axis);
  if (own != nullptr && *own == count) return v;
  if (own != nullptr && own->lines > 1) return Refused("a slice");
  // Where there is room for all, values that are cut to one end agree.
  ValueId least = count.extent;
  const int64_t may_be = c.MostOf(count.extent);
  if (own != nullptr || may_be == 0 || may_be > room) {
    const ValueId most = own != nullptr ? own->extent : c.Scalar(DType::kI64, static_cast<double>(room));
    TEMPER_ASSIGN_OR_RETURN(least, c.Call("min", {}, {count.extent, most}));
  }
  Varyings varyings = Without(c.VaryingsOf(v), count.axis);
  varyings.push_back({count.axis, least});
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole("identity", {}, {v}));
  c.SetVaryings(v, std::move(varyings));
  return v;
}

}  // namespace temper::onnx_frontend
