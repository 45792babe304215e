// Convolutions of few output channels: answers stay, and where neighbours become channels.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/alias.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/graph/pipeline.h"
#include "tests/graph/builder.h"

namespace temper {
namespace {

using testing::Builder;
using testing::CountOps;
using testing::Evaluated;

struct Conv {
  Shape image, filter;
  std::vector<int64_t> strides = {1, 1}, pads = {1, 1, 1, 1}, dilations = {1, 1};
  int64_t group = 1;
};

void Make(Builder& b, const Conv& c) {
  Attrs attrs = Builder::Ints("strides", c.strides);
  attrs.Set("pads", c.pads);
  attrs.Set("dilations", c.dilations);
  attrs.Set("group", c.group);
  b.Output(b.Call("relu", {b.Call("conv2d", {b.Input(c.image), b.Random(c.filter)}, attrs)}));
}

// How many pixels become one's channels on the target; 1: none.
int64_t NeighboursOf(const Conv& c, const char* target) {
  Builder b;
  Make(b, c);
  EXPECT_TRUE(passes::NeighboursAsChannels(b.g, *ParseTarget(target)).ok());
  for (const Node& node : b.g.nodes) {
    if (node.op == "conv2d") return b.g.values[node.inputs[1]].type.shape[0] / c.filter[0];
  }
  return 0;
}

TEST(NeighbourChannels, AnswersStay) {
  const Conv cases[] = {
      {{1, 32, 90, 90}, {1, 32, 3, 3}},
      {{2, 24, 70, 75}, {3, 24, 3, 3}},                                // a part of a pixel more
      {{1, 16, 80, 81}, {2, 16, 5, 5}, {1, 1}, {2, 0, 2, 3}},          // pads that differ
      {{1, 64, 80, 80}, {1, 64, 3, 7}, {2, 2}, {1, 3, 1, 3}},          // strides, whose last pixel is not read
      {{1, 32, 70, 70}, {1, 32, 3, 5}, {1, 1}, {2, 2, 2, 2}, {2, 1}},  // dilated along columns
      {{1, 512, 54, 3}, {1, 512, 9, 3}, {1, 1}, {4, 1, 4, 1}},         // fewer pixels than lanes
      {{1, 8, 1, 40005}, {1, 8, 1, 7}, {1, 1}, {0, 3, 0, 3}},          // of one axis
  };
  for (const Conv& c : cases) {
    SCOPED_TRACE(absl::StrCat(absl::StrJoin(c.image, "x"), " ", absl::StrJoin(c.filter, "x")));
    Builder b;
    Make(b, c);
    const std::vector<NDArray> inputs = testing::RandomInputs(b.g, 3), want = Evaluated(b.g, inputs);
    ASSERT_TRUE(passes::NeighboursAsChannels(b.g, *ParseTarget("llvm:haswell")).ok());
    ASSERT_TRUE(Verify(b.g).ok()) << Verify(b.g);
    EXPECT_EQ(CountOps(b.g, "transpose"), 1) << Text(b.g);
    testing::ExpectClose(Evaluated(b.g, inputs), want, 1e-5);
  }
}

TEST(NeighbourChannels, WhereVectorsWouldBeMostlyEmpty) {
  const Conv one = {{1, 64, 96, 96}, {1, 64, 3, 3}}, three = {{1, 64, 96, 96}, {3, 64, 3, 3}};
  EXPECT_EQ(NeighboursOf(one, "llvm:haswell"), 8);
  EXPECT_EQ(NeighboursOf(one, "llvm:x86-64-v4"), 16);
  EXPECT_EQ(NeighboursOf(three, "llvm:haswell"), 2);
  EXPECT_EQ(NeighboursOf(three, "llvm:x86-64-v4"), 5);
  EXPECT_EQ(NeighboursOf(one, "opencl"), 1);
  for (const Conv& c : {Conv{{1, 64, 96, 96}, {7, 64, 3, 3}},                                // nearly full
                        Conv{{1, 64, 96, 96}, {1, 64, 1, 1}, {1, 1}, {0, 0, 0, 0}},          // all zeros but one
                        Conv{{1, 64, 96, 96}, {1, 64, 3, 3}, {1, 1}, {2, 2, 2, 2}, {2, 2}},  // holes in the filter
                        Conv{{1, 64, 96, 96}, {2, 32, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 2},
                        Conv{{1, 4, 16, 16}, {1, 4, 3, 3}}}) {  // no work to speak of
    EXPECT_EQ(NeighboursOf(c, "llvm:haswell"), 1) << absl::StrJoin(c.image, "x") << " " << absl::StrJoin(c.filter, "x");
  }
}

TEST(NeighbourChannels, NothingMoves) {
  Builder b;
  Make(b, {{1, 64, 96, 96}, {1, 64, 3, 3}});
  ASSERT_TRUE(Optimize(b.g, *ParseTarget("llvm:haswell"), {}).ok());
  for (const Node& node : b.g.nodes) {
    const bool moves = node.op == "reshape" || node.op == "transpose";
    EXPECT_TRUE(!moves || IsAliasNode(b.g, node)) << Text(b.g);
  }
}

}  // namespace
}  // namespace temper
