// What each pass is for, on the smallest graph that shows it; that answers stay is the fuzz test's business too.
#include "compiler/graph/alias.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using testing::CountOps;
using testing::Evaluated;
using testing::ExpectClose;
using testing::RandomInputs;

// Runs one pass and checks that the answers stay.
void Apply(const std::function<absl::Status(Graph&)>& pass, Graph& g) {
  const std::vector<NDArray> inputs = RandomInputs(g, 5);
  const std::vector<NDArray> want = Evaluated(g, inputs);
  const absl::Status status = pass(g);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(Verify(g).ok()) << Verify(g) << Text(g);
  ExpectClose(Evaluated(g, inputs), want);
}

// One that goes by the target.
void Apply(absl::Status (*pass)(Graph&, const Target&), Graph& g, const Target& t = {}) {
  Apply([&](Graph& graph) { return pass(graph, t); }, g);
}

TEST(FoldConstants, ComputesWhatIsKnown) {
  Builder b;
  const ValueId x = b.Input({2, 3});
  const ValueId known = b.Call("transpose", {b.Call("exp", {b.Random({3, 2})})}, Builder::Ints("perm", {1, 0}));
  b.Output(b.Call("add", {x, known}));
  Apply(passes::FoldConstants, b.g);
  EXPECT_EQ(b.g.nodes.size(), 1u);
}

TEST(FoldConstants, LeavesLargeBroadcastsAlone) {
  Builder b;
  const ValueId wide = b.Call("expand", {b.Scalar(1)}, Builder::Ints("shape", {2048, 2048}));
  b.Output(b.Call("add", {b.Input({2048, 2048}), wide}));
  ASSERT_TRUE(passes::FoldConstants(b.g).ok());
  EXPECT_EQ(CountOps(b.g, "expand"), 1);
}

TEST(FoldConstants, WidensLargeWeights) {
  Builder b;
  Attrs to;
  to.Set("to", std::string("f64"));
  b.Output(b.Call("add", {b.Call("cast", {b.Input({1200, 1200})}, to), b.Call("cast", {b.Random({1200, 1200})}, to)}));
  ASSERT_TRUE(passes::FoldConstants(b.g).ok());
  EXPECT_EQ(CountOps(b.g, "cast"), 1);  // that of the input
}

Attrs To(const char* type) { return Builder::String("to", type); }

// x, in hundreds, as integers of `narrow` with a zero point, less which they are of `wide` again.
ValueId Quantised(Builder& b, ValueId x, double zero, double other_zero, const char* narrow, const char* wide) {
  ValueId v = b.Call("round", {b.Call("mul", {x, b.Scalar(200)})});
  if (zero != 0) v = b.Call("add", {v, b.Scalar(zero)});
  Attrs bounds;
  bounds.Set("min", -128.0);
  bounds.Set("max", 127.0);
  v = b.Call("cast", {b.Call("clip", {v}, bounds)}, To(narrow));
  v = b.Call("sub", {b.Call("cast", {v}, To("i32")), b.Constant(testing::Numbers(DType::kI32, {}, {other_zero}))});
  return b.Call("cast", {v}, To(wide));
}

TEST(Quantised, FloatsThatAreIntegersAreNotCast) {
  for (const double zero : {0.0, 3.0, -128.0}) {
    Builder b;
    b.Output(Quantised(b, b.Input({40}), zero, zero, "i8", "f32"));
    Apply(passes::Simplify, b.g);
    EXPECT_EQ(CountOps(b.g, "cast"), 0) << Text(b.g);
    EXPECT_EQ(CountOps(b.g, "sub") + CountOps(b.g, "add"), 0) << Text(b.g);
  }
}

TEST(Quantised, IntegersOfAnotherTypeAreCastOnce) {
  Builder b;
  b.Output(Quantised(b, b.Input({40}), 5, 5, "i8", "i16"));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "cast"), 1) << Text(b.g);
  EXPECT_EQ(CountOps(b.g, "sub") + CountOps(b.g, "add"), 0) << Text(b.g);
}

// Other zero points, types that do not hold the integers, and integers that others read.
TEST(Quantised, WhatWouldChangeStays) {
  Builder zeros;
  zeros.Output(Quantised(zeros, zeros.Input({40}), 5, 6, "i8", "f32"));
  Apply(passes::Simplify, zeros.g);
  EXPECT_EQ(CountOps(zeros.g, "sub"), 1) << Text(zeros.g);

  Builder narrow;
  narrow.Output(Quantised(narrow, narrow.Input({40}), 0, 0, "u8", "f32"));
  ASSERT_TRUE(passes::Simplify(narrow.g).ok());
  EXPECT_EQ(CountOps(narrow.g, "cast"), 3) << Text(narrow.g);

  Builder shared;
  Attrs bounds;
  bounds.Set("min", -128.0);
  bounds.Set("max", 127.0);
  const ValueId rounded = shared.Call("round", {shared.Call("mul", {shared.Input({40}), shared.Scalar(200)})});
  const ValueId bytes = shared.Call("cast", {shared.Call("clip", {rounded}, bounds)}, To("i8"));
  shared.Output(shared.Call("cast", {bytes}, To("f32")));
  shared.Output(shared.Call("cast", {bytes}, To("i16")));
  Apply(passes::Simplify, shared.g);
  EXPECT_EQ(CountOps(shared.g, "cast"), 3) << Text(shared.g);

  Builder fractions;  // not rounded: the cast does it
  fractions.Output(fractions.Call(
      "cast", {fractions.Call("cast", {fractions.Call("clip", {fractions.Input({40})}, bounds)}, To("i8"))},
      To("f32")));
  Apply(passes::Simplify, fractions.g);
  EXPECT_EQ(CountOps(fractions.g, "cast"), 2) << Text(fractions.g);
}

