#include "measure_worker/backends/opencl/describe.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "measure_worker/host/cores.h"

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

}  // namespace

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

absl::Status SelectOpencl(std::string_view which, DeviceSpec&) {
  int number = -1;
  const absl::string_view text(which.data(), which.size());
  if (absl::SimpleAtoi(text, &number) && number >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no number of a device; write opencl:0"));
}

int OpenclNumber(const DeviceSpec& spec) {
  int number = 0;
  static_cast<void>(absl::SimpleAtoi(spec.which, &number));  // checked when it was selected
  return number;
}

absl::StatusOr<DeviceReport> DescribeOpencl(const DeviceSpec& spec, std::string_view wished) {
  TEMPER_ASSIGN_OR_RETURN(const opencl::Session* session, opencl::Open(OpenclNumber(spec)));
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
  const absl::StatusOr<opencl::Session*> session = opencl::Open(OpenclNumber(spec));
  // Without a device nothing will be measured.
  if (!session.ok() || (*session)->info().is_cpu) return LockCores(spec);
  std::string name = absl::StrCat("opencl-", (*session)->info().id);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; }, '_');
  return std::make_unique<PatientLock>(LockDirectory(), std::vector<std::string>{name});
}

}  // namespace temper::worker
