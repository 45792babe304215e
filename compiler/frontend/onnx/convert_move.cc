#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "base/shape_limits.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

// An axis of the new shape that varies. `told`: what the shape says that it has; kNoValue: it says nothing.
struct NewAxis {
  size_t axis = 0;
  ValueId told = kNoValue;
  bool all_told = false;  // and so does it of all other axes: none is what is left of a division
};

absl::StatusOr<Varying> Moved(Context& c, ValueId x, const Varying& v, const Ints& wanted, const NewAxis& to) {
  const Shape from = c.ShapeOf(x);
  TEMPER_ASSIGN_OR_RETURN(const std::optional<Varying> moved, MovedTo(c, v, from, wanted, to.axis));
  if (!moved.has_value()) return MustBeKnown(c, x, "Reshape");
  const int64_t old_length = from[static_cast<size_t>(v.axis)] / v.lines, length = wanted[to.axis] / moved->lines;
  const auto multiple = c.MultipleOf(v.extent);
  const bool whole =
      length % old_length == 0 || (multiple.has_value() && multiple->second / v.lines % (old_length / length) == 0);
  // Where the shape says all, a model that runs has as many along the axis as it says.
  const bool exact = to.all_told && v.lines == 1 && moved->lines == 1;
  // Several lines may be divided where each of them is not. Where the shape says how many there are, another axis may
  // be what is left of a division.
  if (!whole && !exact && (to.told != kNoValue || v.lines > 1 || moved->lines > 1)) return MustBeKnown(c, x, "Reshape");
  // What values decide comes to one number in several ways: a model that runs at all means the same.
  const bool other =
      to.told != kNoValue && to.told != moved->extent && (IsOfRanges(c, to.told) || IsOfRanges(c, moved->extent));
  if (other && !(exact && c.VaryingsOf(x).size() == 1)) return MustBeKnown(c, x, "Reshape");
  if (exact && !whole) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId all, ScaledExtent(c, moved->extent, old_length, length));
    c.MustAgree(all, v.extent);
  }
  if (other) c.MustAgree(to.told, moved->extent);
  if (other) return Varying{moved->axis, to.told, moved->lines};
  return *moved;
}

// Which of the new axes vary, as the model states them, in the order of the old ones: those that the shape says, or the
// copies of old ones, or the one that is to be found. Fewer than the old ones: nobody knows.
std::vector<NewAxis> NewAxes(const Ints& stated, const Varyings& told, const Varyings& own, bool copies) {
  std::vector<NewAxis> axes;
  const auto open = std::ranges::find(stated, -1);
  const bool all_told = open == stated.end();
  const auto add = [&](int64_t axis, ValueId extent) { axes.push_back({static_cast<size_t>(axis), extent, all_told}); };
  for (const Varying& v : told) add(v.axis, v.extent);
  if (axes.size() == own.size()) return axes;
  for (const Varying& v : own) {
    if (copies && v.axis < std::ssize(stated) && stated[static_cast<size_t>(v.axis)] == 0) add(v.axis, kNoValue);
  }
  if (axes.size() < own.size() && !all_told) add(open - stated.begin(), kNoValue);
  std::ranges::sort(axes, {}, &NewAxis::axis);
  return axes;
}

absl::StatusOr<ValueId> ReshapeVarying(Context& c, ValueId x, const Ints& wanted, const std::vector<NewAxis>& to) {
  const Varyings own = c.VaryingsOf(x);
  Varyings moved;
  for (size_t i = 0; i < own.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(moved.emplace_back(), Moved(c, x, own[i], wanted, to[i]));
  }
  Attrs attrs;
  attrs.Set("shape", wanted);
  TEMPER_ASSIGN_OR_RETURN(const ValueId result, c.CallWhole("reshape", std::move(attrs), {x}));
  c.SetVaryings(result, std::move(moved));
  return result;
}

// The same elements as before two axes that vary were folded into one, and with an axis of its own for a number that an
// extent is a multiple of, such as of heads.
absl::StatusOr<ValueId> Unfolded(Context& c, ValueId x) {
  Shape shape;
  Varyings varyings;
  const auto add = [&](int64_t most, ValueId extent, int64_t lines) {
    const auto [base, factor] = c.MultipleOf(extent).value_or(std::pair<ValueId, int64_t>(extent, 1));
    const bool parts = lines == 1 && factor > 1 && most % factor == 0;
    varyings.push_back({std::ssize(shape), parts ? base : extent, lines});
    shape.push_back(parts ? most / factor : most);
    if (parts) shape.push_back(factor);
  };
  for (int64_t axis = 0; axis < c.Rank(x); ++axis) {
    const int64_t most = c.ShapeOf(x)[static_cast<size_t>(axis)];
    const Varying* own = c.VaryingAlong(x, axis);
    if (own == nullptr) {
      shape.push_back(most);
    } else if (own->line == kNoValue) {
      add(most, own->extent, own->lines);
    } else {
      add(own->lines, own->counted, 1);
      add(most / own->lines, own->line, 1);
    }
  }
  if (shape == c.ShapeOf(x)) return x;
  Attrs attrs;
  attrs.Set("shape", std::move(shape));
  TEMPER_ASSIGN_OR_RETURN(x, c.CallWhole("reshape", std::move(attrs), {x}));
  c.SetVaryings(x, std::move(varyings));
  return x;
}