TEST(Cse, EqualCallsAreOne) {
  Builder b;
  const ValueId x = b.Input({4});
  const ValueId one = b.Call("add", {b.Call("exp", {x}), b.Scalar(2)}),
                two = b.Call("add", {b.Call("exp", {x}), b.Scalar(2)});
  b.Output(b.Call("mul", {one, two}));
  Apply(passes::EliminateCommonSubexpressions, b.g);
  EXPECT_EQ(b.g.nodes.size(), 3u);
}

TEST(Cse, AttributesTellCallsApart) {
  Builder b;
  const ValueId x = b.Input({4, 4});
  b.Output(b.Call("add",
                  {b.Call("softmax", {x}, Builder::Int("axis", 0)), b.Call("softmax", {x}, Builder::Int("axis", 1))}));
  Apply(passes::EliminateCommonSubexpressions, b.g);
  EXPECT_EQ(CountOps(b.g, "softmax"), 2);
}

TEST(Cse, OutputsKeepTheirOwnValues) {
  Builder b;
  const ValueId x = b.Input({4});
  b.Output(b.Call("exp", {x}));
  b.Output(b.Call("exp", {x}));
  Apply(passes::EliminateCommonSubexpressions, b.g);
  EXPECT_NE(b.g.outputs[0], b.g.outputs[1]);
}

TEST(Simplify, BatchNormGoesIntoTheConvolution) {
  Builder b;
  const ValueId c = b.Conv(b.Input({1, 3, 5, 5}), b.Random({4, 3, 3, 3}), 1);
  const ValueId biased = b.Call("add", {c, b.Random({4, 1, 1})});
  b.Output(b.Call(
      "relu", {b.Call("batch_norm", {biased, b.Random({4}), b.Random({4}), b.Random({4}), b.Random({4}, 0.5, 2)})}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(b.g.nodes.size(), 3u);
  EXPECT_EQ(CountOps(b.g, "conv2d") + CountOps(b.g, "add") + CountOps(b.g, "relu"), 3);
}

TEST(Simplify, BatchNormGoesIntoTransposedConvolutionAndDepthwise) {
  Builder b;
  const ValueId x = b.Input({1, 4, 5, 5});
  auto norm = [&b](ValueId v) {
    return b.Call("batch_norm", {v, b.Random({4}), b.Random({4}), b.Random({4}), b.Random({4}, 0.5, 2)});
  };
  b.Output(norm(b.Call("conv_transpose2d", {x, b.Random({4, 4, 3, 3})}, Builder::Ints("strides", {2, 2}))));
  b.Output(norm(b.Conv(x, b.Random({4, 1, 3, 3}), 1, 4)));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "mul"), 0);
  EXPECT_EQ(CountOps(b.g, "add"), 2);
}

TEST(Simplify, AFactorBeforeAProductGoesIntoItsWeight) {
  Builder b;
  const ValueId x = b.Input({1, 4, 5, 5});
  const ValueId conv = b.Conv(b.Call("mul", {b.Call("tanh", {x}), b.Random({4, 1, 1})}), b.Random({2, 4, 3, 3}), 1);
  b.Output(conv);
  const ValueId y = b.Input({3, 4});
  b.Output(b.Call("matmul", {b.Call("div", {y, b.Random({4}, 1, 2)}), b.Random({5, 4})}, Builder::Int("trans_b", 1)));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "mul") + CountOps(b.g, "div"), 0);
}

TEST(Simplify, AFactorOfAProductOfIntegersStays) {
  Builder b;
  const auto constant = [&](DType dtype, Shape shape) {
    return b.Constant(testing::RandomArray(b.rng, std::move(shape), 2, 5, dtype));
  };
  const Attrs sums = Builder::String("result", "i32");
  const ValueId product = b.Call("matmul", {b.Input({4, 8}, DType::kI16), constant(DType::kI16, {8, 3})}, sums);
  b.Output(b.Call("mul", {product, constant(DType::kI32, {})}));
  const ValueId biased =
      b.Call("add", {b.Call("matmul", {b.Input({4, 8}, DType::kU8), constant(DType::kI8, {8, 3})}, sums),
                     constant(DType::kI32, {3})});
  b.Output(b.Call("mul", {biased, constant(DType::kI32, {3})}));
  const ValueId scaled = b.Call("mul", {b.Input({4, 8}, DType::kI16), constant(DType::kI16, {})});
  b.Output(b.Call("matmul", {scaled, b.Input({8, 3}, DType::kI16)}, sums));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "mul"), 3);
}

TEST(Simplify, AFactorOfASharedProductStays) {
  Builder b;
  const ValueId c = b.Conv(b.Input({1, 3, 5, 5}), b.Random({4, 3, 1, 1}));
  b.Output(b.Call("add", {b.Call("mul", {c, b.Random({4, 1, 1})}), c}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "mul"), 1);
}

TEST(Simplify, AFactorAlongAnotherAxisStays) {
  Builder b;
  b.Output(b.Call("mul", {b.Conv(b.Input({1, 3, 5, 4}), b.Random({4, 3, 1, 1})), b.Random({4})}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "mul"), 1);
}

