// Sums and means over the pixels of large images: channels and pixels that fill no vector and no run, several images,
// and what is fused behind.
#include "compiler/ops/templates/templates.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

std::string Text(int64_t n, int64_t c, int64_t h, int64_t w, const char* op, bool keep, const char* order = "@0231") {
  const std::string out = absl::StrCat("f32[", n, ",", c, keep ? ",1,1]@0231" : "]");
  return absl::StrCat("(f32[", n, ",", c, ",", h, ",", w, "]", order, ", ", out, ") ", op,
                      "(0; axes=[2,3] keepdims=", keep ? 1 : 0, ") -> ", out, "; mul(2,1) -> ", out, "; anchor=0");
}

TEST(ReducePixelsTest, RandomShapes) {
  Rng rng(9);
  for (uint64_t seed = 0; seed < 8 && !::testing::Test::HasFatalFailure(); ++seed) {
    const Workload w = Parse(Text(1 + rng.Below(2), 1 + rng.Below(150), 23 + rng.Below(9), 23 + rng.Below(9),
                                  seed % 2 == 0 ? "reduce_mean" : "reduce_sum", seed % 4 < 2));
    ASSERT_EQ(TemplatesFor(w, Target{}), std::vector<const TemplateDef*>{FindTemplate("reduce.pixels")});
    CheckAll(w, 3, seed);
  }
}

TEST(ReducePixelsTest, WholeVectorsAndRuns) {
  CheckAll(Parse(Text(1, 32, 32, 32, "reduce_mean", true)), 2, 1);
  CheckAll(Parse(Text(2, 96, 24, 32, "reduce_mean", false)), 3, 2);
}

TEST(ReducePixelsTest, FitsLargeImagesWithChannelsLast) {
  const CpuTemplate def = ReducePixels();
  EXPECT_TRUE(def.matches(Parse(Text(1, 32, 32, 16, "reduce_mean", true))));
  EXPECT_FALSE(def.matches(Parse(Text(1, 32, 14, 14, "reduce_mean", true))));
  EXPECT_FALSE(def.matches(Parse(Text(1, 32, 32, 16, "reduce_max", true))));
  EXPECT_FALSE(def.matches(Parse(Text(1, 32, 32, 16, "reduce_mean", true, ""))));
  EXPECT_FALSE(
      def.matches(Parse("(f32[1,32,32,16]@0231) reduce_mean(0; axes=[1,2] keepdims=1) -> f32[1,1,1,16]; "
                        "anchor=0")));
}

}  // namespace
}  // namespace temper