// The axis of the new shape that has all elements along an axis of the old one; -1: several have them.
int64_t AxisAround(const Shape& from, int64_t axis, const Ints& wanted) {
  const int64_t begin = NumElements(std::span(from).subspan(static_cast<size_t>(axis) + 1));
  const int64_t count = from[static_cast<size_t>(axis)];
  int64_t inner = 1;  // elements of one along the new axis
  for (int64_t to = std::ssize(wanted) - 1; to >= 0 && count > 1; inner *= wanted[static_cast<size_t>(to--)]) {
    if (begin % inner == 0 && wanted[static_cast<size_t>(to)] % (begin / inner * count) == 0) return to;
  }
  return -1;
}

// What becomes of axes that vary where two of them may become one.
struct Folding {
  Ints apart;               // the new shape, with two axes for those that become one
  std::vector<NewAxis> to;  // in `apart`, by axis that varies
  Ints axes;                // the same in the new shape
};

// nullopt: an axis is parted, or the new shape does not say of each axis that varies how long it is, or leaves it to be
// found, or it says so of another one.
std::optional<Folding> FoldingOf(Context& c, ValueId given, ValueId x, const Ints& wanted, const Ints& said,
                                 const Varyings& told) {
  const Shape& from = c.ShapeOf(x);
  const Varyings& own = c.VaryingsOf(x);
  Folding folding;
  for (const Varying& v : own) folding.axes.push_back(AxisAround(from, v.axis, wanted));
  size_t next = 0;  // of those that vary
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    const auto says = std::ranges::find(told, static_cast<int64_t>(axis), &Varying::axis);
    const bool copied = said[axis] == 0 && c.VaryingAlong(given, static_cast<int64_t>(axis)) != nullptr;
    const bool is_said = says != told.end() || copied;
    const int64_t count = std::ranges::count(folding.axes, static_cast<int64_t>(axis));
    if (count > 2 || (count == 0 ? is_said : !is_said && said[axis] != -1)) return std::nullopt;
    folding.apart.push_back(wanted[axis]);
    if (count == 1) folding.to.push_back({folding.apart.size() - 1, says == told.end() ? kNoValue : says->extent});
    if (count == 2) {
      // Each line is whole axes, or some would end within what the next ones begin with.
      const size_t second = static_cast<size_t>(own[next + 1].axis);
      const int64_t inner = NumElements(std::span(wanted).subspan(axis + 1));
      const int64_t line = NumElements(std::span(from).subspan(second)) / inner;
      if (line == 0 || line % from[second] != 0 || wanted[axis] % line != 0) return std::nullopt;
      folding.apart.back() /= line;
      folding.apart.push_back(line);
      for (const size_t back : {2, 1}) folding.to.push_back({folding.apart.size() - back});
    }
    next += static_cast<size_t>(count);
  }
  return next == own.size() ? std::optional(std::move(folding)) : std::nullopt;
}

// A shape where two axes that vary become one, as batch and sequence do, or one becomes the two that it was.
absl::StatusOr<ValueId> Folded(Context& c, ValueId given, const Ints& wanted, const Ints& said, const Varyings& told) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, Unfolded(c, given));
  const std::optional<Folding> folding = FoldingOf(c, given, x, wanted, said, told);
  if (!folding.has_value()) return MustBeKnown(c, x, "Reshape");
  TEMPER_ASSIGN_OR_RETURN(const ValueId apart, ReshapeVarying(c, x, folding->apart, folding->to));
  Varyings moved;
  const Varyings own = c.VaryingsOf(apart);
  for (size_t i = 0; i < own.size(); ++i) {
    Varying v = own[i];
    v.axis = folding->axes[i];
    if (i + 1 < own.size() && folding->axes[i + 1] == v.axis) {
      const Varying& line = own[++i];
      if (v.lines != 1 || line.lines != 1) return MustBeKnown(c, x, "Reshape");
      v.lines = folding->apart[static_cast<size_t>(own[i - 1].axis)];
      v.counted = v.extent;
      v.line = line.extent;
      TEMPER_ASSIGN_OR_RETURN(v.extent, ProductOfExtents(c, v.counted, v.line));
    }
    const auto says = std::ranges::find(told, v.axis, &Varying::axis);
    const Varying* copied = said[static_cast<size_t>(v.axis)] == 0 ? c.VaryingAlong(given, v.axis) : nullptr;
    const ValueId extent = says != told.end() ? says->extent : copied != nullptr ? copied->extent : v.extent;
    if (extent != v.extent) return MustBeKnown(c, x, "Reshape");
    moved.push_back(v);
  }
  Attrs attrs;
  attrs.Set("shape", wanted);
  TEMPER_ASSIGN_OR_RETURN(const ValueId result, c.CallWhole("reshape", std::move(attrs), {apart}));
  c.SetVaryings(result, std::move(moved));
  return result;
}

