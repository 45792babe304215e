// The cores of this machine: which of them a device has, staying on them, and the lock that keeps two workers from
// measuring on the same ones at once. For every kind of device whose kernels run on them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "measure_worker/backend.h"

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

// Workers that want the same core take turns, whoever waits goes before whoever just measured.
class CoreLock : public DeviceLock {
 public:
  // Lock files are in `directory`, two for each core. `cores` are sorted, as those of a DeviceSpec are: all take them
  // in one order, so nobody waits for one who waits for him.
  CoreLock(const std::string& directory, const std::vector<int>& cores);
  ~CoreLock() override;
  CoreLock(const CoreLock&) = delete;
  CoreLock& operator=(const CoreLock&) = delete;
  bool Acquire(const std::function<bool()>& give_up) override;
  void Release() override;

 private:
  struct Core {
    int turn = -1, busy = -1;  // -1: no lock file could be made; then it is not locked
  };
  static bool Acquire(const Core& core, const std::function<bool()>& give_up);
  static void Release(const Core& core);
  std::vector<Core> cores_;
};
std::string LockDirectory();  // $XDG_RUNTIME_DIR, or the directory for temporary files

}  // namespace temper::worker
