// Calls between machines of a simulated world. Each is answered exactly once, by the other side or by its failure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/server/simulator/faults.h"
#include "tests/server/simulator/world.h"

namespace temper::simulator {

class Network {
 public:
  Network(World& world, const Faults& faults, std::function<bool()> server_is_up)
      : world_(world), faults_(faults), server_is_up_(std::move(server_is_up)) {}

  // `serve` runs at the server, with a function that sends the reply; twice where the request was doubled. `done` runs
  // at the caller. A reply that does not come within the deadline is a failure.
  template <typename Reply>
  void Call(absl::Duration deadline, std::function<void(std::function<void(absl::StatusOr<Reply>)>)> serve,
            std::function<void(absl::StatusOr<Reply>)> done) {
    const int64_t id = next_++;
    const auto finish = [this, id, done = std::move(done)](absl::StatusOr<Reply> reply) {
      if (open_.erase(id) > 0) done(std::move(reply));
    };
    open_[id] = [finish](const std::string& why) { finish(absl::UnavailableError(why)); };
    const auto reply = [this, id, finish, deadline](absl::StatusOr<Reply> answer) {
      if (!open_.contains(id)) return;
      if (Lost()) return FailLater(id, deadline, "the reply was lost");
      world_.After(Delay(), [finish, answer = std::move(answer)]() mutable { finish(std::move(answer)); });
    };
    if (Lost()) return FailLater(id, deadline, "the request was lost");
    const int times = faults_.lossy_network && world_.Chance(kDoubled) ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      world_.After(Delay(), [this, id, serve, reply] {
        if (!server_is_up_()) return FailLater(id, Delay(), "the connection was refused");
        serve(reply);
      });
    }
  }

  // All calls under way end: the other side is gone.
  void BreakAll() {
    for (const auto& [id, fail] : open_) FailLater(id, absl::Milliseconds(20), "the connection was reset");
  }

  bool Cut() { return faults_.lossy_network && world_.Chance(kCut); }
  // How long a message travels.
  absl::Duration Delay() {
    const bool late = faults_.lossy_network && world_.Chance(kLate);
    return world_.Between(absl::Microseconds(200), late ? absl::Seconds(3) : absl::Milliseconds(5));
  }

 private:
  static constexpr double kLost = 0.03, kDoubled = 0.03, kLate = 0.1, kCut = 0.05;

  bool Lost() { return faults_.lossy_network && world_.Chance(kLost); }
  void FailLater(int64_t id, absl::Duration delay, std::string why) {
    world_.After(delay, [this, id, why = std::move(why)] {
      if (const auto call = open_.find(id); call != open_.end()) std::function(call->second)(why);
    });
  }

  World& world_;
  const Faults& faults_;
  const std::function<bool()> server_is_up_;
  int64_t next_ = 1;
  std::map<int64_t, std::function<void(const std::string&)>> open_;  // how to fail it
};

}  // namespace temper::simulator
