// The measuring child as a process: how it is started, watched and ended.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure_worker/sandbox/confinement.h"
#include "measure_worker/sandbox/launch.h"
#include "measure_worker/sandbox/scratch.h"

namespace temper::worker {

// What a child and all that it starts may take.
struct ChildLimits {
  int64_t memory_bytes = 0;                  // 0: seven eighths of what there is
  int64_t scratch_bytes = int64_t{8} << 30;  // temporary files: a model's weights, twice
  int processes = 512;                       // threads count
  std::vector<std::string> driver_files;     // that its device's driver writes, where they are on this machine
};

// Whether a child's memory can be limited without a control group. Not under a sanitizer, which maps terabytes that
// nobody touches.
constexpr bool MayLimitMappings() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

// A process of its own session that gains no privileges, and dies with all that it started when it is ended, when it
// ends, and when the thread that started it does. It reads orders from descriptor kChildFd.
class ChildProcess {
 public:
  // `command` is a path and its arguments. Of the environment it gets what programs need to find their files, and a
  // TMPDIR of its own, which goes when it ends. stdin and stdout are /dev/null.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& command,
                                                             const Confinement& confinement,
                                                             const ChildLimits& limits = {});
  // Whether children can be confined so here: tries it on one that ends at once.
  static absl::Status Try(const Confinement& confinement);

  ~ChildProcess();  // ends it, if that has not been done
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int socket() const { return socket_; }
  int stderr_pipe() const { return stderr_; }
  pid_t pid() const { return pid_; }  // of its keeper, which leads its session

  // Whether its folder for temporary files is there; without it, it can build nothing.
  bool HasScratch() const { return scratch_.has_value() && scratch_->IsThere(); }
  // How often, while it works, TakesTooMuch wants to be asked; nothing: the kernel sees to it alone.
  std::optional<int> watch_interval_ms() const;
  // Whether its temporary files take more than they may.
  bool TakesTooMuch() const;
  // Whether it was killed for its memory. Known once it has ended.
  bool ran_out_of_memory() const { return out_of_memory_; }
  const ChildLimits& limits() const { return limits_; }

  // SIGKILL to all of it; nothing of it is left when this returns. With `patience_ms`, an ending that is under way is
  // waited for first. Returns how the child ended: "killed by SIGSEGV", "exited with code 3".
  std::string End(int patience_ms = 0);

 private:
  ChildProcess(Scratch scratch, const ChildLimits& limits) : scratch_(std::move(scratch)), limits_(limits) {}
  absl::Status Spawn(const std::vector<std::string>& command, const Confinement& confinement, uid_t user);

  // In this order: the group can go when the process has.
  std::optional<Scratch> scratch_;
  std::optional<ControlGroup> group_;
  ChildLimits limits_;
  pid_t pid_ = 0;
  int socket_ = -1, stderr_ = -1, status_ = -1;
  bool mounted_scratch_ = false, out_of_memory_ = false;
};

}  // namespace temper::worker
