// Operators on the bits of integers, against the machine's own.
#include <gmock/gmock.h>

#include <limits>

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
  ModelBuilder m(18);
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
  EXPECT_THAT(error("BitShift", onnx::TensorProto::INT32, "LEFT"), HasSubstr("takes unsigned integers"));
  EXPECT_THAT(error("BitwiseAnd", onnx::TensorProto::FLOAT, nullptr), HasSubstr("takes integers of one type"));
  ModelBuilder missing(18);
  missing.Input("a", {2}, onnx::TensorProto::UINT8);
  missing.Node("BitwiseNot", {"a", ""}, {"y"});
  missing.Output("y");
  EXPECT_THAT(std::string(missing.Import().status().message()), HasSubstr("an operand is missing"));
}

}  // namespace
}  // namespace temper
