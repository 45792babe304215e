#include "compiler/runtime/timing.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <vector>

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

double Median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : 0.5 * (sorted[middle - 1] + sorted[middle]);
}

double Mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double StandardDeviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double squares = 0;
  for (double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

}  // namespace temper
