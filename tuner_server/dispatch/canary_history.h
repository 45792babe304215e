// How a worker's canary fared lately. Not thread-safe.
#pragma once

#include <deque>
#include <vector>

#include "absl/time/time.h"

namespace temper {

struct CanaryReading {
  absl::Duration at;
  double drift = 0;  // see TrialResult
};

class CanaryHistory {
 public:
  static constexpr size_t kMost = 32;  // readings that are kept

  // What a result says; 0: it does not know. The trials of a batch share a reading, which counts once.
  void Note(double drift, absl::Duration now) {
    const bool fresh = drift > 0 && drift != latest_;
    latest_ = drift;
    if (!fresh) return;
    readings_.push_back({now, drift});
    if (readings_.size() > kMost) readings_.pop_front();
  }
  double latest() const { return latest_; }
  std::vector<CanaryReading> readings() const { return {readings_.begin(), readings_.end()}; }  // oldest first

 private:
  double latest_ = 0;
  std::deque<CanaryReading> readings_;
};

}  // namespace temper
