#include "compiler/frontend/onnx/resize_run.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
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
  const bool between = r.mode != "nearest";
  for (const char* known :
       {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"}) {
    if (r.coordinates == known && !r.antialias && !(between && r.exclude_outside)) return absl::OkStatus();
  }
  return absl::UnimplementedError("such coordinates or a filter depend on extents that only the run knows");
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
    if (!scale.has_value())
      return absl::UnimplementedError(
          absl::StrCat("a scale of ", as.scale, " along an axis whose extent only the run knows"));
    if (c.LeastOf(own->extent) * scale->of < scale->by && scale->of < scale->by)
      return absl::UnimplementedError(absl::StrCat("a scale of ", as.scale, " may leave nothing"));
    proportional = true;
    TEMPER_ASSIGN_OR_RETURN(found.out, ScaledExtent(c, found.in, scale->of, scale->by));
  } else if (found.out != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(proportional, IsProportional(c, found, as));
  }
  const bool stays = found.in == found.out && as.scale == 1 && as.begin == 0 && as.end == 1;
  found.by_run = !stays && !(proportional && IsByScale(r.coordinates, as.scale, c.LeastOf(found.out)));
  if (!found.by_run && !stays && r.exclude_outside && r.mode != "nearest")
    return absl::UnimplementedError("a filter without what is outside, which only the run knows");
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
    const ValueId nearest = f.Cast(inside(NearestTo(f, r.nearest, at)), "i64");
    TEMPER_RETURN_IF_ERROR(f.status());
    return c.Gather(x, nearest, axis.axis);
  }
  const ValueId low = f.Call("floor", {at}), share = f.Sub(at, low);
  Formula sum(c, dtype);
  ValueId v = kNoValue;
  const bool cubic = r.mode == "cubic";
  for (const int tap : cubic ? std::vector<int>{-1, 0, 1, 2} : std::vector<int>{0, 1}) {
    // What lies outside is the element at that end.
    const ValueId place = f.Cast(inside(f.Plus(low, tap)), "i64"), distance = f.Plus(share, -tap);
    ValueId weight =
        cubic ? Cubic(f, distance, r.cubic_a, tap == 0 || tap == 1) : f.Sub(f.Number(1), f.Call("abs", {distance}));
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(const ValueId seen, c.Gather(x, place, axis.axis));
    TEMPER_ASSIGN_OR_RETURN(weight, LyingAlong(c, weight, axis.axis, x));
    TEMPER_ASSIGN_OR_RETURN(weight, c.Cast(weight, dtype));
    const ValueId term = sum.Mul(seen, weight);
    v = v == kNoValue ? term : sum.Add(v, term);
  }
  TEMPER_RETURN_IF_ERROR(sum.status());
  return v;
}

}  // namespace temper::onnx_frontend
