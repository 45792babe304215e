// Calls at a fixed rate, whatever the server does: a call's time runs from when it was due, so a server that falls
// behind can not slow its own load down.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace temper::bench {

class OpenLoop {
 public:
  // Told once for each call that was begun; any thread.
  using Done = std::function<void(bool ok)>;

  // `begin(k, done)` begins the k-th call and returns at once; false: there was nothing to call with, and it is counted
  // as starved.
  OpenLoop(std::string name, double per_second, std::function<bool(int64_t, Done)> begin)
      : name_(std::move(name)), per_second_(per_second), begin_(std::move(begin)) {}

  // Blocks for `length`, and then until the last call is answered.
  void Run(absl::Duration length);

  const std::string& name() const { return name_; }
  double wanted() const { return per_second_; }
  double answered_per_second() const;
  double Percentile(double share) const;  // of the calls' times, in milliseconds
  int64_t failed() const { return failed_; }
  int64_t starved() const { return starved_; }

 private:
  const std::string name_;
  const double per_second_;
  const std::function<bool(int64_t, Done)> begin_;
  std::atomic<int64_t> under_way_ = 0, failed_ = 0, starved_ = 0;
  mutable std::mutex mutex_;
  std::vector<double> times_ms_;
  double seconds_ = 0;  // from the first call to the last answer
};

}  // namespace temper::bench