// Whether two axes that vary become one, or one such axis is there already, or it is not known where they go.
bool Folds(const Context& c, ValueId x, const Ints& wanted, const std::vector<NewAxis>& to) {
  const Varyings& own = c.VaryingsOf(x);
  if (to.size() != own.size()) return true;
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].line != kNoValue || (i > 0 && to[i].axis == to[i - 1].axis)) return true;
    const int64_t around = AxisAround(c.ShapeOf(x), own[i].axis, wanted);
    if (i > 0 && around >= 0 && around == AxisAround(c.ShapeOf(x), own[i - 1].axis, wanted)) return true;
  }
  return false;
}

// Lines that were parted, as boxes are by levels, and come together again: there is room for more of them than there
// are. Where a shape divides the lines themselves and says that they are as many as each part was taken of, no part had
// a line of another, or the model would mean nothing.
absl::StatusOr<ValueId> AsManyAsSaid(Context& c, ValueId x, const Ints& said, const Varyings& told) {
  const Varyings own = c.VaryingsOf(x);
  if (own.size() != 1 || own[0].axis != 0 || own[0].lines != 1) return x;
  const bool of_first = told.empty() || (told.size() == 1 && told[0].axis == 0 && told[0].extent != own[0].extent);
  if (!of_first || said.size() < 3 || std::ranges::count(said, -1) != 1) return x;
  if (said[0] <= 0 || said[0] != c.JoinedFrom(own[0].extent)) return x;
  TEMPER_ASSIGN_OR_RETURN(ValueId v, WholeAlong(c, x, 0));
  TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, 0, 0, said[0]));
  if (!told.empty()) c.SetVaryings(v, told);
  return v;
}

absl::Status Reshape(Context& c, const OnnxNode& n) {
  Ints wanted = n.Ints("shape");
  Varyings told;
  if (n.Input(1) != kNoValue) {
    // An extent that only the run knows is as large as its operand's, of which as many elements count.
    TEMPER_ASSIGN_OR_RETURN(const Dims dims, DimsOf(c, n.Input(1), "the new shape"));
    wanted = dims.most;
    told = dims.varyings;
  }
  const Ints said = wanted;
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, AsManyAsSaid(c, n.Input(0), said, told));
  const Shape& from = c.ShapeOf(x);
  const int64_t total = NumElements(from);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == 0 && n.Int("allowzero", 0) == 0) {
      if (i >= from.size()) return absl::InvalidArgumentError("the new shape copies a dimension that is not there");
      wanted[i] = from[i];
    }
  }
  if (std::ranges::count(wanted, -1) > 1)
    return absl::InvalidArgumentError("the new shape leaves more than one dimension to be found");
  // What is to be found stands for one element here, so that the product can not overflow.
  Shape stated = wanted;
  std::replace(stated.begin(), stated.end(), int64_t{-1}, int64_t{1});
  TEMPER_RETURN_IF_ERROR(CheckTensorShape(stated));
  const int64_t known = NumElements(stated);
  for (int64_t& d : wanted) {
    if (d == -1 && known > 0) d = total / known;
  }
  if (std::any_of(wanted.begin(), wanted.end(), [](int64_t d) { return d < 0; }) || NumElements(wanted) != total) {
    return absl::InvalidArgumentError(absl::StrCat("cannot reshape ", ShapeText(from), " to ", ShapeText(wanted)));
  }
  if (c.Varies(x)) {
    if (total == 0) return MustBeKnown(c, x, "Reshape");
    if (const std::optional<ValueId> back = ReshapedBack(c, x, wanted, told)) return c.Set(n, *back);
    const bool copies = n.Int("allowzero", 0) == 0;
    const std::vector<NewAxis> to = NewAxes(said, told, c.VaryingsOf(x), copies);
    const Context::Agreements before = c.agreements();
    absl::StatusOr<ValueId> v =
        Folds(c, x, wanted, to) ? Folded(c, x, wanted, said, told) : ReshapeVarying(c, x, wanted, to);
    if (absl::IsUnimplemented(v.status())) {
      c.SetAgreements(before);
      for (const Varying& own : c.VaryingsOf(x)) {
        if (copies && own.axis < std::ssize(said) && said[static_cast<size_t>(own.axis)] == 0) told.push_back(own);
      }
      const auto open = std::ranges::find(said, -1);
      TEMPER_ASSIGN_OR_RETURN(const ValueId apart, Unfolded(c, x));
      absl::StatusOr<ValueId> by_places =
          ReshapedByPlaces(c, apart, wanted, std::move(told), open == said.end() ? -1 : open - said.begin());
      if (by_places.ok()) v = std::move(by_places);
    }
    if (!v.ok()) return v.status();
    return c.Set(n, *v);
  }
  if (!told.empty()) return absl::UnimplementedError("a shape that varies is of a value that does not");
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reshape(x, std::move(wanted)));
  return c.Set(n, v);
}

absl::Status Flatten(Context& c, const OnnxNode& n) {
  const Shape& shape = c.ShapeOf(n.Input(0));
  const int64_t rank = c.Rank(n.Input(0)), axis = n.Int("axis", 1);
  if (axis < -rank || axis > rank) return absl::InvalidArgumentError("axis is out of range");
  const size_t split = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  const Shape flat = {NumElements(std::span(shape).first(split)), NumElements(std::span(shape).subspan(split))};
  if (!c.Varies(n.Input(0))) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Reshape(n.Input(0), flat));
    return c.Set(n, v);
  }
  const Varyings& own = c.VaryingsOf(n.Input(0));
  if (NumElements(shape) == 0) return MustBeKnown(c, n.Input(0), "Flatten");
  std::vector<NewAxis> to;
  for (const Varying& v : own) to.push_back({v.axis < static_cast<int64_t>(split) ? 0u : 1u});
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Folds(c, n.Input(0), flat, to) ? Folded(c, n.Input(0), flat, {-1, -1}, {})
                                                                          : ReshapeVarying(c, n.Input(0), flat, to));
  return c.Set(n, v);
}

