#include "compiler/frontend/onnx/places.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/strides.h"
#include "compiler/frontend/onnx/extents.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kLeastPlaces = 2;  // that there is room for, of those that hold

absl::StatusOr<ValueId> Scaled(Context& c, ValueId v, int64_t factor) {
  if (factor == 1) return v;
  return c.Call("mul", {}, {v, c.Scalar(DType::kI64, static_cast<double>(factor))});
}

// Index `i` along `axis` of each element of a tensor of `shape`, times `strides`, summed over all axes but `axis`.
absl::StatusOr<NDArray> PlacesBeside(const Shape& shape, const std::vector<int64_t>& strides, size_t axis) {
  Shape beside = shape;  // along `axis` they are all alike
  beside[axis] = std::min<int64_t>(beside[axis], 1);
  TEMPER_RETURN_IF_ERROR(CheckPlaces(beside));
  NDArray places(DType::kI64, beside);
  for (int64_t i = 0; i < places.size(); ++i) {
    int64_t place = 0, rest = i;
    for (size_t d = beside.size(); d-- > 0; rest /= beside[d]) {
      if (d != axis) place += strides[d] * (rest % beside[d]);
    }
    places.as<int64_t>()[static_cast<size_t>(i)] = place;
  }
  return places;
}

}  // namespace

absl::Status CheckPlaces(const Shape& shape) {
  constexpr int64_t kMostPlaces = int64_t{1} << 26;
  if (NumElements(shape) <= kMostPlaces) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("more than ", kMostPlaces, " indices are not supported"));
}

ValueId Counting(Context& c, DType dtype, Shape shape, int64_t step) {
  NDArray numbers(dtype, std::move(shape));
  for (int64_t i = 0; i < numbers.size(); ++i) numbers.Set(i, static_cast<double>(i * step));
  return c.Constant(std::move(numbers));
}

absl::StatusOr<ValueId> WithinLengths(Context& c, ValueId lengths, int64_t count) {
  TEMPER_ASSIGN_OR_RETURN(lengths, c.Reshape(lengths, {NumElements(c.ShapeOf(lengths)), 1, 1, 1}));
  return c.Call("less", {}, {Counting(c, DType::kI64, {count}), lengths});
}

absl::StatusOr<ValueId> GatherFlat(Context& c, ValueId from, ValueId at, Shape flat) {
  TEMPER_RETURN_IF_ERROR(MustBeKnown(c, from, "a position"));
  TEMPER_ASSIGN_OR_RETURN(from, c.Reshape(from, std::move(flat)));
  return c.Gather(from, at, 0);
}

absl::StatusOr<ValueId> GatherInLines(Context& c, ValueId from, ValueId at) {
  Shape flat = c.ShapeOf(from);
  const ValueId starts = Counting(c, c.TypeOf(at).dtype, {flat[0], 1}, flat[1]);
  TEMPER_ASSIGN_OR_RETURN(at, c.Call("add", {}, {at, starts}));
  flat[1] *= flat[0];
  flat.erase(flat.begin());
  return GatherFlat(c, from, at, std::move(flat));
}

absl::StatusOr<ValueId> CountedFromFront(Context& c, ValueId at, ValueId end) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId negative, c.Call("less", {}, {at, c.Scalar(DType::kI64, 0)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId turned, c.Call("add", {}, {at, end}));
  return c.Call("where", {}, {negative, turned, at});
}

absl::StatusOr<ValueId> Inside(Context& c, ValueId at, int64_t extent, ValueId varying) {
  TEMPER_ASSIGN_OR_RETURN(at, c.Cast(at, DType::kI64));
  if (extent < 1 && NumElements(c.ShapeOf(at)) > 0)
    return absl::InvalidArgumentError("there is nothing that an index can name");
  if (c.Known(at) != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> known, c.KnownInts(at, "indices"));
    for (const int64_t index : known) {
      if (index < -extent || index >= extent) return absl::InvalidArgumentError("an index is out of range");
    }
  }
  const ValueId end = varying != kNoValue ? varying : c.Scalar(DType::kI64, static_cast<double>(extent));
  TEMPER_ASSIGN_OR_RETURN(at, CountedFromFront(c, at, end));
  Attrs attrs;
  attrs.Set("min", 0.0);
  attrs.Set("max", static_cast<double>(extent - 1));
  return c.Call("clip", std::move(attrs), {at});
}

