#include <cmath>

#include "absl/strings/str_cat.h"
#include "cost_model/samples.h"

namespace temper {
namespace {

class DraftModel : public CostModel {
 public:
  absl::Status Fit(std::span<const Sample> samples, std::span<const int> groups) override {
    return samples.empty() ? absl::OkStatus() : CheckSamples(samples, groups, samples[0].features.size());
  }

  absl::StatusOr<std::vector<float>> Score(std::span<const Sample> candidates) override {
    if (!candidates.empty()) TEMPER_RETURN_IF_ERROR(CheckCandidates(candidates, candidates[0].features.size()));
    std::vector<float> scores;
    scores.reserve(candidates.size());
    for (const Sample& candidate : candidates) scores.push_back(static_cast<float>(-std::log(candidate.draft_s)));
    return scores;
  }
};

}  // namespace

absl::Status CheckCandidates(std::span<const Sample> candidates, size_t width) {
  for (const Sample& candidate : candidates) {
    if (!std::isfinite(candidate.draft_s) || candidate.draft_s <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("cost model: a draft of ", candidate.draft_s, " s"));
    }
    if (candidate.features.size() != width) {
      return absl::InvalidArgumentError(
          absl::StrCat("cost model: a row of ", candidate.features.size(), " features among rows of ", width));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSamples(std::span<const Sample> samples, std::span<const int> groups, size_t width) {
  TEMPER_RETURN_IF_ERROR(CheckCandidates(samples, width));
  if (samples.size() != groups.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cost model: ", groups.size(), " groups for ", samples.size(), " samples"));
  }
  for (const Sample& sample : samples) {
    if (!(sample.cost_s > 0))
      return absl::InvalidArgumentError(absl::StrCat("cost model: a cost of ", sample.cost_s, " s"));
  }
  return absl::OkStatus();
}

std::unique_ptr<CostModel> NewDraftModel() { return std::make_unique<DraftModel>(); }

}  // namespace temper
