// Who measures what: sessions of workers, queues of work, leases. A pure state machine: no threads, no IO, no clock
// (`now` is monotonic and passed in), so every fault can be played out in a test. Not thread-safe.
//
// Execution is at least once: a lease that is not renewed is queued again. Results are told apart by (item, attempt),
// and each item drives its job once, whatever comes late or twice.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tuner_server/dispatch/work.h"

namespace temper {

struct DispatchOptions {
  absl::Duration lease = absl::Seconds(60);
  absl::Duration session_timeout = absl::Seconds(90);  // silent for so long: lost
  absl::Duration broken_grace = absl::Seconds(5);      // after a broken call, or a lease not restated
  absl::Duration frozen_gap = absl::Seconds(10);       // between two Ticks: this process stood still, not the workers
  absl::Duration keep_lost = absl::Minutes(10);        // lost sessions stay visible
  int max_attempts = 3;
  // Of items with all their results so many are remembered, to tell a duplicate from a contradiction. What comes of
  // older ones is kUnknown.
  size_t remembered = 1024;
  int drain_after = 3;   // items in a row that a worker could not measure for its own reasons
  int64_t first_id = 1;  // above any id of an earlier process
};

class Dispatcher {
 public:
  explicit Dispatcher(const DispatchOptions& options);

  // --- workers ---
  std::string Register(const WorkerInfo& info, absl::Duration now);

  struct Grant {
    int64_t lease = 0;
    std::shared_ptr<const Work> work;  // its items are those granted
    std::vector<int> attempts;         // one per item
  };
  struct SyncOutcome {
    bool unknown_session = false;
    std::vector<Grant> grants;
    std::vector<int64_t> cancels;
    bool empty() const { return !unknown_session && grants.empty() && cancels.empty(); }
  };
  // The worker restates all it holds: those leases are renewed, others of this session come back to the queue after a
  // grace (a lost grant heals itself).
  SyncOutcome Sync(const std::string& session, const std::vector<int64_t>& held, int free_slots, absl::Duration now);
  // The same question asked again for a call that waits: renews nothing.
  SyncOutcome Poll(const std::string& session, const std::vector<int64_t>& held, int free_slots, absl::Duration now);
  // The session's waiting call broke: it is lost unless it is heard of within the grace.
  void ConnectionBroke(const std::string& session, absl::Duration now);

  // --- results, in two steps, so that what is stored is durable before it drives anything ---
  enum class Judgement {
    kFirst,      // store it; it settles the item
    kLate,       // store it; the item was settled already, or its job is over
    kRequeue,    // the worker's own fault and attempts are left: store nothing, it is tried again
    kDuplicate,  // seen before: acknowledge
    kConflict,   // contradicts what was seen for this (item, attempt): refuse
    kUnknown,    // of no work known here, or of one that was done long ago
  };
  struct Verdict {
    Judgement judgement = Judgement::kUnknown;
    std::shared_ptr<const Work> work;  // null when unknown
    WorkItem item;
    int attempt = 0;
    WorkerInfo worker;  // who had the lease
  };
  Verdict Judge(const ItemResult& result) const;
  // After the store has it (or nothing was to be stored).
  void Commit(const ItemResult& result, absl::Duration now);

  // --- jobs ---
  // Queues the work and gives its items their ids.
  std::vector<int64_t> Add(Work work);
  // Queued items vanish, leases are cancelled. Results that still come are kLate.
  void CancelJob(int64_t job);
  // These items are wanted no more: queued ones vanish, leases of which none is left are cancelled, results are kLate.
  void Withdraw(const std::vector<int64_t>& items);
  // All that is known of the job's items; results that come now are kUnknown. For a job long over.
  void ForgetJob(int64_t job);

  // --- time ---
  // Items that were given up: they settle with outcome "infrastructure" and this error.
  struct GivenUp {
    std::shared_ptr<const Work> work;
    WorkItem item;
    int attempt = 0;
    WorkerInfo worker;
    std::string error;
  };
  // Expires leases and sessions. True if any did.
  bool Tick(absl::Duration now);
  std::vector<GivenUp> TakeGivenUp();

