#include "compiler/frontend/onnx/ends.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {

absl::StatusOr<ValueId> EdgeFilled(Context& c, ValueId v, int64_t axis) {
  const Varying* varying = c.VaryingAlong(v, axis);
  if (varying == nullptr) return v;
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "an axis of which the last element is repeated"));
  const int64_t most = c.ShapeOf(v)[static_cast<size_t>(axis)];
  TEMPER_RETURN_IF_ERROR(CheckPlaces({most}));
  const std::string what = absl::StrCat("edge of extent ", varying->extent, " in ", most);
  ValueId at = c.Made(what);
  if (at == kNoValue) {
    Formula f(c, DType::kI64);
    const ValueId last = f.Call("max", {f.Plus(varying->extent, -1), f.Number(0)});
    at = f.Call("min", {Counting(c, DType::kI64, {most}), last});
    TEMPER_RETURN_IF_ERROR(f.status());
    c.KeepMade(what, at);
  }
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
  return c.Gather(v, at, axis);
}

absl::StatusOr<ValueId> PaddedFromEnds(Context& c, ValueId v, const Varying& along, int64_t begin, int64_t end,
                                       const std::string& mode) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "a pad"));
  const int64_t most = c.ShapeOf(v)[static_cast<size_t>(along.axis)], least = c.LeastOf(along.extent);
  const bool reflects = mode == "reflect";
  if (most + begin + end < 1 || least + begin + end < 0)
    return absl::UnimplementedError("pads take away more than there may be");
  if (reflects && (std::min(begin, end) < 0 || std::max(begin, end) >= least))
    return absl::UnimplementedError(absl::StrCat("elements are reflected of an axis that may have as few as ", least));
  TEMPER_RETURN_IF_ERROR(CheckPlaces({most + begin + end}));
  Formula f(c, DType::kI64);
  const ValueId zero = f.Number(0), last = f.Call("max", {f.Plus(along.extent, -1), zero});
  ValueId at = f.Plus(Counting(c, DType::kI64, {most + begin + end}), static_cast<double>(-begin));
  if (reflects) {
    at = f.Call("max", {at, f.Sub(zero, at)});
    const ValueId left = f.Sub(last, at);
    at = f.Sub(last, f.Call("max", {left, f.Sub(zero, left)}));
  }
  at = f.Call("min", {f.Call("max", {at, zero}), last});
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(const ValueId extent, StopsOf(c, along.extent, begin + end - 1, 1));
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, along.axis));
  TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, at, along.axis));
  c.AddVaryings(v, {{along.axis, extent}});
  return v;
}

absl::StatusOr<ValueId> SlicedFromEnd(Context& c, ValueId v, const Varying& along, int64_t start, int64_t end,
                                      int64_t step) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "a slice from the end"));
  const int64_t most = c.ShapeOf(v)[static_cast<size_t>(along.axis)];
  TEMPER_RETURN_IF_ERROR(CheckPlaces({most}));
  Formula f(c, DType::kI64);
  const ValueId zero = f.Number(0), first = f.Call("max", {f.Plus(along.extent, static_cast<double>(start)), zero});
  ValueId at = kNoValue, extent = along.extent;
  if (step == -1 && start == -1 && end < -most) {  // all of them, the last one first
    at = f.Call("max", {f.Sub(first, Counting(c, DType::kI64, {most})), zero});
  } else if (step == 1 && start > -most && (end < 0 || end >= most)) {
    const int64_t until = std::min<int64_t>(end, 0), count = until - start;
    if (count < 1)
      return absl::UnimplementedError("a slice without elements of an axis whose extent only the run knows");
    at = f.Add(first, Counting(c, DType::kI64, {count}));
    TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c, along.extent, until - 1, 1));
    extent =
        c.LeastOf(along.extent) >= -start ? kNoValue : f.Call("min", {extent, f.Number(static_cast<double>(count))});
  } else {
    return absl::UnimplementedError(
        "a slice by steps, or to an end counted from the front, that begins at the end of an "
        "axis whose extent only the run knows");
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  const int64_t axis = along.axis;
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
  TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, at, axis));
  if (extent != kNoValue) c.AddVaryings(v, {{axis, extent}});
  return v;
}

absl::StatusOr<ValueId> SlicedBack(Context& c, ValueId v, const Varying& along, int64_t start, int64_t end,
                                   int64_t step) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "a slice back to the front"));
  const int64_t axis = along.axis, most = c.ShapeOf(v)[static_cast<size_t>(axis)], least = c.LeastOf(along.extent);
  start = std::min(start, most - 1);
  const bool to_front = end < -most;
  if (end < 0 && !to_front)
    return absl::UnimplementedError("a slice back to an end that is counted from where only the run knows");
  const int64_t before = to_front ? -1 : end;
  if (start <= before)
    return absl::UnimplementedError("a slice without elements of an axis whose extent only the run knows");
  if (least > start) {  // they are always there
    Attrs attrs;
    attrs.Set("axes", std::vector<int64_t>{axis});
    attrs.Set("starts", std::vector<int64_t>{start});
    attrs.Set("ends", std::vector<int64_t>{end});
    attrs.Set("steps", std::vector<int64_t>{step});
    TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
    return c.Call("slice", std::move(attrs), {v});
  }
  if (step != -1) return absl::UnimplementedError("a slice back by steps from what may be behind the end");
  TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, axis, before + 1, start + 1));
  return SlicedFromEnd(c, v, Varying(*c.VaryingAlong(v, axis)), -1, -most - 1, -1);
}

