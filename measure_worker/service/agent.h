// A worker's life: registers, takes leases, has them measured, hands in the results and keeps each until the server has
// it, its own restart included. Leases are renewed from here, never by the process that measures.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/rng.h"
#include "compiler/timing/timing.h"
#include "measure_worker/sandbox/sandbox.h"
#include "measure_worker/service/server_link.h"
#include "measure_worker/service/spool.h"

namespace temper::worker {

// Who measures. The sandbox, or a test's stand-in. Called from one thread.
class Measurer {
 public:
  virtual ~Measurer() = default;
  virtual absl::Status Run(const BatchWork& work, const CancelToken& token,
                           const std::function<void(int, TrialResult)>& on_trial) = 0;
  virtual absl::Status Run(const FinalsWork& work, const CancelToken& token,
                           const std::function<void(int, TrialResult)>& on_trial) = 0;
  virtual absl::StatusOr<ModelResult> Run(const ModelWork& work, const CancelToken& token) = 0;
};

struct AgentOptions {
  v1::RegisterRequest registration;              // but for the instance, which is the spool's
  absl::Duration idle_wait = absl::Seconds(25);  // of a Sync with nothing to renew; both vary by a fifth
  absl::Duration back_off_least = absl::Milliseconds(200);
  absl::Duration back_off_most = absl::Seconds(30);
  uint64_t seed = 0;  // of the jitter
  std::string hint;   // for people: what may be wrong where a server is there and does not answer; empty: nothing
  std::function<int64_t()> now_ns = MonotonicNs;
};

class Agent {
 public:
  // The spool is this agent's alone; what it has of an earlier life is handed in.
  Agent(ServerLink& link, Measurer& measurer, Spool& spool, AgentOptions options);
  ~Agent();  // stops
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void Start();
  // Ends what is being measured, hands in what is done (one try), gives back what is left and tells the server `why`,
  // closes the link. Returns when all threads are gone, after two seconds or so at most.
  void Stop(const std::string& why);
  // False: what it measures has taken far longer than any cancellation, so the thread that measures hangs. It blocks
  // where another thread does not let go of what both use.
  bool Lives();
  // Why the server will not have this worker, however often it asks: it asks no more. Empty: it does.
  std::string Refused();

 private:
  struct Held {
    v1::Lease lease;
    std::shared_ptr<CancelToken> token = std::make_shared<CancelToken>();
    bool measured = false;  // only its results are on their way
    int64_t granted_ns = 0, most_age_ns = 0;
  };
  struct Outgoing {
    int64_t lease;
    v1::SubmitResultsRequest results;
  };

  void ControlLoop();  // registers and keeps Syncs going
  void MeasureLoop();
  void SubmitLoop();
  void SubmitAll(std::unique_lock<std::mutex>& lock);
  void Farewell(const std::string& why);

  bool RegisterOnce();
  // Once, until it is another.
  void TellTrouble(const char* what, const absl::Status& status);
  void SyncIfDue(std::unique_lock<std::mutex>& lock);
  void OnSync(int64_t call, const std::string& session, absl::StatusOr<v1::SyncReply> reply);
  bool TakeReply(v1::SyncReply& reply);  // whether it says anything new
  void EndSession();
  void Hold(v1::Lease lease);
  void DropAged();
  void Measure(const Held& held, v1::SubmitResultsRequest& results);
  // Whether the server needs them no more. `again`: it has been tried before. In as many calls as it takes.
  bool Deliver(const v1::SubmitResultsRequest& results, bool again);
  bool DeliverInHalves(const v1::SubmitResultsRequest& results, bool again);
  absl::Status Submit(v1::SubmitResultsRequest results, bool again);

  int FreeSlots() const;
  LogFields About(int64_t lease = 0) const { return {.lease = lease, .key = options_.registration.device_key()}; }
  absl::Duration Jittered(absl::Duration d);  // +-20 %
  // Waits for full-jitter back-off number `failures`, for the stop, or until there is more to hand in or to ask for.
  // Only under the lock.
  void BackOff(std::unique_lock<std::mutex>& lock, int failures);

  ServerLink& link_;
  Measurer& measurer_;
  Spool& spool_;  // used by the submitting thread alone
  const AgentOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, measuring_ended_ = false, submitting_ended_ = false;
  std::string session_;  // empty: not registered
  absl::Duration busy_wait_ = absl::Seconds(10);
  std::map<int64_t, Held> held_;
  std::deque<int64_t> to_measure_;
  std::deque<Outgoing> measured_;              // on their way into the spool
  std::string draining_;                       // why nothing more is granted; empty: it is
  std::optional<int64_t> measuring_until_ns_;  // when what is being measured is surely cancelled
  struct Sync {
    int free_slots;  // told
    int64_t begun_ns;
  };
  std::map<int64_t, Sync> syncs_;  // calls under way, by number
  int64_t next_sync_ = 0;
  int64_t registered_ns_ = 0;
  int register_failures_ = 0, sync_failures_ = 0, short_sessions_ = 0, empty_answers_ = 0;  // in a row
  std::string trouble_;  // that was told last; empty: all is well
  std::string refused_;
  Rng rng_;

  std::thread control_, measure_, submit_;
};

}  // namespace temper::worker
