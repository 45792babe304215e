// Tensors with some of their elements replaced by updates or combined with them. Where the places are known and updates
// replace, a gather from the tensor and its updates says which element comes from where.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

// How updates of one place are combined with what is there, as scatter_reduce says it; empty: the last one stays alone.
absl::StatusOr<std::string> ReductionOf(Context& c, const OnnxNode& n) {
  static constexpr std::pair<std::string_view, std::string_view> kReductions[] = {
      {"none", ""}, {"add", "sum"}, {"mul", "product"}, {"min", "least"}, {"max", "largest"}};
  const std::string name = n.String("reduction", "none");
  for (const auto& [onnx, reduction] : kReductions) {
    if (onnx != name) continue;
    if (!reduction.empty() && c.TypeOf(n.Input(0)).dtype == DType::kBool)
      return absl::UnimplementedError(absl::StrCat("reduction '", name, "' of booleans is not supported"));
    return std::string(reduction);
  }
  return absl::InvalidArgumentError("reduction is 'none', 'add', 'mul', 'min' or 'max'");
}

// `data` with its updates along `axis`: scatter in compiler/ops/families/sequential.cc.
absl::StatusOr<ValueId> Scattered(Context& c, ValueId data, ValueId at, ValueId updates, int64_t axis,
                                  const std::string& reduction) {
  Attrs attrs;
  attrs.Set("axis", axis);
  if (reduction.empty()) return c.Call("scatter", std::move(attrs), {data, at, updates});
  attrs.Set("reduction", reduction);
  return c.Call("scatter_reduce", std::move(attrs), {data, at, updates});
}

// Slices of `data`, [places, slice], with updates [n, slice] of those at the places `at`, [n].
absl::StatusOr<ValueId> ScatterSlices(Context& c, ValueId data, ValueId at, ValueId updates,
                                      const std::string& reduction) {
  if (c.Known(at) == nullptr || !reduction.empty()) return Scattered(c, data, at, updates, 0, reduction);
  TEMPER_ASSIGN_OR_RETURN(const Ints places, c.KnownInts(at, "indices"));
  const int64_t count = c.ShapeOf(data)[0];
  Ints source(static_cast<size_t>(count));
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int64_t>(i);
  // Of several updates of one place the last one stays.
  for (size_t i = 0; i < places.size(); ++i) source[static_cast<size_t>(places[i])] = count + static_cast<int64_t>(i);
  TEMPER_ASSIGN_OR_RETURN(ValueId both, c.Concat({data, updates}, 0));
  return GatherFlat(c, both, c.IntVector(source), c.ShapeOf(both));
}

// Indices and updates of [..., n] to the shape of `data` but for the last axis. What is added names no place.
absl::Status PadToLines(Context& c, const Shape& data, ValueId& at, ValueId& updates) {
  const size_t rank = data.size();
  Ints pads(2 * rank, 0);
  for (size_t d = 0; d + 1 < rank; ++d) pads[rank + d] = data[d] - c.ShapeOf(at)[d];
  if (std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; })) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(at, c.Pad(at, pads, -1));
  TEMPER_ASSIGN_OR_RETURN(updates, c.Pad(updates, pads));
  return absl::OkStatus();
}

// Makes axes whole along which all three vary alike, beside the last one: in lines behind an end, indices and updates
// are of nothing. Those axes.
absl::StatusOr<Varyings> MakeLinesWhole(Context& c, ValueId& data, ValueId& at, ValueId& updates) {
  Varyings lines;
  for (const Varying own : Varyings(c.VaryingsOf(data))) {
    const Varying *places = c.VaryingAlong(at, own.axis), *values = c.VaryingAlong(updates, own.axis);
    const bool alike = places != nullptr && values != nullptr && *places == own && *values == own;
    if (own.axis == c.Rank(data) - 1 || !alike) continue;
    for (ValueId* v : {&data, &at, &updates}) {
      TEMPER_ASSIGN_OR_RETURN(*v, WholeAlong(c, *v, own.axis));
    }
    lines.push_back(own);
  }
  return lines;
}

