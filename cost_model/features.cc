#include <algorithm>
#include <cmath>

#include "cost_model/cost_model.h"

namespace temper {
namespace {

// Sizes span decades and small ratios matter too: a logarithm that is fine near nought.
float Scaled(double value) { return static_cast<float>(std::log2(1.0 + 16.0 * std::max(0.0, value))); }

}  // namespace

std::vector<std::string> FeatureNames(const FootprintSchema& schema) {
  std::vector<std::string> names(schema.names.begin(), schema.names.end());
  names.emplace_back("log_draft_s");
  return names;
}

void Features(const Footprint& f, double draft_s, std::span<float> row) {
  std::ranges::transform(f.values, row.begin(), Scaled);
  row[f.values.size()] = static_cast<float>(std::log(draft_s));
}

}  // namespace temper
