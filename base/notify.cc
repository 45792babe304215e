#include "base/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"

namespace temper {
namespace {

std::optional<absl::Duration> WatchdogOf(const char* usec, const char* pid) {
  int64_t period = 0, whose = 0;
  if (usec == nullptr || !absl::SimpleAtoi(usec, &period) || period <= 0) return std::nullopt;
  // Set for another process, which handed its environment on.
  if (pid != nullptr && (!absl::SimpleAtoi(pid, &whose) || whose != getpid())) return std::nullopt;
  return absl::Microseconds(period);
}

}  // namespace

ServiceNotifier::ServiceNotifier(const std::function<const char*(const char*)>& env)
    : watchdog_(WatchdogOf(env("WATCHDOG_USEC"), env("WATCHDOG_PID"))) {
  const char* address = env("NOTIFY_SOCKET");
  if (address == nullptr || (address[0] != '/' && address[0] != '@')) return;
  address_ = address;
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

ServiceNotifier ServiceNotifier::FromEnvironment() {
  return ServiceNotifier([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
}

ServiceNotifier::~ServiceNotifier() {
  if (socket_ >= 0) close(socket_);
}

void ServiceNotifier::Send(std::string_view message) const {
  sockaddr_un to{.sun_family = AF_UNIX};
  if (socket_ < 0 || address_.size() >= sizeof to.sun_path) return;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&to), size);
}

}  // namespace temper
