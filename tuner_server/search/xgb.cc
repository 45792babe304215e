// The search guided by a cost model. First come the best by draft, unlike one another; then whatever boosted trees,
// fitted on what was seen, rank highest: among all candidates where they can be listed, else among those that annealing
// meets. A template of which the model was wrong so far gets the benefit of the doubt: else a search that found one
// template's many good configs first never sees another's few better ones. What other tasks taught comes in twice:
// boosters correct the draft, on which all else rests, and what was best for the nearest shapes is tried first.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tuner_server/search/annealer.h"
#include "tuner_server/search/point_tuner.h"
#include "tuner_server/search/ranking.h"

namespace temper {
namespace {

// AutoTVM's defaults.
constexpr int kPlan = 64;              // candidates ranked at a time
constexpr double kRandomShare = 0.05;  // of a plan, its last ones

constexpr int kFirstPlan = 32;   // The first plan is by draft alone; and one in so many of it is drawn from the better
constexpr int kSpreadEvery = 2;  // half, since a draft that is wrong is wrong about all of its best.
constexpr int kRandomAtFirst = 4;  // While the model has seen one corner of the space only, one in so many is random.
constexpr int kApart = 2;          // knobs that two candidates of a plan differ in, as far as it can be filled so
constexpr int kApartAtFirst = 3;
constexpr int kRankedForOne = 3;       // candidates ranked for each that is planned
constexpr size_t kElite = 16;          // chains that go on from the best seen
constexpr size_t kFewest = 8;          // observations between fits, or an eighth of them all, if that is more,
constexpr size_t kMostUnfitted = 128;  // but no more than this
constexpr double kHopeless = 4;        // a draft this much slower than the best needs no trial to be believed
constexpr int kRandomTries = 64;
constexpr size_t kSeeds = 4;  // bests of the nearest shapes that are tried
constexpr double kBenefit =
    4;  // standard deviations of the model's errors by which a candidate may be better than told

// How far off a model was about what it had not seen, in logarithms of seconds; the last some trials count.
class Doubt {
 public:
  void Add(double error) {
    constexpr double kMost = 0.7;        // further off is noise, or hopeless
    constexpr double kFade = 0.9576033;  // half after 16
    error = std::clamp(error, -kMost, kMost);
    count_ = count_ * kFade + 1;
    sum_ = sum_ * kFade + error;
    squares_ = squares_ * kFade + error * error;
  }
  double Deviation() const { return std::sqrt(squares_ / count_ - sum_ / count_ * (sum_ / count_)); }

 private:
  // As if it had been 20 % off in some trials.
  double count_ = 4, sum_ = 0, squares_ = 4 * 0.04;
};

class XgbTuner : public PointTuner {
 public:
  XgbTuner(std::shared_ptr<const TaskSpace> task, const TunerContext& context, Objective objective)
      : PointTuner(task, context.seed),
        objective_(objective),
        workload_(context.workload),
        experience_(context.draft ? context.experience : nullptr),
        annealer_(AnnealOptions(), rng().Next()),
        model_(NewXgboostModel(context.seed, objective)),
        listed_rows_(task->NewRows()),
        doubts_(task->count()),
        rows_(task->NewRows()) {}

 private:
  absl::StatusOr<std::optional<Point>> Next() override {
    List();
    if (RandomTurn()) {
      if (const std::optional<Point> point = RandomPoint(); point.has_value()) return point;
    }
    while (true) {
      while (!plan_.empty()) {
        const Point point = plan_.back();
        plan_.pop_back();
        if (Open(point)) return point;
      }
      if (used_up_) return std::nullopt;
      TEMPER_ASSIGN_OR_RETURN(const std::vector<ScoredPoint> ranked, Rank(kRankedForOne * kPlan));
      plan_ = Unlike(ranked);
      used_up_ = static_cast<int>(plan_.size()) < kFirstPlan;
      std::reverse(plan_.begin(), plan_.end());
    }
  }

  absl::Status Learn(std::span<const Trial> trials) override {
    TEMPER_RETURN_IF_ERROR(LearnErrors(trials));
    for (const Trial& t : trials) {
      ++observed_;
      ++unfitted_;
      samples_.push_back(t);
      if (!std::isfinite(t.cost_s)) continue;
      worked_ = true;
      if (!Listed(t.point)) working_.push_back({t.point, static_cast<float>(-std::log(t.cost_s))});
    }
    if (unfitted_ < std::clamp(observed_ / 8, kFewest, kMostUnfitted)) return absl::OkStatus();
    TEMPER_RETURN_IF_ERROR(Fit());
    unfitted_ = 0;
    fitted_ = true;
    by_draft_ = {};
    used_up_ = false;
    plan_.clear();
    return absl::OkStatus();
  }

  // Rows are made again each time: kept for all tasks of a job, they would be most of the server's memory.
  absl::Status Fit() {
    if (samples_.size() > kMostFitted) Thin();
    std::vector<Point> points;
    std::vector<double> costs;
    for (const Trial& t : samples_) {
      points.push_back(t.point);
      costs.push_back(t.cost_s);
    }
    Rows rows = task().NewRows();
    AppendRows(points, rows);
    return model_->Fit(rows, costs, std::vector<int>(costs.size(), 0));
  }

