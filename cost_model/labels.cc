#include "cost_model/labels.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {

// What is this much slower than the best of its task is hopeless; how hopeless is not worth a split.
constexpr double kHopeless = 32;
constexpr double kFailureStep = 2;   // a failure counts as this much slower than the slowest success
constexpr double kFailureAlone = 8;  // and where nothing has succeeded, as this much slower than its draft
constexpr float kSmallestWeight = 0.3f;

// What a group's failures count as, and how slow what is hopeless counts as.
struct Clamp {
  double best = std::numeric_limits<double>::infinity(), worst = -best;  // logarithms of seconds

  double Of(double log_draft, double log_cost) const {
    if (!std::isinf(log_cost)) return std::min(log_cost, worst);
    return std::isinf(best) ? log_draft + std::log(kFailureAlone) : worst + std::log(kFailureStep);
  }
};

Clamp ClampOf(const std::vector<size_t>& members, std::span<const double> log_cost) {
  Clamp clamp;
  for (size_t i : members) {
    if (std::isinf(log_cost[i])) continue;
    clamp.best = std::min(clamp.best, log_cost[i]);
    clamp.worst = std::max(clamp.worst, log_cost[i]);
  }
  clamp.worst = std::min(clamp.worst, clamp.best + std::log(kHopeless));
  return clamp;
}

}  // namespace

Labels MakeLabels(const Groups& groups, std::span<const double> log_draft, std::span<const double> log_cost,
                  Objective objective) {
  Labels labels{std::vector<float>(log_cost.size()), std::vector<float>(log_cost.size())};
  for (const auto& [group, members] : groups) {
    const Clamp clamp = ClampOf(members, log_cost);
    double sum = 0, weights = 0;
    for (size_t i : members) {
      const double cost = clamp.Of(log_draft[i], log_cost[i]);
      labels.value[i] = static_cast<float>(objective == Objective::kRank ? -cost : log_draft[i] - cost);
      labels.weight[i] = std::isinf(clamp.best)
                             ? kSmallestWeight
                             : std::max(kSmallestWeight, static_cast<float>(std::exp(clamp.best - cost)));
      sum += labels.weight[i] * labels.value[i];
      weights += labels.weight[i];
    }
    if (objective == Objective::kRank) continue;
    for (size_t i : members) labels.value[i] -= static_cast<float>(sum / weights);
    labels.mean += sum / weights / static_cast<double>(groups.size());
  }
  return labels;
}

}  // namespace temper
