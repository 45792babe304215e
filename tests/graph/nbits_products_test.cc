// Weights of few bits: which products keep them as they are, and that answers stay.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/graph/integers_pass.h"

namespace temper {
namespace {

using testing::Builder;
using testing::CountOps;
using testing::Evaluated;

constexpr int64_t kDepth = 256, kColumns = 512;

class NBitsProducts : public testing::IntegersPass {
 protected:
  NDArray All(DType dtype, Shape shape) { return b.Integers(dtype, std::move(shape), Lowest(dtype), Largest(dtype)); }
  NDArray Scales(Shape shape) { return testing::RandomArray(b.rng, std::move(shape), 0.01, 0.02); }
  ValueId Dequantised(NDArray q, const NDArray& zero, const NDArray& scale) {
    return IntegersPass::Dequantised(b.Constant(std::move(q)), zero, scale);
  }
  // Blocks along the rows that are summed, each with a scale and maybe a zero point: [columns, depth] as MatMulNBits
  // has them, or [depth, columns].
  ValueId Blocks(DType dtype, int64_t block, bool zeros, bool columns_first) {
    const int64_t blocks = kDepth / block;
    const Shape apart = columns_first ? Shape{kColumns, blocks, block} : Shape{blocks, block, kColumns};
    const Shape each = columns_first ? Shape{kColumns, blocks, 1} : Shape{blocks, 1, kColumns};
    const ValueId w = Dequantised(All(dtype, apart), zeros ? All(dtype, each) : NDArray(), Scales(each));
    if (!columns_first) return b.Reshape(w, {kDepth, kColumns});
    return b.Transpose(b.Reshape(w, {kColumns, kDepth}), {1, 0});
  }
  ValueId Product(ValueId w, Attrs attrs = {}) {
    return b.Call("matmul", {b.Input({2, 3, kDepth}), w}, std::move(attrs));
  }

