// What tells a connection that floods the server from one that works. Each call of an honest peer is answered; a peer
// that opens streams and resets them, or sends frames that are no calls, makes work that nobody wants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/allowance.h"

struct sockaddr_storage;

namespace temper {

// Of one connection since it was made.
struct StreamCounts {
  int64_t started = 0;   // by the peer
  int64_t answered = 0;  // to their end
};

// Of one connection since it was made, in bytes.
struct Traffic {
  int64_t received = 0;
  int64_t unread = 0;  // of these, what gRPC has not taken yet
  int64_t sent = 0;
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

  // A request of some size makes the server speak: it widens the request's window, by 1 MiB at most (server.cc), and
  // the end is answered. Headers have no window, nothing is said before their end, and gRPC 1.51 goes through all of an
  // unfinished one again for each of its frames, however small. So who says much with nothing said in return is cut
  // off, and who keeps gRPC busy with it sooner. Some requests may end at the same time.
  static constexpr int64_t kBytesUnheeded = 4 << 20;
  static constexpr int64_t kBytesOfSuspects = 64 << 10;
  static constexpr absl::Duration kBusy = absl::Milliseconds(500);
  // Where nobody looked for longer, the machine was busy, not this connection.
  static constexpr absl::Duration kBusyBetweenLooks = absl::Milliseconds(20);

  explicit FloodMeter(absl::Duration now) : seen_(now), looked_(now) {}
  // `bytes`: that came in since the connection was made. `now` is monotonic. True from the moment it floods.
  bool Floods(int64_t bytes, const StreamCounts& counts, absl::Duration now);
  // The same for what it says without being heeded. To be asked soon after bytes came in, and while any are unread.
  bool FloodsUnheeded(const Traffic& traffic, absl::Duration now);
  int64_t unanswered() const { return received_ - answered_at_; }  // bytes since the last answer that was seen
  // The same with `received` bytes by now, if they are more than were seen.
  int64_t UnansweredOf(int64_t received) const { return std::max(received, received_) - answered_at_; }

 private:
  absl::Duration seen_;  // when it was judged last
  StreamCounts counts_;
  int64_t answered_at_ = 0;  // the bytes when an answer was seen last
  double wasted_ = 0;        // leaks at kWastedPerSecond
  int64_t received_ = 0;
  absl::Duration looked_;  // when FloodsUnheeded was asked last
  int64_t received_by_then_ = 0;
  int64_t heeded_at_ = 0;  // the bytes when the server was seen to have spoken last
  int64_t sent_ = 0;       // by then
  absl::Duration busy_;    // since then, while gRPC had not taken in what it was to take
};

// Judges one peer by the connections that it makes and ends, so that none begins anew by connecting again. What a
// connection brought since its last answer that was seen counts, and the last answer may not have been seen. So this
// allows what many honest peers behind one address do when their network breaks. Not thread-safe.
class PeerMeter {
 public:
  static constexpr double kConnectionsAtOnce = 10000, kConnectionsPerSecond = 20;
  static constexpr double kBytesAtOnce = 64 << 20, kBytesPerSecond = 1 << 20;

  // It connects. False: it does so too often, and this one does not count.
  bool Connects(absl::Duration now) { return connections_.Take(1, now); }
  // One of its connections ended. True: it floods.
  bool Ends(int64_t unanswered_bytes, absl::Duration now) {
    return !bytes_.Overdraw(static_cast<double>(unanswered_bytes), now);
  }
  bool IsQuiet(absl::Duration now) const { return connections_.IsWhole(now) && bytes_.IsWhole(now); }

 private:
  Allowance connections_{kConnectionsAtOnce, kConnectionsPerSecond}, bytes_{kBytesAtOnce, kBytesPerSecond};
};

}  // namespace temper
