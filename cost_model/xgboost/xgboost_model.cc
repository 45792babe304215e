// Gradient-boosted trees over the draft: trained by XGBoost from scratch at each fit, evaluated by Forest.
#include <algorithm>
#include <cmath>
#include <utility>

#include "cost_model/labels.h"
#include "cost_model/samples.h"
#include "cost_model/xgboost/trainer.h"

namespace temper {
namespace {

// Beyond these every other one is forgotten, so that the thousandth fit costs what the hundredth did.
constexpr size_t kMostSamples = 512;
// The draft says where to begin; among the best by draft, what was measured says ever better where to go on. Trust in
// it halves with so many samples.
constexpr double kTrustHalves = 16;

// Of a task's samples, fastest first: the fastest quarter, where the search goes on, and a third of the others, evenly.
bool IsKept(size_t rank, size_t samples) { return rank < samples / 4 || rank % 3 == 0; }

class XgboostModel : public CostModel {
 public:
  XgboostModel(uint64_t seed, Objective objective) : seed_(seed), objective_(objective) {}

  absl::Status Fit(const Rows& rows, std::span<const double> cost_s, std::span<const int> groups) override {
    if (rows.size() == 0) return absl::OkStatus();
    if (log_cost_.empty()) rows_.width = rows.width;
    TEMPER_RETURN_IF_ERROR(CheckSamples(rows, cost_s, groups, rows_.width));
    for (size_t i = 0; i < rows.size(); ++i) Add(rows, i, std::log(cost_s[i]), groups[i]);
    if (log_cost_.size() > kMostSamples) Thin();
    return Train();
  }

  absl::StatusOr<std::vector<float>> Score(const Rows& rows) override {
    TEMPER_RETURN_IF_ERROR(CheckRows(rows, log_cost_.empty() ? rows.width : rows_.width));
    std::vector<float> scores(rows.size(), static_cast<float>(mean_));
    forest_.AddTo(rows.features, rows.width, scores);
    for (size_t i = 0; i < rows.size(); ++i) scores[i] -= static_cast<float>(trust_ * std::log(rows.draft_s[i]));
    return scores;
  }

 private:
  void Add(const Rows& rows, size_t i, double log_cost, int group) {
    by_group_[group].push_back(log_cost_.size());
    rows_.Append(rows, i);
    log_cost_.push_back(log_cost);
  }

  void Thin() {
    const Rows rows = std::exchange(rows_, Rows{rows_.width});
    const std::vector<double> log_cost = std::exchange(log_cost_, {});
    for (auto& [group, members] : std::exchange(by_group_, {})) {
      std::vector<size_t> ranked = members;
      std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) { return log_cost[a] < log_cost[b]; });
      for (size_t rank = 0; rank < ranked.size(); ++rank) {
        if (IsKept(rank, ranked.size())) Add(rows, ranked[rank], log_cost[ranked[rank]], group);
      }
    }
  }

  absl::Status Train() {
    trust_ = std::exp2(-static_cast<double>(log_cost_.size()) / kTrustHalves);
    std::vector<double> trusted;  // logarithms of the drafts, as far as they are believed
    for (const double draft_s : rows_.draft_s) trusted.push_back(trust_ * std::log(draft_s));
    const Labels labels = MakeLabels(by_group_, trusted, log_cost_, objective_);
    TrainingSet set{rows_.width};
    const std::span all(rows_.features);
    for (const auto& [group, members] : by_group_) {
      for (size_t i : members) {
        const std::span row = all.subspan(i * rows_.width, rows_.width);
        set.features.insert(set.features.end(), row.begin(), row.end());
        set.labels.push_back(labels.value[i]);
        set.weights.push_back(labels.weight[i]);
        set.margins.push_back(static_cast<float>(-trusted[i]));  // trees begin at the draft's order
      }
      set.groups.push_back(static_cast<unsigned>(members.size()));
    }
    TrainOptions options{.rank = objective_ == Objective::kRank, .seed = seed_};
    if (options.rank) options.depth = 6;
    TEMPER_ASSIGN_OR_RETURN(forest_, TrainForest(set, options));
    mean_ = labels.mean;
    return absl::OkStatus();
  }

  const uint64_t seed_;
  const Objective objective_;
  Rows rows_;
  std::vector<double> log_cost_;
  Groups by_group_;
  double trust_ = 1;  // in the draft: the power that it is raised to
  Forest forest_;     // no trees before the first fit
  double mean_ = 0;
};

}  // namespace

std::unique_ptr<CostModel> NewXgboostModel(uint64_t seed, Objective objective) {
  return std::make_unique<XgboostModel>(seed, objective);
}

}  // namespace temper