absl::Status Squeeze(Context& c, const OnnxNode& n) {
  const Shape& shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(auto axes, AxesOf(c, n, 1, c.Rank(n.Input(0))));
  if (!axes.has_value()) TEMPER_RETURN_IF_ERROR(MustBeKnown(c, n.Input(0), "Squeeze without axes"));
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool named = axes.has_value() && std::binary_search(axes->begin(), axes->end(), static_cast<int64_t>(i));
    if (named && shape[i] != 1)
      return absl::InvalidArgumentError(absl::StrCat("axis ", i, " has extent ", shape[i], " and can not be squeezed"));
    if (axes.has_value() ? !named : shape[i] != 1) result.push_back(shape[i]);
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reshape(n.Input(0), std::move(result)));
  return c.Set(n, v);
}

absl::Status Unsqueeze(Context& c, const OnnxNode& n) {
  const size_t added =
      n.Input(1) != kNoValue ? static_cast<size_t>(NumElements(c.ShapeOf(n.Input(1)))) : n.Ints("axes").size();
  const int64_t rank = c.Rank(n.Input(0)) + static_cast<int64_t>(added);
  TEMPER_ASSIGN_OR_RETURN(auto axes, AxesOf(c, n, 1, rank));
  if (!axes.has_value()) return absl::InvalidArgumentError("axes are missing");
  Shape result = c.ShapeOf(n.Input(0));
  for (int64_t axis : *axes) {
    if (axis > static_cast<int64_t>(result.size())) return absl::InvalidArgumentError("an axis is given twice");
    result.insert(result.begin() + axis, 1);
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reshape(n.Input(0), std::move(result)));
  return c.Set(n, v);
}

absl::Status Transpose(Context& c, const OnnxNode& n) {
  Ints reversed(static_cast<size_t>(c.Rank(n.Input(0))));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Transpose(n.Input(0), n.Ints("perm", reversed)));
  return c.Set(n, v);
}

absl::Status Concat(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  if (std::ranges::find(n.inputs, kNoValue) != n.inputs.end())
    return absl::InvalidArgumentError("an operand is missing");
  const bool varies =
      std::ranges::any_of(n.inputs, [&](ValueId part) { return c.VaryingAlong(part, axis) != nullptr; });
  TEMPER_ASSIGN_OR_RETURN(ValueId v, varies ? ConcatVarying(c, n.inputs, axis) : c.Concat(n.inputs, axis));
  return c.Set(n, v);
}

// Lengths of the parts: stated, as an attribute or an operand, or even.
absl::StatusOr<Ints> SplitLengths(Context& c, const OnnxNode& n, int64_t extent) {
  if (n.Input(1) != kNoValue) return c.KnownInts(n.Input(1), "split");
  if (n.Has("split")) return n.Ints("split");
  const int64_t parts = n.Int("num_outputs", n.proto.output_size());
  if (parts < 1 || parts > n.proto.output_size())
    return absl::InvalidArgumentError("num_outputs is not how many parts there are");
  const int64_t length = CeilDiv(extent, parts);
  Ints lengths;
  for (int64_t at = 0; static_cast<int64_t>(lengths.size()) < parts; at += length)
    lengths.push_back(std::clamp<int64_t>(extent - at, 0, length));
  return lengths;
}

// A length of a part as a number or an extent.
Dims Alone(const Dims& all, int64_t i) {
  const auto told = std::ranges::find(all.varyings, i, &Varying::axis);
  return {{all.most[static_cast<size_t>(i)]}, told == all.varyings.end() ? Varyings() : Varyings{{0, told->extent}}};
}

absl::StatusOr<Dims> Together(Context& c, const Dims& one, const Dims& other) {
  if (one.most[0] > kMostExtent || other.most[0] > kMostExtent || other.most[0] < 0)
    return absl::InvalidArgumentError("the parts do not add up to the whole");
  Dims both{{one.most[0] + other.most[0]}, one.varyings.empty() ? other.varyings : one.varyings};
  if (!one.varyings.empty() && !other.varyings.empty()) {
    TEMPER_ASSIGN_OR_RETURN(both.varyings[0].extent, SumOfExtents(c, one.varyings[0].extent, other.varyings[0].extent));
  } else if (!both.varyings.empty()) {
    const int64_t number = one.varyings.empty() ? one.most[0] : other.most[0];
    TEMPER_ASSIGN_OR_RETURN(both.varyings[0].extent, StopsOf(c, both.varyings[0].extent, number - 1, 1));
  }
  return both;
}