TEST(Simplify, AttentionsScaleIsAppliedAfterTheProduct) {
  Builder b;
  const ValueId q = b.Input({2, 3, 4}), k = b.Input({2, 5, 4});
  const ValueId kt = b.Transpose(k, {0, 2, 1});
  b.Output(b.Call("matmul", {b.Call("mul", {q, b.Scalar(0.5)}), b.Call("mul", {kt, b.Scalar(0.25)})}));
  Apply(passes::Simplify, b.g);
  ASSERT_EQ(b.g.nodes.size(), 2u);
  EXPECT_EQ(b.g.nodes[0].op, "matmul");
  EXPECT_EQ(b.g.nodes[0].attrs.Int("trans_b", 0), 1);
}

TEST(Simplify, ALayerNormWrittenOutIsOneNode) {
  for (const bool affine : {false, true}) {
    Builder b;
    const ValueId x = b.Input({2, 3, 8});
    const Attrs last = Builder::Ints("axes", {-1});
    const ValueId d = b.Call("sub", {x, b.Call("reduce_mean", {x}, last)});
    const ValueId variance = b.Call("reduce_mean", {b.Call("pow", {d, b.Scalar(2)})}, last);
    ValueId y = b.Call("div", {d, b.Call("sqrt", {b.Call("add", {variance, b.Scalar(1e-3)})})});
    if (affine) y = b.Call("add", {b.Call("mul", {y, b.Random({8})}), b.Random({8})});
    b.Output(y);
    Apply(passes::Simplify, b.g);
    ASSERT_EQ(b.g.nodes.size(), 1u) << Text(b.g);
    EXPECT_EQ(b.g.nodes[0].op, "layer_norm");
    EXPECT_EQ(b.g.nodes[0].inputs.size(), affine ? 3u : 2u);
  }
}

TEST(Simplify, AMeanOverOtherAxesIsNoLayerNorm) {
  Builder b;
  const ValueId x = b.Input({2, 3, 8});
  const Attrs first = Builder::Ints("axes", {1});
  const ValueId d = b.Call("sub", {x, b.Call("reduce_mean", {x}, first)});
  const ValueId variance = b.Call("reduce_mean", {b.Call("mul", {d, d})}, first);
  b.Output(b.Call("div", {d, b.Call("sqrt", {b.Call("add", {variance, b.Scalar(1e-3)})})}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "layer_norm"), 0);
}

