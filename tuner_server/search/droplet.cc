// Coordinate descent over the grid of knob values (Droplet Search, 2406.20037). It begins at the best by draft of each
// template, looks one and then two values up and down each knob of the fastest seen, and goes on from the fastest
// again. Where that has no neighbours left, the next fastest have their turn, then the next by draft.
#include <algorithm>
#include <cmath>

#include "tuner_server/search/point_tuner.h"
#include "tuner_server/search/ranking.h"

namespace temper {
namespace {

constexpr size_t kCentres = 3;  // the fastest so many are looked around
constexpr int64_t kReach = 2;   // values up and down

class DropletTuner : public PointTuner {
 public:
  using PointTuner::PointTuner;

 private:
  absl::StatusOr<std::optional<Point>> Next() override {
    if (!ranked_) Rank();
    for (const Point& start : starts_) {
      if (Open(start)) return start;
    }
    std::vector<Point> centres = fastest_.empty() ? starts_ : std::vector<Point>();
    for (const ScoredPoint& p : fastest_) centres.push_back(p.point);
    for (const Point& centre : centres) {
      if (const std::optional<Point> neighbour = Around(centre); neighbour.has_value()) return neighbour;
    }
    for (; next_ < by_draft_.size(); ++next_) {
      if (Open(by_draft_[next_].point)) return by_draft_[next_].point;
    }
    return std::nullopt;
  }

  absl::Status Learn(std::span<const Trial> trials) override {
    for (const Trial& t : trials) {
      if (std::isfinite(t.cost_s)) fastest_.push_back({t.point, static_cast<float>(-std::log(t.cost_s))});
    }
    std::sort(fastest_.begin(), fastest_.end(), Before);
    if (fastest_.size() > kCentres) fastest_.resize(kCentres);
    return absl::OkStatus();
  }

  std::optional<Point> Around(const Point& centre) const {
    for (int64_t step = 1; step <= kReach; ++step) {
      for (const Point& p : task().Steps(centre, step)) {
        if (Open(p) && task().Legal(p)) return p;
      }
    }
    return std::nullopt;
  }

  void Rank() {
    ranked_ = true;
    for (int space = 0; space < task().count(); ++space) {
      const DraftRanking ranking = RankByDraft(task(), space, rng());
      if (!ranking.points.empty()) starts_.push_back(ranking.points.front().point);
      by_draft_.insert(by_draft_.end(), ranking.points.begin(), ranking.points.end());
    }
    std::sort(by_draft_.begin(), by_draft_.end(), Before);
  }

  bool ranked_ = false;
  std::vector<Point> starts_;
  std::vector<ScoredPoint> by_draft_;
  size_t next_ = 0;                   // of these
  std::vector<ScoredPoint> fastest_;  // scored by minus the logarithm of their seconds
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> MakeDropletTuner(const TunerContext& context) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<DropletTuner>(std::move(task), context.seed);
}

}  // namespace temper