// Of an axis that varies, or of parts that do: they lie one behind another, and the last one ends where the axis does.
absl::Status SplitVarying(Context& c, const OnnxNode& n, int64_t axis) {
  const ValueId x = n.Input(0);
  const Varying* own = c.VaryingAlong(x, axis);
  Dims all{{c.ShapeOf(x)[static_cast<size_t>(axis)]}, own == nullptr ? Varyings() : Varyings{{0, own->extent}}};
  Dims lengths;
  if (n.Input(1) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(lengths, DimsOf(c, n.Input(1), "split"));
  } else if (n.Has("split")) {
    lengths.most = n.Ints("split");
  } else {
    // Even parts: a model that runs has as many of each.
    const int64_t parts = n.Int("num_outputs", n.proto.output_size());
    if (parts < 1 || all.most[0] < parts) return absl::UnimplementedError("there may be nothing in a part");
    TEMPER_ASSIGN_OR_RETURN(const ValueId each, ScaledExtent(c, own->extent, 1, parts));
    TEMPER_ASSIGN_OR_RETURN(const ValueId together, ScaledExtent(c, each, parts, 1));
    if (together != own->extent) c.MustAgree(together, own->extent);
    lengths.most.assign(static_cast<size_t>(parts), all.most[0] / parts);
    for (int64_t i = 0; i < parts; ++i) lengths.varyings.push_back({i, each});
  }
  Dims start{{0}, {}};
  for (int64_t i = 0; i < std::ssize(lengths.most); ++i) {
    TEMPER_ASSIGN_OR_RETURN(const Dims end, Together(c, start, Alone(lengths, i)));
    ValueId v = kNoValue;
    if (start.varyings.empty() && end.varyings.empty()) {
      TEMPER_ASSIGN_OR_RETURN(v, c.Slice(x, axis, start.most[0], end.most[0]));
    } else {
      TEMPER_ASSIGN_OR_RETURN(v, SlicedBetween(c, x, axis, start, end));
    }
    TEMPER_RETURN_IF_ERROR(c.Set(n, v, static_cast<int>(i)));
    start = end;
  }
  if (start.varyings.empty() != all.varyings.empty() || (start.varyings.empty() && start.most != all.most))
    return absl::UnimplementedError("parts that are not known to add up to the whole");
  if (start.varyings != all.varyings) c.MustAgree(start.varyings[0].extent, all.varyings[0].extent);
  return absl::OkStatus();
}

absl::Status Split(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  if (c.VaryingAlong(n.Input(0), axis) != nullptr || (n.Input(1) != kNoValue && c.Known(n.Input(1)) == nullptr))
    return SplitVarying(c, n, axis);
  const int64_t extent = c.ShapeOf(n.Input(0))[static_cast<size_t>(axis)];
  TEMPER_ASSIGN_OR_RETURN(Ints lengths, SplitLengths(c, n, extent));
  int64_t left = extent;
  for (const int64_t length : lengths) {
    if (length < 0 || length > left) return absl::InvalidArgumentError("the parts do not add up to the whole");
    left -= length;
  }
  if (left != 0) return absl::InvalidArgumentError("the parts do not add up to the whole");
  int64_t start = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Slice(n.Input(0), axis, start, start + lengths[i]));
    TEMPER_RETURN_IF_ERROR(c.Set(n, v, static_cast<int>(i)));
    start += lengths[i];
  }
  return absl::OkStatus();
}

// Takes what lies between a start and an end of which only the run knows one, along each such axis; there the rest of
// the slice takes all. Ends of slices of the first elements stay: `ends` has axes then, instead of positions in the
// lists.
absl::StatusOr<ValueId> SliceBetween(Context& c, ValueId v, Attrs& attrs, const Varyings& begins, Varyings& ends) {
  Ints starts = attrs.Ints("starts"), stops = attrs.Ints("ends");
  const Ints axes = attrs.Ints("axes"), steps = attrs.Ints("steps");
  Varyings first;
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto at = [&](const Varyings& all) {
      return std::ranges::find(all, static_cast<int64_t>(i), &Varying::axis);
    };
    const auto begin = at(begins), end = at(ends);
    if (begin == begins.end() && end == ends.end()) continue;
    if (stops.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
      return absl::InvalidArgumentError("starts, ends, axes and steps are not as many");
    if (steps[i] != 1) return absl::UnimplementedError("a slice by steps between bounds that only the run knows");
    TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[i], c.Rank(v)));
    if (begin == begins.end() && starts[i] == 0) {
      first.push_back({axis, end->extent});
      continue;
    }
    const Dims from{{starts[i]}, begin == begins.end() ? Varyings() : Varyings{{0, begin->extent}}};
    const Dims to{{stops[i]}, end == ends.end() ? Varyings() : Varyings{{0, end->extent}}};
    TEMPER_ASSIGN_OR_RETURN(v, SlicedBetween(c, v, axis, from, to));
    starts[i] = 0, stops[i] = kMostExtent;
  }
  ends = std::move(first);
  attrs.Set("starts", std::move(starts));
  attrs.Set("ends", std::move(stops));
  return v;
}

