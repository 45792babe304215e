// Operators whose result has as many elements as values say. Where only the run knows the values, it has room for the
// most that there may be.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/strides.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

absl::StatusOr<ValueId> GatherAt(Context& c, ValueId x, const Ints& at, int64_t axis) {
  if (c.ShapeOf(x)[static_cast<size_t>(axis)] == 0) return x;  // there is nothing to take
  return c.Gather(x, c.IntVector(at), axis);
}

// Of elements along the axis those that a condition holds of, which only the run knows.
absl::Status CompressVarying(Context& c, const OnnxNode& n, ValueId x, int64_t axis) {
  if (c.TypeOf(n.Input(1)).dtype != DType::kBool || c.Rank(n.Input(1)) != 1)
    return absl::InvalidArgumentError("the condition is one axis of bools");
  if (c.ShapeOf(n.Input(1))[0] > c.ShapeOf(x)[static_cast<size_t>(axis)])
    return absl::InvalidArgumentError("the condition is longer than the axis");
  ValueId holds = n.Input(1);
  const Varying* own = c.VaryingAlong(x, axis);
  if (own != nullptr && c.VaryingsOf(holds) != Varyings{{0, own->extent, own->lines}}) {
    // What it says of elements that are not there does not count.
    const Varying there{0, own->extent};
    TEMPER_ASSIGN_OR_RETURN(holds, Filled(c, holds, 0));
    TEMPER_ASSIGN_OR_RETURN(const ValueId within, WithinExtent(c, there, c.ShapeOf(holds)[0]));
    TEMPER_ASSIGN_OR_RETURN(holds, c.Call("and", {}, {holds, within}));
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId places, PlacesThatHold(c, holds));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Gather(x, places, axis));
  return c.Set(n, v);
}

absl::Status Compress(Context& c, const OnnxNode& n) {
  ValueId x = n.Input(0);
  int64_t axis = 0;
  if (n.Has("axis")) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(n.Int("axis", 0), c.Rank(x)));
  } else {
    TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(c.ShapeOf(x))}));
  }
  if (c.Known(n.Input(1)) == nullptr) return CompressVarying(c, n, x, axis);
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, x, {axis}, "Compress"));
  TEMPER_ASSIGN_OR_RETURN(const Ints condition, c.KnownInts(n.Input(1), "the condition"));
  if (std::ssize(condition) > c.ShapeOf(x)[static_cast<size_t>(axis)])
    return absl::InvalidArgumentError("the condition is longer than the axis");
  Ints taken;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) taken.push_back(static_cast<int64_t>(i));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherAt(c, x, taken, axis));
  return c.Set(n, v);
}

// NonZero of what only the run knows.
absl::Status NonZeroVarying(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  if (shape.empty()) return absl::UnimplementedError("takes an axis");
  const std::string what = absl::StrCat("non-zero ", n.Input(0));
  if (const ValueId known = c.Made(what); known != kNoValue) return c.Set(n, known);
  const ValueId given = BoolsOf(c, n.Input(0));
  ValueId holds = given;
  if (c.TypeOf(holds).dtype != DType::kBool) {
    TEMPER_ASSIGN_OR_RETURN(holds, c.Call("equal", {}, {holds, c.Scalar(c.TypeOf(holds).dtype, 0)}));
    TEMPER_ASSIGN_OR_RETURN(holds, c.Call("not", {}, {holds}));
  }
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, holds, "NonZero"));
  TEMPER_ASSIGN_OR_RETURN(holds, Filled(c, holds, 0));
  TEMPER_ASSIGN_OR_RETURN(holds, c.Reshape(holds, {NumElements(shape)}));
  TEMPER_ASSIGN_OR_RETURN(ValueId places, PlacesThatHold(c, holds));
  if (c.TypeOf(given).dtype == DType::kBool) {  // models count them in another way, too
    TEMPER_ASSIGN_OR_RETURN(const ValueId count, CountOf(c, given, c.VaryingsOf(places)[0].extent));
    c.SetVaryings(places, {{0, count}});
  }
  TEMPER_ASSIGN_OR_RETURN(places, c.NewAxis(places, 0));
  const auto column = [&](const Ints& numbers) { return c.NewAxis(c.IntVector(numbers), 1); };
  TEMPER_ASSIGN_OR_RETURN(const ValueId strides, column(RowMajorStrides(shape)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId extents, column(shape));
  TEMPER_ASSIGN_OR_RETURN(places, c.Call("div", {}, {places, strides}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("mod", {}, {places, extents}));
  c.KeepMade(what, v);
  return c.Set(n, v);
}

// The indices of what is not zero, a column each, in the order of the elements.
absl::Status NonZero(Context& c, const OnnxNode& n) {
  if (c.Known(n.Input(0)) == nullptr) return NonZeroVarying(c, n);
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> x, c.KnownFloats(n.Input(0), "the tensor"));
  const Shape& shape = c.ShapeOf(n.Input(0));
  const int64_t count = std::ssize(x) - std::count(x.begin(), x.end(), 0);
  NDArray indices(DType::kI64, {std::ssize(shape), count});
  const std::span<int64_t> all = indices.as<int64_t>();
  size_t column = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0) continue;
    int64_t rest = static_cast<int64_t>(i);
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
      all[d * static_cast<size_t>(count) + column] = rest % shape[d];
    ++column;
  }
  return c.Set(n, c.Constant(std::move(indices)));
}

