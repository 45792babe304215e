// What NVRTC makes of the CUDA C++ that is generated. Skipped where there is no NVRTC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "compiler/codegen/cuda/code.h"
#include "compiler/codegen/cuda/generator.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/ops/templates/gpu_template.h"
#include "tests/conformance/shapes.h"
#include "tests/ir/toy_launches.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

using testing::HasSubstr;

constexpr size_t kConfigs = 10;  // of each template and architecture
constexpr uint64_t kSeed = 31;
constexpr const char* kArchs[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_100", "cuda:sm_120"};
constexpr const char* kTemplates[] = {"gpu.conv", "gpu.depthwise", "gpu.gemm", "gpu.mma", "gpu.reduce", "gpu.default"};

#define SKIP_WITHOUT_NVRTC() \
  if (const auto compiler = nvrtc::CompilerFor("sm_90"); !compiler.ok()) GTEST_SKIP() << compiler.status().message()

// What was compiled, and what its footprints said.
struct Program {
  std::vector<CodegenInput> inputs;
  std::vector<double> shared_bytes;  // of each
};

// The template's shapes; none where it is not for the target.
std::vector<Workload> WorkloadsOf(std::string_view name, const Target& target) {
  std::vector<Workload> workloads;
  for (const conformance::Shape& shape : conformance::kShapes) {
    const Workload w = Parse(std::string(shape.workload));
    if (shape.template_name == name && FindTemplate(name)->matches(w, target)) workloads.push_back(w);
  }
  return workloads;
}

// Configs for the template's shapes in turn.
Program ProgramOf(std::string_view name, const Target& target, Rng& rng) {
  Program program;
  const TemplateDef& def = *FindTemplate(name);
  const std::vector<Workload> workloads = WorkloadsOf(name, target);
  for (size_t i = 0; i < kConfigs; ++i) {
    const Workload& w = workloads[i % workloads.size()];
    const std::vector<Config> all = def.space(w, target).Enumerate(4096, kSeed);
    const Config& config = all[static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size())))];
    const absl::StatusOr<Kernel> kernel = BuildKernel(w, name, config, target);
    EXPECT_TRUE(kernel.ok()) << Text(config) << ": " << kernel.status();
    if (!kernel.ok()) continue;
    program.inputs.push_back({absl::StrCat("k", i), kernel->main});
    program.shared_bytes.push_back(def.footprint(w, config, target)["shared_bytes"]);
  }
  return program;
}

void CheckUse(const CudaCode& code, const Program& program) {
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    double shared = 0;
    for (const CudaKernel::Launch& launch : code.Find(program.inputs[i].symbol)->launches) {
      EXPECT_EQ(launch.static_shared_bytes, 0);
      shared = std::max(shared, static_cast<double>(launch.dynamic_shared_bytes));
      EXPECT_GT(launch.registers, 0);
      EXPECT_LE(launch.registers * launch.threads[0] * launch.threads[1] * launch.threads[2], 64 << 10);
    }
    EXPECT_EQ(shared, program.shared_bytes[i]) << program.inputs[i].symbol;
  }
}

// Three architectures for each template, side by side, and others for the next one.
TEST(CudaNvrtc, EveryTemplateCompilesAndHasTheSharedMemoryThatIsPredicted) {
  SKIP_WITHOUT_NVRTC();
  Rng rng(kSeed);
  size_t next = 0;
  for (const char* name : kTemplates) {
    std::vector<Program> programs;
    std::vector<std::future<absl::StatusOr<Artifact>>> artifacts;
    for (int turn = 0; turn < 3; ++turn) {
      Target target = ParseTarget(kArchs[next++ % std::size(kArchs)]).value();
      if (WorkloadsOf(name, target).empty()) target = ParseTarget(kArchs[next++ % std::size(kArchs)]).value();
      programs.push_back(ProgramOf(name, target, rng));
      artifacts.push_back(std::async(std::launch::async, CompileForCuda, programs.back().inputs, target));
    }
    for (size_t i = 0; i < artifacts.size(); ++i) {
      const absl::StatusOr<Artifact> artifact = artifacts[i].get();
      ASSERT_TRUE(artifact.ok()) << name << ": " << artifact.status();
      const CudaCode code = ReadCudaCode(artifact->code).value();
      SCOPED_TRACE(absl::StrCat(name, " ", code.arch));
      CheckUse(code, programs[i]);
    }
  }
}

