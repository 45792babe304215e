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

// Has the server renew the certificate of `files` over that one, once it is due, and puts the new one in its place: for
// the same key, so that both are good meanwhile. True: it did. An error leaves the file as it is, to be tried again.
absl::StatusOr<bool> RenewMembership(const std::string& server, const TlsFiles& files, absl::Time now);

}  // namespace temper::worker
