// Control groups: what a measuring child and all that it starts may take together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace temper::worker {

// Folders below which groups for children may be made: those of the group that this process is in. Version 2 has one
// for all controllers, version 1 one for each.
struct CgroupHome {
  bool v2 = false;
  std::string memory, pids;  // pids: empty if there is no such controller
};

// Looks in `proc`, which is /proc/self or, in a test, what has its files `cgroup` and `mountinfo`. In version 2 it
// makes the controllers usable for children, for which it may move this process into a group below its own: a group has
// either processes or children. kUnavailable: there is none here, or it is not ours to use.
absl::StatusOr<CgroupHome> FindCgroupHome(const std::string& proc = "/proc/self");

// Bytes that this process and its children may take together: of the machine, or of the group that it is in.
int64_t MemoryThereIs();

// The group of one child. Goes with the object, when all its processes have ended.
class ControlGroup {
 public:
  static absl::StatusOr<ControlGroup> Make(const CgroupHome& home, int64_t memory_bytes, int processes);
  ControlGroup(ControlGroup&& other) noexcept : folders_(std::move(other.folders_)) { other.folders_.clear(); }
  ControlGroup(const ControlGroup&) = delete;
  ~ControlGroup();

  // Files that take in the process that writes "0" to them.
  std::vector<std::string> EntranceFiles() const;
  // Whether one of its processes has been killed because they took too much memory.
  bool OutOfMemory() const;

 private:
  ControlGroup() = default;
  std::vector<std::string> folders_;  // the first has the memory
};

// Removes groups that dead workers left there.
void SweepControlGroups(const CgroupHome& home);

}  // namespace temper::worker