TEST(CudaNvrtc, AnArtifactHasImagesAndLaunches) {
  SKIP_WITHOUT_NVRTC();
  const Target target = ParseTarget("cuda:sm_90").value();
  const absl::StatusOr<Artifact> artifact = CompileForCuda({{"k", ir::Matmul({.buffers = 2}).launch}}, target);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const CudaCode code = ReadCudaCode(artifact->code).value();
  EXPECT_EQ(code.arch, "sm_90");
  EXPECT_GE(code.nvrtc[0], 12);
  EXPECT_THAT(CodegenId(target), HasSubstr(absl::StrCat("-nvrtc", code.nvrtc[0], ".", code.nvrtc[1])));
  ASSERT_EQ(code.images.size(), 2u);
  EXPECT_EQ(code.images[0].kind, "cubin");
  EXPECT_TRUE(
      code.images[0].bytes.starts_with("\x7f"
                                       "ELF"));
  EXPECT_EQ(code.images[1].kind, "ptx");
  EXPECT_EQ(code.images[1].bytes.back(), '\0');
  EXPECT_THAT(code.images[1].bytes, HasSubstr(".target sm_90"));
  const CudaKernel& kernel = *code.Find("k");
  ASSERT_EQ(kernel.launches.size(), 1u);
  EXPECT_EQ(kernel.launches[0].function, "k_0");
  EXPECT_EQ(kernel.launches[0].dynamic_shared_bytes, artifact->kernels[0].launches[0].shared_bytes);
  EXPECT_EQ(code.Find("other"), nullptr);
}

TEST(CudaNvrtc, WhatItRefusesIsOneLine) {
  SKIP_WITHOUT_NVRTC();
  const nvrtc::Compiler* compiler = nvrtc::CompilerFor("sm_90").value();
  const absl::Status status = compiler->Compile("__device__ void f() {\n  nonsense;\n}\n", "sm_90").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nonsense"));
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  const absl::Status newer = nvrtc::CompilerFor("sm_999").status();
  EXPECT_EQ(newer.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(newer.message()), HasSubstr("not for sm_999"));
}

TEST(CudaLog, GivesWhatAFunctionUses) {
  const char log[] =
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'a_0' for 'sm_90'\n"
      "ptxas info    : Function properties for a_0\n"
      "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 8 bytes cumulative stack size, 4224 bytes smem\n"
      "ptxas info    : Compiling entry function 'a_1' for 'sm_90'\n"
      "ptxas info    : Used 10 registers\n";
  const nvrtc::FunctionUse first = nvrtc::UseOf(log, "a_0").value(), second = nvrtc::UseOf(log, "a_1").value();
  EXPECT_EQ(first.registers, 40);
  EXPECT_EQ(first.shared_bytes, 4224);
  EXPECT_EQ(first.stack_bytes, 8);
  EXPECT_EQ(first.spill_bytes, 28);
  EXPECT_EQ(second.registers, 10);
  EXPECT_EQ(second.shared_bytes, 0);
  EXPECT_FALSE(nvrtc::UseOf(log, "a_2").ok());
}

TEST(CudaCompile, RefusesWhatNoGpuHas) {
  const Target target = ParseTarget("cuda:sm_90").value();
  const auto refused = [&](const ir::Func& func) {
    return std::string(EmitCudaText({{"k", func}}, target, "cu").status().message());
  };
  EXPECT_THAT(refused(ir::Reduction({}).plain), HasSubstr("without group and thread loops"));
  const ir::Buffer out = ir::MakeBuffer("out", DType::kF32, {70000});
  const ir::Var g = ir::MakeVar("g"), t = ir::MakeVar("t");
  const ir::Func tall = {"tall",
                         {out},
                         1,
                         ir::For(g, 70000, ir::ForKind::kGroupY,
                                 ir::For(t, 1, ir::ForKind::kThreadX, ir::Store(out, {ir::Expr(g)}, ir::Float(0))))};
  EXPECT_THAT(refused(tall), HasSubstr("70000 groups"));
  EXPECT_THAT(std::string(EmitCudaText({}, target, "cl").status().message()), HasSubstr("'cu'"));
}

TEST(CudaCode, DamagedCodeIsAnError) {
  CudaCode code{.arch = "sm_90", .nvrtc = {12, 9}, .images = {{"cubin", "abc"}, {"ptx", std::string("d\0", 2)}}};
  code.kernels = {{"k", {.parameter_bytes = {4, 8}, .launches = {{.function = "k_0", .groups = {1, 2, 3}}}}}};
  const std::string bytes = WriteCudaCode(code);
  const CudaCode read = ReadCudaCode(bytes).value();
  EXPECT_EQ(WriteCudaCode(read), bytes);
  EXPECT_EQ(read.images[1].bytes, code.images[1].bytes);
  EXPECT_EQ(read.Find("k")->launches[0].groups[2], 3u);
  for (size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(ReadCudaCode(bytes.substr(0, length)).ok());
  EXPECT_FALSE(ReadCudaCode("temcuda2" + bytes.substr(8)).ok());
  EXPECT_TRUE(ReadCudaProgram(bytes).ok());
  CudaCode negative = code, idle = code;
  negative.kernels[0].second.parameter_bytes[0] = -1;
  idle.kernels[0].second.launches.clear();
  for (const CudaCode& broken : {negative, idle}) EXPECT_FALSE(ReadCudaProgram(WriteCudaCode(broken)).ok());
}

}  // namespace
}  // namespace temper
