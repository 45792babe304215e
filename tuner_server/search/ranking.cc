#include "tuner_server/search/ranking.h"

#include <algorithm>
#include <cmath>

namespace temper {
namespace {

// nullopt: more than so many are legal.
std::optional<std::vector<Point>> AllLegal(const TaskSpace& task, int space, size_t most) {
  std::vector<Point> legal;
  for (int64_t index = 0; index < task.size(space); ++index) {
    if (!task.Legal({space, index})) continue;
    if (legal.size() == most) return std::nullopt;
    legal.push_back({space, index});
  }
  return legal;
}

}  // namespace

std::vector<Point> SomeLegal(const TaskSpace& task, int space, size_t count, Rng& rng) {
  constexpr size_t kDraws = 32;  // for each that is wanted
  std::vector<Point> legal;
  PointSet drawn;
  for (size_t i = 0; i < kDraws * count && legal.size() < count; ++i) {
    const Point point{space, rng.Below(task.size(space))};
    if (drawn.insert(point).second && task.Legal(point)) legal.push_back(point);
  }
  return legal;
}

DraftRanking RankByDraft(const TaskSpace& task, int space, Rng& rng, const RankingLimits& limits,
                         const Correction* correction) {
  std::optional<std::vector<Point>> points;
  if (task.size(space) <= limits.product) points = AllLegal(task, space, limits.legal);
  DraftRanking ranking;
  ranking.whole = points.has_value();
  if (!ranking.whole) points = SomeLegal(task, space, limits.sample, rng);
  const bool corrected = correction != nullptr && !correction->empty();
  Rows rows = task.NewRows();
  if (corrected) {
    for (const Point& p : *points) task.AppendRow(p, rows);
    correction->Apply(rows, 0);
  }
  for (size_t i = 0; i < points->size(); ++i) {
    const Point& p = (*points)[i];
    ranking.points.push_back({p, static_cast<float>(-std::log(corrected ? rows.draft_s[i] : task.DraftSeconds(p)))});
  }
  std::sort(ranking.points.begin(), ranking.points.end(), Before);
  return ranking;
}

}  // namespace temper
