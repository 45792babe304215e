// When a job's search ends, and what may be expected of it until then. Reads, and changes nothing.
#pragma once

#include <span>
#include <string>

#include "tuner_server/tuning/job_spec.h"

namespace temper {

// How far a search has come.
struct SearchCounts {
  int trials = 0;               // measured
  int attempts = 0;             // failures included
  int since_better = 0;         // trials since the kernels together were last faster by a worthwhile share
  double seconds_per_item = 0;  // measured, smoothed; 0: not yet
  bool idle = true;             // nothing is in workers' hands
};

// Of the model's time: less to gain is not worth a contest, and the default is used.
inline constexpr double kNegligibleGain = 1e-4;

// Seconds of the model's kernels as they are now, by what is known of each; 0: unknown.
double KernelSeconds(std::span<const TaskSearch> tasks);

class JobLimits {
 public:
  // All outlive it. `started`: when the job was submitted, from which the time budget runs.
  JobLimits(const JobSpec& spec, const JobLoopOptions& options, absl::Duration started,
            const std::vector<TaskSearch>& tasks)
      : spec_(spec), options_(options), started_(started), tasks_(tasks) {}

  bool BudgetOver(absl::Duration now) const;
  double SecondsLeft(absl::Duration now) const;                  // of the time budget
  std::string WhyFinished(size_t task, double kernels_s) const;  // empty: it is not
  std::string WhyOver(const SearchCounts& counts, absl::Duration now) const;
  // What the search is expected to take off the kernels within its limits. Infinite: too little is known of too much.
  double ExpectedGainSeconds(const SearchCounts& counts, absl::Duration now) const;
  double EtaSeconds(const SearchCounts& counts, absl::Duration now) const;  // 0: unknown

 private:
  double TrialsExpected(const SearchCounts& counts, absl::Duration now) const;  // infinite where there is no limit
  bool GainIsKnown(size_t task) const;
  // Seconds of the model that the task is still to gain if it had no limits, and below which it is not worth going on.
  double GainLeft(size_t task) const;
  double MayGain(size_t task) const;  // the same, but more where few trials tell
  double LeastGain(size_t task, double kernels_s) const;

  const JobSpec& spec_;
  const JobLoopOptions& options_;
  const absl::Duration started_;
  const std::vector<TaskSearch>& tasks_;
};

}  // namespace temper
