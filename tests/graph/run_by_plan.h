#pragma once

#include "compiler/graph/graph.h"

namespace temper::testing {

// Runs an optimised graph as a package does: group after group by their workloads, values as physical bytes at their
// places in one arena that starts as NaN, and with scratch that each group fills with NaN. A plan that lets two live
// values overlap, an alias whose bytes differ or a group that runs too early gives a wrong answer.
absl::StatusOr<std::vector<NDArray>> RunByPlan(const Graph& g, const std::vector<NDArray>& inputs);

}  // namespace temper::testing
