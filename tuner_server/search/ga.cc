// A genetic algorithm: a generation's children are bred from two parents each, drawn by how fast they were, cut at one
// knob, and then mutated. The fastest ever stay parents.
#include <algorithm>
#include <cmath>

#include "tuner_server/search/point_tuner.h"

namespace temper {
namespace {

// AutoTVM's defaults.
constexpr int kPopulation = 100;
constexpr int kElite = 3;
constexpr double kMutation = 0.1;  // of each knob

constexpr int kTries = 64;  // children bred until one is new and legal

class GaTuner : public PointTuner {
 public:
  using PointTuner::PointTuner;

 private:
  // The first generation, and whatever breeding can not find, is left to chance.
  absl::StatusOr<std::optional<Point>> Next() override {
    for (int i = 0; i < kTries && !parents_.empty(); ++i) {
      const Point child = Mutated(task().Crossed(Parent(), Parent(), rng()));
      if (Open(child) && task().Legal(child)) return child;
    }
    return std::nullopt;
  }

  absl::Status Learn(std::span<const Trial> trials) override {
    for (const Trial& t : trials) {
      ++born_;
      if (std::isfinite(t.cost_s)) generation_.push_back(t);
    }
    if (born_ < kPopulation || generation_.empty()) return absl::OkStatus();
    std::sort(generation_.begin(), generation_.end(), [](const Trial& a, const Trial& b) {
      return a.cost_s != b.cost_s ? a.cost_s < b.cost_s : a.point < b.point;
    });
    parents_ = std::move(generation_);
    generation_.assign(parents_.begin(), parents_.begin() + std::min<std::ptrdiff_t>(kElite, std::ssize(parents_)));
    born_ = 0;
    return absl::OkStatus();
  }

  // Roulette: as likely as it is fast.
  const Point& Parent() {
    double left = 0;
    for (const Trial& t : parents_) left += 1 / t.cost_s;
    left *= rng().Uniform();
    for (const Trial& t : parents_) {
      left -= 1 / t.cost_s;
      if (left < 0) return t.point;
    }
    return parents_.front().point;
  }

  Point Mutated(Point p) {
    for (int knob = 0; knob < task().knobs(p.space); ++knob) {
      if (rng().Uniform() < kMutation) p = task().Redrawn(p, knob, rng());
    }
    return p;
  }

  std::vector<Trial> parents_;     // fastest first
  std::vector<Trial> generation_;  // that worked; the elite of all before it, too
  int born_ = 0;                   // of this generation
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> MakeGaTuner(const TunerContext& context) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<GaTuner>(std::move(task), context.seed);
}

}  // namespace temper
