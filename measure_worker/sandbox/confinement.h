// What keeps the measuring child from doing harm, and how much of it this machine offers. Whatever the tier, the child
// is under the system call filter (syscall_filter.h) and under limits, and gets a clean environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "measure_worker/sandbox/control_group.h"

namespace temper::worker {

struct Confinement {
  // Landlock: it reads only what every program reads, and writes only in its temporary folder.
  bool files = false;
  // A user that nobody else is. Only root can give it.
  bool own_uid = false;
  // It sees no other process, no network, no shared memory of others; its temporary folder is a file system of limited
  // size.
  bool namespaces = false;
  // How who is not root gets these namespaces.
  bool user_namespace = false;
  // The kernel counts memory and processes of the child and all that it starts. Without it the limit of memory holds
  // for each process.
  std::optional<CgroupHome> cgroup;

  // Whether there is a limit to the processes that it starts. Without one it may start none, only threads.
  bool CountsProcesses() const { return own_uid || user_namespace || cgroup.has_value(); }
};

enum class SandboxTier : uint8_t {
  kBasic,     // the filter, limits, a clean environment
  kIsolated,  // files too, and for a worker that is root a user of its own
  kFull,      // namespaces and a control group too
};
SandboxTier TierOf(const Confinement& confinement);
std::string_view Text(SandboxTier tier);  // "basic", "isolated", "full"
absl::StatusOr<SandboxTier> ParseSandboxTier(std::string_view text);

// "full: filter, limits, files, uid, namespaces, cgroup v2". The tier comes first.
std::string Text(const Confinement& confinement);

// All that can be had here: each kind is tried in a child that ends at once, then all of them together. An error: not
// even the basic tier can be had, and nothing foreign may run here. Makes control groups usable for children, for
// which it may move this process into a group below its own.
absl::StatusOr<Confinement> ProbeConfinement();

}  // namespace temper::worker
