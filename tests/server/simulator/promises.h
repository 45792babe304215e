// What the fleet promises whatever happens to it (P1 to P5), and what was seen to break a promise first.
//
//   P1  no acknowledged record is lost, and no acknowledged priority
//   P2  every job ends in a final state, and stays in it
//   P3  one effective result for an item, one record for one (item, attempt)
//   P4  everything that was kept for jobs and workers is given back
//   P5  honest work goes on meanwhile; nobody is granted more than allowed; what ranks higher goes first, and of equals
//       each gets a turn
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/simulator/world.h"
#include "tuner_server/service/core_state.h"

namespace temper::simulator {

using Execution = std::pair<int64_t, int>;  // (item, attempt)

class Promises {
 public:
  explicit Promises(World& world) : world_(world) {}

  bool broken() const { return !broken_.empty(); }
  const std::string& what_broke() const { return broken_; }
  void Broken(const std::string& promise, const std::string& what);

  // --- a worker's side ---
  void Acknowledged(const std::string& worker, Execution execution);  // of a result that is to be kept
  // The server does not know its session any more, which it answered so shortly before.
  void Evicted(const std::string& worker, absl::Duration silent);

  // --- a server's life ---
  void ServerIsUp();
  void ServerIsGone();
  void Queued(int64_t job, const std::vector<int64_t>& items);
  void Withdrawn(const std::vector<int64_t>& items);
  void Delivered(int64_t job, int64_t item);
  bool JobsLive() const { return !progress_.empty(); }
  void JobOver(const JobRow& stored);  // the server has done with it
  void Stored(const std::vector<Record>& records);
  void JobStored(const JobRow& before, const JobRow& after);
  // After every event. `plan`: what was judged and is being stored.
  void Check(const CoreState::Census& census, const CoreState::CommitPlan& plan);
  void Granted(const Dispatcher::Grant& grant, int most_attempts);
  void Restored(int64_t lease, const Work& work);
  // A job goes on with this priority after a restart.
  void GoesOn(int64_t job, int priority);
  // Whose a job is, and how it ranks from now on.
  void Ranked(int64_t job, const std::string& owner, int priority) { standings_[job] = {owner, priority}; }
  // While workers that could measure for them are there, honest jobs go on.
  void CheckProgress(absl::Duration patience);

  // --- a client's side ---
  void Accepted(int64_t job);
  void CancelAsked(int64_t job) { cancelled_.insert(job); }
  // Of a job, in the order of asking; what a dying server leaves open is not answered.
  void PriorityAsked(int64_t job, int priority) { priorities_[job].push_back(priority); }
  void PriorityAnswered(int64_t job, int priority, bool stored);
  // All is over and everyone is gone.
  void CheckRest(const std::vector<JobRow>& rows, const CoreState::Census& census, size_t remembered);

 private:
  using Share = Dispatcher::Census::Share;
  struct Standing {
    std::string owner;
    int priority = 0;
  };
  // Finals before searches, then higher priorities.
  std::pair<bool, int> RankOf(const Share& share) const { return {share.closing, standings_.at(share.job).priority}; }
  void CheckTurns(const Dispatcher::Census& census);
  void CheckTurn(const Share& given, const std::vector<Share>& waiting);

  World& world_;
  std::string broken_;
  std::set<Execution> durable_;
  // Of this life of the server. One that was given up before it is nobody's any more.
  std::map<int64_t, int64_t> open_;  // unsettled items of live jobs, and whose they are
  std::set<int64_t> delivered_;
  std::map<int64_t, absl::Duration> progress_;  // of live jobs: when something was last told to them
  std::set<int64_t> accepted_;
  std::set<int64_t> cancelled_;
  // By job: the one that counts, then those that were asked for since and not answered, any of which may count.
  std::map<int64_t, std::vector<int>> priorities_;
  absl::Duration up_since_;
  std::map<int64_t, Standing> standings_;  // by job
  std::set<int64_t> given_;                // leases that were there after the event before
  // Who waits, and what an equal of it got since its last turn: owners, and jobs of one owner.
  std::map<std::pair<std::string, std::string>, int64_t> owners_wait_;
  std::map<std::pair<int64_t, int64_t>, int64_t> jobs_wait_;
  std::vector<int64_t> seen_;  // Check's own
};

}  // namespace temper::simulator
