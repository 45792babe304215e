// The server without its wire: dispatcher, jobs and store behind one lock, a thread for time and a thread that commits
// results. Thread-safe; callbacks are called once each, from any thread, never under a lock.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "storage/store.h"
#include "tuner_server/dispatch/dispatcher.h"
#include "tuner_server/service/job_runner.h"

namespace temper {

struct CoreOptions {
  DispatchOptions dispatch;
  JobLoopOptions loop;  // its make_tuner is set from the job's tuner when empty
  absl::Duration longest_poll = absl::Seconds(30);
  int most_jobs = 64;  // running at once
  absl::Duration orphan_grace = absl::Seconds(3);
  absl::Duration forget_after = absl::Minutes(10);
  absl::Duration store_patience = absl::Seconds(10);  // nothing could be stored for so long: jobs fail
};

class ServerCore : private JobHost {
 public:
  ServerCore(Store& store, const Clock& clock, CoreOptions options);
  ~ServerCore() override;

  // Closes the jobs that a dead server left running.
  absl::Status Start();
  // Ends all jobs as abandoned, answers all that waits. After it every call fails with kUnavailable.
  void Stop();

  // --- workers ---
  absl::StatusOr<std::string> Register(const WorkerInfo& info);
  struct SyncCall {
    int64_t ticket = 0;  // NewTicket
    std::string session;
    std::vector<int64_t> held;
    int free_slots = 0;
    absl::Duration wait;
  };
  int64_t NewTicket();
  void Sync(SyncCall call, std::function<void(const absl::StatusOr<Dispatcher::SyncOutcome>&)> done);
  // The call's connection broke. Nothing if it was answered already.
  void BreakSync(int64_t ticket);
  // Per result whether it is committed or may be forgotten; an error: nothing was committed.
  void SubmitResults(std::vector<ItemResult> results,
                     std::function<void(const absl::StatusOr<std::vector<bool>>&)> done);

  // --- clients ---
  absl::StatusOr<int64_t> SubmitJob(JobSpec spec);
  absl::Status CancelJob(int64_t job);
  absl::StatusOr<std::vector<JobRow>> Jobs();
  std::vector<Dispatcher::SessionView> Sessions();
  std::shared_ptr<JobRunner> FindJob(int64_t job);  // null: not of this server, or long over
  Store& store() override { return store_; }
  const Clock& clock() const override { return clock_; }
  const CoreOptions& options() const { return options_; }

 private:
  using Actions = std::vector<std::function<void()>>;  // to run once the lock is free
  struct Parked {
    SyncCall call;
    absl::Duration deadline;
    std::function<void(const absl::StatusOr<Dispatcher::SyncOutcome>&)> done;
  };
  struct Submission {
    std::vector<ItemResult> results;
    std::function<void(const absl::StatusOr<std::vector<bool>>&)> done;
  };

  // JobHost
  std::vector<int64_t> Submit(Work work) override;
  void Withdraw(const std::vector<int64_t>& items) override;
  std::optional<WorkerInfo> FindWorker(const JobSpec& spec, const std::string& target) override;
  int Slots(const JobSpec& spec, const std::string& target) override;
  std::string WhyNoWorker(const JobSpec& spec) override;
  bool TryBeginSearch(int64_t job) override;
  void EndSearch(int64_t job) override;
  void JobOver(int64_t job) override;

  absl::Status CloseAbandoned();
  void HoldOrRelease();                // locked
  void AfterChange(Actions& actions);  // locked: grants what can be granted, wakes who waits to search
  void WakeAllJobs();                  // locked
  void TickerLoop();
  void Tick(Actions& actions);  // locked
  void CommitterLoop();
  void StoreFails(const absl::Status& why);
  absl::Status CommitGroup(std::vector<Submission>& group, std::vector<Dispatcher::GivenUp> given_up);
  Record MakeRecord(const Work& work, const WorkItem& item, const WorkerInfo& worker, const ItemResult& result) const;
  absl::Duration Now() const { return clock_.Monotonic(); }

  Store& store_;
  const Clock& clock_;
  const CoreOptions options_;

  std::mutex mutex_;
  Dispatcher dispatcher_;
  std::map<int64_t, Parked> parked_;  // by ticket
  int64_t next_ticket_ = 1;
  std::map<int64_t, std::shared_ptr<JobRunner>> jobs_;
  std::map<int64_t, absl::Duration> over_at_;    // when jobs ended
  std::set<int64_t> search_wanted_, searching_;  // jobs
  bool stopping_ = false;
  std::condition_variable ticker_wake_;

  std::mutex queue_mutex_;
  std::condition_variable queue_wake_;
  std::vector<Submission> queue_;
  std::vector<Dispatcher::GivenUp> given_up_;
  bool queue_closed_ = false;
  absl::Duration store_fails_since_ = absl::InfiniteDuration();  // the committer's own

  std::thread ticker_, committer_;
};

}  // namespace temper
