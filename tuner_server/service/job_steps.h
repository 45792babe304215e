// A job's way from its device to its end, step by step:
//
//   await a worker ─► warm ─► prepare each task ─► loop (and search, by turns) ─► finish ─► over
//
// Whoever has the job calls Step on input, on a wake-up, and when the time has come. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuner_server/service/job_host.h"
#include "tuner_server/service/job_plan.h"
#include "tuner_server/tuning/job_loop.h"

namespace temper {

// What came for a job since its last step.
struct JobInput {
  std::vector<ItemResult> results;
  std::string stop_state, stop_reason;  // see JobPort::Stop; empty: go on
  bool server_ends = false;             // nothing waits any longer
  std::optional<int> priority;          // another one than it had

  void Stop(const std::string& state, const std::string& reason);
};

class JobSteps {
 public:
  // The plan's row has its id, and so has its spec. The host outlives the steps.
  JobSteps(JobHost& host, JobPlan plan);

  // One step. It never waits, but it may compute for long (a search, a fit) and uses the store. Returns when the next
  // one is due unless something comes before: `now` for at once, infinite for not before.
  absl::Duration Step(const JobInput& input, absl::Duration now);
  bool over() const { return state_ == State::kOver; }

  const JobSpec& spec() const { return spec_; }
  absl::Duration started() const { return started_; }
  // What is to be published after each step.
  const JobView& view() const { return view_; }
  const JobRow& row() const { return row_; }
  std::vector<std::pair<size_t, TaskView>> TakeChangedTasks();

 private:
  enum class State { kAwaitWorker, kWarm, kPrepare, kLoop, kSearch, kFinish, kOver };

  absl::Duration StepInMemory(const JobInput& input, absl::Duration now);
  absl::Duration End(absl::Status how, absl::Duration now);  // when to finish
  absl::StatusOr<absl::Duration> Advance(absl::Duration now);
  absl::StatusOr<absl::Duration> AwaitWorker(absl::Duration now);
  bool HasPlace();  // asks for one where it has none
  // What other tasks, models and jobs taught about this target.
  absl::StatusOr<absl::Duration> Warm(absl::Duration now);
  absl::StatusOr<absl::Duration> PrepareNext(absl::Duration now);
  absl::StatusOr<absl::Duration> Loop(absl::Duration now);
  absl::StatusOr<absl::Duration> Search(absl::Duration now);
  // Until its end is stored.
  absl::Duration Finish(absl::Duration now);
  void DecideEnd(absl::Duration now);

  absl::StatusOr<std::vector<Record>> RecordsToLearnFrom();
  absl::Status RecordsOfTask(size_t task, const std::function<void(const Record&)>& visit);
  void ShowState(const std::string& state);
  void StoreRow();  // on its way, as well as the store can
  void ShowProgress(absl::Duration now);
  std::string Summary(absl::Duration now) const;

  JobHost& host_;
  const JobSpec spec_;
  DeviceKind kind_;  // any of the key, until there is a worker; then what it is, after a restart too
  const JobLoopOptions options_;
  const absl::Duration started_;

  State state_ = State::kAwaitWorker;
  absl::Status how_;           // it ended, from kFinish on
  std::vector<Task> tasks_;    // until the loop has them
  absl::Duration wait_until_;  // for a first worker
  bool has_place_ = false;
  absl::Duration lost_since_ = absl::InfiniteDuration();
  WorkerInfo worker_;    // for which it is tuned
  size_t prepared_ = 0;  // tasks
  std::unique_ptr<JobLoop> loop_;
  std::string stop_state_, stop_reason_;
  bool server_ends_ = false, told_that_end_waits_ = false;
  // In workers' hands since before this server, as of the loop's making, and what came of it until the tasks were
  // prepared.
  std::vector<WorkItem> adopted_;
  std::vector<ItemResult> early_;
  double search_s_ = 0;  // in tuners and cost models

  JobView view_;
  JobRow row_;
};

}  // namespace temper
