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
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tuner_server/tuning/job_closing.h"
#include "tuner_server/tuning/job_search.h"

namespace temper {

// Where the loop's work goes.
class WorkPort {
 public:
  virtual ~WorkPort() = default;
  virtual std::vector<int64_t> Submit(Work work) = 0;  // the ids of its items
  virtual void Withdraw(const std::vector<int64_t>& items) = 0;
  // When a worker was first handed any of these items; infinite: not yet.
  virtual absl::Duration GrantedAt(const std::vector<int64_t>& items) = 0;
};

class JobLoop {
 public:
  enum class Phase { kSearch, kFinals, kModelCheck, kOver };

  // `started`: when the job was submitted, from which the time budget runs. `kind`: of the devices that measure.
  static absl::StatusOr<std::unique_ptr<JobLoop>> Create(JobSpec spec, DeviceKind kind, std::vector<Task> tasks,
                                                         JobLoopOptions options, absl::Duration started);
  JobLoop(const JobLoop&) = delete;

  // What to know beforehand: shipped boosters, and records of any tasks on this target, this job's among them, the most
  // telling first. Those of other template versions are passed over. Slow. At most once, before the first PrepareTask.
  absl::Status Warm(std::vector<Booster> shipped, std::span<const Record> records);
  // The default choice and the tuner of one task, and what is known of it. Slow. All tasks, before anything else.
  absl::Status PrepareTask(size_t task, const KnownRecords& known);

  // Items that are in workers' hands since before the server was restarted, each with its workload. Once all tasks are
  // prepared: what their records tell of is settled already.
  void Adopt(const std::vector<WorkItem>& items, absl::Duration now);

  // --- search ---
  // `slots`: leases that the workers hold at once. `ahead`: prepare the next batch while one is measured.
  bool NeedsSearch(int slots, bool ahead) const;
  // Submits one batch, or ends tasks that have nothing left to propose. Slow.
  absl::Status Search(absl::Duration now, WorkPort& port, int slots = 1);

  // --- events ---
  void OnResult(const ItemResult& result, absl::Duration now);
  // Deadlines and the change of phases.
  void Advance(absl::Duration now, WorkPort& port);
  absl::Duration NextDeadline() const;  // infinite if none

  Phase phase() const { return phase_; }
  int trials() const { return search_.trials(); }
  const std::map<Outcome, int>& outcomes() const { return search_.outcomes(); }
  int measured_again() const { return search_.measured_again(); }  // the device was slow when they were measured first
  size_t size() const { return tasks_.size(); }
  const TaskView& task(size_t i) const { return tasks_[i].view(); }
  const Workload& workload(size_t i) const { return tasks_[i].workload(); }
  const Target& target() const { return target_; }
  // Tasks whose views changed since the last call.
  std::set<size_t> TakeChanged() { return std::exchange(changed_, {}); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Set when over. Not OK: no trial at all succeeded.
  const absl::Status& verdict() const { return verdict_; }
  double untuned_s() const { return closing_.untuned_s(); }  // end to end, medians; 0: not measured
  double tuned_s() const { return closing_.tuned_s(); }
  bool kept_default() const { return closing_.kept_default(); }
  double KernelSeconds() const { return temper::KernelSeconds(tasks_); }
  // What the search is expected to take off the kernels within its limits. Infinite: too little is known of too much.
  double ExpectedGainSeconds(absl::Duration now) const;
  double EtaSeconds(absl::Duration now) const;  // of the search; 0: unknown

 private:
  // What was handed out and has not come back whole.
  struct Pending {
    size_t task = 0;
    WorkKind kind = WorkKind::kBatch;
    std::map<int64_t, WorkItem> open;
    std::vector<std::pair<WorkItem, TrialResult>> finals;
    absl::Duration submitted;
    size_t size = 0;
  };

  JobLoop(JobSpec spec, DeviceKind kind, const Target& target, std::vector<Task> tasks, JobLoopOptions options,
          absl::Duration started);
  Work NewWork(WorkKind kind) const;
  void Submit(Work work, size_t task, absl::Duration now, WorkPort& port);
  void Await(Pending pending, const std::vector<WorkItem>& items);
  void Close(const Pending& pending, absl::Duration now);
  void WithdrawAll(WorkPort& port);
  bool EndSearch(absl::Duration now, WorkPort& port);  // false: it goes on
  void BeginFinals(absl::Duration now, WorkPort& port);
  void BeginModelCheck(absl::Duration now, WorkPort& port);
  void TakeClosingWarnings();
  // Finals and the model's check may wait behind other jobs' work: their time runs from when a worker has them.
  bool ClosingIsLate(absl::Duration now, WorkPort& port);

  const JobSpec spec_;
  const DeviceKind kind_;
  const Target target_;
  const JobLoopOptions options_;
  const absl::Duration started_;
  const int64_t constant_bytes_;  // of the model; 0: the tasks are of none
  absl::Duration closing_deadline_;
  Phase phase_ = Phase::kSearch;
  std::vector<TaskSearch> tasks_;
  const JobLimits limits_;
  JobSearch search_;
  JobClosing closing_;
  std::map<int64_t, Pending> pending_;  // by a number of this loop's own
  std::map<int64_t, int64_t> pending_of_item_;
  int64_t next_pending_ = 1;
  std::string last_error_;
  std::set<size_t> changed_;
  std::vector<std::string> warnings_;
  absl::Status verdict_;
};

}  // namespace temper
