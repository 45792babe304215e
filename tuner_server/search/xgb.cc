// The search guided by a cost model. First come the best by draft, unlike one another; then whatever boosted trees,
// fitted on what was seen, rank highest: among all candidates where they can be listed, else among those that annealing
// meets.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "tuner_server/search/annealer.h"
#include "tuner_server/search/tuners.h"
#include "tuner_server/search/walk.h"

namespace temper {
namespace {

constexpr int kPlan = 64;         // candidates ranked at a time
constexpr int kRandomInPlan = 3;  // the last 5 % of a plan are random
constexpr int kRandomAtFirst =
    4;  // and one in so many of the first plan's, while the model has seen one corner of the space only
constexpr int kFirstPlan = 32;   // the first is by draft alone, and one in
constexpr int kSpreadEvery = 4;  // so many is drawn from the better half of a sample
constexpr int kApart = 2;        // knobs that two candidates of a plan differ in, as far as the plan can be filled so
constexpr int64_t kListable = 4096;  // a product this small is looked at whole
constexpr size_t kListed = 2000;     // and ranked whole where no more than this many are legal
constexpr int kSample = 512;         // of the spaces that can not be listed, where chains begin
constexpr int kElite = 16;           // chains that go on from the best seen
constexpr size_t kFewest = 8;        // observations between fits, or an eighth of them all, whichever is more
constexpr double kHopeless = 4;      // a draft this much slower than the best needs no trial to be believed
constexpr size_t kCachedRows = 8192;

class XgbTuner : public Tuner {
 public:
  XgbTuner(std::shared_ptr<const TaskSpace> task, uint64_t seed)
      : task_(task), rng_(seed), walk_(task, rng_.Next()), annealer_({}, rng_.Next()), model_(NewXgboostModel(seed)) {}

  absl::StatusOr<std::vector<Candidate>> Propose(int n) override {
    std::vector<Candidate> batch;
    bool may_plan = true;
    while (static_cast<int>(batch.size()) < n) {
      std::optional<Point> point;
      if (RandomTurn()) point = RandomPoint();
      if (!point.has_value()) {
        TEMPER_ASSIGN_OR_RETURN(point, NextPlanned(may_plan));
      }
      if (!point.has_value()) point = walk_.Next(seen_);
      if (!point.has_value()) break;
      seen_.insert(*point);
      ++proposed_;
      batch.push_back(task_->At(*point));
    }
    return batch;
  }

  absl::Status Observe(std::span<const Observation> observations) override {
    for (const Observation& o : observations) TEMPER_RETURN_IF_ERROR(CheckObservation(o));
    std::map<Point, double> fresh;  // in an order that does not depend on theirs
    for (const Observation& o : observations) {
      const std::optional<Point> point = task_->Find(o.candidate);
      if (!point.has_value() || observed_.contains(*point) || !task_->Legal(*point)) continue;
      fresh.try_emplace(*point, o.ok ? o.cost_s : std::numeric_limits<double>::infinity());
    }
    for (const auto& [point, cost_s] : fresh) {
      seen_.insert(point);
      observed_.insert(point);
      Sample sample = Row(point);
      sample.cost_s = cost_s;
      unfitted_.push_back(std::move(sample));
      if (std::isfinite(cost_s)) working_.push_back({point, static_cast<float>(-std::log(cost_s))});
    }
    if (unfitted_.size() < std::max(kFewest, observed_.size() / 8)) return absl::OkStatus();
    TEMPER_RETURN_IF_ERROR(model_->Fit(unfitted_, std::vector<int>(unfitted_.size(), 0)));
    unfitted_.clear();
    fitted_ = true;
    plan_.clear();
    return absl::OkStatus();
  }

 private:
  // Where nothing has worked yet, the model has nothing to go by: every other candidate is drawn blindly.
  bool RandomTurn() const {
    if (!fitted_) return false;
    if (working_.empty()) return proposed_ % 2 == 1;
    if (proposed_ < kPlan) return proposed_ % kRandomAtFirst == kRandomAtFirst - 1;
    return proposed_ % kPlan >= kPlan - kRandomInPlan;
  }