absl::Status CheckReach(const Shape& data, const Shape& indices, int64_t axis) {
  bool fits = data.size() == indices.size();
  for (size_t d = 0; fits && d < data.size(); ++d) fits = d == static_cast<size_t>(axis) || indices[d] <= data[d];
  return fits ? absl::OkStatus() : absl::InvalidArgumentError("the indices reach beyond the tensor");
}

absl::StatusOr<ValueId> PlacesOfElements(Context& c, const Shape& data, ValueId indices, int64_t axis) {
  const Shape shape = c.ShapeOf(indices);
  const size_t along = static_cast<size_t>(axis);
  TEMPER_RETURN_IF_ERROR(CheckReach(data, shape, axis));
  const std::vector<int64_t> strides = RowMajorStrides(data);
  TEMPER_ASSIGN_OR_RETURN(ValueId at, Inside(c, indices, data[along]));
  TEMPER_ASSIGN_OR_RETURN(at, Scaled(c, at, strides[along]));
  TEMPER_ASSIGN_OR_RETURN(NDArray numbers, PlacesBeside(shape, strides, along));
  // Of the first elements they are the same.
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, at, "places of elements"));
  Varyings others = c.VaryingsOf(at);
  std::erase_if(others, [axis](const Varying& v) { return v.axis == axis; });
  TEMPER_ASSIGN_OR_RETURN(const ValueId beside, WithVaryings(c, c.Constant(std::move(numbers)), others));
  return c.Call("add", {}, {at, beside});
}

absl::StatusOr<ValueId> PlacesOfSlices(Context& c, std::span<const int64_t> data, ValueId indices, size_t* names,
                                       const Varyings& ends) {
  Shape shape = c.ShapeOf(indices);
  if (shape.empty() || shape.back() < 1 || shape.back() > static_cast<int64_t>(data.size()))
    return absl::InvalidArgumentError("the last axis of the indices is as long as the axes that they name");
  *names = static_cast<size_t>(shape.back());
  const int64_t last = c.Rank(indices) - 1;
  shape.pop_back();
  const std::vector<int64_t> strides = RowMajorStrides(data.first(*names));
  ValueId sum = kNoValue;
  for (size_t d = 0; d < *names; ++d) {
    const int64_t at = static_cast<int64_t>(d);
    TEMPER_ASSIGN_OR_RETURN(ValueId one, c.Slice(indices, last, at, at + 1));
    TEMPER_ASSIGN_OR_RETURN(one, c.Reshape(one, shape));
    const auto end = std::ranges::find(ends, at, &Varying::axis);
    TEMPER_ASSIGN_OR_RETURN(one, Inside(c, one, data[d], end == ends.end() ? kNoValue : end->extent));
    TEMPER_ASSIGN_OR_RETURN(one, Scaled(c, one, strides[d]));
    if (sum == kNoValue) {
      sum = one;
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(sum, c.Call("add", {}, {sum, one}));
  }
  return sum;
}

ValueId BoolsOf(const Context& c, ValueId v) {
  const std::optional<Node> made = c.MakerOf(v);
  const bool casts = made.has_value() && made->op == "cast" && c.TypeOf(made->inputs[0]).dtype == DType::kBool;
  return casts ? made->inputs[0] : v;
}

absl::StatusOr<ValueId> CountOf(Context& c, ValueId holds, ValueId counted) {
  const std::string what = absl::StrCat("how many hold of ", holds);
  if (const ValueId known = c.Made(what); known != kNoValue) return known;
  if (counted == kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(counted, c.Cast(holds, DType::kI64));
    TEMPER_ASSIGN_OR_RETURN(counted, c.Reduce("reduce_sum", counted, AxesFrom(0, c.Rank(holds)), false));
    c.SetMost(counted, std::max(NumElements(c.ShapeOf(holds)), kLeastPlaces));
  }
  c.KeepMade(what, counted);
  return counted;
}

absl::StatusOr<ValueId> PlacesThatHold(Context& c, ValueId holds) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, holds, "what takes some of them"));
  TEMPER_ASSIGN_OR_RETURN(holds, Filled(c, holds, 0));
  TEMPER_RETURN_IF_ERROR(CheckPlaces(c.ShapeOf(holds)));
  // An axis of one element is none that a reshape could tell from others.
  while (c.ShapeOf(holds)[0] < kLeastPlaces) {
    TEMPER_ASSIGN_OR_RETURN(holds, c.Concat({holds, c.Constant(NDArray(DType::kBool, {1}))}, 0));
  }
  const int64_t count = c.ShapeOf(holds)[0];
  Attrs along;
  along.Set("axis", int64_t{0});
  TEMPER_ASSIGN_OR_RETURN(ValueId number, c.Cast(holds, DType::kI32));
  TEMPER_ASSIGN_OR_RETURN(number, c.Call("cum_sum", along, {number}));
  TEMPER_ASSIGN_OR_RETURN(ValueId extent, c.Slice(number, 0, count - 1, count));
  TEMPER_ASSIGN_OR_RETURN(extent, c.Cast(extent, DType::kI64));
  TEMPER_ASSIGN_OR_RETURN(extent, c.Reshape(extent, {}));
  // Those that do not hold go nowhere.
  const ValueId nowhere = c.Scalar(DType::kI32, -1);
  TEMPER_ASSIGN_OR_RETURN(number, c.Call("add", {}, {number, nowhere}));
  TEMPER_ASSIGN_OR_RETURN(number, c.Call("where", {}, {holds, number, nowhere}));
  const ValueId none = c.Constant(NDArray(DType::kI64, {count}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId places,
                          c.Call("scatter", along, {none, number, Counting(c, DType::kI64, {count})}));
  c.SetVaryings(places, {{0, extent}});
  return places;
}