// Takes what begins at an end that only the run knows, or goes back from what may be behind it; along those axes the
// rest of the slice takes all.
absl::StatusOr<ValueId> SliceFromEnds(Context& c, ValueId v, Attrs& attrs) {
  Ints starts = attrs.Ints("starts"), ends = attrs.Ints("ends"), steps = attrs.Ints("steps");
  const Ints axes = attrs.Ints("axes");
  if (ends.size() != starts.size() || steps.size() != starts.size() || axes.size() != starts.size()) return v;
  for (size_t i = 0; i < starts.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[i], c.Rank(v)));
    const Varying* own = c.VaryingAlong(v, axis);
    const int64_t most = c.ShapeOf(v)[static_cast<size_t>(axis)];
    if (own == nullptr || (starts[i] >= 0 && steps[i] > 0)) continue;
    if (starts[i] >= 0) {
      TEMPER_ASSIGN_OR_RETURN(v, SlicedBack(c, v, Varying(*own), starts[i], ends[i], steps[i]));
      starts[i] = 0, ends[i] = kMostExtent, steps[i] = 1;
      continue;
    }
    if (starts[i] <= -most && steps[i] > 0) {
      starts[i] = 0;
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(v, SlicedFromEnd(c, v, Varying(*own), starts[i], ends[i], steps[i]));
    starts[i] = 0, ends[i] = kMostExtent, steps[i] = 1;
  }
  attrs.Set("starts", std::move(starts));
  attrs.Set("ends", std::move(ends));
  attrs.Set("steps", std::move(steps));
  return v;
}

// What a value is the negative of, through what moves it; kNoValue: of nothing.
ValueId NegatedBy(const Context& c, ValueId v) {
  constexpr int kMostSteps = 8;
  for (int step = 0; step < kMostSteps; ++step) {
    const std::optional<Node> made = c.MakerOf(v);
    if (!made.has_value()) return kNoValue;
    if (made->op == "neg") return made->inputs[0];
    if (made->op != "reshape" && made->op != "identity") return kNoValue;
    v = made->inputs[0];
  }
  return kNoValue;
}

// As many of the last elements along an axis as `count`, an extent, says.
absl::StatusOr<ValueId> SliceOfLast(Context& c, const OnnxNode& n, ValueId count) {
  const ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(const Dims last, DimsOf(c, count, "starts"));
  TEMPER_ASSIGN_OR_RETURN(const Ints ends, c.KnownInts(n.Input(2), "ends"));
  Ints axes = {0}, steps = {1};
  for (const auto& [input, list] : {std::pair(3, &axes), {4, &steps}}) {
    if (n.Input(static_cast<size_t>(input)) == kNoValue) continue;
    TEMPER_ASSIGN_OR_RETURN(*list, c.KnownInts(n.Input(static_cast<size_t>(input)), "axes and steps"));
  }
  if (ends.size() != 1 || axes.size() != 1 || steps != Ints{1})
    return absl::UnimplementedError("a start counts from the end, and there are others, or steps");
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[0], c.Rank(x)));
  const Varying* own = c.VaryingAlong(x, axis);
  // Counted back by nothing it is the first of all.
  const bool some = last.varyings.size() == 1 && c.LeastOf(last.varyings[0].extent) > 0;
  if (own != nullptr && some) {
    const Dims all{{c.ShapeOf(x)[static_cast<size_t>(axis)]}, {{0, own->extent}}};
    TEMPER_ASSIGN_OR_RETURN(const std::optional<Dims> start, DistanceOf(c, all, last));
    if (start.has_value() && start->most[0] >= 0) return SlicedBetween(c, x, axis, *start, Dims{ends, {}});
  }
  return absl::UnimplementedError("a start counts from the end by what is not known to be a part of the axis");
}

// Along one axis, between whatever numbers the bounds turn out to be.
absl::StatusOr<ValueId> SliceOfValues(Context& c, const OnnxNode& n) {
  Ints axes = {0}, steps = {1};
  for (const auto& [input, list] : {std::pair(size_t{3}, &axes), {size_t{4}, &steps}}) {
    if (n.Input(input) == kNoValue) continue;
    TEMPER_ASSIGN_OR_RETURN(*list, c.KnownInts(n.Input(input), "axes and steps"));
  }
  const bool one =
      axes.size() == 1 && NumElements(c.ShapeOf(n.Input(1))) == 1 && NumElements(c.ShapeOf(n.Input(2))) == 1;
  if (!one || steps != Ints{1})
    return absl::UnimplementedError("a slice by steps between bounds that only the run knows");
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[0], c.Rank(n.Input(0))));
  return SlicedAt(c, n.Input(0), axis, n.Input(1), n.Input(2));
}

// Along axes between bounds that are known, or lengths.
absl::StatusOr<ValueId> SliceOfLengths(Context& c, const OnnxNode& n) {
  if (const ValueId count = n.Input(1) == kNoValue ? kNoValue : NegatedBy(c, n.Input(1)); count != kNoValue)
    return SliceOfLast(c, n, count);
  Attrs attrs;
  const char* names[] = {"starts", "ends", "axes", "steps"};
  Varyings begins, ends;
  for (size_t i = 0; i < 4; ++i) {
    Ints values = n.Ints(names[i]);
    if (n.Input(i + 1) != kNoValue && i < 2) {
      TEMPER_ASSIGN_OR_RETURN(Dims dims, DimsOf(c, n.Input(i + 1), names[i]));
      values = std::move(dims.most), (i == 0 ? begins : ends) = std::move(dims.varyings);
    } else if (n.Input(i + 1) != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(values, c.KnownInts(n.Input(i + 1), names[i]));
    }
    if (i == 2 && values.empty()) {
      values.resize(attrs.Ints("starts").size());
      std::iota(values.begin(), values.end(), 0);
    }
    if (i == 3 && values.empty()) values.assign(attrs.Ints("starts").size(), 1);
    attrs.Set(names[i], std::move(values));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, SliceBetween(c, n.Input(0), attrs, begins, ends));
  TEMPER_ASSIGN_OR_RETURN(v, SliceFromEnds(c, v, attrs));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("slice", std::move(attrs), {v}));
  for (const Varying& end : ends) {
    TEMPER_ASSIGN_OR_RETURN(v, FirstOf(c, v, end));
  }
  return v;
}