TEST(Simplify, MovesThatUndoEachOtherGo) {
  Builder b;
  const ValueId x = b.Input({2, 3, 4});
  const ValueId there = b.Transpose(b.Transpose(x, {2, 0, 1}), {1, 2, 0});
  b.Output(b.Call("exp", {b.Reshape(b.Reshape(there, {24}), {2, 3, 4})}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(b.g.nodes.size(), 1u);
}

TEST(Simplify, TheLargestOfAllElementsIsFoundAsTheyLie) {
  Builder all, some;
  const auto reduced = [](Builder& b, const char* op, std::vector<int64_t> axes, int64_t keepdims, bool flat) {
    ValueId v = b.Transpose(b.Input({2, 3, 4}), {2, 0, 1});
    if (flat) v = b.Reshape(v, {8, 3});
    Attrs attrs = Builder::Ints("axes", std::move(axes));
    attrs.Set("keepdims", keepdims);
    b.Output(b.Call(op, {v}, std::move(attrs)));
  };
  reduced(all, "reduce_max", {0, 1, 2}, 1, false);
  reduced(all, "reduce_min", {0, 1}, 0, true);
  Apply(passes::Simplify, all.g);
  EXPECT_EQ(all.g.nodes.size(), 2u) << Text(all.g);
  reduced(some, "reduce_max", {0, 1}, 1, false);
  reduced(some, "reduce_min", {0, 1}, 1, true);      // into as many axes as there are
  reduced(some, "reduce_sum", {0, 1, 2}, 0, false);  // which rounds, in their order
  const size_t before = some.g.nodes.size();
  Apply(passes::Simplify, some.g);
  EXPECT_EQ(some.g.nodes.size(), before) << Text(some.g);
}

TEST(Simplify, ATransposeOfUnitAxesIsAReshape) {
  Builder b;
  b.Output(b.Transpose(b.Input({2, 1, 3}), {1, 0, 2}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(b.g.nodes[0].op, "reshape");
}

TEST(Simplify, APadOfZerosGoesIntoTheConvolution) {
  Builder b;
  const ValueId x = b.Input({1, 2, 5, 5});
  b.Output(b.Conv(b.Call("pad", {x}, Builder::Ints("pads", {0, 0, 1, 2, 0, 0, 0, 1})), b.Random({3, 2, 3, 3}), 1));
  Attrs ones = Builder::Ints("pads", {0, 0, 1, 1, 0, 0, 1, 1});
  ones.Set("value", 1.0);
  b.Output(b.Conv(b.Call("pad", {x}, ones), b.Random({3, 2, 3, 3})));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "pad"), 1);
}

TEST(Simplify, AGroupNormWrittenOutIsOneNode) {
  for (const int64_t groups : {1, 3, 6}) {
    Builder b;
    const ValueId x = b.Input({2, 6, 4, 5});
    const ValueId grouped = b.Reshape(x, {2, groups, 120 / groups});
    const ValueId norm = b.Call("group_norm", {grouped, b.Random({groups}, 0.5, 1.5), b.Random({groups})});
    b.Output(b.Reshape(norm, {2, 6, 4, 5}));
    Apply(passes::Simplify, b.g);
    ASSERT_EQ(b.g.nodes.size(), 1u) << Text(b.g);
    EXPECT_EQ(b.g.nodes[0].op, "group_norm");
    EXPECT_EQ(b.g.nodes[0].attrs.Int("groups", 0), groups);
  }
}

TEST(Simplify, ANormAcrossImagesOrBrokenChannelsIsNoGroupNorm) {
  for (const Shape& grouped : {Shape{1, 4, 60}, Shape{2, 4, 30}}) {
    Builder b;
    const ValueId v = b.Reshape(b.Input({2, 6, 4, 5}), grouped);
    b.Output(b.Reshape(b.Call("group_norm", {v, b.Random({4}), b.Random({4})}), {2, 6, 4, 5}));
    Apply(passes::Simplify, b.g);
    EXPECT_EQ(CountOps(b.g, "reshape"), 2);
  }
}

TEST(Simplify, PowersOfFewFactorsAreProductsAndRoots) {
  const std::pair<double, std::vector<std::string>> cases[] = {
      {2, {"mul"}}, {3, {"mul", "mul"}}, {0.5, {"sqrt"}}, {-1, {"reciprocal"}}, {2.5, {"pow"}}};
  for (const auto& [power, ops] : cases) {
    Builder b;
    const ValueId positive = b.Call("exp", {b.Input({3})});
    b.Output(b.Call("pow", {positive, b.Scalar(power)}));
    Apply(passes::Simplify, b.g);
    ASSERT_EQ(b.g.nodes.size(), 1 + ops.size()) << power;
    for (size_t i = 0; i < ops.size(); ++i) EXPECT_EQ(b.g.nodes[1 + i].op, ops[i]);
  }
}

TEST(Simplify, RowsThatGetTheirAxesBackKeepThem) {
  Builder b;
  const ValueId x = b.Input({2, 3, 8});
  ValueId v = b.Call("matmul", {b.Reshape(x, {6, 8}), b.Random({8, 4})});
  v = b.Call("tanh", {b.Call("add", {v, b.Random({4})})});
  b.Output(b.Call("sigmoid", {b.Reshape(v, {2, 3, 4})}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "reshape"), 0) << Text(b.g);
}

TEST(Simplify, RowsThatGetOtherAxesStayFlat) {
  Builder b;
  const ValueId v = b.Call("matmul", {b.Reshape(b.Input({2, 3, 8}), {6, 8}), b.Random({8, 4})});
  b.Output(b.Reshape(b.Call("tanh", {v}), {3, 2, 4}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "reshape"), 2) << Text(b.g);
}

TEST(Simplify, BranchesThatAreConvolutionsOfOneImageAreOne) {
  for (const int64_t group : {1, 2, 4}) {
    Builder b;
    const ValueId x = b.Input({1, 4, 6, 5});
    const ValueId large = b.Call("add", {b.Conv(x, b.Random({4, 4 / group, 3, 3}), 1, group), b.Random({4, 1, 1})});
    const ValueId small = b.Call("add", {b.Conv(x, b.Random({4, 4 / group, 1, 1}), 0, group), b.Random({4, 1, 1})});
    const ValueId scaled = b.Call("add", {b.Call("mul", {x, b.Random({4, 1, 1})}), b.Random({4, 1, 1})});
    const ValueId sum = b.Call("add", {b.Call("add", {small, large}), b.Call("add", {scaled, b.Call("tanh", {x})})});
    b.Output(b.Call("relu", {sum}));
    Apply(passes::Simplify, b.g);
    EXPECT_EQ(CountOps(b.g, "conv2d"), 1) << Text(b.g);
    EXPECT_EQ(CountOps(b.g, "mul"), 0) << Text(b.g);
    EXPECT_EQ(CountOps(b.g, "add"), 2) << Text(b.g);  // one bias, and what is no convolution
  }
}

TEST(Simplify, SeveralFiltersForAChannelMeetRepeatedChannels) {
  Builder b;
  b.Output(b.Conv(b.Input({2, 3, 5, 6}), b.Random({6, 1, 3, 3}), 1, 3));
  Apply(passes::Simplify, b.g);
  ASSERT_EQ(CountOps(b.g, "expand"), 1) << Text(b.g);
  EXPECT_EQ(b.g.nodes.back().attrs.Int("group", 0), 6);
}

TEST(Simplify, ABranchMayBeTakenAway) {
  Builder b;
  const ValueId x = b.Input({1, 4, 6, 5});
  const ValueId scaled = b.Call("add", {b.Call("mul", {x, b.Random({4, 1, 1})}), b.Random({4, 1, 1})});
  b.Output(b.Call("sub", {b.Conv(x, b.Random({4, 1, 3, 3}), 1, 4), scaled}));
  Apply(passes::Simplify, b.g);
  ASSERT_EQ(b.g.nodes.size(), 2u) << Text(b.g);
  EXPECT_EQ(b.g.nodes[0].op, "conv2d");
  EXPECT_EQ(b.g.nodes[1].op, "add");
}

// All of them in one go, however they are ordered, and what is no branch keeps its order of additions.
TEST(Simplify, BranchesOfManyImagesAreOneEach) {
  Builder b;
  std::vector<ValueId> images;
  for (int i = 0; i < 6; ++i) images.push_back(b.Input({1, 2, 4, 4}));
  ValueId sum = kNoValue;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 6; ++i) {
      const int64_t kernel = 1 + 2 * (round % 2);
      const ValueId v =
          b.Conv(images[static_cast<size_t>(round < 2 ? i : 5 - i)], b.Random({2, 2, kernel, kernel}), kernel / 2);
      sum = sum == kNoValue ? v : b.Call("add", {sum, v});
    }
  }
  b.Output(sum);
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "conv2d"), 6) << Text(b.g);
}

