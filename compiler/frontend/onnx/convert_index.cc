// Operators that say by indices where elements come from, and sums and products along an axis. All become gathers from
// flat tensors, comparisons and shifts.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostClasses = int64_t{1} << 24;  // that OneHot compares an index with

absl::Status GatherElements(Context& c, const OnnxNode& n) {
  const Shape data = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(0), "GatherElements"));
  ValueId whole = n.Input(0), end = kNoValue;
  for (const Varying own : Varyings(c.VaryingsOf(whole))) {
    const Varying* indices = c.VaryingAlong(n.Input(1), own.axis);
    if (own.axis == axis) end = own.extent;
    // Indices stand beside elements that count.
    if (own.axis != axis && (indices == nullptr || *indices != own)) return MustBeKnown(c, whole, "GatherElements");
    TEMPER_ASSIGN_OR_RETURN(whole, WholeAlong(c, whole, own.axis));
  }
  TEMPER_RETURN_IF_ERROR(CheckReach(data, c.ShapeOf(n.Input(1)), axis));
  TEMPER_ASSIGN_OR_RETURN(ValueId at, Inside(c, n.Input(1), data[static_cast<size_t>(axis)], end));
  Attrs attrs;
  attrs.Set("axis", axis);
  TEMPER_ASSIGN_OR_RETURN(const Varyings varyings, MakeWhole(c, at));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("gather_elements", std::move(attrs), {whole, at}));
  c.SetVaryings(v, varyings);
  return c.Set(n, v);
}

// What GatherND gives of data and indices that vary so.
absl::StatusOr<Varyings> VaryingsOfSlices(Context& c, const OnnxNode& n, int64_t batch, int64_t names) {
  const ValueId data = n.Input(0), indices = n.Input(1);
  const int64_t last = c.Rank(indices) - 1;
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, data, "GatherND"));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, indices, {last}, "GatherND"));
  Varyings result = c.VaryingsOf(indices);
  for (const Varying& own : c.VaryingsOf(data)) {
    const Varying* beside = c.VaryingAlong(indices, own.axis);
    if (own.axis < batch && (beside == nullptr || *beside != own)) return MustBeKnown(c, data, "GatherND");
    if (own.axis >= batch + names) result.push_back({last + own.axis - batch - names, own.extent});
  }
  return result;
}

// The first `batch` axes of data and indices are the same ones: the indices name axes behind them.
absl::Status GatherNd(Context& c, const OnnxNode& n) {
  const Shape data = c.ShapeOf(n.Input(0)), indices = c.ShapeOf(n.Input(1));
  const int64_t stated = n.Int("batch_dims", 0);
  if (stated < 0 || stated >= std::min(c.Rank(n.Input(0)), c.Rank(n.Input(1))) ||
      !std::equal(data.begin(), data.begin() + stated, indices.begin()))
    return absl::InvalidArgumentError("batch_dims are axes that data and indices both have");
  TEMPER_ASSIGN_OR_RETURN(Varyings varyings, VaryingsOfSlices(c, n, stated, indices.back()));
  ValueId whole = n.Input(0), which = n.Input(1);
  TEMPER_ASSIGN_OR_RETURN(Varyings ends, MakeWhole(c, whole));
  TEMPER_RETURN_IF_ERROR(MakeWhole(c, which).status());
  for (Varying& end : ends) end.axis -= stated;
  const size_t batch = static_cast<size_t>(stated);
  size_t names = 0;
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesOfSlices(c, std::span(data).subspan(batch), which, &names, ends));
  const int64_t count = NumElements(std::span(data).subspan(batch, names));
  Shape flat = {NumElements(std::span(data).first(batch + names))};
  flat.insert(flat.end(), data.begin() + static_cast<std::ptrdiff_t>(batch + names), data.end());
  if (batch > 0) {
    Shape apart(indices.size() - 1, 1);
    std::copy(data.begin(), data.begin() + stated, apart.begin());
    const ValueId starts = Counting(c, DType::kI64, std::move(apart), count);
    TEMPER_ASSIGN_OR_RETURN(at, c.Call("add", {}, {at, starts}));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherFlat(c, whole, at, std::move(flat)));
  c.AddVaryings(v, varyings);
  return c.Set(n, v);
}

