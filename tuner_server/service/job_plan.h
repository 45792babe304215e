// A job before it runs, and before it goes on under another server.
#pragma once

#include <vector>

#include "compiler/graph/graph.h"
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

// The jobs that a server before this one did not end, as far as they can go on: each with what is left of its budget by
// its records. Those that can not, and those that belong to a command that is gone, are closed as abandoned.
absl::StatusOr<std::vector<JobPlan>> PlanUnendedJobs(Store& store, const JobLoopOptions& loop, absl::Time wall);

}  // namespace temper
