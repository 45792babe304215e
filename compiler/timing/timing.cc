#include "compiler/timing/timing.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace temper {

int64_t MonotonicNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

int64_t CallsForSample(double seconds_per_call, int64_t min_sample_us) {
  constexpr double kMost = 1e6;
  const double wanted = static_cast<double>(min_sample_us) * 1e-6;
  if (!(seconds_per_call > 0)) return wanted > 0 ? static_cast<int64_t>(kMost) : 1;
  return static_cast<int64_t>(std::clamp(std::ceil(wanted / seconds_per_call), 1.0, kMost));
}

}  // namespace temper
