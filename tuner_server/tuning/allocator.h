// Which task gets the next batch: the one with the largest expected gain to the whole model.
//
// As Ansor's task scheduler has it: a task's expected gain mixes what its last rounds gained with what an optimist
// would expect (its next round, or the FLOP rate of tasks alike), weighted by how often the task occurs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"

namespace temper {

struct TaskStanding {
  double weight = 1;  // occurrences in the model
  double flops = 0;
  std::string kind;                // tasks of one kind are alike: the anchor operator
  std::vector<double> best_after;  // seconds after each round with results; infinite until one is ok
  bool open = true;                // may be given a batch
  double estimate_s = 0;           // of the model's time, all occurrences together, by what is known of it
};

struct AllocatorOptions {
  int window = 3;         // rounds looked back
  double alpha = 0.2;     // share of the past in the expectation
  double beta = 2;        // how far below the best rate of its kind a task is expected to come, at worst
  double epsilon = 0.05;  // share of batches given at random
};

// Seconds that the model is expected to gain from the next batch of `tasks[i]`. Infinite for a task that has no ok
// trial yet.
double ExpectedGain(std::span<const TaskStanding> tasks, size_t i, const AllocatorOptions& options = {});
// Among the open ones; tasks without a round come first, those that take longest before others: a short job looks at
// what matters. nullopt: none is open.
std::optional<size_t> NextTask(std::span<const TaskStanding> tasks, Rng& rng, const AllocatorOptions& options = {});

}  // namespace temper