absl::Status Slice(Context& c, const OnnxNode& n) {
  const Context::Agreements before = c.agreements();
  absl::StatusOr<ValueId> v = SliceOfLengths(c, n);
  if (absl::IsUnimplemented(v.status()) && n.Input(1) != kNoValue && n.Input(2) != kNoValue) {
    c.SetAgreements(before);
    if (absl::StatusOr<ValueId> whole = SliceOfValues(c, n); whole.ok()) v = whole;
  }
  if (!v.ok()) return v.status();
  return c.Set(n, *v);
}

absl::Status Gather(Context& c, const OnnxNode& n) {
  Attrs attrs;
  TEMPER_ASSIGN_OR_RETURN(int64_t axis, Axis(n.Int("axis", 0), c.Rank(n.Input(0))));
  attrs.Set("axis", axis);
  if (IsFloat(c.TypeOf(n.Input(1)).dtype)) return absl::InvalidArgumentError("indices are integers");
  // One known index is a slice, which fuses and moves less.
  const bool whole = c.VaryingAlong(n.Input(0), axis) == nullptr;
  if (const NDArray* at = c.Known(n.Input(1));
      at != nullptr && at->size() == 1 && whole && c.Known(n.Input(0)) == nullptr) {
    Shape shape = c.ShapeOf(n.Input(0));
    const int64_t extent = shape[static_cast<size_t>(axis)];
    const int64_t index = static_cast<int64_t>(at->At(0)) + (at->At(0) < 0 ? extent : 0);
    if (index < 0 || index >= extent) return absl::InvalidArgumentError("an index is out of range");
    shape.erase(shape.begin() + axis);
    shape.insert(shape.begin() + axis, at->shape().begin(), at->shape().end());
    TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Slice(n.Input(0), axis, index, index + 1));
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(shape)));
    return c.Set(n, v);
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("gather", std::move(attrs), {n.Input(0), n.Input(1)}));
  return c.Set(n, v);
}

absl::Status Expand(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(Dims dims, DimsOf(c, n.Input(1), "the new shape"));
  const int64_t added = std::ssize(dims.most) - c.Rank(x);
  for (const Varying& told : dims.varyings) {
    // An extent of more than one would be right for one number of elements alone.
    const int64_t axis = told.axis - added;
    if (axis >= 0 && c.VaryingAlong(x, axis) == nullptr && c.ShapeOf(x)[static_cast<size_t>(axis)] != 1)
      return absl::UnimplementedError("an extent that only the run knows stands for one that is known");
  }
  for (const Varying& own : c.VaryingsOf(x)) {
    // What does not vary is right for one element alone, or for the most.
    const int64_t axis = own.axis + added;
    const bool varies = std::ranges::count(dims.varyings, axis, &Varying::axis) > 0;
    if (axis >= 0 && !varies && dims.most[static_cast<size_t>(axis)] != 1)
      TEMPER_RETURN_IF_ERROR(MustBeKnown(c, x, "Expand"));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Expand(x, dims.most));
  for (Varying& told : dims.varyings) told.axis += c.Rank(v) - std::ssize(dims.most);
  TEMPER_ASSIGN_OR_RETURN(v, WithVaryings(c, v, dims.varyings));
  return c.Set(n, v);
}

// `v` again and again along an axis, `times` of it, where only the run knows how many elements it has, or how often it
// is to be repeated.
absl::StatusOr<ValueId> TiledAlong(Context& c, ValueId v, int64_t axis, int64_t times, const Varying* told) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, v, "Tile"));
  const Varying* own = c.VaryingAlong(v, axis);
  const int64_t most = c.ShapeOf(v)[static_cast<size_t>(axis)];
  if (times < 1 || most < 1 || times > kMostExtent / most)
    return absl::UnimplementedError("nothing is repeated along an axis that only the run knows, or too often");
  TEMPER_RETURN_IF_ERROR(CheckPlaces({most * times}));
  ValueId length = own == nullptr ? c.Scalar(DType::kI64, static_cast<double>(most)) : own->extent, all = length;
  if (own == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(all, ScaledExtent(c, told->extent, most, 1));
  } else if (told == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(all, ScaledExtent(c, length, times, 1));
  } else {
    TEMPER_ASSIGN_OR_RETURN(all, ProductOfExtents(c, length, told->extent));
  }
  TEMPER_ASSIGN_OR_RETURN(length, c.Call("max", {}, {length, c.Scalar(DType::kI64, 1)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId at, c.Call("mod", {}, {Counting(c, DType::kI64, {most * times}), length}));
  TEMPER_ASSIGN_OR_RETURN(v, WholeAlong(c, v, axis));
  TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, at, axis));
  c.AddVaryings(v, {{axis, all}});
  return v;
}

