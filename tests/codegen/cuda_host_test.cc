// The CUDA C++ that is generated, executed on the host: every template for GPUs against the operators' references.
#include <gtest/gtest.h>

#include <functional>

#include "compiler/ops/templates/gpu_template.h"
#include "tests/codegen/cuda_program.h"
#include "tests/conformance/configs.h"
#include "tests/conformance/shapes.h"
#include "tests/ir/toy_launches.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

constexpr size_t kConfigs = 20;    // of each template
constexpr size_t kOfProgram = 32;  // kernels at most
constexpr uint64_t kSeed = 29;

struct Case {
  Workload w;
  Config config;
  Kernel kernel;
};

std::string InF16(std::string text) {
  for (size_t at = text.find("f32["); at != text.npos; at = text.find("f32[", at)) text.replace(at, 4, "f16[");
  return text;
}

// Configs of the template for its shapes in turn: `count` in f32, then a few in f16.
std::vector<Case> CasesOf(const conformance::Subject& subject, const Target& target, size_t count) {
  std::vector<Workload> workloads;
  for (const conformance::Shape& shape : conformance::kShapes)
    if (subject.Has(shape)) workloads.push_back(Parse(std::string(shape.workload)));
  const size_t shapes = workloads.size();
  for (const conformance::Shape& shape : conformance::kShapes)
    if (subject.Has(shape)) workloads.push_back(Parse(InF16(std::string(shape.workload))));
  const std::string_view name = subject.template_name;
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

class CudaTemplates : public ::testing::TestWithParam<conformance::Subject> {};

TEST_P(CudaTemplates, ComputeWhatTheirReferencesDo) {
  if (!conformance::IsDrawn(std::string(GetParam().template_name))) GTEST_SKIP() << "it is not asked for";
  const bool of_teams = GetParam().template_name == "gpu.wgmma";
  const Target target = ParseTarget(of_teams ? "cuda:sm_90" : "cuda:sm_80").value();
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
      const double of_type = cases[i].w.output().dtype == DType::kF32 ? 1e-5 : 2e-2;
      const double bound = std::max(of_type, cases[i].kernel.tolerance);
      EXPECT_LE(error, bound) << Text(cases[i].w) << "\n" << Text(cases[i].config);
      right += error <= bound ? 1 : 0;
    }
  }
  RecordProperty(GetParam().name(), right);
}

INSTANTIATE_TEST_SUITE_P(All, CudaTemplates,
                         ::testing::ValuesIn(std::to_array<conformance::Subject>({{"gpu.conv"},
                                                                                  {"gpu.depthwise"},
                                                                                  {"gpu.gemm"},
                                                                                  {"gpu.mma"},
                                                                                  {"gpu.mma", true},
                                                                                  {"gpu.reduce"},
                                                                                  {"gpu.pixels"},
                                                                                  {"gpu.winograd"},
                                                                                  {"gpu.wgmma"},
                                                                                  {"gpu.attention"},
                                                                                  {"gpu.attention_mma"},
                                                                                  {"gpu.default"}})));

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

// What a loop's turns have in common of the rows that lanes name stands before it.
TEST(CudaOnHost, RowsOfMatricesAreFoundBeforeTheLoop) {
  const Workload w = Parse("(f16[64,256], const f16[256,64]) matmul(0,1) -> f16[64,64]; anchor=0");
  const Target target = ParseTarget("cuda:sm_80").value();
  const ConfigSpace space = FindTemplate("gpu.mma")->space(w, target);
  const Config config = ParseConfig("wm=1,wn=2,tm=2,tn=2,bk=32,stages=2,split=1").value();
  ASSERT_TRUE(space.Check(config).ok());
  const Kernel kernel = BuildKernel(w, "gpu.mma", config, target).value();
  const std::string text = EmitText({{"k", kernel.main}}, target, "cu").value();
  const size_t kernel_begins = text.find("__global__"), loop = text.find("temper_wait_copies", kernel_begins);
  ASSERT_NE(loop, text.npos);
  EXPECT_NE(text.find("temper_row_at(a_shared_", kernel_begins), text.npos);
  EXPECT_LT(text.rfind("temper_row_at("), loop);
  EXPECT_GT(text.find("temper_load_matrix(", kernel_begins), loop);
}

