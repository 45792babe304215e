// A pointwise and a depthwise convolution in one kernel, of random shapes: strips that see rows twice and rows outside
// the image, panels, strides, and what is fused between and behind the two.
#include "compiler/ops/templates/templates.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

struct ExpandedShapes {
  int64_t n, c, h, w, oc, taps, stride, dilation;
  int64_t pad() const { return dilation * (taps - 1) / 2; }
  int64_t Out(int64_t in) const { return (in + 2 * pad() - dilation * (taps - 1) - 1) / stride + 1; }
};

std::string ExpandedText(const ExpandedShapes& s, const char* x_type = "@0231", const char* activation = "relu") {
  const std::string mid = absl::StrCat("f32[", s.n, ",", s.oc, ",", s.h, ",", s.w, "]@0231");
  const std::string out = absl::StrCat("f32[", s.n, ",", s.oc, ",", s.Out(s.h), ",", s.Out(s.w), "]@0231");
  return absl::StrCat("(f32[", s.n, ",", s.c, ",", s.h, ",", s.w, "]", x_type, ", const f32[", s.oc, ",", s.c,
                      ",1,1], const f32[", s.oc, ",1,1], const f32[", s.oc, ",1,", s.taps, ",", s.taps, "], const f32[",
                      s.oc, ",1,1], ", out, ") conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[1,1]) -> ",
                      mid, "; add(6,2) -> ", mid, "; ", activation, "(7) -> ", mid, "; conv2d(8,3; dilations=[",
                      s.dilation, ",", s.dilation, "] group=", s.oc, " pads=[", s.pad(), ",", s.pad(), ",", s.pad(),
                      ",", s.pad(), "] strides=[", s.stride, ",", s.stride, "]) -> ", out, "; add(9,4) -> ", out,
                      "; add(10,5) -> ", out, "; ", activation, "(11) -> ", out, "; anchor=3");
}

TEST(ExpandedTest, RandomShapes) {
  Rng rng(6);
  for (uint64_t seed = 0; seed < 10 && !::testing::Test::HasFatalFailure(); ++seed) {
    ExpandedShapes s{1 + rng.Below(2),        1 + rng.Below(40),    1 + rng.Below(16), 1 + rng.Below(16),
                     16 * (1 + rng.Below(6)), 1 + 2 * rng.Below(3), 1 + rng.Below(2),  1 + rng.Below(2)};
    // The sigmoid of the value that padding has is not 0.
    CheckAll(Parse(ExpandedText(s, "@0231", seed % 2 == 0 ? "sigmoid" : "silu")), 3, seed);
  }
}

// Heights that strips of several rows divide.
TEST(ExpandedTest, ShapesOfNetworks) {
  uint64_t seed = 50;
  for (int64_t size : {14, 28}) {
    for (int64_t stride : {1, 2}) CheckAll(Parse(ExpandedText({1, 24, size, size, 96, 3, stride, 1})), 4, seed++);
  }
}

// However wide the image is, there are configs, and none of many rows needs more than L2 has.
TEST(ExpandedTest, StripsOfWideImagesAreLow) {
  const Target target;
  const CpuTarget& cpu = *target.cpu();
  for (const int64_t side : {16, 448, 8192}) {
    const Workload w = Parse(ExpandedText({1, 16, side, side, 64, 3, 1, 1}));
    const ConfigSpace space = ExpandedConv2d().space(w, cpu);
    const std::vector<Config> legal = space.Enumerate(4096);
    ASSERT_FALSE(legal.empty()) << side;
    for (const Config& c : legal) {
      const int64_t bytes = 4 * std::min(side, c["sh"] + 2) * side * c["nv"] * cpu.lanes();
      EXPECT_TRUE(c["sh"] == 1 || bytes <= cpu.l2_bytes) << Text(c);
    }
  }
}

TEST(ExpandedTest, FitsThePairAlone) {
  const TemplateDef* def = FindTemplate("conv2d.expanded");
  const ExpandedShapes shapes{1, 16, 8, 8, 32, 3, 1, 1};
  const Workload pair = Parse(ExpandedText(shapes));
  ASSERT_EQ(TemplatesFor(pair, Target{}).size(), 1u);
  EXPECT_EQ(TemplatesFor(pair, Target{})[0], def);
  EXPECT_FALSE(ExpandedConv2d().matches(Parse(AnchorText(pair))));
  EXPECT_FALSE(ExpandedConv2d().matches(Parse(ExpandedText(shapes, "")))) << "an input in another order";
  EXPECT_FALSE(ExpandedConv2d().matches(Parse(ExpandedText({1, 16, 8, 8, 24, 3, 1, 1}))))
      << "a panel would not be whole";
  std::string twice = ExpandedText({16, 16, 8, 8, 16, 3, 1, 1});
  EXPECT_TRUE(ExpandedConv2d().matches(Parse(twice)));
  twice.replace(twice.find("add(10,5)"), 9, "add(10,1)");
  EXPECT_FALSE(ExpandedConv2d().matches(Parse(twice))) << "a filter that another call reads, too";
}

}  // namespace
}  // namespace temper
