// Gradient-boosted trees over the draft: trained by XGBoost from scratch at each fit, evaluated by Forest.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cost_model/labels.h"
#include "cost_model/samples.h"
#include "cost_model/xgboost/trainer.h"

namespace temper {
namespace {

// The draft says where to begin; among the best by draft, what was measured says ever better where to go on. Trust in
// it halves with so many samples.
constexpr double kTrustHalves = 16;

class XgboostModel : public CostModel {
 public:
  XgboostModel(uint64_t seed, Objective objective) : seed_(seed), objective_(objective) {}

  absl::Status Fit(const Rows& rows, std::span<const double> cost_s, std::span<const int> groups) override {
    if (rows.size() == 0) return absl::OkStatus();
    TEMPER_RETURN_IF_ERROR(CheckSamples(rows, cost_s, groups));
    Groups by_group;
    for (size_t i = 0; i < rows.size(); ++i) by_group[groups[i]].push_back(i);
    trust_ = std::exp2(-static_cast<double>(rows.size()) / kTrustHalves);
    std::vector<double> trusted, log_cost;  // of the drafts' logarithms, what is believed of them
    for (const double draft_s : rows.draft_s) trusted.push_back(trust_ * std::log(draft_s));
    for (const double cost : cost_s) log_cost.push_back(std::log(cost));
    const Labels labels = MakeLabels(by_group, trusted, log_cost, objective_);
    TrainingSet set{rows.width};
    const std::span all(rows.features);
    for (const auto& [group, members] : by_group) {
      for (size_t i : members) {
        const std::span row = all.subspan(i * rows.width, rows.width);
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
    width_ = rows.width;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> Score(const Rows& rows) override {
    TEMPER_RETURN_IF_ERROR(CheckRows(rows, width_ == 0 ? rows.width : width_));
    std::vector<float> scores(rows.size(), static_cast<float>(mean_));
    forest_.AddTo(rows.features, rows.width, scores);
    for (size_t i = 0; i < rows.size(); ++i) scores[i] -= static_cast<float>(trust_ * std::log(rows.draft_s[i]));
    return scores;
  }

 private:
  const uint64_t seed_;
  const Objective objective_;
  size_t width_ = 0;  // of the rows; 0: not fitted yet
  double trust_ = 1;  // in the draft: the power that it is raised to
  Forest forest_;     // no trees before the first fit
  double mean_ = 0;
};

}  // namespace

std::vector<size_t> WorthKeeping(std::span<const double> cost_s) {
  std::vector<size_t> ranked(cost_s.size());
  std::iota(ranked.begin(), ranked.end(), size_t{0});
  std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) { return cost_s[a] < cost_s[b]; });
  std::vector<size_t> kept;
  for (size_t rank = 0; rank < ranked.size(); ++rank) {
    if (rank < ranked.size() / 4 || rank % 3 == 0) kept.push_back(ranked[rank]);
  }
  return kept;
}

std::unique_ptr<CostModel> NewXgboostModel(uint64_t seed, Objective objective) {
  return std::make_unique<XgboostModel>(seed, objective);
}

}  // namespace temper
