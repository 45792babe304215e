// What a worker tells of its null device: this machine's CPU under another name.
#pragma once

#include "measure_worker/backend.h"

namespace temper::worker {

absl::StatusOr<DeviceReport> DescribeNull(const DeviceSpec& spec, std::string_view target);  // BackendDef::describe

}  // namespace temper::worker
