// Products of integers: which of them are multiplied as what, and that answers stay.
#include <gmock/gmock.h>

#include <limits>

#include "compiler/graph/passes/rewriter.h"
#include "tests/graph/integers_pass.h"

namespace temper {
namespace {

using testing::Builder;
using testing::CountOps;
using testing::Numbers;

constexpr const char *kCpu = "llvm:haswell", *kGpu = "opencl";

class IntegerProducts : public testing::IntegersPass {
 protected:
  ValueId Weights(Shape shape) { return b.Constant(b.Integers(DType::kI8, std::move(shape), -128, 127)); }
  ValueId Product(ValueId x, ValueId w, Attrs attrs = {}) {
    attrs.Set("result", std::string("i32"));
    const std::string op = b.g.values[x].type.shape.size() == 4 ? "conv2d" : "matmul";
    return b.Call(op, {x, w}, std::move(attrs));
  }
  ValueId Activations(Shape shape) {
    return Dequantised(b.Input(std::move(shape), DType::kU8), Numbers(DType::kU8, {}, {117}),
                       testing::Floats({}, {0.03}));
  }

  // Inputs are of all their type's numbers.
  void Run(const char* target, double tolerance) {
    std::vector<NDArray> inputs;
    for (const ValueId v : b.g.inputs) {
      const DType dtype = b.g.values[v].type.dtype;
      inputs.push_back(b.Integers(dtype, b.g.values[v].type.shape, Lowest(dtype), Largest(dtype)));
    }
    RunOn(inputs, target, tolerance);
  }
  // Products whose first operand is of the type, or the other one.
  int Of(DType dtype, size_t operand = 0) const {
    return static_cast<int>(std::ranges::count_if(b.g.nodes, [&](const Node& n) {
      return FindOp(n.op)->types == OpTypes::kContracts && b.g.values[n.inputs[operand]].type.dtype == dtype;
    }));
  }
};

TEST_F(IntegerProducts, StayWhereATemplateMultipliesThem) {
  b.Output(Product(Cast(b.Input({5, 300}, DType::kU8), DType::kI16), Cast(Weights({300, 7}), DType::kI16)));
  Run(kCpu, 0);
  EXPECT_EQ(Of(DType::kI16), 1);
}

TEST_F(IntegerProducts, OfPairsKeepConstantsThatAreBytes) {
  const auto x = [&] { return Cast(b.Input({5, 40}, DType::kU8), DType::kI16); };
  b.Output(Product(x(), Cast(Weights({40, 7}), DType::kI16)));
  b.Output(Product(x(), b.Constant(b.Integers(DType::kI16, {40, 7}, -128, 127))));
  b.Output(Product(x(), b.Constant(b.Integers(DType::kI16, {40, 7}, -129, -129))));
  b.Output(Product(x(), Cast(b.Input({40, 7}, DType::kI8), DType::kI16)));  // it is packed in each run
  Run(kCpu, 0);
  EXPECT_EQ(Of(DType::kI8, 1), 2);
  EXPECT_EQ(Of(DType::kI16, 1), 2);
}

TEST_F(IntegerProducts, ArePartsOfFloatsThatAreExactWhereNoneDoes) {
  const ValueId x =
      b.Call("sub", {Cast(b.Input({5, 2000}, DType::kU8), DType::kI16), b.Constant(Numbers(DType::kI16, {}, {100}))});
  b.Output(Product(x, Cast(Weights({2000, 7}), DType::kI16)));
  Run(kGpu, 0);
  EXPECT_EQ(Of(DType::kI16), 0);
  // Of 2^24 / (155 * 64 on average) steps each, the weights' own sums being known.
  EXPECT_EQ(Of(DType::kF32), 2);
}

TEST_F(IntegerProducts, OfWeightsThatAreNotKnownAreMoreParts) {
  b.Output(
      Product(Cast(b.Input({5, 1100}, DType::kU8), DType::kI16), Cast(b.Input({1100, 7}, DType::kI8), DType::kI16)));
  Run(kGpu, 0);
  EXPECT_EQ(Of(DType::kF32), 3);  // 2^24 / (255 * 128) are 514
}

TEST_F(IntegerProducts, ThatF32DoesNotHoldStay) {
  b.Output(Product(b.Input({5, 40}, DType::kI16), b.Input({40, 7}, DType::kI16)));
  Run(kGpu, 0);
  EXPECT_EQ(Of(DType::kI16), 1);
}

TEST_F(IntegerProducts, OfFewChannelsAreFloatsByTheDirectAlgorithm) {
  b.Output(Product(Cast(b.Input({1, 3, 9, 9}, DType::kU8), DType::kI16), Cast(Weights({8, 3, 3, 3}), DType::kI16)));
  Run(kCpu, 0);
  ASSERT_EQ(Of(DType::kF32), 1);
  for (const Node& n : b.g.nodes) EXPECT_EQ(n.op == "conv2d" ? n.attrs.Int("winograd", 1) : 0, 0);
}

TEST_F(IntegerProducts, ChannelsInGroupsAreNotCut) {
  b.Output(
      Product(Cast(b.Input({1, 12, 9, 9}, DType::kU8), DType::kI16), Cast(Weights({12, 6, 31, 31}), DType::kI16), [] {
        Attrs attrs = Builder::Ints("pads", {15, 15, 15, 15});
        attrs.Set("group", int64_t{2});
        return attrs;
      }()));
  Run(kCpu, 0);
  EXPECT_EQ(Of(DType::kI16), 1);
}

TEST_F(IntegerProducts, OfWhatWasQuantisedAreScaled) {
  NDArray scales = testing::RandomArray(b.rng, {40, 1, 1, 1}, 0.01, 0.02);
  const ValueId conv =
      b.Call("conv2d",
             {Activations({1, 16, 9, 9}),
              Dequantised(Weights({40, 16, 3, 3}), b.Integers(DType::kI8, {40, 1, 1, 1}, -5, 5), scales)},
             Builder::Ints("strides", {2, 2}));
  b.Output(b.Call("relu", {conv}));
  b.Output(b.Call("matmul",
                  {Activations({2, 5, 33}),
                   Dequantised(Weights({21, 33}), NDArray(), testing::RandomArray(b.rng, {21, 1}, 0.1, 0.2))},
                  Builder::Int("trans_b", 1)));
  b.Output(b.Call("matmul", {Activations({5, 33}), Dequantised(Weights({33, 21}), Numbers(DType::kI8, {}, {3}),
                                                               testing::RandomArray(b.rng, {21}, 0.1, 0.2))}));
  Run(kCpu, 1e-5);
  EXPECT_EQ(Of(DType::kI16), 3);
  EXPECT_EQ(Of(DType::kF32), 0);
}

TEST_F(IntegerProducts, OfWhatWasQuantisedStayFloatsWhereThoseAreFaster) {
  const auto weights = [&](Shape shape) {
    return Dequantised(Weights(std::move(shape)), NDArray(), testing::Floats({}, {0.1}));
  };
  b.Output(b.Conv(Activations({1, 16, 9, 9}), weights({16, 16, 3, 3}), 1));  // Winograd's
  b.Output(b.Conv(Activations({1, 16, 9, 9}), weights({16, 1, 3, 3}), 1, 16));
  b.Output(b.Conv(Activations({1, 16, 3, 3}), weights({16, 16, 3, 3}), 1));  // of too few pixels for it
  Graph again = b.g;
  Run(kCpu, 1e-5);
  EXPECT_EQ(Of(DType::kF32), 2);
  EXPECT_EQ(Of(DType::kI16), 1);
  std::swap(b.g, again);
  Run("llvm:znver4", 1e-5);
  EXPECT_EQ(Of(DType::kF32), 1) << "where bytes are multiplied, Winograd's algorithm is slower";
}

TEST_F(IntegerProducts, OfScalesThatDifferAlongTheSumStayFloats) {
  const NDArray each = testing::RandomArray(b.rng, {33}, 0.1, 0.2),
                rows = testing::RandomArray(b.rng, {33, 1}, 0.1, 0.2);
  const NDArray one = testing::Floats({}, {0.1});
  const auto input = [&] { return b.Input({5, 33}, DType::kU8); };
  b.Output(b.Call("matmul", {Dequantised(input(), NDArray(), each), Dequantised(Weights({33, 21}), NDArray(), one)}));
  b.Output(b.Call("matmul", {Activations({5, 33}), Dequantised(Weights({33, 21}), NDArray(), rows)}));
  b.Output(b.Call("matmul", {Dequantised(input(), b.Integers(DType::kU8, {33}, 0, 255), one),
                             Dequantised(Weights({33, 21}), NDArray(), one)}));
  Run(kCpu, 0);
  EXPECT_EQ(Of(DType::kF32), 3);
}

TEST_F(IntegerProducts, OfBytesAreThoseLessWhatTheZeroPointsAddWhereFourAreMultipliedAtOnce) {
  const auto i16 = [&](ValueId v) { return Cast(v, DType::kI16); };
  const auto less = [&](ValueId v, ValueId zero) { return b.Call("sub", {i16(v), i16(zero)}); };
  const ValueId x = b.Input({5, 33}, DType::kU8), zero = b.Input({}, DType::kU8), each = b.Input({5, 1}, DType::kI8);
  b.Output(Product(i16(x), i16(Weights({33, 21}))));
  b.Output(Product(less(x, zero), i16(Weights({21, 33})), Builder::Int("trans_b", 1)));
  b.Output(Product(less(b.Input({5, 33}, DType::kI8), each), i16(Weights({33, 21}))));
  b.Output(Product(i16(b.Input({2, 5, 7}, DType::kI8)), i16(Weights({2, 7, 3}))));
  // Weights of u8 whose zero point makes them numbers of i8.
  const ValueId unsigned_weights = b.Constant(b.Integers(DType::kU8, {33, 9}, 0, 255));
  b.Output(Product(i16(x), less(unsigned_weights, b.Constant(Numbers(DType::kU8, {}, {128})))));
  b.Output(
      Product(less(b.Input({2, 16, 5, 5}, DType::kI8), zero), i16(Weights({12, 8, 1, 3})), Builder::Int("group", 2)));
  Run("llvm:znver4", 0);
  EXPECT_EQ(Of(DType::kU8), 6);
  EXPECT_EQ(Of(DType::kI16), 0);
}

TEST_F(IntegerProducts, OfBytesArePaddedWithTheZeroPoint) {
  const auto padded = [&](DType dtype, std::vector<double> zero) {
    ValueId x = Cast(b.Input({1, 8, 5, 6}, dtype), DType::kI16);
    if (!zero.empty()) x = b.Call("sub", {x, b.Constant(Numbers(DType::kI16, {}, zero))});
    b.Output(Product(x, Cast(Weights({12, 8, 3, 3}), DType::kI16), Builder::Ints("pads", {1, 0, 2, 1})));
  };
  padded(DType::kU8, {});
  padded(DType::kU8, {0});
  padded(DType::kU8, {17});
  padded(DType::kI8, {});
  padded(DType::kI8, {-9});
  padded(DType::kI8, {-128});
  Run("llvm:znver4", 0);
  EXPECT_EQ(Of(DType::kU8), 6);
  EXPECT_EQ(CountOps(b.g, "pad"), 3);
}

TEST_F(IntegerProducts, OfUnknownPaddingOrWeightsBeyondI8AreNoneOfBytes) {
  const auto i16 = [&](ValueId v) { return Cast(v, DType::kI16); };
  const ValueId x = b.Call("sub", {i16(b.Input({1, 16, 5, 5}, DType::kU8)), i16(b.Input({}, DType::kU8))});
  b.Output(Product(x, i16(Weights({12, 16, 3, 3})), Builder::Ints("pads", {1, 1, 1, 1})));
  b.Output(Product(i16(b.Input({5, 33}, DType::kU8)), i16(b.Constant(b.Integers(DType::kU8, {33, 21}, 0, 255)))));
  b.Output(Product(i16(b.Input({5, 33}, DType::kU8)), i16(b.Input({33, 21}, DType::kI8))));
  Run("llvm:znver4", 0);
  EXPECT_EQ(Of(DType::kI16), 3);
}

TEST_F(IntegerProducts, OfWhatWasQuantisedStayFloatsWhereIntegersMightWrap) {
  const auto weights = [&](Shape shape) {
    return Dequantised(Weights(std::move(shape)), NDArray(), testing::Floats({}, {0.1}));
  };
  b.Output(b.Call("matmul", {Activations({1, 33025}), weights({33025, 2})}));
  b.Output(b.Call("matmul", {Activations({1, 33026}), weights({33026, 2})}));
  Run(kCpu, 1e-5);
  EXPECT_EQ(Of(DType::kI16), 1);
  EXPECT_EQ(CountOps(b.g, "matmul_nbits"), 1);
}

TEST_F(IntegerProducts, OfFewChannelsAreFloatsAlsoWhereBytesAreMultiplied) {
  const auto i16 = [&](ValueId v) { return Cast(v, DType::kI16); };
  b.Output(Product(i16(b.Input({1, 16, 5, 5}, DType::kU8)), i16(Weights({16, 1, 3, 3})), Builder::Int("group", 16)));
  b.Output(Product(i16(b.Input({1, 3, 5, 5}, DType::kU8)), i16(Weights({16, 3, 3, 1}))));
  b.Output(
      Product(i16(b.Input({1, 3, 5, 7}, DType::kU8)), i16(Weights({16, 3, 3, 3})), Builder::Ints("dilations", {1, 2})));
  Run("llvm:znver4", 0);
  EXPECT_EQ(Of(DType::kF32), 3);
}

// A network's input: four columns of the filter are multiplied at once.
TEST_F(IntegerProducts, OfFewChannelsGoAlongRows) {
  const auto conv = [&](DType dtype, std::vector<double> zero, Shape filter, std::vector<int64_t> pads) {
    ValueId x = Cast(b.Input({2, filter[1], 9, 11}, dtype), DType::kI16);
    if (!zero.empty()) x = b.Call("sub", {x, b.Constant(Numbers(DType::kI16, {}, zero))});
    Attrs attrs = Builder::Ints("pads", std::move(pads));
    attrs.Set("strides", std::vector<int64_t>{2, 2});
    b.Output(Product(x, Cast(Weights(std::move(filter)), DType::kI16), attrs));
  };
  conv(DType::kU8, {114}, {16, 3, 7, 7}, {3, 3, 3, 3});
  conv(DType::kU8, {}, {16, 3, 3, 3}, {1, 1, 1, 1});
  conv(DType::kI8, {-9}, {5, 1, 3, 5}, {0, 1, 2, 0});
  conv(DType::kI8, {}, {5, 4, 3, 2}, {0, 0, 0, 0});
  conv(DType::kU8, {7}, {16, 3, 4, 4}, {0, 0, 0, 0});
  Run("llvm:znver4", 0);
  EXPECT_EQ(Of(DType::kU8), 5);
  for (const Node& node : b.g.nodes) {
    if (node.op != "conv2d") continue;
    EXPECT_EQ(b.g.values[node.inputs[1]].type.shape[3] % 4, 0);
  }
}

TEST_F(IntegerProducts, OfQuantisedImagesGoAlongRows) {
  b.Output(
      b.Conv(Activations({1, 3, 9, 9}), Dequantised(Weights({16, 3, 3, 3}), NDArray(), testing::Floats({}, {0.1})), 1));
  Graph again = b.g;
  Run(kCpu, 1e-5);
  EXPECT_EQ(Of(DType::kF32), 1);
  std::swap(b.g, again);
  Run("llvm:znver4", 1e-5);
  EXPECT_EQ(Of(DType::kU8), 1);
}

TEST_F(IntegerProducts, OfTransposedConvolutionsAreThoseOfPlainOnes) {
  const auto transposed = [&](Shape weights, const NDArray& zero, NDArray scale, int64_t group = 1) {
    Attrs attrs = Builder::Ints("strides", {2, 2});
    attrs.Set("pads", std::vector<int64_t>{1, 0, 0, 1});
    attrs.Set("group", group);
    const ValueId x = Activations({2, weights[0], 5, 6});
    b.Output(b.Call("conv_transpose2d", {x, Dequantised(Weights(std::move(weights)), zero, scale)}, attrs));
  };
  transposed({16, 9, 3, 3}, NDArray(), testing::RandomArray(b.rng, {9, 1, 1}, 0.1, 0.2));
  transposed({16, 9, 2, 2}, Numbers(DType::kI8, {9, 1, 1}, std::vector<double>(9, 0)), testing::Floats({}, {0.1}));
  transposed({16, 9, 4, 3}, NDArray(), testing::Floats({}, {0.1}), 2);
  Run("llvm:znver4", 1e-5);
  EXPECT_EQ(Of(DType::kU8), 3);
  EXPECT_EQ(CountOps(b.g, "conv_transpose2d"), 0);

  b.g = Graph();
  transposed({16, 9, 3, 3}, Numbers(DType::kI8, {}, {3}), testing::Floats({}, {0.1}));
  transposed({16, 9, 3, 3}, NDArray(), testing::RandomArray(b.rng, {16, 1, 1, 1}, 0.1, 0.2));
  transposed({16, 9, 3, 3}, NDArray(), testing::RandomArray(b.rng, {9, 1, 1}, 0.1, 0.2), 2);
  Run("llvm:znver4", 1e-5);
  EXPECT_EQ(CountOps(b.g, "conv_transpose2d"), 3) << "of numbers that have a zero point, or scales along the sum";
}

TEST_F(IntegerProducts, LargestOfWhatWasQuantisedIsTheLargestNumber) {
  Attrs window = Builder::Ints("kernel", {3, 3});
  window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  const ValueId u8 = Activations({1, 4, 6, 6});
  const ValueId i8 = Dequantised(b.Input({1, 4, 6, 6}, DType::kI8), NDArray(), testing::Floats({}, {0.3}));
  // Of a negative scale the largest is the least number; and each channel may have a scale of its own.
  const ValueId negative = Dequantised(b.Input({1, 4, 6, 6}, DType::kI8), NDArray(), testing::Floats({}, {-0.3}));
  const ValueId several =
      Dequantised(b.Input({1, 2, 6, 6}, DType::kI8), NDArray(), testing::Floats({2, 1, 1}, {0.3, 0.2}));
  for (const ValueId v : {u8, i8, negative, several}) b.Output(b.Call("max_pool2d", {v}, window));
  Run(kCpu, 0);
  std::vector<DType> pooled;
  for (const Node& node : b.g.nodes) {
    if (node.op == "max_pool2d") pooled.push_back(b.g.values[node.output].type.dtype);
  }
  EXPECT_THAT(pooled, ::testing::UnorderedElementsAre(DType::kU8, DType::kI8, DType::kF32, DType::kF32));
}

// As around each operator of a model that says which values are rounded how.
class QuantisedAgain : public IntegerProducts {
 protected:
  ValueId Quantised(ValueId v, double scale, double zero, DType to = DType::kU8, double most = 255) {
    v = b.Call("round", {b.Call("div", {v, b.Scalar(scale)})});
    Attrs range;
    range.Set("min", Lowest(to));
    range.Set("max", std::min(Largest(to), most));
    return Cast(b.Call("clip", {b.Call("add", {v, b.Scalar(zero)})}, std::move(range)), to);
  }
  int Rounded() const { return CountOps(b.g, "round"); }
};

TEST_F(QuantisedAgain, NumbersAreMovedAsTheyAre) {
  const double scale = static_cast<double>(0.03F);
  const ValueId rows = Activations({6, 4}), more = Activations({2, 6});
  b.Output(Quantised(b.Call("concat", {b.Transpose(rows, {1, 0}), more}, Builder::Int("axis", 0)), scale, 117));
  const ValueId piece = b.Call("slice", {b.Transpose(rows, {1, 0})}, passes::SliceAttrs(0, 1, 3));
  b.Output(Quantised(b.Reshape(piece, {3, 4}), scale, 117));
  const ValueId largest = b.Call("max_pool2d", {Activations({1, 2, 4, 4})}, Builder::Ints("kernel", {2, 2}));
  b.Output(Quantised(largest, scale, 117));
  Run(kCpu, 0);
  EXPECT_EQ(Rounded(), 0) << Text(b.g);
  for (const Node& node : b.g.nodes) EXPECT_EQ(b.g.values[node.output].type.dtype, DType::kU8) << Text(b.g);
}

TEST_F(QuantisedAgain, OtherNumbersAreMade) {
  const double scale = static_cast<double>(0.03F);
  const ValueId rows = Activations({6, 4});
  b.Output(Quantised(rows, 2 * scale, 117));
  b.Output(Quantised(rows, scale, 118));
  b.Output(Quantised(rows, scale, 117, DType::kI8));
  b.Output(Quantised(rows, scale, 117, DType::kU8, 200));
  b.Output(Quantised(b.Call("neg", {rows}), scale, 117));
  const ValueId of_two =
      Dequantised(b.Input({6, 2}, DType::kU8), Numbers(DType::kU8, {}, {117}), testing::Floats({2}, {0.03, 0.04}));
  b.Output(Quantised(of_two, scale, 117));
  b.Output(Quantised(b.Call("concat", {rows, b.Input({6, 1})}, Builder::Int("axis", 1)), scale, 117));
  // Numbers that are so small are multiplied to none that is there.
  const double tiny = static_cast<double>(std::numeric_limits<float>::denorm_min());
  b.Output(Quantised(Dequantised(b.Input({5}, DType::kU8), NDArray(), testing::Floats({}, {tiny})), tiny, 0));
  const int before = Rounded();
  ASSERT_TRUE(passes::MultiplyIntegers(b.g, *ParseTarget(kCpu)).ok());
  EXPECT_EQ(Rounded(), before) << Text(b.g);
}

// A concatenation of itself, over and over, has more ends than a pass may look at.
TEST_F(QuantisedAgain, WhatHasManyPartsIsLeftAlone) {
  ValueId v = Activations({1, 4});
  for (int i = 0; i < 18; ++i) v = b.Call("concat", {v, v}, Builder::Int("axis", 0));
  b.Output(Quantised(v, static_cast<double>(0.03F), 117));
  ASSERT_TRUE(passes::MultiplyIntegers(b.g, *ParseTarget(kCpu)).ok());
  EXPECT_EQ(Rounded(), 1);
}

// As behind an end that only a run knows, where numbers are zero, which the zero point is.
TEST_F(IntegerProducts, OfNumbersOrZerosAreThoseOfNumbersOrTheirZeroPoint) {
  const ValueId rows = b.Input({9, 1}, DType::kBool), columns = b.Input({9}, DType::kBool);
  const auto conv = [&](double otherwise) {
    const ValueId of_rows = b.Call("where", {rows, Activations({1, 16, 9, 9}), b.Scalar(0)});
    const ValueId x = b.Call("where", {columns, of_rows, b.Scalar(otherwise)});
    b.Output(b.Call("conv2d", {x, Dequantised(Weights({40, 16, 3, 3}), NDArray(), testing::Floats({}, {0.1}))},
                    Builder::Ints("pads", {1, 1, 1, 1})));
  };
  conv(0);
  conv(0.3);
  Run("llvm:znver4", 1e-5);
  EXPECT_EQ(Of(DType::kU8), 1);
  EXPECT_EQ(Of(DType::kF32), 1);
}

TEST_F(IntegerProducts, LargestBeforeAnEndIsTheLargestNumberBeforeIt) {
  const ValueId mask = b.Input({6, 1}, DType::kBool), x = b.Input({1, 4, 6, 6}, DType::kU8);
  const ValueId extent = b.Input({}, DType::kI64);
  b.g.input_extents = {{1, 2, 2, 1}};
  b.g.hidden_inputs = 1;
  Attrs window = Builder::Ints("kernel", {3, 3}), rows = Builder::Ints("axes", {2});
  window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  rows.Set("starts", std::vector<int64_t>{0});
  rows.Set("ends", std::vector<int64_t>{4});
  rows.Set("steps", std::vector<int64_t>{1});
  const ValueId numbers = Dequantised(x, Numbers(DType::kU8, {}, {117}), testing::Floats({}, {0.3}));
  const ValueId lowest = b.Scalar(-std::numeric_limits<double>::infinity());
  // Of any other condition a window may have minus infinity alone, which is no number of 8 bits.
  for (const ValueId condition : {b.Reshape(b.IsInside(6, extent), {6, 1}), mask}) {
    const ValueId largest = b.Call("max_pool2d", {b.Call("where", {condition, numbers, lowest})}, window);
    b.Output(b.Call("slice", {largest}, rows));
  }
  RunOn({Numbers(DType::kBool, {6, 1}, {1, 1, 1, 1, 0, 0}), b.Integers(DType::kU8, {1, 4, 6, 6}, 0, 255),
         Numbers(DType::kI64, {}, {4})},
        kCpu, 0);
  std::vector<DType> pooled;
  for (const Node& node : b.g.nodes) {
    if (node.op == "max_pool2d") pooled.push_back(b.g.values[node.output].type.dtype);
  }
  EXPECT_THAT(pooled, ::testing::UnorderedElementsAre(DType::kU8, DType::kF32));
}

TEST_F(IntegerProducts, OfZeroPointsAlongTheSumAreNoneOfBytes) {
  const auto less = [&](Shape zeros) {
    const ValueId x = Cast(b.Input({5, 33}, DType::kU8), DType::kI16);
    return b.Call("sub", {x, Cast(b.Input(std::move(zeros), DType::kU8), DType::kI16)});
  };
  for (const Shape& zeros : {Shape{33}, Shape{1, 33}, Shape{5, 33}})
    b.Output(Product(less(zeros), Cast(Weights({33, 33}), DType::kI16)));
  b.Output(Product(less({5, 1}), Cast(Weights({5, 33}), DType::kI16), Builder::Int("trans_a", 1)));
  // A zero point that is no byte can not pad.
  const ValueId x =
      b.Call("sub", {Cast(b.Input({1, 8, 5, 5}, DType::kU8), DType::kI16), b.Constant(Numbers(DType::kI16, {}, {-5}))});
  b.Output(Product(x, Cast(Weights({8, 8, 3, 3}), DType::kI16), Builder::Ints("pads", {1, 1, 1, 1})));
  Run("llvm:znver4", 0);
  EXPECT_EQ(Of(DType::kI16), 5);
}

TEST_F(IntegerProducts, OfWhatWasQuantisedStayFloatsOnGpus) {
  b.Output(
      b.Call("matmul", {Activations({5, 33}), Dequantised(Weights({33, 21}), NDArray(), testing::Floats({}, {0.1}))}));
  Run(kGpu, 0);
  EXPECT_EQ(Of(DType::kF32), 1);
}

}  // namespace
}  // namespace temper