namespace {

// Parts of which the last one alone varies: nothing moves.
absl::StatusOr<ValueId> BehindKnown(Context& c, std::vector<ValueId> parts, int64_t axis) {
  const Varying own = *c.VaryingAlong(parts.back(), axis);
  int64_t known = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) known += c.ShapeOf(parts[i])[static_cast<size_t>(axis)];
  TEMPER_ASSIGN_OR_RETURN(const ValueId extent, StopsOf(c, own.extent, known - 1, 1));
  TEMPER_ASSIGN_OR_RETURN(parts.back(), WholeAlong(c, parts.back(), axis));
  TEMPER_ASSIGN_OR_RETURN(const ValueId all, c.Concat(std::move(parts), axis));
  c.AddVaryings(all, {{axis, extent}});
  return all;
}

// Elements of `part` along the axis where the part begins at `begin` of `room` places; before it there is anything.
absl::StatusOr<ValueId> BegunAt(Context& c, ValueId part, int64_t axis, ValueId begin, int64_t room) {
  const std::string what = absl::StrCat("places from extent ", begin, " in ", room);
  ValueId at = c.Made(what);
  if (at == kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(at, c.Call("sub", {}, {Counting(c, DType::kI64, {room}), begin}));
    c.KeepMade(what, at);
  }
  return c.Gather(part, at, axis);
}

// Whether each part is one line and has as many elements as ranges alone say.
bool AreOfRanges(Context& c, const std::vector<ValueId>& parts, int64_t axis) {
  return std::ranges::all_of(parts, [&](ValueId part) {
    const Varying* own = c.VaryingAlong(part, axis);
    return !IsPacked(c.TypeOf(part).dtype) && (own == nullptr || (own->lines == 1 && IsOfRanges(c, own->extent)));
  });
}