  void Thin() {
    std::vector<double> costs;
    for (const Trial& t : samples_) costs.push_back(t.cost_s);
    std::vector<Trial> kept;
    for (const size_t i : WorthKeeping(costs)) kept.push_back(samples_[i]);
    samples_ = std::move(kept);
  }

  // Before the model is fitted on them. Of ranks there are none.
  absl::Status LearnErrors(std::span<const Trial> trials) {
    if (!fitted_ || objective_ != Objective::kResidual) return absl::OkStatus();
    rows_.Clear();
    for (const Trial& t : trials) AppendRows({&t.point, 1}, rows_);
    TEMPER_ASSIGN_OR_RETURN(const std::vector<float> scores, model_->Score(rows_));
    for (size_t i = 0; i < trials.size(); ++i) {
      if (std::isfinite(trials[i].cost_s)) doubts_[trials[i].point.space].Add(std::log(trials[i].cost_s) + scores[i]);
    }
    return absl::OkStatus();
  }

  float Benefit(const Point& p) const {
    return objective_ == Objective::kResidual ? static_cast<float>(kBenefit * doubts_[p.space].Deviation()) : 0;
  }

  // Where nothing has worked yet, the model has nothing to go by: every other candidate is drawn blindly.
  bool RandomTurn() const {
    if (!fitted_) return false;
    if (!worked_) return proposed() % 2 == 1;
    if (proposed() < kPlan) return proposed() % kRandomAtFirst == kRandomAtFirst - 1;
    return proposed() % kPlan >= std::ceil(kPlan * (1 - kRandomShare));
  }

  // Any candidate that its draft does not rule out; nullopt if none turns up soon.
  std::optional<Point> RandomPoint() {
    double all = 0;
    for (int i = 0; i < task().count(); ++i) all += static_cast<double>(task().size(i));
    for (int tries = 0; tries < kRandomTries; ++tries) {
      double draw = rng().Uniform() * all;
      int space = 0;
      while (space + 1 < task().count() && draw >= static_cast<double>(task().size(space)))
        draw -= static_cast<double>(task().size(space++));
      const Point point{space, rng().Below(task().size(space))};
      if (!Open(point) || !task().Legal(point)) continue;
      if (correction().Seconds(task(), point) <= 2 * kHopeless * best_draft_s_) return point;
    }
    return std::nullopt;
  }

