// A device of OpenCL, whatever it is: a GPU, or this machine's cores by PoCL. Times are the device's own, between the
// events of the first launch and the last.
#pragma once

#include "measure_worker/backend.h"

namespace temper::worker {

absl::StatusOr<std::unique_ptr<Device>> OpenOpencl(const DeviceSpec& spec);  // BackendDef::open

}  // namespace temper::worker
