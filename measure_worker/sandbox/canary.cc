#include "measure_worker/sandbox/canary.h"

#include <algorithm>

namespace temper::worker {
namespace {

// So many looks make what is usual: a device that stays slower is so by its nature from then on.
constexpr size_t kKept = 256;

}  // namespace

double Canary::Look(double seconds, int64_t now_ns) {
  times_.push_back(seconds);
  if (times_.size() > kKept) times_.pop_front();
  const double drift = seconds / *std::min_element(times_.begin(), times_.end());
  const double around = std::max(drift, last_drift_);
  last_drift_ = drift;
  last_ns_ = now_ns;
  return around;
}

}  // namespace temper::worker
