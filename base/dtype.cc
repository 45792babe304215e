#include "base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

constexpr auto kFloat = TypeKind::kFloat;
constexpr auto kSigned = TypeKind::kSigned;
constexpr auto kUnsigned = TypeKind::kUnsigned;
constexpr auto kNoFloat = Specials::kNotFloat;
constexpr auto kNative = Arithmetic::kNative;
constexpr auto kWidened = Arithmetic::kWidened;

// Tolerances of narrow floats are two units in the last place of a number near the largest of the result: what was
// computed in f32 in another order rounds to a neighbour at most, or to the one after it.
constexpr DTypeInfo kTable[] = {
    // dtype, name, bits, ONNX, kind, exponent, mantissa, bias, specials, overflow, arithmetic, wide,
    // accumulator, tolerance
    {DType::kF32, "f32", 32, 1, kFloat, 8, 23, 127, Specials::kIeee, Overflow::kInfinity, kNative, DType::kF32,
     DType::kF32, 1e-4},
    {DType::kF64, "f64", 64, 11, kFloat, 11, 52, 1023, Specials::kIeee, Overflow::kInfinity, kNative, DType::kF64,
     DType::kF64, 1e-9},
    {DType::kI64, "i64", 64, 7, kSigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kI64, DType::kI64, 0},
    {DType::kI32, "i32", 32, 6, kSigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kI32, DType::kI32, 0},
    {DType::kU8, "u8", 8, 2, kUnsigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kU8, DType::kI32, 0},
    {DType::kI8, "i8", 8, 3, kSigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kI8, DType::kI32, 0},
    {DType::kBool, "bool", 8, 9, TypeKind::kBool, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kBool,
     DType::kBool, 0},
    {DType::kF16, "f16", 16, 10, kFloat, 5, 10, 15, Specials::kIeee, Overflow::kInfinity, kWidened, DType::kF32,
     DType::kF32, 0x1p-9},
    {DType::kBF16, "bf16", 16, 16, kFloat, 8, 7, 127, Specials::kIeee, Overflow::kInfinity, kWidened, DType::kF32,
     DType::kF32, 0x1p-6},
    {DType::kF8E4M3FN, "f8e4m3fn", 8, 17, kFloat, 4, 3, 7, Specials::kNan, Overflow::kNan, kWidened, DType::kF32,
     DType::kF32, 0x1p-2},
    {DType::kF8E4M3FNUZ, "f8e4m3fnuz", 8, 18, kFloat, 4, 3, 8, Specials::kNegativeNan, Overflow::kNan, kWidened,
     DType::kF32, DType::kF32, 0x1p-2},
    {DType::kF8E5M2, "f8e5m2", 8, 19, kFloat, 5, 2, 15, Specials::kIeee, Overflow::kInfinity, kWidened, DType::kF32,
     DType::kF32, 0x1p-1},
    {DType::kF8E5M2FNUZ, "f8e5m2fnuz", 8, 20, kFloat, 5, 2, 16, Specials::kNegativeNan, Overflow::kNan, kWidened,
     DType::kF32, DType::kF32, 0x1p-1},
    {DType::kF8E8M0, "f8e8m0", 8, 24, kFloat, 8, 0, 127, Specials::kNan, Overflow::kNan, Arithmetic::kNone, DType::kF32,
     DType::kF32, 0},
    {DType::kI16, "i16", 16, 5, kSigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kI16, DType::kI32, 0},
    {DType::kU16, "u16", 16, 4, kUnsigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kU16, DType::kI32, 0},
    {DType::kU32, "u32", 32, 12, kUnsigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kU32, DType::kU32, 0},
    {DType::kU64, "u64", 64, 13, kUnsigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kNative, DType::kU64, DType::kU64, 0},
    {DType::kI2, "i2", 2, 26, kSigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kWidened, DType::kI32, DType::kI32, 0},
    {DType::kU2, "u2", 2, 25, kUnsigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kWidened, DType::kI32, DType::kI32, 0},
    {DType::kI4, "i4", 4, 22, kSigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kWidened, DType::kI32, DType::kI32, 0},
    {DType::kU4, "u4", 4, 21, kUnsigned, 0, 0, 0, kNoFloat, Overflow::kWrap, kWidened, DType::kI32, DType::kI32, 0},
    {DType::kF4E2M1, "f4e2m1", 4, 23, kFloat, 2, 1, 1, Specials::kNone, Overflow::kLargest, kWidened, DType::kF32,
     DType::kF32, 0x1p-1},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<size_t>(kTable[i].dtype) != i) return false;
  }
  return std::size(kTable) == static_cast<size_t>(DType::kF4E2M1) + 1;
}
static_assert(InOrder(), "one line a type, in the order of the enum");
static_assert(std::endian::native == std::endian::little, "elements lie in memory low bits first");

