// Which task gets the next batch: the one with the largest expected gain to the whole model.
//
// What a task is still to gain is what the course of its best says, mixed with what is usual after so many trials, and
// a batch brings a share of it that falls with the trials made. So trials go to tasks about as the square roots of
// their times, more where they pay, and none is starved.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "tuner_server/tuning/course.h"

namespace temper {

struct TaskStanding {
  double weight = 1;      // occurrences in the model
  double best_s = 0;      // 0: no ok trial yet
  Course course;          // of its trials, earlier jobs' included
  bool seen = false;      // has had a round in this job
  bool open = true;       // may be given a batch
  double estimate_s = 0;  // of the model's time, all occurrences together, by what is known of it
};

struct AllocatorOptions {
  double batch = 16;      // trials that are asked about
  double usual = 2;       // after n trials a task is usually to gain this / n of its time,
  double alpha = 0.3;     // and so much of the expectation is what its own course says
  double epsilon = 0.05;  // share of batches given at random
};

// Seconds that the model is expected to gain from the next batch of `task`. Infinite for a task that has no ok trial
// yet.
double ExpectedGain(const TaskStanding& task, const AllocatorOptions& options = {});
// Among the open ones; tasks without a round come first, those that take longest before others: a short job looks at
// what matters. nullopt: none is open.
std::optional<size_t> NextTask(std::span<const TaskStanding> tasks, Rng& rng, const AllocatorOptions& options = {});

}  // namespace temper
