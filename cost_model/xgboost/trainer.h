// XGBoost itself: samples in, trees out.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/xgboost/forest.h"

namespace temper {

struct TrainingSet {
  size_t width = 0;
  std::vector<float> features;  // rows of `width`; NaN is a missing value
  std::vector<float> labels, weights;
  // To rank by: what the trees begin at, and the sizes of the groups, whose rows lie behind one another.
  std::vector<float> margins;
  std::vector<unsigned> groups;
};

struct TrainOptions {
  bool rank = false;
  int rounds = 60;
  int depth = 5;
  double eta = 0.25;
  double least_weight = 0.5;  // of a leaf's samples
  uint64_t seed = 0;
};

// One thread; the same set and options give the same trees. kInternal: XGBoost refuses.
absl::StatusOr<Forest> TrainForest(const TrainingSet& set, const TrainOptions& options);

}  // namespace temper
