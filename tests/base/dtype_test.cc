// The table of element types and its conversions, against what each format is defined as.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/ndarray.h"

namespace temper {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(DTypeTable, NamesAndCodesNameOneTypeEach) {
  std::set<int> codes;
  for (const DTypeInfo& t : AllDTypes()) {
    SCOPED_TRACE(std::string(t.name));
    EXPECT_EQ(*DTypeFromName(t.name), t.dtype);
    EXPECT_EQ(*DTypeFromOnnx(t.onnx), t.dtype);
    EXPECT_TRUE(codes.insert(t.onnx).second);
    EXPECT_EQ(Info(t.wide).wide, t.wide);
    EXPECT_EQ(t.wide == t.dtype, IsNative(t.dtype));
  }
  EXPECT_EQ(AllDTypes().size(), 23u);
  EXPECT_FALSE(DTypeFromName("f12").ok());
  EXPECT_FALSE(DTypeFromOnnx(8).ok());  // text
}

TEST(DTypeTable, ExtremesAreThoseOfTheFormats) {
  struct Extreme {
    DType dtype;
    double lowest, largest;
  };
  for (const Extreme& e : {Extreme{DType::kF16, -65504, 65504},
                           {DType::kBF16, -0x1.fep127, 0x1.fep127},
                           {DType::kF8E4M3FN, -448, 448},
                           {DType::kF8E4M3FNUZ, -240, 240},
                           {DType::kF8E5M2, -57344, 57344},
                           {DType::kF8E5M2FNUZ, -57344, 57344},
                           {DType::kF8E8M0, 0x1p-127, 0x1p127},
                           {DType::kF4E2M1, -6, 6},
                           {DType::kI2, -2, 1},
                           {DType::kU2, 0, 3},
                           {DType::kI4, -8, 7},
                           {DType::kU4, 0, 15},
                           {DType::kU16, 0, 65535},
                           {DType::kF32, -0x1.fffffep127, 0x1.fffffep127}}) {
    EXPECT_EQ(Lowest(e.dtype), e.lowest) << Name(e.dtype);
    EXPECT_EQ(Largest(e.dtype), e.largest) << Name(e.dtype);
  }
}

// Every pattern of up to 16 bits comes back; between two neighbours the nearer wins, and of a tie the even one.
TEST(Conversion, EncodeIsTheInverseOfDecodeAndRoundsToTheNearest) {
  for (const DTypeInfo& t : AllDTypes()) {
    if (!IsNarrowFloat(t.dtype) || t.dtype == DType::kF8E8M0) continue;
    SCOPED_TRACE(std::string(t.name));
    const uint64_t largest = EncodeFloat(t.dtype, Largest(t.dtype));
    for (uint64_t bits = 0; bits <= largest; ++bits) {
      const double v = DecodeFloat(t.dtype, bits);
      ASSERT_EQ(EncodeFloat(t.dtype, v), bits);
      if (bits > 0) {
        ASSERT_EQ(EncodeFloat(t.dtype, -v), bits | uint64_t{1} << (t.bits - 1));
      }
      if (bits == largest) break;
      const double next = DecodeFloat(t.dtype, bits + 1), middle = (v + next) / 2;
      ASSERT_LT(v, next);
      ASSERT_EQ(EncodeFloat(t.dtype, middle), bits % 2 == 0 ? bits : bits + 1);
      ASSERT_EQ(EncodeFloat(t.dtype, std::nextafter(middle, -kInfinity)), bits);
      ASSERT_EQ(EncodeFloat(t.dtype, std::nextafter(middle, kInfinity)), bits + 1);
    }
  }
}

// Arrays of them are converted by code of their own: all patterns, the middles between neighbours, and what lies
// beside.
TEST(Conversion, ArraysOfHalfWordsAreConvertedAsTheirElementsAre) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(std::string(Name(dtype)));
    constexpr int64_t kPatterns = 1 << 16;
    NDArray all(dtype, {kPatterns});
    for (int64_t bits = 0; bits < kPatterns; ++bits)
      StoreBits(dtype, all.MutableData(), bits, static_cast<uint64_t>(bits));
    const NDArray wide = all.ConvertedTo(DType::kF32);
    std::vector<float> tried;
    for (int64_t bits = 0; bits < kPatterns; ++bits) {
      const double want = DecodeFloat(dtype, static_cast<uint64_t>(bits));
      const float got = wide.as<float>()[static_cast<size_t>(bits)];
      ASSERT_TRUE(static_cast<double>(got) == want || (std::isnan(got) && std::isnan(want))) << bits;
      const auto middle =
          static_cast<float>((want + DecodeFloat(dtype, static_cast<uint64_t>((bits + 1) % kPatterns))) / 2);
      for (const float v : {got, middle, std::nextafterf(middle, -HUGE_VALF), std::nextafterf(middle, HUGE_VALF)})
        tried.push_back(v);
    }
    for (const float v : {0x1p-149f, -0x1p-149f, 65519.996f, 65520.f, 3.4e38f, 0x1.fffffep127f}) tried.push_back(v);
    NDArray floats(DType::kF32, {static_cast<int64_t>(tried.size())});
    std::ranges::copy(tried, floats.as<float>().begin());
    const NDArray narrow = floats.ConvertedTo(dtype);
    for (size_t i = 0; i < tried.size(); ++i) {
      ASSERT_EQ(LoadBits(dtype, narrow.data(), static_cast<int64_t>(i)),
                EncodeFloat(dtype, static_cast<double>(tried[i])))
          << tried[i];
    }
  }
}