TEST(Simplify, ASumThatIsTakenAwayFromNoBranchStays) {
  Builder b;
  const ValueId y = b.Call("add", {b.Input({4}), b.Random({4})});
  b.Output(b.Call("sub", {b.Input({4}), y}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "sub"), 1) << Text(b.g);
}

// Filters that see other pixels, other images, or are read elsewhere too.
TEST(Simplify, BranchesThatDifferStay) {
  const std::function<ValueId(Builder&, ValueId)> others[] = {
      [](Builder& b, ValueId x) {
        return b.Conv(x, b.Random({4, 4, 5, 5}), 2);
      },
      [](Builder& b, ValueId x) {
        return b.Conv(x, b.Random({4, 1, 3, 3}), 1, 4);
      },
      [](Builder& b, ValueId x) {
        return b.Conv(b.Call("tanh", {x}), b.Random({4, 4, 3, 3}), 1);
      },
      [](Builder& b, ValueId x) {
        return b.Call("mul", {b.Call("tanh", {x}), b.Random({4, 1, 1})});
      },
      [](Builder& b, ValueId x) {
        return b.Call("mul", {x, b.Random({1, 6, 5})});
      },
      [](Builder& b, ValueId x) {
        const ValueId v = b.Conv(x, b.Random({4, 4, 3, 3}), 1);
        b.Output(b.Call("neg", {v}));
        return v;
      }};
  for (size_t i = 0; i < std::size(others); ++i) {
    Builder b;
    const ValueId x = b.Input({1, 4, 6, 5});
    const ValueId other = others[i](b, x);
    b.Output(b.Call("add", {b.Conv(x, b.Random({4, 4, 3, 3}), 1), other}));
    const int convs = CountOps(b.g, "conv2d");
    Apply(passes::Simplify, b.g);
    EXPECT_EQ(CountOps(b.g, "conv2d"), i == 0 ? 1 : convs) << i;  // the larger one holds the smaller
  }
}

TEST(Simplify, AnOutputThatIsTheInputKeepsItsCopyAndName) {
  Builder b;
  b.Output(b.Call("identity", {b.Input({3})}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(b.g.nodes.size(), 1u);
  EXPECT_EQ(b.g.values[b.g.outputs[0]].name, "out0");
}

TEST(Simplify, QueriesKeysAndValuesBecomeProductsOfTheirOwn) {
  Builder b;
  ValueId v = b.Call("add", {b.Call("matmul", {b.Input({1, 5, 8}), b.Random({8, 24})}), b.Random({24})});
  v = b.Transpose(b.Reshape(v, {1, 5, 3, 2, 4}), {2, 0, 3, 1, 4});
  for (int64_t i = 0; i < 3; ++i) {
    Attrs attrs = Builder::Ints("axes", {0});
    attrs.Set("starts", std::vector<int64_t>{i});
    attrs.Set("ends", std::vector<int64_t>{i + 1});
    b.Output(b.Reshape(b.Call("slice", {v}, attrs), {1, 2, 5, 4}));
  }
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "slice"), 0);
  EXPECT_EQ(CountOps(b.g, "matmul"), 3);
}

// Whatever its kernel, strides, dilations, pads, groups and further pixels are.
TEST(Simplify, TransposedConvolutionsArePlainOnes) {
  Rng rng(17);
  for (int i = 0; i < 150; ++i) {
    const auto below = [&](int64_t n) { return rng.Below(n); };
    const std::vector<int64_t> kernel = {1 + below(5), 1 + below(8)}, strides = {1 + below(3), 1 + below(5)},
                               dilations = {1 + below(2), 1 + below(3)};
    const int64_t group = 1 + below(3), height = 1 + below(5), width = 1 + below(6);
    std::vector<int64_t> pads, extra;
    for (int axis = 0; axis < 4; ++axis) pads.push_back(below(3));
    for (size_t axis = 0; axis < 2; ++axis) extra.push_back(below(std::max(strides[axis], dilations[axis])));
    Attrs attrs = Builder::Ints("strides", strides);
    attrs.Set("dilations", dilations);
    attrs.Set("pads", pads);
    attrs.Set("output_padding", extra);
    attrs.Set("group", group);
    const auto pixels = [&](size_t axis, int64_t in) {
      return (in - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 + extra[axis] - pads[axis] -
             pads[axis + 2];
    };
    if (pixels(0, height) < 1 || pixels(1, width) < 1) continue;
    SCOPED_TRACE(Text(attrs));
    Builder b;
    const ValueId x = b.Input({1 + below(2), 2 * group, height, width});
    b.Output(b.Call("conv_transpose2d", {x, b.Random({2 * group, 1 + below(3), kernel[0], kernel[1]})}, attrs));
    Apply(passes::Simplify, b.g);
    EXPECT_EQ(CountOps(b.g, "conv_transpose2d"), 0);
  }
}

TEST(Simplify, ATransposedConvolutionOfTilesIsAProductAndAMove) {
  Builder b;
  b.Output(
      b.Call("conv_transpose2d", {b.Input({2, 3, 4, 5}), b.Random({3, 4, 2, 2})}, Builder::Ints("strides", {2, 2})));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "conv2d"), 1);
  EXPECT_EQ(CountOps(b.g, "depth_to_space"), 1);
}

