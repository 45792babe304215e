#include <algorithm>
#include <limits>

#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

struct Pooling {
  std::vector<int64_t> kernel, strides, pads, dilations;
  explicit Pooling(const Attrs& a)
      : kernel(a.Ints("kernel")),
        strides(a.Ints("strides", {1, 1})),
        pads(a.Ints("pads", {0, 0, 0, 0})),
        dilations(a.Ints("dilations", {1, 1})) {}
};

// For each output pixel of each plane: fold the pixels its window sees, then finish(value, y, x).
template <typename T, typename Fold, typename Finish>
void PoolPlanes(const Pooling& p, const NDArray& in, NDArray& out, double start, Fold fold, Finish finish) {
  int64_t planes = in.shape()[0] * in.shape()[1], height = in.shape()[2], width = in.shape()[3];
  int64_t rows = out.shape()[2], columns = out.shape()[3];
  const T* image = in.as<T>().data();
  T* result = out.as<T>().data();
  for (int64_t plane = 0; plane < planes; ++plane, image += height * width) {
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < columns; ++x) {
        T value = static_cast<T>(start);
        bool any = false;
        for (int64_t ky = 0; ky < p.kernel[0]; ++ky) {
          int64_t iy = y * p.strides[0] - p.pads[0] + ky * p.dilations[0];
          if (iy < 0 || iy >= height) continue;
          for (int64_t kx = 0; kx < p.kernel[1]; ++kx) {
            int64_t ix = x * p.strides[1] - p.pads[1] + kx * p.dilations[1];
            if (ix < 0 || ix >= width) continue;
            T pixel = image[iy * width + ix];
            value = any ? fold(value, pixel) : pixel;
            any = true;
          }
        }
        *result++ = finish(value, y, x);
      }
    }
  }
}

absl::StatusOr<NDArray> MaxPool2d(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    double lowest = static_cast<double>(std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                                             : std::numeric_limits<T>::lowest());
    PoolPlanes<T>(
        Pooling(attrs), in[0], result, lowest, [](T a, T b) { return std::max(a, b); },
        [](T v, int64_t, int64_t) { return v; });
  });
  return result;
}

absl::StatusOr<NDArray> AvgPool2d(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  Pooling p(attrs);
  bool include_pad = attrs.Int("count_include_pad", 0) != 0;
  const Shape& shape = in[0].shape();
  auto taps = [&](int axis, int64_t position) {
    int64_t counted = 0;
    for (int64_t k = 0; k < p.kernel[axis]; ++k) {
      int64_t at = position * p.strides[axis] - p.pads[axis] + k * p.dilations[axis];
      bool in_image = at >= 0 && at < shape[2 + axis];
      bool in_padding = at >= -p.pads[axis] && at < shape[2 + axis] + p.pads[2 + axis];
      counted += in_image || (include_pad && in_padding) ? 1 : 0;
    }
    return counted;
  };
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    PoolPlanes<T>(
        p, in[0], result, 0, [](T a, T b) { return static_cast<T>(a + b); },
        [&](T sum, int64_t y, int64_t x) { return static_cast<T>(sum / static_cast<T>(taps(0, y) * taps(1, x))); });
  });
  return result;
}

}  // namespace

std::span<const Reference> PoolReferences() {
  static constexpr Reference kTable[] = {
      {"max_pool2d", MaxPool2d},
      {"avg_pool2d", AvgPool2d},
  };
  return kTable;
}

}  // namespace temper::reference
