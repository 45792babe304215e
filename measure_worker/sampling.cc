#include "measure_worker/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/timing/timing.h"

namespace temper::worker {
namespace {

constexpr int kMaxAdaptations = 4;  // a clock that says nothing useful must not hold us
constexpr double kAgreement = 0.8;  // of the rounds, on who is faster
constexpr size_t kRoundsThatDecide = 5;
constexpr double kLongCallS = 0.5e-3;
constexpr double kColder = 1.05;  // times as slow is a long call where it is verified, give or take
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
bool IsBehind(const SamplingPlan& plan, double best_s, int samples, double incumbent_s) {
  if (incumbent_s <= 0 || plan.race_factor <= 0) return false;
  return best_s > (samples == 1 ? kHopeless : std::pow(plan.race_factor, 1.0 / (samples * samples))) * incumbent_s;
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

Samples MeasureRacing(const SamplingPlan& plan, double incumbent_s, double verified_s, const TimeFn& time) {
  Samples result;
  const double first_s = time(1);
  const int64_t calls = CallsAfter(first_s, time, plan.min_sample_us);
  const bool is_long = calls == 1 && first_s >= kLongCallS;
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < std::max(1, plan.repeats) && !result.raced_out; ++i) {
    result.costs_s.push_back(i == 0 && is_long ? first_s : time(calls) / static_cast<double>(calls));
    best_s = std::min(best_s, result.costs_s.back());
    const bool twice = i == 0 && is_long && IsBehind(plan, std::min(best_s, verified_s / kColder), 2, incumbent_s);
    result.raced_out = i + 1 < plan.repeats && (twice || IsBehind(plan, best_s, i + 1, incumbent_s));
  }
  if (result.raced_out) result.costs_s = {best_s};
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
