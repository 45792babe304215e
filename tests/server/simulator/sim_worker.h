// A worker of a simulated world: registers, syncs, measures by formula, hands in what it measured until it is
// acknowledged. By its role it is honest, or breaks down in one way.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>

#include "tests/server/simulator/network.h"
#include "tests/server/simulator/promises.h"
#include "tests/server/simulator/sim_server.h"
#include "tests/server/simulator/world.h"

namespace temper::simulator {

enum class Role {
  kHonest,
  kSlow,         // takes long, and stands still now and then for longer than its leases last
  kBroken,       // says of some items, late, that it could not measure them
  kFlapping,     // dies with what it was granted, and comes back
  kZeroThreads,  // registers with threads = 0, and measures well
  kNotFinite,    // sends NaN where the untuned model's times belong
  kVerbose,      // sends more samples of a trial than a store takes
  kGreedy,       // asks for a hundred leases
  kHoarder,      // restates its leases for ever
};

class SimWorker {
 public:
  SimWorker(World& world, Network& network, SimServer& server, Promises& promises, std::string name, Role role);

  void Start();
  void Leave();  // for good, in silence
  // Workloads with this in their text do not fit the device.
  void SetTooBig(std::string name) { too_big_ = std::move(name); }

 private:
  struct Held {
    Dispatcher::Grant grant;
    bool measured = false;
  };

  WorkerInfo Info() const;
  void After(absl::Duration delay, std::function<void()> event);  // in this life, and not while it stands still
  void Die();
  void Register();
  int FreeSlots() const;
  void SyncIfDue();
  void OnSync(int64_t call, const absl::StatusOr<Dispatcher::SyncOutcome>& outcome);
  void Take(const Dispatcher::Grant& grant);
  void MeasureNext();
  absl::Duration TimeFor(const Dispatcher::Grant& grant);
  std::vector<ItemResult> Measure(const Dispatcher::Grant& grant);
  ItemResult MeasureItem(const Dispatcher::Grant& grant, const WorkItem& item);
  ItemResult MeasureModel(const Dispatcher::Grant& grant);
  bool TooBig(const Work& work) const;
  void SubmitNext();
  void OnAcks(const absl::StatusOr<std::vector<bool>>& acks);
  absl::Duration BackOff(int failures);

  World& world_;
  Network& network_;
  SimServer& server_;
  Promises& promises_;
  const std::string name_;
  const Role role_;
  std::string too_big_;

  int life_ = 0;
  uint64_t instance_;  // of this life
  absl::Duration still_until_;
  std::string session_;
  absl::Duration answered_at_;  // a sync, in this session
  int evictions_ = 0;           // in a row: it was told, shortly after an answer, that it is not known
  std::map<int64_t, Held> held_;
  std::deque<int64_t> to_measure_;
  bool measuring_ = false;
  std::map<int64_t, int> syncs_;  // under way, and the free slots they tell
  int64_t next_sync_ = 1;
  int sync_failures_ = 0, register_failures_ = 0, submit_failures_ = 0;
  struct Outgoing {
    int64_t lease = 0;
    bool batch = false;  // finals and models' checks begin anew where their server is gone
    std::vector<ItemResult> results;
  };
  std::deque<Outgoing> outbox_;
  bool submitting_ = false;
};

}  // namespace temper::simulator
