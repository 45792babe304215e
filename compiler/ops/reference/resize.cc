#include <algorithm>
#include <cmath>

#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

// ONNX's formulas. In long double the small fractions of image sizes are told apart exactly.
long double SourcePosition(const std::string& mode, int64_t i, int64_t in, int64_t out) {
  long double position = static_cast<long double>(i), from = static_cast<long double>(in),
              to = static_cast<long double>(out);
  if (mode == "asymmetric") return position * from / to;
  if (mode == "align_corners") return out == 1 ? 0 : position * (from - 1) / (to - 1);
  if (mode == "pytorch_half_pixel" && out == 1) return 0;
  return ((2 * position + 1) * from - to) / (2 * to);
}

int64_t Nearest(const std::string& mode, long double position) {
  if (mode == "floor") return static_cast<int64_t>(std::floor(position));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(position));
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(position + 0.5L));
  return static_cast<int64_t>(std::ceil(position - 0.5L));
}

// Resamples one axis; the others stay.
NDArray ResizeAxis(const NDArray& x, size_t axis, int64_t extent, const Attrs& attrs) {
  Shape shape = x.shape();
  int64_t before = shape[axis], inner = NumElements(Shape(shape.begin() + static_cast<int64_t>(axis) + 1, shape.end()));
  int64_t outer = NumElements(Shape(shape.begin(), shape.begin() + static_cast<int64_t>(axis)));
  shape[axis] = extent;
  NDArray result(x.dtype(), shape);
  bool linear = attrs.String("mode", "nearest") == "linear";
  std::string coordinates = attrs.String("coordinate_transformation_mode", "half_pixel");
  std::string nearest = attrs.String("nearest_mode", "round_prefer_floor");
  std::vector<int64_t> sources;
  std::vector<double> weights;
  for (int64_t i = 0; i < extent; ++i) {
    long double position = SourcePosition(coordinates, i, before, extent);
    sources.push_back(linear ? static_cast<int64_t>(std::floor(position)) : Nearest(nearest, position));
    weights.push_back(static_cast<double>(position - static_cast<long double>(sources.back())));
  }
  WithType(x.dtype(), [&](auto t) {
    using T = decltype(t);
    for (int64_t i = 0; i < outer * extent; ++i) {
      int64_t source = sources[i % extent];
      double weight = weights[i % extent];
      const T* image = x.as<T>().data() + i / extent * before * inner;
      const T* low = image + std::clamp<int64_t>(source, 0, before - 1) * inner;
      const T* high = image + std::clamp<int64_t>(source + 1, 0, before - 1) * inner;
      T* out = result.as<T>().data() + i * inner;
      if (!linear) std::copy_n(low, inner, out);
      for (int64_t k = 0; linear && k < inner; ++k) {
        out[k] = static_cast<T>((1 - weight) * static_cast<double>(low[k]) + weight * static_cast<double>(high[k]));
      }
    }
  });
  return result;
}

absl::StatusOr<NDArray> Resize(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result = in[0];
  for (size_t axis = 0; axis < output.shape.size(); ++axis) {
    if (in[0].shape()[axis] != output.shape[axis]) result = ResizeAxis(result, axis, output.shape[axis], attrs);
  }
  return result;
}

}  // namespace

std::span<const Reference> ResizeReferences() {
  static constexpr Reference kTable[] = {
      {"resize", Resize},
  };
  return kTable;
}

}  // namespace temper::reference
