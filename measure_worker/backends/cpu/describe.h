// What a worker tells of the CPU that it serves.
#pragma once

#include "measure_worker/backend.h"

namespace temper::worker {

// BackendDef::describe. kFailedPrecondition names the features of the target that this machine lacks.
absl::StatusOr<DeviceReport> DescribeCpu(const DeviceSpec& spec, std::string_view target);
// The same without a fingerprint, which takes time to measure.
absl::StatusOr<DeviceReport> DescribeCores(std::string_view target);

}  // namespace temper::worker