// The order of two elements: negative, 0 or positive. NaN is the largest, and alike.
int Compared(const NDArray& x, int64_t a, int64_t b) {
  const auto order = [](auto p, auto q) { return (p > q) - (p < q); };
  const size_t i = static_cast<size_t>(a), j = static_cast<size_t>(b);
  if (x.dtype() == DType::kI64) return order(x.as<int64_t>()[i], x.as<int64_t>()[j]);
  if (x.dtype() == DType::kU64) return order(x.as<uint64_t>()[i], x.as<uint64_t>()[j]);
  const double p = x.At(a), q = x.At(b);
  if (std::isnan(p) || std::isnan(q)) return order(std::isnan(p), std::isnan(q));
  return order(p, q);
}

// Slices of `x` along an axis: [outer, extent, inner].
struct Slices {
  const NDArray& x;
  int64_t outer, extent, inner;

  int Compared(int64_t a, int64_t b) const {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t start = o * extent * inner + i;
        if (const int order = onnx_frontend::Compared(x, start + a * inner, start + b * inner)) return order;
      }
    }
    return 0;
  }
};

struct Distinct {
  Ints first, inverse, counts;  // where each stands first; which one each slice is; how often each is there
};
Distinct DistinctOf(const Slices& slices, bool sorted) {
  Ints order(static_cast<size_t>(slices.extent));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return slices.Compared(a, b) < 0; });
  std::vector<Ints> groups;
  for (const int64_t i : order) {
    if (groups.empty() || slices.Compared(groups.back()[0], i) != 0) groups.emplace_back();
    groups.back().push_back(i);
  }
  if (!sorted) std::sort(groups.begin(), groups.end());  // by where they stand first
  Distinct d{.inverse = Ints(order.size())};
  for (size_t g = 0; g < groups.size(); ++g) {
    d.first.push_back(groups[g][0]);
    d.counts.push_back(std::ssize(groups[g]));
    for (const int64_t i : groups[g]) d.inverse[static_cast<size_t>(i)] = static_cast<int64_t>(g);
  }
  return d;
}

// Which elements of a row, in their order, begin a run of equal ones: bools, [extent]. What is no number is alike.
absl::StatusOr<ValueId> BeginsRun(Context& c, ValueId row) {
  const int64_t extent = c.ShapeOf(row)[0];
  NDArray yes(DType::kBool, {1});
  yes.Set(0, 1);
  if (extent == 1) return c.Constant(std::move(yes));
  TEMPER_ASSIGN_OR_RETURN(const ValueId left, c.Slice(row, 0, 0, extent - 1));
  TEMPER_ASSIGN_OR_RETURN(const ValueId right, c.Slice(row, 0, 1, extent));
  Formula f(c, c.TypeOf(row).dtype);
  ValueId same = f.Call("equal", {left, right});
  if (IsFloat(c.TypeOf(row).dtype)) {
    const ValueId numbers = f.Call("or", {f.Call("equal", {left, left}), f.Call("equal", {right, right})});
    same = f.Call("or", {same, f.Call("not", {numbers})});
  }
  const ValueId other = f.Call("not", {same});
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Concat({c.Constant(std::move(yes)), other}, 0);
}

