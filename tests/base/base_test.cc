#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "base/clock.h"
#include "base/division.h"
#include "base/ndarray.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/shape_limits.h"
#include "base/strides.h"
#include "base/temporary_directory.h"
#include "base/utf8.h"

namespace temper {
namespace {

TEST(DivisionTest, RoundsUp) {
  EXPECT_EQ(CeilDiv(7, 4), 2);
  EXPECT_EQ(CeilDiv(-7, 4), -1);
  EXPECT_EQ(RoundUp(0, 64), 0);
  EXPECT_EQ(RoundUp(1, 64), 64);
  EXPECT_EQ(RoundUp(64, 64), 64);
  EXPECT_EQ(RoundUp(65, 6), 66);
}

TEST(NDArrayTest, RowMajorStrides) {
  EXPECT_EQ(RowMajorStrides(Shape{2, 3, 4}), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(RowMajorStrides(Shape{2, 0, 4}), (std::vector<int64_t>{0, 4, 1}));
  EXPECT_TRUE(RowMajorStrides(Shape{}).empty());
}

TEST(NDArrayTest, ShapeText) {
  EXPECT_EQ(ShapeText(Shape{1, 3, 224, 224}), "1x3x224x224");
  EXPECT_EQ(ShapeText(Shape{}), "scalar");
  EXPECT_EQ(NumElements(Shape{}), 1);
  EXPECT_EQ(NumElements(Shape{4, 0}), 0);
}

TEST(NDArrayTest, StartsAsZeroAndKeepsWhatIsSet) {
  for (const DTypeInfo& type : AllDTypes()) {
    SCOPED_TRACE(std::string(type.name));
    NDArray a(type.dtype, {2, 3});
    const double zero = type.dtype == DType::kF8E8M0 ? Lowest(type.dtype) : 0;  // it has none
    EXPECT_EQ(a.bytes(), (6 * type.bits + 7) / 8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
    EXPECT_EQ(a.At(4), zero);
    a.Set(4, 1);
    EXPECT_EQ(a.At(4), 1);
    EXPECT_EQ(a.At(5), zero);
  }
}

TEST(NDArrayTest, LargeOnesAreZeroAndAlignedToo) {
  for (int round = 0; round < 2; ++round) {  // the second may get what the first gave back
    NDArray a(DType::kU8, {5 << 20});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
    const std::span<uint8_t> bytes = a.as<uint8_t>();
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), a.size());
    std::fill_n(bytes.data(), a.size() + 64, uint8_t{1});  // a vector past the end is the array's as well
  }
}

TEST(NDArrayTest, ShapesFromOutsideAreCheckedAndNoMemoryIsAnError) {
  const auto why = [](Shape shape) {
    return std::string(NDArray::Make(DType::kF64, std::move(shape)).status().message());
  };
  const absl::StatusOr<NDArray> made = NDArray::Make(DType::kI32, {2, 3});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->bytes(), 24);
  EXPECT_EQ(made->At(5), 0);
  EXPECT_EQ(why({2, -1}), "a tensor of 2x-1 has a negative extent");
  EXPECT_EQ(why(Shape(kMaxTensorRank + 1, 1)), "a tensor of 17 dimensions: there may be 16");
  EXPECT_EQ(why({kMaxTensorElements, 2}), "a tensor of 68719476736x2 is too large");
  EXPECT_EQ(why({0, int64_t{1} << 62, int64_t{1} << 62}),
            "a tensor of 0x4611686018427387904x4611686018427387904 is too large");
  EXPECT_TRUE(CheckTensorShape(Shape(kMaxTensorRank, 1)).ok());
  EXPECT_TRUE(CheckTensorShape(Shape{0, kMaxTensorElements}).ok());
  EXPECT_TRUE(CheckTensorShape(Shape{}).ok());
}

TEST(NDArrayDeathTest, WhatHasNoMemoryEndsTheProgramWithALine) {
  const auto make = [](DType dtype, int64_t size) {
    SetUpLogging(false);
    NDArray(dtype, {size});
  };
  // 0 bytes, if the product were taken as it is.
  EXPECT_DEATH(make(DType::kF32, int64_t{1} << 60), "no memory for an array of f32 1152921504606846976");
  EXPECT_DEATH(make(DType::kU8, int64_t{1} << 56), "no memory for an array of u8");
}

TEST(NDArrayTest, CopiesAndReshapesShareBytesWhereClonesDoNot) {
  NDArray a(DType::kF32, {2, 3});
  NDArray copy = a, reshaped = a.Reshaped({6}), clone = a.Clone();
  a.Set(1, 7);
  EXPECT_EQ(copy.At(1), 7);
  EXPECT_EQ(reshaped.At(1), 7);
  EXPECT_EQ(reshaped.shape(), (Shape{6}));
  EXPECT_EQ(clone.At(1), 0);
}

TEST(RelativeErrorTest, IsTheLargestDifferenceOverTheLargestValue) {
  NDArray a(DType::kF32, {2}), b(DType::kF32, {2});
  b.Set(0, 100);
  a.Set(0, 100);
  a.Set(1, 1);
  EXPECT_DOUBLE_EQ(RelativeError(a, b), 0.01);
  EXPECT_EQ(RelativeError(b, b), 0);
}

TEST(RelativeErrorTest, ShapesAndNonFiniteValuesMustAgree) {
  NDArray a(DType::kF32, {2}), b(DType::kF32, {2});
  EXPECT_TRUE(std::isinf(RelativeError(a, NDArray(DType::kF32, {1, 2}))));
  a.Set(0, std::nan(""));
  EXPECT_TRUE(std::isinf(RelativeError(a, b)));
  EXPECT_TRUE(std::isinf(RelativeError(b, a)));
  EXPECT_EQ(RelativeError(a, a), 0);
  b.Set(0, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isinf(RelativeError(a, b)));
}

// The values are persisted: they may never change.
TEST(HashTest, IsStable) {
  EXPECT_EQ(HashText(StableHash("")), "c3817c016ba4ff30");
  EXPECT_EQ(HashText(StableHash("conv2d")), "b8b7fc585bbc851d");
  EXPECT_EQ(HashText(10).size(), 16u);
}

TEST(RngTest, TheSequenceIsFixedBySeed) {
  Rng a(1), b(1), c(2);
  EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(b.Next(), c.Next());
  EXPECT_EQ(Rng(0).Next(), 0xe220a8397b1dcdafull);  // SplitMix64's published first output
}

TEST(RngTest, ValuesStayInRangeAndCoverIt) {
  Rng rng(3);
  std::set<int64_t> seen;
  for (int n = 0; n < 500; ++n) {
    int64_t v = rng.Below(10);
    ASSERT_TRUE(0 <= v && v < 10);
    seen.insert(v);
    double u = rng.Uniform();
    ASSERT_TRUE(0 <= u && u < 1);
  }
  EXPECT_EQ(seen.size(), 10u);
}

TEST(ClockTest, FakeTimeMovesOnlyWhenTold) {
  FakeClock clock;
  absl::Duration start = clock.Monotonic();
  EXPECT_EQ(clock.Monotonic(), start);
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(clock.Monotonic() - start, absl::Seconds(5));
}

TEST(ClockTest, SystemTimeNeverGoesBack) {
  absl::Duration a = Clock::System().Monotonic();
  EXPECT_LE(a, Clock::System().Monotonic());
}

TEST(TemporaryDirectoryTest, GoesWithTheObjectThatHasItLast) {
  TemporaryDirectory kept;
  EXPECT_TRUE(kept.path().empty());
  std::string path;
  {
    absl::StatusOr<TemporaryDirectory> made = TemporaryDirectory::Make();
    ASSERT_TRUE(made.ok()) << made.status();
    path = made->path();
    std::ofstream(path + "/file") << "text";
    kept = *std::move(made);
  }
  EXPECT_TRUE(std::filesystem::exists(path + "/file"));
  kept = TemporaryDirectory();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TextTest, WhatIsUtf8) {
  for (const char* text :
       {"", "plain ASCII, more than eight bytes", "für", "\u20ac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(IsUtf8(text)) << text;
  for (const char* text : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "eight and then \xe2\x82", "\xc3("})
    EXPECT_FALSE(IsUtf8(text)) << text;
}

TEST(TextTest, CutsBetweenCharacters) {
  EXPECT_EQ(CutUtf8("abc", 3), "abc");
  EXPECT_EQ(CutUtf8("abc", 2), "ab");
  EXPECT_EQ(CutUtf8("f\xc3\xbcr", 2), "f");
  EXPECT_EQ(CutUtf8("f\xc3\xbcr", 3), "f\xc3\xbc");
  EXPECT_EQ(CutUtf8("\xf0\x9f\x98\x80", 3), "");
}

TEST(TextTest, ControlCharactersAndBrokenOnesAreReplacedOrShown) {
  EXPECT_TRUE(HasControls("a\tb"));
  EXPECT_TRUE(HasControls("a\xc2\x9b"));  // CSI in one character
  EXPECT_FALSE(HasControls("f\xc3\xbcr \xc2\xa0"));
  EXPECT_FALSE(HasControls("\xff\x9f")) << "no characters";
  for (const char* hidden :
       {"a\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\u2028", "\u00ad", "\ufeff", "\U000e0041"})
    EXPECT_TRUE(HasControls(hidden)) << Escaped(hidden);
  for (const char* shown : {"\u200d", "\u200c", "\u2027", "\u202f", "\u2070", "\u4e2d", "\U0001f600", "\u05d0"})
    EXPECT_FALSE(HasControls(shown)) << shown;
  EXPECT_EQ(ToUtf8("f\xc3\xbcr\n\xff\xe2\x82"), "f\xc3\xbcr\n???");
  EXPECT_EQ(Escaped("f\xc3\xbcr\n\x1b[2J\xff"), "f\xc3\xbcr\\x0a\\x1b[2J\\xff");
  EXPECT_EQ(Escaped("evil\u202egnp.exe"), "evil\\xe2\\x80\\xaegnp.exe");
}

}  // namespace
}  // namespace temper
