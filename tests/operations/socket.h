// A TCP client that says whatever a test wants said.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace temper::testing {

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit Socket(const std::string& address) : Socket() { Connect(address); }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;

  // `address`: 127.0.0.1:PORT.
  void Connect(const std::string& address) {
    sockaddr_in to{.sin_family = AF_INET};
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  // False: the peer takes nothing any more.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Whether anything comes, or the peer closes, before the time is over.
  bool Hears(int milliseconds) {
    pollfd polled{fd_, POLLIN, 0};
    return poll(&polled, 1, milliseconds) > 0;
  }
  // All there is until the peer closes.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    for (ssize_t n; (n = recv(fd_, bytes, sizeof bytes, 0)) > 0;) all.append(bytes, static_cast<size_t>(n));
    return all;
  }

 private:
  int fd_;
};

inline std::string Get(const std::string& address, const std::string& target) {
  Socket socket(address);
  socket.Send("GET " + target + " HTTP/1.1\r\nHost: test\r\n\r\n");
  return socket.ReadAll();
}

}  // namespace temper::testing
