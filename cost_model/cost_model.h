// Predicts how fast candidates are, from closed-form features. Not thread-safe.
#pragma once

#include <memory>
#include <span>

#include "compiler/ops/template.h"

namespace temper {

// Features of a candidate: FootprintValues (log-scaled where they span decades), ratios to the target's limits, the
// draft's terms. Names and count are fixed by kFeatureVersion.
std::span<const std::string> FeatureNames();
std::vector<float> Features(const Footprint& f, const Target& t);

struct Sample {
  std::vector<float> features;
  double draft_s;  // DraftSeconds
  double cost_s;   // measured; infinite for a failure
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Refits on all samples given so far plus these. Samples of different tasks are told apart by `group` (scores are
  // compared within one).
  virtual absl::Status Fit(std::span<const Sample> samples, std::span<const int> groups) = 0;
  // A score per row, higher is faster: log(draft seconds / predicted seconds) + log(1 / draft seconds). With no fit
  // yet, the draft's order.
  virtual absl::StatusOr<std::vector<float>> Score(std::span<const Sample> candidates) = 0;
};

std::unique_ptr<CostModel> NewXgboostModel(uint64_t seed);  // learns the residual to the draft
std::unique_ptr<CostModel> NewDraftModel();                 // the draft alone; for tests and the random tuner

}  // namespace temper
