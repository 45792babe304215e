#include "bench/service/open_loop.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace temper::bench {

void OpenLoop::Run(absl::Duration length) {
  const absl::Time start = absl::Now();
  const auto calls = static_cast<int64_t>(per_second_ * absl::ToDoubleSeconds(length));
  for (int64_t k = 0; k < calls; ++k) {
    const absl::Time due = start + absl::Seconds(static_cast<double>(k) / per_second_);
    if (const absl::Duration early = due - absl::Now(); early > absl::ZeroDuration()) absl::SleepFor(early);
    ++under_way_;
    const bool begun = begin_(k, [this, due](bool ok) {
      const double ms = absl::ToDoubleMilliseconds(absl::Now() - due);
      {
        std::lock_guard lock(mutex_);
        times_ms_.push_back(ms);
      }
      if (!ok) ++failed_;
      --under_way_;
    });
    if (begun) continue;
    ++starved_;
    --under_way_;
  }
  while (under_way_ > 0) absl::SleepFor(absl::Milliseconds(1));
  seconds_ = absl::ToDoubleSeconds(absl::Now() - start);
}

double OpenLoop::answered_per_second() const {
  std::lock_guard lock(mutex_);
  return static_cast<double>(static_cast<int64_t>(times_ms_.size()) - failed_) / seconds_;
}

double OpenLoop::Percentile(double share) const {
  std::lock_guard lock(mutex_);
  if (times_ms_.empty()) return 0;
  std::vector<double> sorted = times_ms_;
  const auto rank = std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(rank), sorted.end());
  return sorted[rank];
}

}  // namespace temper::bench