constexpr uint64_t Ones(int bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

bool HasSign(const DTypeInfo& t) { return t.bits > t.exponent_bits + t.mantissa_bits; }
uint64_t SignBit(const DTypeInfo& t) { return HasSign(t) ? uint64_t{1} << (t.bits - 1) : 0; }

// The bits of the largest finite number.
uint64_t LargestBits(const DTypeInfo& t) {
  const uint64_t all = Ones(t.exponent_bits + t.mantissa_bits);
  switch (t.specials) {
    case Specials::kIeee:
      return all - (uint64_t{1} << t.mantissa_bits);
    case Specials::kNan:
      return all - 1;
    case Specials::kNegativeNan:
    case Specials::kNone:
    case Specials::kNotFloat:
      break;
  }
  return all;
}

uint64_t NanBits(const DTypeInfo& t, bool negative) {
  const uint64_t sign = negative ? SignBit(t) : 0;
  switch (t.specials) {
    case Specials::kIeee:
      return sign | (Ones(t.exponent_bits) << t.mantissa_bits) | (uint64_t{1} << (t.mantissa_bits - 1));
    case Specials::kNan:
      return sign | Ones(t.exponent_bits + t.mantissa_bits);
    case Specials::kNegativeNan:
      return SignBit(t);
    case Specials::kNone:
    case Specials::kNotFloat:
      break;
  }
  return negative ? 0 : SignBit(t);
}

uint64_t EncodeE8M0(double v, CastMode mode) {
  constexpr uint32_t kLargestExponent = 0xfe, kNan = 0xff, kHalf = 1 << 22;
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(v));
  const uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  if (exponent == kNan) return kNan;
  bool up = false;
  switch (mode.rounding) {
    case Rounding::kNearest:
      up = fraction > kHalf || (fraction == kHalf && exponent > 0);
      break;
    case Rounding::kUp:
      up = fraction > 0;
      break;
    case Rounding::kDown:
      break;
  }
  if (mode.saturate && exponent == kLargestExponent) up = false;
  return exponent + (up ? 1 : 0);
}

}  // namespace

std::span<const DTypeInfo> AllDTypes() { return kTable; }
const DTypeInfo& Info(DType dtype) { return kTable[static_cast<size_t>(dtype)]; }

absl::StatusOr<DType> DTypeFromName(std::string_view name) {
  for (const DTypeInfo& info : kTable) {
    if (info.name == name) return info.dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", std::string(name), "'"));
}

absl::StatusOr<DType> DTypeFromOnnx(int code) {
  for (const DTypeInfo& info : kTable) {
    if (info.onnx == code) return info.dtype;
  }
  return absl::UnimplementedError(absl::StrCat("element type ", code, " is not supported"));
}

double Largest(DType dtype) {
  const DTypeInfo& t = Info(dtype);
  switch (t.kind) {
    case TypeKind::kFloat:
      return DecodeFloat(dtype, LargestBits(t));
    case TypeKind::kSigned:
      return static_cast<double>(Ones(t.bits - 1));
    case TypeKind::kUnsigned:
      return static_cast<double>(Ones(t.bits));
    case TypeKind::kBool:
      break;
  }
  return 1;
}

double Lowest(DType dtype) {
  const DTypeInfo& t = Info(dtype);
  switch (t.kind) {
    case TypeKind::kFloat:
      return HasSign(t) ? -Largest(dtype) : DecodeFloat(dtype, 0);
    case TypeKind::kSigned:
      return -std::ldexp(1.0, t.bits - 1);
    case TypeKind::kUnsigned:
    case TypeKind::kBool:
      break;
  }
  return 0;
}

bool HasCastMode(DType dtype) { return IsFloat(dtype) && Info(dtype).bits == 8; }

uint64_t LoadBits(DType dtype, const void* data, int64_t i) {
  const int bits = Info(dtype).bits;
  const auto* bytes = static_cast<const uint8_t*>(data);
  const auto whole = [&]<typename T>(T value) -> uint64_t {
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  if (bits == 64) return whole(uint64_t{});
  if (bits == 32) return whole(uint32_t{});
  if (bits == 16) return whole(uint16_t{});
  if (bits == 8) return whole(uint8_t{});
  return static_cast<uint64_t>(bytes[i * bits / 8]) >> (i * bits % 8) & Ones(bits);
}

void StoreBits(DType dtype, void* data, int64_t i, uint64_t value) {
  const int bits = Info(dtype).bits;
  auto* bytes = static_cast<uint8_t*>(data);
  const auto whole = [&]<typename T>(T low) {
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof(T)), &low, sizeof(T));
  };
  if (bits == 64) return whole(value);
  if (bits == 32) return whole(static_cast<uint32_t>(value));
  if (bits == 16) return whole(static_cast<uint16_t>(value));
  if (bits == 8) return whole(static_cast<uint8_t>(value));
  uint8_t& byte = bytes[i * bits / 8];
  const auto shift = static_cast<int>(i * bits % 8);
  byte = static_cast<uint8_t>((byte & ~(Ones(bits) << shift)) | (value & Ones(bits)) << shift);
}

