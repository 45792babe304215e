#include <cmath>
#include <limits>

#include "compiler/ops/families/infer_util.h"
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

absl::StatusOr<NDArray> Relu(const Attrs&, Arrays in, const TensorType&) {
  return MapNumber(in[0], [](auto v) { return v > 0 ? v : decltype(v)(0); });
}
absl::StatusOr<NDArray> Sigmoid(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return 1 / (1 + std::exp(-v)); });
}
absl::StatusOr<NDArray> Silu(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return v / (1 + std::exp(-v)); });
}
absl::StatusOr<NDArray> Tanh(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::tanh(v); });
}
absl::StatusOr<NDArray> Erf(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::erf(v); });
}
absl::StatusOr<NDArray> Exp(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::exp(v); });
}
absl::StatusOr<NDArray> Log(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::log(v); });
}
absl::StatusOr<NDArray> Sqrt(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::sqrt(v); });
}
absl::StatusOr<NDArray> Neg(const Attrs&, Arrays in, const TensorType&) {
  return MapNumber(in[0], [](auto v) { return -v; });
}
absl::StatusOr<NDArray> Abs(const Attrs&, Arrays in, const TensorType&) {
  return MapNumber(in[0], [](auto v) { return v < 0 ? -v : v; });
}
absl::StatusOr<NDArray> Floor(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::floor(v); });
}
absl::StatusOr<NDArray> Ceil(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::ceil(v); });
}
absl::StatusOr<NDArray> Round(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::nearbyint(v); });
}
absl::StatusOr<NDArray> Sin(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::sin(v); });
}
absl::StatusOr<NDArray> Cos(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return std::cos(v); });
}
absl::StatusOr<NDArray> Reciprocal(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return 1 / v; });
}
absl::StatusOr<NDArray> Identity(const Attrs&, Arrays in, const TensorType&) { return in[0]; }

absl::StatusOr<NDArray> Not(const Attrs&, Arrays in, const TensorType&) {
  NDArray result(in[0].dtype(), in[0].shape());
  MapInto<uint8_t, uint8_t>(in[0], result, [](uint8_t v) { return v == 0; });
  return result;
}

absl::StatusOr<NDArray> Clip(const Attrs& attrs, Arrays in, const TensorType&) {
  double infinity = std::numeric_limits<double>::infinity();
  double low = attrs.Float("min", -infinity), high = attrs.Float("max", infinity);
  return MapNumber(in[0], [&](auto v) {
    double limited = v < low ? low : static_cast<double>(v);
    return static_cast<decltype(v)>(limited > high ? high : limited);
  });
}

absl::StatusOr<NDArray> LeakyRelu(const Attrs& attrs, Arrays in, const TensorType&) {
  double alpha = attrs.Float("alpha", 0.01);
  return MapFloat(in[0], [alpha](auto v) { return v < 0 ? alpha * v : v; });
}
absl::StatusOr<NDArray> Elu(const Attrs& attrs, Arrays in, const TensorType&) {
  double alpha = attrs.Float("alpha", 1);
  return MapFloat(in[0], [alpha](auto v) { return v < 0 ? alpha * std::expm1(v) : v; });
}
absl::StatusOr<NDArray> HardSigmoid(const Attrs& attrs, Arrays in, const TensorType&) {
  double alpha = attrs.Float("alpha", 0.2), beta = attrs.Float("beta", 0.5);
  return MapFloat(in[0], [=](double v) { return std::fmax(0.0, std::fmin(1.0, alpha * v + beta)); });
}
absl::StatusOr<NDArray> HardSwish(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](double v) { return v * std::fmax(0.0, std::fmin(6.0, v + 3)) / 6; });
}
absl::StatusOr<NDArray> Softplus(const Attrs&, Arrays in, const TensorType&) {
  return MapFloat(in[0], [](auto v) { return v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v)); });
}
absl::StatusOr<NDArray> Gelu(const Attrs& attrs, Arrays in, const TensorType&) {
  if (attrs.String("approximate", "none") == "tanh") {
    return MapFloat(in[0],
                    [](double v) { return v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); });
  }
  return MapFloat(in[0], [](double v) { return v / 2 * std::erfc(-v / M_SQRT2); });
}

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

}  // namespace

std::span<const Reference> UnaryReferences() {
  static constexpr Reference kTable[] = {
      {"relu", Relu},
      {"sigmoid", Sigmoid},
      {"silu", Silu},
      {"tanh", Tanh},
      {"erf", Erf},
      {"exp", Exp},
      {"log", Log},
      {"sqrt", Sqrt},
      {"neg", Neg},
      {"abs", Abs},
      {"floor", Floor},
      {"ceil", Ceil},
      {"round", Round},
      {"sin", Sin},
      {"cos", Cos},
      {"reciprocal", Reciprocal},
      {"not", Not},
      {"identity", Identity},
      {"layout_copy", Identity},
      {"clip", Clip},
      {"leaky_relu", LeakyRelu},
      {"elu", Elu},
      {"hard_sigmoid", HardSigmoid},
      {"hard_swish", HardSwish},
      {"softplus", Softplus},
      {"gelu", Gelu},
      {"cast", Cast},
  };
  return kTable;
}

}  // namespace temper::reference
