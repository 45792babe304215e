// Server and worker as child processes of a local `temper tune`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace temper {

// A child in a process group of its own, so that a terminal's Ctrl-C reaches only the command, which then stops its
// children in order. It dies with the command, however that ends. What it says is kept for WhyEnded, unless the
// command logs: then it goes to stderr too. Not thread-safe.
class Child {
 public:
  // `program` is the name of a binary beside this one.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::string& program, std::vector<std::string> args);
  ~Child();  // Stop()
  bool Running();
  // Returns once it has ended (true) or the descriptor has something to read (false).
  bool Wait(int or_readable);
  // Its last words in one line, else how it ended. For one that has.
  std::string WhyEnded() const;
  bool Killed() const;  // by a signal
  // SIGTERM, then SIGKILL if it has not ended after a few seconds.
  void Stop();

 private:
  Child(std::string program, pid_t pid, int words) : program_(std::move(program)), pid_(pid), words_(words) {}
  const std::string program_;
  const pid_t pid_;
  const int words_;  // a file in memory: its stderr. -1: went to ours
  bool ended_ = false;
  int status_ = 0;
};

// A child that is started again when a signal killed it (another program did, or the kernel was out of memory).
class KeptChild {
 public:
  // `on_given_up` is called once, on a thread of this object, when the child ended by itself or too often.
  static absl::StatusOr<std::unique_ptr<KeptChild>> Start(const std::string& program, std::vector<std::string> args,
                                                          std::function<void()> on_given_up);
  ~KeptChild();  // stops the child
  // Why the child is no more; empty while it is kept.
  std::string GivenUp();

 private:
  KeptChild(std::string program, std::vector<std::string> args, std::function<void()> on_given_up);
  void Keep();

  const std::string program_;
  const std::vector<std::string> args_;
  const std::function<void()> on_given_up_;
  const int stop_;  // an eventfd
  std::unique_ptr<Child> child_;
  std::mutex mutex_;
  std::string why_;
  std::thread thread_;
};

}  // namespace temper
