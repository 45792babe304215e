// Who measures what: sessions of workers, queues of work, leases. A pure state machine: no threads, no IO, no clock
// (`now` is monotonic and passed in), so every fault can be played out in a test. Not thread-safe.
//
// Execution is at least once: a lease that is not renewed is queued again. Results are told apart by (item, attempt),
// and each item drives its job once, whatever comes late or twice. A lease belongs to the instance that was granted it:
// only that instance renews it or hands in for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/secure_random.h"
#include "base/status.h"
#include "tuner_server/dispatch/canary_history.h"
#include "tuner_server/dispatch/session_index.h"
#include "tuner_server/dispatch/suspects.h"
#include "tuner_server/dispatch/work_queue.h"

namespace temper {

struct DispatchOptions {
  absl::Duration lease = absl::Seconds(60);
  absl::Duration session_timeout = absl::Seconds(90);  // silent for so long: lost
  absl::Duration broken_grace = absl::Seconds(5);      // after a broken call, or a lease not restated
  absl::Duration frozen_gap = absl::Seconds(10);       // between two Ticks: this process stood still, not the workers
  absl::Duration keep_lost = absl::Minutes(10);        // lost sessions stay visible
  // So many sessions are kept, also those that are lost; and of one holder, if it proved to have anything.
  size_t most_sessions = 8192, most_sessions_of_holder = 2048;
  int max_attempts = 3;
  // What failed at one worker goes to another one where there is another, for so long.
  absl::Duration elsewhere = absl::Seconds(60);
  // A lease ends so long after its work should have taken at most, however often it is renewed.
  absl::Duration lease_reserve = absl::Minutes(5);
  // Of items with all their results so many are remembered, to tell a duplicate from a contradiction. What comes of
  // older ones is kUnknown.
  size_t remembered = 1024;
  SuspectOptions suspects;
  int64_t first_id = 1;                              // of items; above any of an earlier process
  std::function<uint64_t()> random = &SecureRandom;  // names sessions and leases, which nobody may guess
};

class Dispatcher {
 public:
  explicit Dispatcher(const DispatchOptions& options);

  // --- workers ---
  // To be asked before Register. Sessions that are lost give way to the worker, the longest lost first.
  // kResourceExhausted: there are none, and as many workers as there may be.
  absl::Status MakeRoomFor(const WorkerInfo& info);
  // An instance that is known already goes on under a new session and keeps its leases. Returns the session's name.
  std::string Register(const WorkerInfo& info, absl::Duration now);
  // A lease of a server before this one: it goes on for its full length, and its worker takes it up when it registers.
  void Restore(int64_t lease, const Work& work, const WorkerInfo& worker, absl::Duration now);
  // Leases that are over since the last call.
  std::vector<int64_t> TakeClosed() { return std::exchange(closed_, {}); }
  // Ids of items from here on are above it.
  void BeginIdsAbove(int64_t id) { next_id_ = std::max(next_id_, id + 1); }
  // The grant did not reach its worker, and will not: it is as if it had not been made.
  void TakeBack(int64_t lease, absl::Duration now);
  // The worker ends by itself: its leases are queued again at once, and nobody is to blame.
  void Leave(const std::string& session, const std::string& reason, absl::Duration now);

  struct Grant {
    int64_t lease = 0;
    std::shared_ptr<const Work> work;  // its items are those granted, with their attempts
  };
  struct SyncOutcome {
    bool unknown_session = false;
    std::vector<Grant> grants;
    std::vector<int64_t> cancels;
    std::string draining;  // why nothing more is granted; empty: it is
    bool empty() const { return !unknown_session && grants.empty() && cancels.empty(); }
  };
  // The worker restates all it holds: those leases are renewed, others of this session come back to the queue after a
  // grace (a lost grant heals itself).
  SyncOutcome Sync(const std::string& session, const std::vector<int64_t>& held, int free_slots, absl::Duration now);
  // The same question asked again for a call that waits: renews nothing.
  SyncOutcome Poll(const std::string& session, const std::vector<int64_t>& held, int free_slots, absl::Duration now);
  // What waiting calls may get another answer by, since the last call: work queued for these keys, and what befell
  // these sessions. What time alone changes (see DispatchOptions::elsewhere) is not among it.
  struct Stirred {
    std::set<std::string> keys, sessions;
  };
  Stirred TakeStirred() { return std::exchange(stirred_, {}); }
  bool HasQueued(const DeviceKind& kind) const;
  std::vector<DeviceKind> QueuedKinds(const std::string& device_key) const;
  // The kind of work that the session may be granted; nullopt: none, until it is stirred.
  std::optional<DeviceKind> Awaits(const std::string& session) const;
  // The session's waiting call broke: it is lost unless it is heard of within the grace.
  void ConnectionBroke(const std::string& session, absl::Duration now);

