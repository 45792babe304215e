// The search of a job: which task gets the next batch, and what results teach. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tuner_server/search/experience.h"
#include "tuner_server/tuning/job_limits.h"

namespace temper {

class JobSearch {
 public:
  // All but `target` outlive it.
  JobSearch(const JobSpec& spec, const JobLoopOptions& options, const JobLimits& limits, const Target& target,
            std::vector<TaskSearch>& tasks);

  // What to know beforehand: see JobLoop::Warm and JobLoop::PrepareTask.
  absl::Status Warm(const Target& target, std::vector<Booster> shipped, std::span<const Record> records);
  absl::Status PrepareTask(size_t task, const KnownRecords& known);

  // There are trials left, and a task that may get a batch. `slots`: leases that the workers hold at once.
  bool CanPropose(int slots) const;
  struct Batch {
    size_t task = 0;
    std::vector<WorkItem> items;
    double incumbent_s = 0;
    double race_factor = 0;
  };
  // The next batch; nullopt: no task may have one. One without items: its task has nothing left to propose. Slow.
  absl::StatusOr<std::optional<Batch>> Propose(absl::Duration now, int slots);

  // A batch went out, an item of it came back, all of it came back, or none is wanted any more.
  void OnSent(const Batch& batch);
  // It went out under a server before this one. What records tell the results of is dropped from it.
  void Adopt(Batch& batch);
  void OnResult(size_t task, const WorkItem& item, const TrialResult& result);
  struct BatchTime {
    absl::Duration submitted, over;
    size_t items = 0;
    size_t under_way = 1;  // batches, this one included
  };
  void OnBatchOver(size_t task, const BatchTime& batch);
  void ForgetOutstanding();

  // Tasks that are finished end; returns which.
  std::vector<size_t> EndFinishedTasks();

  // `idle`: nothing of the job is in workers' hands.
  SearchCounts counts(bool idle) const;
  int trials() const { return trials_; }
  int measured_again() const { return again_; }
  const std::map<Outcome, int>& outcomes() const { return outcomes_; }

 private:
  int OutstandingItems() const;  // in workers' hands
  int MostBatchesATask(int slots) const;
  bool MayGetBatch(size_t task, int most, double kernels_s) const;
  int BatchSize(size_t task, absl::Duration now, int slots) const;
  void Teach(size_t task, const Candidate& item, const TrialResult& result);
  void Clock(const BatchTime& batch);

  const JobSpec& spec_;
  const JobLoopOptions& options_;
  const JobLimits& limits_;
  std::vector<TaskSearch>& tasks_;
  Rng rng_;
  std::shared_ptr<Experience> experience_;  // what tasks teach one another
  int trials_ = 0;
  int again_ = 0;                // the device was slow when they were measured first
  int since_better_ = 0;         // trials since the kernels together were last faster by a worthwhile share
  double better_kernels_s_ = 0;  // infinite until every task had its first look
  double seconds_per_item_ = 0;  // of all workers together; measured, smoothed; 0: not yet
  struct Window {
    absl::Duration began = -absl::InfiniteDuration();
    size_t batches = 0, items = 0;
  };
  Window window_;
  std::map<Outcome, int> outcomes_;
};

}  // namespace temper
