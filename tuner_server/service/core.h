// The server without its wire: the core's state behind one lock, a thread for time, a thread that commits results, and
// one for each job. Thread-safe; callbacks are called once each, from any thread, never under a lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "storage/store.h"
#include "tuner_server/service/core_state.h"

namespace temper {

class ServerCore : private JobHost {
 public:
  // The store and the clock outlive it.
  ServerCore(Store& store, const Clock& clock, CoreOptions options);
  ~ServerCore() override;

  // Closes the jobs that a dead server left running.
  absl::Status Start();
  // Ends all jobs as abandoned, answers all that waits. After it every call fails with kUnavailable.
  void Stop();

  // See CoreState.
  absl::StatusOr<std::string> Register(const WorkerInfo& info);
  int64_t NewTicket();
  void Sync(SyncCall call, SyncDone done);
  void BreakSync(int64_t ticket);
  void SubmitResults(std::vector<ItemResult> results, SubmitDone done);

  absl::StatusOr<int64_t> SubmitJob(JobSpec spec);
  absl::Status CancelJob(int64_t job);
  absl::StatusOr<std::vector<JobRow>> Jobs();
  std::vector<Dispatcher::SessionView> Sessions();
  FleetStatus Status();
  Metrics& metrics() { return *options().metrics; }
  // Since the ticker's last turn. Takes no lock, so it tells of one that is never freed.
  absl::Duration TickAge() const;
  std::shared_ptr<JobFeed> FindJob(int64_t job);  // null: not of this server, or long over
  Store& store() override { return store_; }
  const Clock& clock() const override { return clock_; }
  const CoreOptions& options() const { return state_.options(); }

 private:
  // JobHost
  std::vector<int64_t> Submit(Work work) override;
  void Withdraw(const std::vector<int64_t>& items) override;
  std::optional<WorkerInfo> FindWorker(const JobSpec& spec, const std::string& target) override;
  int Slots(const JobSpec& spec, const std::string& target) override;
  std::string WhyNoWorker(const JobSpec& spec) override;
  bool TryBeginSearch(int64_t job) override;
  void EndSearch(int64_t job) override;
  void JobOver(int64_t job) override;

  // `change(actions)` under the lock, then what it left to be called.
  template <typename Change>
  auto Locked(Change change);
  void TickerLoop();
  void CommitterLoop();
  void Count(const CoreState::CommitPlan& plan, const absl::Status& stored, absl::Duration took);
  absl::Duration Now() const { return clock_.Monotonic(); }

  Store& store_;
  const Clock& clock_;

  std::mutex mutex_;
  CoreState state_;
  std::condition_variable ticker_wake_, committer_wake_;

  std::atomic<int64_t> ticked_ms_;  // monotonic
  std::thread ticker_, committer_;
};

}  // namespace temper
