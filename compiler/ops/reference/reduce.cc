#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

// Strides of the result along the operand's axes, 0 along reduced ones.
std::vector<int64_t> ResultStrides(const Attrs& attrs, const Shape& shape) {
  std::vector<int64_t> axes = attrs.Ints("axes");
  int64_t rank = static_cast<int64_t>(shape.size()), stride = 1;
  std::vector<int64_t> strides(shape.size(), 0);
  for (int64_t i = rank; i-- > 0;) {
    bool reduced =
        axes.empty() || std::count(axes.begin(), axes.end(), i) + std::count(axes.begin(), axes.end(), i - rank) > 0;
    if (reduced) continue;
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

// Folds in double for floats and in 64 bits for integers; finish(value, elements folded) is stored.
template <typename Fold, typename Finish>
absl::StatusOr<NDArray> Reduce(const Attrs& attrs, const NDArray& x, const TensorType& output, double start, Fold fold,
                               Finish finish) {
  NDArray result(output.dtype, output.shape);
  std::vector<std::vector<int64_t>> strides = {ResultStrides(attrs, x.shape())};
  int64_t step = strides[0].empty() ? 0 : strides[0].back();
  WithType(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using Wide =
        std::conditional_t<std::is_same_v<T, uint64_t>, T, std::conditional_t<std::is_integral_v<T>, int64_t, double>>;
    Wide first = std::is_integral_v<T> && std::isinf(start)
                     ? (start < 0 ? std::numeric_limits<Wide>::min() : std::numeric_limits<Wide>::max())
                     : static_cast<Wide>(start);
    std::vector<Wide> folded(static_cast<size_t>(result.size()), first);
    const T* in = x.as<T>().data();
    ForEachRun(x.shape(), strides, [&](int64_t at, const std::vector<int64_t>& offsets, int64_t n) {
      Wide* out = folded.data() + offsets[0];
      for (int64_t i = 0; i < n; ++i) out[i * step] = fold(out[i * step], static_cast<Wide>(in[at + i]));
    });
    Wide count = static_cast<Wide>(x.size() / std::max<int64_t>(result.size(), 1));
    for (int64_t i = 0; i < result.size(); ++i) result.as<T>()[i] = static_cast<T>(finish(folded[i], count));
  });
  return result;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kKeep = [](auto v, auto) { return v; };

absl::StatusOr<NDArray> ReduceSum(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Reduce(
      attrs, in[0], output, 0, [](auto a, auto b) { return a + b; }, kKeep);
}
absl::StatusOr<NDArray> ReduceMean(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Reduce(
      attrs, in[0], output, 0, [](auto a, auto b) { return a + b; }, [](auto v, auto n) { return v / n; });
}
absl::StatusOr<NDArray> ReduceMax(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Reduce(
      attrs, in[0], output, -kInfinity, [](auto a, auto b) { return std::max(a, b); }, kKeep);
}
absl::StatusOr<NDArray> ReduceMin(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Reduce(
      attrs, in[0], output, kInfinity, [](auto a, auto b) { return std::min(a, b); }, kKeep);
}
absl::StatusOr<NDArray> ReduceProd(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Reduce(
      attrs, in[0], output, 1, [](auto a, auto b) { return a * b; }, kKeep);
}
absl::StatusOr<NDArray> ReduceL2(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Reduce(
      attrs, in[0], output, 0, [](auto a, auto b) { return a + b * b; },
      [](auto v, auto) { return std::sqrt(static_cast<double>(v)); });
}

// `is_beyond(a, b)`: a is further out than b. NaN is as far out as can be.
template <typename IsBeyond>
absl::StatusOr<NDArray> Arg(const Attrs& attrs, const NDArray& operand, const TensorType& output, double furthest,
                            IsBeyond is_beyond) {
  const Shape& shape = operand.shape();
  const int64_t axis = AxisOf(attrs, 0, shape);
  const bool last = attrs.Int("select_last_index", 0) != 0;
  int64_t inner = NumElements(Shape(shape.begin() + axis + 1, shape.end())), extent = shape[axis];
  int64_t outer = NumElements(Shape(shape.begin(), shape.begin() + axis));
  NDArray result(DType::kI64, output.shape);
  WithType(operand.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* x = operand.as<T>().data();
    const auto number = [&](T v) { return v == v ? v : static_cast<T>(furthest); };
    for (int64_t i = 0; i < outer * inner; ++i) {
      const T* from = x + i / inner * extent * inner + i % inner;
      int64_t best = 0;
      for (int64_t k = 1; k < extent; ++k) {
        const T here = number(from[k * inner]), there = number(from[best * inner]);
        if (is_beyond(here, there) || (last && here == there)) best = k;
      }
      result.as<int64_t>()[i] = best;
    }
  });
  return result;
}
absl::StatusOr<NDArray> ArgMax(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Arg(attrs, in[0], output, kInfinity, [](auto a, auto b) { return a > b; });
}
absl::StatusOr<NDArray> ArgMin(const Attrs& attrs, Arrays in, const TensorType& output) {
  return Arg(attrs, in[0], output, -kInfinity, [](auto a, auto b) { return a < b; });
}

}  // namespace

std::span<const Reference> ReduceReferences() {
  static constexpr Reference kTable[] = {
      {"reduce_sum", ReduceSum},   {"reduce_mean", ReduceMean}, {"reduce_max", ReduceMax}, {"reduce_min", ReduceMin},
      {"reduce_prod", ReduceProd}, {"reduce_l2", ReduceL2},     {"arg_max", ArgMax},       {"arg_min", ArgMin},
  };
  return kTable;
}

}  // namespace temper::reference
