// A measuring child on a GPU that tests play: what lost_device_test.cc starts. Its kernels are those of
// tests/driver/fake_kernels.cc.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/launch.h"
#include "include/temper/model.h"
#include "measure_worker/sandbox/process.h"
#include "measure_worker/sandbox/session.h"
#include "tests/codegen/device_run.h"
#include "tests/driver/fake_cuda.h"
#include "tests/worker/fake_cuda_code.h"

namespace temper::worker {
namespace {

constexpr char kFake[] = TEMPER_BINARY_DIR "/tests/libfake_cuda.so";

void LoseTheMemory() {
  void* library = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
  reinterpret_cast<fake_cuda::StateFn>(dlsym(library, "fake_cuda_state"))()->broken = 214;
}

class GpuProgram : public Program {
 public:
  GpuProgram(Device& device, std::unique_ptr<Code> code, const Block& arrays)
      : device_(device), code_(std::move(code)) {
    for (size_t i = 0; i < arrays.arrays(); ++i) args_[0].push_back(arrays.address(i));
  }
  absl::StatusOr<double> Verify() override { return device_.Launch(*code_, args_[0], nullptr); }
  double Time(int64_t calls) override {
    size_t next = 0;
    const absl::StatusOr<double> seconds = device_.Time(*code_, args_, next, nullptr, calls);
    timed_.Update(seconds.status());
    return seconds.value_or(1);
  }
  absl::Status CheckAfterwards() override { return timed_; }

 private:
  Device& device_;
  const std::unique_ptr<Code> code_;
  std::vector<Arguments> args_ = std::vector<Arguments>(1);
  absl::Status timed_;
};

// A config is a function's name. "lose PATH" loses the device where it is built, unless there is such a file already; a
// workload "lose" always does.
class GpuKernels : public KernelBench {
 public:
  absl::Status Prepare(const BatchWork& work) override {
    if (work.workload == "lose") LoseTheMemory();
    TEMPER_ASSIGN_OR_RETURN(arrays_, device_->AllocateGuarded(std::vector<int64_t>(3, kBytes)));
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Program>> Build(const Candidate& candidate) override {
    std::string function = candidate.config;
    if (function.starts_with("lose ")) {
      const std::string path = function.substr(5);
      if (!std::filesystem::exists(path)) LoseTheMemory();
      std::ofstream(path) << "lost";
      function = "add";
    }
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Code> code, device_->Load({CodeOf({function}, 3), {}}));
    return std::make_unique<GpuProgram>(*device_, std::move(code), *arrays_);
  }
  absl::StatusOr<double> TimeCanary() override { return 1e-4; }
  int build_threads() const override { return 1; }  // the driver that tests play is for one thread at a time
  void Forget() override { arrays_.reset(); }
  bool lost() const override { return device_->lost(); }

 private:
  const std::unique_ptr<Device> device_ = FindBackend("cuda")->open(ParseDeviceSpec("cuda:0").value()).value();
  std::unique_ptr<Block> arrays_;
};

// A model is a package of one kernel: the function that its target names.
class GpuModels : public ModelBench {
 public:
  std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const BeginFn& begin) override {
    const TrialResult failed{Outcome::kInfrastructure, Run(work.model.target, begin)};
    return std::vector<TrialResult>(work.Candidates().size(), failed);
  }
  ModelResult CheckModel(const ModelWork& work, const BeginFn& begin) override {
    return {Outcome::kRunCrashed, Run(work.target, begin)};
  }
  void Forget() override {}

 private:
  static std::string Run(const std::string& function, const BeginFn& begin) {
    begin(Phase::kModelBuild);
    const std::string code = CodeOf({function}, 1);
    DeviceArray array(kCudaDevice, kBytes);
    begin(Phase::kModelRun);
    void* parts[] = {array.part()};
    const temper_call call = {parts, nullptr, nullptr, nullptr, &array};
    std::vector<float> values(kElements);
    if (kCudaDevice.launch(code.data(), std::ssize(code), "kernel", &call) == TEMPER_OK) array.Read(values.data());
    return kCudaDevice.error();
  }
};

}  // namespace
}  // namespace temper::worker

int main() {
  using namespace temper::worker;
  setenv("TEMPER_CUDA", kFake, 1);
  Backend backend{std::make_unique<GpuKernels>(), std::make_unique<GpuModels>()};
  return ChildMain(kChildFd, backend);
}
