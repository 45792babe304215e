// "gpu.mma": products of f16 and bf16 by instructions of warps.
#include <gmock/gmock.h>

#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

using testing::HasSubstr;

Target Ampere() { return ParseTarget("cuda:sm_80").value(); }

constexpr const char* kTexts[] = {
    "(f16[37,50], const f16[50,70], const f16[70]) matmul(0,1) -> f16[37,70]; add(3,2) -> f16[37,70]; anchor=0",
    "(bf16[64,96], const bf16[96,80]) matmul(0,1) -> bf16[64,80]; relu(2) -> bf16[64,80]; anchor=0",
    "(f16[2,9,16], f16[2,23,16]) matmul(0,1; trans_b=1) -> f16[2,9,23]; anchor=0",
    "(f16[40,24], f16[40,36]) matmul(0,1; trans_a=1) -> f16[24,36]; anchor=0",
    "(f16[2,3,24,64], f16[2,3,64,8]) matmul(0,1) -> f16[2,3,24,8]@0213; anchor=0",
    "(f16[1,52], const f16[52,19]) matmul(0,1) -> f16[1,19]; anchor=0",
    "(f16[1,16,9,7]@0231, const f16[40,16,3,3], const f16[40,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f16[1,40,9,7]@0231; "
    "add(3,2) -> f16[1,40,9,7]@0231; relu(4) -> f16[1,40,9,7]@0231; anchor=0",
    "(bf16[2,12,7,7]@0231, const bf16[18,6,3,3]) conv2d(0,1; dilations=[2,2] group=2 pads=[2,1,2,1] strides=[2,1]) -> "
    "bf16[2,18,4,5]@0231; anchor=0",
    "(f16[1,24,6,6]@0231, f16[16,24,1,1]) conv2d(0,1; strides=[2,2]) -> f16[1,16,3,3]@0231; anchor=0",
};

std::vector<Config> Draw(const Workload& w, size_t count, uint64_t seed) {
  std::vector<Config> all = FindTemplate("gpu.mma")->space(w, Ampere()).Enumerate(4096, seed), drawn;
  Rng rng(seed);
  for (size_t i = 0; i < std::min(count, all.size()); ++i)
    drawn.push_back(all[static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size())))]);
  return drawn;
}

TEST(GpuMma, Shapes) {
  uint64_t seed = 1;
  for (const char* text : kTexts) {
    const Workload w = Parse(text);
    ASSERT_TRUE(FindTemplate("gpu.mma")->matches(w, Ampere())) << text;
    for (const Config& config : Draw(w, 3, seed))
      ASSERT_NO_FATAL_FAILURE(CheckOnGpu(w, "gpu.mma", config, Ampere(), seed));
    ++seed;
  }
}

TEST(GpuMma, NoBankConflict) {
  uint64_t seed = 7;
  for (const char* text : kTexts) {
    const Workload w = Parse(text);
    for (const Config& config : Draw(w, 3, ++seed)) {
      const Kernel kernel = BuildKernel(w, "gpu.mma", config, Ampere()).value();
      Rng rng(seed);
      ir::SharedTraffic traffic;
      ASSERT_TRUE(RunWithPacks(w, kernel, RandomInputs(w, rng), [&](std::span<NDArray> args) {
                    return ir::Interpret(kernel.main, args, &traffic);
                  }).ok());
      EXPECT_GT(traffic.requests, 0);
      EXPECT_EQ(traffic.conflicts, 0) << Text(w) << "\n" << Text(config);
    }
  }
}

TEST(GpuMma, IsForWhatTensorCoresMultiply) {
  const auto templates = [](const char* text, const char* target) {
    std::string names;
    for (const TemplateDef* def : TemplatesFor(Parse(text), ParseTarget(target).value()))
      absl::StrAppend(&names, names.empty() ? "" : " ", std::string(def->name));
    return names;
  };
  const char* even = "(f16[64,64], f16[64,64]) matmul(0,1) -> f16[64,64]; anchor=0";
  for (const char* target : {"cuda:sm_80", "cuda:sm_90a", "cuda:sm_100", "cuda:sm_120"})
    EXPECT_EQ(templates(even, target), "gpu.mma") << target;
  for (const char* target : {"cuda:sm_75", "opencl"}) EXPECT_EQ(templates(even, target), "gpu.default") << target;
  EXPECT_EQ(templates("(f16[64,63], f16[63,64]) matmul(0,1) -> f16[64,64]; anchor=0", "cuda:sm_80"), "gpu.default");
  EXPECT_EQ(templates("(f32[64,64], f32[64,64]) matmul(0,1) -> f32[64,64]; anchor=0", "cuda:sm_80"), "gpu.gemm");
}

TEST(GpuMma, ThereIsAConfigForEverySize) {
  for (const char* text : {"(f16[1,2], const f16[2,1]) matmul(0,1) -> f16[1,1]; anchor=0",
                           "(f16[8192,8192], const f16[8192,8192]) matmul(0,1) -> f16[8192,8192]; anchor=0",
                           "(bf16[12,128,64], bf16[12,64,128]) matmul(0,1) -> bf16[12,128,128]; anchor=0",
                           "(f16[1,1048576], const f16[1048576,2]) matmul(0,1) -> f16[1,2]; anchor=0"}) {
    const int64_t legal = FindTemplate("gpu.mma")->space(Parse(text), Ampere()).Count().legal;
    EXPECT_GE(legal, 1) << text;
    EXPECT_LE(legal, 30000) << text;
  }
}

// Each barrier and each wait of a kernel is taken away in turn.
TEST(GpuMma, AMissingBarrierOrWaitIsFound) {
  const Workload w = Parse("(f16[32,128], const f16[128,32]) matmul(0,1) -> f16[32,32]; anchor=0");
  for (const Config& config : Draw(w, 4, 3)) {
    const Kernel kernel = BuildKernel(w, "gpu.mma", config, Ampere()).value();
    int count = 0;
    ir::VisitStmt(kernel.main.body, [&](const ir::Stmt& s) {
      count += s->kind == ir::StmtKind::kBarrier || s->instruction == ir::Instruction::kWaitCopies ? 1 : 0;
    });
    ASSERT_GT(count, 1);
    for (int taken = 0; taken < count; ++taken) {
      Kernel without = kernel;
      int seen = 0;
      without.main.body = ir::RewriteStmt(kernel.main.body, [&](const ir::Stmt& s) -> ir::Stmt {
        const bool waits = s->kind == ir::StmtKind::kBarrier || s->instruction == ir::Instruction::kWaitCopies;
        return waits && seen++ == taken ? ir::Seq({}) : nullptr;
      });
      Rng rng(5);
      EXPECT_FALSE(InterpretKernel(w, without, RandomInputs(w, rng)).ok()) << Text(config) << "\n"
                                                                           << ir::Text(without.main);
    }
  }
}

}  // namespace
}  // namespace temper
