// A world in which nothing happens by itself: a heap of events in the order of their time, one source of chance, two
// clocks, and a record of what was done. The same seed gives the same world.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"

namespace temper::simulator {

class World : public Clock {
 public:
  explicit World(uint64_t seed) : rng_(seed) {}

  // The clocks. The wall's is this machine's date, which may jump; the other one only goes on.
  absl::Duration Monotonic() const override { return now_; }
  absl::Time Wall() const override { return absl::UnixEpoch() + absl::Hours(24 * 365 * 50) + wall_offset_ + now_; }
  void JumpWall(absl::Duration by) { wall_offset_ += by; }

  // Chance.
  Rng& rng() { return rng_; }
  bool Chance(double probability) { return rng_.Uniform() < probability; }
  absl::Duration Between(absl::Duration least, absl::Duration most) { return least + (most - least) * rng_.Uniform(); }

  // Events.
  void After(absl::Duration delay, std::function<void()> event);
  bool Step();  // runs the next event; false: there is none
  int64_t steps() const { return steps_; }

  // What happened, in one line each.
  void Note(std::string_view line);
  uint64_t trace_hash() const { return hash_; }
  std::string LastNotes() const;

 private:
  struct Event {
    absl::Duration at;
    int64_t sequence;
    std::function<void()> run;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : sequence > other.sequence; }
  };

  Rng rng_;
  absl::Duration now_ = absl::Hours(1), wall_offset_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t sequence_ = 0, steps_ = 0;
  uint64_t hash_ = 0;
  std::deque<std::string> notes_;
};

}  // namespace temper::simulator