  // --- search beside measurement ---
  // While held, workers that share this machine's cores are granted nothing.
  void HoldSharedCores(bool hold) { hold_shared_cores_ = hold; }
  // A worker that shares this machine's cores holds a lease.
  bool SharedCoresBusy() const;

  // --- what is there ---
  // A live worker that may measure for this key and codegen id (and target, unless empty).
  std::optional<WorkerInfo> FindWorker(const std::string& device_key, const std::string& codegen_id,
                                       const std::string& target = "") const;
  // Live ones of that kind: how many leases they hold at once, together.
  int Slots(const std::string& device_key, const std::string& codegen_id, const std::string& target) const;
  // Why FindWorker finds none, in one line.
  std::string WhyNoWorker(const std::string& device_key, const std::string& codegen_id) const;

  struct SessionView {
    WorkerInfo info;
    std::string state;  // "idle", "measuring", "lost", "version_mismatch", "drained"
    std::string reason;
    int64_t trials = 0, failures = 0;
    absl::Duration last_seen;
  };
  std::vector<SessionView> Sessions() const;
  bool Live(const std::string& session) const;

 private:
  struct Session {
    WorkerInfo info;
    absl::Duration last_seen;
    absl::Duration deadline;  // lost when silent past it
    bool lost = false;
    bool drained = false;
    std::string reason;
    int64_t trials = 0, failures = 0;
    std::set<int64_t> faults;  // items in a row that failed for the worker's own reasons
    std::set<int64_t> leases;
  };
  struct Attempt {
    int64_t lease = 0;
    WorkerInfo worker;
    std::string session;
    std::optional<ItemResult> result;  // without samples' copies beyond what a duplicate is compared with
  };
  struct Item {
    std::shared_ptr<const Work> work;  // as added
    WorkItem spec;
    std::vector<Attempt> attempts;
    bool settled = false;
  };
  struct Lease {
    std::string session;
    std::shared_ptr<const Work> work;
    std::set<int64_t> open;  // items without a result
    absl::Duration deadline;
    bool cancelled = false;
  };
  struct Queued {
    std::shared_ptr<const Work> work;
    std::vector<int64_t> items;
  };

  bool Fits(const Session& session, const Work& work) const;
  void GrantTo(const std::string& id, Session& session, int free_slots, absl::Duration now, SyncOutcome& out);
  void CollectCancels(const std::string& session, const std::vector<int64_t>& held, SyncOutcome& out) const;
  void Requeue(int64_t lease_id, const std::string& why);
  int MostAttempts(const Work& work) const;
  void RequeueItem(int64_t item_id, const std::string& why);
  void Lose(Session& session, const std::string& why);
  void CloseLease(int64_t lease_id);
  void Remember(int64_t item_id);
  void Forget(int64_t item_id);
  void CountResult(const Item& item, const Attempt& attempt, const ItemResult& result);
  const Item* FindItem(const ItemResult& result, int* attempt) const;

  DispatchOptions options_;
  int64_t next_id_;
  std::optional<absl::Duration> last_tick_;
  bool hold_shared_cores_ = false;
  std::map<std::string, Session> sessions_;
  std::map<int64_t, Lease> leases_;
  std::map<int64_t, Item> items_;
  std::map<int64_t, std::set<int64_t>> items_of_job_;
  std::deque<int64_t> remembered_;                    // items with all their results, oldest first
  std::map<int64_t, int64_t> model_of_lease_;         // a model's result names its lease alone
  std::set<int64_t> finished_;                        // leases with all their results; a worker may still restate them
  std::set<int64_t> over_;                            // jobs cancelled or done, not forgotten yet
  std::map<std::string, std::deque<Queued>> queues_;  // by device key
  std::vector<GivenUp> given_up_;
};

}  // namespace temper
