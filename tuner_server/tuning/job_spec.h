// What a job asks for, and how all jobs of a server are run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tuner_server/tuning/allocator.h"
#include "tuner_server/tuning/task_search.h"

namespace temper {

struct JobSpec {
  int64_t id = 0;
  std::string model;
  std::shared_ptr<const std::string> graph_json;
  std::string device_key, tuner;
  int trials = 0;                // new ok ones for the whole model; 0: by budget alone
  int trials_per_task = 0;       // 0: no limit
  int early_stopping = 0;        // a task ends after so many trials without a better one; 0: never
  int early_stopping_model = 0;  // the search ends after so many that made the model no faster; 0: never
  double min_gain =
      0;  // the search ends where less than this share of the model's time is still to be gained; 0: never
  absl::Duration time_budget;  // to the last trial; zero: none
  uint64_t seed = 0;
  absl::Duration wait_for_device;
  bool close_with_command = false;
  bool revalidate = false;  // no search: finals of the default and of the best that is known
  bool booster = true;      // the shipped ones are used
  // Instead of a graph: tasks by themselves, whose records are what is wanted. Neither finals nor the model's check.
  std::vector<std::string> workloads;
  std::string owner;  // empty: nobody in particular
  int priority = 0;
  std::string request_id;  // of its owner's, for whom it is the same job when it is sent again; empty: none
  // Spent under servers before this one; the job's limits are for all of it together.
  std::optional<absl::Duration> earlier_time;
};

struct JobLoopOptions {
  TunerFactory make_tuner;
  AllocatorOptions allocator;
  int smallest_batch = 4, largest_batch = 16;
  int most_failures_in_row = 64;  // a task that only fails ends
  // Of the trials, so many more may be spent on measuring again what was measured while the device was slow.
  double most_again = 0.25;
  // Finals or a model check that do not answer: the job ends without them.
  absl::Duration model_patience = absl::Seconds(60);
  // A long kernel's one sample is steady, and each more of them costs as much as building the next candidate.
  double long_race_factor = 1.08;
  // Of finals and of the model check each; fewer where they would take longer than the allowance.
  int final_rounds = 12, model_rounds = 8;
  absl::Duration rounds_allowance = absl::Seconds(1);
};

}  // namespace temper