  // The best not seen yet, best first.
  absl::StatusOr<std::vector<ScoredPoint>> Rank(int count) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<float> scores, model_->Score(listed_rows_));
    std::vector<ScoredPoint> ranked;
    for (size_t i = 0; i < listed_.size(); ++i) {
      if (Open(listed_[i])) ranked.push_back({listed_[i], scores[i] + Benefit(listed_[i])});
    }
    if (!sample_.empty()) {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<ScoredPoint> met, Anneal(count));
      ranked.insert(ranked.end(), met.begin(), met.end());
    }
    const size_t kept = std::min(ranked.size(), static_cast<size_t>(count));
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(kept), ranked.end(), Before);
    ranked.resize(kept);
    return ranked;
  }

  absl::StatusOr<std::vector<float>> Score(std::span<const Point> points) {
    rows_.Clear();
    AppendRows(points, rows_);
    TEMPER_ASSIGN_OR_RETURN(std::vector<float> scores, model_->Score(rows_));
    for (size_t i = 0; i < points.size(); ++i) scores[i] += Benefit(points[i]);
    return scores;
  }

  absl::StatusOr<std::vector<ScoredPoint>> Anneal(int count) {
    std::erase_if(working_, [this](const ScoredPoint& p) { return Listed(p.point); });
    std::sort(working_.begin(), working_.end(), Before);
    if (working_.size() > kElite) working_.resize(kElite);
    std::vector<Point> elite;
    for (const ScoredPoint& p : working_) elite.push_back(p.point);
    annealer_.Place(elite);
    const AnnealProblem problem = {[this](const Point& p, Rng& rng) { return task().Move(p, rng); },
                                   [this](const Point& p) { return !Listed(p) && task().Legal(p); },
                                   [this](std::span<const Point> points) { return Score(points); }};
    return annealer_.Run(problem, sample_, count, seen());
  }

  // Made when the tuner is first used: until then other tasks teach more.
  const Correction& correction() {
    if (!correction_.has_value())
      correction_.emplace(task(), experience_ == nullptr ? nullptr : experience_->boosters());
    return *correction_;
  }

  void AppendRows(std::span<const Point> points, Rows& rows) {
    const size_t first = rows.size();
    for (const Point& p : points) task().AppendRow(p, rows);
    correction().Apply(rows, first);
  }

  // What is best for the nearest shapes by now, as far as it was not tried.
  std::vector<Point> Seeds() const {
    std::vector<Point> seeds;
    if (experience_ == nullptr) return seeds;
    size_t nearest = 0;
    for (const Proposal& candidate : experience_->Seeds(workload_)) {
      const std::optional<Point> point = task().Find(candidate);
      if (!point.has_value() || !task().Legal(*point)) continue;
      if (Open(*point)) seeds.push_back(*point);
      if (++nearest == kSeeds) break;
    }
    return seeds;
  }

  bool Listed(const Point& p) const { return !is_listed_.empty() && is_listed_[p.space]; }

  // Ranks each template by draft, smallest first: whole, or a sample of it. Once; at the first proposal, so that tuners
  // not yet asked cost nothing.
  void List() {
    if (!is_listed_.empty()) return;
    is_listed_.resize(task().count());
    std::vector<std::pair<int64_t, int>> by_size;
    for (int i = 0; i < task().count(); ++i) by_size.emplace_back(task().size(i), i);
    std::sort(by_size.begin(), by_size.end());
    RankingLimits limits;
    std::vector<std::vector<ScoredPoint>> samples;
    for (const auto& [size, space] : by_size) {
      DraftRanking ranking = RankByDraft(task(), space, rng(), limits, &correction());
      is_listed_[space] = ranking.whole;
      if (ranking.points.empty()) continue;
      by_draft_.insert(by_draft_.end(), ranking.points.begin(), ranking.points.end());
      if (!ranking.whole) {
        samples.push_back(std::move(ranking.points));
        continue;
      }
      limits.legal -= ranking.points.size();
      for (const ScoredPoint& p : ranking.points) listed_.push_back(p.point);
    }
    AppendRows(listed_, listed_rows_);
    std::sort(by_draft_.begin(), by_draft_.end(), Before);
    if (!by_draft_.empty()) best_draft_s_ = std::exp(-static_cast<double>(by_draft_.front().score));
    if (fitted_) by_draft_ = {};
    for (size_t i = 0; i < limits.sample; ++i) {  // the spaces in turn
      for (const std::vector<ScoredPoint>& mine : samples) {
        if (i < mine.size()) sample_.push_back(mine[i].point);
      }
    }
  }

  // The best that differ from one another in some knobs at least, then the others: near twins teach the same thing
  // twice. The first plan, which has only the draft to go by, shows each template that is not hopeless, and spreads.
  std::vector<Point> Unlike(const std::vector<ScoredPoint>& ranked) {
    const int apart_by = fitted_ ? kApart : kApartAtFirst;
    const size_t wanted = fitted_ ? static_cast<size_t>(kPlan) : kFirstPlan;
    std::vector<Point> plan, twins;
    const auto add = [&](const Point& p) {
      const bool apart = std::all_of(plan.begin(), plan.end(),
                                     [&](const Point& other) { return task().Distance(p, other) >= apart_by; });
      (apart ? plan : twins).push_back(p);
    };
    std::vector<bool> shown(task().count(), fitted_);
    for (const ScoredPoint& p : ranked) {
      if (shown[p.point.space] || p.score < ranked[0].score - std::log(kHopeless)) continue;
      shown[p.point.space] = true;
      add(p.point);
    }
    const std::vector<Point> seeds = Seeds();
    auto seed = seeds.begin();
    for (const ScoredPoint& p : ranked) {
      if (plan.size() >= wanted) break;
      if (seed != seeds.end()) plan.push_back(*seed++);
      if (!fitted_ && plan.size() % kSpreadEvery == kSpreadEvery - 1) {
        const Point& drawn = by_draft_[rng().Below((std::ssize(by_draft_) + 1) / 2)].point;
        if (Open(drawn)) add(drawn);
      }
      add(p.point);
    }
    plan.insert(plan.end(), twins.begin(), twins.end());
    if (plan.size() > wanted) plan.resize(wanted);
    return plan;
  }

  const Objective objective_;
  const Workload workload_;
  const std::shared_ptr<const Experience> experience_;
  std::optional<Correction> correction_;
  Annealer annealer_;
  std::unique_ptr<CostModel> model_;
  std::vector<bool> is_listed_;  // by space: ranked whole
  std::vector<Point> listed_;
  Rows listed_rows_;
  std::vector<Point> sample_;          // of the other spaces, where chains begin
  std::vector<ScoredPoint> by_draft_;  // listed or sampled; empty once there is a model
  double best_draft_s_ = std::numeric_limits<double>::infinity();

  size_t observed_ = 0;
  bool worked_ = false;               // any of them
  std::vector<Doubt> doubts_;         // by space
  std::vector<ScoredPoint> working_;  // those of them that chains may go on from, by minus the logarithm of seconds
  Rows rows_;
  std::vector<Trial> samples_;  // that the model is fitted on, or will be; failures too
  size_t unfitted_ = 0;         // the last so many of them
  bool fitted_ = false;
  std::vector<Point> plan_;  // best last
  bool used_up_ = false;     // the last plan held all there was, and nothing was learned since
};

absl::StatusOr<std::unique_ptr<Tuner>> Make(const TunerContext& context, Objective objective) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<XgbTuner>(std::move(task), context, objective);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> MakeXgbTuner(const TunerContext& context) {
  return Make(context, Objective::kResidual);
}

absl::StatusOr<std::unique_ptr<Tuner>> MakeXgbRankTuner(const TunerContext& context) {
  return Make(context, Objective::kRank);
}

}  // namespace temper
