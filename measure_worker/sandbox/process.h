// The measuring child as a process: how it is started, watched and ended.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/temporary_directory.h"

namespace temper::worker {

// A process of its own session, that dies with the thread that started it and gains no privileges. It reads orders from
// descriptor kChildFd.
inline constexpr int kChildFd = 3;

class ChildProcess {
 public:
  // `command` is a path and its arguments. The environment is ours, but for a TMPDIR of its own, which goes when it
  // ends: who is killed leaves hundreds of megabytes there. stdin and stdout are /dev/null.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& command);
  ~ChildProcess();  // kills the whole group, if that has not been done
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int socket() const { return socket_; }
  int stderr_pipe() const { return stderr_; }
  pid_t pid() const { return pid_; }

  // SIGKILL to the whole group. With `patience_ms`, an ending that is under way is waited for first. Returns how the
  // child ended: "killed by SIGSEGV", "exited with code 3".
  std::string End(int patience_ms = 0);

 private:
  ChildProcess(pid_t pid, int socket, int stderr_pipe, TemporaryDirectory scratch)
      : pid_(pid), socket_(socket), stderr_(stderr_pipe), scratch_(std::move(scratch)) {}
  pid_t pid_;
  int socket_, stderr_;
  TemporaryDirectory scratch_;
  bool ended_ = false;
};

}  // namespace temper::worker
