#include <algorithm>
#include <cmath>

#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

// Calls f(T()) for the float types.
template <typename F>
void WithFloat(DType dtype, F f) {
  if (dtype == DType::kF64)
    f(double());
  else
    f(float());
}

int64_t Axis(const Attrs& attrs, const NDArray& x) { return AxisOf(attrs, -1, x.shape()); }

// Along `axis`: f(first element, result's first element, elements, stride).
template <typename T, typename F>
void ForEachLine(const NDArray& x, NDArray& result, int64_t axis, F f) {
  int64_t inner = NumElements(Shape(x.shape().begin() + axis + 1, x.shape().end())), extent = x.shape()[axis];
  for (int64_t i = 0; i < x.size() / extent; ++i) {
    int64_t at = i / inner * extent * inner + i % inner;
    f(x.as<T>().data() + at, result.as<T>().data() + at, extent, inner);
  }
}

template <typename T>
T Largest(const T* x, int64_t n, int64_t stride) {
  T largest = x[0];
  for (int64_t k = 1; k < n; ++k) largest = std::max(largest, x[k * stride]);
  return largest;
}

struct Moments {
  double mean, deviation;
};
template <typename T>
Moments MomentsOf(const T* x, int64_t n, double epsilon) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, std::sqrt(squares / static_cast<double>(n) + epsilon)};
}

absl::StatusOr<NDArray> Softmax(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  WithFloat(output.dtype, [&](auto t) {
    using T = decltype(t);
    ForEachLine<T>(in[0], result, Axis(attrs, in[0]), [](const T* x, T* y, int64_t n, int64_t stride) {
      T largest = Largest(x, n, stride);
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += y[k * stride] = std::exp(x[k * stride] - largest);
      for (int64_t k = 0; k < n; ++k) y[k * stride] = static_cast<T>(y[k * stride] / sum);
    });
  });
  return result;
}

absl::StatusOr<NDArray> LogSoftmax(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  WithFloat(output.dtype, [&](auto t) {
    using T = decltype(t);
    ForEachLine<T>(in[0], result, Axis(attrs, in[0]), [](const T* x, T* y, int64_t n, int64_t stride) {
      T largest = Largest(x, n, stride);
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += std::exp(x[k * stride] - largest);
      for (int64_t k = 0; k < n; ++k) y[k * stride] = static_cast<T>(x[k * stride] - largest - std::log(sum));
    });
  });
  return result;
}

absl::StatusOr<NDArray> LayerNorm(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  int64_t axis = Axis(attrs, in[0]), length = NumElements(Shape(output.shape.begin() + axis, output.shape.end()));
  double epsilon = attrs.Float("epsilon", 1e-5);
  WithFloat(output.dtype, [&](auto t) {
    using T = decltype(t);
    for (int64_t row = 0; row < (length == 0 ? 0 : result.size() / length); ++row) {
      const T* x = in[0].as<T>().data() + row * length;
      Moments moments = MomentsOf(x, length, epsilon);
      for (int64_t i = 0; i < length; ++i)
        result.as<T>()[row * length + i] = static_cast<T>((x[i] - moments.mean) / moments.deviation);
    }
    NDArray standard = result.Clone();
    Map2Into<T, T, T>(standard, in[1], result, [](T a, T b) { return a * b; });
    if (in.size() < 3 || in[2].shape().empty()) return;
    NDArray scaled = result.Clone();
    Map2Into<T, T, T>(scaled, in[2], result, [](T a, T b) { return a + b; });
  });
  return result;
}

absl::StatusOr<NDArray> GroupNorm(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const int64_t channels = output.shape[1], pixels = NumElements(Shape(output.shape.begin() + 2, output.shape.end())),
                groups = attrs.Int("groups", channels), length = groups == 0 ? 0 : channels / groups * pixels;
  double epsilon = attrs.Float("epsilon", 1e-5);
  WithFloat(output.dtype, [&](auto t) {
    using T = decltype(t);
    for (int64_t group = 0; group < output.shape[0] * groups; ++group) {
      const T* x = in[0].as<T>().data() + group * length;
      Moments moments = MomentsOf(x, length, epsilon);
      for (int64_t i = 0; i < length; ++i) {
        const int64_t channel = (group * length + i) / pixels % channels;
        result.as<T>()[group * length + i] =
            static_cast<T>((x[i] - moments.mean) / moments.deviation * in[1].At(channel) + in[2].At(channel));
      }
    }
  });
  return result;
}

absl::StatusOr<NDArray> BatchNorm(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  int64_t channels = output.shape[1], length = NumElements(Shape(output.shape.begin() + 2, output.shape.end()));
  double epsilon = attrs.Float("epsilon", 1e-5);
  WithFloat(output.dtype, [&](auto t) {
    using T = decltype(t);
    for (int64_t plane = 0; plane < output.shape[0] * channels; ++plane) {
      int64_t c = plane % channels;
      double factor = in[1].At(c) / std::sqrt(in[4].At(c) + epsilon), offset = in[2].At(c) - in[3].At(c) * factor;
      const T* x = in[0].as<T>().data() + plane * length;
      for (int64_t i = 0; i < length; ++i) result.as<T>()[plane * length + i] = static_cast<T>(x[i] * factor + offset);
    }
  });
  return result;
}

}  // namespace

std::span<const Reference> NormReferences() {
  static constexpr Reference kTable[] = {
      {"softmax", Softmax},      {"log_softmax", LogSoftmax}, {"layer_norm", LayerNorm},
      {"group_norm", GroupNorm}, {"batch_norm", BatchNorm},
  };
  return kTable;
}

}  // namespace temper::reference
