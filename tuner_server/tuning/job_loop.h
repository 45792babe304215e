// The course of a job, from its first batch to the model measured end to end. Driven by events and a clock passed in:
// no threads, no IO. Not thread-safe.
//
//   search ─► finals ─► model check ─► over
//
// The owner calls Advance after every event and at NextDeadline, and Search (slow) when NeedsSearch says so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/rng.h"
#include "tuner_server/search/experience.h"
#include "tuner_server/tuning/allocator.h"
#include "tuner_server/tuning/task_search.h"

namespace temper {

struct JobSpec {
  int64_t id = 0;
  std::string model;
  std::shared_ptr<const std::string> graph_json;
  std::string device_key, codegen_id, tuner;
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

// Where the loop's work goes.
class WorkPort {
 public:
  virtual ~WorkPort() = default;
  virtual std::vector<int64_t> Submit(Work work) = 0;  // the ids of its items
  virtual void Withdraw(const std::vector<int64_t>& items) = 0;
};

class JobLoop {
 public:
  enum class Phase { kSearch, kFinals, kModelCheck, kOver };

  // `started`: when the job was submitted, from which the time budget runs. `target` is the worker's text.
  static absl::StatusOr<std::unique_ptr<JobLoop>> Create(JobSpec spec, std::string target_text, std::vector<Task> tasks,
                                                         JobLoopOptions options, absl::Duration started);

  // What to know beforehand: shipped boosters, and records of any tasks on this target, this job's among them, the most
  // telling first. Those of other template versions are passed over. Slow. At most once, before the first PrepareTask.
  absl::Status Warm(std::vector<Booster> shipped, std::span<const Record> records);
  // The default choice and the tuner of one task, and what is known of it. Slow. All tasks, before anything else.
  absl::Status PrepareTask(size_t task, std::span<const Record> known);

  // --- search ---
  // `slots`: leases that the workers hold at once. `ahead`: prepare the next batch while one is measured.
  bool NeedsSearch(int slots, bool ahead) const;
  // Submits one batch, or ends tasks that have nothing left to propose. Slow.
  absl::Status Search(absl::Duration now, WorkPort& port);

  // --- events ---
  void OnResult(const ItemResult& result, absl::Duration now);
  // Deadlines and the change of phases.
  void Advance(absl::Duration now, WorkPort& port);
  absl::Duration NextDeadline() const;  // infinite if none

  Phase phase() const { return phase_; }
  int trials() const { return trials_; }
  const std::map<std::string, int>& outcomes() const { return outcomes_; }
  int measured_again() const { return again_; }  // the device was slow when they were measured first
  size_t size() const { return tasks_.size(); }
  const TaskView& task(size_t i) const { return tasks_[i].view(); }
  const Workload& workload(size_t i) const { return tasks_[i].workload(); }
  // Tasks whose views changed since the last call.
  std::set<size_t> TakeChanged() { return std::exchange(changed_, {}); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Set when over. Not OK: no trial at all succeeded.
  const absl::Status& verdict() const { return verdict_; }
  double untuned_s() const { return untuned_s_; }  // end to end, medians; 0: not measured
  double tuned_s() const { return tuned_s_; }
  bool kept_default() const { return kept_default_; }
  // Of the model's kernels as they are now, by what is known of each; 0: unknown.
  double KernelSeconds() const;
  // What the search is expected to take off them within its limits. Infinite: too little is known of too much.
  double ExpectedGainSeconds(absl::Duration now) const;
  double EtaSeconds(absl::Duration now) const;  // of the search; 0: unknown

 private:
  struct Pending {
    size_t task = 0;
    WorkKind kind = WorkKind::kBatch;
    std::map<int64_t, WorkItem> open;
    std::vector<std::pair<WorkItem, ItemResult>> finals;  // decide together, or not at all
    absl::Duration submitted;
    size_t size = 0;
  };

  JobLoop(JobSpec spec, std::string target_text, Target target, std::vector<Task> tasks, JobLoopOptions options,
          absl::Duration started);
  void Teach(size_t task, const WorkItem& item, const ItemResult& result);
  Work NewWork(WorkKind kind, size_t task) const;
  void Submit(Work work, size_t task, absl::Duration now, WorkPort& port);
  int BatchSize(size_t task, absl::Duration now) const;
  bool TrialsLeft() const { return spec_.trials == 0 || trials_ + outstanding_items_ < spec_.trials; }
  bool MayGetBatch(size_t task) const;
  void EndFinishedTasks();
  std::string WhyFinished(size_t task, double kernels_s) const;  // empty: it is not
  void EndAllTasks(const std::string& why);
  std::string WhySearchIsOver(absl::Duration now) const;
  double TrialsExpected(absl::Duration now) const;  // within the limits; infinite where there are none
  bool GainIsKnown(size_t task) const;
  // Seconds of the model that the task is still to gain if it had no limits, and below which it is not worth going on.
  double GainLeft(size_t task) const;
  double MayGain(size_t task) const;  // the same, but more where few trials tell
  double LeastGain(size_t task, double kernels_s) const;
  void WithdrawAll(WorkPort& port);
  void CloseBatch(const Pending& pending, absl::Duration now);
  void BeginFinals(absl::Duration now, WorkPort& port);
  void DecideFinals(const Pending& pending);
  int MostContenders() const;
  int ContendersOf(size_t task) const;
  Work ModelWork(WorkKind kind, int rounds) const;
  void BeginModelCheck(absl::Duration now, WorkPort& port);
  void FinishModel(const ItemResult& result);
  bool BudgetOver(absl::Duration now) const;

  JobSpec spec_;
  std::string target_text_;
  Target target_;
  JobLoopOptions options_;
  absl::Duration started_, finals_deadline_, model_deadline_;
  Rng rng_;
  Phase phase_ = Phase::kSearch;
  std::vector<TaskSearch> tasks_;
  std::shared_ptr<Experience> experience_;  // what tasks teach one another
  std::map<int64_t, Pending> pending_;      // by a number of this loop's own
  std::map<int64_t, int64_t> pending_of_item_;
  int64_t next_pending_ = 1;
  int outstanding_items_ = 0;  // of batches
  void ObserveTrial(size_t task, const WorkItem& item, const ItemResult& result);

  int trials_ = 0;
  int again_ = 0;
  int since_better_ = 0;         // trials since the kernels together were last faster by a worthwhile share
  double better_kernels_s_ = 0;  // infinite until every task had its first look
  double seconds_per_item_ = 0;  // measured, smoothed; 0: not yet
  std::map<std::string, int> outcomes_;
  std::string last_error_;
  std::set<size_t> changed_;
  std::vector<std::string> warnings_;
  absl::Status verdict_;
  double untuned_s_ = 0, tuned_s_ = 0;
  bool kept_default_ = false, finals_held_ = false;
  size_t picks_ = 0;  // that may change the package
};

}  // namespace temper
