// The device that a worker serves: which cores, what it says it is, and the lock that keeps two workers from measuring
// on the same cores at once.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper::worker {

// What --device says: a backend, and for some the cores it may use.
struct DeviceSpec {
  std::string backend = "cpu";
  std::vector<int> cores;  // sorted, distinct; empty: those of the affinity mask
};
// "cpu", "cpu:0-3,8", "null". Errors say what is wrong with which part.
absl::StatusOr<DeviceSpec> ParseDeviceSpec(std::string_view text);
std::string CoreListText(const std::vector<int>& cores);  // "0-3,8"

// Restricts this thread, and the threads and children that it starts, to the cores.
absl::Status BindToCores(const std::vector<int>& cores);
// Whether this thread could be restricted so.
absl::Status CheckCores(const std::vector<int>& cores);
std::vector<int> AffinityCores();

// Held while measuring. Workers that want the same core take turns, whoever waits goes before whoever just measured.
class CoreLock {
 public:
  // Lock files are in `directory`, two for each core. `cores` are sorted, as those of a DeviceSpec are: all take them
  // in one order, so nobody waits for one who waits for him.
  CoreLock(const std::string& directory, const std::vector<int>& cores);
  ~CoreLock();
  CoreLock(const CoreLock&) = delete;
  CoreLock& operator=(const CoreLock&) = delete;
  // Blocks until held (true), or until `give_up` says so (false).
  bool Acquire(const std::function<bool()>& give_up);
  void Release();

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
