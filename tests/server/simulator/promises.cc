#include "tests/server/simulator/promises.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"

namespace temper::simulator {
namespace {

// Items that an equal gets while somebody waits: two turns, each a quantum of round robin and a piece.
constexpr int64_t kMostWaited = 2 * (16 + 7);

}  // namespace

void Promises::Broken(const std::string& promise, const std::string& what) {
  if (broken()) return;
  broken_ = absl::StrCat(promise, ": ", what);
  world_.Note(absl::StrCat("BROKEN ", broken_));
}

void Promises::Acknowledged(const std::string& worker, Execution execution) {
  if (durable_.contains(execution)) return;
  Broken("P1", absl::StrCat("the result of ", worker, " for item ", execution.first, " attempt ", execution.second,
                            " was acknowledged, and no record of it is durable"));
}

void Promises::Evicted(const std::string& worker, absl::Duration silent) {
  if (world_.Monotonic() - up_since_ < silent) return;  // another server knew it
  Broken("P5", absl::StrCat("the honest worker ", worker, " was given up ", absl::FormatDuration(silent),
                            " after it was last answered"));
}

void Promises::ServerIsUp() { up_since_ = world_.Monotonic(); }

void Promises::ServerIsGone() {
  open_.clear();
  progress_.clear();
  given_.clear();
  owners_wait_.clear();
  jobs_wait_.clear();
}

void Promises::Queued(int64_t job, const std::vector<int64_t>& items) {
  for (const int64_t item : items) open_[item] = job;
}

void Promises::Withdrawn(const std::vector<int64_t>& items) {
  for (const int64_t item : items) open_.erase(item);
}

void Promises::Delivered(int64_t job, int64_t item) {
  if (!delivered_.insert(item).second) Broken("P3", absl::StrCat("item ", item, " drove job ", job, " twice"));
  open_.erase(item);
  progress_[job] = world_.Monotonic();
}

void Promises::JobOver(const JobRow& stored) {
  std::erase_if(open_, [&](const auto& entry) { return entry.second == stored.id; });
  progress_.erase(stored.id);
  if (!IsFinalJobState(stored.state)) {
    Broken("P2", absl::StrCat("job ", stored.id, " is over and the store has it as ", stored.state));
  }
}

void Promises::Stored(const std::vector<Record>& records) {
  for (const Record& r : records) {
    if (r.candidate == 0 || durable_.insert({r.candidate, r.attempt}).second) continue;
    Broken("P3", absl::StrCat("item ", r.candidate, " attempt ", r.attempt, " has two records"));
  }
}

void Promises::JobStored(const JobRow& before, const JobRow& after) {
  if (IsFinalJobState(before.state) && after.state != before.state) {
    Broken("P2", absl::StrCat("job ", after.id, " was ", before.state, " for good and became ", after.state));
  }
  if (after.state == "failed") {
    Broken("P5", absl::StrCat("the honest job ", after.id, " failed: ", after.reason));
  } else if (after.state == "abandoned") {
    Broken("P2", absl::StrCat("job ", after.id, " was abandoned: ", after.reason));
  } else if (after.state == "cancelled" && !cancelled_.contains(after.id)) {
    Broken("P2", absl::StrCat("job ", after.id, " was cancelled and nobody had asked for it: ", after.reason));
  }
}

void Promises::Check(const CoreState::Census& census, const CoreState::CommitPlan& plan) {
  seen_.clear();
  std::set<int64_t> held;  // what is known of them is being stored
  for (const ItemResult& result : plan.fresh) held.insert(result.item);
  for (const CoreState::Delivery& delivery : plan.deliveries) {
    if (delivery.given_up) seen_.push_back(delivery.result.item);
    held.insert(delivery.result.item);
  }
  for (const std::vector<int64_t>* items :
       {&census.given_up, &census.dispatch.given_up, &census.dispatch.queued, &census.dispatch.leased}) {
    seen_.insert(seen_.end(), items->begin(), items->end());
  }
  std::sort(seen_.begin(), seen_.end());
  auto next = seen_.begin();
  for (const auto& [item, job] : open_) {
    while (next != seen_.end() && *next < item) ++next;  // settled ones may still be queued or leased
    const auto begin = next;
    while (next != seen_.end() && *next == item) ++next;
    const auto times = next - begin;
    if (times == 1 || (times == 0 && held.contains(item))) continue;
    Broken("P3", absl::StrCat("item ", item, " of job ", job, " is queued or leased ", times, " times"));
    return;
  }
  for (const Dispatcher::Census::Holder& holder : census.dispatch.holders) {
    if (holder.leases <= holder.slots) continue;
    Broken("P5", absl::StrCat("a worker of ", holder.slots, " slots holds ", holder.leases, " leases"));
  }
  CheckTurns(census.dispatch);
}

void Promises::CheckTurns(const Dispatcher::Census& census) {
  std::set<int64_t> given;
  for (const Share& share : census.leases) {
    given.insert(share.lease);
    if (!given_.contains(share.lease)) CheckTurn(share, census.waiting);
  }
  given_ = std::move(given);
  // Who wants nothing waits for nothing.
  std::set<std::string> owners;
  std::set<int64_t> jobs;
  for (const Share& share : census.waiting) {
    owners.insert(standings_.at(share.job).owner);
    jobs.insert(share.job);
  }
  std::erase_if(owners_wait_, [&](const auto& entry) { return !owners.contains(entry.first.first); });
  std::erase_if(jobs_wait_, [&](const auto& entry) { return !jobs.contains(entry.first.first); });
}

void Promises::CheckTurn(const Share& given, const std::vector<Share>& waiting) {
  const std::string& owner = standings_.at(given.job).owner;
  std::set<std::string> owners;
  std::set<int64_t> jobs;
  for (const Share& share : waiting) {
    if (share.job == given.job) continue;
    if (RankOf(share) > RankOf(given)) {
      Broken("P5", absl::StrCat("job ", given.job, " was granted ", given.items, " items while job ", share.job,
                                ", which goes before it, waited"));
    }
    if (RankOf(share) != RankOf(given)) continue;
    const std::string& other = standings_.at(share.job).owner;
    if (other != owner) owners.insert(other);
    if (other == owner) jobs.insert(share.job);
  }
  std::erase_if(owners_wait_, [&](const auto& entry) { return entry.first.first == owner; });
  std::erase_if(jobs_wait_, [&](const auto& entry) { return entry.first.first == given.job; });
  for (const std::string& other : owners) {
    const int64_t items = owners_wait_[{other, owner}] += given.items;
    if (items > kMostWaited)
      Broken("P5", absl::StrCat(other, " has no turn while ", owner, " was granted ", items, " items"));
  }
  for (const int64_t job : jobs) {
    const int64_t items = jobs_wait_[{job, given.job}] += given.items;
    if (items > kMostWaited)
      Broken("P5", absl::StrCat("job ", job, " has no turn while job ", given.job, " was granted ", items, " items"));
  }
}

void Promises::Restored(int64_t lease, const Work& work) {
  given_.insert(lease);
  for (const WorkItem& item : work.items) open_[item.id] = work.job;
}

void Promises::Granted(const Dispatcher::Grant& grant, int most_attempts) {
  for (const WorkItem& item : grant.work->items) {
    // What was handed back, or could not be granted in the end, does not count; but it does not go on for ever.
    if (item.attempt <= 4 * most_attempts) continue;
    Broken("P3", absl::StrCat("item ", item.id, " was granted for attempt ", item.attempt));
  }
}

void Promises::CheckProgress(absl::Duration patience) {
  for (const auto& [job, since] : progress_) {
    if (world_.Monotonic() - since < patience) continue;
    Broken("P5", absl::StrCat("job ", job, " has not gone on for ", absl::FormatDuration(patience),
                              ", and honest workers are there"));
    return;
  }
}

void Promises::Accepted(int64_t job) {
  accepted_.insert(job);
  priorities_.try_emplace(job, 1, 0);
  progress_.emplace(job, world_.Monotonic());
}

void Promises::PriorityAnswered(int64_t job, int priority, bool stored) {
  std::vector<int>& may = priorities_.at(job);
  const auto asked = std::find(may.begin() + 1, may.end(), priority);
  stored ? may.erase(may.begin(), asked) : may.erase(asked);
  if (!stored) return;
  // Among others its turns begin anew.
  Standing& standing = standings_.at(job);
  standing.priority = priority;
  const auto concerns = [](const auto& pair, const auto& who) { return pair.first == who || pair.second == who; };
  std::erase_if(owners_wait_, [&](const auto& entry) { return concerns(entry.first, standing.owner); });
  std::erase_if(jobs_wait_, [&](const auto& entry) { return concerns(entry.first, job); });
}

void Promises::GoesOn(int64_t job, int priority) {
  std::vector<int>& may = priorities_[job];
  if (std::ranges::find(may, priority) == may.end()) {
    Broken("P1",
           absl::StrCat("job ", job, " goes on at priority ", priority, ", and ", may.front(), " was acknowledged"));
  }
  may = {priority};
}

void Promises::CheckRest(const std::vector<JobRow>& rows, const CoreState::Census& census, size_t remembered) {
  std::set<int64_t> known;
  for (const JobRow& row : rows) {
    known.insert(row.id);
    if (!IsFinalJobState(row.state)) {
      Broken("P2", absl::StrCat("all is over and the store has job ", row.id, " as ", row.state));
    }
  }
  for (const int64_t job : accepted_) {
    if (!known.contains(job)) Broken("P2", absl::StrCat("job ", job, " was accepted and is not in the store"));
  }
  const Dispatcher::Sizes& d = census.sizes;
  const std::pair<const char*, size_t> kept[] = {
      {"sessions", d.sessions},        {"leases", d.leases},           {"items", d.items},
      {"queued items", d.queued},      {"models", d.models},           {"finished leases", d.finished},
      {"jobs of items", d.jobs},       {"jobs over", d.over},          {"jobs", census.jobs},
      {"parked calls", census.parked}, {"results", census.submissions}};
  for (const auto& [what, count] : kept) {
    if (count > 0) Broken("P4", absl::StrCat(count, " ", what, " are still kept when all is over"));
  }
  if (d.remembered > remembered) Broken("P4", absl::StrCat(d.remembered, " items are remembered"));
}

}  // namespace temper::simulator