// A text of our own around the named functions: what every lane does with 16 x 16 matrices of f16 and f32.
absl::StatusOr<CudaProgram> WarpProgram(std::string_view body) {
  SourceProgram source;
  source.text = absl::StrCat(CudaDialect().head,
                             "extern \"C\" __global__ void k_0(const ushort* in, float* out) {\n"
                             "  extern __shared__ __align__(128) uchar temper_bytes[];\n"
                             "  ushort* const shared = (ushort*)temper_bytes;\n"
                             "  const int lane = (int)threadIdx.x;\n",
                             std::string(body), "}\n");
  SourceKernel& kernel = source.kernels.emplace_back();
  kernel.functions = {"k_0"};
  kernel.compiled.launches = {{{1, 1, 1}, {32, 1, 1}, 1024}};
  return CudaProgram::Compile(std::move(source));
}

absl::StatusOr<NDArray> RunWarp(std::string_view body, const NDArray& in) {
  TEMPER_ASSIGN_OR_RETURN(const CudaProgram program, WarpProgram(body));
  std::vector<NDArray> args = {in.Clone(), NDArray(DType::kF32, {16, 16})};
  TEMPER_RETURN_IF_ERROR(program.Run(0, args));
  return args[1];
}

constexpr char kCopyBoth[] =
    "  for (int i = 0; i < 2; ++i)\n"
    "    temper_copy<16>(shared + (lane + 32 * i) * 8, in + (lane + 32 * i) * 8, i == 0 || lane < 16);\n"
    "  temper_commit_copies();\n";

// The lanes' eight sums of c, as `out` has them.
constexpr char kStoreSums[] =
    "  for (int e = 0; e < 8; ++e)\n"
    "    out[(lane / 4 + e / 2 % 2 * 8) * 16 + lane % 4 * 2 + e % 2 + e / 4 * 8] = c[e];\n";

void ExpectSums(const NDArray& got, const std::function<double(int64_t i, int64_t j)>& sum) {
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) EXPECT_EQ(got.At(i * 16 + j), sum(i, j)) << i << " " << j;
  }
}

// The last eight rows of B are not inside: zeros.
TEST(CudaOnHost, AWarpCopiesLoadsAndMultiplies) {
  NDArray in(DType::kF16, {2, 16, 16});
  Rng rng(kSeed);
  for (int64_t i = 0; i < in.size(); ++i) in.Set(i, static_cast<double>(rng.Below(9)) - 4);
  for (const bool transposed : {false, true}) {
    const absl::StatusOr<NDArray> got = RunWarp(
        absl::StrCat(
            kCopyBoth, "  temper_wait_copies<0>();\n  __syncthreads();\n", "  const int slow = lane % 8 + ",
            transposed ? "lane / 8 % 2 * 8" : "lane / 16 * 8",
            ", fast = ", transposed ? "lane / 16 * 8" : "lane / 8 % 2 * 8", ";\n",
            "  uint a[4], b[4];\n  float c[8] = {};\n"
            "  temper_load_matrix(a, temper_row_at(shared + (lane % 8 + lane / 8 % 2 * 8) * 16 + lane / 16 * 8));\n  ",
            transposed ? "temper_load_matrix_transposed" : "temper_load_matrix",
            "(b, temper_row_at(shared + 256 + slow * 16 + fast));\n"
            "  temper_multiply_f16(c, a, b);\n",
            kStoreSums),
        in);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSums(*got, [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t k = 0; k < 16; ++k) {
        const int64_t row = transposed ? k : j, column = transposed ? j : k;
        sum += in.At(i * 16 + k) * (row < 8 ? in.At(256 + row * 16 + column) : 0);
      }
      return sum;
    });
  }
}

