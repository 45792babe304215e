// Images and volumes at positions that the run computes. Each result gathers whole pixels, all channels of one beside
// each other, and adds them up by weights.
#pragma once

#include "compiler/frontend/onnx/formula.h"

namespace temper::onnx_frontend {

enum class Sampling { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

// A pixel that counts: its place, in pixels, and its weight.
struct Tap {
  ValueId place, weight;
};

// Positions along one axis of an image, as values of the formula's type. Lives no longer than the formula.
class Axis1d {
 public:
  // `aligned`: where a grid's positions count from the middles of the outer pixels, not from their outer edges.
  Axis1d(Formula& f, int64_t extent, bool aligned, Padding padding)
      : f_(f), extent_(static_cast<double>(extent)), aligned_(aligned), padding_(padding) {}

  // The pixels around the positions `grid`: from -1, the first pixel's middle or its outer edge, to 1, the last one's.
  std::vector<Tap> Taps(ValueId grid, Sampling sampling);
  // The same around positions in pixels: the first pixel's middle is 0.
  std::vector<Tap> TapsAt(ValueId position, Sampling sampling);

 private:
  double low() const { return aligned_ ? 0 : -0.5; }
  double span() const { return aligned_ ? extent_ - 1 : extent_; }

  std::vector<ValueId> LinearWeights(ValueId share);
  std::vector<ValueId> CubicWeights(ValueId share);
  ValueId NearWeight(ValueId d);
  ValueId FarWeight(ValueId d);
  ValueId Pixel(ValueId whole);
  ValueId Weight(ValueId weight, ValueId whole);
  ValueId Folded(ValueId position);
  ValueId Reflected(ValueId position);

  Formula& f_;
  double extent_;
  bool aligned_;
  Padding padding_;
};

// An image, [n, c, ...], at the taps of each of its axes, whose places and weights are [n, ..., 1]: the result has the
// shape `out` and then c, where `out` is that of places without the 1.
absl::StatusOr<ValueId> Sampled(Context& c, Formula& f, ValueId image, const std::vector<std::vector<Tap>>& axes,
                                const Shape& out);

}  // namespace temper::onnx_frontend
