// Operators that say by indices where elements come from or go to, and sums along an axis. All become gathers from flat
// tensors, comparisons and shifts.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/strides.h"
#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

absl::StatusOr<ValueId> GatherFlat(Context& c, ValueId from, ValueId at, Shape flat) {
  TEMPER_ASSIGN_OR_RETURN(from, c.Reshape(from, std::move(flat)));
  Attrs attrs;
  attrs.Set("axis", int64_t{0});
  return c.Call("gather", std::move(attrs), {from, at});
}

// Counted from the front and inside [0, extent): an error where an index that is known is outside, and its nearest
// neighbour where only the run knows it.
absl::StatusOr<ValueId> Inside(Context& c, ValueId at, int64_t extent) {
  TEMPER_ASSIGN_OR_RETURN(at, c.Cast(at, DType::kI64));
  if (c.Known(at) != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const Ints known, c.KnownInts(at, "indices"));
    for (const int64_t index : known) {
      if (index < -extent || index >= extent) return absl::InvalidArgumentError("an index is out of range");
    }
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId negative, c.Call("less", {}, {at, c.Scalar(DType::kI64, 0)}));
  TEMPER_ASSIGN_OR_RETURN(ValueId turned, c.Call("add", {}, {at, c.Scalar(DType::kI64, static_cast<double>(extent))}));
  TEMPER_ASSIGN_OR_RETURN(at, c.Call("where", {}, {negative, turned, at}));
  Attrs attrs;
  attrs.Set("min", 0.0);
  attrs.Set("max", static_cast<double>(extent - 1));
  return c.Call("clip", std::move(attrs), {at});
}

absl::StatusOr<ValueId> Scaled(Context& c, ValueId v, int64_t factor) {
  if (factor == 1) return v;
  return c.Call("mul", {}, {v, c.Scalar(DType::kI64, static_cast<double>(factor))});
}

// Index `i` along `axis` of each element of a tensor of `shape`, times `strides`, summed over all axes but `axis`.
NDArray PlacesBeside(const Shape& shape, const Ints& strides, size_t axis) {
  NDArray places(DType::kI64, shape);
  for (int64_t i = 0; i < places.size(); ++i) {
    int64_t place = 0, rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      if (d != axis) place += strides[d] * (rest % shape[d]);
    }
    places.as<int64_t>()[static_cast<size_t>(i)] = place;
  }
  return places;
}

// Where each element of GatherElements' result, or of ScatterElements' updates, lies in the flat tensor.
absl::StatusOr<ValueId> PlacesOfElements(Context& c, const OnnxNode& n) {
  const Shape data = c.ShapeOf(n.Input(0)), shape = c.ShapeOf(n.Input(1));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  const size_t along = static_cast<size_t>(axis);
  bool fits = data.size() == shape.size();
  for (size_t d = 0; fits && d < data.size(); ++d) fits = d == along || shape[d] <= data[d];
  if (!fits) return absl::InvalidArgumentError("the indices reach beyond the tensor");
  const Ints strides = RowMajorStrides(data);
  TEMPER_ASSIGN_OR_RETURN(ValueId at, Inside(c, n.Input(1), data[along]));
  TEMPER_ASSIGN_OR_RETURN(at, Scaled(c, at, strides[along]));
  return c.Call("add", {}, {at, c.Constant(PlacesBeside(shape, strides, along))});
}

absl::Status GatherElements(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesOfElements(c, n));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherFlat(c, n.Input(0), at, {NumElements(c.ShapeOf(n.Input(0)))}));
  return c.Set(n, v);
}

// The last axis of `indices` names the first axes of `data`: the places of what they name, in units of what is left of
// it. `names` is the number of named axes.
absl::StatusOr<ValueId> PlacesOfSlices(Context& c, const Shape& data, ValueId indices, size_t* names) {
  Shape shape = c.ShapeOf(indices);
  if (shape.empty() || shape.back() < 1 || shape.back() > static_cast<int64_t>(data.size()))
    return absl::InvalidArgumentError("the last axis of the indices is as long as the axes that they name");
  *names = static_cast<size_t>(shape.back());
  const int64_t last = c.Rank(indices) - 1;
  shape.pop_back();
  const Ints strides = RowMajorStrides(std::span(data).first(*names));
  ValueId sum = kNoValue;
  for (size_t d = 0; d < *names; ++d) {
    const int64_t at = static_cast<int64_t>(d);
    TEMPER_ASSIGN_OR_RETURN(ValueId one, c.Slice(indices, last, at, at + 1));
    TEMPER_ASSIGN_OR_RETURN(one, c.Reshape(one, shape));
    TEMPER_ASSIGN_OR_RETURN(one, Inside(c, one, data[d]));
    TEMPER_ASSIGN_OR_RETURN(one, Scaled(c, one, strides[d]));
    if (sum == kNoValue) {
      sum = one;
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(sum, c.Call("add", {}, {sum, one}));
  }
  return sum;
}

absl::Status GatherNd(Context& c, const OnnxNode& n) {
  if (n.Int("batch_dims", 0) != 0) return absl::UnimplementedError("batch_dims is not supported");
  const Shape data = c.ShapeOf(n.Input(0));
  size_t names = 0;
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesOfSlices(c, data, n.Input(1), &names));
  Shape flat = {NumElements(std::span(data).first(names))};
  flat.insert(flat.end(), data.begin() + static_cast<std::ptrdiff_t>(names), data.end());
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherFlat(c, n.Input(0), at, std::move(flat)));
  return c.Set(n, v);
}