  // Drained workers finish what they hold and are granted nothing more. Those whose key or name it is; returns how
  // many. Undo: they work again, also those that were drained for their failures.
  int Drain(const std::string& key, const std::string& name, const std::string& reason);
  int Undrain(const std::string& key, const std::string& name);
  // Nothing is granted to devices of this key and fingerprint until Admit: they wait for a person's word.
  void HoldBack(const std::string& session, const std::string& reason);
  void HoldBackKey(const std::string& key, const std::string& reason);  // all of its sessions
  std::set<std::string> HeldBack(const std::string& key) const;         // their fingerprints
  int Admit(const std::string& key, const std::string& fingerprint);

  // --- results, in two steps, so that what is stored is durable before it drives anything ---
  enum class Judgement {
    kFirst,      // store it; it settles the item
    kLate,       // store it; the item was settled already, or its job is over
    kRequeue,    // the worker's own fault and attempts are left: store nothing, it is tried again
    kDuplicate,  // seen before: acknowledge
    kConflict,   // contradicts what was seen for this (item, attempt), or is another instance's: refuse
    kUnknown,    // of no work known here, or of one that was done long ago
  };
  struct Verdict {
    Judgement judgement = Judgement::kUnknown;
    std::shared_ptr<const Work> work;  // null when unknown
    WorkItem item;                     // with the attempt that it is about
    WorkerInfo worker;                 // who had the lease
  };
  Verdict Judge(const ItemResult& result) const;
  // A judged result is on its way to the store: until Commit or Drop nobody else settles its item.
  void Hold(const ItemResult& result);
  // It could not be stored.
  void Drop(const ItemResult& result, absl::Duration now);
  // After the store has it (or nothing was to be stored).
  void Commit(const ItemResult& result, absl::Duration now);

  // --- jobs ---
  // Queues the work and gives its items their ids.
  std::vector<int64_t> Add(Work work, absl::Duration now);
  // Queued items vanish, leases are cancelled. Results that still come are kLate.
  void CancelJob(int64_t job);
  // These items are wanted no more: queued ones vanish, leases of which none is left are cancelled, results are kLate.
  void Withdraw(const std::vector<int64_t>& items);
  // All that is known of the job's items; results that come now are kUnknown. For a job long over.
  void ForgetJob(int64_t job);
  // Of what is queued and of what is still to come.
  void SetPriority(int64_t job, int priority);

  // --- time ---
  // Items that were given up: they settle with this outcome and error.
  struct GivenUp {
    std::shared_ptr<const Work> work;
    WorkItem item;  // with its last attempt
    WorkerInfo worker;
    Outcome outcome = Outcome::kInfrastructure;
    std::string error;
  };
  // Expires leases and sessions. True if any did.
  bool Tick(absl::Duration now);
  std::vector<GivenUp> TakeGivenUp();

  // --- search beside measurement ---
  // While held, workers that share this machine's cores are granted nothing.
  void HoldSharedCores(bool hold);
  // A worker that shares this machine's cores holds a lease.
  bool SharedCoresBusy() const;