uint64_t EncodeFloat(DType dtype, double v, CastMode mode) {
  if (dtype == DType::kF64) return std::bit_cast<uint64_t>(v);
  if (dtype == DType::kF32) return std::bit_cast<uint32_t>(static_cast<float>(v));
  if (dtype == DType::kF8E8M0) return EncodeE8M0(v, mode);
  const DTypeInfo& t = Info(dtype);
  const bool negative = std::signbit(v);
  if (std::isnan(v)) return NanBits(t, negative);
  const uint64_t sign = negative ? SignBit(t) : 0, largest = LargestBits(t);
  uint64_t magnitude = largest + 1;
  if (std::isfinite(v)) {
    // In units of the last place, which subnormal numbers share with the least normal one.
    int exponent = 1 - t.bias;
    if (v != 0) std::frexp(v, &exponent);
    const int place = std::max(exponent - 1, 1 - t.bias) - t.mantissa_bits;
    const double units = std::nearbyint(std::ldexp(std::abs(v), -place));
    // A carry into the next exponent adds up by itself.
    magnitude =
        static_cast<uint64_t>(units) + (static_cast<uint64_t>(place + t.mantissa_bits - 1 + t.bias) << t.mantissa_bits);
  }
  if (magnitude > largest) {
    const bool clamps = t.overflow == Overflow::kLargest || (mode.saturate && HasCastMode(dtype));
    if (clamps) return sign | largest;
    return t.overflow == Overflow::kInfinity ? sign | (largest + 1) : NanBits(t, negative);
  }
  if (magnitude == 0 && t.specials == Specials::kNegativeNan) return 0;
  return sign | magnitude;
}

double DecodeFloat(DType dtype, uint64_t bits) {
  if (dtype == DType::kF64) return std::bit_cast<double>(bits);
  if (dtype == DType::kF32) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  const DTypeInfo& t = Info(dtype);
  const double sign = (bits & SignBit(t)) != 0 ? -1 : 1;
  const uint64_t magnitude = bits & Ones(t.exponent_bits + t.mantissa_bits);
  if (magnitude > LargestBits(t) || (t.specials == Specials::kNegativeNan && bits == SignBit(t))) {
    const bool infinite = t.specials == Specials::kIeee && magnitude == LargestBits(t) + 1;
    return std::copysign(infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN(),
                         sign);
  }
  const auto exponent = static_cast<int>(magnitude >> t.mantissa_bits);
  const uint64_t fraction = magnitude & Ones(t.mantissa_bits);
  // e8m0 has no subnormal numbers, and no zero.
  if (exponent == 0 && HasSign(t))
    return sign * std::ldexp(static_cast<double>(fraction), 1 - t.bias - t.mantissa_bits);
  return sign * std::ldexp(static_cast<double>(fraction | uint64_t{1} << t.mantissa_bits),
                           exponent - t.bias - t.mantissa_bits);
}

bool CastsThroughF32(DType dtype) { return IsNarrowFloat(dtype) && dtype != DType::kF16; }

int64_t WrapInteger(DType dtype, int64_t v) {
  const DTypeInfo& t = Info(dtype);
  if (t.kind == TypeKind::kBool) return v != 0;
  if (t.bits == 64) return v;
  const uint64_t low = static_cast<uint64_t>(v) & Ones(t.bits);
  const bool negative = t.kind == TypeKind::kSigned && low >> (t.bits - 1) != 0;
  return static_cast<int64_t>(negative ? low | ~Ones(t.bits) : low);
}

int64_t TruncateTo(DType dtype, double v) {
  if (std::isnan(v)) return 0;
  if (v >= 0x1p63) {
    if (dtype != DType::kU64) return WrapInteger(dtype, std::numeric_limits<int64_t>::max());
    return static_cast<int64_t>(v < 0x1p64 ? static_cast<uint64_t>(v) : std::numeric_limits<uint64_t>::max());
  }
  return WrapInteger(dtype, v < -0x1p63 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(v));
}

}  // namespace temper
