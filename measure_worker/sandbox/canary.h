// Tells when a device is slower than it was: the same small kernel, timed now and then between candidates, against the
// fastest of its latest times. What was measured while it was slow is told with that drift.
#pragma once

#include <cstdint>
#include <deque>

namespace temper::worker {

// Beyond this many times as slow as usual, what is measured says little.
inline constexpr double kUsualDrift = 1.2;

class Canary {
 public:
  static constexpr int64_t kIntervalNs = 50'000'000;

  explicit Canary(int64_t interval_ns = kIntervalNs) : interval_ns_(interval_ns) {}

  bool Due(int64_t now_ns) const { return times_.empty() || now_ns - last_ns_ >= interval_ns_; }
  // One more time of the kernel. Returns how many times as long as usual it took, here or when it was last timed:
  // for what was measured in between. 1 at first, and never less.
  double Look(double seconds, int64_t now_ns);
  double drift() const { return last_drift_; }  // at the latest look

 private:
  int64_t interval_ns_;
  int64_t last_ns_ = 0;
  double last_drift_ = 1;
  std::deque<double> times_;  // the latest
};

}  // namespace temper::worker