  // --- what is there ---
  // A live worker that may be granted work. Where several kinds fit, one of that which holds most leases at once.
  std::optional<WorkerInfo> FindWorker(const DeviceKind& kind) const;
  // How many leases the workers of the kind that it would find hold at once, together.
  int Slots(const DeviceKind& kind) const;
  // Why FindWorker finds none, in one line.
  std::string WhyNoWorker(const DeviceKind& kind) const;
  // Items of the job that no result has settled yet, each with its workload.
  std::vector<WorkItem> Unsettled(int64_t job) const;
  // When the first grant of these items was made; infinite: none was yet, or they are not known any more.
  absl::Duration GrantedAt(const std::vector<int64_t>& items) const;

  struct SessionView {
    WorkerInfo info;
    std::string state;  // "idle", "measuring", "lost", "version_mismatch", "target_mismatch", "drained", "pending"
    std::string reason;
    int64_t trials = 0, failures = 0;
    absl::Duration last_seen;
    int64_t job = 0;  // whose lease it holds; 0: none
    absl::Duration lease_since = absl::ZeroDuration();
    double drift = 0;                        // of its latest result
    std::vector<CanaryReading> canary = {};  // the latest, oldest first
  };
  // By key and name, as people number them: at most `most` from the `offset`th on, of `total`.
  struct SessionList {
    std::vector<SessionView> views;
    size_t total = 0;
  };
  SessionList Sessions(size_t offset = 0, size_t most = std::numeric_limits<size_t>::max()) const;
  std::map<std::string, int64_t> SessionsByState() const;  // how many
  // At most `most` of them, those whose places come after `after`, in the order of their places. A place stays as long
  // as the device does, and names nobody's session.
  struct SessionPage {
    std::vector<SessionView> views;
    std::string next;  // the last one's place; empty: there are no more
  };
  SessionPage SessionsAfter(const std::string& after, size_t most) const;
  bool Live(const std::string& session) const;
  const WorkerInfo* FindSession(const std::string& session) const;    // null: unknown or lost
  const WorkerInfo* FindInstance(const std::string& instance) const;  // likewise
  std::map<std::string, int64_t> WaitingItems() const;                // by device key
  std::map<std::string, int64_t> LeasedItems() const;                 // likewise
  // Since the start.
  struct Failures {
    int64_t expired_leases = 0, lost_workers = 0, drained_workers = 0, given_up_items = 0;
  };
  const Failures& failures() const { return failures_; }
  // How much is kept, for tests and metrics.
  struct Sizes {
    size_t sessions, leases, items, queued, remembered, finished, over, jobs, models;
  };
  Sizes sizes() const;

  // Where every item is, for whoever checks that none is lost or there twice. Costs as much as what is queued and
  // leased.
  struct Census {
    std::vector<int64_t> queued, leased, given_up;  // items, as often as they are; those of cancelled leases are not
    struct Holder {
      int slots = 0, leases = 0;
    };
    std::vector<Holder> holders;  // sessions that are not lost
    struct Share {
      int64_t job = 0;
      bool closing = false;  // finals or a model's check
      int64_t lease = 0;     // 0: none yet, it waits
      int64_t items = 0;
    };
    std::vector<Share> waiting;  // pieces that nobody had yet
    std::vector<Share> leases;
  };
  Census TakeCensus() const;

 private:
  struct Session {
    std::string id;
    std::string place;  // that of all devices that look like it
    WorkerInfo info;
    absl::Duration last_seen;
    absl::Duration deadline;  // lost when silent past it
    bool lost = false;
    // Why nothing is granted, where they are not empty: a person drained it, its failures did for a while, or it waits
    // for a person's word.
    std::string drained, sentence, held_back;
    std::string reason;  // why it is lost
    int64_t trials = 0, failures = 0;
    CanaryHistory canary;
    std::set<int64_t> leases;
  };
  struct Attempt {
    int64_t lease = 0;
    WorkerInfo worker;
    std::string session;
    bool handed_back = false;  // by a worker that left: it says nothing about the item
    absl::Duration granted;
    std::optional<ItemResult> result;
    bool held = false;  // a result of it is being stored
  };
  struct Item {
    std::shared_ptr<const Work> work;  // as added
    WorkItem spec;
    int earlier = 0;  // attempts before a restart, of which only the number is known
    std::vector<Attempt> attempts;
    bool settled = false;
    bool queued = false;
    int Tried() const { return earlier + static_cast<int>(attempts.size()); }
  };
  struct Lease {
    std::string session;  // empty: its worker has not come back yet
    std::string instance;
    std::shared_ptr<const Work> work;
    std::set<int64_t> open;  // items without a result
    absl::Duration granted, deadline;
    absl::Duration last_day;  // renewals do not go beyond it
    bool cancelled = false;
  };
  enum class Loss { kExpired, kLeft };
  // Live sessions of one kind that may be granted work.
  struct Serving {
    std::optional<WorkerInfo> worker;  // one of them
    int slots = 0;                     // of all
  };

