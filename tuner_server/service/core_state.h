// The server without its wire, its threads and its store: who works, who waits, what runs, what is to be stored. A pure
// state machine like the dispatcher in it: `now` is monotonic and passed in, nothing blocks, no callback is called from
// here. Not thread-safe: its owner has the lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tuner_server/dispatch/dispatcher.h"
#include "tuner_server/operations/fleet_status.h"
#include "tuner_server/operations/metrics.h"
#include "tuner_server/service/job_host.h"
#include "tuner_server/service/job_places.h"
#include "tuner_server/service/left_behind.h"

namespace temper {

struct CoreOptions {
  DispatchOptions dispatch;
  JobLoopOptions loop;                              // its make_tuner is set from the job's tuner when empty
  absl::Duration longest_poll = absl::Seconds(30);  // and the longest that a watcher may leave an event unread
  // So many jobs run at once; so many more wait for their device or for a place, for at most so long. Together their
  // requests have at most so many bytes. Of each of these no owner gets more than it leaves to others (LeavesEnough).
  int most_jobs = 64, most_waiting = 192;
  int most_searches = 16;        // of them at once: a search may hold many records
  int most_jobs_of_owner = 128;  // running or waiting; who has no name is not held to it
  absl::Duration longest_wait = absl::Hours(24);
  size_t most_request_bytes = 256 << 20;
  absl::Duration orphan_grace = absl::Seconds(3);
  absl::Duration forget_after = absl::Minutes(10);
  absl::Duration store_patience = absl::Seconds(10);  // nothing could be stored for so long: jobs fail
  // Called once, under the core's lock: the store is broken for good, and the process had better end.
  std::function<void(const absl::Status&)> on_broken_store = [](const absl::Status&) {};
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();  // where ServerCore counts; never null
};

// What is to be called once the lock is free, in this order.
using Actions = std::vector<std::function<void()>>;
using SyncDone = std::function<void(const absl::StatusOr<Dispatcher::SyncOutcome>&)>;
// Per result whether it is committed or may be forgotten; an error: nothing was committed.
using SubmitDone = std::function<void(const absl::StatusOr<std::vector<bool>>&)>;
// OK: it is committed, and outlives this server.
using PriorityDone = std::function<void(const absl::Status&)>;

struct SyncCall {
  int64_t ticket = 0;  // NewTicket
  std::string session;
  std::string holder;  // as WorkerInfo's
  std::vector<int64_t> held;
  int free_slots = 0;
  absl::Duration wait;
};

class CoreState {
 public:
  explicit CoreState(CoreOptions options);

  const CoreOptions& options() const { return options_; }
  // Calls are taken from now on; before it every call fails with kUnavailable.
  void Open() { open_ = true; }
  // Ends the jobs of commands as abandoned and suspends all others, answers all that waits. After it every call fails
  // with kUnavailable. False: again.
  bool Stop(Actions& actions);
  bool stopping() const { return stopping_; }
  // Every 100 ms or so.
  void Tick(absl::Duration now, Actions& actions);
  void EndIfBroken(const absl::Status& health);  // the store's

  // --- workers; kPermissionDenied: the session is another one's ---
  absl::StatusOr<std::string> Register(const WorkerInfo& info, absl::Duration now);
  int64_t NewTicket() { return next_ticket_++; }
  void Sync(SyncCall call, SyncDone done, absl::Duration now, Actions& actions);
  absl::Status Leave(const std::string& session, const std::string& holder, const std::string& reason,
                     absl::Duration now, Actions& actions);
  // See Dispatcher: held back until admitted, drained until undrained.
  void HoldBack(const std::string& session, const std::string& reason) { dispatcher_.HoldBack(session, reason); }
  void HoldBackKey(const std::string& key, const std::string& reason) { dispatcher_.HoldBackKey(key, reason); }
  std::set<std::string> HeldBack(const std::string& key) const { return dispatcher_.HeldBack(key); }
  int AdmitDevice(const std::string& key, const std::string& fingerprint, absl::Duration now, Actions& actions);
  int Drain(const std::string& key, const std::string& name, const std::string& reason, absl::Duration now,
            Actions& actions);
  int Undrain(const std::string& key, const std::string& name, absl::Duration now, Actions& actions);
  // A client waits for a worker of the key. It says so again within seconds, for as long as it does.
  void NoteAwaited(const std::string& who, const std::string& key, absl::Duration now);
  // The call's connection broke. Nothing if it was answered already.
  void BreakSync(int64_t ticket, absl::Duration now, Actions& actions);

