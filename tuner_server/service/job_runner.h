// A job's thread: waits for a device, drives the JobLoop, and publishes what watchers see. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "storage/store.h"
#include "temper/v1/tuning.pb.h"
#include "tuner_server/dispatch/work.h"
#include "tuner_server/tuning/job_loop.h"

namespace temper {

// What a job needs of the server. Thread-safe.
class JobHost : public WorkPort {
 public:
  virtual const Clock& clock() const = 0;
  virtual Store& store() = 0;
  // A live worker for the job; empty target: any. With it, the leases that all such workers hold at once.
  virtual std::optional<WorkerInfo> FindWorker(const JobSpec& spec, const std::string& target) = 0;
  virtual int Slots(const JobSpec& spec, const std::string& target) = 0;
  virtual std::string WhyNoWorker(const JobSpec& spec) = 0;
  // Search and measurement take turns on shared cores. False: not now; the job is woken when it may be asked again.
  virtual bool TryBeginSearch(int64_t job) = 0;
  virtual void EndSearch(int64_t job) = 0;  // also when the wish has passed
  virtual void JobOver(int64_t job) = 0;    // the last call
};

class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void Poke() = 0;  // there may be news
};

class JobRunner {
 public:
  JobRunner(JobHost& host, JobSpec spec, std::vector<Task> tasks, JobRow row, JobLoopOptions options);
  ~JobRunner();  // joins

  void Start();
  // Events, from any thread.
  void Deliver(const ItemResult& result);
  void Wake();
  // Ends the job in this final state: "cancelled" by a person, "abandoned" by the server's end, "failed" where nothing
  // can be stored. The first call counts.
  void Stop(const std::string& state, const std::string& reason);

  void Join();  // after Stop, or when over

  const JobSpec& spec() const { return spec_; }
  bool over() const;
  JobRow row() const;  // as a list shows it
  // What changed after the cursor; nullopt: nothing.
  std::optional<v1::JobEvent> Since(int64_t cursor) const;
  // A change of state is told at once, the rest at the watchers' own pace.
  bool StateChangedSince(int64_t cursor) const;

  void AddWatcher(const std::shared_ptr<JobWatcher>& watcher);
  void RemoveWatcher(const std::shared_ptr<JobWatcher>& watcher);
  void PokeWatchers();
  // The command that the job belongs to had a watcher, and has had none for so long.
  bool Orphaned(absl::Duration now, absl::Duration grace) const;

 private:
  void Run();
  absl::Status Drive();
  absl::StatusOr<WorkerInfo> AwaitWorker();
  // What other tasks, models and jobs taught about this target.
  absl::Status Warm();
  absl::Status AwaitTurn();  // to compute, on cores that may be shared with who measures; before the first batch
  absl::Status Prepare(const WorkerInfo& worker);
  absl::Status Loop();
  void Finish(const absl::Status& status);
  std::vector<ItemResult> TakeEvents();
  // Until there is an event, a wake-up, a stop or the time has come.
  void WaitForEvent(absl::Duration until);
  bool stopped() const;
  void SetState(const std::string& state);
  void Publish();
  std::string Summary() const;
  absl::Duration Now() const { return host_.clock().Monotonic(); }

  JobHost& host_;
  const JobSpec spec_;
  const JobLoopOptions options_;
  const absl::Duration started_;
  std::vector<Task> tasks_;        // until the loop has them
  std::unique_ptr<JobLoop> loop_;  // the thread's own
  std::string target_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<ItemResult> events_;
  bool woken_ = false;
  std::string stop_state_, stop_reason_;
  // Published:
  JobRow row_;
  std::string state_ = "queued";  // finer than the row's
  int64_t version_ = 1, state_version_ = 1;
  std::vector<TaskView> views_;
  std::vector<int64_t> view_versions_;
  v1::JobEvent head_;     // all but tasks and cursor
  double elapsed_s_ = 0;  // set when over
  double search_s_ = 0;   // the thread's own: in tuners and cost models
  std::vector<std::shared_ptr<JobWatcher>> watchers_;
  bool was_watched_ = false;
  absl::Duration unwatched_since_;

  std::thread thread_;
};

}  // namespace temper