TEST(Conversion, WhatIsTooLargeGoesWhereTheTableSays) {
  EXPECT_EQ(EncodeFloat(DType::kF16, 65520), 0x7c00u);
  EXPECT_EQ(EncodeFloat(DType::kF8E5M2, kInfinity), 0x7cu);
  EXPECT_EQ(EncodeFloat(DType::kF8E5M2, kInfinity, {.saturate = true}), 0x7bu);
  EXPECT_EQ(EncodeFloat(DType::kF8E4M3FN, -1000), 0xffu);
  EXPECT_EQ(EncodeFloat(DType::kF8E4M3FN, -1000, {.saturate = true}), 0xfeu);
  EXPECT_EQ(EncodeFloat(DType::kF8E4M3FNUZ, 1000), 0x80u);
  EXPECT_EQ(EncodeFloat(DType::kF8E4M3FNUZ, -1e-9), 0u);  // there is no -0
  EXPECT_EQ(EncodeFloat(DType::kF4E2M1, -1000), 0xfu);
  EXPECT_EQ(EncodeFloat(DType::kF16, kInfinity, {.saturate = true}), 0x7c00u);  // f16 has one way alone
}

TEST(Conversion, IntegersWrapAndFloatsAreCut) {
  EXPECT_EQ(WrapInteger(DType::kI4, 9), -7);
  EXPECT_EQ(WrapInteger(DType::kU4, -1), 15);
  EXPECT_EQ(WrapInteger(DType::kI2, 2), -2);
  EXPECT_EQ(WrapInteger(DType::kU16, 65537), 1);
  EXPECT_EQ(WrapInteger(DType::kBool, 256), 1);
  EXPECT_EQ(TruncateTo(DType::kI8, -1.9), -1);
  EXPECT_EQ(TruncateTo(DType::kI32, std::nan("")), 0);
  EXPECT_EQ(TruncateTo(DType::kI64, 1e300), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(static_cast<uint64_t>(TruncateTo(DType::kU64, 0x1p63)), uint64_t{1} << 63);
}

// Two of four bits or four of two bits lie in a byte, the first lowest, and a last byte may be part full.
TEST(Packing, LowBitsComeFirst) {
  NDArray nibbles(DType::kI4, {3}), pairs(DType::kU2, {5});
  EXPECT_EQ(nibbles.bytes(), 2);
  EXPECT_EQ(pairs.bytes(), 2);
  for (int64_t i = 0; i < 3; ++i) nibbles.Set(i, static_cast<double>(i) - 2);
  for (int64_t i = 0; i < 5; ++i) pairs.Set(i, static_cast<double>(3 - i % 4));
  const auto* n = static_cast<const uint8_t*>(nibbles.data());
  const auto* p = static_cast<const uint8_t*>(pairs.data());
  EXPECT_EQ(n[0], 0xfe);
  EXPECT_EQ(n[1], 0x00);
  EXPECT_EQ(p[0], 0x1b);
  EXPECT_EQ(p[1], 0x03);
  EXPECT_EQ(nibbles.At(0), -2);
  EXPECT_EQ(pairs.At(3), 0);
  nibbles.Set(1, 5);
  EXPECT_EQ(nibbles.At(0), -2);  // its neighbour in the byte stays
  EXPECT_EQ(nibbles.At(1), 5);
}

TEST(Packing, ConversionsOfArraysKeepEveryNumberThatFits) {
  for (const DTypeInfo& t : AllDTypes()) {
    NDArray a(t.dtype, {7});
    for (int64_t i = 0; i < a.size(); ++i) a.Set(i, t.kind == TypeKind::kBool ? static_cast<double>(i % 2) : 1);
    const NDArray back = a.ConvertedTo(t.wide).ConvertedTo(t.dtype);
    for (int64_t i = 0; i < a.size(); ++i) EXPECT_EQ(back.At(i), a.At(i)) << t.name;
  }
  NDArray large(DType::kU64, {1});
  large.as<uint64_t>()[0] = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(large.ConvertedTo(DType::kI64).as<int64_t>()[0], -1);
  EXPECT_EQ(large.At(0), 0x1p64);
}

}  // namespace
}  // namespace temper