  // --- what is to be stored: results, leases and priorities wait, results are judged together, the owner stores all of
  // it in one step, and only then does it drive anything or reach anybody ---
  void Submit(std::vector<ItemResult> results, SubmitDone done, Actions& actions);
  void SetPriority(int64_t job, int priority, PriorityDone done, Actions& actions);  // kNotFound: it does not run here
  bool CommitWaits() const {
    return !submissions_.empty() || !given_up_.empty() || !granted_.empty() || !ranked_.empty();
  }
  struct Submission {
    std::vector<ItemResult> results;
    SubmitDone done;
    std::vector<bool> acks;  // once judged
    int contradicting = 0;   // results that are refused
  };
  struct Delivery {
    int64_t job = 0;
    ItemResult result;
    bool given_up = false;
  };
  // Grants that reach their worker once their leases are stored.
  struct Granted {
    Dispatcher::SyncOutcome outcome;
    SyncDone done;
    WorkerInfo worker;
  };
  struct CommitPlan {
    // To be stored, all or none.
    std::vector<Record> records;
    std::vector<LeaseRow> leases;
    std::vector<int64_t> closed;
    std::vector<JobPriority> priorities;
    Changes changes() const { return {records, leases, closed, priorities}; }

    std::vector<Granted> granted;
    std::vector<PriorityDone> ranked;  // of priorities
    std::vector<Submission> submissions;
    std::vector<ItemResult> fresh;  // to be committed
    std::vector<Delivery> deliveries;
    // Results of no work known here, by submission and place in it: see JudgeUnknown.
    std::vector<std::pair<size_t, size_t>> unknown;
  };
  // Takes all that waits: many submissions, one transaction.
  CommitPlan JudgeGroup(absl::Time wall);
  // `stored`: how it fared. No second JudgeGroup comes between.
  void FinishGroup(CommitPlan plan, const absl::Status& stored, absl::Duration now, Actions& actions);

  // --- jobs ---
  // The job that the owner's request of this id became; 0: none that is known, or it has no id.
  int64_t FindRequest(const std::string& owner, const std::string& request_id) const;
  // A place for a job whose request has so many bytes, until it is given back, be it to AddJob. kUnavailable: a request
  // of this id has one already, and is no job yet.
  absl::Status ReservePlace(const std::string& owner, size_t bytes, const std::string& request_id = "");
  void GiveBackPlace(const std::string& owner, size_t bytes, const std::string& request_id = "");
  // False: the server stops, and the job is not taken.
  bool AddJob(int64_t id, size_t bytes, std::shared_ptr<JobPort> job);
  // What goes on from an earlier server.
  void GoOnFrom(const LeftBehind& left, absl::Duration now);
  std::shared_ptr<JobPort> FindJob(int64_t id) const;  // null: it is over, or none of this server
  std::vector<std::shared_ptr<JobPort>> JobsOf(const std::string& owner) const;  // those that are not over
  std::shared_ptr<JobFeed> FindFeed(int64_t id) const;  // null: none of this server, or long over
  // Jobs that are over, to be destroyed without the lock: they wait for their thread.
  std::vector<std::shared_ptr<JobPort>> TakeRetired() { return std::exchange(retired_, {}); }
  // All of them, for an owner that stops.
  std::vector<std::shared_ptr<JobPort>> TakeJobs();
  Dispatcher::SessionList Sessions(size_t offset, size_t most) const { return dispatcher_.Sessions(offset, most); }
  Dispatcher::SessionPage SessionsAfter(const std::string& after, size_t most) const {
    return dispatcher_.SessionsAfter(after, most);
  }
  FleetStatus Status() const;  // but the tick's age, which it does not know

  struct Census {
    Dispatcher::Census dispatch;
    Dispatcher::Sizes sizes;
    size_t parked = 0, submissions = 0, jobs = 0;
    std::vector<int64_t> given_up;  // items
  };
  Census TakeCensus() const;

  // --- what jobs ask for, see JobHost ---
  std::vector<int64_t> AddWork(Work work, absl::Duration now, Actions& actions);
  void Withdraw(const std::vector<int64_t>& items, absl::Duration now, Actions& actions);
  std::optional<WorkerInfo> FindWorker(const DeviceKind& kind) const { return dispatcher_.FindWorker(kind); }
  int Slots(const DeviceKind& kind) const { return dispatcher_.Slots(kind); }
  std::string WhyNoWorker(const DeviceKind& kind) const { return dispatcher_.WhyNoWorker(kind); }
  std::vector<WorkItem> Unsettled(int64_t job) const { return dispatcher_.Unsettled(job); }
  absl::Duration GrantedAt(const std::vector<int64_t>& items) const { return dispatcher_.GrantedAt(items); }
  bool TryBeginJob(int64_t job);
  void LeavePlace(int64_t job);
  bool TryBeginSearch(int64_t job);
  void EndSearch(int64_t job, absl::Duration now, Actions& actions);
  void JobOver(int64_t job, absl::Duration now, Actions& actions);

