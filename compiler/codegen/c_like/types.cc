#include "compiler/codegen/c_like/types.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

namespace temper {
namespace {

constexpr int kF32Mantissa = 23, kF32Bias = 127;

std::string Hex(uint64_t v) { return absl::StrCat("0x", absl::Hex(v)); }

std::string DecodeE8M0() {
  return "(const uchar x) {\n"
         "  if (x == 0xff) return NAN;\n"
         "  return as_float(x == 0 ? 0x400000u : (uint)x << 23);\n"
         "}\n";
}

// See EncodeE8M0 in base/dtype.cc.
std::string EncodeE8M0(CastMode mode) {
  std::string up = "fraction > 0";
  if (mode.rounding == Rounding::kDown) up = "false";
  if (mode.rounding == Rounding::kNearest) up = "fraction > 0x400000u || (fraction == 0x400000u && exponent > 0)";
  return absl::Substitute(
      "(const float x) {\n"
      "  const uint exponent = as_uint(x) >> 23 & 0xffu, fraction = as_uint(x) & 0x7fffffu;\n"
      "  if (exponent >= $0) return (uchar)exponent;\n"
      "  return (uchar)(exponent + ($1 ? 1u : 0u));\n"
      "}\n",
      mode.saturate ? "0xfeu" : "0xffu", up);
}

}  // namespace

std::string ValueType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    case DType::kI64:
      return "long";
    case DType::kI32:
      return "int";
    case DType::kU32:
      return "uint";
    case DType::kU64:
      return "ulong";
    case DType::kI16:
      return "short";
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return "ushort";
    case DType::kI8:
    case DType::kI2:
    case DType::kI4:
      return "char";
    case DType::kBool:
      return "bool";
    case DType::kU8:
    case DType::kU2:
    case DType::kU4:
    case DType::kF4E2M1:
    case DType::kF8E4M3FN:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ:
    case DType::kF8E8M0:
      break;
  }
  return "uchar";
}

std::string MemoryType(DType dtype) { return dtype == DType::kBool || IsPacked(dtype) ? "uchar" : ValueType(dtype); }

int64_t ElementsOf(const ir::Buffer& array) {
  const int64_t elements = NumElements(array->shape);
  return std::max<int64_t>(1, IsPacked(array->dtype) ? BytesOf(array->dtype, elements) : elements);
}

std::string IntLiteral(int64_t v, DType dtype) {
  if (dtype == DType::kU64) return absl::StrCat(static_cast<uint64_t>(v), "ul");
  if (dtype == DType::kU32) return absl::StrCat(static_cast<uint32_t>(v), "u");
  const char* suffix = dtype == DType::kI64 ? "L" : "";
  // The lowest number has no literal of its own: a minus is an operator.
  const int64_t lowest =
      dtype == DType::kI64 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  if (v == lowest) return absl::StrCat("(", v + 1, suffix, " - 1)");
  return v < 0 ? absl::StrCat("(", v, suffix, ")") : absl::StrCat(v, suffix);
}

std::string FloatLiteral(double v, DType dtype) {
  if (IsNarrowFloat(dtype)) return Hex(EncodeFloat(dtype, v));
  const bool f32 = dtype == DType::kF32;
  if (f32) v = static_cast<double>(static_cast<float>(v));
  if (std::isnan(v)) return f32 ? "NAN" : "(double)NAN";
  if (std::isinf(v)) return absl::StrCat(v < 0 ? "(-" : "(", f32 ? "" : "(double)", "INFINITY)");
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.*g", f32 ? 9 : 17, v);
  for (int count = 1; count < 17; ++count) {  // the shortest that says it
    char shorter[40];
    std::snprintf(shorter, sizeof shorter, "%.*g", count, v);
    const bool same = f32 ? std::strtof(shorter, nullptr) == static_cast<float>(v) : std::strtod(shorter, nullptr) == v;
    if (!same) continue;
    std::snprintf(digits, sizeof digits, "%s", shorter);
    break;
  }
  std::string text = digits;
  if (text.find_first_of(".e") == text.npos) text += ".0";
  if (f32) text += "f";
  return std::signbit(v) ? absl::StrCat("(", text, ")") : text;
}

std::string Prelude::Add(const std::string& result, const std::string& name, const std::string& text) {
  AddText(name, absl::StrCat(dialect_.function, result, " ", name, text));
  return name;
}

void Prelude::AddText(const std::string& name, const std::string& text) {
  if (names_.insert(name).second) text_ += text;
}

std::string Prelude::FloorDiv(const std::string& type) {
  return Add(type, absl::StrCat("temper_floor_div_", type),
             absl::Substitute("(const $0 a, const $0 b) {\n"
                              "  if (b == 0) return 0;\n"
                              "  if (b == -1) return ($0)-(u$0)a;\n"
                              "  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);\n"
                              "}\n",
                              type));
}