TEST(Simplify, AValueTimesItsOwnSigmoidIsSilu) {
  Builder b;
  const ValueId x = b.Input({3, 5}), y = b.Input({3, 5});
  const ValueId gate = b.Call("sigmoid", {y}), read_twice = b.Call("sigmoid", {x});
  b.Output(b.Call("mul", {b.Call("sigmoid", {x}), x}));
  b.Output(b.Call("mul", {y, b.Call("sigmoid", {y})}));
  b.Output(b.Call("mul", {x, gate}));
  b.Output(b.Call("add", {b.Call("mul", {x, read_twice}), read_twice}));
  Apply(passes::Simplify, b.g);
  EXPECT_EQ(CountOps(b.g, "silu"), 2);
  EXPECT_EQ(CountOps(b.g, "sigmoid"), 2) << "of another value, and one that others read";
}

const std::vector<int> kNhwc = {0, 2, 3, 1};

TEST(Layout, ConvolutionsAreChannelsLastAndTheEdgesAreNot) {
  Builder b;
  const ValueId x = b.Input({1, 3, 6, 6});
  const ValueId c = b.Conv(b.Call("relu", {b.Conv(x, b.Random({4, 3, 3, 3}))}), b.Random({5, 4, 3, 3}));
  b.Output(b.Call("sigmoid", {c}));
  Apply(passes::ChooseLayouts, b.g);
  EXPECT_EQ(CountOps(b.g, "layout_copy"), 2);
  for (const Node& node : b.g.nodes) {
    if (node.op != "conv2d") continue;
    EXPECT_EQ(b.g.values[node.output].type.perm, kNhwc);
    EXPECT_EQ(b.g.values[node.inputs[0]].type.perm, kNhwc);
  }
  EXPECT_EQ(b.g.values[b.g.outputs[0]].name, "out0");
}

TEST(Layout, ADenseLayerTakesAnImageAsItLies) {
  for (const bool trans_b : {false, true}) {
    Builder b;
    const ValueId c = b.Conv(b.Input({2, 3, 4, 5}), b.Random({6, 3, 3, 3}), 1);
    const ValueId w = trans_b ? b.Random({7, 120}) : b.Random({120, 7});
    b.Output(b.Call("matmul", {b.Reshape(c, {2, 120}), w}, Builder::Int("trans_b", trans_b ? 1 : 0)));
    Apply(passes::ChooseLayouts, b.g);
    int copies = 0;
    for (const Node& node : b.g.nodes) {
      const bool moves = node.op == "reshape" || node.op == "transpose" || node.op == "layout_copy";
      copies += moves && !IsAliasNode(b.g, node) ? 1 : 0;
    }
    EXPECT_EQ(copies, 1) << "the input's alone\n" << Text(b.g);
  }
}

TEST(Layout, AttentionMovesNothing) {
  Builder b;
  const ValueId x = b.Input({1, 6, 8});
  auto heads = [&](ValueId v) { return b.Transpose(b.Reshape(v, {1, 6, 2, 4}), {0, 2, 1, 3}); };
  const ValueId q = heads(b.Call("matmul", {x, b.Random({8, 8})})), k = heads(b.Call("matmul", {x, b.Random({8, 8})}));
  const ValueId v = heads(b.Call("matmul", {x, b.Random({8, 8})}));
  const ValueId scores = b.Call("softmax", {b.Call("matmul", {q, k}, Builder::Int("trans_b", 1))});
  const ValueId context = b.Reshape(b.Transpose(b.Call("matmul", {scores, v}), {0, 2, 1, 3}), {1, 6, 8});
  b.Output(b.Call("matmul", {context, b.Random({8, 8})}));
  Apply(passes::ChooseLayouts, b.g);
  for (const Node& node : b.g.nodes) {
    if (node.op == "reshape" || node.op == "transpose") {
      EXPECT_TRUE(IsAliasNode(b.g, node)) << Text(b.g);
    }
  }
}

TEST(Layout, WhatTheCallerGetsOfOperandsInTwoOrdersIsInItsOwn) {
  Builder b;
  const ValueId x = b.Input({1, 2, 6, 4}), turned = b.Transpose(b.Input({1, 6, 2, 4}), {0, 2, 1, 3});
  const ValueId chosen = b.Call("where", {b.Input({6, 1}, DType::kBool), x, b.Call("relu", {turned})});
  b.Output(b.Reshape(b.Call("tanh", {chosen}), {2, 6, 4}));
  Apply(passes::ChooseLayouts, b.g);
  EXPECT_EQ(CountOps(b.g, "layout_copy"), 0) << Text(b.g);
}

