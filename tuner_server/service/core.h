// The server without its wire: the core's state behind one lock, a thread for time, a thread that commits results, and
// one for each job. Thread-safe; callbacks are called once each, from any thread, never under a lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "storage/store.h"
#include "tuner_server/operations/throughput.h"
#include "tuner_server/service/core_state.h"
#include "tuner_server/service/job_plan.h"

namespace temper {

class ServerCore : private JobHost {
 public:
  // The store and the clock outlive it.
  ServerCore(Store& store, const Clock& clock, CoreOptions options);
  ~ServerCore() override;

  // Goes on with the jobs that a server before this one did not end.
  absl::Status Start();
  // Suspends all jobs but those of a command, which are abandoned; answers all that waits. After it every call fails
  // with kUnavailable.
  void Stop();

  // See CoreState.
  absl::StatusOr<std::string> Register(const WorkerInfo& info);
  int64_t NewTicket();
  void Sync(SyncCall call, SyncDone done);
  void BreakSync(int64_t ticket);
  absl::Status Leave(const std::string& session, const std::string& holder, const std::string& reason);
  void HoldBack(const std::string& session, const std::string& reason);
  void HoldBackKey(const std::string& key, const std::string& reason);
  std::set<std::string> HeldBack(const std::string& key);
  int AdmitDevice(const std::string& key, const std::string& fingerprint);
  int Drain(const std::string& key, const std::string& name, const std::string& reason);
  int Undrain(const std::string& key, const std::string& name);
  void SubmitResults(std::vector<ItemResult> results, SubmitDone done);

  // `request`: the bytes that it goes on from after a restart.
  absl::StatusOr<int64_t> SubmitJob(JobSpec spec, std::string request);
  absl::Status CancelJob(int64_t job, const std::string& reason);
  // Those of the owner's that run or wait here and whose device key it is. Returns how many.
  int CancelJobsOf(const std::string& owner, const std::function<bool(const std::string& device_key)>& whose,
                   const std::string& reason);
  void SetPriority(int64_t job, int priority, PriorityDone done);
  absl::StatusOr<std::vector<JobRow>> Jobs(const JobFilter& filter);  // as they are now, those that run
  Dispatcher::SessionList Sessions(size_t offset, size_t most);
  Dispatcher::SessionPage SessionsAfter(const std::string& after, size_t most);
  void NoteAwaited(const std::string& who, const std::string& key);
  FleetStatus Status();
  Metrics& metrics() { return *options().metrics; }
  const Throughput& throughput() const { return throughput_; }
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
  std::optional<WorkerInfo> FindWorker(const DeviceKind& kind) override;
  int Slots(const DeviceKind& kind) override;
  std::string WhyNoWorker(const DeviceKind& kind) override;
  std::vector<WorkItem> Unsettled(int64_t job) override;
  absl::Duration GrantedAt(const std::vector<int64_t>& items) override;
  bool TryBeginJob(int64_t job) override;
  void LeavePlace(int64_t job) override;
  bool TryBeginSearch(int64_t job) override;
  void EndSearch(int64_t job) override;
  void JobOver(int64_t job) override;

  // `change(actions)` under the lock, then what it left to be called.
  template <typename Change>
  auto Locked(Change change);
  absl::Status TakeUpJobs();
  bool Run(JobPlan plan);  // false: the server stops
  absl::StatusOr<int64_t> CreateJob(JobSpec spec, std::string request);
  void TickerLoop();
  void CommitterLoop();
  void Count(const CoreState::CommitPlan& plan, const absl::Status& stored, absl::Duration took);
  absl::Duration Now() const { return clock_.Monotonic(); }

  Store& store_;
  const Clock& clock_;

  std::mutex mutex_;
  CoreState state_;
  std::condition_variable ticker_wake_, committer_wake_;

  Throughput throughput_;
  std::atomic<int64_t> ticked_ms_;  // monotonic
  std::thread ticker_, committer_;
};

}  // namespace temper
