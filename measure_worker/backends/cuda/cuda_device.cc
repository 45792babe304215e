#include "measure_worker/backends/cuda/cuda_device.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/driver/cuda.h"
#include "compiler/driver/cuda_api.h"
#include "compiler/driver/nvml.h"
#include "measure_worker/host/cores.h"
#include "measure_worker/launches/launch_device.h"

namespace temper::worker {
namespace {

constexpr char kGenerator[] = "cuda";

// kFailedPrecondition: the GPU does not run what is generated for the target.
absl::Status CheckCudaRuns(const Target& target, const cuda::DeviceInfo& info) {
  if (target.generator != kGenerator || target.gpu() == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("CUDA runs no code for ", target.generator, " targets"));
  TEMPER_RETURN_IF_ERROR(cuda::CheckArch(target.gpu()->arch, info, /*as_ptx=*/true));
  if (target.gpu()->shared_bytes > info.shared_bytes || target.gpu()->group_threads > info.group_threads) {
    return absl::FailedPreconditionError(absl::StrCat(info.name, " has ", info.shared_bytes,
                                                      " bytes of shared memory and ", info.group_threads,
                                                      " threads a group at most: less than ", Text(target)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Target> TargetOf(const cuda::DeviceInfo& info) {
  TEMPER_ASSIGN_OR_RETURN(Target target, ParseTarget(absl::StrCat(kGenerator, ":", info.arch)));
  GpuTarget& gpu = *target.gpu();
  gpu.shared_bytes = info.shared_bytes;
  gpu.group_threads = info.group_threads;
  gpu.warp_width = info.warp_width;
  gpu.compute_units = info.multiprocessors;
  return target;
}

absl::Status SelectCuda(std::string_view which, DeviceSpec&) { return CheckDeviceNumber(which, "cuda:0"); }

absl::StatusOr<DeviceReport> DescribeCuda(const DeviceSpec& spec, std::string_view wished) {
  TEMPER_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::Describe(DeviceNumber(spec)));
  TEMPER_ASSIGN_OR_RETURN(const Target target, wished == "host" ? TargetOf(info) : ParseTarget(wished));
  TEMPER_RETURN_IF_ERROR(CheckCudaRuns(target, info));
  TEMPER_ASSIGN_OR_RETURN(const nvrtc::Compiler* compiler, nvrtc::CompilerFor(target.gpu()->arch));
  if (const int major = compiler->version()[0]; major > info.driver / 1000) {
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver is for CUDA ", cuda::VersionText(info.driver),
                                               ", but the NVRTC here is ", major, ".", compiler->version()[1],
                                               ": one of version ", info.driver / 1000, " is needed"));
  }
  const std::string driver = nvml::DriverText();
  return DeviceReport{
      .fingerprint = absl::StrCat(info.name, ", ", info.arch, ", ", info.memory_bytes >> 20, " MiB, driver ",
                                  driver.empty() ? "for" : driver + " for", " CUDA ", cuda::VersionText(info.driver)),
      .target = Text(target),
      .codegen_id = CodegenId(target)};
}

std::unique_ptr<DeviceLock> LockCuda(const DeviceSpec& spec) {
  const absl::StatusOr<cuda::DeviceInfo> info = cuda::Describe(DeviceNumber(spec));
  if (!info.ok()) return LockCores(spec);  // without a GPU nothing will be measured
  return LockOfDevice(absl::StrReplaceAll(info->uuid, {{"GPU-", ""}, {"-", ""}}));
}

absl::StatusOr<std::unique_ptr<Device>> OpenCuda(const DeviceSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(cuda::Session * session, cuda::Open(DeviceNumber(spec)));
  cuda::SetPackageDevice(DeviceNumber(spec));  // models are measured on it, too
  const auto check = [session](const Target& target) { return CheckCudaRuns(target, session->info()); };
  return NewLaunchDevice(*session, {check, ReadCudaProgram});
}

std::string WatchCuda(const DeviceSpec& spec) {
  const absl::StatusOr<cuda::DeviceInfo> info = cuda::Describe(DeviceNumber(spec));
  const std::optional<nvml::State> state = info.ok() ? nvml::Look(info->uuid) : std::nullopt;
  return state.has_value() ? nvml::Text(*state) : "";
}

}  // namespace temper::worker
