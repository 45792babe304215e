// A new shape of a value of which only the run knows how long some axes are, where no axis keeps its place: each
// element of the result is read from where it lies, which the run computes.
#include <algorithm>

#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// An axis: the most elements, and the extent where it is another number.
struct Side {
  int64_t most = 0;
  ValueId extent = kNoValue;
};
using Sides = std::vector<Side>;

Sides SidesOf(const Shape& shape, const Varyings& varyings) {
  Sides sides;
  for (const int64_t most : shape) sides.push_back({most});
  for (const Varying& v : varyings) sides[static_cast<size_t>(v.axis)].extent = v.extent;
  return sides;
}

// How many elements there are: a number times extents.
struct Product {
  int64_t number = 1;
  std::vector<ValueId> extents;
};
Product ProductOf(const Sides& sides) {
  Product p;
  for (const Side& s : sides) {
    if (s.extent == kNoValue) p.number *= s.most;
    if (s.extent != kNoValue) p.extents.push_back(s.extent);
  }
  return p;
}

absl::StatusOr<ValueId> CountOf(Context& c, const Product& p) {
  if (p.extents.empty()) return c.Scalar(DType::kI64, static_cast<double>(p.number));
  ValueId v = p.extents[0];
  for (size_t i = 1; i < p.extents.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(v, ProductOfExtents(c, v, p.extents[i]));
  }
  return ScaledExtent(c, v, p.number, 1);
}

// What is left for one axis of all elements where the others have so many.
absl::StatusOr<ValueId> Quotient(Context& c, Product all, Product others, int64_t most) {
  for (auto e = others.extents.begin(); e != others.extents.end();) {
    const auto same = std::ranges::find(all.extents, *e);
    if (same == all.extents.end()) {
      ++e;
      continue;
    }
    all.extents.erase(same);
    e = others.extents.erase(e);
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId dividend, CountOf(c, Product{1, all.extents}));
  if (others.extents.empty()) return ScaledExtent(c, dividend, all.number, others.number);
  Formula f(c, DType::kI64);
  TEMPER_ASSIGN_OR_RETURN(const ValueId divisor, CountOf(c, others));
  TEMPER_ASSIGN_OR_RETURN(const ValueId count, ScaledExtent(c, dividend, all.number, 1));
  const ValueId v =
      f.Call("min", {f.Div(count, f.Call("max", {divisor, f.Number(1)})), f.Number(static_cast<double>(most))});
  TEMPER_RETURN_IF_ERROR(f.status());
  c.SetMost(v, most);
  return v;
}

// Where the elements of the new shape lie in the old one, in the order of the new one's most elements.
absl::StatusOr<ValueId> PlacesIn(Context& c, const Sides& from, const Sides& to) {
  Formula f(c, DType::kI64);
  const auto count_of = [&](const Side& s) {
    return s.extent == kNoValue ? f.Number(static_cast<double>(s.most)) : f.Call("max", {s.extent, f.Number(1)});
  };
  // How many elements lie before each, counted in what there is.
  ValueId before = kNoValue, stride = f.Number(1);
  for (size_t d = to.size(); d-- > 0;) {
    Shape along(to.size(), 1);
    along[d] = to[d].most;
    const ValueId at = f.Mul(Counting(c, DType::kI64, along), stride);
    before = before == kNoValue ? at : f.Add(before, at);
    stride = f.Mul(stride, count_of(to[d]));
  }
  ValueId place = kNoValue;
  int64_t room = 1;
  for (size_t d = from.size(); d-- > 0; room *= from[d].most) {
    const ValueId count = count_of(from[d]);
    // What is behind the end may be anywhere inside.
    const ValueId at = d > 0 ? f.Call("mod", {before, count})
                             : f.Call("min", {before, f.Number(static_cast<double>(from[0].most - 1))});
    const ValueId part = f.Times(at, static_cast<double>(room));
    place = place == kNoValue ? part : f.Add(place, part);
    if (d > 0) before = f.Div(before, count);
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  return place;
}

// In each line the elements that lie at some places of another one.
absl::StatusOr<ValueId> PickedAt(Context& c, const Context::Reshaped& made, const Shape& wanted, Varyings told) {
  const int64_t elements = NumElements(c.ShapeOf(made.from));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.CallWhole("identity", {}, {made.from}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, {made.lines, elements / std::max<int64_t>(made.lines, 1)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, made.at, 1));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, wanted));
  c.SetVaryings(v, std::move(told));
  c.SetReshaped(v, made);
  return v;
}

}  // namespace

absl::StatusOr<ValueId> ReshapedByPlaces(Context& c, ValueId x, const Shape& wanted, Varyings told, int64_t open) {
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, x, "a new shape"));
  const Shape shape = c.ShapeOf(x);
  const Varyings own = c.VaryingsOf(x);
  Sides from = SidesOf(shape, own), to = SidesOf(wanted, told);
  // The first axes may be as they were.
  size_t kept = 0;
  const auto same = [&](size_t d) {
    return static_cast<int64_t>(d) != open && from[d].most == to[d].most && from[d].extent == to[d].extent;
  };
  while (kept < from.size() && kept < to.size() && same(kept)) ++kept;
  const auto rest = [kept](const Sides& all) {
    return Sides(all.begin() + static_cast<std::ptrdiff_t>(kept), all.end());
  };
  from = rest(from), to = rest(to);
  if (from.empty() || to.empty()) return MustBeKnown(c, x, "a new shape");
  if (open >= 0) {
    Sides others = to;
    others.erase(others.begin() + (open - static_cast<int64_t>(kept)));
    Side& found = to[static_cast<size_t>(open) - kept];
    TEMPER_ASSIGN_OR_RETURN(found.extent, Quotient(c, ProductOf(from), ProductOf(others), found.most));
    if (c.Known(found.extent) != nullptr) found.extent = kNoValue;
    if (found.extent != kNoValue) told.push_back({open, found.extent});
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId old_count, CountOf(c, ProductOf(from)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId new_count, CountOf(c, ProductOf(to)));
  if (old_count != new_count) return MustBeKnown(c, x, "a new shape");
  const Shape new_rest(wanted.begin() + static_cast<std::ptrdiff_t>(kept), wanted.end());
  TEMPER_RETURN_IF_ERROR(CheckPlaces(new_rest));
  TEMPER_ASSIGN_OR_RETURN(ValueId at, PlacesIn(c, from, to));
  TEMPER_ASSIGN_OR_RETURN(at, c.Reshape(at, {NumElements(new_rest)}));
  for (const Varying& line : own) {
    if (line.axis < static_cast<int64_t>(kept) && std::ranges::count(told, line.axis, &Varying::axis) == 0)
      told.push_back(line);
  }
  return PickedAt(c, {x, at, NumElements(std::span(shape).first(kept))}, wanted, std::move(told));
}

absl::StatusOr<ValueId> ReshapedLike(Context& c, ValueId x, ValueId like) {
  Context::Reshaped made = *c.ReshapedFrom(like);
  made.from = x;
  return PickedAt(c, made, c.ShapeOf(like), c.VaryingsOf(like));
}

std::optional<ValueId> ReshapedBack(Context& c, ValueId x, const Shape& wanted, Varyings told) {
  const std::optional<Context::Reshaped> made = c.ReshapedFrom(x);
  if (!made.has_value() || c.ShapeOf(made->from) != wanted) return std::nullopt;
  std::ranges::sort(told, {}, &Varying::axis);
  return c.VaryingsOf(made->from) == told ? std::optional(made->from) : std::nullopt;
}

}  // namespace temper::onnx_frontend
