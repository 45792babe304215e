// What a server that is gone left in the store, as far as one that comes after it goes on with it.
#pragma once

#include <vector>

#include "tuner_server/service/job_plan.h"

namespace temper {

struct LeftBehind {
  std::vector<JobPlan> plans;  // each with what is left of its budget by its records
  struct Lease {               // of one of the plans' jobs; its items are those without a result
    int64_t id = 0;
    Work work;
    WorkerInfo worker;
  };
  std::vector<Lease> leases;
  int64_t highest_item = 0;  // of all records: a wall clock that was set back must not make ids anew
};

// Jobs that can not go on, and those that belong to a command that is gone, are closed as abandoned. `loop`: see
// PlanJob.
absl::StatusOr<LeftBehind> ReadLeftBehind(Store& store, const JobLoopOptions& loop, absl::Time wall);

}  // namespace temper
