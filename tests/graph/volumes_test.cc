// Convolutions over one axis or three, as frontends write them: between moves, behind which work of the model stands.
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

void Simplified(Graph& g) {
  const std::vector<NDArray> inputs = RandomInputs(g, 5);
  const std::vector<NDArray> want = Evaluated(g, inputs);
  ASSERT_TRUE(passes::Simplify(g).ok());
  ASSERT_TRUE(Verify(g).ok()) << Text(g);
  ExpectClose(Evaluated(g, inputs), want);
}

// [n, c, w] as an image, and back behind the convolution.
ValueId AlongOneAxis(Builder& b, ValueId x, int64_t channels) {
  const Shape s = b.g.values[x].type.shape;
  const ValueId v = b.Conv(b.Reshape(x, {s[0], s[1], 1, s[2]}), b.Random({channels, s[1], 1, 1}));
  return b.Reshape(v, {s[0], channels, s[2]});
}

// [n, c, d, h, w] as planes, and back behind the convolution, of `taps` planes.
ValueId AlongThreeAxes(Builder& b, ValueId x, int64_t channels, int64_t taps) {
  const Shape s = b.g.values[x].type.shape;
  ValueId v = b.Reshape(b.Transpose(x, {0, 2, 1, 3, 4}), {s[0] * s[2], s[1], s[3], s[4]});
  Attrs unfold = Builder::Ints("pads", {taps / 2, taps / 2});
  unfold.Set("depth", s[2]);
  unfold.Set("taps", taps);
  v = b.Call("unfold_planes", {v}, unfold);
  v = b.Conv(v, b.Random({channels, taps * s[1], taps, taps}), taps / 2);
  return b.Transpose(b.Reshape(v, {s[0], s[2], channels, s[3], s[4]}), {0, 2, 1, 3, 4});
}

int Moves(const Graph& g) { return CountOps(g, "reshape") + CountOps(g, "transpose"); }

TEST(Volumes, WorkBehindMovesComesBeforeThem) {
  Builder b;
  ValueId x = AlongOneAxis(b, b.Input({2, 3, 7}), 4);
  x = b.Call("leaky_relu", {b.Call("add", {x, b.Random({4, 1})})});  // one value a channel
  x = AlongOneAxis(b, x, 5);
  b.Output(b.Call("mul", {b.Call("tanh", {x}), b.Call("sigmoid", {x})}));
  Simplified(b.g);
  EXPECT_EQ(Moves(b.g), 2) << Text(b.g);  // ahead of the first convolution, and behind all
}

TEST(Volumes, SumsAndConcatenationsOfVolumesAreThoseOfPlanes) {
  Builder b;
  const ValueId x = b.Call("relu", {AlongThreeAxes(b, b.Input({2, 3, 4, 5, 2}), 4, 3)});
  const ValueId y = b.Call("relu", {b.Call("add", {AlongThreeAxes(b, x, 4, 3), x})});
  const ValueId both = b.Call("concat", {x, y}, Builder::Int("axis", 1));
  b.Output(AlongThreeAxes(b, both, 2, 1));
  Simplified(b.g);
  EXPECT_EQ(Moves(b.g), 4) << Text(b.g);
}

TEST(Volumes, OfOneChannelOrOnePlane) {
  for (const Shape& shape : {Shape{1, 1, 4, 3, 3}, {1, 3, 1, 3, 3}, {3, 1, 1, 1, 3}}) {
    Builder b;
    const ValueId x = AlongThreeAxes(b, b.Input(shape), 1, 3), y = AlongThreeAxes(b, x, 2, 1);
    for (const int64_t axis : {1, 2, -1}) {
      if (axis == 1) b.Output(b.Call("concat", {b.Call("relu", {x}), y, x}, Builder::Int("axis", axis)));
      b.Output(b.Call("concat", {x, b.Call("relu", {x})}, Builder::Int("axis", axis)));
    }
    Simplified(b.g);
  }
}

