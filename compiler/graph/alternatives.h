// Which of a graph's alternatives runs.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "compiler/graph/graph.h"

namespace temper {

// Seconds of a workload's kernel at its best; nullopt: not known.
using SecondsFn = std::function<absl::StatusOr<std::optional<double>>(const Workload&)>;
// Puts each alternative whose kernels are known to take less time together than those they replace in their place, and
// forgets the others. How many were taken.
absl::StatusOr<int> ChooseAlternatives(Graph& g, const SecondsFn& seconds);

// The two in steps, for who keeps the decision. One flag for each of the graph's alternatives.
absl::StatusOr<std::vector<bool>> FasterAlternatives(const Graph& g, const SecondsFn& seconds);
void TakeAlternatives(Graph& g, const std::vector<bool>& taken);
// The kernels of either side of an alternative, in order: what tells one from another.
struct AlternativeKernels {
  std::vector<Workload> replaced, instead;
};
absl::StatusOr<std::vector<AlternativeKernels>> KernelsOfAlternatives(const Graph& g);

// The groups with the alternatives in their places.
std::vector<Group> WithAlternatives(const std::vector<Group>& groups, std::span<const Alternative> alternatives);

}  // namespace temper
