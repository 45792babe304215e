// "attention.rows": chunks that rows do not fill, panels that keys and values do not fill, whole heads, masks, and
// operands as models lay them.
#include <cmath>

#include "tests/templates/attention_cases.h"
#include "tests/templates/check_templates.h"

namespace temper {
namespace {

constexpr std::string_view kName = "attention.rows";

TEST(AttentionRows, AsModelsHaveIt) {
  uint64_t seed = 1;
  for (const char* text : kAttentions) {
    const Workload w = Parse(text);
    ASSERT_EQ(TemplatesFor(w, Target{}).front()->name, kName);
    CheckAll(w, 6, seed++);
  }
}

TEST(AttentionRows, RandomShapes) {
  Rng rng(7);
  for (uint64_t seed = 0; seed < 12 && !::testing::Test::HasFatalFailure(); ++seed) {
    const int64_t heads = 1 + rng.Below(3), rows = 1 + rng.Below(90), keys = 1 + rng.Below(150);
    const int64_t depth = 1 + rng.Below(40), width = 1 + rng.Below(40);
    const std::string scores = absl::StrCat("f32[", heads, ",", rows, ",", keys, "]");
    CheckAll(
        Parse(absl::StrCat("(f32[", heads, ",", rows, ",", depth, "], f32[", heads, ",", keys, ",", depth, "], f32[",
                           rows, ",", keys, "], f32[", heads, ",", keys, ",", width, "]) matmul(0,1; trans_b=1) -> ",
                           scores, "; add(4,2) -> ", scores, "; softmax(5; axis=2) -> ", scores,
                           "; matmul(6,3) -> f32[", heads, ",", rows, ",", width, "]; anchor=3")),
        3, seed);
  }
}

// Rows a multiple of 4 KiB apart, and several chunks of several tiles.
TEST(AttentionRows, LongRows) {
  CheckAll(Parse("(f32[2,50,16], f32[2,1024,16], f32[2,1024,16]) matmul(0,1; trans_b=1) -> f32[2,50,1024]; "
                 "softmax(3; axis=2) -> f32[2,50,1024]; matmul(4,2) -> f32[2,50,16]; anchor=2"),
           4, 3);
}

TEST(AttentionRows, MaskedRows) {
  const Workload w = Parse(kMaskedAttention);
  Rng rng(3);
  std::vector<NDArray> inputs = RandomInputs(w, rng);
  SetMask(inputs);
  const NDArray wanted = RunReference(w, inputs).value();
  for (const Target& t : Targets()) {
    for (const char* config : {"mr=4,nv=2,vv=1,tiles=2", "mr=2,nv=1,vv=1,tiles=0"}) {
      SCOPED_TRACE(absl::StrCat(config, " ", Text(t)));
      const Kernel kernel = BuildKernel(w, kName, ParseConfig(config).value(), t).value();
      const NDArray got = RunKernel(w, kernel, t, inputs).value();
      for (int64_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(std::isnan(got.At(i)), IsMaskedRow(i / 8)) << i;
        if (!std::isnan(got.At(i))) {
          EXPECT_NEAR(got.At(i), wanted.At(i), 1e-5) << i;
        }
      }
    }
  }
}

// Other types and what is no attention have kernels of their own.
TEST(AttentionRows, IsForWhatItComputes) {
  const std::string plain = kAttentions[0];
  const auto fits = [](const std::string& text) { return FindTemplate(kName)->matches(Parse(text), Target{}); };
  EXPECT_TRUE(fits(plain));
  EXPECT_FALSE(
      fits("(f16[2,9,8], f16[2,9,8], f16[2,9,8]) matmul(0,1; trans_b=1) -> f16[2,9,9]; softmax(3; axis=2) -> "
           "f16[2,9,9]; matmul(4,2) -> f16[2,9,8]; anchor=2"));
  EXPECT_FALSE(fits("(f32[2,9,9], f32[2,9,9]) matmul(0,1) -> f32[2,9,9]; softmax(2; axis=2) -> f32[2,9,9]; anchor=0"));
}

// The longest rows there are have a config, however small the caches.
TEST(AttentionRows, AnyCacheHasConfigs) {
  Target t = ParseTarget("llvm:nehalem").value();
  t.cpu()->l1_bytes = t.cpu()->l2_bytes = 4096;
  const Workload w = Parse(
      "(f32[1,3,8], f32[1,100000,8], f32[1,100000,8]) matmul(0,1; trans_b=1) -> f32[1,3,100000]; softmax(3; axis=2) -> "
      "f32[1,3,100000]; matmul(4,2) -> f32[1,3,8]; anchor=2");
  const Choice choice = DefaultChoice(w, t).value();
  EXPECT_EQ(choice.def->name, kName);
  EXPECT_TRUE(BuildKernel(w, kName, choice.config, t).ok());
}

}  // namespace
}  // namespace temper
