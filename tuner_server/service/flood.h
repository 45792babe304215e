// What tells a connection that floods the server from one that works. Each call of an honest peer is answered; a peer
// that opens streams and resets them, or sends frames that are no calls, makes work that nobody wants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

struct sockaddr_storage;

namespace temper {

// Of one connection since it was made.
struct StreamCounts {
  int64_t started = 0;   // by the peer
  int64_t answered = 0;  // to their end
};

// gRPC's own counters (channelz) for connections of servers in this process. Costs a list of all connections.
class TransportCounters {
 public:
  // The id of the connection from `peer`; nullopt: gRPC has none, or its handshake is not over.
  static std::optional<int64_t> Find(const sockaddr_storage& peer);
  // nullopt: it is closed.
  static std::optional<StreamCounts> Read(int64_t id);
};

// Judges one connection. Not thread-safe.
class FloodMeter {
 public:
  static constexpr int64_t kWastedAtOnce = 500;  // streams that were not answered
  static constexpr int64_t kWastedPerSecond = 100;
  static constexpr int64_t kBytesUnanswered = 32 << 20;  // twice the largest request

  explicit FloodMeter(absl::Duration now) : seen_(now) {}
  // `bytes`: that came in since the connection was made. `now` is monotonic. True from the moment it floods.
  bool Floods(int64_t bytes, const StreamCounts& counts, absl::Duration now);

 private:
  absl::Duration seen_;  // when it was judged last
  StreamCounts counts_;
  int64_t answered_at_ = 0;  // the bytes when an answer was seen last
  double wasted_ = 0;        // leaks at kWastedPerSecond
};

}  // namespace temper
