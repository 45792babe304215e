// "gpu.conv" and "gpu.depthwise": windows that hang over the image on any side, strides, dilations and groups.
#include <array>

#include "absl/strings/str_join.h"
#include "tests/templates/check_gpu.h"
#include "tests/templates/random_sides.h"

namespace temper {
namespace {

struct Convolution {
  int64_t n, c, oc, group;
  bool constant;
  Sides rows, columns;
  const char* type = "f32";
};

std::string Text(const Convolution& k) {
  const std::string t = k.type,
                    out = absl::StrCat(t, "[", k.n, ",", k.oc, ",", k.rows.out(), ",", k.columns.out(), "]@0231");
  return absl::StrCat("(", t, "[", k.n, ",", k.c, ",", k.rows.size, ",", k.columns.size, "]@0231, ",
                      k.constant ? "const " : "", t, "[", k.oc, ",", k.c / k.group, ",", k.rows.taps, ",",
                      k.columns.taps, "], ", t, "[", k.oc, ",1,1], ", out, ") conv2d(0,1; dilations=[", k.rows.dilation,
                      ",", k.columns.dilation, "] group=", k.group, " pads=[", k.rows.before, ",", k.columns.before,
                      ",", k.rows.after, ",", k.columns.after, "] strides=[", k.rows.stride, ",", k.columns.stride,
                      "]) -> ", out, "; add(4,2) -> ", out, "; add(5,3) -> ", out, "; relu(6) -> ", out, "; anchor=0");
}

TEST(GpuConv, AnyWindows) {
  Rng rng(1);
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Convolution k{1 + rng.Below(2), 0, 0, 1 + rng.Below(3), rng.Below(3) > 0, RandomSides(rng, 8), RandomSides(rng, 8)};
    k.c = k.group * (rng.Below(2) == 0 ? 4 * (1 + rng.Below(2)) : 1 + rng.Below(5));
    k.oc = k.group * (1 + rng.Below(12));
    if (k.group == k.c && k.c == k.oc && k.group > 1) k.oc = 2 * k.group;
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(Text(k)), 2, seed, "gpu.conv"));
  }
}

TEST(GpuDepthwise, AnyWindows) {
  Rng rng(2);
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Convolution k{1 + rng.Below(2), 0, 0, 0, rng.Below(3) > 0, RandomSides(rng, 9), RandomSides(rng, 9)};
    k.c = k.oc = k.group = rng.Below(2) == 0 ? 8 * (1 + rng.Below(3)) : 2 + rng.Below(20);
    k.type = std::array{"f32", "f16", "bf16"}[seed % 3];
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(Text(k)), 3, seed, "gpu.depthwise"));
  }
}

// ptxas takes seconds for a long tile whose elements all have an access of their own.
TEST(GpuDepthwise, UnrolledTilesAreOfALengthThatCompilesSoon) {
  const Sides seven = {56, 7, 1, 1, 3, 3};
  const Workload w = Parse(Text({1, 96, 96, 96, true, seven, seven}));
  const Target t = ParseTarget("cuda:sm_80").value();
  const auto legal = [&](const char* config) {
    return FindTemplate("gpu.depthwise")->space(w, t).Check(ParseConfig(config).value()).ok();
  };
  EXPECT_FALSE(legal("threads=64,th=4,tw=1,lanes=4"));
  EXPECT_TRUE(legal("threads=64,th=2,tw=1,lanes=4"));
  EXPECT_TRUE(legal("threads=64,th=4,tw=2,lanes=2")) << "it reads a row of the image once";
}

TEST(GpuConv, ThereIsAConfigForEverySize) {
  const Sides same = {224, 3, 1, 1, 1, 1}, one = {1, 1, 1, 1, 0, 0}, tap = {7, 7, 1, 1, 0, 0},
              prime = {13, 3, 2, 1, 0, 1};
  const Convolution sizes[] = {
      {1, 3, 64, 1, true, same, same},    {1, 1, 1, 1, true, one, one},          {1, 2048, 1000, 1, true, one, one},
      {8, 512, 512, 1, true, tap, tap},   {1, 101, 103, 1, false, prime, prime}, {1, 32, 64, 32, true, prime, prime},
      {1, 960, 960, 960, true, tap, tap}, {64, 31, 31, 31, false, same, same},   {1, 2, 2, 2, true, one, one}};
  for (const char* name : {"opencl", "opencl -local=1024 -wg=8", "cuda:sm_50", "cuda:sm_90"}) {
    const Target t = ParseTarget(name).value();
    for (const Convolution& k : sizes) {
      const Workload w = Parse(Text(k));
      const TemplateDef* def = TemplatesFor(w, t).front();
      EXPECT_EQ(def->name, k.group == k.c && k.c == k.oc && k.c > 1 ? "gpu.depthwise" : "gpu.conv");
      const int64_t legal = def->space(w, t).Count(1 << 14).legal;
      EXPECT_GE(legal, 1) << name << " " << Text(k);
      EXPECT_LE(legal, 30000) << name << " " << Text(k);
    }
  }
}

}  // namespace
}  // namespace temper