  // Any candidate that its draft does not rule out; nullopt if none turns up soon.
  std::optional<Point> RandomPoint() {
    for (int tries = 0; tries < 64; ++tries) {
      const Point point = AnyPoint();
      if (seen_.contains(point) || !task_->Legal(point)) continue;
      if (Row(point).draft_s <= 2 * kHopeless * best_draft_s_) return point;
    }
    return std::nullopt;
  }

  Point AnyPoint() {
    double all = 0;
    for (int i = 0; i < task_->count(); ++i) all += static_cast<double>(task_->size(i));
    double draw = rng_.Uniform() * all;
    int space = 0;
    while (space + 1 < task_->count() && draw >= static_cast<double>(task_->size(space)))
      draw -= static_cast<double>(task_->size(space++));
    return {space, rng_.Below(task_->size(space))};
  }

  // A plan is made when the last is used up: once a proposal, or as often as the plans are full ones.
  absl::StatusOr<std::optional<Point>> NextPlanned(bool& may_plan) {
    while (true) {
      while (!plan_.empty()) {
        const Point point = plan_.back();
        plan_.pop_back();
        if (!seen_.contains(point)) return point;
      }
      if (!may_plan) return std::nullopt;
      TEMPER_ASSIGN_OR_RETURN(plan_, MakePlan());
      may_plan = plan_.size() >= kFirstPlan;
      std::reverse(plan_.begin(), plan_.end());
    }
  }

  absl::StatusOr<std::vector<Point>> MakePlan() {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<ScoredPoint> ranked, Rank(3 * kPlan));
    return Unlike(ranked);
  }

  // The best not seen yet, best first.
  absl::StatusOr<std::vector<ScoredPoint>> Rank(int count) {
    List();
    std::vector<Point> open;
    for (const Point& p : listed_) {
      if (!seen_.contains(p)) open.push_back(p);
    }
    TEMPER_ASSIGN_OR_RETURN(const std::vector<float> scores, Score(open));
    std::vector<ScoredPoint> ranked;
    for (size_t i = 0; i < open.size(); ++i) ranked.push_back({open[i], scores[i]});
    if (!unlisted_.empty()) {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<ScoredPoint> met, Anneal(count));
      ranked.insert(ranked.end(), met.begin(), met.end());
    }
    std::sort(ranked.begin(), ranked.end(), Before);
    if (static_cast<int>(ranked.size()) > count) ranked.resize(count);
    return ranked;
  }

  absl::StatusOr<std::vector<ScoredPoint>> Anneal(int count) {
    if (sample_.empty()) DrawSample();
    std::sort(working_.begin(), working_.end(), Before);
    std::vector<Point> elite;
    for (const ScoredPoint& p : working_) {
      if (elite.size() == kElite) break;
      if (std::find(unlisted_.begin(), unlisted_.end(), p.point.space) != unlisted_.end()) elite.push_back(p.point);
    }
    annealer_.Place(elite);
    const AnnealProblem problem = {[this](const Point& p, Rng& rng) { return task_->Move(p, rng); },
                                   [this](const Point& p) { return task_->Legal(p); },
                                   [this](std::span<const Point> points) { return Score(points); }};
    return annealer_.Run(problem, sample_, count, seen_);
  }

  // Which spaces can be ranked whole, smallest first. Once; at the first proposal, so that tuners not yet asked cost
  // nothing.
  void List() {
    if (!listed_.empty() || !unlisted_.empty()) return;
    std::vector<std::pair<int64_t, int>> by_size;
    for (int i = 0; i < task_->count(); ++i) by_size.emplace_back(task_->size(i), i);
    std::sort(by_size.begin(), by_size.end());
    for (const auto& [size, space] : by_size) {
      std::vector<Point> legal;
      for (int64_t index = 0; size <= kListable && index < size; ++index) {
        if (task_->Legal({space, index})) legal.push_back({space, index});
      }
      if (size <= kListable && listed_.size() + legal.size() <= kListed) {
        listed_.insert(listed_.end(), legal.begin(), legal.end());
      } else {
        unlisted_.push_back(space);
      }
    }
  }