// Of each batch element the first steps in reverse, as many as its length says; the rest stays where it is.
// What is behind the ends of both axes stays there, as no length is beyond the time axis.
absl::Status ReverseSequence(Context& c, const OnnxNode& n) {
  const int64_t time = n.Int("time_axis", 0), batch = n.Int("batch_axis", 1);
  if (time < 0 || time > 1 || batch != 1 - time || c.Rank(n.Input(0)) < 2)
    return absl::InvalidArgumentError("the time and the batch axis are the first two, in either order");
  const Ints exchanged = MovedAxis(c.ShapeOf(n.Input(0)).size(), 1, 0);
  ValueId x = n.Input(0), length = n.Input(1);
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, x, "ReverseSequence"));
  const Varying *examples = c.VaryingAlong(x, batch), *lengths = c.VaryingAlong(length, 0),
                *all = c.VaryingAlong(x, time);
  if ((examples == nullptr) != (lengths == nullptr) || (examples != nullptr && examples->extent != lengths->extent))
    return MustBeKnown(c, examples != nullptr ? x : length, "ReverseSequence");
  const ValueId end = all == nullptr ? kNoValue : all->extent;
  const Varyings own = c.VaryingsOf(x);
  // Where it is gathered, nobody would know that what is behind the ends is in no result, unless it is zeros.
  TEMPER_ASSIGN_OR_RETURN(x, Filled(c, x, 0));
  TEMPER_RETURN_IF_ERROR(MakeWhole(c, length).status());
  if (time == 0) {
    TEMPER_ASSIGN_OR_RETURN(x, c.Transpose(x, exchanged));
  }
  const int64_t lines = c.ShapeOf(x)[0], steps = c.ShapeOf(x)[1];
  if (c.ShapeOf(length) != Shape{lines}) return absl::InvalidArgumentError("there is one length a batch element");
  if (c.Known(n.Input(1)) != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const Ints known, c.KnownInts(n.Input(1), "sequence_lens"));
    if (std::any_of(known.begin(), known.end(), [&](int64_t length) { return length < 0 || length > steps; }))
      return absl::InvalidArgumentError("a length is beyond the time axis");
  }
  Formula f(c, DType::kI64);
  TEMPER_ASSIGN_OR_RETURN(length, c.Cast(length, DType::kI64));
  TEMPER_ASSIGN_OR_RETURN(length, c.Reshape(length, {lines, 1}));
  // A length that only the run knows must not lead out of the line.
  length = f.Clip(length, 0, static_cast<double>(steps));
  if (end != kNoValue) length = f.Call("min", {length, end});
  const ValueId step = Counting(c, DType::kI64, {1, steps});
  const ValueId turned = f.Plus(f.Sub(length, step), -1);
  const ValueId source = f.Call("where", {f.Call("less", {step, length}), turned, step});
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(ValueId v, GatherInLines(c, x, source));
  if (time == 0) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, exchanged));
  }
  c.AddVaryings(v, own);
  return c.Set(n, v);
}

// An index outside [-depth, depth) is nowhere on.
absl::Status OneHot(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const Ints depths, c.KnownInts(n.Input(1), "depth"));
  if (depths.size() != 1 || depths[0] < 1) return absl::InvalidArgumentError("depth is one positive number");
  if (depths[0] > kMostClasses) return absl::UnimplementedError(absl::StrCat("a depth of ", depths[0]));
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

absl::Status CumSum(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t stated, c.KnownInt(n.Input(1), "the axis"));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(stated, c.Rank(n.Input(0))));
  Attrs attrs;
  attrs.Set("axis", axis);
  attrs.Set("exclusive", int64_t{n.Int("exclusive", 0) != 0});
  attrs.Set("reverse", int64_t{n.Int("reverse", 0) != 0});
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("cum_sum", std::move(attrs), {n.Input(0)}));
  return c.Set(n, v);
}

// What stands `steps` before along the axis, or behind, and 1 where nothing does.
absl::StatusOr<ValueId> Before(Context& c, ValueId v, int64_t axis, int64_t steps, bool behind) {
  const Shape shape = c.ShapeOf(v);
  const int64_t extent = shape[static_cast<size_t>(axis)], start = behind ? steps : 0;
  std::vector<int64_t> pads(2 * shape.size(), 0);
  pads[static_cast<size_t>(axis) + (behind ? shape.size() : 0)] = steps;
  TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, std::move(pads), 1));
  return c.Slice(v, axis, start, start + extent);
}

// Products of 1, 2, 4, ... neighbours, each from two of those before.
absl::Status CumProd(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t stated, c.KnownInt(n.Input(1), "the axis"));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(stated, c.Rank(n.Input(0))));
  const bool reverse = n.Int("reverse", 0) != 0;
  const int64_t extent = c.ShapeOf(n.Input(0))[static_cast<size_t>(axis)];
  ValueId v = n.Input(0);
  if (n.Int("exclusive", 0) != 0) {
    TEMPER_ASSIGN_OR_RETURN(v, Before(c, v, axis, 1, reverse));
  }
  for (int64_t steps = 1; steps < extent; steps *= 2) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId before, Before(c, v, axis, steps, reverse));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, before}));
  }
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> IndexTable() {
  static constexpr TableEntry kTable[] = {{"GatherElements", GatherElements, 2, Extents::kAlongAnyAxis},
                                          {"GatherND", GatherNd, 2, Extents::kAlongAnyAxis},
                                          {"ReverseSequence", ReverseSequence, 2, Extents::kAlongAnyAxis},
                                          {"OneHot", OneHot, 3, Extents::kAlongAnyAxis},
                                          {"CumSum", CumSum, 2, Extents::kAlongAnyAxis},
                                          {"CumProd", CumProd, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
