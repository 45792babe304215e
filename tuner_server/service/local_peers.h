// Which of this machine's users is at the other end of a connection that does not leave the machine. Its address says
// nothing: all of them have the same.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>

#include "base/descriptor.h"

namespace temper {

// Not thread-safe.
class LocalPeers {
 public:
  LocalPeers();

  // The user that made the socket at the other end of this TCP connection, whose name is `peer`. nullopt: that end is
  // on another machine, is closed already, or the system does not tell.
  std::optional<uid_t> UserOf(int connection, const sockaddr_storage& peer);

 private:
  Descriptor kernel_;  // not valid: it does not tell
};

}  // namespace temper
