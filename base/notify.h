// Tells systemd how this program stands, by the protocol of sd_notify(3): one datagram a message. Where no service
// manager listens all of it does nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace temper {

class ServiceNotifier {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID through `env`, which is getenv but in tests.
  explicit ServiceNotifier(const std::function<const char*(const char*)>& env);
  static ServiceNotifier FromEnvironment();
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  // READY=1, STOPPING=1, WATCHDOG=1, or STATUS=TEXT. Never blocks; a message that does not go through is lost.
  void Send(std::string_view message) const;
  // How long the manager waits for a WATCHDOG=1 before it kills this process; nullopt: it does not watch it.
  std::optional<absl::Duration> watchdog() const { return watchdog_; }

 private:
  std::string address_;  // of a Unix socket, "@..." for an abstract one; empty: there is none
  int socket_ = -1;
  std::optional<absl::Duration> watchdog_;
};

}  // namespace temper
