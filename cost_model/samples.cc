#include "cost_model/samples.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace temper {

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

}  // namespace temper
