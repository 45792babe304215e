#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

// An array as [lines, extent, slice] around an axis.
struct Lines {
  int64_t lines = 1, extent = 1, slice = 1;
  Lines(const Shape& shape, int64_t axis) : extent(shape[static_cast<size_t>(axis)]) {
    for (int64_t d = 0; d < axis; ++d) lines *= shape[static_cast<size_t>(d)];
    for (size_t d = static_cast<size_t>(axis) + 1; d < shape.size(); ++d) slice *= shape[d];
  }
};

absl::StatusOr<NDArray> TopK(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const int64_t count = in[0].shape().back(), k = output.shape.back();
  const bool largest = attrs.Int("largest", 1) != 0;
  WithType(in[0].dtype(), [&](auto t) {
    using T = decltype(t);
    const auto is_nan = [](T v) { return v != v; };
    const auto before = [&](T a, T b) {
      if (is_nan(a) || is_nan(b)) return largest ? is_nan(a) && !is_nan(b) : is_nan(b) && !is_nan(a);
      return largest ? a > b : a < b;
    };
    const T* x = static_cast<const T*>(in[0].data());
    int32_t* out = static_cast<int32_t*>(result.MutableData());
    std::vector<int32_t> order(static_cast<size_t>(count));
    for (int64_t row = 0; row < in[0].size() / count; ++row, x += count, out += k) {
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(),
                        [&](int32_t a, int32_t b) { return before(x[a], x[b]) || (!before(x[b], x[a]) && a < b); });
      std::copy_n(order.begin(), k, out);
    }
  });
  return result;
}

absl::StatusOr<NDArray> CumSum(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const Lines x(output.shape, AxisOf(attrs, 0, output.shape));
  const bool exclusive = attrs.Int("exclusive", 0) != 0, reverse = attrs.Int("reverse", 0) != 0;
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    // Integers wrap, as kernels' do, and floats are summed in double.
    using Sum = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    const T* from = static_cast<const T*>(in[0].data());
    T* to = static_cast<T*>(result.MutableData());
    for (int64_t line = 0; line < x.lines; ++line) {
      for (int64_t s = 0; s < x.slice; ++s) {
        Sum sum = 0;
        for (int64_t step = 0; step < x.extent; ++step) {
          const int64_t at = (line * x.extent + (reverse ? x.extent - 1 - step : step)) * x.slice + s;
          if (exclusive) to[at] = static_cast<T>(sum);
          sum += static_cast<Sum>(from[at]);
          if (!exclusive) to[at] = static_cast<T>(sum);
        }
      }
    }
  });
  return result;
}

// Calls f(element of the result, element of the updates) for each in turn.
template <typename F>
void ForEachUpdate(const Attrs& attrs, Arrays in, F f) {
  const Shape& shape = in[0].shape();
  const Lines data(shape, AxisOf(attrs, 0, shape));
  const int64_t number = in[1].shape().back();
  for (int64_t line = 0; line < data.lines; ++line) {
    for (int64_t n = 0; n < number; ++n) {
      const int64_t update = line * number + n;
      const int64_t place = in[1].dtype() == DType::kI64 ? in[1].as<int64_t>()[static_cast<size_t>(update)]
                                                         : in[1].as<int32_t>()[static_cast<size_t>(update)];
      if (place < 0 || place >= data.extent) continue;
      for (int64_t s = 0; s < data.slice; ++s)
        f((line * data.extent + place) * data.slice + s, update * data.slice + s);
    }
  }
}

absl::StatusOr<NDArray> Scatter(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result = in[0].Clone();
  WithSize(output.dtype, [&](auto t) {
    using T = decltype(t);
    T* to = static_cast<T*>(result.MutableData());
    const T* from = static_cast<const T*>(in[2].data());
    ForEachUpdate(attrs, in, [&](int64_t element, int64_t update) { to[element] = from[update]; });
  });
  return result;
}

template <typename T>
T Combined(const std::string& reduction, T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // they wrap
    if (reduction == "sum") return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if (reduction == "product") return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  if (reduction == "sum") return a + b;
  if (reduction == "product") return a * b;
  return reduction == "least" ? std::min(a, b) : std::max(a, b);
}

absl::StatusOr<NDArray> ScatterReduce(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result = in[0].Clone();
  const std::string reduction = attrs.String("reduction", "");
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    T* to = static_cast<T*>(result.MutableData());
    const T* from = static_cast<const T*>(in[2].data());
    ForEachUpdate(attrs, in, [&](int64_t element, int64_t update) {
      to[element] = Combined(reduction, to[element], from[update]);
    });
  });
  return result;
}

absl::StatusOr<NDArray> Compact(const Attrs& attrs, Arrays in, const TensorType& output) {
  NDArray result(output.dtype, output.shape);
  const Lines x(output.shape, AxisOf(attrs, 0, output.shape));
  const int64_t extent = std::clamp<int64_t>(in[1].as<int64_t>()[0], 0, x.extent);
  WithSize(output.dtype, [&](auto t) {
    using T = decltype(t);
    T* to = static_cast<T*>(result.MutableData());
    const T* from = static_cast<const T*>(in[0].data());
    for (int64_t line = 0; line < x.lines; ++line, to += extent * x.slice, from += x.extent * x.slice)
      std::copy_n(from, extent * x.slice, to);
  });
  return result;
}

}  // namespace

std::span<const Reference> SequentialReferences() {
  static constexpr Reference kTable[] = {
      {"top_k", TopK},      {"cum_sum", CumSum}, {"scatter", Scatter}, {"scatter_reduce", ScatterReduce},
      {"compact", Compact},
  };
  return kTable;
}

}  // namespace temper::reference