// Indices along `axis` that only the run knows: each line of the axis has its own.
absl::StatusOr<ValueId> ScatterAlong(Context& c, const OnnxNode& n, int64_t axis, const std::string& reduction) {
  const size_t rank = c.ShapeOf(n.Input(0)).size();
  const Ints to_back = MovedAxis(rank, axis, static_cast<int64_t>(rank) - 1);
  const Ints back = MovedAxis(rank, static_cast<int64_t>(rank) - 1, axis);
  TEMPER_ASSIGN_OR_RETURN(ValueId data, c.Transpose(n.Input(0), to_back));
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, data, "ScatterElements"));
  const Varying* along = c.VaryingAlong(data, c.Rank(data) - 1);
  TEMPER_ASSIGN_OR_RETURN(ValueId at,
                          Inside(c, n.Input(1), c.ShapeOf(data).back(), along != nullptr ? along->extent : kNoValue));
  TEMPER_ASSIGN_OR_RETURN(at, c.Transpose(at, to_back));
  TEMPER_ASSIGN_OR_RETURN(ValueId updates, c.Transpose(n.Input(2), to_back));
  Varyings lines;
  if (c.VaryingsOf(data).size() > 1) {
    TEMPER_ASSIGN_OR_RETURN(lines, MakeLinesWhole(c, data, at, updates));
  }
  TEMPER_RETURN_IF_ERROR(CutUpdates(c, data, at, updates));
  const Shape shape = c.ShapeOf(data);
  TEMPER_RETURN_IF_ERROR(PadToLines(c, shape, at, updates));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Scattered(c, data, at, updates, static_cast<int64_t>(rank) - 1, reduction));
  c.AddVaryings(v, lines);
  return c.Transpose(v, back);
}

absl::Status ScatterElements(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const std::string reduction, ReductionOf(c, n));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  if (c.ShapeOf(n.Input(2)) != c.ShapeOf(n.Input(1)))
    return absl::InvalidArgumentError("the updates are as many as the indices name");
  for (const Varying& v : c.VaryingsOf(n.Input(1))) {
    const size_t d = static_cast<size_t>(v.axis);
    if (v.axis != axis && d < shape.size() &&
        c.ShapeOf(n.Input(1))[d] > shape[d])  // fewer may be found than there is room for
      TEMPER_RETURN_IF_ERROR(MustBeKnown(c, n.Input(1), "ScatterElements"));
  }
  TEMPER_RETURN_IF_ERROR(CheckReach(shape, c.ShapeOf(n.Input(1)), axis));
  const int64_t count = NumElements(shape), number = NumElements(c.ShapeOf(n.Input(1)));
  if (count == 0 || number == 0) return c.Set(n, n.Input(0));
  if (c.Known(n.Input(1)) == nullptr || c.Varies(n.Input(0))) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, ScatterAlong(c, n, axis, reduction));
    return c.Set(n, v);
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId at, PlacesOfElements(c, shape, n.Input(1), axis));
  TEMPER_ASSIGN_OR_RETURN(const ValueId flat, c.Reshape(at, {number}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId data, c.Reshape(n.Input(0), {count, 1}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId updates, c.Reshape(n.Input(2), {number, 1}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, ScatterSlices(c, data, flat, updates, reduction));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  return c.Set(n, v);
}

// Makes places, [n], and updates, [m, slice], as many: those that one of them does not have go nowhere. A model that
// runs has as many of both, but perhaps not as much room for them.
absl::Status MakeAsMany(Context& c, ValueId& at, ValueId& updates) {
  if (c.VaryingsOf(at) == c.VaryingsOf(updates) && c.ShapeOf(at)[0] == c.ShapeOf(updates)[0]) return absl::OkStatus();
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, at, "ScatterND"));
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, updates, "ScatterND"));
  TEMPER_ASSIGN_OR_RETURN(at, Filled(c, at, -1));
  TEMPER_ASSIGN_OR_RETURN(const Varyings ends, MakeWhole(c, updates));
  const int64_t room = std::min(c.ShapeOf(at)[0], c.ShapeOf(updates)[0]);
  TEMPER_ASSIGN_OR_RETURN(at, c.Slice(at, 0, 0, room));
  TEMPER_ASSIGN_OR_RETURN(updates, c.Slice(updates, 0, 0, room));
  if (ends.empty()) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const ValueId there, WithinExtent(c, ends[0], room));
  TEMPER_ASSIGN_OR_RETURN(at, c.Call("where", {}, {there, at, c.Scalar(DType::kI64, -1)}));
  return absl::OkStatus();
}

constexpr int64_t kNoAxis = -1;

// Where an axis of `shape` was before a reshape that adds axes of one element or takes some away; kNoAxis: it is one of
// those. nullopt: another reshape.
std::optional<int64_t> AxisBefore(const Shape& from, const Shape& shape, int64_t axis) {
  const auto longer = [](const Shape& all) {
    Ints axes;
    for (size_t d = 0; d < all.size(); ++d) {
      if (all[d] != 1) axes.push_back(static_cast<int64_t>(d));
    }
    return axes;
  };
  const Ints old = longer(from), now = longer(shape);
  const auto extent = [](const Shape& all) { return [&all](int64_t d) { return all[static_cast<size_t>(d)]; }; };
  if (!std::ranges::equal(old, now, {}, extent(from), extent(shape))) return std::nullopt;
  const auto at = std::ranges::find(now, axis);
  return at == now.end() ? kNoAxis : old[static_cast<size_t>(at - now.begin())];
}

