#include "tuner_server/search/point_tuner.h"

#include <limits>
#include <map>

namespace temper {

absl::StatusOr<std::vector<Proposal>> PointTuner::Propose(int n) {
  std::vector<Proposal> batch;
  while (static_cast<int>(batch.size()) < n) {
    TEMPER_ASSIGN_OR_RETURN(std::optional<Point> point, Next());
    if (!point.has_value()) point = walk_.Next(seen_);
    if (!point.has_value()) break;
    seen_.insert(*point);
    awaited_.insert(*point);
    ++proposed_;
    batch.push_back(task_->At(*point));
  }
  return batch;
}

absl::Status PointTuner::Observe(std::span<const Observation> observations) {
  for (const Observation& o : observations) TEMPER_RETURN_IF_ERROR(CheckObservation(o));
  std::map<Point, double> fresh;
  for (const Observation& o : observations) {
    const std::optional<Point> point = task_->Find(o.proposal);
    if (!point.has_value() || (seen_.contains(*point) && !awaited_.contains(*point)) || !task_->Legal(*point)) continue;
    fresh.try_emplace(*point, o.ok ? o.cost_s : std::numeric_limits<double>::infinity());
  }
  std::vector<Trial> trials;
  for (const auto& [point, cost_s] : fresh) {
    seen_.insert(point);
    awaited_.erase(point);
    trials.push_back({point, cost_s});
  }
  return Learn(trials);
}

}  // namespace temper