  // Legal points of the spaces that are not listed, each space's best by draft first and the spaces in turn.
  void DrawSample() {
    std::vector<std::vector<ScoredPoint>> drawn(unlisted_.size());
    const int each = kSample / static_cast<int>(unlisted_.size());
    for (size_t u = 0; u < unlisted_.size(); ++u) {
      PointSet distinct;
      for (int tries = 0; tries < 32 * each && static_cast<int>(drawn[u].size()) < each; ++tries) {
        const Point point{unlisted_[u], rng_.Below(task_->size(unlisted_[u]))};
        if (!distinct.insert(point).second || !task_->Legal(point)) continue;
        drawn[u].push_back({point, static_cast<float>(-std::log(Row(point).draft_s))});
      }
      std::sort(drawn[u].begin(), drawn[u].end(), Before);
    }
    for (int i = 0; i < each; ++i) {
      for (const std::vector<ScoredPoint>& mine : drawn) {
        if (i < static_cast<int>(mine.size())) sample_.push_back(mine[i].point);
      }
    }
  }

  // The best that differ from one another in two knobs at least, then the others: near twins teach the same thing
  // twice. The first plan, which has only the draft to go by, shows each template that is not hopeless, and draws some
  // of the sample.
  std::vector<Point> Unlike(const std::vector<ScoredPoint>& ranked) {
    const size_t wanted = fitted_ ? kPlan : kFirstPlan;
    std::vector<Point> plan, twins;
    const auto add = [&](const Point& p) {
      const bool apart = std::all_of(plan.begin(), plan.end(),
                                     [&](const Point& other) { return task_->Distance(p, other) >= kApart; });
      (apart ? plan : twins).push_back(p);
    };
    std::vector<bool> shown(task_->count(), fitted_);
    for (const ScoredPoint& p : ranked) {
      if (shown[p.point.space] || p.score < ranked[0].score - std::log(kHopeless)) continue;
      shown[p.point.space] = true;
      add(p.point);
    }
    for (const ScoredPoint& p : ranked) {
      if (plan.size() >= wanted) break;
      if (!fitted_ && !sample_.empty() && plan.size() % kSpreadEvery == kSpreadEvery - 1) {
        const Point drawn = sample_[rng_.Below(static_cast<int64_t>(sample_.size() + 1) / 2)];
        if (!seen_.contains(drawn)) add(drawn);
      }
      add(p.point);
    }
    plan.insert(plan.end(), twins.begin(), twins.end());
    if (plan.size() > wanted) plan.resize(wanted);
    return plan;
  }

  const Sample& Row(const Point& p) {
    if (rows_.size() >= kCachedRows && !rows_.contains(p)) rows_.clear();
    const auto [it, fresh] = rows_.try_emplace(p);
    if (fresh) {
      it->second = task_->Row(p);
      best_draft_s_ = std::min(best_draft_s_, it->second.draft_s);
    }
    return it->second;
  }

  absl::StatusOr<std::vector<float>> Score(std::span<const Point> points) {
    std::vector<Sample> rows;
    rows.reserve(points.size());
    for (const Point& p : points) rows.push_back(Row(p));
    return model_->Score(rows);
  }

  const std::shared_ptr<const TaskSpace> task_;
  Rng rng_;
  Walk walk_;
  Annealer annealer_;
  std::unique_ptr<CostModel> model_;
  PointSet seen_, observed_;  // proposed or observed; observed
  std::vector<Sample> unfitted_;
  std::vector<ScoredPoint> working_;  // observed and ok; scored by minus the logarithm of their seconds
  bool fitted_ = false;
  int64_t proposed_ = 0;
  std::vector<Point> plan_;  // best last
  std::vector<Point> listed_;
  std::vector<int> unlisted_;  // spaces
  std::vector<Point> sample_;
  std::unordered_map<Point, Sample, PointHash> rows_;
  double best_draft_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> MakeXgbTuner(const TunerContext& context) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<const TaskSpace> task, TaskSpace::Make(context));
  return std::make_unique<XgbTuner>(std::move(task), context.seed);
}

}  // namespace temper
