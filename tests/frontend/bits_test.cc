// Operators on the bits of integers, against the machine's own.
#include <gmock/gmock.h>

#include <limits>
#include <type_traits>

#include "base/rng.h"
#include "tests/frontend/model_builder.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;

template <typename T>
struct TypeInfo;
#define TEMPER_TYPE(type, kType, onnx_type)                   \
  template <>                                                 \
  struct TypeInfo<type> {                                     \
    static constexpr DType dtype = DType::kType;              \
    static constexpr int onnx = onnx::TensorProto::onnx_type; \
  }
TEMPER_TYPE(uint8_t, kU8, UINT8);
TEMPER_TYPE(int8_t, kI8, INT8);
TEMPER_TYPE(uint16_t, kU16, UINT16);
TEMPER_TYPE(int16_t, kI16, INT16);
TEMPER_TYPE(uint32_t, kU32, UINT32);
TEMPER_TYPE(int32_t, kI32, INT32);
TEMPER_TYPE(uint64_t, kU64, UINT64);
TEMPER_TYPE(int64_t, kI64, INT64);
#undef TEMPER_TYPE

// Random ones, and those where bits run out.
template <typename T>
NDArray Drawn(Rng& rng, const Shape& shape) {
  NDArray x(TypeInfo<T>::dtype, shape);
  const T odd[] = {0, 1, std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), static_cast<T>(-1)};
  for (size_t i = 0; i < x.as<T>().size(); ++i) x.as<T>()[i] = i < 5 ? odd[i] : static_cast<T>(rng.Next());
  return x;
}

template <typename T>
NDArray Outcome(const char* op, const std::vector<NDArray>& x, const char* direction = nullptr) {
  ModelBuilder m(28);
  std::vector<std::string> names;
  for (const NDArray& operand : x) {
    names.push_back("x" + std::to_string(names.size()));
    m.Input(names.back(), operand.shape(), TypeInfo<T>::onnx);
  }
  auto& node = m.Node(op, names, {"y"});
  if (direction != nullptr) ModelBuilder::SetString(node, "direction", direction);
  m.Output("y");
  return m.Run(x)[0];
}

template <typename T>
class OnnxBits : public ::testing::Test {};
using All = ::testing::Types<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t>;
TYPED_TEST_SUITE(OnnxBits, All);

TYPED_TEST(OnnxBits, AreWhatTheMachineHas) {
  using T = TypeParam;
  Rng rng(9);
  const NDArray a = Drawn<T>(rng, {7, 6}), b = Drawn<T>(rng, {6});
  const NDArray both = Outcome<T>("BitwiseAnd", {a, b}), any = Outcome<T>("BitwiseOr", {a, b});
  const NDArray one = Outcome<T>("BitwiseXor", {a, b}), none = Outcome<T>("BitwiseNot", {a});
  ASSERT_EQ(both.shape(), (Shape{7, 6}));
  for (size_t i = 0; i < 42; ++i) {
    const T x = a.as<T>()[i], y = b.as<T>()[i % 6];
    EXPECT_EQ(both.as<T>()[i], static_cast<T>(x & y)) << +x << " " << +y;
    EXPECT_EQ(any.as<T>()[i], static_cast<T>(x | y)) << +x << " " << +y;
    EXPECT_EQ(one.as<T>()[i], static_cast<T>(x ^ y)) << +x << " " << +y;
    EXPECT_EQ(none.as<T>()[i], static_cast<T>(~x)) << +x;
  }
}

template <typename T>
class OnnxShift : public ::testing::Test {};
using Unsigned = ::testing::Types<uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(OnnxShift, Unsigned);

TYPED_TEST(OnnxShift, MovesBitsOutOnBothSides) {
  using T = TypeParam;
  constexpr size_t kBits = 8 * sizeof(T);
  Rng rng(10);
  const int64_t shifts = static_cast<int64_t>(kBits) + 2;
  const NDArray x = Drawn<T>(rng, {shifts});
  NDArray by(TypeInfo<T>::dtype, {shifts});
  for (size_t i = 0; i < kBits + 2; ++i) by.as<T>()[i] = static_cast<T>(i);
  const NDArray left = Outcome<T>("BitShift", {x, by}, "LEFT"), right = Outcome<T>("BitShift", {x, by}, "RIGHT");
  for (size_t i = 0; i < kBits + 2; ++i) {
    const uint64_t wide = x.as<T>()[i];
    EXPECT_EQ(left.as<T>()[i], i < kBits ? static_cast<T>(wide << i) : T{0}) << i;
    EXPECT_EQ(right.as<T>()[i], i < kBits ? static_cast<T>(wide >> i) : T{0}) << i;
  }
}