// The same of the node that gives `shape` and moves no element along the axis to another place.
std::optional<int64_t> AxisBefore(const Node& node, const Shape& from, const Shape& shape, int64_t axis) {
  if (node.op == "identity" || axis == kNoAxis) return axis;
  if (node.op == "reshape") return AxisBefore(from, shape, axis);
  if (node.op == "expand") {
    const int64_t before = axis + std::ssize(from) - std::ssize(shape);
    const int64_t extent = before < 0 ? 1 : from[static_cast<size_t>(before)];
    if (extent != shape[static_cast<size_t>(axis)]) return std::nullopt;
    return before < 0 ? kNoAxis : before;
  }
  if (node.op != "slice") return std::nullopt;
  const Ints axes = node.attrs.Ints("axes"), starts = node.attrs.Ints("starts"), steps = node.attrs.Ints("steps");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || (axes[i] == axis && (starts[i] != 0 || (!steps.empty() && steps[i] != 1)))) return std::nullopt;
  }
  return axis;
}

// Whether each element is its own index along an axis, however many there are in a run: numbers that were counted, and
// spread.
bool IsIndexAlong(Context& c, ValueId v, int64_t axis) {
  constexpr int kMostSteps = 32;
  constexpr int64_t kMostCounted = int64_t{1} << 22;
  for (int step = 0; step < kMostSteps; ++step) {
    const Shape shape = c.ShapeOf(v);
    if (const std::optional<NDArray>& known = c.graph().values[static_cast<size_t>(v)].constant) {
      const bool all_zero = axis == kNoAxis;
      const int64_t inner = all_zero ? 1 : NumElements(std::span(shape).subspan(static_cast<size_t>(axis) + 1));
      const int64_t extent = all_zero ? 1 : shape[static_cast<size_t>(axis)];
      bool same = known->size() <= kMostCounted;
      for (int64_t i = 0; same && i < known->size(); ++i) {
        same = known->At(i) == static_cast<double>(i / inner % extent);
      }
      return same;
    }
    const std::optional<Node> made = c.MakerOf(v);
    const bool moves = made.has_value() && !made->inputs.empty();
    const std::optional<int64_t> before =
        moves ? AxisBefore(*made, c.ShapeOf(made->inputs[0]), shape, axis) : std::nullopt;
    if (!before.has_value()) return false;
    v = made->inputs[0], axis = *before;
  }
  return false;
}

// Whether indices name each element of `data` where it lies, as exporters write an assignment to all of it.
bool NameAllInPlace(Context& c, ValueId data, ValueId indices) {
  Shape beside = c.ShapeOf(indices);
  const int64_t names = beside.empty() ? 0 : beside.back(), rank = c.Rank(data);
  if (names != rank || c.Rank(indices) != rank + 1 || c.VaryingsOf(indices) != c.VaryingsOf(data)) return false;
  beside.pop_back();
  const std::optional<Node> made = c.MakerOf(indices);
  const bool joins = made.has_value() && made->op == "concat" && std::ssize(made->inputs) == rank;
  if (beside != c.ShapeOf(data) || !joins || made->attrs.Int("axis", 0) != rank) return false;
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (!IsIndexAlong(c, made->inputs[static_cast<size_t>(axis)], axis)) return false;
  }
  return true;
}

absl::Status ScatterNd(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const std::string reduction, ReductionOf(c, n));
  if (reduction.empty() && c.Varies(n.Input(0)) && c.ShapeOf(n.Input(2)) == shape &&
      c.VaryingsOf(n.Input(2)) == c.VaryingsOf(n.Input(0)) && NameAllInPlace(c, n.Input(0), n.Input(1)))
    return c.Set(n, n.Input(2));
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(0), "ScatterND"));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(1), {-1}, "ScatterND"));
  ValueId data = n.Input(0), updates = n.Input(2);
  TEMPER_ASSIGN_OR_RETURN(const Varyings own, MakeWhole(c, data));
  size_t names = 0;
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesOfSlices(c, shape, n.Input(1), &names, own));
  for (const Varying& v : own) {
    // Slices are as long as the data's.
    const int64_t axis = v.axis - static_cast<int64_t>(names) + c.Rank(at);
    const Varying* there = v.axis < static_cast<int64_t>(names) ? nullptr : c.VaryingAlong(updates, axis);
    if (there != nullptr && there->extent != v.extent) return MustBeKnown(c, updates, "ScatterND");
    TEMPER_ASSIGN_OR_RETURN(updates, there != nullptr ? WholeAlong(c, updates, axis) : updates);
  }
  const int64_t count = NumElements(std::span(shape).first(names)),
                slice = NumElements(std::span(shape).subspan(names));
  const int64_t number = NumElements(c.ShapeOf(at)), given = NumElements(c.ShapeOf(updates));
  const bool counted = c.Varies(at) || c.Varies(updates);
  if (slice > 0 && (given % slice != 0 || (given != number * slice && !counted)))
    return absl::InvalidArgumentError("the updates are as many as the indices name");
  if (count * slice == 0 || number == 0 || given == 0) return c.Set(n, n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(at, c.Reshape(at, {number}));
  TEMPER_ASSIGN_OR_RETURN(data, c.Reshape(data, {count, slice}));
  TEMPER_ASSIGN_OR_RETURN(updates, c.Reshape(updates, {given / slice, slice}));
  TEMPER_RETURN_IF_ERROR(MakeAsMany(c, at, updates));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, ScatterSlices(c, data, at, updates, reduction));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  c.AddVaryings(v, own);
  return c.Set(n, v);
}