// Pixels of an image by place, as GridSample reads them.
TEST(Layout, AnImageWhosePixelsArePickedOftenIsCopiedOnce) {
  for (const bool often : {true, false}) {
    Builder b;
    const ValueId pixels = b.Reshape(b.Transpose(b.Input({1, 8, 4, 4}), {0, 2, 3, 1}), {16, 8});
    for (int i = 0; i < 3; ++i) {
      const ValueId places = b.Input({1, often ? 6 : 5}, DType::kI64);
      b.Output(b.Call("gather", {pixels, places}, Builder::Int("axis", 0)));
    }
    Apply(passes::ChooseLayouts, b.g);
    EXPECT_EQ(CountOps(b.g, "layout_copy"), often ? 1 : 0) << Text(b.g);
  }
}

int GroupWith(const Graph& g, std::string_view op) {
  for (size_t i = 0; i < g.groups.size(); ++i) {
    for (int n : g.groups[i].nodes) {
      if (g.nodes[n].op == op) return static_cast<int>(i);
    }
  }
  return -1;
}

TEST(Fuse, WhatComesBeforeAContractionJoinsItWhereTheTargetHasATemplateForBoth) {
  for (const auto& [target, kernels] : {std::pair("interpreter", 1), {"opencl", 2}}) {
    Builder b;
    b.Output(b.Conv(b.Call("tanh", {b.Input({1, 8, 4, 4})}), b.Random({16, 8, 1, 1})));
    const ValueId before = b.g.nodes[0].inputs[0], after = b.g.nodes[0].output;
    for (const ValueId v : {before, after}) b.g.values[v].type.perm = kNhwc;  // as the layout pass leaves it on CPUs
    b.g.values[b.g.outputs[0]].type.perm = kNhwc;
    ASSERT_TRUE(passes::Fuse(b.g, *ParseTarget(target)).ok());
    EXPECT_EQ(b.g.groups.size(), static_cast<size_t>(kernels)) << target;
  }
}

// A template reads few planes as they lie; of more channels, and on GPUs, the copy is a kernel of its own.
TEST(Fuse, AnImagesChangeOfLayoutJoinsItsConvolution) {
  for (const auto& [channels, target, kernels] :
       {std::tuple{3, "interpreter", 1}, {5, "interpreter", 2}, {3, "opencl", 2}}) {
    Builder b;
    b.Output(b.Call("reduce_mean", {b.Conv(b.Input({1, channels, 9, 9}), b.Random({16, channels, 3, 3}), 1)},
                    Builder::Ints("axes", {2, 3})));
    ASSERT_TRUE(Optimize(b.g, *ParseTarget(target)).ok());
    EXPECT_EQ(b.g.groups.size(), static_cast<size_t>(kernels) + 1) << channels << " " << target << "\n" << Text(b.g);
  }
}

TEST(Fuse, DiamondsAndResidualsJoinTheContraction) {
  Builder b;
  const ValueId x = b.Input({1, 4, 5, 5});
  const ValueId c = b.Call("add", {b.Conv(x, b.Random({4, 4, 3, 3}), 1), b.Random({4, 1, 1})});
  const ValueId gated = b.Call("mul", {c, b.Call("sigmoid", {c})});
  b.Output(b.Call("relu", {b.Call("add", {x, gated})}));
  Apply(passes::Fuse, b.g);
  ASSERT_EQ(b.g.groups.size(), 1u);
  EXPECT_EQ(b.g.groups[0].anchor, 0);
  EXPECT_EQ(b.g.groups[0].nodes.size(), 6u);
}

TEST(Fuse, TheLongBranchTakesTheResidualSum) {
  Builder b;
  const ValueId x = b.Input({1, 4, 5, 5});
  const ValueId deep = b.Conv(b.Call("relu", {b.Conv(x, b.Random({4, 4, 1, 1}))}), b.Random({4, 4, 3, 3}), 1);
  const ValueId shortcut = b.Conv(x, b.Random({4, 4, 1, 1}));
  b.Output(b.Call("add", {deep, shortcut}));
  Apply(passes::Fuse, b.g);
  ASSERT_EQ(b.g.groups.size(), 3u);
  const Group& last = b.g.groups[2];
  EXPECT_EQ(b.g.nodes[last.nodes[0]].output, deep);
}

TEST(Fuse, AValueThatLeavesEndsTheKernel) {
  Builder b;
  const ValueId c = b.Conv(b.Input({1, 4, 5, 5}), b.Random({4, 4, 1, 1}));
  const ValueId r = b.Call("relu", {c});
  b.Output(r);
  b.Output(b.Call("exp", {r}));
  Apply(passes::Fuse, b.g);
  EXPECT_EQ(b.g.groups.size(), 2u);
}

TEST(Fuse, CastsJoinTheContraction) {
  Builder b;
  const ValueId c = b.Conv(b.Input({1, 4, 5, 5}), b.Random({4, 4, 1, 1}));
  Attrs to;
  to.Set("to", std::string("f16"));
  b.Output(b.Call("cast", {b.Call("relu", {c})}, std::move(to)));
  Apply(passes::Fuse, b.g);
  ASSERT_EQ(b.g.groups.size(), 1u);
  EXPECT_EQ(b.g.groups[0].nodes.size(), 3u);
}

// Bytes are read where floats made of them would be; what is of one size is made on its own, in vectors.
TEST(Fuse, WhatGrowsIsMadeWhereItIsConcatenated) {
  for (const auto& [dtype, kernels] : {std::pair(DType::kU8, 1u), {DType::kF32, 2u}}) {
    Builder b;
    const ValueId x = b.Input({1, 4, 5, 5}, dtype);
    const ValueId made = b.Call("mul", {dtype == DType::kU8 ? b.Cast(x, DType::kF32) : x, b.Random({})});
    b.Output(b.Call("concat", {made, b.Input({1, 3, 5, 5})}, Builder::Int("axis", 1)));
    Apply(passes::Fuse, b.g);
    EXPECT_EQ(b.g.groups.size(), kernels);
  }
}

