#include <cmath>

#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

template <typename F>
NDArray Arithmetic(Arrays inputs, const TensorType& output, F f) {
  NDArray result(output.dtype, output.shape);
  WithType(output.dtype, [&](auto t) {
    using T = decltype(t);
    Map2Into<T, T, T>(inputs[0], inputs[1], result, f);
  });
  return result;
}

// f gives 0 or 1.
template <typename F>
NDArray Comparison(Arrays inputs, const TensorType& output, F f) {
  NDArray result(DType::kBool, output.shape);
  WithType(inputs[0].dtype(), [&](auto t) {
    using T = decltype(t);
    Map2Into<uint8_t, T, T>(inputs[0], inputs[1], result, f);
  });
  return result;
}

template <typename F>
NDArray Logic(Arrays inputs, const TensorType& output, F f) {
  NDArray result(DType::kBool, output.shape);
  Map2Into<uint8_t, uint8_t, uint8_t>(inputs[0], inputs[1], result, f);
  return result;
}

// Integers as 64 bits without a sign, whose arithmetic wraps; floats as they are.
template <typename T>
auto Unbounded(T v) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<uint64_t>(v);
  else
    return v;
}

template <typename T>
T FloorMod(T a, T b) {
  T r = static_cast<T>(a % b);
  return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
}

absl::StatusOr<NDArray> Add(const Attrs&, Arrays in, const TensorType& out) {
  return Arithmetic(in, out, [](auto a, auto b) { return Unbounded(a) + Unbounded(b); });
}
absl::StatusOr<NDArray> Sub(const Attrs&, Arrays in, const TensorType& out) {
  return Arithmetic(in, out, [](auto a, auto b) { return Unbounded(a) - Unbounded(b); });
}
absl::StatusOr<NDArray> Mul(const Attrs&, Arrays in, const TensorType& out) {
  return Arithmetic(in, out, [](auto a, auto b) { return Unbounded(a) * Unbounded(b); });
}
absl::StatusOr<NDArray> Div(const Attrs&, Arrays in, const TensorType& out) {
  return Arithmetic(in, out, [](auto a, auto b) {
    if constexpr (std::is_integral_v<decltype(a)>) {
      if (b == 0) return decltype(a / b)(0);  // undefined in ONNX; anything but a trap
    }
    return a / b;
  });
}
absl::StatusOr<NDArray> Min(const Attrs&, Arrays in, const TensorType& out) {
  return Arithmetic(in, out, [](auto a, auto b) { return b < a ? b : a; });
}
absl::StatusOr<NDArray> Max(const Attrs&, Arrays in, const TensorType& out) {
  return Arithmetic(in, out, [](auto a, auto b) { return a < b ? b : a; });
}
absl::StatusOr<NDArray> Prelu(const Attrs&, Arrays in, const TensorType& out) {
  return Arithmetic(in, out, [](auto a, auto b) { return a < 0 ? a * b : a; });
}

absl::StatusOr<NDArray> Mod(const Attrs& attrs, Arrays in, const TensorType& out) {
  bool truncated = attrs.Int("fmod", 0) != 0;
  return Arithmetic(in, out, [truncated](auto a, auto b) -> decltype(a) {
    using T = decltype(a);
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return T(0);
      return truncated ? static_cast<T>(a % b) : FloorMod(a, b);
    } else {
      return std::fmod(a, b);
    }
  });
}

absl::StatusOr<NDArray> Pow(const Attrs&, Arrays in, const TensorType& out) {
  NDArray result(out.dtype, out.shape);
  const NDArray exponent = in[1].ConvertedTo(DType::kF64);
  WithType(out.dtype, [&](auto t) {
    using T = decltype(t);
    Map2Into<T, T, double>(in[0], exponent, result, [](T a, double b) {
      const double power = std::pow(static_cast<double>(a), b);
      return std::is_integral_v<T> ? std::nearbyint(power) : power;
    });
  });
  return result;
}

absl::StatusOr<NDArray> Equal(const Attrs&, Arrays in, const TensorType& out) {
  return Comparison(in, out, [](auto a, auto b) { return a == b; });
}
absl::StatusOr<NDArray> Less(const Attrs&, Arrays in, const TensorType& out) {
  return Comparison(in, out, [](auto a, auto b) { return a < b; });
}
absl::StatusOr<NDArray> LessEqual(const Attrs&, Arrays in, const TensorType& out) {
  return Comparison(in, out, [](auto a, auto b) { return a <= b; });
}
absl::StatusOr<NDArray> Greater(const Attrs&, Arrays in, const TensorType& out) {
  return Comparison(in, out, [](auto a, auto b) { return a > b; });
}
absl::StatusOr<NDArray> GreaterEqual(const Attrs&, Arrays in, const TensorType& out) {
  return Comparison(in, out, [](auto a, auto b) { return a >= b; });
}
absl::StatusOr<NDArray> And(const Attrs&, Arrays in, const TensorType& out) {
  return Logic(in, out, [](auto a, auto b) { return a != 0 && b != 0; });
}
absl::StatusOr<NDArray> Or(const Attrs&, Arrays in, const TensorType& out) {
  return Logic(in, out, [](auto a, auto b) { return a != 0 || b != 0; });
}

absl::StatusOr<NDArray> Where(const Attrs&, Arrays in, const TensorType& out) {
  NDArray result(out.dtype, out.shape);
  std::vector<std::vector<int64_t>> strides;
  for (const NDArray& x : in) strides.push_back(BroadcastStrides(x.shape(), out.shape));
  auto step = [&](int k) { return strides[k].empty() ? 0 : strides[k].back(); };
  WithSize(out.dtype, [&](auto t) {
    using T = decltype(t);
    ForEachRun(out.shape, strides, [&](int64_t at, const std::vector<int64_t>& offsets, int64_t n) {
      const uint8_t* condition = in[0].as<uint8_t>().data() + offsets[0];
      const T* a = static_cast<const T*>(in[1].data()) + offsets[1];
      const T* b = static_cast<const T*>(in[2].data()) + offsets[2];
      T* r = static_cast<T*>(result.MutableData()) + at;
      for (int64_t i = 0; i < n; ++i) r[i] = condition[i * step(0)] != 0 ? a[i * step(1)] : b[i * step(2)];
    });
  });
  return result;
}

}  // namespace

std::span<const Reference> BinaryReferences() {
  static constexpr Reference kTable[] = {
      {"add", Add},         {"sub", Sub},
      {"mul", Mul},         {"div", Div},
      {"pow", Pow},         {"min", Min},
      {"max", Max},         {"mod", Mod},
      {"prelu", Prelu},     {"equal", Equal},
      {"less", Less},       {"less_equal", LessEqual},
      {"greater", Greater}, {"greater_equal", GreaterEqual},
      {"and", And},         {"or", Or},
      {"where", Where},
  };
  return kTable;
}

}  // namespace temper::reference
