#include "compiler/codegen/llvm/narrow_float.h"

#include <bit>
#include <cmath>
#include <limits>

namespace temper {
namespace {

using llvm::Value;

llvm::Type* Like(llvm::Type* element, Value* v) {
  auto* vector = llvm::dyn_cast<llvm::VectorType>(v->getType());
  return vector == nullptr ? element : llvm::VectorType::get(element, vector);
}

// Arithmetic on integers of one type, with constants spread over the lanes.
class Ints {
 public:
  Ints(llvm::IRBuilder<>& b, llvm::Type* type) : b_(b), type_(type) {}
  Value* Const(uint64_t v) const { return llvm::ConstantInt::get(type_, v); }
  Value* And(Value* v, uint64_t mask) const { return b_.CreateAnd(v, Const(mask)); }
  Value* Shl(Value* v, int by) const { return by == 0 ? v : b_.CreateShl(v, Const(static_cast<uint64_t>(by))); }
  Value* Shr(Value* v, int by) const { return by == 0 ? v : b_.CreateLShr(v, Const(static_cast<uint64_t>(by))); }
  Value* Add(Value* v, uint64_t c) const { return b_.CreateAdd(v, Const(c)); }
  Value* Equal(Value* v, uint64_t c) const { return b_.CreateICmpEQ(v, Const(c)); }
  Value* Above(Value* v, uint64_t c) const { return b_.CreateICmpUGT(v, Const(c)); }
  Value* Select(Value* cond, Value* a, Value* c) const { return b_.CreateSelect(cond, a, c); }
  Value* Select(Value* cond, uint64_t a, Value* c) const { return b_.CreateSelect(cond, Const(a), c); }

 private:
  llvm::IRBuilder<>& b_;
  llvm::Type* type_;
};

constexpr int kF32Mantissa = 23, kF32Bias = 127;
constexpr uint64_t kF32Nan = 0x7fc00000, kF32Infinity = 0x7f800000;
constexpr uint64_t kE8M0Nan = 0xff, kE8M0Largest = 0xfe;

Value* DecodeE8M0(const Ints& ints, Value* bits) {
  constexpr uint64_t kLeast = 1 << 22;  // 2^-127, a subnormal f32
  Value* v = ints.Select(ints.Equal(bits, 0), kLeast, ints.Shl(bits, kF32Mantissa));
  return ints.Select(ints.Equal(bits, kE8M0Nan), kF32Nan, v);
}

// See EncodeE8M0 in base/dtype.cc.
Value* EncodeE8M0(llvm::IRBuilder<>& b, const Ints& ints, Value* f32_bits, CastMode mode) {
  constexpr uint64_t kHalf = 1 << 22;
  Value* exponent = ints.And(ints.Shr(f32_bits, kF32Mantissa), kE8M0Nan);
  Value* fraction = ints.And(f32_bits, (1 << kF32Mantissa) - 1);
  if (mode.rounding == Rounding::kDown) return exponent;
  Value* up = ints.Above(fraction, 0);
  if (mode.rounding == Rounding::kNearest) {
    Value* tie = b.CreateAnd(ints.Equal(fraction, kHalf), ints.Above(exponent, 0));
    up = b.CreateOr(ints.Above(fraction, kHalf), tie);
  }
  const uint64_t last = mode.saturate ? kE8M0Largest : kE8M0Nan;
  up = b.CreateAnd(up, b.CreateNot(ints.Above(exponent, last - 1)));
  return b.CreateAdd(exponent, b.CreateZExt(up, exponent->getType()));
}

bool ConvertsHalves(const CpuTarget& target) { return target.Has("f16c"); }

// LLVM would compare and round what comes of a half as halves again, which CPUs do one by one. It does not see through
// the fence.
Value* DecodeHalf(llvm::IRBuilder<>& b, Value* bits) {
  llvm::Type* type = Like(b.getFloatTy(), bits);
  Value* v = b.CreateFPExt(b.CreateBitCast(bits, Like(b.getHalfTy(), bits)), type);
  return b.CreateArithmeticFence(v, type);
}

// Instructions keep what bits of a NaN they can, and EncodeFloat none but its sign: no number is above that one NaN, as
// signed integers where it is positive, as unsigned ones where it is negative.
Value* EncodeHalf(llvm::IRBuilder<>& b, Value* v) {
  constexpr uint64_t kNan = 0x7e00, kNegativeNan = 0xfe00;
  llvm::Type* type = Like(b.getInt16Ty(), v);
  Value* bits = b.CreateBitCast(b.CreateFPTrunc(v, Like(b.getHalfTy(), v)), type);
  bits = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, bits, llvm::ConstantInt::get(type, kNan));
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, bits, llvm::ConstantInt::get(type, kNegativeNan));
}

}  // namespace

