#include "tests/chaos/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/chaos/raw_http2.h"

namespace temper {

Relay::Relay(const std::string& server, absl::Duration delay)
    : server_(server), delay_(delay), listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in name{.sin_family = AF_INET};
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  bind(listening_.get(), reinterpret_cast<const sockaddr*>(&name), size);
  listen(listening_.get(), SOMAXCONN);
  getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&name), &size);
  address_ = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  accept_ = std::thread([this] { AcceptLoop(); });
}

Relay::~Relay() {
  shutdown(listening_.get(), SHUT_RDWR);
  accept_.join();
  Cut();
  for (Connection& connection : connections_) {
    connection.up.join();
    connection.down.join();
  }
}

void Relay::Cut() {
  std::lock_guard lock(mutex_);
  eats_ = false;
  for (Connection& connection : connections_) {
    shutdown(connection.peer.get(), SHUT_RDWR);
    shutdown(connection.server.get(), SHUT_RDWR);
  }
}

void Relay::AcceptLoop() {
  for (int peer; (peer = accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    Descriptor server = ConnectTcp(server_);
    if (!server.valid()) {
      close(peer);
      continue;
    }
    std::lock_guard lock(mutex_);
    Connection& connection = connections_.emplace_back();
    connection.peer.Reset(peer);
    connection.server = std::move(server);
    const int to = connection.server.get();
    connection.up = std::thread([this, peer, to] { Pass(peer, to, false); });
    connection.down = std::thread([this, peer, to] { Pass(to, peer, true); });
  }
}

void Relay::Pass(int from, int to, bool replies) {
  std::deque<std::pair<absl::Time, std::string>> under_way;  // and when it arrives
  char buffer[65536];
  while (true) {
    const absl::Duration next = under_way.empty() ? absl::InfiniteDuration() : under_way.front().first - absl::Now();
    if (next <= absl::ZeroDuration()) {
      if (!SendAll(to, under_way.front().second)) break;
      under_way.pop_front();
      continue;
    }
    pollfd waits{from, POLLIN, 0};
    const int timeout = under_way.empty() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(next)) + 1;
    if (poll(&waits, 1, timeout) <= 0) continue;
    const ssize_t n = recv(from, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    if (replies && eats_) {
      has_eaten_ = true;
      continue;
    }
    under_way.emplace_back(absl::Now() + delay_, std::string(buffer, static_cast<size_t>(n)));
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace temper
