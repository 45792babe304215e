// Devices that run launches, whoever their driver is: a Device over a driver's session. Times are the device's own,
// between the start of the first launch and the end of the last.
#pragma once

#include "compiler/driver/program.h"
#include "measure_worker/backend.h"

namespace temper::worker {

// What tells one kind of such devices from another.
struct LaunchKind {
  std::function<absl::Status(const Target&)> check_runs;           // Device::Use
  absl::StatusOr<driver::Program> (*read)(std::string_view code);  // of an artifact
};

// The session must outlive it.
std::unique_ptr<Device> NewLaunchDevice(driver::Session& session, LaunchKind kind);

// Of devices that are numbered: what follows the colon of --device.
absl::Status CheckDeviceNumber(std::string_view which, std::string_view example);
int DeviceNumber(const DeviceSpec& spec);  // 0 where none is given
// The lock of the piece of hardware with this id, whichever driver tells it: OpenCL and CUDA tell the same UUID.
std::unique_ptr<DeviceLock> LockOfDevice(std::string id);

}  // namespace temper::worker