// Sums are exact, so what was rounded, or dropped where nothing rounded it, shows in every bit.
TEST(CudaOnHost, AWarpMultipliesInTf32) {
  constexpr double kTie = 1 + 0x1p-11, kUp = 1 + 0x1p-10;
  NDArray in(DType::kF32, {2, 16, 8});
  Rng rng(kSeed);
  for (int64_t i = 0; i < in.size(); ++i) in.Set(i, i < 128 ? (i % 3 == 0 ? -kTie : kTie) : 4.0 - rng.Below(9));
  for (const bool rounds : {false, true}) {
    const absl::StatusOr<NDArray> got = RunWarp(
        absl::StrCat("  float* const words = (float*)shared;\n"
                     "  for (int i = 0; i < 2; ++i)\n"
                     "    temper_copy<16>(words + (lane + 32 * i) * 4, (const float*)in + (lane + 32 * i) * 4, true);\n"
                     "  temper_commit_copies();\n  temper_wait_copies<0>();\n  __syncthreads();\n"
                     "  float a[4], b[4], c[8] = {};\n"
                     "  temper_load_matrix_f32(a, temper_row_at(words + lane % 16 * 8 + lane / 16 * 4));\n"
                     "  temper_load_matrix_f32(\n"
                     "      b, temper_row_at(words + 128 + (lane % 8 + lane / 16 * 8) * 8 + lane / 8 % 2 * 4));\n",
                     rounds ? "  for (int e = 0; e < 4; ++e) a[e] = temper_round_to_tf32(a[e]);\n" : "",
                     "  temper_multiply_tf32(c, a, b);\n", kStoreSums),
        in);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSums(*got, [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t k = 0; k < 8; ++k)
        sum += (in.At(i * 8 + k) < 0 ? -1 : 1) * (rounds ? kUp : 1) * in.At(128 + j * 8 + k);
      return sum;
    });
  }
}

// Of one word, of two, and of half of one.
TEST(CudaOnHost, LanesExchangeWhatTheyHold) {
  const NDArray in(DType::kF16, {2, 16, 16});
  const absl::StatusOr<NDArray> got = RunWarp(
      "  out[lane] = temper_exchange((float)lane + 0.5f, 16);\n"
      "  out[32 + lane] = (float)temper_exchange((long)lane << 33 >> 1, 3) / 4294967296.0f;\n"
      "  out[64 + lane] = (float)temper_exchange((ushort)lane, 31);\n"
      "  for (int i = 96 + lane; i < 256; i += 32) out[i] = 0;\n",
      in);
  ASSERT_TRUE(got.ok()) << got.status();
  for (int64_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(got->At(lane), static_cast<double>(lane ^ 16) + 0.5);
    EXPECT_EQ(got->At(32 + lane), static_cast<double>(lane ^ 3));
    EXPECT_EQ(got->At(64 + lane), static_cast<double>(lane ^ 31));
  }
  EXPECT_FALSE(RunWarp("  if (lane < 16) out[lane] = temper_exchange(1.0f, 1);\n", in).ok());
}

TEST(CudaOnHost, AMissingWaitAndLanesThatPartAreFound) {
  NDArray in(DType::kF16, {2, 16, 16});
  for (int64_t i = 0; i < in.size(); ++i) in.Set(i, 1);
  const std::string copy = kCopyBoth, look = "  __syncthreads();\n  out[lane] = (float)shared[31 - lane];\n";
  EXPECT_TRUE(RunWarp(copy + "  temper_wait_copies<0>();\n" + look, in).ok());
  EXPECT_FALSE(RunWarp(copy + "  temper_wait_copies<1>();\n" + look, in).ok());
  EXPECT_FALSE(RunWarp(copy + look, in).ok());
  const std::string load =
      "  uint a[4] = {};\n  temper_load_matrix(a, temper_row_at(shared));\n  out[lane] = (float)a[0];\n";
  EXPECT_TRUE(RunWarp(load, in).ok());
  EXPECT_FALSE(RunWarp("  if (lane < 16) {\n" + load + "  }\n", in).ok());
}

}  // namespace
}  // namespace temper
