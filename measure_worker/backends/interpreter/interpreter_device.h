// A device without hardware: the IR interpreter runs the kernels, on arrays in the host's memory. It is slow, and shows
// that nothing but a line in the table of backends ties the worker to a CPU.
#pragma once

#include "measure_worker/backend.h"

namespace temper::worker {

// BackendDef::describe. The wish "host" means the interpreter's own target.
absl::StatusOr<DeviceReport> DescribeInterpreter(const DeviceSpec& spec, std::string_view target);
absl::StatusOr<std::unique_ptr<Device>> OpenInterpreter(const DeviceSpec& spec);  // BackendDef::open

}  // namespace temper::worker