  std::string NewSession();
  // What a session may do, or whether it is there, is not what it was.
  void Changed(const Session& session);
  void Index(const Session& session);
  void Erase(const std::string& id);
  std::vector<std::string> TakenOver(const WorkerInfo& info) const;  // by a worker that registers
  SessionView ViewOf(const Session& session) const;
  const char* StateOf(const Session& session) const;
  const Work* AnyQueuedFor(const std::string& key) const;  // null: nothing is queued
  Serving ServingOf(const DeviceKind& kind) const;
  int64_t NewLease();
  bool Fits(const Session& session, const Piece& piece, absl::Duration now) const;
  bool AnotherFits(const Session& session, const Item& item) const;
  void GrantTo(const std::string& id, Session& session, int free_slots, absl::Duration now, SyncOutcome& out);
  std::optional<Grant> MakeGrant(const std::string& id, Session& session, const Piece& piece, absl::Duration now);
  void CollectCancels(const std::string& session, const std::vector<int64_t>& held, SyncOutcome& out) const;
  absl::Duration LongestWork(const Work& work) const;
  void Requeue(int64_t lease, const std::string& why, Loss loss, absl::Duration now);
  void RequeueItems(std::vector<int64_t> items, const std::string& why, absl::Duration now);
  void Enqueue(const Piece& piece, bool again);
  bool AttemptsLeft(const Item& item) const;
  void GiveUp(Item& item, const std::string& why);
  void Lose(Session& session, const std::string& why, Loss loss, absl::Duration now);
  void Punish(Session& session, const std::string& why, absl::Duration now);
  static const std::string& WhyNothing(const Session& session);  // empty: it may be granted work
  void CloseLease(int64_t lease);
  void Cancel(Lease& lease);
  void Remember(int64_t item);
  void Forget(int64_t item);
  void CountResult(const Item& item, const Attempt& attempt, const ItemResult& result, absl::Duration now);
  // `place`: of the attempt that the result is of.
  const Item* FindItem(const ItemResult& result, size_t* place) const;
  Attempt* FindAttempt(const ItemResult& result);
  static bool Held(const Item& item);

  DispatchOptions options_;
  int64_t next_id_;
  std::optional<absl::Duration> last_tick_;
  bool hold_shared_cores_ = false;
  Suspects suspects_;
  std::map<std::string, Session> sessions_;
  std::set<std::string> sharing_;  // sessions on this machine's cores
  SessionIndex index_;             // of sessions_
  Stirred stirred_;
  std::map<int64_t, Lease> leases_;
  std::multimap<std::string, int64_t> unclaimed_;  // leases without a session, by instance
  std::map<int64_t, Item> items_;
  std::map<int64_t, std::set<int64_t>> items_of_job_;
  std::map<int64_t, int> priorities_;          // that were set after the job began
  std::deque<int64_t> remembered_;             // items with all their results, oldest first
  std::map<int64_t, int64_t> model_of_lease_;  // a model's result names its lease alone
  std::set<int64_t> finished_;                 // leases with all their results; a worker may still restate them
  std::set<int64_t> over_;                     // jobs cancelled or done, not forgotten yet
  std::map<std::string, WorkQueue> queues_;    // by device key
  std::vector<GivenUp> given_up_;
  std::vector<int64_t> closed_;
  Failures failures_;
};

}  // namespace temper
