// The cores of this machine: which of them a device has, staying on them, and the lock that keeps two workers from
// measuring on the same ones at once. For every kind of device whose kernels run on them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "measure_worker/backend.h"
#include "measure_worker/host/patient_lock.h"

namespace temper::worker {

// BackendDef::select and BackendDef::lock of a device that is some of the cores.
absl::Status SelectCores(std::string_view which, DeviceSpec& spec);  // "0-3,8"
std::unique_ptr<DeviceLock> LockCores(const DeviceSpec& spec);       // its files are in LockDirectory()

std::string CoreListText(const std::vector<int>& cores);  // "0-3,8"

// Restricts this thread, and the threads and children that it starts, to the cores.
absl::Status BindToCores(const std::vector<int>& cores);
// Whether this thread could be restricted so.
absl::Status CheckCores(const std::vector<int>& cores);
std::vector<int> AffinityCores();

// Workers that want the same core take turns. `cores` are sorted, as those of a DeviceSpec are.
class CoreLock : public PatientLock {
 public:
  CoreLock(const std::string& directory, const std::vector<int>& cores);
};

}  // namespace temper::worker
