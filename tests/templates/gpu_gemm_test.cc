// "gpu.gemm": dense layers and batched products of any sizes, with what is fused around them.
#include <array>

#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

TEST(GpuGemm, Shapes) {
  const char* texts[] = {
      "(f32[37,50], const f32[50,70], const f32[70]) matmul(0,1) -> f32[37,70]; add(3,2) -> f32[37,70]; anchor=0",
      "(f32[1,52], const f32[52,19]) matmul(0,1) -> f32[1,19]; anchor=0",
      "(f32[2,9,17], f32[2,23,17]) matmul(0,1; trans_b=1) -> f32[2,9,23]; anchor=0",
      "(f32[1,1], f32[1,1]) matmul(0,1) -> f32[1,1]; anchor=0",
      "(f32[33,8], f32[8,32], f32[33,32]) matmul(0,1) -> f32[33,32]; add(3,2) -> f32[33,32]; relu(4) -> f32[33,32]; "
      "anchor=0",
      "(f32[20,24], f32[20,36]) matmul(0,1; trans_a=1) -> f32[24,36]; anchor=0",
      "(f32[2,3,8,12], f32[2,3,12,8]) matmul(0,1) -> f32[2,3,8,8]@0213; anchor=0",
  };
  uint64_t seed = 1;
  for (const char* text : texts) ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(text), 3, seed++, "gpu.gemm"));
}

std::string MatrixText(int64_t batch, int64_t rows, int64_t columns, bool turned) {
  if (turned) std::swap(rows, columns);
  return batch == 0 ? absl::StrCat("f32[", rows, ",", columns, "]")
                    : absl::StrCat("f32[", batch, ",", rows, ",", columns, "]");
}

std::string MatmulText(int64_t batch, int64_t m, int64_t n, int64_t k, bool constant, bool trans_a, bool trans_b) {
  return absl::StrCat("(", MatrixText(batch, m, k, trans_a), ", ", constant ? "const " : "",
                      MatrixText(batch, k, n, trans_b), ", f32[", n, "], ", MatrixText(batch, m, n, false),
                      ") matmul(0,1; trans_a=", trans_a ? 1 : 0, " trans_b=", trans_b ? 1 : 0, ") -> ",
                      MatrixText(batch, m, n, false), "; add(4,2) -> ", MatrixText(batch, m, n, false),
                      "; mul(5,3) -> ", MatrixText(batch, m, n, false), "; anchor=0");
}

// Sizes that fill no tile, and such as fill vectors and tiles.
TEST(GpuGemm, AnySizes) {
  Rng rng(7);
  const auto size = [&] { return rng.Below(2) == 0 ? 1 + rng.Below(40) : 4 * (1 + rng.Below(9)); };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int64_t batch = rng.Below(3), m = size(), n = size(), k = size();
    const bool constant = batch == 0 && rng.Below(2) == 0;
    const std::string text = MatmulText(batch, m, n, k, constant, rng.Below(3) == 0, rng.Below(3) == 0);
    ASSERT_NO_FATAL_FAILURE(CheckOnGpus(Parse(text), 3, seed, "gpu.gemm"));
  }
}

// In every number of parts, whose last may be short, with results that vectors can not add up and with such as they
// can.
TEST(GpuGemm, SplitReductions) {
  const Target t = ParseTarget("cuda:sm_80").value();
  uint64_t seed = 1;
  for (const std::string& text :
       {MatmulText(0, 5, 12, 126, true, false, false), MatmulText(2, 7, 9, 127, false, true, true),
        std::string("(f32[2,3,8,62], f32[2,3,62,8]) matmul(0,1) -> f32[2,3,8,8]@0213; anchor=0")}) {
    const Workload w = Parse(text);
    const std::vector<Config> all = FindTemplate("gpu.gemm")->space(w, t).Enumerate(4096, seed);
    for (const int64_t split : {2, 4, 8, 16}) {
      const auto config = std::ranges::find_if(all, [&](const Config& c) { return c["split"] == split; });
      ASSERT_NE(config, all.end()) << split;
      ASSERT_NO_FATAL_FAILURE(CheckOnGpu(w, "gpu.gemm", *config, t, seed++));
      const Kernel kernel = BuildKernel(w, "gpu.gemm", *config, t).value();
      EXPECT_EQ(ir::LaunchesOf(kernel.main).value().size(), 2u);
    }
  }
}

// However small, long or prime, and on whatever a GPU is.
TEST(GpuGemm, ThereIsAConfigForEverySize) {
  const int64_t sizes[][4] = {{0, 1, 1, 1},          {0, 1, 1000, 4096}, {0, 4096, 1, 4096}, {0, 997, 991, 983},
                              {0, 8192, 8192, 8192}, {12, 128, 64, 128}, {65535, 1, 1, 2},   {0, 1, 300000, 7},
                              {0, 3000000, 3, 1},    {0, 2, 2, 1 << 20}};
  for (const char* name : {"opencl", "opencl -local=1024 -wg=8", "opencl -wg=1", "cuda:sm_50", "cuda:sm_90"}) {
    const Target t = ParseTarget(name).value();
    for (const auto& s : sizes) {
      for (const bool constant : {false, true}) {
        const Workload w = Parse(MatmulText(s[0], s[1], s[2], s[3], constant && s[0] == 0, false, !constant));
        ASSERT_EQ(TemplatesFor(w, t).front()->name, "gpu.gemm");
        EXPECT_FALSE(FindTemplate("gpu.gemm")->space(w, t).Enumerate(2000).empty()) << name << " " << Text(w);
      }
    }
  }
}

TEST(GpuGemm, SpacesHaveHundredsToThousandsOfConfigs) {
  for (const Target& t : GpuTargets()) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1000, 2048}, {128, 768, 768}, {1024, 1024, 1024}}) {
      const int64_t legal =
          FindTemplate("gpu.gemm")->space(Parse(MatmulText(0, m, n, k, true, false, false)), t).Count().legal;
      EXPECT_GE(legal, 100) << m;
      EXPECT_LE(legal, 30000) << m;
    }
  }
}

TEST(GpuGemm, TheDefaultOfALargeProductIsALargeTile) {
  const Target t = ParseTarget("cuda -arch=sm_80 -local=49152 -wg=1024 -warp=32 -units=108").value();
  const Choice choice = DefaultChoice(Parse(MatmulText(0, 4096, 4096, 4096, true, false, false)), t).value();
  EXPECT_GE(choice.config["tm"] * choice.config["tn"], 16) << Text(choice.config);
  EXPECT_GE(choice.config["tm"] * choice.config["ty"] * choice.config["tn"] * choice.config["tx"], 64 * 64)
      << Text(choice.config);
}

TEST(GpuGemm, TheDefaultSplitsAReductionWhereTilesAreTooFew) {
  const Target t = ParseTarget("cuda -arch=sm_80 -local=49152 -wg=1024 -warp=32 -units=108").value();
  const auto split = [&](int64_t m, int64_t n, int64_t k) {
    return DefaultChoice(Parse(MatmulText(0, m, n, k, true, false, false)), t).value().config["split"];
  };
  EXPECT_GE(split(64, 64, 16384), 8);
  EXPECT_GE(split(128, 512, 4096), 2);
  EXPECT_EQ(split(4096, 4096, 4096), 1);
  EXPECT_EQ(split(64, 64, 64), 1) << "a second launch takes longer";
}

}  // namespace
}  // namespace temper
