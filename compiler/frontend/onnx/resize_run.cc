#include "compiler/frontend/onnx/resize_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

struct Fraction {
  int64_t of = 1, by = 1;
};

// A scale of few bits: what becomes of an extent is known without a rounding.
std::optional<Fraction> FractionOf(double scale) {
  constexpr int64_t kMostParts = 64, kMostTimes = 1024;
  for (int64_t by = 1; by <= kMostParts; by *= 2) {
    const double of = scale * static_cast<double>(by);
    if (of == std::floor(of) && of >= 1 && of <= static_cast<double>(kMostTimes * by))
      return Fraction{static_cast<int64_t>(of), by};
  }
  return std::nullopt;
}

// Whether the extents are always as they are where they are largest, as `out` to `in`.
absl::StatusOr<bool> IsProportional(Context& c, const RangedAxis& axis, const ResampledAxis& as) {
  const int64_t common = std::gcd(as.in, as.out);
  TEMPER_ASSIGN_OR_RETURN(const ValueId before, ScaledExtent(c, axis.in, as.out / common, 1));
  TEMPER_ASSIGN_OR_RETURN(const ValueId after, ScaledExtent(c, axis.out, as.in / common, 1));
  return before == after;
}

// Whether the element that a position of the result is taken from depends on the scale alone, not on the extents.
bool IsByScale(const std::string& coordinates, double scale, int64_t least_out) {
  if (coordinates == "half_pixel" || coordinates == "asymmetric" || coordinates == "tf_half_pixel_for_nn") return true;
  if (coordinates == "pytorch_half_pixel") return scale >= 1 || least_out > 1;
  return coordinates == "half_pixel_symmetric" && scale == std::floor(scale);
}

absl::Status CheckByRun(const Resampling& r) {
  for (const char* known :
       {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"}) {
    if (r.coordinates == known) return absl::OkStatus();
  }
  return absl::UnimplementedError("such coordinates depend on extents that only the run knows");
}

// What becomes of an extent by a scale of many bits: as it is rounded at each length that there may be.
absl::StatusOr<ValueId> RoundedExtent(Context& c, ValueId extent, const ResampledAxis& as) {
  const std::string what = absl::StrFormat("extent %d by %.17g in %d", extent, as.scale, as.in);
  if (const ValueId known = c.Made(what); known != kNoValue) return known;
  TEMPER_RETURN_IF_ERROR(CheckPlaces({as.in}));
  std::vector<int64_t> all;
  for (int64_t in = 0; in <= as.in; ++in) all.push_back(ExtentByScale(in, as.scale));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Gather(c.IntVector(all), extent, 0));
  c.SetMost(v, as.out);
  c.SetLeast(v, all[static_cast<size_t>(c.LeastOf(extent))]);
  c.KeepMade(what, v);
  return v;
}

// Where elements of the result lie on the operand's axis: as PositionOf, f32s [count].
ValueId Positions(Formula& f, const Resampling& r, ValueId in, ValueId out, ValueId scale, ValueId i) {
  const ValueId one = f.Number(1);
  if (r.coordinates == "align_corners") {
    const ValueId last = f.Plus(out, -1);
    const ValueId scaled = f.Div(f.Mul(i, f.Plus(in, -1)), f.Call("max", {last, one}));
    return f.Call("where", {f.Call("less", {last, one}), f.Number(0), scaled});
  }
  // Of a size it is what the size makes it.
  if (scale == kNoValue) scale = f.Div(out, f.Call("max", {in, one}));
  if (r.coordinates == "asymmetric") return f.Div(i, scale);
  const ValueId middle = f.Div(f.Plus(i, 0.5), scale);
  if (r.coordinates == "tf_half_pixel_for_nn") return middle;
  const ValueId half = f.Plus(middle, -0.5);
  if (r.coordinates == "half_pixel") return half;
  return f.Call("where", {f.Call("less", {out, f.Number(2)}), f.Number(0), half});
}

ValueId NearestTo(Formula& f, const std::string& mode, ValueId x) {
  if (mode == "floor") return f.Call("floor", {x});
  if (mode == "ceil") return f.Call("ceil", {x});
  return mode == "round_prefer_floor" ? f.Call("ceil", {f.Plus(x, -0.5)}) : f.Call("floor", {f.Plus(x, 0.5)});
}

// As resize_matrix.cc has it, of an element less than 1 away, or from 1 to 2.
ValueId Cubic(Formula& f, ValueId distance, double a, bool is_near) {
  const ValueId x = f.Call("abs", {distance});
  if (is_near) return f.Plus(f.Mul(f.Mul(f.Plus(f.Times(x, a + 2), -(a + 3)), x), x), 1);
  return f.Plus(f.Mul(f.Plus(f.Mul(f.Plus(f.Times(x, a), -5 * a), x), 8 * a), x), -4 * a);
}

