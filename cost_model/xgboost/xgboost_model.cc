// Gradient-boosted trees over the draft: trained by XGBoost from scratch at each fit, evaluated by Forest.
#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "cost_model/samples.h"
#include "cost_model/xgboost/forest.h"

namespace temper {
namespace {

constexpr int kRounds = 60;
// What is this much slower than the best of its task is hopeless; how hopeless is not worth a split.
constexpr double kHopeless = 32;
constexpr double kFailureStep = 2;   // a failure counts as this much slower than the slowest success
constexpr double kFailureAlone = 8;  // and where nothing has succeeded, as this much slower than its draft
constexpr float kSmallestWeight = 0.3f;

absl::Status Converted(int code) {
  if (code == 0) return absl::OkStatus();
  const std::string message = XGBGetLastError();
  return absl::InternalError(absl::StrCat("XGBoost: ", message.substr(0, message.find('\n'))));
}

struct MatrixDeleter {
  void operator()(void* handle) const { XGDMatrixFree(handle); }
};
struct BoosterDeleter {
  void operator()(void* handle) const { XGBoosterFree(handle); }
};
using Matrix = std::unique_ptr<void, MatrixDeleter>;
using Booster = std::unique_ptr<void, BoosterDeleter>;

struct Labels {
  std::vector<float> value;   // log(draft / cost), less the mean of the group; to rank by, log(1 / cost)
  std::vector<float> weight;  // throughput relative to the best of the group
  double mean = 0;            // of the groups' means: what Score adds again
};

class XgboostModel : public CostModel {
 public:
  XgboostModel(uint64_t seed, Objective objective) : seed_(seed), objective_(objective) {}

  absl::Status Fit(const Rows& rows, std::span<const double> cost_s, std::span<const int> groups) override {
    if (rows.size() == 0) return absl::OkStatus();
    if (log_cost_.empty()) rows_.width = rows.width;
    TEMPER_RETURN_IF_ERROR(CheckSamples(rows, cost_s, groups, rows_.width));
    for (size_t i = 0; i < rows.size(); ++i) {
      by_group_[groups[i]].push_back(log_cost_.size());
      rows_.Append(rows, i);
      log_draft_.push_back(std::log(rows.draft_s[i]));
      log_cost_.push_back(std::log(cost_s[i]));
    }
    return Train();
  }

  absl::StatusOr<std::vector<float>> Score(const Rows& rows) override {
    TEMPER_RETURN_IF_ERROR(CheckRows(rows, log_cost_.empty() ? rows.width : rows_.width));
    std::vector<float> scores(rows.size(), static_cast<float>(mean_));
    forest_.AddTo(rows.features, rows.width, scores);
    for (size_t i = 0; i < rows.size(); ++i) scores[i] -= static_cast<float>(std::log(rows.draft_s[i]));
    return scores;
  }

 private:
  // What a group's failures count as, and how slow what is hopeless counts as.
  struct Clamp {
    double best = std::numeric_limits<double>::infinity(), worst = -best;  // logarithms of seconds
  };
  Clamp ClampOf(const std::vector<size_t>& members) const {
    Clamp clamp;
    for (size_t i : members) {
      if (std::isinf(log_cost_[i])) continue;
      clamp.best = std::min(clamp.best, log_cost_[i]);
      clamp.worst = std::max(clamp.worst, log_cost_[i]);
    }
    clamp.worst = std::min(clamp.worst, clamp.best + std::log(kHopeless));
    return clamp;
  }
  double Clamped(const Clamp& clamp, size_t i) const {
    if (!std::isinf(log_cost_[i])) return std::min(log_cost_[i], clamp.worst);
    return std::isinf(clamp.best) ? log_draft_[i] + std::log(kFailureAlone) : clamp.worst + std::log(kFailureStep);
  }

  Labels MakeLabels() const {
    Labels labels{std::vector<float>(log_cost_.size()), std::vector<float>(log_cost_.size())};
    for (const auto& [group, members] : by_group_) {
      const Clamp clamp = ClampOf(members);
      double sum = 0, weights = 0;
      for (size_t i : members) {
        const double cost = Clamped(clamp, i);
        labels.value[i] = static_cast<float>(objective_ == Objective::kRank ? -cost : log_draft_[i] - cost);
        labels.weight[i] = std::isinf(clamp.best)
                               ? kSmallestWeight
                               : std::max(kSmallestWeight, static_cast<float>(std::exp(clamp.best - cost)));
        sum += labels.weight[i] * labels.value[i];
        weights += labels.weight[i];
      }
      if (objective_ == Objective::kRank) continue;
      for (size_t i : members) labels.value[i] -= static_cast<float>(sum / weights);
      labels.mean += sum / weights / static_cast<double>(by_group_.size());
    }
    return labels;
  }

