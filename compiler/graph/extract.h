// The kernels of a graph as workloads, and the tuner's tasks.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace temper {

// The group as a workload, and which value each workload input is.
struct Extracted {
  Workload workload;
  std::vector<ValueId> inputs;
  ValueId output;
};
absl::StatusOr<Extracted> Extract(const Graph& g, const Group& group);

// A task: one distinct workload of the graph and its alternatives, and how often it occurs. Groups that are free
// (aliases: a reshape that moves nothing), opaque or without elements give no task. kInvalidArgument: a workload is
// beyond the limits of ParseWorkload.
struct Task {
  Workload workload;
  int count;
  bool alternative = false;  // of alternatives only: runs where they are chosen
};
absl::StatusOr<std::vector<Task>> ExtractTasks(const Graph& g);
// What a package of the graph is made of: each distinct workload of its groups, alternatives left out, with how often
// it occurs. Groups that give no task for their size have theirs here. In order.
absl::StatusOr<std::vector<Task>> KernelsOf(const Graph& g);
// What a run of the model reads of constants: those of each task, as often as it occurs, alternatives left out.
int64_t ConstantBytes(const std::vector<Task>& tasks);
// Of the workloads and their counts, in any order: models that agree in these are one model to the tuner. Stable.
std::string ModelHash(const std::vector<Task>& tasks);

}  // namespace temper
