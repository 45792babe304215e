#include "tuner_server/tuning/allocator.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {

double ExpectedGain(const TaskStanding& task, const AllocatorOptions& options) {
  if (task.best_s <= 0) return std::numeric_limits<double>::infinity();
  const double usual_s = task.best_s * std::min(1.0, options.usual / std::max(1, task.course.trials()));
  const double own_s = task.course.GainLeft();
  const double left_s = std::isfinite(own_s) ? options.alpha * own_s + (1 - options.alpha) * usual_s : usual_s;
  return task.weight * left_s * task.course.ShareWithin(options.batch);
}

std::optional<size_t> NextTask(std::span<const TaskStanding> tasks, Rng& rng, const AllocatorOptions& options) {
  std::vector<size_t> open;
  std::optional<size_t> unseen;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!tasks[i].open) continue;
    open.push_back(i);
    if (tasks[i].seen) continue;
    if (!unseen || tasks[i].estimate_s > tasks[*unseen].estimate_s) unseen = i;
  }
  if (unseen) return unseen;
  if (open.empty()) return std::nullopt;
  if (rng.Uniform() < options.epsilon) return open[rng.Below(static_cast<int64_t>(open.size()))];
  size_t chosen = open.front();
  double most = -1;
  for (const size_t i : open) {
    const double gain = ExpectedGain(tasks[i], options);
    if (gain > most) {
      most = gain;
      chosen = i;
    }
  }
  return chosen;
}

}  // namespace temper
