// Predicts how fast candidates are, from closed-form features. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/ops/template.h"

namespace temper {

// Features of a candidate: its footprint's values, log-scaled because they span decades, and the draft. Their names and
// their count follow from the footprint's schema.
std::vector<std::string> FeatureNames(const FootprintSchema& schema);
inline size_t FeatureCount(const FootprintSchema& schema) { return schema.names.size() + 1; }
// Fills a row of FeatureCount places. `draft_s` is the footprint's own, or what shall stand for it.
void Features(const Footprint& f, double draft_s, std::span<float> row);

// Candidates as a model sees them, one row of features after the other. Missing values are NaN.
struct Rows {
  size_t width = 0;
  std::vector<float> features;  // size() * width
  std::vector<double> draft_s;

  size_t size() const { return draft_s.size(); }
  std::span<float> Append(double draft) {  // features to be filled in; valid until the next
    draft_s.push_back(draft);
    features.resize(features.size() + width);
    return std::span(features).last(width);
  }
  void Clear() {
    features.clear();
    draft_s.clear();
  }
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Fits on these candidates only. Costs are seconds, infinite for a failure. `groups` tells the tasks apart:
  // candidates of different tasks are never compared.
  virtual absl::Status Fit(const Rows& rows, std::span<const double> cost_s, std::span<const int> groups) = 0;
  // A score per row, higher is faster. With no fit yet, the draft's order.
  virtual absl::StatusOr<std::vector<float>> Score(const Rows& rows) = 0;
};

// A fit uses at most this many samples of a task, those that are WorthKeeping, so that the thousandth fit costs no more
// than the hundredth.
inline constexpr size_t kMostFitted = 512;
// Positions, fastest first, of the fastest quarter, where the search goes on, and of a third of the others, evenly.
std::vector<size_t> WorthKeeping(std::span<const double> cost_s);

// What boosted trees learn. Both begin at the draft, so with few samples its order shines through.
enum class Objective {
  kResidual,  // "reg": how much slower a candidate is than its draft; scores are minus the logarithm of seconds
  kRank,      // "rank": which of two candidates of a group is faster; scores have an order only
};
std::unique_ptr<CostModel> NewXgboostModel(uint64_t seed, Objective objective = Objective::kResidual);

}  // namespace temper