absl::Status Tile(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const Dims repeats, DimsOf(c, n.Input(1), "repeats"));
  ValueId v = n.Input(0);
  Ints known = repeats.most;
  if (std::ssize(known) != c.Rank(v)) return absl::InvalidArgumentError("there is one number of repeats for each axis");
  for (int64_t axis = 0; axis < c.Rank(v); ++axis) {
    int64_t& times = known[static_cast<size_t>(axis)];
    const auto told = std::ranges::find(repeats.varyings, axis, &Varying::axis);
    const bool varies = told != repeats.varyings.end();
    // One element, as often as only the run knows, needs no places.
    if (varies ? c.VaryingAlong(v, axis) == nullptr && c.ShapeOf(v)[static_cast<size_t>(axis)] == 1
               : c.VaryingAlong(v, axis) == nullptr || times == 1)
      continue;
    TEMPER_ASSIGN_OR_RETURN(v, TiledAlong(c, v, axis, times, varies ? &*told : nullptr));
    times = 1;
  }
  Varyings left = repeats.varyings;
  std::erase_if(left, [&](const Varying& told) { return c.VaryingAlong(v, told.axis) != nullptr; });
  Attrs attrs;
  attrs.Set("repeats", std::move(known));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("tile", std::move(attrs), {v}));
  TEMPER_ASSIGN_OR_RETURN(v, WithVaryings(c, v, left));
  return c.Set(n, v);
}

// What an image has whose height and width become so many times as much, or a part of it: as whole images have them.
absl::StatusOr<Varyings> ScaledImage(Context& c, ValueId& image, int64_t factor, int64_t divisor) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, image, "a choice of blocks"));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, image, {1}, "a choice of blocks"));
  TEMPER_ASSIGN_OR_RETURN(Varyings all, MakeWhole(c, image));
  for (Varying& v : all) {
    if (v.axis < 2) continue;
    TEMPER_ASSIGN_OR_RETURN(v.extent, ScaledExtent(c, v.extent, factor, divisor));
  }
  return all;
}

absl::Status DepthToSpace(Context& c, const OnnxNode& n) {
  Attrs attrs;
  attrs.Set("blocksize", n.Int("blocksize", 0));
  attrs.Set("mode", n.String("mode", "DCR"));
  ValueId x = n.Input(0);
  const int64_t channels = c.Rank(x) > 1 ? c.ShapeOf(x)[1] : 0;  // no block has more pixels
  TEMPER_ASSIGN_OR_RETURN(const Varyings varyings,
                          ScaledImage(c, x, std::clamp<int64_t>(n.Int("blocksize", 0), 0, channels), 1));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("depth_to_space", std::move(attrs), {x}));
  c.AddVaryings(v, varyings);
  return c.Set(n, v);
}

// [n, c, h, w] cut into blocks, whose pixels become channels: before the depth (DCR) or after it (CRD). A model that
// runs has whole blocks.
absl::Status SpaceToDepth(Context& c, const OnnxNode& n) {
  const Shape x = c.ShapeOf(n.Input(0));
  const int64_t block = n.Int("blocksize", 0);
  const std::string mode = n.String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return absl::UnimplementedError(absl::StrCat("mode '", mode, "' is not supported, only DCR and CRD"));
  if (x.size() != 4 || block < 1 || x[2] % block != 0 || x[3] % block != 0)
    return absl::InvalidArgumentError("blocksize divides height and width");
  ValueId v = n.Input(0);
  TEMPER_ASSIGN_OR_RETURN(const Varyings varyings, ScaledImage(c, v, 1, block));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {x[0], x[1], x[2] / block, block, x[3] / block, block}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, mode == "DCR" ? std::vector<int64_t>{0, 3, 5, 1, 2, 4}
                                                          : std::vector<int64_t>{0, 1, 3, 5, 2, 4}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {x[0], x[1] * block * block, x[2] / block, x[3] / block}));
  c.AddVaryings(v, varyings);
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> MoveTable() {
  static constexpr TableEntry kTable[] = {{"Reshape", Reshape, 1, Extents::kAlongAnyAxis},
                                          {"Flatten", Flatten, 1, Extents::kAlongAnyAxis},
                                          {"Squeeze", Squeeze, 1, Extents::kAlongAnyAxis},
                                          {"Unsqueeze", Unsqueeze, 1, Extents::kAlongAnyAxis},
                                          {"Transpose", Transpose, 1, Extents::kAlongAnyAxis},
                                          {"Concat", Concat, 1, Extents::kAlongAnyAxis},
                                          {"Split", Split, 1, Extents::kAlongAnyAxis},
                                          {"Slice", Slice, 1, Extents::kAlongAnyAxis},
                                          {"Gather", Gather, 2, Extents::kAlongAnyAxis},
                                          {"Expand", Expand, 2, Extents::kAlongAnyAxis},
                                          {"Tile", Tile, 2, Extents::kAlongAnyAxis},
                                          {"DepthToSpace", DepthToSpace, 1, Extents::kAlongAnyAxis},
                                          {"SpaceToDepth", SpaceToDepth, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
