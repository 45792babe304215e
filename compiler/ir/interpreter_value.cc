#include "compiler/ir/interpreter_value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compiler/ir/sum.h"

namespace temper::ir {

double Round(double v, DType dtype) { return dtype == DType::kF32 ? static_cast<double>(static_cast<float>(v)) : v; }

double FloatOf(Value v, DType from) {
  if (IsFloat(from)) return v.f;
  return from == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(v.i)) : static_cast<double>(v.i);
}

Value CastValue(Value v, DType from, DType to, CastMode mode) {
  if (IsNarrowFloat(to)) return OfFloat(DecodeFloat(to, EncodeFloat(to, FloatOf(v, from), mode)));
  if (IsFloat(to)) {
    if (IsFloat(from) || to != DType::kF32) return OfFloat(Round(FloatOf(v, from), to));
    // From 64 bits at once: by way of a double it would be rounded twice.
    const float f = from == DType::kU64 ? static_cast<float>(static_cast<uint64_t>(v.i)) : static_cast<float>(v.i);
    return OfFloat(static_cast<double>(f));
  }
  if (!IsFloat(from)) return OfInt(WrapInteger(to, v.i));
  return OfInt(to == DType::kBool ? v.f != 0 : TruncateTo(to, v.f));
}

namespace {

// What lies at that bit, as a number of type T.
template <typename T>
int64_t PartOf(int64_t v, int bit) {
  return static_cast<T>(v >> bit);
}

}  // namespace

int64_t PairOf(int64_t lower, int64_t upper, int bits) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  return static_cast<int64_t>((static_cast<uint64_t>(lower) & mask) | (static_cast<uint64_t>(upper) << bits));
}

int64_t IntBinary(ExprKind kind, int64_t a, int64_t b) {
  auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (kind) {
    case ExprKind::kAdd:
      return static_cast<int64_t>(x + y);
    case ExprKind::kSub:
      return static_cast<int64_t>(x - y);
    case ExprKind::kMul:
      return static_cast<int64_t>(x * y);
    case ExprKind::kDiv:
      return b == 0 ? 0 : FloorDiv(a, b);
    case ExprKind::kMod:
      return b == 0 ? 0 : FloorMod(a, b);
    case ExprKind::kMin:
      return std::min(a, b);
    case ExprKind::kMax:
      return std::max(a, b);
    case ExprKind::kLt:
      return a < b;
    case ExprKind::kLe:
      return a <= b;
    case ExprKind::kDot16:
      return PartOf<int16_t>(a, 0) * PartOf<int16_t>(b, 0) + PartOf<int16_t>(a, 16) * PartOf<int16_t>(b, 16);
    case ExprKind::kDot8: {
      int64_t sum = 0;
      for (int at = 0; at < 32; at += 8) sum += PartOf<uint8_t>(a, at) * PartOf<int8_t>(b, at);
      return sum;
    }
    case ExprKind::kBitAnd:
      return a & b;
    default:
      return a == b;
  }
}

int64_t UnsignedBinary(ExprKind kind, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (kind) {
    case ExprKind::kDiv:
      return b == 0 ? 0 : static_cast<int64_t>(x / y);
    case ExprKind::kMod:
      return b == 0 ? 0 : static_cast<int64_t>(x % y);
    case ExprKind::kMin:
      return static_cast<int64_t>(std::min(x, y));
    case ExprKind::kMax:
      return static_cast<int64_t>(std::max(x, y));
    case ExprKind::kLt:
      return x < y;
    case ExprKind::kLe:
      return x <= y;
    default:
      return IntBinary(kind, a, b);
  }
}

double FloatBinary(ExprKind kind, double a, double b) {
  switch (kind) {
    case ExprKind::kAdd:
      return a + b;
    case ExprKind::kSub:
      return a - b;
    case ExprKind::kMul:
      return a * b;
    case ExprKind::kDiv:
      return a / b;
    case ExprKind::kMod:
      return a - std::floor(a / b) * b;
    case ExprKind::kMin:
      return a < b || std::isnan(a) ? a : b;  // NaN wins, so that it shows
    case ExprKind::kMax:
      return a > b || std::isnan(a) ? a : b;
    default:
      return std::pow(a, b);
  }
}

namespace {

constexpr uint32_t kTf32Unit = 1 << 13;  // of the last place, among the bits of an f32

uint32_t BitsOfF32(double v) { return std::bit_cast<uint32_t>(static_cast<float>(v)); }
double F32Of(uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); }

// What is carried out of the mantissa makes the next exponent, or infinity, by itself.
double RoundToTf32(double v) { return std::isnan(v) ? v : F32Of((BitsOfF32(v) + kTf32Unit / 2) & ~(kTf32Unit - 1)); }

}  // namespace

double TruncateToTf32(double v) { return std::isnan(v) ? v : F32Of(BitsOfF32(v) & ~(kTf32Unit - 1)); }

double FloatUnary(ExprKind kind, double a) {
  switch (kind) {
    case ExprKind::kExp:
      return std::exp(a);
    case ExprKind::kLog:
      return std::log(a);
    case ExprKind::kTanh:
      return std::tanh(a);
    case ExprKind::kErf:
      return std::erf(a);
    case ExprKind::kSqrt:
      return std::sqrt(a);
    case ExprKind::kAbs:
      return std::abs(a);
    case ExprKind::kFloor:
      return std::floor(a);
    case ExprKind::kCeil:
      return std::ceil(a);
    case ExprKind::kRound:
      return std::nearbyint(a);
    case ExprKind::kSin:
      return std::sin(a);
    case ExprKind::kTf32:
      return RoundToTf32(a);
    default:
      return std::cos(a);
  }
}

Value ReadElement(const char* data, int64_t i, DType dtype) {
  const uint64_t bits = LoadBits(dtype, data, i);
  return IsFloat(dtype) ? OfFloat(DecodeFloat(dtype, bits)) : OfInt(WrapInteger(dtype, static_cast<int64_t>(bits)));
}

void WriteElement(char* data, int64_t i, DType dtype, Value v) {
  StoreBits(dtype, data, i, IsFloat(dtype) ? EncodeFloat(dtype, v.f) : static_cast<uint64_t>(v.i));
}

}  // namespace temper::ir