 private:
  struct Job {
    std::shared_ptr<JobPort> port;  // until it is over
    std::shared_ptr<JobFeed> feed;
    size_t bytes = 0;  // of its request
    int priority = 0;
    std::string request_id = {};
    absl::Duration over_at = absl::ZeroDuration();
  };
  struct Parked {
    SyncCall call;
    std::optional<DeviceKind> awaits;  // nullopt: it is granted nothing, whatever is queued
    absl::Duration deadline;
    SyncDone done;
  };
  using ParkedCalls = std::map<int64_t, Parked>;  // by ticket: the oldest first

  absl::Status Serving() const;
  // At once, or once its leases are stored.
  void Answer(const std::string& session, Dispatcher::SyncOutcome outcome, SyncDone done, Actions& actions);
  bool Survives(int64_t job) const;
  void PlanLeases(CommitPlan& plan, absl::Time wall);
  void FinishPriorities(CommitPlan& plan, const absl::Status& stored, Actions& actions);
  void HoldOrRelease();
  // Grants what can be granted, wakes who waits to search.
  void AfterChange(absl::Duration now, Actions& actions);
  // Whether the session is this holder's, or nobody's any more.
  absl::Status CheckHolder(const std::string& session, const std::string& holder) const;
  void Park(SyncCall call, absl::Duration deadline, SyncDone done);
  SyncDone Unpark(ParkedCalls::iterator parked);
  // Among those that wait for work of its kind.
  void Enlist(ParkedCalls::iterator parked);
  void Strike(ParkedCalls::iterator parked);
  // What is queued of this kind to whom it may be for, the oldest call first.
  void OfferTo(const DeviceKind& kind, absl::Duration now, Actions& actions);
  // Answers the waiting call if there is something to say.
  void Offer(int64_t ticket, absl::Duration now, Actions& actions);
  void WakeAllJobs();
  void ForgetOldJobs(absl::Duration now);
  // Of jobs that are not over, and of places for jobs to come; all owners', or this one's.
  struct Load {
    size_t jobs = 0, bytes = 0;
  };
  Load LoadOf(const std::string* owner) const;
  void TendJobs(absl::Duration now, Actions& actions);
  // Results of one group, by lease, item and attempt: their place in CommitPlan::fresh.
  using Known = std::map<std::tuple<int64_t, int64_t, int>, size_t>;
  void JudgeSubmission(size_t place, absl::Time wall, CommitPlan& plan, Known& known);
  void JudgeResult(ItemResult result, absl::Time wall, CommitPlan& plan);
  void StoreFails(const absl::Status& why, absl::Duration now);

  const CoreOptions options_;
  Dispatcher dispatcher_;
  bool open_ = false, stopping_ = false;
  int ticks_ = 0;
  ParkedCalls parked_;
  std::map<std::string, int64_t> ticket_of_session_;          // of parked calls, one each
  std::map<DeviceKind, std::set<int64_t>> tickets_awaiting_;  // of those that may be granted work
  int64_t next_ticket_ = 1;
  struct Awaited {
    std::string who;      // said so first
    absl::Duration said;  // when anybody did last
  };
  std::map<std::string, Awaited> awaited_;  // by device key, those that clients wait for
  std::map<int64_t, Job> jobs_;
  std::multiset<std::pair<std::string, size_t>> reserved_;  // owner and bytes of jobs to come
  std::set<std::pair<std::string, std::string>> arriving_;  // owner and id of their requests
  JobPlaces places_;
  std::vector<std::shared_ptr<JobPort>> retired_;
  std::set<int64_t> search_wanted_, searching_;  // jobs
  std::vector<Submission> submissions_;
  std::vector<Dispatcher::GivenUp> given_up_;
  std::vector<Granted> granted_;
  std::vector<int64_t> closed_;  // leases whose end is not stored yet
  std::vector<std::pair<JobPriority, PriorityDone>> ranked_;
  absl::Duration store_fails_since_ = absl::InfiniteDuration();
  bool store_broken_ = false;
  int store_failures_ = 0;  // in a row
};

}  // namespace temper
