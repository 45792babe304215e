// A GPU of NVIDIA's.
#pragma once

#include "compiler/driver/cuda.h"
#include "measure_worker/backend.h"

namespace temper::worker {

// As BackendDef has them. The number follows "cuda:"; without one it is the first GPU. The wish "host" means the GPU's
// own architecture and limits. Describing and locking take none of its memory; the lock goes by its UUID.
absl::Status SelectCuda(std::string_view which, DeviceSpec& spec);
absl::StatusOr<DeviceReport> DescribeCuda(const DeviceSpec& spec, std::string_view target);
std::unique_ptr<DeviceLock> LockCuda(const DeviceSpec& spec);
absl::StatusOr<std::unique_ptr<Device>> OpenCuda(const DeviceSpec& spec);
std::string WatchCuda(const DeviceSpec& spec);
// What its code is generated for: its architecture, with the limits that it has. kInvalidArgument: an architecture that
// is not known.
absl::StatusOr<Target> TargetOf(const cuda::DeviceInfo& info);

}  // namespace temper::worker
