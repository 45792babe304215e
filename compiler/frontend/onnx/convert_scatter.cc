// Tensors with some of their elements replaced by updates or combined with them. Where the places are known, a gather
// from the tensor and its updates says which element comes from where. Where only the run knows them, every place is
// compared with every index: vectors, and no order of writes that depends on the data.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

// How updates of one place are combined with what is there.
struct Combination {
  std::string_view onnx;
  const char* combine;   // of two; null: the last update stays alone
  const char* reduce;    // of many
  double neutral;        // changes no sum and no product; min and max have the element itself
  bool repeats = false;  // an element counts once however often it is taken
};
absl::StatusOr<Combination> CombinationOf(Context& c, const OnnxNode& n) {
  static constexpr Combination kCombinations[] = {{"none", nullptr, nullptr, 0},
                                                  {"add", "add", "reduce_sum", 0},
                                                  {"mul", "mul", "reduce_prod", 1},
                                                  {"min", "min", "reduce_min", 0, true},
                                                  {"max", "max", "reduce_max", 0, true}};
  const std::string name = n.String("reduction", "none");
  for (const Combination& r : kCombinations) {
    if (r.onnx != name) continue;
    if (r.combine != nullptr && c.TypeOf(n.Input(0)).dtype == DType::kBool)
      return absl::UnimplementedError(absl::StrCat("reduction '", name, "' of booleans is not supported"));
    return r;
  }
  return absl::InvalidArgumentError("reduction is 'none', 'add', 'mul', 'min' or 'max'");
}

absl::Status CheckSize(double compared) {
  if (compared <= static_cast<double>(kMostCompared)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("more than ", kMostCompared, " comparisons of places with indices"));
}

// Slices of `data`, [places, slice], of which those at the known places `at` are replaced by `updates`, [n, slice]: a
// gather from both, one behind the other. Of several updates of one place the last one stays.
absl::StatusOr<ValueId> Replaced(Context& c, ValueId data, const Ints& at, ValueId updates) {
  const int64_t count = c.ShapeOf(data)[0];
  Ints source(static_cast<size_t>(count));
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i < at.size(); ++i) source[static_cast<size_t>(at[i])] = count + static_cast<int64_t>(i);
  TEMPER_ASSIGN_OR_RETURN(ValueId both, c.Concat({data, updates}, 0));
  return GatherFlat(c, both, c.IntVector(source), c.ShapeOf(both));
}

// The same with a reduction. Each place that is named gets a row: the element itself, its updates and, as rows are of
// one length, what changes nothing.
absl::StatusOr<ValueId> CombinedWithKnown(Context& c, ValueId data, const Ints& at, ValueId updates,
                                          const Combination& r) {
  if (r.combine == nullptr) return Replaced(c, data, at, updates);
  const int64_t count = c.ShapeOf(data)[0], slice = c.ShapeOf(data)[1], number = std::ssize(at);
  std::map<int64_t, Ints> rows;
  size_t longest = 0;
  for (int64_t i = 0; i < number; ++i) {
    Ints& row = rows[at[static_cast<size_t>(i)]];
    if (row.empty()) row.push_back(at[static_cast<size_t>(i)]);
    row.push_back(count + i);
    longest = std::max(longest, row.size());
  }
  const int64_t named = std::ssize(rows), length = static_cast<int64_t>(longest);
  TEMPER_RETURN_IF_ERROR(CheckSize(static_cast<double>(named * length) * static_cast<double>(slice)));
  Ints sources, places;
  for (auto& [place, row] : rows) {
    row.resize(longest, r.repeats ? place : count + number);
    sources.insert(sources.end(), row.begin(), row.end());
    places.push_back(place);
  }
  NDArray neutral(c.TypeOf(data).dtype, {1, slice});
  for (int64_t i = 0; i < slice; ++i) neutral.Set(i, r.neutral);
  TEMPER_ASSIGN_OR_RETURN(ValueId all, c.Concat({data, updates, c.Constant(std::move(neutral))}, 0));
  TEMPER_ASSIGN_OR_RETURN(ValueId source, c.Reshape(c.IntVector(sources), {named, length}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherFlat(c, all, source, c.ShapeOf(all)));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce(r.reduce, v, {1}, false));
  return Replaced(c, data, places, v);
}

// Lines of slices, [lines, places, slice], with updates of [lines, n, slice] at places [lines, n] of their line.
absl::StatusOr<ValueId> CombinedAtRun(Context& c, ValueId data, ValueId at, ValueId updates, const Combination& r) {
  const int64_t lines = c.ShapeOf(data)[0], places = c.ShapeOf(data)[1], slice = c.ShapeOf(data)[2];
  const int64_t number = c.ShapeOf(at)[1];
  TEMPER_RETURN_IF_ERROR(CheckSize(static_cast<double>(lines * places) * static_cast<double>(number) *
                                   static_cast<double>(r.combine == nullptr ? 1 : slice)));
  Formula f(c, DType::kI32);
  TEMPER_ASSIGN_OR_RETURN(at, c.Cast(at, DType::kI32));
  if (r.combine == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(at, c.Reshape(at, {lines, 1, number}));
    const ValueId own = Counting(c, DType::kI32, {places, 1});
    // Updates come behind the data, so that the greatest number is the last update's.
    const ValueId behind = f.Plus(Counting(c, DType::kI32, {number}), static_cast<double>(places));
    const ValueId source = f.Call("where", {f.Call("equal", {at, own}), behind, own});
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(const ValueId last, c.Reduce("reduce_max", source, {2}, false));
    TEMPER_ASSIGN_OR_RETURN(const ValueId both, c.Concat({data, updates}, 1));
    return GatherInLines(c, both, last);
  }
  TEMPER_ASSIGN_OR_RETURN(at, c.Reshape(at, {lines, 1, number, 1}));
  TEMPER_ASSIGN_OR_RETURN(updates, c.Reshape(updates, {lines, 1, number, slice}));
  ValueId neutral = c.Scalar(c.TypeOf(data).dtype, r.neutral);
  if (r.repeats) {
    TEMPER_ASSIGN_OR_RETURN(neutral, c.Reshape(data, {lines, places, 1, slice}));
  }
  const ValueId hit = f.Call("equal", {at, Counting(c, DType::kI32, {places, 1, 1})});
  ValueId v = f.Call("where", {hit, updates, neutral});
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce(r.reduce, v, {2}, false));
  return c.Call(r.combine, {}, {data, v});
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

