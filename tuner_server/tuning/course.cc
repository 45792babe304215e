#include "tuner_server/tuning/course.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {

constexpr int kLeastTrials = 8;
constexpr int kDoublings = 3;

}  // namespace

void Course::Add(double best_s) {
  ++trials_;
  if (best_s > 0 && (steps_.empty() || best_s < steps_.back().second)) steps_.emplace_back(trials_, best_s);
}

double Course::BestAfter(int trials) const {
  const auto next = std::upper_bound(steps_.begin(), steps_.end(), trials,
                                     [](int n, const std::pair<int, double>& step) { return n < step.first; });
  return next == steps_.begin() ? std::numeric_limits<double>::infinity() : std::prev(next)->second;
}

double Course::GainLeft() const {
  if (trials_ < kLeastTrials) return std::numeric_limits<double>::infinity();
  double sum = 0;
  int asked = 0;
  for (int k = 0; k < kDoublings; ++k) {
    const double gained = BestAfter(trials_ >> (k + 1)) - BestAfter(trials_ >> k);
    if (!std::isfinite(gained)) break;  // that early there was none
    sum += gained / (1 << k);           // since then it has halved so often
    ++asked;
  }
  if (asked == 0) return std::numeric_limits<double>::infinity();
  const auto& [first, first_s] = steps_.front();
  return std::max(sum / asked, (first_s - steps_.back().second) * first / (trials_ - first));
}

double Course::ShareWithin(double more) const { return more <= 0 ? 0 : more / (trials_ + more); }

}  // namespace temper
