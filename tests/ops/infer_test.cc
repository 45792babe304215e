// Type rules: shapes that come out, and what is refused with which words.
#include "gmock/gmock.h"
#include "compiler/ops/families/infer_util.h"
#include "ops_testing.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

TensorType F(Shape shape) { return {DType::kF32, std::move(shape), {}}; }
TensorType Of(DType dtype, Shape shape) { return {dtype, std::move(shape), {}}; }

struct Good {
  const char* op;
  const char* attrs;
  std::vector<TensorType> inputs;
  TensorType result;
};

TEST(Infer, Shapes) {
  const Good cases[] = {
      {"relu", "", {F({})}, F({})},
      {"add", "", {F({2, 1, 4}), F({3, 1})}, F({2, 3, 4})},
      {"equal", "", {Of(DType::kI64, {3}), Of(DType::kI64, {})}, Of(DType::kBool, {3})},
      {"where", "", {Of(DType::kBool, {2, 1}), F({3}), F({1, 1, 1})}, F({1, 2, 3})},
      {"cast", "to='i64'", {F({2})}, Of(DType::kI64, {2})},
      {"pow", "", {F({2}), Of(DType::kI64, {})}, F({2})},
      {"conv2d", "strides=[2,2] pads=[3,3,3,3]", {F({1, 3, 224, 224}), F({64, 3, 7, 7})}, F({1, 64, 112, 112})},
      {"conv2d", "group=32 pads=[0,1,2,3] dilations=[2,1]", {F({2, 32, 8, 8}), F({64, 1, 3, 3})}, F({2, 64, 6, 10})},
      {"conv_transpose2d",
       "strides=[2,2] pads=[1,1,1,1] output_padding=[1,0]",
       {F({1, 8, 5, 5}), F({8, 4, 3, 3})},
       F({1, 4, 10, 9})},
      {"matmul", "", {F({2, 1, 3, 4}), F({5, 4, 6})}, F({2, 5, 3, 6})},
      {"matmul", "trans_a=1 trans_b=1", {F({4, 3}), F({6, 4})}, F({3, 6})},
      {"matmul_nbits", "zero=8", {F({2, 3, 8}), Of(DType::kU8, {4, 5}), F({2, 5})}, F({2, 3, 5})},
      {"matmul_nbits", "", {F({3, 8}), Of(DType::kU8, {8, 5}), F({1, 5}), F({1, 5})}, F({3, 5})},
      {"matmul_nbits_i8",
       "zero=8",
       {Of(DType::kI8, {2, 3, 8}), Of(DType::kU8, {4, 5}), F({2, 5}), F({2, 3, 2})},
       F({2, 3, 5})},
      {"max_pool2d", "kernel=[3,3] strides=[2,2] pads=[1,1,1,1]", {F({1, 64, 112, 112})}, F({1, 64, 56, 56})},
      {"max_pool2d", "kernel=[3,3] strides=[2,2] ceil_mode=1", {F({1, 64, 54, 54})}, F({1, 64, 27, 27})},
      {"max_pool2d", "kernel=[2,2] strides=[3,3] ceil_mode=1 pads=[0,0,1,1]", {F({1, 1, 6, 6})}, F({1, 1, 2, 2})},
      {"reduce_mean", "axes=[2,-1] keepdims=0", {F({1, 8, 7, 7})}, F({1, 8})},
      {"reduce_sum", "", {F({2, 3})}, F({1, 1})},
      {"arg_max", "axis=-1 keepdims=0", {F({2, 5})}, Of(DType::kI64, {2})},
      {"layer_norm", "axis=1", {F({2, 3, 4}), F({3, 4}), F({4})}, F({2, 3, 4})},
      {"reshape", "shape=[2,-1]", {F({2, 3, 4})}, F({2, 12})},
      {"reshape", "shape=[0,0]", {F({5, 0})}, F({0, 0})},
      {"reshape", "shape=[1,2,0,3]", {F({2, 0, 3})}, F({1, 2, 0, 3})},
      {"reshape", "shape=[]", {F({1, 1})}, F({})},
      {"transpose", "perm=[2,0,1]", {F({2, 3, 4})}, F({4, 2, 3})},
      {"concat", "axis=-1", {F({2, 3}), F({2, 1}), F({2, 4})}, F({2, 8})},
      {"slice", "starts=[-1] ends=[-9223372036854775807] axes=[1] steps=[-2]", {F({2, 5})}, F({2, 3})},
      {"slice", "starts=[1] ends=[9223372036854775807]", {F({4, 5})}, F({3, 5})},
      {"pad", "pads=[0,-1,2,3]", {F({2, 5})}, F({4, 7})},
      {"gather", "axis=1", {F({2, 7, 3}), Of(DType::kI64, {4, 5})}, F({2, 4, 5, 3})},
      {"gather", "", {F({7, 3}), Of(DType::kI64, {})}, F({3})},
      {"gather_elements", "axis=1", {F({2, 7, 3}), Of(DType::kI64, {1, 9, 3})}, F({1, 9, 3})},
      {"expand", "shape=[2,1,4]", {F({3, 1})}, F({2, 3, 4})},
      {"tile", "repeats=[2,3]", {F({2, 2})}, F({4, 6})},
      {"resize", "sizes=[1,2,8,6]", {F({1, 2, 4, 3})}, F({1, 2, 8, 6})},
      {"depth_to_space", "blocksize=2", {F({1, 8, 2, 3})}, F({1, 2, 4, 6})},
      {"depth_to_space", "blocksize=1 width=4", {F({1, 8, 2, 3})}, F({1, 2, 2, 12})},
      {"unfold_planes", "depth=5 taps=3 stride=2 pads=[1,1]", {F({10, 8, 2, 3})}, F({6, 24, 2, 3})},
      {"unfold_planes", "depth=5 taps=2 pads=[-1,-2]", {F({5, 8, 2, 3})}, F({1, 16, 2, 3})},
      {"unfold_planes", "depth=5 taps=3", {F({0, 8, 2, 3})}, F({0, 24, 2, 3})},
      {"top_k", "k=3", {F({2, 5})}, Of(DType::kI32, {2, 3})},
      {"non_max_suppression", "k=3", {F({2, 4, 9}), F({2, 5, 9}), F({1}), F({1})}, Of(DType::kI32, {2, 5, 3})},
      {"cum_sum", "axis=-1 reverse=1", {F({2, 5})}, F({2, 5})},
      {"compact", "axis=-1", {F({2, 7, 3}), Of(DType::kI64, {})}, F({2, 7, 3})},
      {"scatter", "axis=1", {F({2, 7, 3}), Of(DType::kI64, {2, 4}), F({2, 4, 3})}, F({2, 7, 3})},
      {"scatter_reduce", "reduction='largest'", {F({7}), Of(DType::kI32, {9}), F({9})}, F({7})},
  };
  for (const Good& c : cases) {
    absl::StatusOr<TensorType> type = InferOp(c.op, *ParseAttrs(c.attrs), c.inputs);
    ASSERT_TRUE(type.ok()) << c.op << " " << c.attrs << ": " << type.status();
    EXPECT_EQ(*type, c.result) << c.op << " " << c.attrs << ": " << Text(*type);
  }
}

