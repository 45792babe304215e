// The CUDA C++ that is generated, executed on the host: every template for GPUs against the operators' references.
#include <gtest/gtest.h>

#include "compiler/ops/templates/gpu_template.h"
#include "tests/codegen/cuda_program.h"
#include "tests/conformance/configs.h"
#include "tests/conformance/shapes.h"
#include "tests/ir/toy_launches.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

constexpr size_t kConfigs = 20;    // of each template
constexpr size_t kOfProgram = 25;  // kernels at most
constexpr uint64_t kSeed = 29;

struct Case {
  Workload w;
  Config config;
  Kernel kernel;
};

std::string InF16(std::string text) {
  for (size_t at = text.find("f32"); at != text.npos; at = text.find("f32", at)) text.replace(at, 3, "f16");
  return text;
}

// Configs of the template for its shapes in turn: `count` in f32, then a few in f16.
std::vector<Case> CasesOf(std::string_view name, const Target& target, size_t count) {
  std::vector<Workload> workloads;
  for (const conformance::Shape& shape : conformance::kShapes)
    if (shape.template_name == name) workloads.push_back(Parse(std::string(shape.workload)));
  const size_t shapes = workloads.size();
  for (const conformance::Shape& shape : conformance::kShapes)
    if (shape.template_name == name) workloads.push_back(Parse(InF16(std::string(shape.workload))));
  std::vector<Case> cases;
  Rng rng(kSeed);
  for (size_t s = 0; s < workloads.size(); ++s) {
    const size_t each = s < shapes ? (count + shapes - 1) / shapes : 2;
    const TemplateDef& def = *FindTemplate(name);
    if (!def.matches(workloads[s], target)) continue;
    const std::vector<Config> all = def.space(workloads[s], target).Enumerate(4096, kSeed);
    for (size_t i = 0; i < std::min(each, all.size()); ++i) {
      const Config& config = all[static_cast<size_t>(rng.Below(static_cast<int64_t>(all.size())))];
      absl::StatusOr<Kernel> kernel = BuildKernel(workloads[s], name, config, target);
      EXPECT_TRUE(kernel.ok()) << Text(config) << ": " << kernel.status();
      if (kernel.ok()) cases.push_back({workloads[s], config, *std::move(kernel)});
    }
  }
  return cases;
}

double ErrorOf(const Case& c, const CudaProgram& program, size_t number) {
  Rng rng(kSeed);
  const std::vector<NDArray> inputs = RandomInputs(c.w, rng);
  const absl::StatusOr<NDArray> wanted = RunReference(c.w, inputs);
  EXPECT_TRUE(wanted.ok()) << wanted.status();
  const absl::StatusOr<NDArray> got =
      RunWithPacks(c.w, c.kernel, inputs, [&](std::span<NDArray> args) { return program.Run(number, args); });
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? RelativeError(*got, ToPhysical(*wanted, c.w.output().perm)) : HUGE_VAL;
}

std::vector<CodegenInput> InputsOf(std::span<const Case> cases) {
  std::vector<CodegenInput> inputs;
  for (const Case& c : cases) inputs.push_back({absl::StrCat("k", inputs.size()), c.kernel.main});
  return inputs;
}

class CudaTemplates : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaTemplates, ComputeWhatTheirReferencesDo) {
  const Target target = ParseTarget("cuda:sm_80").value();
  const conformance::Draw draw(kConfigs);
  const std::vector<Case> all = CasesOf(GetParam(), target, draw.configs);
  ASSERT_GE(all.size(), std::min(kConfigs, draw.configs));
  int right = 0;
  for (std::span<const Case> rest = all; !rest.empty();) {
    const std::span<const Case> cases = rest.first(std::min(kOfProgram, rest.size()));
    rest = rest.subspan(cases.size());
    const absl::StatusOr<CudaProgram> program = CudaProgram::Compile(InputsOf(cases), target);
    ASSERT_TRUE(program.ok()) << program.status();
    for (size_t i = 0; i < cases.size(); ++i) {
      const double error = ErrorOf(cases[i], *program, i);
      const double bound = cases[i].w.output().dtype == DType::kF32 ? 1e-5 : 2e-2;
      EXPECT_LE(error, bound) << Text(cases[i].w) << "\n" << GetParam() << " " << Text(cases[i].config);
      right += error <= bound ? 1 : 0;
    }
  }
  RecordProperty(GetParam(), right);
}

INSTANTIATE_TEST_SUITE_P(All, CudaTemplates,
                         ::testing::Values("gpu.conv", "gpu.depthwise", "gpu.gemm", "gpu.reduce", "gpu.default"));

// Each barrier of each of a few kernels is taken away in turn.
TEST(CudaOnHost, AMissingBarrierIsFound) {
  const Target target = ParseTarget("cuda:sm_80").value();
  for (const ir::Toy& toy : {ir::Reduction({.spare_barrier = false}), ir::Transpose({}), ir::Matmul({.buffers = 1}),
                             ir::Matmul({.buffers = 2})}) {
    std::vector<CodegenInput> inputs = {{"whole", toy.launch}};
    for (int i = 0; i < ir::CountBarriers(toy.launch); ++i)
      inputs.push_back({absl::StrCat("without", i), ir::WithoutBarrier(toy.launch, i)});
    ASSERT_GT(inputs.size(), 1u);
    const absl::StatusOr<CudaProgram> program = CudaProgram::Compile(inputs, target);
    ASSERT_TRUE(program.ok()) << program.status();
    Rng rng(kSeed);
    std::vector<NDArray> wanted = ir::DrawArguments(toy.launch, rng);
    std::vector<NDArray> got;
    for (const NDArray& array : wanted) got.push_back(array.Clone());
    ASSERT_TRUE(ir::Interpret(toy.launch, wanted).ok());
    for (size_t k = 0; k < inputs.size(); ++k) {
      const absl::Status status = program->Run(k, got);
      const bool same =
          std::memcmp(got.back().data(), wanted.back().data(), static_cast<size_t>(wanted.back().bytes())) == 0;
      EXPECT_EQ(status.ok() && same, k == 0) << toy.name << " " << inputs[k].symbol << ": " << status;
    }
  }
}

}  // namespace
}  // namespace temper