// Rows and then columns, as pads repeat them: one kernel picks both. What is picked again and again is made once.
TEST(Fuse, PicksOfPicksAreOneKernel) {
  for (const int64_t columns : {8, 100}) {
    Builder b;
    const ValueId rows = b.Call("gather", {b.Input({6, 6}), b.Input({8}, DType::kI64)});
    b.Output(b.Call("gather", {rows, b.Input({columns}, DType::kI64)}, Builder::Int("axis", 1)));
    Apply(passes::Fuse, b.g);
    EXPECT_EQ(b.g.groups.size(), columns == 8 ? 1u : 2u);
  }
}

TEST(Fuse, NoCyclesThroughAnotherKernel) {
  // exp(c) joins the convolution only if what reads it does not also wait for the reduction of c.
  Builder b;
  const ValueId c = b.Conv(b.Input({1, 4, 5, 5}), b.Random({4, 4, 1, 1}));
  const ValueId mean = b.Call("reduce_mean", {c}, Builder::Ints("axes", {2, 3}));
  b.Output(b.Call("sub", {c, mean}));
  Apply(passes::Fuse, b.g);
  EXPECT_EQ(b.g.groups.size(), 3u);
  EXPECT_NE(GroupWith(b.g, "conv2d"), GroupWith(b.g, "sub"));
}

TEST(Fuse, ReductionsTakeWhatFeedsThem) {
  Builder b;
  const ValueId x = b.Input({4, 8}), mask = b.Input({4, 8});
  const ValueId scores = b.Call("add", {b.Call("mul", {x, b.Scalar(0.5)}), mask});
  b.Output(b.Call("mul", {b.Call("softmax", {scores}), b.Scalar(3)}));
  Apply(passes::Fuse, b.g);
  ASSERT_EQ(b.g.groups.size(), 1u);
  EXPECT_EQ(b.g.nodes[b.g.groups[0].nodes[b.g.groups[0].anchor]].op, "softmax");
}

TEST(Fuse, PlacesOfExtremesTakeNoFloatsThatAreComputed) {
  for (const DType dtype : {DType::kF32, DType::kI32}) {
    Builder b;
    const ValueId x = b.Input({4, 8}, dtype);
    b.Output(b.Call("neg", {b.Call("arg_max", {b.Call("neg", {x})}, Builder::Int("axis", 1))}));
    Apply(passes::Fuse, b.g);
    EXPECT_EQ(b.g.groups.size(), dtype == DType::kF32 ? 2u : 1u);
  }
}

// A gated value, x * sigmoid(pool(x)), that convolutions of `taps` and `group` read.
struct Gated {
  Builder b;
  ValueId gated, out;
  explicit Gated(int64_t taps = 1, int64_t group = 1) {
    const ValueId x = b.Call("relu", {b.Conv(b.Input({2, 8, 5, 5}), b.Random({8, 8, 3, 3}), 1)});
    const ValueId pool = b.Call("reduce_mean", {x}, Builder::Ints("axes", {2, 3}));
    const ValueId gate = b.Call("sigmoid", {b.Conv(b.Reshape(pool, {2, 8, 1, 1}), b.Random({8, 8, 1, 1}))});
    gated = b.Call("mul", {x, gate});
    out = b.Call("add", {b.Conv(gated, b.Random({8, 8 / group, taps, taps}), taps / 2, group), x});
  }
  const Group& GroupOfOut() {
    b.Output(out);
    EXPECT_TRUE(Optimize(b.g, Target{}).ok());
    return b.g.groups[static_cast<size_t>(GroupWith(b.g, "mul"))];
  }
};

TEST(Fuse, PointwiseConvolutionsTakeTheGateInFrontOfThem) {
  Gated gated;
  const Group& group = gated.GroupOfOut();
  std::vector<std::string> ops;
  for (int n : group.nodes) ops.push_back(gated.b.g.nodes[static_cast<size_t>(n)].op);
  EXPECT_EQ(ops, (std::vector<std::string>{"mul", "conv2d", "add"}));
  EXPECT_EQ(group.anchor, 1);
}

TEST(Fuse, OtherContractionsTakeNothingInFrontOfThem) {
  EXPECT_EQ(Gated(3).GroupOfOut().nodes.size(), 1u);
  EXPECT_EQ(Gated(1, 2).GroupOfOut().nodes.size(), 1u);
  Gated leaves;
  leaves.b.Output(leaves.gated);
  EXPECT_EQ(leaves.GroupOfOut().nodes.size(), 1u);
  Gated read_twice;
  read_twice.out = read_twice.b.Call("add", {read_twice.out, read_twice.gated});
  EXPECT_EQ(read_twice.GroupOfOut().nodes.size(), 1u);
}

TEST(Fuse, OffGivesEachNodeItsOwnGroup) {
  Builder b;
  b.Output(b.Call("relu", {b.Call("exp", {b.Input({3})})}));
  ASSERT_TRUE(Optimize(b.g, Target{}, {{"fuse"}, nullptr}).ok());
  EXPECT_EQ(b.g.groups.size(), 2u);
}

}  // namespace
}  // namespace temper