Value* EmitDecode(llvm::IRBuilder<>& b, DType dtype, Value* bits, const CpuTarget& target) {
  if (dtype == DType::kF16 && ConvertsHalves(target)) return DecodeHalf(b, bits);
  const DTypeInfo& t = Info(dtype);
  llvm::Type* int_type = Like(b.getInt32Ty(), bits);
  llvm::Type* float_type = Like(b.getFloatTy(), bits);
  const Ints ints(b, int_type);
  Value* x = b.CreateZExt(bits, int_type);
  if (dtype == DType::kF8E8M0) return b.CreateBitCast(DecodeE8M0(ints, x), float_type);
  const int shift = kF32Mantissa - t.mantissa_bits;
  if (dtype == DType::kBF16) return b.CreateBitCast(ints.Shl(x, shift), float_type);

  const uint64_t sign_bit = uint64_t{1} << (t.bits - 1), largest = EncodeFloat(dtype, Largest(dtype));
  Value* magnitude = ints.And(x, sign_bit - 1);
  Value* v = ints.Add(ints.Shl(magnitude, shift), static_cast<uint64_t>(kF32Bias - t.bias) << kF32Mantissa);
  // Subnormal numbers are counted in units of the last place.
  Value* unit = llvm::ConstantFP::get(float_type, std::ldexp(1.0, 1 - t.bias - t.mantissa_bits));
  Value* subnormal = b.CreateBitCast(b.CreateFMul(b.CreateUIToFP(magnitude, float_type), unit), int_type);
  v = ints.Select(ints.Above(magnitude, (uint64_t{1} << t.mantissa_bits) - 1), v, subnormal);
  switch (t.specials) {
    case Specials::kIeee:
      v = ints.Select(ints.Above(magnitude, largest), b.CreateOr(ints.Const(kF32Infinity), ints.Shl(magnitude, shift)),
                      v);
      break;
    case Specials::kNan:
      v = ints.Select(ints.Above(magnitude, largest), kF32Nan, v);
      break;
    case Specials::kNegativeNan:
      v = ints.Select(ints.Equal(x, sign_bit), kF32Nan, v);
      break;
    case Specials::kNone:
    case Specials::kNotFloat:
      break;
  }
  v = b.CreateOr(v, ints.Shl(ints.And(x, sign_bit), 32 - t.bits));
  return b.CreateBitCast(v, float_type);
}

// A carry of the rounding goes into the exponent, up to that of infinity.
static Value* EncodeBf16(llvm::IRBuilder<>& b, Value* v) {
  const Ints ints(b, Like(b.getInt32Ty(), v));
  Value* bits = b.CreateBitCast(v, Like(b.getInt32Ty(), v));
  Value* upper = ints.Shr(bits, 16);
  Value* rounded = ints.Shr(b.CreateAdd(ints.Add(bits, 0x7fff), ints.And(upper, 1)), 16);
  Value* nan = b.CreateOr(ints.And(upper, 0x8000), ints.Const(0x7fc0));
  return b.CreateTrunc(b.CreateSelect(b.CreateFCmpUNO(v, v), nan, rounded), Like(b.getInt16Ty(), v));
}

