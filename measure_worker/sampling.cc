#include "measure_worker/sampling.h"

#include <algorithm>
#include <cmath>

#include "compiler/runtime/timing.h"

namespace temper::worker {
namespace {

constexpr int kMaxAdaptations = 4;  // a clock that says nothing useful must not hold us
constexpr double kAgreement = 0.8;  // of the rounds, on who is faster
constexpr size_t kRoundsThatDecide = 5;
constexpr double kWarmsItselfS = 1e-3;
// One sample may be several times too long: threads were asleep, or somebody else had a core. Alone it decides only
// where it is hopeless.
constexpr double kHopeless = 8;

int64_t CallsAfter(double first_s, const TimeFn& time, int64_t min_sample_us) {
  int64_t calls = 1;
  double seconds = first_s;
  for (int i = 0; i < kMaxAdaptations; ++i) {
    const int64_t next = CallsForSample(seconds / static_cast<double>(calls), min_sample_us);
    if (next <= calls) break;
    // The first call is the coldest, so an estimate from it may be far too low: look again before trusting it.
    calls = next;
    seconds = time(calls);
  }
  return calls;
}

// The more samples, the nearer the best of them must be to the incumbent: noise makes a time longer, and seldom twice.
bool IsBehind(const SamplingPlan& plan, const std::vector<double>& costs_s, double incumbent_s) {
  if (incumbent_s <= 0 || plan.race_factor <= 0) return false;
  const double best_s = *std::min_element(costs_s.begin(), costs_s.end());
  const auto samples = static_cast<double>(costs_s.size());
  const double factor = samples == 1 ? kHopeless : std::pow(plan.race_factor, 1 / (samples * samples));
  return best_s > factor * incumbent_s;
}

// The rounds that the one who is faster in more of them has won.
size_t MostWon(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t rounds = std::min(a.size(), b.size());
  size_t won = 0;
  for (size_t i = 0; i < rounds; ++i) won += a[i] < b[i];
  return std::max(won, rounds - won);
}

}  // namespace

int64_t FindCalls(const TimeFn& time, int64_t min_sample_us) { return CallsAfter(time(1), time, min_sample_us); }

Samples MeasureRacing(const SamplingPlan& plan, double incumbent_s, const TimeFn& time) {
  Samples result;
  const double first_s = time(1);
  const int64_t calls = CallsAfter(first_s, time, plan.min_sample_us);
  const bool is_sample = calls == 1 && first_s >= kWarmsItselfS;
  for (int i = 0; i < std::max(1, plan.repeats) && !result.raced_out; ++i) {
    result.costs_s.push_back(i == 0 && is_sample ? first_s : time(calls) / static_cast<double>(calls));
    result.raced_out = i + 1 < plan.repeats && IsBehind(plan, result.costs_s, incumbent_s);
  }
  if (result.raced_out) result.costs_s = {*std::min_element(result.costs_s.begin(), result.costs_s.end())};
  return result;
}

bool IsCloseCall(const std::vector<double>& a, const std::vector<double>& b) {
  return static_cast<double>(MostWon(a, b)) < kAgreement * static_cast<double>(std::min(a.size(), b.size()));
}

bool IsDecided(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t rounds = std::min(a.size(), b.size());
  return rounds >= kRoundsThatDecide && MostWon(a, b) == rounds;
}

int InterleavedIndex(int round, int turn, int contenders) { return round % 2 == 0 ? turn : contenders - 1 - turn; }

}  // namespace temper::worker
