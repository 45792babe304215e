// What trees learn from: how the samples of each task compare with one another.
#pragma once

#include <map>
#include <vector>

#include "cost_model/cost_model.h"

namespace temper {

struct Labels {
  std::vector<float> value;   // log(draft / cost), less the mean of the group; to rank by, log(1 / cost)
  std::vector<float> weight;  // throughput relative to the best of the group
  double mean = 0;            // of the groups' means: what a score adds again
};
using Groups = std::map<int, std::vector<size_t>>;  // which samples belong together

// Logarithms of seconds; infinite costs are failures. What is much slower than the best of its group counts as alike.
Labels MakeLabels(const Groups& groups, std::span<const double> log_draft, std::span<const double> log_cost,
                  Objective objective);

}  // namespace temper
