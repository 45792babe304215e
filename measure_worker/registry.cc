// The table of backends: one line each.
#include "absl/strings/str_cat.h"
#include "measure_worker/backend.h"
#include "measure_worker/backends/cpu/cpu_device.h"
#include "measure_worker/backends/cpu/describe.h"
#include "measure_worker/backends/cuda/cuda_device.h"
#include "measure_worker/backends/interpreter/interpreter_device.h"
#include "measure_worker/backends/null/describe.h"
#include "measure_worker/backends/null/null_backend.h"
#include "measure_worker/backends/opencl/opencl_device.h"
#include "measure_worker/host/cores.h"
#include "measure_worker/host/gpu_files.h"
#include "measure_worker/kernels/kernel_bench.h"
#include "measure_worker/models/model_bench.h"

namespace temper::worker {
namespace {

// name, select, describe, lock, then open or simulate, then watch, driver_files
constexpr BackendDef kBackends[] = {
    {"cpu", SelectCores, DescribeCpu, LockCores, OpenCpu, nullptr},
    {"interpreter", SelectCores, DescribeInterpreter, LockCores, OpenInterpreter, nullptr},
    {"opencl", SelectOpencl, DescribeOpencl, LockOpencl, OpenOpencl, nullptr, nullptr, GpuFiles},
    {"cuda", SelectCuda, DescribeCuda, LockCuda, OpenCuda, nullptr, WatchCuda, GpuFiles},
    {"null", SelectCores, DescribeNull, LockCores, nullptr, NewNullBackend},
};

}  // namespace

std::span<const BackendDef> AllBackends() { return kBackends; }

const BackendDef* FindBackend(std::string_view name) {
  for (const BackendDef& def : kBackends) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

absl::StatusOr<DeviceSpec> ParseDeviceSpec(std::string_view text) {
  const size_t colon = text.find(':');
  DeviceSpec spec;
  spec.backend = text.substr(0, colon);
  const BackendDef* def = FindBackend(spec.backend);
  if (def == nullptr) {
    std::string names;
    for (const BackendDef& d : kBackends) {
      if (!d.simulated()) absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(d.name));
    }
    return absl::InvalidArgumentError(absl::StrCat("no kind of device '", spec.backend, "'; there are: ", names));
  }
  if (colon == text.npos) return spec;
  spec.which = text.substr(colon + 1);
  TEMPER_RETURN_IF_ERROR(def->select(spec.which, spec));
  return spec;
}

std::string Text(const DeviceSpec& spec) {
  return spec.which.empty() ? spec.backend : absl::StrCat(spec.backend, ":", spec.which);
}

absl::StatusOr<Backend> MakeBackend(const DeviceSpec& spec) {
  const BackendDef& def = *FindBackend(spec.backend);
  if (def.simulated()) return def.simulate();
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, def.open(spec));
  auto kernels = std::make_unique<DeviceKernels>(std::move(device));
  auto models = NewModelBench(*kernels);
  return Backend{std::move(kernels), std::move(models)};
}

}  // namespace temper::worker
