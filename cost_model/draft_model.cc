#include <cmath>

#include "absl/strings/str_cat.h"
#include "cost_model/samples.h"

namespace temper {
namespace {

class DraftModel : public CostModel {
 public:
  absl::Status Fit(const Rows& rows, std::span<const double> cost_s, std::span<const int> groups) override {
    return CheckSamples(rows, cost_s, groups);
  }

  absl::StatusOr<std::vector<float>> Score(const Rows& rows) override {
    TEMPER_RETURN_IF_ERROR(CheckRows(rows, rows.width));
    std::vector<float> scores;
    scores.reserve(rows.size());
    for (double draft_s : rows.draft_s) scores.push_back(static_cast<float>(-std::log(draft_s)));
    return scores;
  }
};

}  // namespace

absl::Status CheckRows(const Rows& rows, size_t width) {
  if (rows.width != width || rows.features.size() != rows.size() * width) {
    return absl::InvalidArgumentError(absl::StrCat("cost model: ", rows.features.size(), " features in ", rows.size(),
                                                   " rows of ", rows.width, ", for a width of ", width));
  }
  for (double draft_s : rows.draft_s) {
    if (!std::isfinite(draft_s) || draft_s <= 0)
      return absl::InvalidArgumentError(absl::StrCat("cost model: a draft of ", draft_s, " s"));
  }
  return absl::OkStatus();
}

absl::Status CheckSamples(const Rows& rows, std::span<const double> cost_s, std::span<const int> groups) {
  TEMPER_RETURN_IF_ERROR(CheckRows(rows, rows.width));
  if (rows.size() != groups.size() || rows.size() != cost_s.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cost model: ", groups.size(), " groups and ", cost_s.size(),
                                                   " costs for ", rows.size(), " samples"));
  }
  for (double cost : cost_s) {
    if (!(cost > 0)) return absl::InvalidArgumentError(absl::StrCat("cost model: a cost of ", cost, " s"));
  }
  return absl::OkStatus();
}

std::unique_ptr<CostModel> NewDraftModel() { return std::make_unique<DraftModel>(); }

}  // namespace temper
