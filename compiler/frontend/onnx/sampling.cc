#include "compiler/frontend/onnx/sampling.h"

#include <algorithm>

#include "base/strides.h"

namespace temper::onnx_frontend {

std::vector<Tap> Axis1d::Taps(ValueId grid, Sampling sampling) {
  const double scale = span() / 2;
  return TapsAt(f_.Plus(f_.Times(grid, scale), (extent_ - 1) / 2), sampling);
}

std::vector<Tap> Axis1d::TapsAt(ValueId position, Sampling sampling) {
  if (sampling == Sampling::kNearest) {
    const ValueId whole = f_.Call("round", {position});
    return {{Pixel(Folded(whole)), Weight(f_.Number(1), whole)}};
  }
  const bool linear = sampling == Sampling::kLinear;
  // Padding the position does for both pixels of a linear one; those of a cubic are padded one by one.
  if (linear && padding_ != Padding::kZeros) position = f_.Clip(Folded(position), 0, extent_ - 1);
  const ValueId first = f_.Call("floor", {position}), share = f_.Sub(position, first);
  std::vector<Tap> taps;
  int64_t offset = linear ? 0 : -1;
  for (const ValueId weight : linear ? LinearWeights(share) : CubicWeights(share)) {
    const ValueId whole = f_.Plus(first, static_cast<double>(offset++));
    taps.push_back({Pixel(linear ? whole : Folded(whole)), Weight(weight, whole)});
  }
  return taps;
}

std::vector<ValueId> Axis1d::LinearWeights(ValueId share) { return {f_.Minus(1, share), share}; }

// Keys' convolution with a = -3/4: of the pixels at distances 1 + s, s, 1 - s and 2 - s.
std::vector<ValueId> Axis1d::CubicWeights(ValueId share) {
  const ValueId rest = f_.Minus(1, share);
  return {FarWeight(share), NearWeight(share), NearWeight(rest), FarWeight(rest)};
}
// (a + 2) d^3 - (a + 3) d^2 + 1
ValueId Axis1d::NearWeight(ValueId d) { return f_.Plus(f_.Mul(f_.Mul(d, d), f_.Plus(f_.Times(d, 1.25), -2.25)), 1); }
// a (t^3 - 5 t^2 + 8 t - 4) at t = 1 + d, which is a d (1 - d)^2.
ValueId Axis1d::FarWeight(ValueId d) {
  const ValueId rest = f_.Minus(1, d);
  return f_.Times(f_.Mul(d, f_.Mul(rest, rest)), -0.75);
}

// Which pixel it is, inside the image, as an i64.
ValueId Axis1d::Pixel(ValueId whole) { return f_.Cast(f_.Clip(whole, 0, extent_ - 1), "i64"); }
// The weight, or none where the pixel is outside.
ValueId Axis1d::Weight(ValueId weight, ValueId whole) {
  if (padding_ != Padding::kZeros) return weight;
  const ValueId low = f_.Call("less_equal", {f_.Number(0), whole});
  const ValueId high = f_.Call("less", {whole, f_.Number(extent_)});
  return f_.Call("where", {f_.Call("and", {low, high}), weight, f_.Number(0)});
}
// Where a position outside is reflected to.
ValueId Axis1d::Folded(ValueId position) { return padding_ == Padding::kReflection ? Reflected(position) : position; }
// There and back again: twice the image.
ValueId Axis1d::Reflected(ValueId position) {
  if (span() <= 0) return f_.Clip(position, 0, 0);
  const ValueId shifted = f_.Plus(position, -low());
  const ValueId turns = f_.Call("floor", {f_.Times(shifted, 1 / (2 * span()))});
  const ValueId there = f_.Sub(shifted, f_.Times(turns, 2 * span()));
  return f_.Plus(f_.Call("min", {there, f_.Minus(2 * span(), there)}), low());
}

namespace {

// Every pixel that counts for all axes: places and weights of [n, ..., 1].
std::vector<Tap> Crossed(Context& c, Formula& f, const std::vector<std::vector<Tap>>& axes, const Shape& extents) {
  const std::vector<int64_t> strides = RowMajorStrides(extents);
  std::vector<Tap> all;
  for (size_t d = 0; d < axes.size(); ++d) {
    std::vector<Tap> crossed;
    for (Tap tap : axes[d]) {
      if (strides[d] != 1) tap.place = f.Mul(tap.place, c.Scalar(DType::kI64, static_cast<double>(strides[d])));
      if (d == 0) crossed.push_back(tap);
      for (const Tap& before : all)
        crossed.push_back({f.Add(before.place, tap.place), f.Mul(before.weight, tap.weight)});
    }
    all = std::move(crossed);
  }
  return all;
}

// Sums up the pixels of an image at the taps.
absl::StatusOr<ValueId> Summed(Context& c, Formula& f, ValueId image, const std::vector<Tap>& taps, const Shape& out) {
  const Shape s = c.ShapeOf(image);
  const int64_t pixels = NumElements(std::span(s).subspan(2));
  std::vector<int64_t> channels_last = AxesFrom(0, std::ssize(s));
  std::rotate(channels_last.begin() + 1, channels_last.begin() + 2, channels_last.end());
  TEMPER_ASSIGN_OR_RETURN(ValueId flat, c.Transpose(image, channels_last));
  TEMPER_ASSIGN_OR_RETURN(flat, c.Reshape(flat, {s[0] * pixels, s[1]}));
  Shape apart(out.size() + 1, 1);
  apart[0] = s[0];
  NDArray starts(DType::kI64, apart);
  for (int64_t i = 0; i < s[0]; ++i) starts.Set(i, static_cast<double>(i * pixels));
  const ValueId first = c.Constant(std::move(starts));
  ValueId sum = kNoValue;
  for (const Tap& tap : taps) {
    const ValueId place = f.Add(tap.place, first);
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(const ValueId at, c.Reshape(place, out));
    Attrs axis;
    axis.Set("axis", int64_t{0});
    const ValueId part = f.Mul(f.Call("gather", {flat, at}, std::move(axis)), tap.weight);
    sum = sum == kNoValue ? part : f.Add(sum, part);
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  return sum;
}

}  // namespace

absl::StatusOr<ValueId> Sampled(Context& c, Formula& f, ValueId image, const std::vector<std::vector<Tap>>& axes,
                                const Shape& out) {
  const Shape shape = c.ShapeOf(image);
  std::vector<Tap> taps = Crossed(c, f, axes, Shape(shape.begin() + 2, shape.end()));
  TEMPER_RETURN_IF_ERROR(f.status());
  for (Tap& tap : taps) {
    TEMPER_ASSIGN_OR_RETURN(tap.weight, c.Cast(tap.weight, c.TypeOf(image).dtype));
  }
  return Summed(c, f, image, taps, out);
}

}  // namespace temper::onnx_frontend
