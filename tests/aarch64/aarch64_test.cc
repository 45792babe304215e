// Kernels and packages for 64-bit ARM, run by an emulator, against the operators' references. It emulates the very CPU
// of the target, or one without a feature more, so that an instruction too many is told.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "compiler/codegen/link.h"
#include "compiler/graph/pipeline.h"
#include "compiler/ops/templates/winograd.h"
#include "compiler/package/package.h"
#include "compiler/package/run_kernel.h"
#include "compiler/package/weights.h"
#include "tests/conformance/configs.h"
#include "tests/conformance/shapes.h"
#include "tests/graph/builder.h"
#include "tests/graph/random_graph.h"

namespace temper {
namespace {

using testing::Builder;

struct Cpu {
  const char *target, *emulated;
};
// Without products of bytes, with those of one sign, and with all.
constexpr Cpu kCpus[] = {
    {"llvm:cortex-a72", "cortex-a72"}, {"llvm:neoverse-n1", "neoverse-n1"}, {"llvm:armv8.6-a", "max,sve=off"}};

Target TargetOf(const Cpu& cpu) {
  Target target = *ParseTarget(cpu.target);
  target.cpu()->threads = 2;
  return target;
}

class Aarch64Test : public ::testing::TestWithParam<Cpu> {
 protected:
  void SetUp() override {
#ifndef TEMPER_AARCH64_RUNNER
    GTEST_SKIP() << "this build has no compiler for aarch64";
#else
    if (std::system("qemu-aarch64 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "qemu-user is not installed";
#endif
  }

  std::string NewPath() { return absl::StrCat(dir_.path(), "/", ++files_); }

  std::string Written(const NDArray& a) {
    const std::string path = NewPath();
    std::ofstream(path, std::ios::binary).write(static_cast<const char*>(a.data()), a.bytes());
    return path;
  }
  static NDArray Read(const std::string& path, DType dtype, const Shape& shape) {
    NDArray a(dtype, shape);
    std::ifstream file(path, std::ios::binary);
    file.read(static_cast<char*>(a.MutableData()), a.bytes());
    EXPECT_EQ(file.gcount(), a.bytes()) << path;
    return a;
  }

  // All jobs that were noted, in one process; what it said, if it failed.
  std::string RunJobs(const std::string& cpu = GetParam().emulated) {
    std::string said;
#ifdef TEMPER_AARCH64_RUNNER
    const std::string path = NewPath(), output = NewPath();
    std::ofstream(path) << jobs_;
    const std::string command =
        absl::StrCat(TEMPER_AARCH64_RUNNER, cpu, " ", TEMPER_AARCH64_PROGRAM, " ", path, " >", output, " 2>&1");
    if (std::system(command.c_str()) != 0) {
      std::ostringstream text;
      text << std::ifstream(output).rdbuf();
      said = text.str().empty() ? "killed" : text.str();
    }
    jobs_.clear();
#endif
    return said;
  }

  // Notes the jobs of one kernel; the path of its result.
  absl::StatusOr<std::string> NoteKernel(const Workload& w, const Kernel& kernel, std::span<const NDArray> logical) {
    std::vector<CodegenInput> inputs = {{"kernel", kernel.main}};
    Exports exports;
    exports.renamed.emplace_back("kernel", "temper_kernel");
    for (size_t i = 0; i < kernel.packs.size(); ++i) {
      if (kernel.packs[i].params.empty()) continue;
      inputs.push_back({absl::StrCat("pack", i), kernel.packs[i]});
      exports.renamed.emplace_back(inputs.back().symbol, absl::StrCat("temper_", inputs.back().symbol));
    }
    TEMPER_ASSIGN_OR_RETURN(const Artifact compiled, CompileKernels(inputs, target_));
    const std::string library = NewPath();
    TEMPER_RETURN_IF_ERROR(LinkSharedLibrary({compiled.code}, library, CpuArch::kArm, exports));
    const auto note = [&](size_t k, const std::string& arrays) {
      const CompiledKernel& compiled_kernel = compiled.kernels[k];
      absl::StrAppend(&jobs_, "kernel ", library, " temper_", compiled_kernel.symbol, " ",
                      compiled_kernel.workspace_bytes, " ", compiled_kernel.thread_workspace_bytes, arrays, "\n");
    };
    std::string arrays;
    size_t pack = 1;
    for (size_t i = 0; i < w.inputs.size(); ++i) {
      std::string path = Written(ToPhysical(logical[i], w.inputs[i].type.perm));
      if (i < kernel.packs.size() && !kernel.packs[i].params.empty()) {
        const ir::Buffer& out = kernel.packs[i].params.back();
        const std::string packed = Written(NDArray(out->dtype, out->shape));
        note(pack++, absl::StrCat(" ", path, " ", packed));
        path = packed;
      }
      absl::StrAppend(&arrays, " ", path);
    }
    NDArray result(w.output().dtype, w.output().PhysicalShape());
    std::memset(result.MutableData(), 0xff, static_cast<size_t>(result.bytes()));
    std::string path = Written(result);
    note(0, absl::StrCat(arrays, " ", path));
    return path;
  }

  void ExpectPackageRight(const Graph& given, uint64_t seed, double tolerance = 1e-4) {
    std::vector<NDArray> inputs;
    Builder draw(seed);
    for (const ValueId v : given.inputs) {
      const TensorType& type = given.values[static_cast<size_t>(v)].type;
      inputs.push_back(IsFloat(type.dtype) ? testing::RandomArray(draw.rng, type.shape, -1, 1, type.dtype)
                                           : draw.Integers(type.dtype, type.shape, 0, 100));
    }
    const std::vector<NDArray> want = testing::Evaluated(given, inputs);
    Graph g = given;
    ASSERT_TRUE(Optimize(g, target_).ok());
    const std::string package = NewPath();
    const absl::StatusOr<PackageReport> report = WritePackage(g, target_, ChooseDefault, package);
    ASSERT_TRUE(report.ok()) << report.status();
    absl::StrAppend(&jobs_, "package ", package, " 2 ", inputs.size());
    for (const NDArray& a : inputs) absl::StrAppend(&jobs_, " ", Written(a));
    std::vector<std::string> paths;
    for (const NDArray& a : want) {
      paths.push_back(Written(NDArray(a.dtype(), a.shape())));
      absl::StrAppend(&jobs_, " ", paths.back());
    }
    absl::StrAppend(&jobs_, "\n");
    ASSERT_EQ(RunJobs(), "") << Text(given);
    std::vector<NDArray> got;
    for (size_t i = 0; i < want.size(); ++i) got.push_back(Read(paths[i], want[i].dtype(), want[i].shape()));
    testing::ExpectClose(got, want, tolerance);
  }

  const Target target_ = TargetOf(GetParam());
  const TemporaryDirectory dir_ = TemporaryDirectory::Make().value();
  std::string jobs_;
  int files_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Cpus, Aarch64Test, ::testing::ValuesIn(kCpus), [](const ::testing::TestParamInfo<Cpu>& info) {
  std::string name = info.param.target;
  std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
  return name;
});

TEST_P(Aarch64Test, KernelsOfEachTemplateAreRight) {
  constexpr uint64_t kSeed = 20;
  constexpr int64_t kMostListed = 512;
  struct Noted {
    std::string about, path;
    NDArray want;
    double bound;
  };
  std::vector<Noted> noted;
  Rng rng(kSeed);
  for (const conformance::Shape& shape : conformance::kShapes) {
    const TemplateDef* def = FindTemplate(shape.template_name);
    const Workload w = *ParseWorkload(shape.workload);
    if (!def->matches(w, target_) || !conformance::IsDrawn(std::string(shape.template_name))) continue;
    const std::vector<NDArray> inputs = RandomInputs(w, rng);
    const absl::StatusOr<NDArray> wanted = RunReference(w, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const std::vector<Config> all = def->space(w, target_).Enumerate(kMostListed, kSeed);
    for (size_t i = 0; i < conformance::Draw(1).configs; ++i) {
      const Config& config = all[static_cast<size_t>(rng.Below(std::ssize(all)))];
      const absl::StatusOr<Kernel> kernel = BuildKernel(w, def->name, config, target_);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      const absl::StatusOr<std::string> path = NoteKernel(w, *kernel, inputs);
      ASSERT_TRUE(path.ok()) << path.status();
      const DTypeInfo& type = Info(w.output().dtype);
      const double of_floats = def->name == "conv2d.winograd" ? kWinogradErrorBound : 1e-5;
      noted.push_back({absl::StrCat(Text(w), "\n", std::string(def->name), " ", Text(config)), *path,
                       ToPhysical(*wanted, w.output().perm),
                       IsNative(type.dtype) ? IsFloat(type.dtype) ? of_floats : 0 : type.tolerance});
    }
  }
  ASSERT_EQ(RunJobs(), "");
  for (const Noted& n : noted)
    EXPECT_LE(RelativeError(Read(n.path, n.want.dtype(), n.want.shape()), n.want), n.bound) << n.about;
}

TEST_P(Aarch64Test, AConvolutionalNetworkIsRight) {
  Builder b;
  ValueId x = b.Call("relu", {b.Conv(b.Input({1, 3, 18, 18}), b.Random({24, 3, 3, 3}), 1)});
  const ValueId wide = b.Call("silu", {b.Conv(x, b.Random({40, 24, 1, 1}))});
  const ValueId deep = b.Call("relu", {b.Conv(wide, b.Random({40, 1, 3, 3}), 1, 40)});
  x = b.Call("add", {b.Conv(deep, b.Random({24, 40, 1, 1})), x});
  x = b.Call("relu", {b.Conv(x, b.Random({48, 24, 3, 3}), 1)});
  const ValueId mean = b.Call("reduce_mean", {x}, Builder::Ints("axes", {2, 3}));
  b.Output(b.Call("softmax", {b.Call("matmul", {b.Reshape(mean, {1, 48}), b.Random({48, 11})})}));
  ExpectPackageRight(b.g, 3);
}

// A cell of an LSTM, twice, over the functions that it has.
TEST_P(Aarch64Test, ARecurrentNetworkIsRight) {
  Builder b;
  const ValueId input = b.Random({20, 64}), recurrent = b.Random({16, 64}, -0.5, 0.5);
  ValueId h = b.Input({3, 16}), c = b.Input({3, 16});
  for (int step = 0; step < 2; ++step) {
    const ValueId sums = b.Call("add", {b.Call("matmul", {b.Input({3, 20}), input}), b.Call("matmul", {h, recurrent})});
    const auto gate = [&](int64_t i, const char* function) {
      Attrs attrs = Builder::Ints("axes", {1});
      attrs.Set("starts", std::vector<int64_t>{16 * i});
      attrs.Set("ends", std::vector<int64_t>{16 * i + 16});
      return b.Call(function, {b.Call("slice", {sums}, std::move(attrs))});
    };
    c = b.Call("add", {b.Call("mul", {gate(0, "sigmoid"), c}), b.Call("mul", {gate(1, "sigmoid"), gate(2, "tanh")})});
    h = b.Call("mul", {gate(3, "sigmoid"), b.Call("tanh", {c})});
  }
  b.Output(h);
  b.Output(c);
  ExpectPackageRight(b.g, 4);
}

// Of bytes without a sign by bytes with one, as quantised networks have them.
TEST_P(Aarch64Test, AQuantisedNetworkIsRight) {
  Builder b;
  const auto dequantised = [&](ValueId v, double zero, NDArray scale) {
    const ValueId wide = b.Call("sub", {b.Cast(v, DType::kI32), b.Constant(testing::Numbers(DType::kI32, {}, {zero}))});
    return b.Call("mul", {b.Cast(wide, DType::kF32), b.Constant(std::move(scale))});
  };
  const auto weights = [&](Shape shape, Shape scales) {
    return dequantised(b.Constant(b.Integers(DType::kI8, std::move(shape), -128, 127)), 0,
                       testing::RandomArray(b.rng, std::move(scales), 0.001, 0.002));
  };
  const ValueId x = dequantised(b.Input({1, 16, 9, 9}, DType::kU8), 117, testing::Floats({}, {0.03}));
  b.Output(b.Call("relu",
                  {b.Call("conv2d", {x, weights({40, 16, 3, 3}, {40, 1, 1, 1})}, Builder::Ints("strides", {2, 2}))}));
  const ValueId rows = dequantised(b.Input({7, 96}, DType::kU8), 3, testing::Floats({}, {0.02}));
  b.Output(b.Call("matmul", {rows, weights({96, 33}, {33})}));
  ExpectPackageRight(b.g, 5);
}

TEST_P(Aarch64Test, TypesOfSixteenBitsAreRight) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Builder b;
    const auto random = [&](Shape shape) {
      return b.Constant(testing::RandomArray(b.rng, std::move(shape), -0.5, 0.5, dtype));
    };
    const ValueId x = b.Call("relu", {b.Conv(b.Input({1, 8, 9, 9}, dtype), random({20, 8, 3, 3}), 1)});
    b.Output(b.Call("softmax", {b.Call("matmul", {b.Reshape(x, {20, 81}), random({81, 30})})}));
    b.Output(b.Cast(x, DType::kF32));
    ExpectPackageRight(b.g, 6, 0.03);
  }
}

TEST_P(Aarch64Test, FunctionsOfFloatsAreRight) {
  Builder b;
  const ValueId x = b.Input({5, 203}), wide = b.Call("mul", {x, b.Scalar(60)}), above = b.Call("exp", {x});
  for (const char* function : {"exp", "tanh", "erf", "sin", "cos", "floor", "ceil", "round", "sigmoid", "gelu"})
    b.Output(b.Call(function, {b.Call("div", {wide, b.Scalar(3)})}));
  for (const char* function : {"log", "sqrt"}) b.Output(b.Call(function, {above}));
  b.Output(b.Call("pow", {above, x}));
  ExpectPackageRight(b.g, 7, 1e-5);
}

TEST_P(Aarch64Test, RandomGraphsAreRight) {
  constexpr uint64_t kFirst = 900;
  for (uint64_t seed = kFirst; seed < kFirst + conformance::Draw(4).configs; ++seed) {
    SCOPED_TRACE(seed);
    ExpectPackageRight(testing::RandomGraph(seed, 12), seed);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Aarch64Test, APackageIsRefusedInALineWhereItCanNotRun) {
  Builder b;
  b.Output(b.Call("relu", {b.Input({4, 4})}));
  ASSERT_TRUE(Optimize(b.g, target_).ok());
  const std::string package = NewPath();
  ASSERT_TRUE(WritePackage(b.g, target_, ChooseDefault, package).ok());
  if (HostArch() != CpuArch::kArm) {
    const absl::Status here = LoadPackage(package).status();
    EXPECT_EQ(here.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(here.message().find("aarch64"), std::string::npos) << here;
    EXPECT_EQ(here.message().find('\n'), std::string::npos) << here;
  }
  absl::StrAppend(&jobs_, "package ", package, " 1 1 ", Written(NDArray(DType::kF32, {4, 4})), " ",
                  Written(NDArray(DType::kF32, {4, 4})), "\n");
  const std::string said = RunJobs("cortex-a53");
  const bool plain = target_.cpu()->features.size() == 1;
  EXPECT_EQ(said.empty(), plain) << said;
  EXPECT_EQ(said.find("this CPU lacks") == std::string::npos, plain) << said;
}

}  // namespace
}  // namespace temper
