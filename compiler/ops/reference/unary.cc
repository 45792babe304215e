#include <cmath>
#include <limits>

#include "compiler/ops/infer_util.h"
#include "compiler/ops/reference/loops.h"
#include "compiler/ops/reference/reference.h"

namespace temper::reference {
namespace {

template <typename F>
NDArray MapFloat(const NDArray& x, F f) {
  NDArray result(x.dtype(), x.shape());
  if (x.dtype() == DType::kF64)
    MapInto<double, double>(x, result, f);
  else
    MapInto<float, float>(x, result, f);
  return result;
}

template <typename F>
NDArray MapNumber(const NDArray& x, F f) {
  NDArray result(x.dtype(), x.shape());
  WithType(x.dtype(), [&](auto t) { MapInto<decltype(t), decltype(t)>(x, result, f); });
  return result;
}

}  // namespace

NDArray Relu(const Attrs&, const NDArray& x) {
  return MapNumber(x, [](auto v) { return v > 0 ? v : decltype(v)(0); });
}
NDArray Sigmoid(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return 1 / (1 + std::exp(-v)); });
}
NDArray Silu(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return v / (1 + std::exp(-v)); });
}
NDArray Tanh(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::tanh(v); });
}
NDArray Erf(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::erf(v); });
}
NDArray Exp(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::exp(v); });
}
NDArray Log(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::log(v); });
}
NDArray Sqrt(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::sqrt(v); });
}
NDArray Neg(const Attrs&, const NDArray& x) {
  return MapNumber(x, [](auto v) { return -v; });
}
NDArray Abs(const Attrs&, const NDArray& x) {
  return MapNumber(x, [](auto v) { return v < 0 ? -v : v; });
}
NDArray Floor(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::floor(v); });
}
NDArray Ceil(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::ceil(v); });
}
NDArray Round(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::nearbyint(v); });
}
NDArray Sin(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::sin(v); });
}
NDArray Cos(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return std::cos(v); });
}
NDArray Reciprocal(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return 1 / v; });
}
NDArray Identity(const Attrs&, const NDArray& x) { return x; }

NDArray Not(const Attrs&, const NDArray& x) {
  NDArray result(x.dtype(), x.shape());
  MapInto<uint8_t, uint8_t>(x, result, [](uint8_t v) { return v == 0; });
  return result;
}

NDArray Clip(const Attrs& attrs, const NDArray& x) {
  double infinity = std::numeric_limits<double>::infinity();
  double low = attrs.Float("min", -infinity), high = attrs.Float("max", infinity);
  return MapNumber(x, [&](auto v) {
    double limited = v < low ? low : static_cast<double>(v);
    return static_cast<decltype(v)>(limited > high ? high : limited);
  });
}

NDArray LeakyRelu(const Attrs& attrs, const NDArray& x) {
  double alpha = attrs.Float("alpha", 0.01);
  return MapFloat(x, [alpha](auto v) { return v < 0 ? alpha * v : v; });
}
NDArray Elu(const Attrs& attrs, const NDArray& x) {
  double alpha = attrs.Float("alpha", 1);
  return MapFloat(x, [alpha](auto v) { return v < 0 ? alpha * std::expm1(v) : v; });
}
NDArray HardSigmoid(const Attrs& attrs, const NDArray& x) {
  double alpha = attrs.Float("alpha", 0.2), beta = attrs.Float("beta", 0.5);
  return MapFloat(x, [=](double v) { return std::fmax(0.0, std::fmin(1.0, alpha * v + beta)); });
}
NDArray HardSwish(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](double v) { return v * std::fmax(0.0, std::fmin(6.0, v + 3)) / 6; });
}
NDArray Softplus(const Attrs&, const NDArray& x) {
  return MapFloat(x, [](auto v) { return v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v)); });
}
NDArray Gelu(const Attrs& attrs, const NDArray& x) {
  if (attrs.String("approximate", "none") == "tanh") {
    return MapFloat(x,
                    [](double v) { return v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); });
  }
  return MapFloat(x, [](double v) { return v / 2 * std::erfc(-v / M_SQRT2); });
}

namespace {

// A cast to a type that has arithmetic.
template <typename From>
void CastToNative(const NDArray& x, NDArray& result) {
  const DType to = result.dtype();
  if (to == DType::kBool) return MapInto<uint8_t, From>(x, result, [](From v) { return v != 0; });
  WithType(to, [&](auto t) {
    using To = decltype(t);
    if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
      MapInto<To, From>(x, result, [to](From v) { return TruncateTo(to, v); });
    } else {
      MapInto<To, From>(x, result, [](From v) { return v; });
    }
  });
}

}  // namespace

absl::StatusOr<NDArray> Cast(const Attrs& attrs, Arrays inputs, const TensorType& output) {
  TEMPER_ASSIGN_OR_RETURN(const CastMode mode, ops::CastModeOf(attrs));
  const DType from = inputs[0].dtype(), to = output.dtype;
  if (from == to) return inputs[0];
  const NDArray x = inputs[0].ConvertedTo(Info(from).wide);
  NDArray result(to, output.shape);
  WithType(x.dtype(), [&](auto t) {
    using From = decltype(t);
    if (IsNative(to)) return CastToNative<From>(x, result);
    for (int64_t i = 0; i < x.size(); ++i) {
      const From v = x.as<From>()[static_cast<size_t>(i)];
      const double number = CastsThroughF32(to) ? static_cast<double>(static_cast<float>(v)) : static_cast<double>(v);
      const int64_t integer = std::is_integral_v<From> ? static_cast<int64_t>(v) : TruncateTo(to, number);
      StoreBits(to, result.MutableData(), i,
                IsFloat(to) ? EncodeFloat(to, number, mode) : static_cast<uint64_t>(integer));
    }
  });
  return result;
}

}  // namespace temper::reference
