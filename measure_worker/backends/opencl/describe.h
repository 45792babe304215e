// Which device of OpenCL is meant, what it says it is, and who may have it.
#pragma once

#include "compiler/driver/opencl.h"
#include "compiler/target/target.h"
#include "measure_worker/backend.h"

namespace temper::worker {

// As BackendDef has them. The number follows "opencl:"; without one it is the first device.
absl::Status SelectOpencl(std::string_view which, DeviceSpec& spec);
// The wish "host" means the device's own limits; where its kernels run on the cores, whose limits are none of a GPU's,
// those of the target "opencl" at most.
absl::StatusOr<DeviceReport> DescribeOpencl(const DeviceSpec& spec, std::string_view target);
// The device, or the cores that it runs on.
std::unique_ptr<DeviceLock> LockOpencl(const DeviceSpec& spec);

int OpenclNumber(const DeviceSpec& spec);
// kFailedPrecondition: the device does not run what is generated for the target.
absl::Status CheckOpenclRuns(const Target& target, const opencl::DeviceInfo& info);

}  // namespace temper::worker
