// The table of element types, and the exact conversions between a number and the bits of an element. Whatever depends
// on the type of an element reads it here: sizes, ONNX's codes, what has arithmetic, how a result is compared.
// Everything is pure and thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

namespace temper {

enum class DType : uint8_t {
  kF32,
  kF64,
  kI64,
  kI32,
  kU8,
  kI8,
  kBool,  // one byte, 0 or 1
  kF16,
  kBF16,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF8E8M0,
  kI16,
  kU16,
  kU32,
  kU64,
  kI2,
  kU2,
  kI4,
  kU4,
  kF4E2M1,
};

enum class TypeKind : uint8_t { kFloat, kSigned, kUnsigned, kBool };

// Which bits of a float are no finite number.
enum class Specials : uint8_t {
  kNotFloat,     // it has no float's bits at all
  kIeee,         // the highest exponent: infinities and NaN
  kNan,          // all ones below the sign: NaN. No infinities
  kNegativeNan,  // what would be -0: NaN. No infinities, no -0
  kNone,         // every pattern is a finite number
};

// What becomes of a number that is too large for the type.
enum class Overflow : uint8_t {
  kInfinity,
  kNan,
  kLargest,  // the largest number of its sign
  kWrap,     // the low bits stay: integers
};

// Whether operators may compute with it.
enum class Arithmetic : uint8_t {
  kNative,   // CPUs have instructions for it
  kWidened,  // it is computed in `wide` and rounded at the end of each operator
  kNone,     // it is copied, cast and compared (in `wide`), nothing else
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // "f32"; in texts of workloads, graphs and nests
  int bits;               // below 8: packed, the first element in a byte's low bits
  int onnx;               // TensorProto.DataType
  TypeKind kind;
  // A float of `bits` is a sign (e8m0 has none), then exponent_bits with this bias, then mantissa_bits. Numbers are
  // rounded to the nearest, ties to even. 0 for the others.
  int exponent_bits, mantissa_bits, bias;
  Specials specials;
  Overflow overflow;
  Arithmetic arithmetic;
  DType wide;         // what holds all its values and has arithmetic: itself where it is native
  DType accumulator;  // what products of it are summed in
  double tolerance;   // what a result may be off by, as RelativeError has it; 0: not at all
};

std::span<const DTypeInfo> AllDTypes();  // in the order of the enum
const DTypeInfo& Info(DType dtype);
absl::StatusOr<DType> DTypeFromName(std::string_view name);
absl::StatusOr<DType> DTypeFromOnnx(int code);  // the error has the code alone

inline std::string_view Name(DType dtype) { return Info(dtype).name; }
inline bool IsFloat(DType dtype) { return Info(dtype).kind == TypeKind::kFloat; }
inline bool IsUnsigned(DType dtype) {
  return Info(dtype).kind == TypeKind::kUnsigned || Info(dtype).kind == TypeKind::kBool;
}
inline bool IsPacked(DType dtype) { return Info(dtype).bits < 8; }
inline bool IsNative(DType dtype) { return Info(dtype).arithmetic == Arithmetic::kNative; }
// A float that CPUs do not compute with: its elements travel as integers.
inline bool IsNarrowFloat(DType dtype) { return IsFloat(dtype) && !IsNative(dtype); }
inline int64_t SizeOf(DType dtype) { return (Info(dtype).bits + 7) / 8; }  // bytes of an element that stands alone
inline int64_t BytesOf(DType dtype, int64_t elements) { return (elements * Info(dtype).bits + 7) / 8; }
// The finite extremes. An i64's and u64's largest are rounded to a double.
double Largest(DType dtype);
double Lowest(DType dtype);

// How a cast to one of the eight-bit floats rounds, and whether what is too large becomes the largest number. Other
// types have one way alone, which their line of the table states, and ignore this.
enum class Rounding : uint8_t { kNearest, kUp, kDown };  // up and down: of e8m0 alone
struct CastMode {
  bool saturate = false;
  Rounding rounding = Rounding::kNearest;
  bool flush = false;  // to bf16: what is too small for a normal number may become zero
  bool operator==(const CastMode&) const = default;
};
bool HasCastMode(DType dtype);

// The element's bits as they lie in memory (sub-byte ones in the low bits), and back.
uint64_t LoadBits(DType dtype, const void* data, int64_t i);
void StoreBits(DType dtype, void* data, int64_t i, uint64_t bits);

// The bits of the float `dtype` that is nearest to `v`, with one rounding. A NaN keeps its sign and nothing else; where
// the type has none it becomes the zero of the other sign, as ml_dtypes has it. To e8m0 as ONNX's reference does it:
// from f32, without the sign, and zero is the least number.
uint64_t EncodeFloat(DType dtype, double v, CastMode mode = {});
double DecodeFloat(DType dtype, uint64_t bits);  // exact
// ONNX's reference and ml_dtypes cast through f32 to every float below 32 bits but f16. Where this holds, round to f32
// first.
bool CastsThroughF32(DType dtype);

// The integer that is left of `v` in the type's bits; a bool is whether it differs from 0. An u64 keeps all bits, so it
// may come out negative.
int64_t WrapInteger(DType dtype, int64_t v);
// `v` rounded toward zero, then wrapped. What 64 bits do not hold is their extreme, NaN is 0, a bool is whether the
// integer differs from 0.
int64_t TruncateTo(DType dtype, double v);

}  // namespace temper
