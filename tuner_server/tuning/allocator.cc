#include "tuner_server/tuning/allocator.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {

double ExpectedGain(std::span<const TaskStanding> tasks, size_t i, const AllocatorOptions& options) {
  const TaskStanding& task = tasks[i];
  const std::vector<double>& history = task.best_after;
  if (history.empty() || !std::isfinite(history.back())) return std::numeric_limits<double>::infinity();
  const double best = history.back();
  const size_t rounds = history.size();

  double past = 0;
  if (rounds > static_cast<size_t>(options.window)) {
    const double before = history[rounds - 1 - options.window];
    if (std::isfinite(before)) past = (before - best) / options.window;
  }

  // An optimist: as many rounds again bring the time to nothing, but no further than tasks alike let hope.
  double hoped = best - best / static_cast<double>(rounds);
  double best_rate = 0;
  int alike = 0;
  for (const TaskStanding& other : tasks) {
    if (other.kind != task.kind || other.best_after.empty() || !std::isfinite(other.best_after.back())) continue;
    best_rate = std::max(best_rate, other.flops / other.best_after.back());
    ++alike;
  }
  if (alike > 1 && best_rate > 0) hoped = std::min(hoped, options.beta * task.flops / best_rate);
  const double future = std::max(0.0, best - hoped);
  return task.weight * (options.alpha * past + (1 - options.alpha) * future);
}

std::optional<size_t> NextTask(std::span<const TaskStanding> tasks, Rng& rng, const AllocatorOptions& options) {
  std::vector<size_t> open;
  std::optional<size_t> unseen;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!tasks[i].open) continue;
    open.push_back(i);
    if (!tasks[i].best_after.empty()) continue;
    if (!unseen || tasks[i].estimate_s > tasks[*unseen].estimate_s) unseen = i;
  }
  if (unseen) return unseen;
  if (open.empty()) return std::nullopt;
  if (rng.Uniform() < options.epsilon) return open[rng.Below(static_cast<int64_t>(open.size()))];
  size_t chosen = open.front();
  double most = -1;
  for (const size_t i : open) {
    const double gain = ExpectedGain(tasks, i, options);
    if (gain > most) {
      most = gain;
      chosen = i;
    }
  }
  return chosen;
}

}  // namespace temper
