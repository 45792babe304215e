// The sockets that listen on one address, and what keeps a second server off it.
#pragma once

#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/status.h"

namespace temper {

class ListeningSockets {
 public:
  // `address`: "HOST:PORT", which means all addresses of the host (port 0: one port that is free on all of them), or
  // "unix:PATH". kInvalidArgument: it is no address; kUnavailable: it can not be had, the message says why.
  //
  // A socket file is its owner's alone. One that a dead server left is replaced; one that somebody listens on is not:
  // while it listens a server holds a lock on PATH.lock, and whoever answers on the path without the lock keeps it too.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);
  ListeningSockets(ListeningSockets&&) = default;
  ~ListeningSockets();  // takes the socket file and its lock away

  const std::string& address() const { return address_; }  // with the port that was chosen
  const std::vector<Descriptor>& sockets() const { return sockets_; }

 private:
  ListeningSockets() = default;
  absl::Status OpenUnix(const std::string& path);
  absl::Status OpenTcp(const std::string& host, const std::string& port);

  std::string address_;
  std::vector<Descriptor> sockets_;
  std::string path_;  // of a socket file
  Descriptor lock_;
};

// "HOST:PORT" in its parts, the brackets of an IPv6 address taken away. Empty where it has no port.
struct HostAndPort {
  std::string host, port;
};
HostAndPort SplitHostPort(const std::string& address);
bool IsUnixAddress(const std::string& address);

}  // namespace temper