std::string Prelude::FloorMod(const std::string& type) {
  return Add(type, absl::StrCat("temper_floor_mod_", type),
             absl::Substitute("(const $0 a, const $0 b) {\n"
                              "  if (b == 0 || b == -1) return 0;\n"
                              "  const $0 r = a % b;\n"
                              "  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
                              "}\n",
                              type));
}

std::string Prelude::UnsignedDiv(const std::string& type) {
  return Add(type, absl::StrCat("temper_div_", type),
             absl::Substitute("(const $0 a, const $0 b) { return b == 0 ? 0 : a / b; }\n", type));
}

std::string Prelude::UnsignedMod(const std::string& type) {
  return Add(type, absl::StrCat("temper_mod_", type),
             absl::Substitute("(const $0 a, const $0 b) { return b == 0 ? 0 : a % b; }\n", type));
}

std::string Prelude::FloatMin(const std::string& type) {
  return Add(type, absl::StrCat("temper_min_", type),
             absl::Substitute("(const $0 a, const $0 b) { return a < b || isnan(a) ? a : b; }\n", type));
}

std::string Prelude::FloatMax(const std::string& type) {
  return Add(type, absl::StrCat("temper_max_", type),
             absl::Substitute("(const $0 a, const $0 b) { return a > b || isnan(a) ? a : b; }\n", type));
}

std::string Prelude::FloatMod(const std::string& type) {
  return Add(
      type, absl::StrCat("temper_mod_", type),
      absl::Substitute("(const $0 a, const $0 b) { return a - $1(a / b) * b; }\n", type, dialect_.math("floor", type)));
}

std::string Prelude::Square(const std::string& type) {
  return Add(type, absl::StrCat("temper_square_", type), absl::Substitute("(const $0 x) { return x * x; }\n", type));
}

std::string Prelude::ToLong(const std::string& float_type) {
  return Add("long", absl::StrCat("temper_long_of_", float_type),
             absl::Substitute("(const $0 x) {\n"
                              "  if (isnan(x)) return 0;\n"
                              "  return x >= ($0)0x1p63f ? LONG_MAX : x < ($0)-0x1p63f ? LONG_MIN : (long)x;\n"
                              "}\n",
                              float_type));
}

std::string Prelude::ToUlong(const std::string& float_type) {
  const std::string to_long = ToLong(float_type);
  return Add("ulong", absl::StrCat("temper_ulong_of_", float_type),
             absl::Substitute("(const $0 x) {\n"
                              "  if (!(x >= ($0)0x1p63f)) return (ulong)$1(x);\n"
                              "  return x < ($0)0x1p64f ? (ulong)x : ULONG_MAX;\n"
                              "}\n",
                              float_type, to_long));
}

// Here and below, choices and no branches: compilers that make vectors of them, and of what is around, come to no end
// with one branch for each element of a large tile.
std::string Prelude::Decode(DType narrow) {
  const DTypeInfo& t = Info(narrow);
  const std::string name = absl::StrCat("temper_float_of_", std::string(t.name));
  if (narrow == DType::kF16 && dialect_.from_f16 != nullptr)
    return Add("float", name, absl::StrCat("(const ushort x) {", dialect_.from_f16));
  if (narrow == DType::kF8E8M0) return Add("float", name, DecodeE8M0());
  const uint64_t sign_bit = uint64_t{1} << (t.bits - 1), largest = EncodeFloat(narrow, temper::Largest(narrow));
  const int shift = kF32Mantissa - t.mantissa_bits;
  std::string text = absl::Substitute(
      "(const $0 x) {\n"
      "  const uint m = x & $1u, sign = (uint)(x & $2u) << $3;\n"
      "  uint f = (m << $4) + $5u;\n",
      ValueType(narrow), Hex(sign_bit - 1), Hex(sign_bit), 32 - t.bits, shift,
      Hex(static_cast<uint64_t>(kF32Bias - t.bias) << kF32Mantissa));
  // Subnormal numbers are counted in units of the last place.
  if (t.bias != kF32Bias)
    absl::StrAppend(&text, "  f = m < ", Hex(uint64_t{1} << t.mantissa_bits), "u ? as_uint((float)m * ",
                    FloatLiteral(std::ldexp(1.0, 1 - t.bias - t.mantissa_bits), DType::kF32), ") : f;\n");
  switch (t.specials) {
    case Specials::kIeee:
      absl::StrAppend(&text, "  f = m > ", Hex(largest), "u ? 0x7f800000u | m << ", shift, " : f;\n");
      break;
    case Specials::kNan:
      absl::StrAppend(&text, "  f = m > ", Hex(largest), "u ? 0x7fc00000u : f;\n");
      break;
    case Specials::kNegativeNan:
      absl::StrAppend(&text, "  f = x == ", Hex(sign_bit), "u ? 0x7fc00000u : f;\n");
      break;
    case Specials::kNone:
    case Specials::kNotFloat:
      break;
  }
  return Add("float", name, text + "  return as_float(f | sign);\n}\n");
}