struct Bad {
  const char* op;
  const char* attrs;
  std::vector<TensorType> inputs;
  const char* reason;
};

TEST(Infer, WhatIsWrongIsNamed) {
  const Bad cases[] = {
      {"relu", "", {}, "relu: takes 1 to 1 operands, got 0"},
      {"relu", "", {Of(DType::kBool, {2})}, "takes numbers"},
      {"exp", "", {Of(DType::kI64, {2})}, "takes floats"},
      {"not", "", {F({2})}, "takes booleans"},
      {"clip", "min='a'", {F({2})}, "attribute 'min' is of the wrong kind"},
      {"clip", "minimum=1.0", {F({2})}, "has no attribute 'minimum'"},
      {"gelu", "approximate='fast'", {F({2})}, "approximate is"},
      {"cast", "", {F({2})}, "unknown dtype"},
      {"add", "", {F({2, 3}), F({4})}, "shapes 2x3 and 4 do not broadcast"},
      {"add", "", {F({2}), Of(DType::kI64, {2})}, "operands are of one dtype"},
      {"less", "", {Of(DType::kBool, {2}), Of(DType::kBool, {2})}, "takes numbers"},
      {"and", "", {F({2}), F({2})}, "takes booleans"},
      {"mod", "", {F({2}), F({2})}, "needs fmod=1"},
      {"prelu", "", {F({2}), F({3, 2})}, "slope broadcasts to x"},
      {"where", "", {F({2}), F({2}), F({2})}, "the condition is boolean"},
      {"conv2d", "", {F({1, 3, 4}), F({8, 3, 1, 1})}, "rank 4"},
      {"conv2d", "", {F({1, 3, 4, 4}), F({8, 4, 1, 1})}, "input has 3 channels, weight takes 4 in 1 groups"},
      {"conv2d", "group=2", {F({1, 4, 4, 4}), F({3, 2, 1, 1})}, "group divides the output channels"},
      {"conv2d", "group=0", {F({1, 4, 4, 4}), F({3, 2, 1, 1})}, "group is at least 1"},
      {"conv2d", "strides=[0,1]", {F({1, 3, 4, 4}), F({8, 3, 1, 1})}, "at least 1"},
      {"conv2d", "strides=[1]", {F({1, 3, 4, 4}), F({8, 3, 1, 1})}, "two elements"},
      {"conv2d", "pads=[1,1]", {F({1, 3, 4, 4}), F({8, 3, 1, 1})}, "[top,left,bottom,right]"},
      {"conv2d", "pads=[-1,0,0,0]", {F({1, 3, 4, 4}), F({8, 3, 1, 1})}, "not negative"},
      {"conv2d", "", {F({1, 3, 4, 4}), F({8, 3, 5, 5})}, "larger than the padded input"},
      {"conv_transpose2d", "", {F({1, 3, 4, 4}), F({8, 3, 5, 5})}, "input has 3 channels, weight takes 8"},
      {"conv_transpose2d", "output_padding=[1,1]", {F({1, 8, 4, 4}), F({8, 3, 3, 3})}, "below stride"},
      {"conv_transpose2d", "pads=[9,0,9,0]", {F({1, 8, 4, 4}), F({8, 3, 3, 3})}, "no output"},
      {"matmul", "", {F({2}), F({2, 2})}, "rank 2 or more"},
      {"matmul", "", {F({2, 3}), F({4, 2})}, "inner dimensions 3 and 4 differ"},
      {"matmul", "", {F({2, 2, 3}), F({3, 3, 2})}, "do not broadcast"},
      {"matmul_nbits", "", {F({3, 8}), F({8, 5}), F({1, 5})}, "numbers are u8"},
      {"matmul_nbits", "", {Of(DType::kF16, {3, 8}), Of(DType::kU8, {8, 5}), F({1, 5})}, "the left operand is f32"},
      {"matmul_nbits", "", {F({3, 8}), Of(DType::kU8, {8, 5}), Of(DType::kF16, {1, 5})}, "scales and offsets are f32"},
      {"matmul_nbits_i8", "", {F({3, 8}), Of(DType::kU8, {8, 5}), F({1, 5}), F({3, 1})}, "the left operand is i8"},
      {"matmul_nbits_i8",
       "",
       {Of(DType::kI8, {3, 8}), Of(DType::kU8, {8, 5}), F({2, 5}), F({3, 1})},
       "each row of the left operand has a scale of f32 for each of its blocks"},
      {"matmul_nbits_i8",
       "",
       {Of(DType::kI8, {3, 8}), Of(DType::kU8, {8, 5}), F({1, 5}), Of(DType::kF16, {3, 1})},
       "each row of the left operand has a scale"},
      {"matmul_nbits", "", {F({8}), Of(DType::kU8, {8, 5}), F({1, 5})}, "rank 2 or more"},
      {"matmul_nbits", "", {F({3, 8}), Of(DType::kU8, {3, 5}), F({1, 5})}, "inner dimensions 8 and 3 do not fit"},
      {"matmul_nbits", "", {F({3, 9}), Of(DType::kU8, {4, 5}), F({1, 5})}, "inner dimensions 9 and 4 do not fit"},
      {"matmul_nbits", "", {F({3, 8}), Of(DType::kU8, {4, 5}), F({3, 5})}, "equally long"},
      {"matmul_nbits", "", {F({3, 8}), Of(DType::kU8, {4, 5}), F({0, 5})}, "equally long"},
      {"matmul_nbits", "", {F({3, 8}), Of(DType::kU8, {4, 5}), F({2, 4})}, "equally long"},
      {"matmul_nbits", "", {F({3, 8}), Of(DType::kU8, {4, 5}), F({2, 5}), F({1, 5})}, "as many offsets as scales"},
      {"matmul_nbits", "zero=8", {F({3, 8}), Of(DType::kU8, {4, 5}), F({2, 5}), F({2, 5})}, "or a zero point"},
      {"max_pool2d", "", {F({1, 1, 4, 4})}, "kernel has two elements"},
      {"max_pool2d", "kernel=[2,2] pads=[2,0,0,0]", {F({1, 1, 4, 4})}, "pads are smaller than the kernel"},
      {"avg_pool2d", "kernel=[2,2]", {Of(DType::kI64, {1, 1, 4, 4})}, "takes floats"},
      {"reduce_sum", "axes=[2]", {F({2, 2})}, "axis 2 is outside rank 2"},
      {"reduce_sum", "axes=[0,-2]", {F({2, 2})}, "an axis is given twice"},
      {"arg_max", "axis=2", {F({2, 2})}, "axis 2 is outside rank 2"},
      {"arg_max", "", {F({})}, "axis 0 is outside rank 0"},
      {"arg_min", "axis=1", {F({2, 0})}, "the axis has no elements"},
      {"arg_min", "", {Of(DType::kBool, {2})}, "takes numbers"},
      {"softmax", "axis=-3", {F({2, 2})}, "axis -3 is outside rank 2"},
      {"layer_norm", "", {F({2, 3}), F({2})}, "do not broadcast"},
      {"layer_norm", "", {F({3}), F({2, 3})}, "scale and bias broadcast to x"},
      {"batch_norm", "", {F({2, 3, 4}), F({3}), F({3}), F({3}), F({4})}, "one value per channel"},
      {"reshape", "shape=[4]", {F({2, 3})}, "does not fit 2x3"},
      {"reshape", "shape=[-1,-1]", {F({2, 3})}, "two open dimensions"},
      {"reshape", "shape=[-1,4]", {F({2, 3})}, "does not fit"},
      {"transpose", "perm=[0,0]", {F({2, 3})}, "no permutation"},
      {"transpose", "perm=[2,0]", {F({2, 3})}, "no permutation"},
      {"transpose", "perm=[1,0]", {F({})}, "no permutation"},
      {"transpose", "", {F({2, 3})}, "no permutation"},
      {"concat", "axis=0", {F({2, 3}), F({2, 4})}, "differ in more than the axis"},
      {"slice", "starts=[0] ends=[1] steps=[0]", {F({2})}, "a step is 0"},
      {"slice", "starts=[0,1] ends=[1]", {F({2})}, "of one length"},
      {"pad", "pads=[1]", {F({2})}, "two elements an axis"},
      {"pad", "pads=[2,0] mode='reflect'", {F({2})}, "reflect pads less"},
      {"pad", "pads=[0,0] mode='wrap'", {F({2})}, "mode is"},
      {"pad", "pads=[-2,-2]", {F({2})}, "out of range"},
      {"gather", "", {F({2}), F({2})}, "indices are i64 or i32"},
      {"gather_elements", "", {F({2}), F({2})}, "indices are i64 or i32"},
      {"gather_elements", "", {F({2, 2}), Of(DType::kI64, {2})}, "as many axes"},
      {"gather_elements", "", {F({2, 2}), Of(DType::kI64, {5, 3})}, "beyond the tensor"},
      {"expand", "shape=[3]", {F({2})}, "do not broadcast"},
      {"tile", "repeats=[1]", {F({2, 2})}, "one element an axis"},
      {"resize", "sizes=[2]", {F({2, 2})}, "one element an axis"},
      {"resize", "sizes=[2] mode='cubic'", {F({2})}, "mode is"},
      {"depth_to_space", "blocksize=3", {F({1, 8, 2, 2})}, "divide the channels"},
      {"unfold_planes", "depth=3", {F({4, 8, 2, 2})}, "depth divides the planes"},
      {"unfold_planes", "depth=2 group=3", {F({4, 8, 2, 2})}, "group divides the channels"},
      {"unfold_planes", "depth=2 taps=3", {F({4, 8, 2, 2})}, "larger than a padded volume"},
      {"unfold_planes", "depth=2 taps=0", {F({4, 8, 2, 2})}, "out of range"},
      {"unfold_planes", "depth=2 pads=[0,-2]", {F({4, 8, 2, 2})}, "larger than a padded volume"},
      {"unfold_planes", "depth=2 pads=[1]", {F({4, 8, 2, 2})}, "before and after"},
      {"unfold_planes", "depth=2 dilation=9223372036854775807", {F({4, 8, 2, 2})}, "out of range"},
      {"depth_to_space", "blocksize=1 width=3", {F({1, 8, 2, 2})}, "divide the channels"},
      {"depth_to_space", "blocksize=1 width=0", {F({1, 8, 2, 2})}, "divide the channels"},
      {"top_k", "k=0", {F({2, 5})}, "k is a number from 1 to 5"},
      {"non_max_suppression", "k=10", {F({2, 4, 9}), F({2, 5, 9}), F({1}), F({1})}, "from 1 to the 9 boxes"},
      {"non_max_suppression", "k=1", {F({2, 3, 9}), F({2, 5, 9}), F({1}), F({1})}, "takes boxes [images, 4, boxes]"},
      {"non_max_suppression", "k=1", {F({2, 4, 9}), F({2, 5, 8}), F({1}), F({1})}, "takes boxes [images, 4, boxes]"},
      {"non_max_suppression", "k=1", {F({2, 4, 9}), F({2, 5, 9}), F({}), F({1})}, "thresholds are f32[1]"},
      {"top_k", "k=6", {F({2, 5})}, "k is a number from 1 to 5"},
      {"top_k", "", {F({})}, "takes an axis"},
      {"top_k", "", {F({3'000'000'000})}, "an i32 does not hold"},
      {"top_k", "", {Of(DType::kBool, {2})}, "takes numbers"},
      {"compact", "", {F({2, 2}), F({})}, "the extent is one i64"},
      {"compact", "", {F({2, 2}), Of(DType::kI64, {1})}, "the extent is one i64"},
      {"compact", "", {F({2, 0}), Of(DType::kI64, {})}, "there is an element"},
      {"cum_sum", "axis=2", {F({2, 2})}, "axis 2 is outside rank 2"},
      {"cum_sum", "", {F({})}, "axis 0 is outside rank 0"},
      {"scatter", "", {F({2}), F({2}), F({2})}, "places are i64 or i32"},
      {"scatter", "", {F({2}), Of(DType::kI64, {3}), Of(DType::kI32, {3})}, "of the data's type"},
      {"scatter", "axis=1", {F({2, 3}), Of(DType::kI64, {3}), F({2, 3})}, "the data's axes before `axis`"},
      {"scatter", "", {F({2, 3}), Of(DType::kI64, {4}), F({4, 2})}, "the data's shape, but for `axis`"},
      {"scatter", "", {F({2}), Of(DType::kI64, {0}), F({0})}, "there is an update"},
      {"scatter_reduce", "", {F({2}), Of(DType::kI64, {1}), F({1})}, "reduction is"},
  };
  for (const Bad& c : cases) {
    absl::StatusOr<TensorType> type = InferOp(c.op, *ParseAttrs(c.attrs), c.inputs);
    ASSERT_FALSE(type.ok()) << c.op << " " << c.attrs;
    EXPECT_THAT(std::string(type.status().message()), HasSubstr(c.reason)) << c.op << " " << c.attrs;
    EXPECT_EQ(type.status().message().find(std::string(c.op) + ": "), 0u) << type.status();
  }
}

int64_t CountTapsInside(int64_t outputs, int64_t taps, int64_t stride, int64_t dilation, int64_t before,
                        int64_t image) {
  int64_t inside = 0;
  for (int64_t tap = 0; tap < taps; ++tap) {
    for (int64_t i = 0; i < outputs; ++i) {
      const int64_t pixel = i * stride + tap * dilation - before;
      inside += 0 <= pixel && pixel < image;
    }
  }
  return inside;
}

TEST(TapsInsideTest, AgreesWithCounting) {
  Rng rng(3);
  for (int i = 0; i < 20'000; ++i) {
    const int64_t n[] = {1 + rng.Below(12), 1 + rng.Below(9), 1 + rng.Below(5),
                         1 + rng.Below(5),  rng.Below(20),    1 + rng.Below(40)};
    ASSERT_EQ(ops::TapsInside(n[0], n[1], n[2], n[3], n[4], n[5]), CountTapsInside(n[0], n[1], n[2], n[3], n[4], n[5]))
        << n[0] << " " << n[1] << " " << n[2] << " " << n[3] << " " << n[4] << " " << n[5];
  }
}

TEST(TapsInsideTest, OfTheLargestWindows) {
  constexpr int64_t kImage = int64_t{1} << 36, kTaps = 1 << 20;
  EXPECT_EQ(ops::TapsInside(kImage - kTaps + 1, kTaps, 1, 1, 0, kImage), (kImage - kTaps + 1) * kTaps);
  EXPECT_EQ(ops::TapsInside(1, kTaps, 1, 1, 0, kImage), kTaps);
  EXPECT_EQ(ops::TapsInside(1, kTaps, 1, kTaps, kTaps, kImage), (kImage + kTaps - 1) / kTaps);
}

TEST(Infer, ContractionsGiveTheirOperandsTypeOrThatOfTheirSums) {
  const auto matmul = [](DType dtype, const Attrs& attrs) {
    return InferOp("matmul", attrs, {{dtype, {2, 3}, {}}, {dtype, {3, 4}, {}}});
  };
  const auto result = [](const char* name) { return MakeAttrs({{"result", std::string(name)}}); };
  EXPECT_EQ(matmul(DType::kI8, {})->dtype, DType::kI8);
  EXPECT_EQ(matmul(DType::kI8, result("i32"))->dtype, DType::kI32);
  EXPECT_EQ(matmul(DType::kBF16, result("f32"))->dtype, DType::kF32);
  EXPECT_THAT(matmul(DType::kI8, result("f32")).status().ToString(), testing::HasSubstr("sums of i8 are i32, not f32"));
  EXPECT_THAT(matmul(DType::kF8E8M0, {}).status().ToString(), testing::HasSubstr("f8e8m0 has no arithmetic"));
}

TEST(Infer, CastsTakeAModeWhereTheTypeHasOne) {
  const auto cast = [](const char* to, std::vector<std::pair<std::string, AttrValue>> attrs) {
    attrs.emplace_back("to", std::string(to));
    return InferOp("cast", MakeAttrs(attrs), {{DType::kF32, {2}, {}}});
  };
  EXPECT_EQ(cast("f8e4m3fn", {{"saturate", int64_t{1}}})->dtype, DType::kF8E4M3FN);
  EXPECT_EQ(cast("f8e8m0", {{"rounding", std::string("up")}})->dtype, DType::kF8E8M0);
  EXPECT_FALSE(cast("f16", {{"saturate", int64_t{1}}}).ok());
  EXPECT_FALSE(cast("f8e5m2", {{"rounding", std::string("up")}}).ok());
  EXPECT_FALSE(cast("f8e8m0", {{"rounding", std::string("sideways")}}).ok());
}

}  // namespace
}  // namespace temper
