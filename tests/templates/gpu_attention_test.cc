// "gpu.attention": rows and heads of any length, masks, operands as models lay them, types, what is fused around it.
#include "absl/strings/str_replace.h"
#include "tests/templates/attention_cases.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

constexpr const char* kOtherTypes[] = {
    "(f16[2,17,16], f16[2,33,16], f16[33], f16[2,33,24]) matmul(0,1; trans_b=1) -> f16[2,17,33]; add(4,2) -> "
    "f16[2,17,33]; softmax(5; axis=2) -> f16[2,17,33]; matmul(6,3) -> f16[2,17,24]; anchor=3",
    "(bf16[3,6,16], bf16[3,12,16], bf16[3,12,24]) matmul(0,1; trans_b=1) -> bf16[3,6,12]; softmax(3; axis=2) -> "
    "bf16[3,6,12]; matmul(4,2) -> bf16[3,6,24]; anchor=2",
    // Softmax in f32 between products of f16.
    "(f16[2,11,16], f16[2,16,13], f16[2,13,24]) matmul(0,1) -> f16[2,11,13]; cast(3; to='f32') -> f32[2,11,13]; "
    "softmax(4; axis=2) -> f32[2,11,13]; cast(5; to='f16') -> f16[2,11,13]; matmul(6,2) -> f16[2,11,24]; anchor=4",
};

TEST(GpuAttention, Shapes) {
  uint64_t seed = 1;
  for (const char* text : kAttentions) ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(text), 3, seed++, "gpu.attention"));
  for (const char* text : kOtherTypes) ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(text), 3, seed++, "gpu.attention"));
}

// By tensor cores, too.
constexpr const char* kNarrow[] = {
    "(f16[2,17,16], f16[2,33,16], f16[33], f16[2,33,24]) matmul(0,1; trans_b=1) -> f16[2,17,33]; add(4,2) -> "
    "f16[2,17,33]; softmax(5; axis=2) -> f16[2,17,33]; matmul(6,3) -> f16[2,17,24]; anchor=3",
    "(f16[1,3,77,32]@0213, f16[1,3,32,77]@0312, const f16[], f16[1,1,77,77], f16[1,3,77,32]@0213) matmul(0,1) -> "
    "f16[1,3,77,77]; mul(5,2) -> f16[1,3,77,77]; add(6,3) -> f16[1,3,77,77]; softmax(7; axis=3) -> f16[1,3,77,77]; "
    "matmul(8,4) -> f16[1,3,77,32]@0213; relu(9) -> f16[1,3,77,32]@0213; anchor=4",
    "(bf16[5,4,20,8]@2013, bf16[5,4,10,8]@2013, const bf16[], bf16[5,4,10,8]@2013) matmul(0,1; trans_b=1) -> "
    "bf16[5,4,20,10]; mul(4,2) -> bf16[5,4,20,10]; softmax(5; axis=3) -> bf16[5,4,20,10]; matmul(6,3) -> "
    "bf16[5,4,20,8]@2013; anchor=3",
    "(f16[2,50,64], f16[2,64,197], f16[2,197,40]) matmul(0,1) -> f16[2,50,197]; softmax(3; axis=2) -> "
    "f16[2,50,197]; matmul(4,2) -> f16[2,50,40]; anchor=2",
    // Softmax in f32 between products of f16.
    "(f16[2,11,16], f16[2,16,13], f16[2,13,24]) matmul(0,1) -> f16[2,11,13]; cast(3; to='f32') -> f32[2,11,13]; "
    "softmax(4; axis=2) -> f32[2,11,13]; cast(5; to='f16') -> f16[2,11,13]; matmul(6,2) -> f16[2,11,24]; anchor=4",
};

TEST(GpuAttentionMma, Shapes) { CheckDraws("gpu.attention_mma", kNarrow, ParseTarget("cuda:sm_80").value(), 3); }

// What warps multiply lies in different banks. Some of what they read of scores meets, and what few threads reduce.
TEST(GpuAttentionMma, FewBankConflicts) {
  const Target t = ParseTarget("cuda:sm_80").value();
  uint64_t seed = 7;
  ir::SharedTraffic traffic;
  for (const char* text : kNarrow) {
    const Workload w = Parse(text);
    for (const Config& config : DrawConfigs("gpu.attention_mma", w, t, 2, ++seed))
      ASSERT_NO_FATAL_FAILURE(CountTraffic("gpu.attention_mma", w, config, t, seed, traffic));
  }
  EXPECT_GT(traffic.requests, 0);
  EXPECT_LE(traffic.conflicts, traffic.requests / 10);
}

TEST(GpuAttention, MaskedRows) {
  const Workload w = Parse(kMaskedAttention);
  Rng rng(3);
  std::vector<NDArray> inputs = RandomInputs(w, rng);
  SetMask(inputs);
  CheckOnGpus(w, 4, 9, "gpu.attention", inputs);
}

