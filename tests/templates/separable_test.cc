// A depthwise and a pointwise convolution in one kernel, of random shapes: strips of several rows, tiles that cross
// them, borders, strides, channels that fill no vector, and what is fused between and behind the two.
#include "compiler/ops/templates/templates.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

struct SeparableShapes {
  int64_t n, c, h, w, oc, taps, stride, dilation;
  int64_t pad() const { return dilation * (taps - 1) / 2; }
  int64_t Out(int64_t in) const { return (in + 2 * pad() - dilation * (taps - 1) - 1) / stride + 1; }
};

std::string SeparableText(const SeparableShapes& s, const char* x_type = "@0231", const char* activation = "relu") {
  const std::string hw = absl::StrCat(s.Out(s.h), ",", s.Out(s.w), "]@0231");
  const std::string mid = absl::StrCat("f32[", s.n, ",", s.c, ",", hw);
  const std::string out = absl::StrCat("f32[", s.n, ",", s.oc, ",", hw);
  return absl::StrCat("(f32[", s.n, ",", s.c, ",", s.h, ",", s.w, "]", x_type, ", const f32[", s.c, ",1,", s.taps, ",",
                      s.taps, "], const f32[", s.c, ",1,1], const f32[", s.oc, ",", s.c, ",1,1], const f32[", s.oc,
                      ",1,1], ", out, ") conv2d(0,1; dilations=[", s.dilation, ",", s.dilation, "] group=", s.c,
                      " pads=[", s.pad(), ",", s.pad(), ",", s.pad(), ",", s.pad(), "] strides=[", s.stride, ",",
                      s.stride, "]) -> ", mid, "; add(6,2) -> ", mid, "; ", activation, "(7) -> ", mid,
                      "; conv2d(8,3; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1]) -> ", out, "; add(9,4) -> ",
                      out, "; add(10,5) -> ", out, "; ", activation, "(11) -> ", out, "; anchor=3");
}

TEST(SeparableTest, RandomShapes) {
  Rng rng(5);
  for (uint64_t seed = 0; seed < 10 && !::testing::Test::HasFatalFailure(); ++seed) {
    SeparableShapes s{1 + rng.Below(2),  2 + rng.Below(50),    1 + rng.Below(16), 1 + rng.Below(16),
                      1 + rng.Below(70), 1 + 2 * rng.Below(3), 1 + rng.Below(2),  1 + rng.Below(2)};
    CheckAll(Parse(SeparableText(s, "@0231", seed % 2 == 0 ? "relu" : "silu")), 3, seed);
  }
}

// Heights that strips of several rows divide, and rows that no tile divides.
TEST(SeparableTest, ShapesOfNetworks) {
  uint64_t seed = 50;
  for (int64_t size : {14, 28}) {
    for (int64_t stride : {1, 2}) CheckAll(Parse(SeparableText({1, 48, size, size - 1, 24, 3, stride, 1})), 4, seed++);
  }
}

TEST(SeparableTest, FitsThePairAlone) {
  const TemplateDef* def = FindTemplate("conv2d.separable");
  const Workload pair = Parse(SeparableText({1, 32, 8, 8, 16, 3, 1, 1}));
  ASSERT_EQ(TemplatesFor(pair, Target{}).size(), 1u);
  EXPECT_EQ(TemplatesFor(pair, Target{})[0], def);
  EXPECT_FALSE(SeparableConv2d().matches(Parse(AnchorText(pair))));
  EXPECT_FALSE(SeparableConv2d().matches(Parse(SeparableText({1, 32, 8, 8, 16, 3, 1, 1}, ""))))
      << "an input in another order";
}

}  // namespace
}  // namespace temper
