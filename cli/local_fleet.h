// The server and the worker that a command brings with it, and how it is interrupted.
#pragma once

#include <csignal>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/temporary_directory.h"
#include "cli/children.h"
#include "cli/command.h"

namespace temper {

// Turns SIGINT and SIGTERM into a call, for as long as it lives. Other threads must be started after it.
class Interrupts {
 public:
  explicit Interrupts(std::function<void()> on_signal);
  ~Interrupts();
  bool interrupted() const { return interrupted_; }

 private:
  sigset_t set_, old_;
  std::atomic<bool> interrupted_{false};
  std::thread thread_;
};

// The server and the worker that a local run brings with it.
struct LocalFleet {
  TemporaryDirectory dir;
  std::unique_ptr<Child> server;
  std::unique_ptr<KeptChild> worker;

  // Why the run cannot go on; empty while it can.
  std::string Broken();
};

// A server over the database that `records` names, and a worker with its device key and target (empty: this
// machine's) on `device`, as the worker's own --device names it (empty: the affinity mask's cores, or the first device
// that runs code for the target). `on_broken`: the worker is gone for good. Returns the target; the worker counts its
// threads itself.
absl::StatusOr<Target> StartLocal(const RecordOptions& records, std::string device, LocalFleet* fleet,
                                  std::unique_ptr<TunerClient>* client, const std::function<void()>& on_broken);

}  // namespace temper
