#include "measure_worker/sampling.h"

#include <algorithm>

#include "compiler/runtime/timing.h"

namespace temper::worker {
namespace {

constexpr int kMaxAdaptations = 4;  // a clock that says nothing useful must not hold us
constexpr double kAgreement = 0.8;  // of the rounds, on who is faster

}  // namespace

int64_t FindCalls(const TimeFn& time, int64_t min_sample_us) {
  int64_t calls = 1;
  double seconds = time(1);
  for (int i = 0; i < kMaxAdaptations; ++i) {
    const int64_t next = CallsForSample(seconds / static_cast<double>(calls), min_sample_us);
    if (next <= calls) break;
    // The first call is the coldest, so an estimate from it may be far too low: look again before trusting it.
    calls = next;
    seconds = time(calls);
  }
  return calls;
}

Samples MeasureRacing(const SamplingPlan& plan, double incumbent_s, const TimeFn& time) {
  Samples result;
  const int64_t calls = FindCalls(time, plan.min_sample_us);
  const auto sample = [&] { result.costs_s.push_back(time(calls) / static_cast<double>(calls)); };
  sample();
  if (incumbent_s > 0 && plan.race_factor > 0 && result.costs_s[0] > plan.race_factor * incumbent_s) {
    result.raced_out = true;
    return result;
  }
  while (static_cast<int>(result.costs_s.size()) < plan.repeats) sample();
  return result;
}

bool IsCloseCall(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t rounds = std::min(a.size(), b.size());
  size_t won = 0;
  for (size_t i = 0; i < rounds; ++i) won += a[i] < b[i];
  return static_cast<double>(std::max(won, rounds - won)) < kAgreement * static_cast<double>(rounds);
}

bool IsOut(const SamplingPlan& plan, const std::vector<double>& samples, double best_median_s) {
  return plan.race_factor > 0 && static_cast<int>(samples.size()) >= kRoundsBeforeOut &&
         Median(samples) > plan.race_factor * best_median_s;
}

int InterleavedIndex(int round, int turn, int contenders) { return round % 2 == 0 ? turn : contenders - 1 - turn; }

}  // namespace temper::worker
