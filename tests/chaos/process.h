// A child process of a test, to be frozen, killed and waited for.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/status.h"

namespace temper {

struct ProcessOptions {
  std::vector<std::string> arguments;    // the program's path first
  std::vector<std::string> environment;  // "NAME=value", before this process's own
  int descriptors = 0;                   // RLIMIT_NOFILE; 0: this process's own
  std::string network_namespace;         // as `ip netns` names it; empty: this process's own
};

// Dies with the thread that started it. Not thread-safe.
class Process {
 public:
  Process() = default;
  ~Process();  // killed and reaped

  absl::Status Start(const ProcessOptions& options);
  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  // The next line of its stdout; what there is of it where it ends.
  std::string ReadLine();
  std::string Errors() const;  // its stderr so far

  void Signal(int signal);
  // Waits for its end; the status as waitpid tells it.
  int Wait();
  // Whether it ends by itself; then it is reaped.
  bool EndsWithin(absl::Duration patience);
  int KillAndWait();  // kill -9
  // Processor time that it has used, in seconds.
  double CpuSeconds() const;
  std::vector<pid_t> Children() const;
  size_t Descriptors() const;  // how many it has open
  // Bytes, as /proc/PID/status tells them: "VmRSS" now, "VmHWM" at most so far. 0: it is gone.
  int64_t MemoryBytes(const std::string& what) const;

 private:
  pid_t pid_ = -1;
  Descriptor out_, err_;
};

// Not a zombie either.
bool IsAlive(pid_t pid);

struct ServerProcessOptions {
  std::string db;
  std::string listen = "127.0.0.1:0";
  std::vector<std::string> arguments;    // more of them
  std::vector<std::string> environment;  // see ProcessOptions
  int descriptors = 0;
  std::string network_namespace;
};

// A real temper-server.
class ServerProcess : public Process {
 public:
  // Waits until it listens. An error: it ended before; the message is what it wrote to stderr.
  absl::Status Start(const ServerProcessOptions& options);
  const std::string& address() const { return address_; }  // with the port that was chosen

 private:
  std::string address_;
};

// A real temper-worker whose device makes up times, so that it needs no quiet machine.
class WorkerProcess : public Process {
 public:
  // `folder`: for its locks, made if need be. Workers of different folders do not wait for one another's cores, as if
  // they were on machines of their own.
  absl::Status Start(const std::string& server, const std::string& key, const std::string& folder);
};

}  // namespace temper