template <typename T>
class OnnxSignedShift : public ::testing::Test {};
using Signed = ::testing::Types<int8_t, int16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(OnnxSignedShift, Signed);

// To the right the sign comes in. A shift by less than nothing is one by all bits.
TYPED_TEST(OnnxSignedShift, KeepsTheSignToTheRight) {
  using T = TypeParam;
  using U = std::make_unsigned_t<T>;
  constexpr int64_t kBits = 8 * sizeof(T);
  Rng rng(11);
  const int64_t shifts = kBits + 4;
  const NDArray x = Drawn<T>(rng, {shifts});
  NDArray by(TypeInfo<T>::dtype, {shifts});
  for (int64_t i = 0; i < shifts; ++i) by.as<T>()[static_cast<size_t>(i)] = static_cast<T>(shifts - 3 - i);
  const NDArray left = Outcome<T>("BitShift", {x, by}, "LEFT"), right = Outcome<T>("BitShift", {x, by}, "RIGHT");
  for (size_t i = 0; i < static_cast<size_t>(shifts); ++i) {
    const T value = x.as<T>()[i], shift = by.as<T>()[i];
    const bool inside = shift >= 0 && shift < kBits;
    EXPECT_EQ(left.as<T>()[i], inside ? static_cast<T>(static_cast<U>(static_cast<U>(value) << shift)) : T{0}) << i;
    EXPECT_EQ(right.as<T>()[i], static_cast<T>(inside ? value >> shift : value < 0 ? -1 : 0)) << i;
  }
}

ModelBuilder BitCast(const NDArray& x, int from, int to) {
  ModelBuilder m(26);
  m.Input("x", x.shape(), from);
  ModelBuilder::SetInt(m.Node("BitCast", {"x"}, {"y"}), "to", to);
  m.Output("y");
  return m;
}

// Bits that are drawn, and those where exponents begin and end. Those of no number need not be kept.
template <typename U>
void CheckBitCast(DType dtype, int as_float, DType integers, int as_integer, int mantissa) {
  constexpr int kBits = 8 * sizeof(U);
  const U infinity = static_cast<U>(((U{1} << (kBits - 1 - mantissa)) - 1) << mantissa);
  std::vector<U> bits;
  for (const U low : {U{0}, U{1}, static_cast<U>((U{1} << mantissa) - 1), static_cast<U>(U{1} << mantissa),
                      static_cast<U>(infinity - 1), infinity, static_cast<U>(infinity / 2)}) {
    for (const U sign : {U{0}, static_cast<U>(U{1} << (kBits - 1))}) bits.push_back(low | sign);
  }
  Rng rng(12);
  while (bits.size() < 400) {
    const U drawn = static_cast<U>(rng.Next());
    if ((drawn & infinity) != infinity) bits.push_back(drawn);
  }
  NDArray floats(dtype, {std::ssize(bits)}), whole(integers, floats.shape());
  for (size_t i = 0; i < bits.size(); ++i) {
    StoreBits(dtype, floats.MutableData(), static_cast<int64_t>(i), bits[i]);
    StoreBits(integers, whole.MutableData(), static_cast<int64_t>(i), bits[i]);
  }
  const NDArray to_whole = BitCast(floats, as_float, as_integer).Run({floats})[0];
  const NDArray to_floats = BitCast(whole, as_integer, as_float).Run({whole})[0];
  ASSERT_EQ(to_whole.dtype(), integers);
  ASSERT_EQ(to_floats.dtype(), dtype);
  const uint64_t mask = static_cast<U>(~U{0});
  for (size_t i = 0; i < bits.size(); ++i) {
    EXPECT_EQ(LoadBits(integers, to_whole.data(), static_cast<int64_t>(i)) & mask, bits[i]);
    EXPECT_EQ(LoadBits(dtype, to_floats.data(), static_cast<int64_t>(i)) & mask, bits[i]);
  }
}