  void Run(const char* target, double tolerance) { RunOn(testing::RandomInputs(b.g, 3), target, tolerance); }
  // Of products that keep numbers: "bytes, blocks, zero", with "-" for offsets.
  std::vector<std::string> Kept() const {
    std::vector<std::string> kept;
    for (const Node& n : b.g.nodes) {
      if (n.op != "matmul_nbits") continue;
      const std::string zero = n.inputs.size() > 3 ? "-" : std::to_string(n.attrs.Int("zero", 0));
      kept.push_back(std::to_string(b.g.values[n.inputs[1]].type.shape[0]) + ", " +
                     std::to_string(b.g.values[n.inputs[2]].type.shape[0]) + ", " + zero);
    }
    return kept;
  }
};

TEST_F(NBitsProducts, KeepNumbersInBlocks) {
  b.Output(Product(Blocks(DType::kU4, 32, false, true)));
  b.Output(Product(Blocks(DType::kI4, 16, false, false)));
  b.Output(Product(Blocks(DType::kU4, 64, true, true)));
  b.Output(Product(Blocks(DType::kI8, 128, false, false)));
  b.Output(Product(Blocks(DType::kU8, kDepth, true, true)));
  Run("llvm:haswell", 1e-5);
  EXPECT_THAT(Kept(), ::testing::ElementsAre("128, 8, 0", "128, 16, 8", "128, 4, -", "256, 2, 128", "256, 1, -"));
  EXPECT_EQ(CountOps(b.g, "matmul"), 0);
}

// As steps of a sequence are.
TEST_F(NBitsProducts, OfTheSameWeightsShareThem) {
  const ValueId w = Blocks(DType::kU8, 64, true, true);
  for (int i = 0; i < 2; ++i) b.Output(Product(w));
  Run("llvm:skylake-avx512", 1e-5);
  std::vector<std::vector<ValueId>> weights;
  for (const Node& n : b.g.nodes) {
    if (n.op == "matmul_nbits") weights.emplace_back(n.inputs.begin() + 1, n.inputs.end());
  }
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[0].size(), 3u);
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_F(NBitsProducts, KeepThoseOfWholeColumns) {
  b.Output(Product(Dequantised(All(DType::kI8, {kDepth, kColumns}), NDArray(), Scales({kColumns}))));
  b.Output(Product(Dequantised(All(DType::kI8, {kColumns, kDepth}), NDArray(), Scales({kColumns, 1})),
                   Builder::Int("trans_b", 1)));
  // Of eight bits, and all of them from -8 to 7.
  b.Output(Product(Dequantised(b.Integers(DType::kI8, {kDepth, kColumns}, -8, 7), NDArray(), Scales({}))));
  NDArray one(DType::kU8, {});
  one.Set(0, 3);
  b.Output(Product(Dequantised(b.Integers(DType::kU8, {kDepth, kColumns}, 0, 3), one, Scales({1}))));
  Run("llvm:skylake-avx512", 1e-5);
  EXPECT_THAT(Kept(), ::testing::ElementsAre("256, 1, 128", "256, 1, 128", "128, 1, 8", "128, 1, 3"));
}

TEST_F(NBitsProducts, OfNarrowFloatsAreSummedInF32) {
  b.Output(
      b.Call("matmul", {b.Input({5, kDepth}, DType::kF16), Cast(Blocks(DType::kU4, 32, false, true), DType::kF16)}));
  Run("llvm:haswell", 2e-3);
  EXPECT_THAT(Kept(), ::testing::ElementsAre("128, 8, 0"));
  EXPECT_EQ(b.g.values[b.g.outputs[0]].type.dtype, DType::kF16);
}

TEST_F(NBitsProducts, StayFloatsWhereThatIsNoLoss) {
  b.Output(Product(Blocks(DType::kU4, 8, false, true)));  // scales as large as the numbers
  // Few weights.
  b.Output(b.Call("matmul", {b.Input({5, 64}), Dequantised(All(DType::kI8, {64, 64}), NDArray(), Scales({}))}));
  // The left operand is transposed, is the weights, or both operands are.
  b.Output(b.Call("matmul", {b.Input({kDepth, 5}), Blocks(DType::kU4, 32, false, true)}, Builder::Int("trans_a", 1)));
  const ValueId w = Blocks(DType::kU4, 32, false, true);
  b.Output(b.Call("matmul", {b.Input({kColumns, kDepth}), w}));
  b.Output(b.Call("matmul", {w, b.Input({kColumns, 3})}));
  // Of doubles.
  b.Output(
      b.Call("matmul", {b.Input({5, kDepth}, DType::kF64), Cast(Blocks(DType::kU4, 32, false, true), DType::kF64)}));
  Run("llvm:haswell", 1e-5);
  EXPECT_EQ(CountOps(b.g, "matmul"), 5);
  EXPECT_EQ(CountOps(b.g, "matmul_nbits"), 1);
}

const Attrs kMayBeRounded = Builder::Int("left_bits", 8);

TEST_F(NBitsProducts, OfWhatMayBeRoundedAreOfBytesWhereThoseAreFaster) {
  b.Output(Product(Blocks(DType::kU4, 32, false, true), kMayBeRounded));
  b.Output(Product(Blocks(DType::kI4, 64, true, true), kMayBeRounded));
  b.Output(Product(Blocks(DType::kU8, 128, true, true), kMayBeRounded));
  Graph other = b.g;
  Run("llvm:haswell", 2e-2);  // which multiplies bytes by numbers of four bits
  EXPECT_EQ(CountOps(b.g, "matmul_nbits_i8"), 2);
  EXPECT_EQ(CountOps(b.g, "matmul_nbits"), 1);
  std::swap(b.g, other);
  Run("llvm:znver4", 2e-2);
  EXPECT_EQ(CountOps(b.g, "matmul_nbits_i8"), 3);
}

// Each block by its own largest magnitude, to the nearest, ties to even; zeros stay zeros.
TEST_F(NBitsProducts, BlocksAreRoundedByTheirLargest) {
  constexpr int64_t kBlock = 32;
  const ValueId x = b.Input({2, kDepth}), w = Blocks(DType::kU4, kBlock, true, true);
  b.Output(b.Call("matmul", {x, w}, kMayBeRounded));
  b.Output(w);
  NDArray rows = testing::RandomArray(b.rng, {2, kDepth}, -1, 1);
  for (int64_t i = 0; i < kBlock; ++i) rows.Set(i, 0), rows.Set(kBlock + i, 1e30 * rows.At(kBlock + i));
  const NDArray weights = Evaluated(b.g, {rows})[1];
  NDArray rounded(DType::kF32, rows.shape()), want(DType::kF32, {2, kColumns});
  for (int64_t block = 0; block < rows.size(); block += kBlock) {
    float most = 0;
    for (int64_t i = block; i < block + kBlock; ++i) most = std::max(most, std::abs(static_cast<float>(rows.At(i))));
    const float factor = most == 0 ? 0 : 127 / most;
    for (int64_t i = block; i < block + kBlock; ++i)
      rounded.Set(i, std::nearbyint(static_cast<float>(rows.At(i)) * factor) * most / 127);
  }
  for (int64_t at = 0; at < want.size(); ++at) {
    double sum = 0;
    for (int64_t k = 0; k < kDepth; ++k)
      sum += rounded.At(at / kColumns * kDepth + k) * weights.At(k * kColumns + at % kColumns);
    want.Set(at, sum);
  }
  ASSERT_TRUE(passes::MultiplyIntegers(b.g, *ParseTarget("llvm:haswell")).ok());
  ASSERT_EQ(CountOps(b.g, "matmul_nbits_i8"), 1);
  EXPECT_LT(RelativeError(Evaluated(b.g, {rows})[0], want), 1e-5);
}

TEST_F(NBitsProducts, WhatMayBeRoundedIsAProductLikeOthersWhereItIsNot) {
  b.Output(Product(Blocks(DType::kU4, 32, false, true), kMayBeRounded));
  b.Output(Product(b.Constant(All(DType::kF32, {kDepth, kColumns})), kMayBeRounded));
  Run("opencl", 0);
  for (const Node& node : b.g.nodes) {
    EXPECT_TRUE(node.op != "matmul" || node.attrs.values().empty()) << Text(b.g);
  }
}

TEST_F(NBitsProducts, StayFloatsWhereTheTargetHasNoTemplate) {
  b.Output(Product(Blocks(DType::kU4, 32, false, true)));
  Run("opencl", 0);
  EXPECT_EQ(CountOps(b.g, "matmul_nbits"), 0);
}

}  // namespace
}  // namespace temper