Value* EmitEncode(llvm::IRBuilder<>& b, DType dtype, Value* v, CastMode mode, const CpuTarget& target) {
  const DTypeInfo& t = Info(dtype);
  if (dtype == DType::kBF16 && v->getType()->getScalarType()->isFloatTy()) {
    if (!mode.flush || !target.Has("avx512bf16")) return EncodeBf16(b, v);
    return b.CreateBitCast(b.CreateFPTrunc(v, Like(b.getBFloatTy(), v)), Like(b.getInt16Ty(), v));
  }
  if (dtype == DType::kF8E8M0) v = b.CreateFPTrunc(v, Like(b.getFloatTy(), v));
  const bool from_f64 = v->getType()->getScalarType()->isDoubleTy();
  if (dtype == DType::kF16 && !from_f64 && ConvertsHalves(target)) return EncodeHalf(b, v);
  const DTypeInfo& from = Info(from_f64 ? DType::kF64 : DType::kF32);
  llvm::Type* int_type = Like(b.getIntNTy(static_cast<unsigned>(from.bits)), v);
  llvm::Type* result_type = Like(b.getIntNTy(static_cast<unsigned>(t.bits)), v);
  const Ints ints(b, int_type);
  Value* bits = b.CreateBitCast(v, int_type);
  if (dtype == DType::kF8E8M0) return b.CreateTrunc(EncodeE8M0(b, ints, bits, mode), result_type);

  const uint64_t sign_bit = uint64_t{1} << (t.bits - 1), largest = EncodeFloat(dtype, Largest(dtype));
  Value* sign = ints.Shl(ints.Shr(bits, from.bits - 1), t.bits - 1);
  Value* magnitude = ints.And(bits, (uint64_t{1} << (from.bits - 1)) - 1);
  // To the nearest, ties to even; a carry goes into the exponent by itself.
  const int shift = from.mantissa_bits - t.mantissa_bits;
  Value* rounded = ints.Add(magnitude, (uint64_t{1} << (shift - 1)) - 1);
  rounded = ints.Shr(b.CreateAdd(rounded, ints.And(ints.Shr(magnitude, shift), 1)), shift);
  Value* q = b.CreateSub(rounded, ints.Const(static_cast<uint64_t>(from.bias - t.bias) << t.mantissa_bits));
  if (t.bias != from.bias) {
    // Subnormal numbers: adding a number whose last place is theirs rounds as it should.
    const double least_normal = std::ldexp(1.0, 1 - t.bias);
    const double magic = std::ldexp(least_normal, shift);
    Value* sum = b.CreateFAdd(b.CreateBitCast(magnitude, v->getType()), llvm::ConstantFP::get(v->getType(), magic));
    Value* subnormal = b.CreateSub(b.CreateBitCast(sum, int_type), ints.Const(EncodeFloat(from.dtype, magic)));
    q = ints.Select(ints.Above(magnitude, EncodeFloat(from.dtype, least_normal) - 1), q, subnormal);
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  Value* too_large = ints.Above(q, largest);
  const uint64_t overflow = EncodeFloat(dtype, kInfinity, mode), nan = EncodeFloat(dtype, kNan);
  Value* result = b.CreateOr(ints.Select(too_large, overflow & (sign_bit - 1), q), sign);
  Value* nans = b.CreateOr(ints.Const(nan), sign);
  if (t.specials == Specials::kNegativeNan) {
    result = ints.Select(ints.Equal(q, 0), uint64_t{0}, result);
    if (overflow == nan) result = ints.Select(too_large, nan, result);
    nans = ints.Const(nan);
  }
  if (t.specials == Specials::kNone) nans = b.CreateXor(sign, ints.Const(sign_bit));
  return b.CreateTrunc(b.CreateSelect(b.CreateFCmpUNO(v, v), nans, result), result_type);
}

}  // namespace temper
