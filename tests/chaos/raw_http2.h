// HTTP/2 by hand over a socket, for peers that misbehave.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "tuner_server/service/listening_sockets.h"

namespace temper {

// Connected to "127.0.0.1:PORT" or "[::1]:PORT"; `from`: the address of its own end, where that matters. Not valid
// where it could not connect.
inline Descriptor ConnectTcp(const std::string& address, const std::string& from = "") {
  const HostAndPort parts = SplitHostPort(address);
  sockaddr_in6 v6{.sin6_family = AF_INET6, .sin6_port = htons(static_cast<uint16_t>(std::stoi(parts.port)))};
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = v6.sin6_port};
  const bool is_v6 = inet_pton(AF_INET6, parts.host.c_str(), &v6.sin6_addr) == 1;
  if (!is_v6) inet_pton(AF_INET, parts.host.c_str(), &v4.sin_addr);
  Descriptor socket(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!from.empty()) {
    sockaddr_in own{.sin_family = AF_INET};
    inet_pton(AF_INET, from.c_str(), &own.sin_addr);
    bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own));
  }
  const auto* name = is_v6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  if (connect(socket.get(), name, is_v6 ? sizeof(v6) : sizeof(v4)) != 0) socket.Reset();
  return socket;
}

// Connected to "unix:PATH"; not valid where it could not connect.
inline Descriptor ConnectUnix(const std::string& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.substr(address.find(':') + 1).copy(name.sun_path, sizeof(name.sun_path) - 1);
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) socket.Reset();
  return socket;
}

// Reads and drops what comes until the peer closes; false if it has not after `patience_ms` of silence.
inline bool AwaitEnd(int socket, int patience_ms) {
  char buffer[65536];
  for (pollfd waits{socket, POLLIN, 0}; poll(&waits, 1, patience_ms) == 1;) {
    if (recv(socket, buffer, sizeof(buffer), 0) <= 0) return true;
  }
  return false;
}

inline bool SendAll(int socket, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

enum class Http2Frame : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kContinuation = 9 };

inline std::string Frame(Http2Frame type, uint8_t flags, uint32_t stream, const std::string& payload) {
  const auto size = static_cast<uint32_t>(payload.size());
  std::string frame;
  for (const uint32_t byte : {size >> 16, size >> 8, size, uint32_t{static_cast<uint8_t>(type)}, uint32_t{flags},
                              stream >> 24, stream >> 16, stream >> 8, stream}) {
    frame += static_cast<char>(byte & 0xFF);
  }
  return frame + payload;
}

inline std::string Http2Preface() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(Http2Frame::kSettings, 0, 0, "");
}

// The headers of a gRPC call. Each connection's first call defines the fields that the next ones refer to.
inline std::string CallHeaders(const std::string& path, bool first) {
  constexpr uint8_t kPost = 0x83, kHttp = 0x86, kLiteral = 0x40;
  std::string block = {static_cast<char>(kPost), static_cast<char>(kHttp)};
  if (!first) return block + "\xC2\xC1\xC0\xBF\xBE";
  for (const auto& [name, value] :
       std::initializer_list<std::pair<std::string, std::string>>{{":path", path},
                                                                  {":authority", "x"},
                                                                  {"te", "trailers"},
                                                                  {"content-type", "application/grpc"},
                                                                  {"grpc-timeout", "1H"}}) {
    block += static_cast<char>(kLiteral);
    block += static_cast<char>(name.size());
    block += name;
    block += static_cast<char>(value.size());
    block += value;
  }
  return block;
}

}  // namespace temper
