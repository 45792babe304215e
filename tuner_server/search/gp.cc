// Bayesian optimisation over the knobs alone, for spaces of which nobody drew up drafts or footprints. A Gaussian
// process learns from what was measured how cost changes with each knob. What is proposed is what it expects to gain
// most on the best so far: near the best where it is sure, far from everything where it is not, so no region holds the
// search.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cost_model/gaussian_process.h"
#include "tuner_server/search/point_tuner.h"
#include "tuner_server/search/ranking.h"

namespace temper {
namespace {

constexpr size_t kAtFirst = 16;   // trials at random
constexpr size_t kDrawn = 2048;   // candidates at random, each time,
constexpr size_t kBestSeen = 8;   // beside the neighbours of so many of the best,
constexpr size_t kPromising = 8;  // and of so many of the candidates that promise most,
constexpr int kClimbs = 3;        // so many times
constexpr double kHopeless = 32;  // what is so many times slower than the best counts as alike, and failures with it
constexpr int kFirstSteps = 30, kSteps = 6;  // of a fit
constexpr size_t kMostKnown = 384;           // trials fitted on

// How much below `best` a value is expected to come, as a logarithm, where it is normal around `mean`.
double LogImprovement(double best, double mean, double deviation) {
  const double u = (best - mean) / deviation;
  if (u < -6) return u - 1e3;  // hopeless; still in order
  const double density = std::exp(-0.5 * u * u) / std::sqrt(2 * M_PI);
  const double share = 0.5 * std::erfc(-u / std::sqrt(2.0));
  return std::log(deviation * (u * share + density) + 1e-300);
}

class GpTuner : public PointTuner {
 public:
  GpTuner(std::shared_ptr<const TaskSpace> task, uint64_t seed)
      : PointTuner(task, seed), process_(task->coordinates()) {}

 private:
  absl::StatusOr<std::optional<Point>> Next() override {
    if (trials_.size() < kAtFirst || !std::isfinite(best_)) return std::nullopt;
    if (!forecast_.has_value()) Look();
    double most = -std::numeric_limits<double>::infinity();
    std::optional<Point> choice;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (!Open(candidates_[i])) continue;
      const double gain = Gain(i);
      if (gain <= most) continue;
      most = gain;
      choice = candidates_[i];
    }
    if (choice.has_value()) {
      pending_.push_back(*choice);
      forecast_->Believe(Coordinates(*choice));
    }
    return choice;
  }

  absl::Status Learn(std::span<const Trial> trials) override {
    for (const Trial& t : trials) {
      trials_.push_back(t);
      best_ = std::min(best_, std::log(t.cost_s));
      std::erase(pending_, t.point);
    }
    if (trials_.size() > kMostKnown) Thin();
    forecast_.reset();
    return absl::OkStatus();
  }

  void Thin() {
    std::vector<double> costs;
    for (const Trial& t : trials_) costs.push_back(t.cost_s);
    std::vector<Trial> kept;
    for (const size_t i : WorthKeeping(costs)) kept.push_back(trials_[i]);
    trials_ = std::move(kept);
  }

  std::vector<double> Coordinates(const Point& p) const {
    std::vector<double> coordinates;
    task().AppendCoordinates(p, coordinates);
    return coordinates;
  }

  double Gain(size_t candidate) const {
    return LogImprovement(best_, forecast_->Mean(candidate), forecast_->Deviation(candidate));
  }

  // Fits what is known and gathers candidates.
  void Look() {
    double worst = best_;
    for (const Trial& t : trials_) {
      if (std::isfinite(t.cost_s)) worst = std::max(worst, std::log(t.cost_s));
    }
    worst = std::min(worst, best_ + std::log(kHopeless));
    std::vector<double> points, values;
    for (const Trial& t : trials_) {
      task().AppendCoordinates(t.point, points);
      values.push_back(std::min(std::log(t.cost_s), worst));
    }
    process_.Fit(std::move(points), values, process_.size() == 0 ? kFirstSteps : kSteps);
    forecast_.emplace(process_);
    for (const Point& p : pending_) forecast_->Believe(Coordinates(p));
    candidates_.clear();
    listed_.clear();
    for (int space = 0; space < task().count(); ++space)
      AddCandidates(SomeLegal(task(), space, kDrawn / static_cast<size_t>(task().count()), rng()));
    std::sort(trials_.begin(), trials_.end(), [](const Trial& a, const Trial& b) {
      return a.cost_s != b.cost_s ? a.cost_s < b.cost_s : a.point < b.point;
    });
    for (size_t i = 0; i < std::min(kBestSeen, trials_.size()); ++i) AddCandidates(task().Neighbours(trials_[i].point));
    for (int climb = 0; climb < kClimbs; ++climb) {
      for (const Point& p : Promising()) AddCandidates(task().Neighbours(p));
    }
  }

  void AddCandidates(const std::vector<Point>& points) {
    std::vector<double> coordinates;
    for (const Point& p : points) {
      if (!Open(p) || !listed_.insert(p).second || !task().Legal(p)) continue;
      candidates_.push_back(p);
      task().AppendCoordinates(p, coordinates);
    }
    forecast_->Add(coordinates);
  }

  std::vector<Point> Promising() const {
    std::vector<ScoredPoint> ranked;
    for (size_t i = 0; i < candidates_.size(); ++i) ranked.push_back({candidates_[i], static_cast<float>(Gain(i))});
    const size_t count = std::min(kPromising, ranked.size());
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count), ranked.end(), Before);
    std::vector<Point> points;
    for (size_t i = 0; i < count; ++i) points.push_back(ranked[i].point);
    return points;
  }

  GaussianProcess process_;
  std::optional<Forecast> forecast_;  // none: something was learned since
  std::vector<Point> candidates_;     // of the forecast, in its order
  PointSet listed_;                   // looked at as candidates, legal or not
  std::vector<Point> pending_;        // proposed here and not observed
  std::vector<Trial> trials_;
  double best_ = std::numeric_limits<double>::infinity();  // logarithm of seconds
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> MakeGpTuner(const TunerContext& context) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<GpTuner>(std::move(task), context.seed);
}

}  // namespace temper