TEST(Volumes, WhatBelongsBehindMovesStaysThere) {
  const auto moves_first = [](const std::function<ValueId(Builder&, ValueId)>& work) {
    Builder b;
    b.Output(work(b, AlongOneAxis(b, b.Input({2, 3, 7}), 4)));
    Simplified(b.g);
    return b.g.nodes.back().op != "reshape";
  };
  // Values that differ along several axes, results that are larger, another operand.
  EXPECT_TRUE(moves_first([](Builder& b, ValueId v) { return b.Call("add", {v, b.Random({4, 7})}); }));
  EXPECT_TRUE(moves_first([](Builder& b, ValueId v) { return b.Call("add", {v, b.Random({3, 1, 1, 7})}); }));
  EXPECT_TRUE(moves_first([](Builder& b, ValueId v) { return b.Call("add", {v, b.Input({2, 4, 7})}); }));
  EXPECT_FALSE(moves_first([](Builder& b, ValueId v) { return b.Call("add", {v, b.Random({7})}); }));
  // Nothing that slides a window is ahead of it.
  Builder b;
  b.Output(b.Call("relu", {b.Reshape(b.Call("matmul", {b.Input({6, 4}), b.Random({4, 8})}), {2, 3, 8})}));
  Simplified(b.g);
  EXPECT_EQ(b.g.nodes.back().op, "relu");
}

// Of strides, dilations and pads along the column, and of a filter that is computed.
TEST(Volumes, WhatSlidesAlongAColumnGoesAlongARow) {
  Builder b;
  Attrs attrs = Builder::Ints("pads", {2, 0, 3, 0});
  attrs.Set("strides", std::vector<int64_t>{2, 1});
  attrs.Set("dilations", std::vector<int64_t>{3, 1});
  ValueId x = b.Call("relu", {b.Call("conv2d", {b.Input({2, 3, 40, 1}), b.Random({4, 3, 5, 1})}, attrs)});
  Attrs pool = Builder::Ints("kernel", {3, 1});
  pool.Set("pads", std::vector<int64_t>{0, 0, 1, 0});
  x = b.Call("relu", {b.Call("avg_pool2d", {x}, pool)});
  Attrs apart = Builder::Ints("strides", {3, 1});
  apart.Set("output_padding", std::vector<int64_t>{2, 0});
  x = b.Call("conv_transpose2d", {x, b.Call("exp", {b.Input({4, 2, 3, 1})})}, apart);
  b.Output(b.Call("mul", {b.Call("tanh", {x}), b.Call("sigmoid", {x})}));
  Simplified(b.g);
  EXPECT_EQ(Moves(b.g), 3) << Text(b.g);  // of the inputs and of the result
  for (const Node& node : b.g.nodes) {
    if (FindOp(node.op)->windows) {
      EXPECT_EQ(b.g.values[node.output].type.shape[2], 1) << Text(b.g);
    }
  }
}

// A convolution's kernel reads planes where they lie, and the work behind it is its own.
TEST(Volumes, AConvolutionAndWhatIsAroundItAreOneKernel) {
  Builder b;
  ValueId x = b.Call("relu", {AlongThreeAxes(b, b.Input({1, 16, 6, 5, 5}), 32, 3)});
  x = b.Call("relu", {AlongThreeAxes(b, x, 16, 3)});
  b.Output(x);
  ASSERT_TRUE(Optimize(b.g, Target{}).ok());
  int convolutions = 0;
  for (const Group& group : b.g.groups) {
    std::vector<std::string> ops;
    for (const int n : group.nodes) ops.push_back(b.g.nodes[static_cast<size_t>(n)].op);
    if (std::ranges::count(ops, "conv2d") == 0) continue;
    ++convolutions;
    EXPECT_EQ(ops, (std::vector<std::string>{"unfold_planes", "conv2d", "relu"}));
  }
  EXPECT_EQ(convolutions, 2);
}

}  // namespace
}  // namespace temper