bool Fits(const std::string& text, const char* target = "cuda:sm_90") {
  const Workload w = Parse(text);
  return FindTemplate("gpu.attention")->matches(w, ParseTarget(target).value());
}

// Between the products: any calls of the scores' shape. Not: what would read more than the element at hand.
TEST(GpuAttention, IsForWhatItComputes) {
  const std::string plain =
      "(f32[2,9,8], f32[2,9,8], f32[2,9,8]) matmul(0,1; trans_b=1) -> f32[2,9,9]; softmax(3; axis=2) -> f32[2,9,9]; "
      "matmul(4,2) -> f32[2,9,8]; anchor=2";
  const auto with = [&](const char* from, const char* to) { return absl::StrReplaceAll(plain, {{from, to}}); };
  EXPECT_TRUE(Fits(plain));
  EXPECT_TRUE(Fits(plain, "opencl"));
  EXPECT_FALSE(Fits(plain, "llvm:haswell"));
  EXPECT_TRUE(Fits(with("f32", "bf16")));
  EXPECT_FALSE(Fits(with("f32", "f64")));
  EXPECT_FALSE(Fits(with("axis=2", "axis=1")));
  EXPECT_FALSE(Fits(with("softmax", "log_softmax")));
  EXPECT_FALSE(Fits(with("f32[2,9,8], f32[2,9,8])", "f32[2,9,8], const f32[2,9,8])"))) << "values known beforehand";
  EXPECT_FALSE(Fits(with("anchor=2", "anchor=0")));
  EXPECT_FALSE(Fits(with("anchor=2", "anchor=1")));
  EXPECT_FALSE(Fits(with("matmul(0,1; trans_b=1)", "matmul(0,0; trans_b=1)"))) << "of one operand twice";
  EXPECT_FALSE(
      Fits("(f32[2,9,9], f32[2,9,9], f32[2,9,9]) matmul(0,1) -> f32[2,9,9]; softmax(3; axis=2) -> f32[2,9,9]; "
           "matmul(4,2) -> f32[2,9,9]; add(5,3) -> f32[2,9,9]; anchor=2"))
      << "scores are not there any more";
  EXPECT_FALSE(
      Fits("(f32[2,9,9], f32[2,9,9], f32[2,9,9]) matmul(0,1) -> f32[2,9,9]; softmax(3; axis=2) -> f32[2,9,9]; "
           "mul(4,3) -> f32[2,9,9]; matmul(5,2) -> f32[2,9,9]; anchor=3"));
  EXPECT_FALSE(
      Fits("(f32[2,9,9], f32[2,9,9], f32[2,9,9]) matmul(0,1) -> f32[2,9,9]; transpose(3; perm=[0,2,1]) -> "
           "f32[2,9,9]; softmax(4; axis=2) -> f32[2,9,9]; matmul(5,2) -> f32[2,9,9]; anchor=3"));
}

std::string OfKeys(int64_t keys) {
  return absl::StrCat("(f32[2,9,8], f32[2,", keys, ",8], f32[2,", keys, ",8]) matmul(0,1; trans_b=1) -> f32[2,9,", keys,
                      "]; softmax(3; axis=2) -> f32[2,9,", keys, "]; matmul(4,2) -> f32[2,9,8]; anchor=2");
}

// A row of scores has to be in the memory of a group; then there is a config, even for a small device.
TEST(GpuAttention, RowsFitSharedMemory) {
  EXPECT_TRUE(Fits(OfKeys(20000), "cuda -arch=sm_90 -local=232448 -wg=1024 -warp=32 -units=132"));
  EXPECT_FALSE(Fits(OfKeys(60000), "cuda -arch=sm_90 -local=232448 -wg=1024 -warp=32 -units=132"));
  for (const char* name : {"opencl", "opencl -local=4096 -wg=24", "opencl -local=4096 -wg=1", "cuda:sm_90"}) {
    const Target t = ParseTarget(name).value();
    for (const int64_t keys : {1, 100, 1000, 10000}) {
      const Workload w = Parse(OfKeys(keys));
      const TemplateDef& def = *FindTemplate("gpu.attention");
      if (!def.matches(w, t)) continue;
      const int64_t legal = def.space(w, t).Count().legal;
      EXPECT_GE(legal, 1) << name << " " << keys;
      EXPECT_LE(legal, 30000) << name << " " << keys;
      EXPECT_TRUE(BuildKernel(w, "gpu.attention", def.space(w, t).Enumerate(4096, 1).front(), t).ok());
    }
    EXPECT_TRUE(Fits(OfKeys(100), name));
  }
}

}  // namespace
}  // namespace temper