// Parts of ranges: each begins where those before it end, and an element is of the first part that ends behind it.
absl::StatusOr<ValueId> BehindRanges(Context& c, const std::vector<ValueId>& parts, int64_t axis) {
  std::vector<ValueId> ends;
  ValueId varying = kNoValue;  // the sum of the extents up to here
  int64_t known = 0, room = 0;
  for (const ValueId part : parts) {
    const int64_t most = c.ShapeOf(part)[static_cast<size_t>(axis)];
    room += most;
    if (const Varying* own = c.VaryingAlong(part, axis); own == nullptr) {
      known += most;
    } else if (varying == kNoValue) {
      varying = own->extent;
    } else {
      TEMPER_ASSIGN_OR_RETURN(varying, SumOfExtents(c, varying, Varying(*own).extent));
    }
    if (varying == kNoValue) {
      ends.push_back(c.Scalar(DType::kI64, static_cast<double>(known)));
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(ends.emplace_back(), StopsOf(c, varying, known - 1, 1));
  }
  TEMPER_RETURN_IF_ERROR(CheckPlaces({room}));
  ValueId all = kNoValue;
  for (size_t i = parts.size(); i-- > 0;) {
    // What is behind the end of a part is in no result: where it is gathered, that is known of zeros alone.
    TEMPER_ASSIGN_OR_RETURN(ValueId part, i == 0 ? WholeAlong(c, parts[i], axis) : FilledAlong(c, parts[i], axis, 0));
    if (i == 0) {
      const size_t rank = c.ShapeOf(part).size();
      Shape pads(2 * rank, 0);
      pads[rank + static_cast<size_t>(axis)] = room - c.ShapeOf(part)[static_cast<size_t>(axis)];
      TEMPER_ASSIGN_OR_RETURN(part, c.Pad(part, std::move(pads)));
    } else {
      TEMPER_ASSIGN_OR_RETURN(part, BegunAt(c, part, axis, ends[i - 1], room));
    }
    if (all == kNoValue) {
      all = part;
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(ValueId before, WithinExtent(c, {0, ends[i]}, room));
    TEMPER_ASSIGN_OR_RETURN(before, LyingAlong(c, before, axis, all));
    TEMPER_ASSIGN_OR_RETURN(all, c.Call("where", {}, {before, part, all}));
  }
  c.AddVaryings(all, {{axis, ends.back()}});
  // Keys and values are multiplied next, and are outputs too: so zeros are a part of the kernel that makes both.
  return IsFloat(c.TypeOf(all).dtype) ? FilledToVary(c, all, axis, 0) : all;
}

}  // namespace

absl::StatusOr<ValueId> ConcatVarying(Context& c, const std::vector<ValueId>& all_parts, int64_t axis) {
  std::vector<ValueId> parts = all_parts;
  std::erase_if(parts, [&](ValueId part) { return c.ShapeOf(part)[static_cast<size_t>(axis)] == 0; });
  const bool last_alone = std::ranges::all_of(parts.begin(), parts.end() - 1,
                                              [&](ValueId part) { return c.VaryingAlong(part, axis) == nullptr; });
  if (last_alone && c.VaryingAlong(parts.back(), axis)->lines == 1) return BehindKnown(c, parts, axis);
  if (AreOfRanges(c, parts, axis)) return BehindRanges(c, parts, axis);
  std::vector<ValueId> whole, within;
  std::string what = "places of parts";
  int64_t known = 0;            // in the parts whose extent is
  std::vector<ValueId> others;  // extents of the other parts
  bool of_lines = false;        // one of them has several
  std::set<int64_t> rooms;      // and what they have room for
  for (ValueId part : parts) {
    const int64_t extent = c.ShapeOf(part)[static_cast<size_t>(axis)];
    if (const Varying* v = c.VaryingAlong(part, axis)) {
      absl::StrAppend(&what, " ", v->extent, " of ", extent, " in ", v->lines);
      others.push_back(v->extent);
      of_lines = of_lines || v->lines > 1;
      rooms.insert(extent);
      TEMPER_ASSIGN_OR_RETURN(within.emplace_back(), WithinExtent(c, *v, extent));
      TEMPER_ASSIGN_OR_RETURN(part, WholeAlong(c, part, axis));
    } else {
      NDArray all(DType::kBool, {extent});
      for (int64_t i = 0; i < extent; ++i) all.Set(i, 1);
      absl::StrAppend(&what, " all ", extent);
      known += extent;
      within.push_back(c.Constant(std::move(all)));
    }
    whole.push_back(part);
  }
  ValueId places = c.Made(what);
  if (places == kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId holds, c.Concat(std::move(within), 0));
    TEMPER_ASSIGN_OR_RETURN(places, PlacesThatHold(c, holds));
    const bool of_ranges = std::ranges::all_of(others, [&c](ValueId extent) { return IsOfRanges(c, extent); });
    if (of_ranges ||
        (others.size() == 1 && !of_lines)) {  // told by what it is, as shapes and ranges are made of it too
      ValueId extent = others[0];
      for (size_t i = 1; i < others.size(); ++i) {
        TEMPER_ASSIGN_OR_RETURN(extent, SumOfExtents(c, extent, others[i]));
      }
      TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c, extent, known - 1, 1));
      c.SetVaryings(places, {{0, extent}});
    }
    const bool parted = !of_ranges && others.size() > 1 && known == 0 && rooms.size() == 1;
    if (parted) c.SetJoinedFrom(c.VaryingsOf(places)[0].extent, *rooms.begin());
    c.KeepMade(what, places);
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId all, c.Concat(std::move(whole), axis));
  return c.Gather(all, places, axis);
}

std::vector<int64_t> MovedAxis(size_t rank, int64_t from, int64_t to) {
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  axes.erase(axes.begin() + from);
  axes.insert(axes.begin() + to, from);
  return axes;
}

}  // namespace temper::onnx_frontend