TEST(OnnxBitCast, KeepsTheBitsOfNumbers) {
  using Onnx = onnx::TensorProto;
  CheckBitCast<uint16_t>(DType::kF16, Onnx::FLOAT16, DType::kI16, Onnx::INT16, 10);
  CheckBitCast<uint16_t>(DType::kBF16, Onnx::BFLOAT16, DType::kU16, Onnx::UINT16, 7);
  CheckBitCast<uint32_t>(DType::kF32, Onnx::FLOAT, DType::kI32, Onnx::INT32, 23);
  CheckBitCast<uint32_t>(DType::kF32, Onnx::FLOAT, DType::kU32, Onnx::UINT32, 23);
  CheckBitCast<uint64_t>(DType::kF64, Onnx::DOUBLE, DType::kI64, Onnx::INT64, 52);
}

TEST(OnnxBitCast, OfIntegersBooleansAndWhatIsNoNumber) {
  NDArray x(DType::kI8, {3});
  const double values[] = {-1, 0, 1};
  for (int64_t i = 0; i < 3; ++i) x.Set(i, values[i]);
  const NDArray bytes = BitCast(x, onnx::TensorProto::INT8, onnx::TensorProto::UINT8).Run({x})[0];
  EXPECT_EQ(bytes.At(0), 255);
  EXPECT_EQ(bytes.At(2), 1);
  NDArray truths(DType::kBool, {2});
  truths.Set(1, 1);
  EXPECT_EQ(BitCast(truths, onnx::TensorProto::BOOL, onnx::TensorProto::INT8).Run({truths})[0].At(1), 1);
  NDArray none(DType::kF32, {1});
  none.Set(0, std::numeric_limits<double>::quiet_NaN());
  const NDArray bits = BitCast(none, onnx::TensorProto::FLOAT, onnx::TensorProto::INT32).Run({none})[0];
  EXPECT_EQ(bits.At(0), 0x7fc00000);
}

TEST(OnnxBitCast, WantsAsManyBits) {
  constexpr int kFloat8e5m2 = 19, kUint4 = 21, kInt4 = 22;  // of ONNX, which not every version of its library names
  const NDArray x(DType::kF32, {2});
  EXPECT_THAT(testing::Refusal(BitCast(x, onnx::TensorProto::FLOAT, onnx::TensorProto::INT64)),
              HasSubstr("f32 and i64 have not as many bits"));
  EXPECT_THAT(testing::Refusal(BitCast(x, kFloat8e5m2, onnx::TensorProto::UINT8)),
              HasSubstr("floats of a byte are not supported"));
  EXPECT_THAT(testing::Refusal(BitCast(x, kInt4, kUint4)), HasSubstr("less than a byte are not supported"));
}

TEST(OnnxBitsErrors, WhatCanNotBeIsSaidInOneLine) {
  const auto error = [](const char* op, int type, const char* direction) {
    ModelBuilder m(18);
    m.Input("a", {2}, type);
    m.Input("b", {2}, type);
    auto& node = m.Node(op, {"a", "b"}, {"y"});
    if (direction != nullptr) ModelBuilder::SetString(node, "direction", direction);
    m.Output("y");
    return std::string(m.Import().status().message());
  };
  EXPECT_EQ(error("BitShift", onnx::TensorProto::UINT8, "LEFT"), "");
  EXPECT_THAT(error("BitShift", onnx::TensorProto::UINT8, nullptr), HasSubstr("direction is 'LEFT' or 'RIGHT'"));
  EXPECT_THAT(error("BitShift", onnx::TensorProto::INT32, "LEFT"),
              HasSubstr("takes unsigned integers before opset 28"));
  EXPECT_THAT(error("BitwiseAnd", onnx::TensorProto::FLOAT, nullptr), HasSubstr("takes integers of one type"));
  ModelBuilder missing(18);
  missing.Input("a", {2}, onnx::TensorProto::UINT8);
  missing.Node("BitwiseNot", {"a", ""}, {"y"});
  missing.Output("y");
  EXPECT_THAT(std::string(missing.Import().status().message()), HasSubstr("an operand is missing"));
}

}  // namespace
}  // namespace temper
