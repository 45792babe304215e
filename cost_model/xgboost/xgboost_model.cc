// Gradient-boosted trees that learn the residual to the draft: how much faster or slower a candidate is than its
// closed form says. So with few samples the draft's order shines through, and with many the trees overrule it.
#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cost_model/samples.h"

namespace temper {
namespace {

constexpr int kRounds = 60;
// What is this much slower than the best of its task is hopeless; how hopeless is not worth a split.
constexpr double kHopeless = 32;
constexpr double kFailureStep = 2;   // a failure counts as this much slower than the slowest success
constexpr double kFailureAlone = 8;  // and where nothing has succeeded, as this much slower than its draft
constexpr float kSmallestWeight = 0.1f;

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
  std::vector<float> residual;  // log(draft / cost), less the mean of the group
  std::vector<float> weight;    // throughput relative to the best of the group
  double mean = 0;              // of the groups' means: what Score adds again
};

class XgboostModel : public CostModel {
 public:
  explicit XgboostModel(uint64_t seed) : seed_(seed) {}

  absl::Status Fit(std::span<const Sample> samples, std::span<const int> groups) override {
    if (samples.empty()) return absl::OkStatus();
    const size_t width = width_ == 0 ? samples[0].features.size() : width_;
    TEMPER_RETURN_IF_ERROR(CheckSamples(samples, groups, width));
    width_ = width;
    for (size_t i = 0; i < samples.size(); ++i) {
      rows_.insert(rows_.end(), samples[i].features.begin(), samples[i].features.end());
      log_draft_.push_back(std::log(samples[i].draft_s));
      log_cost_.push_back(std::log(samples[i].cost_s));
      by_group_[groups[i]].push_back(log_cost_.size() - 1);
    }
    return Train();
  }

  absl::StatusOr<std::vector<float>> Score(std::span<const Sample> candidates) override {
    if (candidates.empty()) return std::vector<float>();
    TEMPER_RETURN_IF_ERROR(CheckCandidates(candidates, width_ == 0 ? candidates[0].features.size() : width_));
    std::vector<float> scores(candidates.size());
    if (booster_ != nullptr) TEMPER_RETURN_IF_ERROR(Predict(candidates, scores));
    for (size_t i = 0; i < candidates.size(); ++i) scores[i] -= static_cast<float>(std::log(candidates[i].draft_s));
    return scores;
  }

 private:
  Labels MakeLabels() const {
    Labels labels{std::vector<float>(log_cost_.size()), std::vector<float>(log_cost_.size())};
    for (const auto& [group, members] : by_group_) {
      double best = std::numeric_limits<double>::infinity(), worst = -best;
      for (size_t i : members) {
        if (std::isinf(log_cost_[i])) continue;
        best = std::min(best, log_cost_[i]);
        worst = std::max(worst, log_cost_[i]);
      }
      worst = std::min(worst, best + std::log(kHopeless));
      double sum = 0, weights = 0;
      for (size_t i : members) {
        double cost = std::min(log_cost_[i], worst);
        if (std::isinf(log_cost_[i]))
          cost = std::isinf(best) ? log_draft_[i] + std::log(kFailureAlone) : worst + std::log(kFailureStep);
        labels.residual[i] = static_cast<float>(log_draft_[i] - cost);
        labels.weight[i] =
            std::isinf(best) ? kSmallestWeight : std::max(kSmallestWeight, static_cast<float>(std::exp(best - cost)));
        sum += labels.weight[i] * labels.residual[i];
        weights += labels.weight[i];
      }
      for (size_t i : members) labels.residual[i] -= static_cast<float>(sum / weights);
      labels.mean += sum / weights / by_group_.size();
    }
    return labels;
  }

  absl::Status Train() {
    const Labels labels = MakeLabels();
    const size_t count = log_cost_.size();
    DMatrixHandle raw_matrix = nullptr;
    TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixCreateFromMat_omp(
        rows_.data(), count, width_, std::numeric_limits<float>::quiet_NaN(), &raw_matrix, 1)));
    const Matrix matrix(raw_matrix);
    TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixSetFloatInfo(matrix.get(), "label", labels.residual.data(), count)));
    TEMPER_RETURN_IF_ERROR(Converted(XGDMatrixSetFloatInfo(matrix.get(), "weight", labels.weight.data(), count)));
    BoosterHandle raw_booster = nullptr;
    TEMPER_RETURN_IF_ERROR(Converted(XGBoosterCreate(&raw_matrix, 1, &raw_booster)));
    Booster booster(raw_booster);
    const std::string seed = absl::StrCat(seed_ & 0x7fffffff);
    const std::pair<const char*, const char*> parameters[] = {{"objective", "reg:squarederror"},
                                                              {"base_score", "0"},
                                                              {"booster", "gbtree"},
                                                              {"tree_method", "hist"},
                                                              {"max_bin", "64"},
                                                              {"max_depth", "6"},
                                                              {"eta", "0.25"},
                                                              {"gamma", "1e-4"},
                                                              {"lambda", "1"},
                                                              {"min_child_weight", "0.5"},
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
    booster_ = std::move(booster);
    mean_ = labels.mean;
    return absl::OkStatus();
  }

  absl::Status Predict(std::span<const Sample> candidates, std::vector<float>& scores) {
    batch_.clear();
    for (const Sample& c : candidates) batch_.insert(batch_.end(), c.features.begin(), c.features.end());
    const std::string array = absl::StrFormat(R"({"data":[%d,true],"shape":[%d,%d],"typestr":"<f4","version":3})",
                                              reinterpret_cast<uintptr_t>(batch_.data()), candidates.size(), width_);
    static constexpr char kConfig[] =
        R"({"type":0,"training":false,"iteration_begin":0,"iteration_end":0,"missing":NaN,"strict_shape":false,"cache_id":0})";
    const bst_ulong* shape = nullptr;
    bst_ulong dimensions = 0;
    const float* predicted = nullptr;  // owned by the booster, until its next prediction
    TEMPER_RETURN_IF_ERROR(Converted(
        XGBoosterPredictFromDense(booster_.get(), array.c_str(), kConfig, nullptr, &shape, &dimensions, &predicted)));
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = predicted[i] + static_cast<float>(mean_);
    return absl::OkStatus();
  }

  const uint64_t seed_;
  size_t width_ = 0;  // features of a row; 0 until the first fit
  std::vector<float> rows_;
  std::vector<double> log_draft_, log_cost_;
  std::map<int, std::vector<size_t>> by_group_;
  Booster booster_;
  double mean_ = 0;
  std::vector<float> batch_;  // the rows being scored, one after the other
};

}  // namespace

std::unique_ptr<CostModel> NewXgboostModel(uint64_t seed) { return std::make_unique<XgboostModel>(seed); }

}  // namespace temper