// Slices of `data`, `count` of them, of which those at the known places `at` are replaced by slices of `updates`: a
// gather from both, one behind the other. Of several updates of one place the last one stays.
absl::Status Scatter(Context& c, const OnnxNode& n, ValueId at, int64_t count) {
  if (n.String("reduction", "none") != "none") return absl::UnimplementedError("only reduction 'none' is supported");
  TEMPER_ASSIGN_OR_RETURN(const Ints places, c.KnownInts(at, "indices"));
  const Shape shape = c.ShapeOf(n.Input(0));
  const int64_t slice = count > 0 ? NumElements(shape) / count : 0;
  if (NumElements(c.ShapeOf(n.Input(2))) != static_cast<int64_t>(places.size()) * slice)
    return absl::InvalidArgumentError("the updates are as many as the indices name");
  Ints source(static_cast<size_t>(count));
  std::iota(source.begin(), source.end(), 0);
  for (size_t i = 0; i < places.size(); ++i) source[static_cast<size_t>(places[i])] = count + static_cast<int64_t>(i);
  TEMPER_ASSIGN_OR_RETURN(ValueId data, c.Reshape(n.Input(0), {count, slice}));
  TEMPER_ASSIGN_OR_RETURN(ValueId updates, c.Reshape(n.Input(2), {static_cast<int64_t>(places.size()), slice}));
  TEMPER_ASSIGN_OR_RETURN(ValueId both, c.Concat({data, updates}, 0));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherFlat(c, both, c.IntVector(source), c.ShapeOf(both)));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
  return c.Set(n, v);
}

absl::Status ScatterElements(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesOfElements(c, n));
  return Scatter(c, n, at, NumElements(c.ShapeOf(n.Input(0))));
}

absl::Status ScatterNd(Context& c, const OnnxNode& n) {
  const Shape data = c.ShapeOf(n.Input(0));
  size_t names = 0;
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesOfSlices(c, data, n.Input(1), &names));
  return Scatter(c, n, at, NumElements(std::span(data).first(names)));
}

// An index outside [-depth, depth) is nowhere on.
absl::Status OneHot(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const Ints depths, c.KnownInts(n.Input(1), "depth"));
  if (depths.size() != 1 || depths[0] < 1) return absl::InvalidArgumentError("depth is one positive number");
  if (c.ShapeOf(n.Input(2)) != Shape{2}) return absl::InvalidArgumentError("values are two: off and on");
  const int64_t rank = c.Rank(n.Input(0)), depth = depths[0];
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", -1), rank + 1));
  TEMPER_ASSIGN_OR_RETURN(ValueId at, c.Cast(n.Input(0), DType::kI64));
  Shape apart = c.ShapeOf(at), along(static_cast<size_t>(rank) + 1, 1);
  apart.insert(apart.begin() + axis, 1);
  along[static_cast<size_t>(axis)] = depth;
  TEMPER_ASSIGN_OR_RETURN(at, c.Reshape(at, std::move(apart)));
  Ints numbers(static_cast<size_t>(depth));
  std::iota(numbers.begin(), numbers.end(), 0);
  TEMPER_ASSIGN_OR_RETURN(ValueId front, c.Reshape(c.IntVector(numbers), along));
  for (int64_t& number : numbers) number -= depth;
  TEMPER_ASSIGN_OR_RETURN(ValueId back, c.Reshape(c.IntVector(numbers), along));
  TEMPER_ASSIGN_OR_RETURN(front, c.Call("equal", {}, {at, front}));
  TEMPER_ASSIGN_OR_RETURN(back, c.Call("equal", {}, {at, back}));
  TEMPER_ASSIGN_OR_RETURN(ValueId is_on, c.Call("or", {}, {front, back}));
  TEMPER_ASSIGN_OR_RETURN(ValueId off, c.Slice(n.Input(2), 0, 0, 1));
  TEMPER_ASSIGN_OR_RETURN(ValueId on, c.Slice(n.Input(2), 0, 1, 2));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("where", {}, {is_on, on, off}));
  return c.Set(n, v);
}

// Moved by `steps` along the axis, to the back or, in reverse, to the front; zeros come in.
absl::StatusOr<ValueId> Shifted(Context& c, ValueId v, int64_t axis, int64_t steps, bool reverse) {
  const size_t rank = c.ShapeOf(v).size();
  const int64_t extent = c.ShapeOf(v)[static_cast<size_t>(axis)];
  Ints pads(2 * rank, 0);
  pads[static_cast<size_t>(axis) + (reverse ? rank : 0)] = steps;
  TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, std::move(pads)));
  return c.Slice(v, axis, reverse ? steps : 0, extent + (reverse ? steps : 0));
}

// Each step doubles how many neighbours a sum has.
absl::Status CumSum(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const Ints axes, c.KnownInts(n.Input(1), "the axis"));
  if (axes.size() != 1) return absl::InvalidArgumentError("the axis is one number");
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[0], c.Rank(n.Input(0))));
  const bool reverse = n.Int("reverse", 0) != 0;
  ValueId v = n.Input(0);
  if (n.Int("exclusive", 0) != 0) {
    TEMPER_ASSIGN_OR_RETURN(v, Shifted(c, v, axis, 1, reverse));
  }
  for (int64_t steps = 1; steps < c.ShapeOf(v)[static_cast<size_t>(axis)]; steps *= 2) {
    TEMPER_ASSIGN_OR_RETURN(ValueId shifted, Shifted(c, v, axis, steps, reverse));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, shifted}));
  }
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> IndexTable() {
  static constexpr TableEntry kTable[] = {{"GatherElements", GatherElements, 2},
                                          {"GatherND", GatherNd, 2},
                                          {"ScatterElements", ScatterElements, 3},
                                          {"Scatter", ScatterElements, 3},
                                          {"ScatterND", ScatterNd, 3},
                                          {"OneHot", OneHot, 3},
                                          {"CumSum", CumSum, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
