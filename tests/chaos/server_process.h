// A real temper-server as a child process, to be frozen, killed and started again.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

namespace temper {

struct ServerProcessOptions {
  std::string db;
  std::string listen = "127.0.0.1:0";
  std::vector<std::string> arguments;    // more of them
  std::vector<std::string> environment;  // "NAME=value", beside this process's own
  int descriptors = 0;                   // RLIMIT_NOFILE; 0: this process's own
};

// Not thread-safe.
class ServerProcess {
 public:
  ServerProcess() = default;
  ~ServerProcess();  // killed and reaped

  // Waits until it listens. An error: it ended before; the message is what it wrote to stderr.
  absl::Status Start(const ServerProcessOptions& options);
  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  const std::string& address() const { return address_; }  // with the port that was chosen

  void Signal(int signal);
  // Waits for its end; the status as waitpid tells it.
  int Wait();
  // Whether it ends by itself; then it is reaped.
  bool EndsWithin(absl::Duration patience);
  int KillAndWait();  // kill -9
  // Processor time that it has used, in seconds.
  double CpuSeconds() const;

 private:
  pid_t pid_ = -1;
  std::string address_;
};

}  // namespace temper