namespace {

// Whether `part` is never more than `all`, as the whole steps that a length has room for are not.
bool IsWithin(const Context& c, const Dims& part, const Dims& all) {
  const Context::Sum sum = c.SumOf(part.varyings[0].extent);
  if (sum.terms.size() != 1 || !sum.less.empty()) return false;
  const auto multiple = c.MultipleOf(sum.terms[0]);
  const auto steps = multiple ? c.StopsIn(multiple->first) : std::nullopt;
  if (!steps || steps->stride != multiple->second) return false;
  const std::optional<Context::Sum> room = SumLeft(c, all, Dims{{c.MostOf(steps->of)}, {{0, steps->of}}});
  return room && room->terms.empty() && room->less.empty() && room->number >= steps->more + steps->stride + sum.number;
}

}  // namespace

absl::StatusOr<ValueId> SlicedBetween(Context& c, ValueId v, int64_t axis, const Dims& start, const Dims& end) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "a slice between bounds"));
  const int64_t room = c.ShapeOf(v)[static_cast<size_t>(axis)];
  const Varying* own = c.VaryingAlong(v, axis);
  const Dims all{{room}, own == nullptr ? Varyings() : Varyings{{0, own->extent}}};
  // What it is cut down to would have another length.
  const absl::Status unknown = absl::UnimplementedError("a slice between bounds that only the run knows");
  const bool open = end.varyings.empty();
  if (open ? end.most[0] < room : own == nullptr && end.most[0] > room) return unknown;
  if (!open && own != nullptr && !IsWithin(c, end, all)) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<Dims> behind, DistanceOf(c, all, end));
    if (!behind.has_value() || behind->most[0] < 0) return unknown;
  }
  TEMPER_ASSIGN_OR_RETURN(const std::optional<Dims> count, DistanceOf(c, open ? all : end, start));
  if (!count.has_value() || count->most[0] < 1 || start.most[0] < 0) return unknown;
  TEMPER_RETURN_IF_ERROR(CheckPlaces(count->most));
  Formula f(c, DType::kI64);
  const ValueId at =
      f.Add(Counting(c, DType::kI64, count->most),
            start.varyings.empty() ? f.Number(static_cast<double>(start.most[0])) : start.varyings[0].extent);
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
  TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, at, axis));
  if (!count->varyings.empty()) c.AddVaryings(v, {{axis, count->varyings[0].extent}});
  return v;
}

absl::StatusOr<ValueId> SlicedAt(Context& c, ValueId v, int64_t axis, ValueId start, ValueId end) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "a slice between bounds"));
  const int64_t room = c.ShapeOf(v)[static_cast<size_t>(axis)];
  TEMPER_RETURN_IF_ERROR(CheckPlaces({room}));
  if (room < 1) return absl::UnimplementedError("a slice of nothing between bounds that only the run knows");
  Formula f(c, DType::kI64);
  const Varying* own = c.VaryingAlong(v, axis);
  const ValueId zero = f.Number(0), length = own == nullptr ? f.Number(static_cast<double>(room)) : own->extent;
  for (ValueId* bound : {&start, &end}) {
    TEMPER_ASSIGN_OR_RETURN(*bound, c.Cast(*bound, DType::kI64));
    TEMPER_ASSIGN_OR_RETURN(*bound, c.Reshape(*bound, {}));
    TEMPER_ASSIGN_OR_RETURN(*bound, CountedFromFront(c, *bound, length));
    *bound = f.Call("min", {f.Call("max", {*bound, zero}), length});
  }
  const ValueId count = f.Call("max", {f.Sub(end, start), zero});
  const ValueId at =
      f.Call("min", {f.Add(Counting(c, DType::kI64, {room}), start), f.Number(static_cast<double>(room - 1))});
  TEMPER_RETURN_IF_ERROR(f.status());
  c.SetMost(count, room);
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
  TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, at, axis));
  c.AddVaryings(v, {{axis, count}});
  return v;
}

absl::StatusOr<Varyings> MakeWhole(Context& c, ValueId& v) {
  Varyings own = c.VaryingsOf(v);
  if (own.empty()) return own;
  TEMPER_ASSIGN_OR_RETURN(v, c.CallWhole("identity", {}, {v}));
  return own;
}

}  // namespace temper::onnx_frontend
