// Values worked out by hand: what no comparison of two of our own programs can show.
#include <cmath>
#include <limits>

#include "ops_testing.h"

namespace temper {
namespace {

using Values = std::vector<double>;

NDArray Run(const char* op, const char* attrs, std::vector<NDArray> inputs) {
  absl::StatusOr<NDArray> result = RunOp(op, *ParseAttrs(attrs), std::move(inputs));
  EXPECT_TRUE(result.ok()) << op << ": " << result.status();
  return result.ok() ? *result : NDArray();
}
Values V(const char* op, const char* attrs, std::vector<NDArray> inputs) {
  return ValuesOf(Run(op, attrs, std::move(inputs)));
}

TEST(Values, RoundIsHalfToEven) {
  EXPECT_EQ(V("round", "", {Floats({6}, {0.5, 1.5, 2.5, -0.5, -1.5, 2.6})}), (Values{0, 2, 2, -0.0, -2, 3}));
}

TEST(Values, IntegerDivisionTruncatesAndModFollowsTheDivisor) {
  NDArray a = Longs({4}, {7, -7, 7, -7}), b = Longs({4}, {2, 2, -2, -2});
  EXPECT_EQ(V("div", "", {a, b}), (Values{3, -3, -3, 3}));
  EXPECT_EQ(V("mod", "", {a, b}), (Values{1, 1, -1, -1}));
  EXPECT_EQ(V("mod", "fmod=1", {a, b}), (Values{1, -1, 1, -1}));
}

TEST(Values, Activations) {
  NDArray x = Floats({3}, {-1, 0, 2});
  EXPECT_EQ(V("leaky_relu", "alpha=0.5", {x}), (Values{-0.5, 0, 2}));
  EXPECT_EQ(V("hard_sigmoid", "alpha=0.5 beta=0.5", {x}), (Values{0, 0.5, 1}));
  EXPECT_EQ(V("clip", "max=1.0", {x}), (Values{-1, 0, 1}));
  EXPECT_EQ(V("prelu", "", {x, Floats({1}, {3})}), (Values{-3, 0, 2}));
  EXPECT_NEAR(V("gelu", "", {x})[2], 1.9544997, 1e-6);
  EXPECT_NEAR(V("gelu", "approximate='tanh'", {x})[2], 1.9545977, 1e-6);
  EXPECT_NEAR(V("elu", "alpha=2.0", {x})[0], 2 * (std::exp(-1.0) - 1), 1e-6);
  EXPECT_NEAR(V("softplus", "", {x})[2], std::log(1 + std::exp(2.0)), 1e-6);
  EXPECT_NEAR(V("hard_swish", "", {x})[0], -1.0 / 3, 1e-6);
}

TEST(Values, CastTruncatesAndTestsForZero) {
  EXPECT_EQ(V("cast", "to='i64'", {Floats({3}, {1.9, -1.9, 0.5})}), (Values{1, -1, 0}));
  EXPECT_EQ(V("cast", "to='bool'", {Floats({3}, {0.5, 0, -3})}), (Values{1, 0, 1}));
}

TEST(Values, ConvolutionAgainstPaper) {
  NDArray x = Floats({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), w = Floats({1, 1, 2, 2}, {1, 0, 0, -1});
  EXPECT_EQ(V("conv2d", "", {x, w}), (Values{-4, -4, -4, -4}));
  EXPECT_EQ(V("conv2d", "pads=[1,1,0,0] strides=[2,2]", {x, w}), (Values{-1, -3, -7, -4}));
  EXPECT_EQ(V("conv_transpose2d", "strides=[2,2]", {Floats({1, 1, 2, 2}, {1, 2, 3, 4}), w}),
            (Values{1, 0, 2, 0, 0, -1, 0, -2, 3, 0, 4, 0, 0, -3, 0, -4}));
}

TEST(Values, AveragePoolCountsWhatItIsTold) {
  NDArray x = Floats({1, 1, 2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(V("avg_pool2d", "kernel=[2,2] pads=[1,1,0,0]", {x}), (Values{1, 1.5, 2, 2.5}));
  EXPECT_EQ(V("avg_pool2d", "kernel=[2,2] pads=[1,1,0,0] count_include_pad=1", {x}), (Values{0.25, 0.75, 1, 2.5}));
  // In ceil mode the last window reaches past the padding, and what is beyond is not counted.
  EXPECT_EQ(V("avg_pool2d", "kernel=[2,2] strides=[2,2] ceil_mode=1 count_include_pad=1",
              {Floats({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})}),
            (Values{3, 4.5, 7.5, 9}));
}

TEST(Values, ArgMaxAndArgMinTakeTheFirstOfEqualOnesOrTheLast) {
  const NDArray x = Floats({2, 3}, {1, 3, 3, 2, 1, 2}), whole = Longs({2, 3}, {1, 3, 3, 2, 1, 4});
  EXPECT_EQ(V("arg_max", "axis=1 keepdims=0", {x}), (Values{1, 0}));
  EXPECT_EQ(V("arg_max", "axis=-1 keepdims=0 select_last_index=1", {x}), (Values{2, 2}));
  EXPECT_EQ(V("arg_max", "axis=0", {whole}), (Values{1, 0, 1}));
  EXPECT_EQ(V("arg_min", "axis=1 keepdims=0", {x}), (Values{0, 1}));
  EXPECT_EQ(V("arg_min", "axis=-2", {whole}), (Values{0, 1, 0}));
  EXPECT_EQ(V("arg_min", "select_last_index=1", {Longs({3}, {1, 1, 2})}), (Values{1}));
  NDArray bytes(DType::kU8, {3});
  for (int64_t i = 0; i < 3; ++i) bytes.Set(i, static_cast<double>(i * 127));
  EXPECT_EQ(V("arg_min", "", {bytes}), (Values{0}));
  EXPECT_EQ(V("arg_max", "", {bytes}), (Values{2}));
}

TEST(Values, ArgMaxAndArgMinTakeWhatIsNoNumberForInfinite) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const NDArray x = Floats({1, 4}, {1, nan, 5, nan}), y = Floats({1, 3}, {infinity, nan, -infinity});
  EXPECT_EQ(V("arg_max", "axis=1", {x}), (Values{1}));
  EXPECT_EQ(V("arg_min", "axis=1", {x}), (Values{1}));
  EXPECT_EQ(V("arg_max", "axis=1 select_last_index=1", {x}), (Values{3}));
  EXPECT_EQ(V("arg_max", "axis=1", {y}), (Values{0}));
  EXPECT_EQ(V("arg_min", "axis=1", {y}), (Values{1}));
}

TEST(Values, SoftmaxSurvivesLargeArguments) {
  Values p = V("softmax", "axis=-1", {Floats({1, 2}, {1000, 1000})});
  EXPECT_EQ(p, (Values{0.5, 0.5}));
  EXPECT_NEAR(V("log_softmax", "axis=-1", {Floats({1, 2}, {1000, 1001})})[0], -1.3132617, 1e-6);
  EXPECT_NEAR(V("log_softmax", "axis=-1", {Floats({1, 2}, {1e6, 1e6 + 1})})[0], -1.3132617, 1e-6);
}

TEST(Values, Norms) {
  NDArray x = Floats({1, 2, 2}, {1, 3, 10, 30});
  EXPECT_EQ(V("layer_norm", "epsilon=0.0", {x, Floats({2}, {1, 2}), Floats({2}, {0, 5})}), (Values{-1, 7, -1, 7}));
  EXPECT_EQ(V("group_norm", "epsilon=0.0", {x, Floats({2}, {1, 2}), Floats({2}, {0, 5})}), (Values{-1, 1, 3, 7}));
  NDArray pairs = Floats({1, 4, 1}, {1, 3, 10, 30});
  EXPECT_EQ(V("group_norm", "groups=2 epsilon=0.0", {pairs, Floats({4}, {1, 2, 3, 4}), Floats({4}, {0, 5, 0, 1})}),
            (Values{-1, 7, -3, 5}));
  EXPECT_EQ(V("batch_norm", "epsilon=0.0",
              {x, Floats({2}, {1, 2}), Floats({2}, {0, 5}), Floats({2}, {1, 20}), Floats({2}, {4, 100})}),
            (Values{0, 1, 3, 7}));
}

TEST(Values, GatherCountsFromTheEndAndNeverReadsOutside) {
  EXPECT_EQ(V("gather_elements", "axis=1", {Floats({2, 3}, {10, 20, 30, 40, 50, 60}), Longs({2, 2}, {-1, 0, 99, -99})}),
            (Values{30, 10, 60, 40}));
  EXPECT_EQ(V("gather", "", {Floats({3}, {10, 20, 30}), Longs({5}, {0, -1, 2, 99, -99})}),
            (Values{10, 30, 30, 30, 10}));
}

// Two boxes of which the first covers a third of what both cover, one that touches the second, and one far away.
TEST(Values, BoxesThatOverlapABetterOneAreGone) {
  const NDArray boxes = Floats({1, 4, 4}, {0, 1, 3, 9, 0, 0, 0, 9, 2, 3, 4, 10, 1, 1, 1, 10});
  const NDArray scores = Floats({1, 2, 4}, {1, 3, 3, 2, 5, 4, 3, 0});
  EXPECT_EQ(V("non_max_suppression", "k=4", {boxes, scores, Floats({1}, {0.3}), Floats({1}, {0})}),
            (Values{1, 2, 3, -1, 0, 2, -1, -1}));
  EXPECT_EQ(V("non_max_suppression", "k=4", {boxes, scores, Floats({1}, {0.4}), Floats({1}, {0})}),
            (Values{1, 2, 3, 0, 0, 1, 2, -1}));
  EXPECT_EQ(V("non_max_suppression", "k=1", {boxes, scores, Floats({1}, {0.4}), Floats({1}, {3})}), (Values{-1, 0}));
}

TEST(Values, FirstElementsSumsAndUpdates) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const NDArray x = Floats({6}, {3, 5, kNan, 3, -1, 5});
  EXPECT_EQ(V("top_k", "k=4", {x}), (Values{2, 1, 5, 0}));
  EXPECT_EQ(V("top_k", "k=6 largest=0", {x}), (Values{4, 0, 3, 1, 5, 2}));
  const NDArray y = Floats({4}, {1, 2, 4, 8});
  EXPECT_EQ(V("cum_sum", "", {y}), (Values{1, 3, 7, 15}));
  EXPECT_EQ(V("cum_sum", "exclusive=1", {y}), (Values{0, 1, 3, 7}));
  EXPECT_EQ(V("cum_sum", "reverse=1", {y}), (Values{15, 14, 12, 8}));
  EXPECT_EQ(V("cum_sum", "reverse=1 exclusive=1", {y}), (Values{14, 12, 8, 0}));
  // The last update of a place stays; those of no place are dropped.
  const NDArray at = Longs({5}, {1, -1, 4, 1, 0}), updates = Floats({5}, {10, 20, 30, 40, 50});
  EXPECT_EQ(V("scatter", "", {y, at, updates}), (Values{50, 40, 4, 8}));
  EXPECT_EQ(V("scatter_reduce", "reduction='sum'", {y, at, updates}), (Values{51, 52, 4, 8}));
  EXPECT_EQ(V("scatter_reduce", "reduction='product'", {y, at, updates}), (Values{50, 800, 4, 8}));
  EXPECT_EQ(V("scatter_reduce", "reduction='least'", {y, at, updates}), (Values{1, 2, 4, 8}));
  EXPECT_EQ(V("scatter_reduce", "reduction='largest'", {y, at, updates}), (Values{50, 40, 4, 8}));
}

TEST(Values, SliceAndPad) {
  NDArray x = Floats({4}, {0, 1, 2, 3});
  EXPECT_EQ(V("slice", "starts=[-1] ends=[-100] steps=[-1]", {x}), (Values{3, 2, 1, 0}));
  EXPECT_EQ(V("slice", "starts=[3] ends=[0] steps=[-2]", {x}), (Values{3, 1}));
  EXPECT_EQ(V("slice", "starts=[-9] ends=[-8] steps=[-1]", {x}), (Values{0}));
  EXPECT_EQ(V("slice", "starts=[-9] ends=[-8]", {x}), (Values{}));
  EXPECT_EQ(V("pad", "pads=[2,1] value=7.0", {x}), (Values{7, 7, 0, 1, 2, 3, 7}));
  EXPECT_EQ(V("pad", "pads=[2,1] mode='reflect'", {x}), (Values{2, 1, 0, 1, 2, 3, 2}));
  EXPECT_EQ(V("pad", "pads=[2,1] mode='edge'", {x}), (Values{0, 0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(V("pad", "pads=[-1,1]", {x}), (Values{1, 2, 3, 0}));
}

TEST(Values, DepthToSpace) {
  NDArray x = Floats({1, 8, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(V("depth_to_space", "blocksize=2", {x}), (Values{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(V("depth_to_space", "blocksize=2 mode='CRD'", {x}), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(V("depth_to_space", "blocksize=1 width=4", {x}), (Values{0, 2, 4, 6, 1, 3, 5, 7}));
}

TEST(Values, CompactLaysWhatIsBeforeTheExtentOneLineBehindAnother) {
  const NDArray x = Floats({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto compact = [&](int64_t extent, const char* attrs) {
    NDArray count(DType::kI64, {});
    count.as<int64_t>()[0] = extent;
    return V("compact", attrs, {x, count});
  };
  EXPECT_EQ(compact(2, "axis=1"), (Values{1, 2, 3, 4, 7, 8, 9, 10, 0, 0, 0, 0}));
  EXPECT_EQ(compact(1, "axis=2"), (Values{1, 3, 5, 7, 9, 11, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(compact(1, "axis=0"), (Values{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(compact(-3, "axis=1"), Values(12));
  EXPECT_EQ(compact(99, "axis=1"), (Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(Values, UnfoldPlanesLaysTheWindowsPlanesBesideEachOtherByGroups) {
  // Two volumes of two planes of two channels of one pixel.
  const NDArray x = Floats({4, 2, 1, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(V("unfold_planes", "depth=2 taps=2 pads=[1,0]", {x}),
            (Values{0, 0, 1, 2, 1, 2, 3, 4, 0, 0, 5, 6, 5, 6, 7, 8}));
  EXPECT_EQ(V("unfold_planes", "depth=2 taps=2 pads=[1,0] group=2", {x}),
            (Values{0, 1, 0, 2, 1, 3, 2, 4, 0, 5, 0, 6, 5, 7, 6, 8}));
  EXPECT_EQ(V("unfold_planes", "depth=4 taps=2 stride=2 dilation=3 pads=[1,1]", {x}), (Values{0, 0, 5, 6, 3, 4, 0, 0}));
}

TEST(Values, Resize) {
  NDArray x = Floats({2}, {1, 3});
  EXPECT_EQ(V("resize", "sizes=[4] mode='linear'", {x}), (Values{1, 1.5, 2.5, 3}));
  EXPECT_EQ(V("resize", "sizes=[3] mode='linear' coordinate_transformation_mode='align_corners'", {x}),
            (Values{1, 2, 3}));
  EXPECT_EQ(V("resize", "sizes=[4] coordinate_transformation_mode='asymmetric' nearest_mode='floor'", {x}),
            (Values{1, 1, 3, 3}));
  NDArray y = Floats({4}, {0, 1, 2, 3});
  EXPECT_EQ(V("resize", "sizes=[2]", {y}), (Values{0, 2}));
  EXPECT_EQ(V("resize", "sizes=[2] nearest_mode='round_prefer_ceil'", {y}), (Values{1, 3}));
}

TEST(Values, Reductions) {
  NDArray x = Floats({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(V("reduce_mean", "axes=[0] keepdims=0", {x}), (Values{2, 3}));
  EXPECT_EQ(V("reduce_prod", "", {x}), (Values{24}));
  EXPECT_EQ(V("reduce_l2", "axes=[1]", {Floats({1, 2}, {3, 4})}), (Values{5}));
  EXPECT_EQ(V("reduce_max", "axes=[-1]", {Longs({1, 3}, {-5, -7, -6})}), (Values{-5}));
  EXPECT_EQ(V("reduce_mean", "", {Longs({3}, {-1, -2, -2})}), (Values{-1}));
}

}  // namespace
}  // namespace temper
