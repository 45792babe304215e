// How a worker joins a fleet, and what it keeps of that.
#pragma once

#include <string>

#include "base/status.h"
#include "proto/channel.h"

namespace temper::worker {

// STATE/workers/KEY holds worker.key, worker.crt and ca.crt of the worker that serves this key.
// None of it where nobody joined: then all is empty.
TlsFiles MembershipOf(const std::string& state_directory, const std::string& device_key);

// Makes a key, has it signed by the server at HOST:PORT that the invitation comes from, and keeps what MembershipOf
// finds, in place of an earlier membership of that key. Returns the key. Sends nothing to any other server.
absl::StatusOr<std::string> JoinFleet(const std::string& server, const std::string& invitation,
                                      const std::string& state_directory);

}  // namespace temper::worker