std::string Prelude::Encode(DType narrow, const std::string& float_type, CastMode mode) {
  const DTypeInfo& t = Info(narrow);
  std::string name = absl::StrCat("temper_", std::string(t.name), "_of_", float_type);
  if (HasCastMode(narrow)) absl::StrAppend(&name, mode.saturate ? "_sat" : "");
  if (narrow == DType::kF8E8M0) {
    if (mode.rounding != Rounding::kNearest) absl::StrAppend(&name, mode.rounding == Rounding::kUp ? "_up" : "_down");
    return Add("uchar", name, EncodeE8M0(mode));
  }
  const DTypeInfo& from = Info(float_type == "double" ? DType::kF64 : DType::kF32);
  const std::string bits_type = float_type == "double" ? "ulong" : "uint";
  const uint64_t largest = EncodeFloat(narrow, temper::Largest(narrow));
  const auto special = [&](double positive) {
    return absl::Substitute("s != 0 ? $0 : $1", Hex(EncodeFloat(narrow, -positive, mode)),
                            Hex(EncodeFloat(narrow, positive, mode)));
  };
  const std::string nan = special(std::numeric_limits<double>::quiet_NaN());
  std::string text = absl::Substitute(
      "(const $0 x) {\n"
      "  const $1 bits = as_$1(x), s = bits >> $2, m = bits & $3;\n",
      float_type, bits_type, from.bits - 1, Hex((uint64_t{1} << (from.bits - 1)) - 1));
  if (narrow == DType::kF16 && dialect_.to_f16 != nullptr) {
    return Add(ValueType(narrow), name,
               absl::StrCat(text, "  if (isnan(x)) return ", nan, ";\n", dialect_.to_f16(float_type)));
  }
  // To the nearest, ties to even; a carry goes into the exponent by itself.
  const int shift = from.mantissa_bits - t.mantissa_bits;
  absl::StrAppend(&text, "  ", bits_type, " q = ((m + ", Hex((uint64_t{1} << (shift - 1)) - 1), " + (m >> ", shift,
                  " & 1)) >> ", shift, ") - ", Hex(static_cast<uint64_t>(from.bias - t.bias) << t.mantissa_bits),
                  ";\n");
  if (t.bias != from.bias) {
    // Subnormal numbers: adding a number whose last place is theirs rounds as it should.
    const double least_normal = std::ldexp(1.0, 1 - t.bias), magic = std::ldexp(least_normal, shift);
    absl::StrAppend(&text, "  q = m < ", Hex(EncodeFloat(from.dtype, least_normal)), " ? as_", bits_type, "(as_",
                    float_type, "(m) + ", FloatLiteral(magic, from.dtype), ") - ", Hex(EncodeFloat(from.dtype, magic)),
                    " : q;\n");
  }
  absl::StrAppend(&text, "  const ", bits_type,
                  " signed_q = ", t.specials == Specials::kNegativeNan ? "q == 0 ? 0 : " : "", "q | s << ", t.bits - 1,
                  ";\n  return (", ValueType(narrow), ")(isnan(x) ? (", nan, ") : q > ", Hex(largest), " ? (",
                  special(std::numeric_limits<double>::infinity()), ") : signed_q);\n}\n");
  return Add(ValueType(narrow), name, text);
}

std::string Prelude::LoadPacked(DType packed, const std::string& space) {
  const DTypeInfo& t = Info(packed);
  const int per_byte = 8 / t.bits;
  const std::string type = ValueType(packed);
  const std::string low = absl::Substitute("p[i / $0] >> (int)(i % $0) * $1", per_byte, t.bits);
  // Shifted up and down again, a signed one's highest bit fills the rest.
  const int rest = 32 - t.bits;
  const std::string body = t.kind == TypeKind::kSigned
                               ? absl::Substitute("(char)((int)((uint)($0) << $1) >> $1)", low, rest)
                               : absl::Substitute("(uchar)($0 & $1)", low, (1 << t.bits) - 1);
  const std::string word = space.substr(0, space.find(' '));
  return Add(type, absl::StrCat("temper_load_", std::string(t.name), word),
             absl::Substitute("(const $0uchar* p, const long i) { return $1; }\n", space, body));
}

}  // namespace temper
