// OpenCL kernels under oclgrind, which looks for races and for accesses outside of arrays. This program starts itself
// there. It needs the Debian package oclgrind, and is skipped without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "compiler/codegen/opencl/generator.h"
#include "compiler/codegen/opencl/launch.h"
#include "measure_worker/backends/opencl/opencl_device.h"
#include "tests/codegen/device_run.h"
#include "tests/conformance/device_run.h"
#include "tests/conformance/shapes.h"
#include "tests/ir/toy_launches.h"

namespace temper::worker {
namespace {

constexpr char kUnder[] = "TEMPER_TEST_UNDER_OCLGRIND";
constexpr char kLibrary[] = "/usr/lib/oclgrind/liboclgrind-rt.so";
constexpr size_t kConfigs = 4;  // for each shape
constexpr uint64_t kSeed = 21;

class Oclgrind : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kLibrary)) GTEST_SKIP() << "oclgrind is not installed";
    folder_ = TemporaryDirectory::Make().value();
  }
  // What oclgrind says of the test of this program, which has to pass.
  std::string Findings(const std::string& test) {
    const std::string log = folder_->path() + "/log";
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string command =
        absl::StrCat(kUnder, "=1 TEMPER_OPENCL=", kLibrary, " oclgrind --data-races --log ", log, " ", self,
                     " --gtest_filter=", test, " >", folder_->path(), "/out 2>&1");
    EXPECT_EQ(std::system(command.c_str()), 0) << Read(folder_->path() + "/out");
    EXPECT_THAT(Read(folder_->path() + "/out"), ::testing::HasSubstr("[       OK ]"));
    return Read(log);
  }

 private:
  static std::string Read(const std::string& path) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  absl::StatusOr<TemporaryDirectory> folder_ = absl::UnknownError("not made yet");
};

TEST_F(Oclgrind, FindsNothingInTheKernelsOfAnyTemplate) { EXPECT_EQ(Findings("UnderOclgrind.TemplatesRun"), ""); }

TEST_F(Oclgrind, FindsAMissingBarrier) {
  EXPECT_THAT(Findings("UnderOclgrind.ARacingKernelRuns"), ::testing::HasSubstr("race"));
}

class UnderOclgrind : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv(kUnder) == nullptr) GTEST_SKIP() << "a part of the tests above";
    device_ = OpenOpencl({.backend = "opencl"}).value();
    ASSERT_TRUE(device_->Use(target_).ok());
  }
  const Target target_ = ParseTarget("opencl").value();
  std::unique_ptr<Device> device_;
};

TEST_F(UnderOclgrind, TemplatesRun) {
  CodeCache code(*device_);
  size_t kernels = 0;
  for (const conformance::Shape& shape : conformance::kShapes) {
    const TemplateDef& def = *FindTemplate(shape.template_name);
    const Workload w = ParseWorkload(shape.workload).value();
    if (!def.matches(w, target_)) continue;
    const std::vector<NDArray> inputs = conformance::DrawInputs(w, kSeed);
    for (const Config& config : def.space(w, target_).Enumerate(kConfigs, kSeed)) {
      const Kernel kernel = BuildKernel(w, def.name, config, target_).value();
      const auto got = conformance::RunOnDevice(*device_, code, w, kernel, inputs);
      ASSERT_TRUE(got.ok()) << Text(config) << ": " << got.status();
      ++kernels;
    }
  }
  EXPECT_GE(kernels, 50u);
}

TEST_F(UnderOclgrind, ARacingKernelRuns) {
  const ir::Func func = ir::WithoutBarrier(ir::Reduction({}).launch, 0);
  const Artifact artifact = CompileForOpencl({{"k", func}}, target_).value();
  Rng rng(kSeed);
  std::vector<NDArray> args = ir::DrawArguments(func, rng);
  std::vector<std::span<std::byte>> bytes;
  for (NDArray& array : args) bytes.push_back(BytesOf(array));
  EXPECT_EQ(CallOnDevice(kOpenclDevice, artifact.code, "k", bytes, artifact.kernels[0].workspace_bytes), 0);
}

}  // namespace
}  // namespace temper::worker