// Whether no element of the nearest ones lies behind the end, wherever that is.
absl::StatusOr<bool> StaysBeforeEnd(const Resampling& r, const ResampledAxis& as) {
  ResampledAxis more = as;  // none of those that count is cut off
  more.in = 2 * as.in, more.out = 2 * as.out;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> at, NearestIndices(r, more));
  for (int64_t extent = 1; extent <= as.in; ++extent) {
    const int64_t out = static_cast<int64_t>(std::floor(static_cast<double>(extent) * as.scale));
    if (out > 0 && at[static_cast<size_t>(std::min(out, more.out)) - 1] >= extent) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<RangedAxis> RangedAxisOf(Context& c, ValueId x, const Resampling& r, const ResampledAxis& as,
                                        int64_t axis, std::optional<ValueId> out) {
  const Varying* own = c.VaryingAlong(x, axis);
  RangedAxis found{axis, own != nullptr ? own->extent : kNoValue, out.value_or(kNoValue), !out.has_value()};
  if (own == nullptr) {
    found.by_run = true;
    return found;
  }
  bool proportional = false;
  if (!out.has_value()) {
    const std::optional<Fraction> scale = FractionOf(as.scale);
    if (as.scale < 1 && ExtentByScale(c.LeastOf(found.in), as.scale) < 1)
      return absl::UnimplementedError(absl::StrCat("a scale of ", as.scale, " may leave nothing"));
    proportional = scale.has_value();
    TEMPER_ASSIGN_OR_RETURN(
        found.out, proportional ? ScaledExtent(c, found.in, scale->of, scale->by) : RoundedExtent(c, found.in, as));
  } else if (found.out != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(proportional, IsProportional(c, found, as));
  }
  const bool stays = found.in == found.out && as.scale == 1 && as.begin == 0 && as.end == 1;
  found.by_run = !stays && !(proportional && IsByScale(r.coordinates, as.scale, c.LeastOf(found.out)));
  // What is outside is not filled up.
  found.by_run = found.by_run || (!stays && r.exclude_outside && r.mode != "nearest");
  return found;
}

absl::StatusOr<ValueId> ReadyAlong(Context& c, ValueId x, const Resampling& r, const ResampledAxis& as,
                                   const RangedAxis& axis) {
  bool stays = axis.in == axis.out;
  if (!stays && r.mode == "nearest") {
    TEMPER_ASSIGN_OR_RETURN(stays, StaysBeforeEnd(r, as));
  }
  return stays ? WholeAlong(c, x, axis.axis) : EdgeFilled(c, x, axis.axis);
}

namespace {

// A filter's weights so far from its middle.
ValueId Filter(Formula& f, const Resampling& r, ValueId distance) {
  const ValueId away = f.Call("abs", {distance}), none = f.Number(0);
  if (r.mode != "cubic") return f.Call("max", {f.Minus(1, away), none});
  const ValueId far = f.Call("where", {f.Call("less", {away, f.Number(2)}), Cubic(f, away, r.cubic_a, false), none});
  return f.Call("where", {f.Call("less", {f.Number(1), away}), far, Cubic(f, away, r.cubic_a, true)});
}

// An axis on its way: what it has before and after, f32s, where its elements come from, and how far apart they are.
struct Course {
  ValueId last, at, scale;
};

// Places in the image, which floats say, as whole numbers that kernels know to be before its end.
absl::StatusOr<ValueId> PlacesInside(Context& c, ValueId places, ValueId extent) {
  TEMPER_ASSIGN_OR_RETURN(places, c.Cast(places, DType::kI64));
  if (extent == kNoValue) return places;
  Formula f(c, DType::kI64);
  const ValueId last = f.Call("max", {f.Plus(extent, -1), f.Number(0)});
  places = f.Call("min", {f.Call("max", {places, f.Number(0)}), last});
  TEMPER_RETURN_IF_ERROR(f.status());
  return places;
}

// By a filter that is stretched over all that becomes one element, or that leaves out what is outside: a product with a
// matrix that the run computes. Before the axis and behind it are as many elements more as the filter may reach.
absl::StatusOr<ValueId> Filtered(Context& c, Formula& f, ValueId x, const Resampling& r, const ResampledAxis& as,
                                 const RangedAxis& axis, const Course& course) {
  const double least_out = axis.out == kNoValue ? static_cast<double>(as.out)
                                                : static_cast<double>(std::max<int64_t>(c.LeastOf(axis.out), 1));
  const double most = axis.scaled ? 1 / as.scale : static_cast<double>(as.in) / least_out;
  const double reach = (r.mode == "cubic" ? 2 : 1) * (r.antialias ? std::max(most, 1.0) : 1);
  const auto around = static_cast<int64_t>(std::ceil(reach)) + 1;
  const int64_t seen = as.in + 2 * around;
  TEMPER_RETURN_IF_ERROR(CheckPlaces({seen, as.out}));
  const ValueId one = f.Number(1), none = f.Number(0);
  const ValueId place = f.Plus(Counting(c, DType::kF32, {seen, 1}), -static_cast<double>(around));
  ValueId distance = f.Sub(place, course.at);
  if (r.antialias) distance = f.Div(distance, f.Call("max", {f.Div(one, course.scale), one}));
  ValueId weights = Filter(f, r, distance);
  if (r.exclude_outside) {
    const ValueId inside =
        f.Call("and", {f.Call("less_equal", {none, place}), f.Call("less_equal", {place, course.last})});
    weights = f.Call("where", {inside, weights, none});
  }
  Attrs all;
  all.Set("axes", std::vector<int64_t>{0});
  all.Set("keepdims", int64_t{1});
  const ValueId sum = f.Call("reduce_sum", {weights}, std::move(all));
  weights = f.Div(weights, f.Call("where", {f.Call("equal", {sum, none}), one, sum}));
  const ValueId clamped = f.Call("min", {f.Call("max", {place, none}), course.last});
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(ValueId places, c.Reshape(clamped, {seen}));
  TEMPER_ASSIGN_OR_RETURN(places, PlacesInside(c, places, axis.in));
  const DType dtype = c.TypeOf(x).dtype;
  TEMPER_ASSIGN_OR_RETURN(x, c.Cast(x, DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(x, c.Gather(x, places, axis.axis));
  std::vector<int64_t> perm = AxesFrom(0, c.Rank(x));
  std::swap(perm[static_cast<size_t>(axis.axis)], perm.back());
  TEMPER_ASSIGN_OR_RETURN(x, c.Transpose(x, perm));
  TEMPER_ASSIGN_OR_RETURN(x, c.Call("matmul", {}, {x, weights}));
  TEMPER_ASSIGN_OR_RETURN(x, c.Transpose(x, perm));
  return c.Cast(x, dtype);
}

}  // namespace

absl::StatusOr<ValueId> ResampledByRun(Context& c, ValueId x, const Resampling& r, const ResampledAxis& as,
                                       const RangedAxis& axis) {
  TEMPER_RETURN_IF_ERROR(CheckByRun(r));
  TEMPER_RETURN_IF_ERROR(CheckPlaces({as.out}));
  const DType dtype = c.TypeOf(x).dtype;
  Formula f(c, DType::kF32);
  const auto extent = [&f](ValueId told, int64_t known) {
    return told != kNoValue ? f.Cast(told, "f32") : f.Number(static_cast<double>(known));
  };
  const ValueId in = extent(axis.in, as.in), out = extent(axis.out, as.out);
  const ValueId scale = axis.scaled ? f.Number(as.scale) : kNoValue;
  TEMPER_ASSIGN_OR_RETURN(x, WholeAlong(c, x, axis.axis));
  ValueId at = Positions(f, r, in, out, scale, Counting(c, DType::kF32, {as.out}));
  const ValueId last = f.Call("max", {f.Plus(in, -1), f.Number(0)});
  const auto inside = [&](ValueId position) { return f.Call("min", {f.Call("max", {position, f.Number(0)}), last}); };
  if (r.mode == "nearest") {
    const ValueId nearest = inside(NearestTo(f, r.nearest, at));
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(const ValueId places, PlacesInside(c, nearest, axis.in));
    return c.Gather(x, places, axis.axis);
  }
  if (r.antialias || r.exclude_outside) {
    const ValueId by = scale != kNoValue ? scale : f.Div(out, f.Call("max", {in, f.Number(1)}));
    return Filtered(c, f, x, r, as, axis, {last, at, by});
  }
  const ValueId low = f.Call("floor", {at}), share = f.Sub(at, low);
  Formula sum(c, dtype);
  ValueId v = kNoValue;
  const bool cubic = r.mode == "cubic";
  for (const int tap : cubic ? std::vector<int>{-1, 0, 1, 2} : std::vector<int>{0, 1}) {
    // What lies outside is the element at that end.
    const ValueId place = inside(f.Plus(low, tap)), distance = f.Plus(share, -tap);
    ValueId weight =
        cubic ? Cubic(f, distance, r.cubic_a, tap == 0 || tap == 1) : f.Sub(f.Number(1), f.Call("abs", {distance}));
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(const ValueId places, PlacesInside(c, place, axis.in));
    TEMPER_ASSIGN_OR_RETURN(const ValueId seen, c.Gather(x, places, axis.axis));
    TEMPER_ASSIGN_OR_RETURN(weight, LyingAlong(c, weight, axis.axis, x));
    TEMPER_ASSIGN_OR_RETURN(weight, c.Cast(weight, dtype));
    const ValueId term = sum.Mul(seen, weight);
    v = v == kNoValue ? term : sum.Add(v, term);
  }
  TEMPER_RETURN_IF_ERROR(sum.status());
  return v;
}

}  // namespace temper::onnx_frontend