// Where each batch element's update begins along the axis, [batch, 1] of i64.
absl::StatusOr<ValueId> WriteIndices(Context& c, const OnnxNode& n, int64_t batch, int64_t last, bool circular) {
  const ValueId given = n.Input(2);
  if (given == kNoValue) return c.Constant(NDArray(DType::kI64, {batch, 1}));
  if (c.ShapeOf(given) != Shape{batch}) return absl::InvalidArgumentError("there is one write index a batch element");
  if (c.Known(given) != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const Ints known, c.KnownInts(given, "write_indices"));
    if (std::any_of(known.begin(), known.end(), [&](int64_t i) { return i < 0 || (!circular && i > last); }))
      return absl::InvalidArgumentError("a write index leads out of the cache");
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId at, c.Cast(given, DType::kI64));
  return c.Reshape(at, {batch, 1});
}

// A cache with a run of new steps in it, which begins elsewhere for each batch element.
absl::Status TensorScatter(Context& c, const OnnxNode& n) {
  const Shape cache = c.ShapeOf(n.Input(0));
  Shape fitting = c.ShapeOf(n.Input(1));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", -2), c.Rank(n.Input(0))));
  const std::string mode = n.String("mode", "linear");
  if (axis == 0 || (mode != "linear" && mode != "circular"))
    return absl::InvalidArgumentError("the axis is not the batch's, and mode is 'linear' or 'circular'");
  const size_t along = static_cast<size_t>(axis);
  const int64_t steps = fitting.size() == cache.size() ? fitting[along] : 0, extent = cache[along];
  if (steps > 0) fitting[along] = extent;
  if (fitting != cache || steps < 1 || steps > extent)
    return absl::InvalidArgumentError("the update has the cache's shape, but for fewer steps");
  const bool circular = mode == "circular";
  TEMPER_ASSIGN_OR_RETURN(const ValueId first, WriteIndices(c, n, cache[0], extent - steps, circular));
  Formula f(c, DType::kI64);
  const ValueId own = Counting(c, DType::kI64, {1, extent});
  ValueId step = f.Sub(own, first);
  if (circular) step = f.Call("mod", {step, f.Number(static_cast<double>(extent))});
  if (steps == 1 && !circular) {  // the one step stands for itself wherever it is written
    Shape along_axis(cache.size(), 1);
    along_axis[0] = cache[0], along_axis[along] = extent;
    TEMPER_ASSIGN_OR_RETURN(const ValueId here, c.Reshape(f.Call("equal", {own, first}), std::move(along_axis)));
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("where", {}, {here, n.Input(1), n.Input(0)}));
    return c.Set(n, v);
  }
  const ValueId begun = f.Call("less_equal", {f.Number(0), step});
  const ValueId going = f.Call("less", {step, f.Number(static_cast<double>(steps))});
  const ValueId fresh = f.Call("and", {begun, going});
  const ValueId source = f.Call("where", {fresh, f.Plus(step, static_cast<double>(extent)), own});
  TEMPER_RETURN_IF_ERROR(f.status());
  const Ints forward = MovedAxis(cache.size(), axis, 1), back = MovedAxis(cache.size(), 1, axis);
  TEMPER_ASSIGN_OR_RETURN(const ValueId past, c.Transpose(n.Input(0), forward));
  TEMPER_ASSIGN_OR_RETURN(const ValueId update, c.Transpose(n.Input(1), forward));
  TEMPER_ASSIGN_OR_RETURN(const ValueId both, c.Concat({past, update}, 1));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherInLines(c, both, source));
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, back));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> ScatterTable() {
  static constexpr TableEntry kTable[] = {{"ScatterElements", ScatterElements, 3, Extents::kAlongAnyAxis},
                                          {"Scatter", ScatterElements, 3, Extents::kAlongAnyAxis},
                                          {"ScatterND", ScatterNd, 3, Extents::kAlongAnyAxis},
                                          {"TensorScatter", TensorScatter, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