  // The samples as XGBoost wants them: groups one after the other.
  absl::StatusOr<Matrix> MakeMatrix(const Labels& labels) const {
    std::vector<float> features, values, weights, margins;
    std::vector<unsigned> sizes;
    const std::span all(rows_.features);
    for (const auto& [group, members] : by_group_) {
      for (size_t i : members) {
        const std::span row = all.subspan(i * rows_.width, rows_.width);
        features.insert(features.end(), row.begin(), row.end());
        values.push_back(labels.value[i]);
        weights.push_back(labels.weight[i]);
        margins.push_back(static_cast<float>(-log_draft_[i]));
      }
      sizes.push_back(static_cast<unsigned>(members.size()));
    }
    DMatrixHandle raw = nullptr;
    TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixCreateFromMat_omp(features.data(), values.size(), rows_.width,
                                                                std::numeric_limits<float>::quiet_NaN(), &raw, 1)));
    Matrix matrix(raw);
    TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixSetFloatInfo(raw, "label", values.data(), values.size())));
    if (objective_ == Objective::kRank) {
      // Trees begin at the draft's order.
      TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixSetFloatInfo(raw, "base_margin", margins.data(), margins.size())));
      TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixSetUIntInfo(raw, "group", sizes.data(), sizes.size())));
    } else {
      TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixSetFloatInfo(raw, "weight", weights.data(), weights.size())));
    }
    return matrix;
  }

  absl::Status Train() {
    const Labels labels = MakeLabels();
    TEMPER_ASSIGN_OR_RETURN(const Matrix matrix, MakeMatrix(labels));
    const DMatrixHandle raw_matrix = matrix.get();
    BoosterHandle raw_booster = nullptr;
    TEMPER_RETURN_IF_ERROR(Converted(XGBoosterCreate(&raw_matrix, 1, &raw_booster)));
    const Booster booster(raw_booster);
    const std::string seed = absl::StrCat(seed_ & 0x7fffffff);
    const std::pair<const char*, const char*> parameters[] = {
        {"objective", objective_ == Objective::kRank ? "rank:pairwise" : "reg:squarederror"},
        {"base_score", "0"},
        {"booster", "gbtree"},
        {"tree_method", "hist"},
        {"max_bin", "64"},
        {"max_depth", objective_ == Objective::kRank ? "6" : "5"},
        {"eta", "0.25"},
        {"gamma", "1e-4"},
        {"lambda", "1"},
        {"min_child_weight", "0.5"},
        {"num_pairsample", "8"},  // to rank by
        {"subsample", "0.7"},
        {"colsample_bytree", "0.5"},
        {"nthread", "1"},
        {"verbosity", "0"},
        {"seed", seed.c_str()}};
    for (const auto& [name, value] : parameters)
      TEMPER_RETURN_IF_ERROR(Converted(XGBoosterSetParam(booster.get(), name, value)));
    for (int round = 0; round < kRounds; ++round) {
      TEMPER_RETURN_IF_ERROR(Converted(XGBoosterUpdateOneIter(booster.get(), round, matrix.get())));
    }
    bst_ulong length = 0;
    const char* saved = nullptr;  // owned by the booster
    TEMPER_RETURN_IF_ERROR(
        Converted(XGBoosterSaveModelToBuffer(booster.get(), R"({"format":"ubj"})", &length, &saved)));
    TEMPER_ASSIGN_OR_RETURN(forest_, Forest::FromUbj({saved, length}));
    mean_ = labels.mean;
    return absl::OkStatus();
  }

  const uint64_t seed_;
  const Objective objective_;
  Rows rows_;
  std::vector<double> log_draft_, log_cost_;
  std::map<int, std::vector<size_t>> by_group_;
  Forest forest_;  // no trees before the first fit
  double mean_ = 0;
};

}  // namespace

std::unique_ptr<CostModel> NewXgboostModel(uint64_t seed, Objective objective) {
  return std::make_unique<XgboostModel>(seed, objective);
}

}  // namespace temper
