// A device of OpenCL, whatever it is: a GPU, or this machine's cores by PoCL.
#pragma once

#include "measure_worker/backend.h"

namespace temper::worker {

// As BackendDef has them. The number follows "opencl:"; without one it is the first device.
absl::Status SelectOpencl(std::string_view which, DeviceSpec& spec);
// The wish "host" means the device's own limits; where its kernels run on the cores, whose limits are none of a GPU's,
// those of the target "opencl" at most.
absl::StatusOr<DeviceReport> DescribeOpencl(const DeviceSpec& spec, std::string_view target);
// The device, or the cores that it runs on.
std::unique_ptr<DeviceLock> LockOpencl(const DeviceSpec& spec);
absl::StatusOr<std::unique_ptr<Device>> OpenOpencl(const DeviceSpec& spec);

}  // namespace temper::worker
