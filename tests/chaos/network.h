// A network of the test's own: a namespace for the server, a cable to it, and faults on that.
#pragma once

#include <string>

#include "base/status.h"

namespace temper {

class Network {
 public:
  // kUnavailable: this system does not let us, the message says why.
  static absl::StatusOr<Network> Make();
  Network(Network&& other) noexcept { std::swap(name_, other.name_); }
  Network& operator=(Network&& other) noexcept {
    std::swap(name_, other.name_);
    return *this;
  }
  Network() = default;  // none
  ~Network();

  const std::string& name() const { return name_; }  // of the namespace, see ProcessOptions
  std::string address() const;                       // in the namespace

  enum class Direction { kToServer, kFromServer };
  // From now on this share of the packets is lost, in percent.
  absl::Status Lose(Direction direction, int percent);
  absl::Status Heal();

 private:
  std::string name_;
};

}  // namespace temper