// The positions of a row's elements, the least first, in i32.
absl::StatusOr<ValueId> Order(Context& c, ValueId row) {
  const int64_t extent = c.ShapeOf(row)[0];
  Attrs attrs;
  attrs.Set("k", extent);
  attrs.Set("largest", int64_t{0});
  TEMPER_ASSIGN_OR_RETURN(row, c.Reshape(row, {1, extent}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId order, c.Call("top_k", std::move(attrs), {row}));
  return c.Reshape(order, {extent});
}

// numbers[at[i]] = i for as many as there are.
absl::StatusOr<ValueId> Inverted(Context& c, ValueId at, ValueId numbers) {
  Attrs along;
  along.Set("axis", int64_t{0});
  const ValueId none = c.Constant(NDArray(DType::kI64, c.ShapeOf(at)));
  return c.Call("scatter", std::move(along), {none, at, numbers});
}

// Unique of a row that only the run knows: its elements in their order, of which those that begin a run of equal ones
// are its own.
absl::Status UniqueVarying(Context& c, const OnnxNode& n, ValueId row) {
  if (c.Varies(row)) return absl::UnimplementedError("of as many elements as only the run knows");
  const int64_t extent = c.ShapeOf(row)[0];
  TEMPER_ASSIGN_OR_RETURN(const ValueId order, Order(c, row));
  TEMPER_ASSIGN_OR_RETURN(const ValueId sorted, c.Gather(row, order, 0));
  TEMPER_ASSIGN_OR_RETURN(const ValueId begins, BeginsRun(c, sorted));
  TEMPER_ASSIGN_OR_RETURN(const ValueId places, PlacesThatHold(c, begins));
  const Varyings varyings = c.VaryingsOf(places);
  const int64_t room = c.ShapeOf(places)[0];
  TEMPER_ASSIGN_OR_RETURN(ValueId first, c.Gather(order, places, 0));
  TEMPER_ASSIGN_OR_RETURN(first, c.Cast(first, DType::kI64));
  // A run ends where the next one begins, the last one at the end.
  Formula f(c, DType::kI64);
  TEMPER_ASSIGN_OR_RETURN(const ValueId whole, Filled(c, places, static_cast<double>(extent)));
  TEMPER_ASSIGN_OR_RETURN(ValueId next, c.Slice(whole, 0, 1, room));
  TEMPER_ASSIGN_OR_RETURN(next, c.Concat({next, c.IntVector({extent})}, 0));
  ValueId counts = f.Sub(next, whole);
  // Which run each element is of.
  Attrs along;
  along.Set("axis", int64_t{0});
  const ValueId runs = f.Plus(f.Call("cum_sum", {f.Cast(begins, "i64")}, std::move(along)), -1);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(ValueId inverse, Inverted(c, order, runs));
  if (n.Int("sorted", 1) == 0) {
    // The runs by where they stand first.
    TEMPER_ASSIGN_OR_RETURN(const ValueId stands, Filled(c, first, static_cast<double>(extent)));
    TEMPER_ASSIGN_OR_RETURN(const ValueId by_first, Order(c, stands));
    TEMPER_ASSIGN_OR_RETURN(const ValueId ranks, Inverted(c, by_first, Counting(c, DType::kI64, {room})));
    TEMPER_ASSIGN_OR_RETURN(inverse, c.Gather(ranks, inverse, 0));
    TEMPER_ASSIGN_OR_RETURN(first, c.Gather(stands, by_first, 0));
    TEMPER_ASSIGN_OR_RETURN(counts, c.Gather(counts, by_first, 0));
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId values, c.Gather(row, first, 0));
  int output = 0;
  for (const ValueId v : {values, first, inverse, counts}) {
    if (v != inverse) c.SetVaryings(v, varyings);
    TEMPER_RETURN_IF_ERROR(c.Set(n, v, output++));
  }
  return absl::OkStatus();
}

absl::Status Unique(Context& c, const OnnxNode& n) {
  ValueId x = n.Input(0);
  int64_t axis = 0;
  if (n.Has("axis")) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(n.Int("axis", 0), c.Rank(x)));
  } else {
    TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(c.ShapeOf(x))}));
  }
  if (c.Known(n.Input(0)) == nullptr) {
    if (c.Rank(x) != 1) return absl::UnimplementedError("slices that only the run knows");
    return UniqueVarying(c, n, x);
  }
  const Shape shape = c.ShapeOf(x);
  const size_t along = static_cast<size_t>(axis);
  const Slices slices{*c.Known(n.Input(0)), NumElements(std::span(shape).first(along)), shape[along],
                      NumElements(std::span(shape).subspan(along + 1))};
  const Distinct d = DistinctOf(slices, n.Int("sorted", 1) != 0);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherAt(c, x, d.first, axis));
  TEMPER_RETURN_IF_ERROR(c.Set(n, v));
  TEMPER_RETURN_IF_ERROR(c.Set(n, c.IntVector(d.first), 1));
  TEMPER_RETURN_IF_ERROR(c.Set(n, c.IntVector(d.inverse), 2));
  return c.Set(n, c.IntVector(d.counts), 3);
}

}  // namespace

std::span<const TableEntry> SelectTable() {
  static constexpr TableEntry kTable[] = {{"Compress", Compress, 2, Extents::kAlongAnyAxis},
                                          {"NonZero", NonZero, 1, Extents::kAlongAnyAxis},
                                          {"Unique", Unique, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