// Indices along `axis` that only the run knows are compared with the places of their line alone.
absl::StatusOr<ValueId> ScatterAlong(Context& c, const OnnxNode& n, int64_t axis, const Combination& r) {
  const size_t rank = c.ShapeOf(n.Input(0)).size();
  const Ints to_back = MovedAxis(rank, axis, static_cast<int64_t>(rank) - 1);
  const Ints back = MovedAxis(rank, static_cast<int64_t>(rank) - 1, axis);
  TEMPER_ASSIGN_OR_RETURN(ValueId data, c.Transpose(n.Input(0), to_back));
  TEMPER_ASSIGN_OR_RETURN(ValueId at, Inside(c, n.Input(1), c.ShapeOf(data).back()));
  TEMPER_ASSIGN_OR_RETURN(at, c.Transpose(at, to_back));
  TEMPER_ASSIGN_OR_RETURN(ValueId updates, c.Transpose(n.Input(2), to_back));
  const Shape shape = c.ShapeOf(data);
  TEMPER_RETURN_IF_ERROR(PadToLines(c, shape, at, updates));
  const int64_t lines = NumElements(std::span(shape).first(rank - 1)), number = c.ShapeOf(at).back();
  TEMPER_ASSIGN_OR_RETURN(data, c.Reshape(data, {lines, shape.back(), 1}));
  TEMPER_ASSIGN_OR_RETURN(at, c.Reshape(at, {lines, number}));
  TEMPER_ASSIGN_OR_RETURN(updates, c.Reshape(updates, {lines, number, 1}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, CombinedAtRun(c, data, at, updates, r));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  return c.Transpose(v, back);
}

absl::Status ScatterElements(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const Combination r, CombinationOf(c, n));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  if (c.ShapeOf(n.Input(2)) != c.ShapeOf(n.Input(1)))
    return absl::InvalidArgumentError("the updates are as many as the indices name");
  TEMPER_ASSIGN_OR_RETURN(const ValueId at, PlacesOfElements(c, shape, n.Input(1), axis));
  const int64_t count = NumElements(shape), number = NumElements(c.ShapeOf(at));
  if (count == 0 || number == 0) return c.Set(n, n.Input(0));
  if (c.Known(at) == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, ScatterAlong(c, n, axis, r));
    return c.Set(n, v);
  }
  TEMPER_ASSIGN_OR_RETURN(const Ints places, c.KnownInts(at, "indices"));
  TEMPER_ASSIGN_OR_RETURN(const ValueId data, c.Reshape(n.Input(0), {count, 1}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId updates, c.Reshape(n.Input(2), {number, 1}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, CombinedWithKnown(c, data, places, updates, r));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  return c.Set(n, v);
}

absl::Status ScatterNd(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const Combination r, CombinationOf(c, n));
  size_t names = 0;
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesOfSlices(c, shape, n.Input(1), &names));
  const int64_t count = NumElements(std::span(shape).first(names)),
                slice = NumElements(std::span(shape).subspan(names));
  const int64_t number = NumElements(c.ShapeOf(at));
  if (NumElements(c.ShapeOf(n.Input(2))) != number * slice)
    return absl::InvalidArgumentError("the updates are as many as the indices name");
  if (count * slice == 0 || number == 0) return c.Set(n, n.Input(0));
  ValueId v = kNoValue;
  if (c.Known(at) != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const Ints places, c.KnownInts(at, "indices"));
    TEMPER_ASSIGN_OR_RETURN(const ValueId data, c.Reshape(n.Input(0), {count, slice}));
    TEMPER_ASSIGN_OR_RETURN(const ValueId updates, c.Reshape(n.Input(2), {number, slice}));
    TEMPER_ASSIGN_OR_RETURN(v, CombinedWithKnown(c, data, places, updates, r));
  } else {
    TEMPER_ASSIGN_OR_RETURN(const ValueId data, c.Reshape(n.Input(0), {1, count, slice}));
    TEMPER_ASSIGN_OR_RETURN(const ValueId updates, c.Reshape(n.Input(2), {1, number, slice}));
    TEMPER_ASSIGN_OR_RETURN(at, c.Reshape(at, {1, number}));
    TEMPER_ASSIGN_OR_RETURN(v, CombinedAtRun(c, data, at, updates, r));
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
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
  static constexpr TableEntry kTable[] = {{"ScatterElements", ScatterElements, 3},
                                          {"Scatter", ScatterElements, 3},
                                          {"ScatterND", ScatterNd, 3},
                                          {"TensorScatter", TensorScatter, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
