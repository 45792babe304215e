#include "measure_worker/backends/opencl/opencl_device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/opencl/launch.h"
#include "compiler/driver/opencl.h"
#include "measure_worker/host/cores.h"
#include "measure_worker/launches/launch_device.h"

namespace temper::worker {
namespace {

constexpr char kGenerator[] = "opencl";

Target TargetOf(const opencl::DeviceInfo& info) {
  const GpuTarget least;
  GpuTarget target;
  target.shared_bytes = info.is_cpu ? std::min(info.local_bytes, least.shared_bytes) : info.local_bytes;
  const int64_t threads = std::min<int64_t>(info.group_threads, info.is_cpu ? least.group_threads : 1024);
  target.group_threads = static_cast<int>(threads);
  target.warp_width = info.warp_width;
  target.compute_units = info.compute_units;
  return {.generator = kGenerator, .device = target};
}

// kFailedPrecondition: the device does not run what is generated for the target.
absl::Status CheckOpenclRuns(const Target& target, const opencl::DeviceInfo& info) {
  if (target.generator != kGenerator || target.gpu() == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("OpenCL runs no code for ", target.generator, " targets"));
  if (target.gpu()->shared_bytes > info.local_bytes || target.gpu()->group_threads > info.group_threads) {
    return absl::FailedPreconditionError(absl::StrCat(info.name, " has ", info.local_bytes,
                                                      " bytes of local memory and ", info.group_threads,
                                                      " threads a group at most: less than ", Text(target)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SelectOpencl(std::string_view which, DeviceSpec&) { return CheckDeviceNumber(which, "opencl:0"); }

absl::StatusOr<DeviceReport> DescribeOpencl(const DeviceSpec& spec, std::string_view wished) {
  TEMPER_ASSIGN_OR_RETURN(const opencl::Session* session, opencl::Open(DeviceNumber(spec)));
  const opencl::DeviceInfo& info = session->info();
  Target target = TargetOf(info);
  if (wished != "host") {
    TEMPER_ASSIGN_OR_RETURN(target, ParseTarget(wished));
    TEMPER_RETURN_IF_ERROR(CheckOpenclRuns(target, info));
  }
  return DeviceReport{.fingerprint = absl::StrCat(info.name, ", ", info.platform, ", driver ", info.driver, ", ",
                                                  info.compute_units, " units"),
                      .target = Text(target),
                      .codegen_id = CodegenId(target)};
}

std::unique_ptr<DeviceLock> LockOpencl(const DeviceSpec& spec) {
  const absl::StatusOr<opencl::Session*> session = opencl::Open(DeviceNumber(spec));
  // Without a device nothing will be measured.
  if (!session.ok() || (*session)->info().is_cpu) return LockCores(spec);
  return LockOfDevice((*session)->info().id);
}

absl::StatusOr<std::unique_ptr<Device>> OpenOpencl(const DeviceSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(opencl::Session * session, opencl::Open(DeviceNumber(spec)));
  opencl::SetPackageDevice(DeviceNumber(spec));  // models are measured on it, too
  const auto check = [session](const Target& target) { return CheckOpenclRuns(target, session->info()); };
  return NewLaunchDevice(*session, {check, ReadOpenclProgram});
}

}  // namespace temper::worker
