// Server and worker as child processes of a local `temper tune`.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace temper {

// A child in a process group of its own, so that a terminal's Ctrl-C reaches only the command, which then stops its
// children in order. It dies with the command, however that ends.
class Child {
 public:
  // `program` is the name of a binary beside this one.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::string& program, const std::vector<std::string>& args);
  ~Child();  // Stop()
  bool Running();
  // SIGTERM, then SIGKILL if it has not ended after a few seconds.
  void Stop();

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  bool ended_ = false;
};

}  // namespace temper
