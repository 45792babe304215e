// A job before it runs.
#pragma once

#include <vector>

#include "compiler/graph/extract.h"
#include "storage/store.h"
#include "tuner_server/tuning/job_loop.h"

namespace temper {

// A request that was looked through. Its row has no id yet: the store gives it.
struct JobPlan {
  JobSpec spec;
  std::vector<Task> tasks;
  JobRow row;
  JobLoopOptions loop;
};

// kInvalidArgument names what is wrong. Slow: it reads the graph. `loop`: its tuner is set from the job's when empty.
absl::StatusOr<JobPlan> PlanJob(JobSpec spec, JobLoopOptions loop, absl::Time wall);

size_t RequestBytes(const JobSpec& spec);  // what it holds in memory, about

}  // namespace temper
