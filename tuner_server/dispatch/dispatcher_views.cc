// What a dispatcher tells of its workers and of the work that it has. Changes nothing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tuner_server/dispatch/dispatcher.h"

namespace temper {
namespace {

Dispatcher::Census::Share ShareOf(const Work& work, int64_t lease, size_t items) {
  return {work.job, work.kind != WorkKind::kBatch, lease, static_cast<int64_t>(items)};
}

}  // namespace

Dispatcher::Serving Dispatcher::ServingOf(const DeviceKind& kind) const {
  const SessionIndex::Ids* most = nullptr;
  int64_t most_slots = 0;
  // By workers, not by slots, of which one may state as many as it likes.
  for (const auto& [name, found] : index_.Serving(kind.key)) {
    const auto& [ids, slots] = found;
    const auto& [codegen_id, target] = name;
    const bool fits =
        (kind.target.empty() || target == kind.target) && (kind.codegen_id.empty() || codegen_id == kind.codegen_id);
    if (!fits) continue;
    if (most != nullptr && std::pair(ids.size(), slots) < std::pair(most->size(), most_slots)) continue;
    most = &ids;
    most_slots = slots;
  }
  if (most == nullptr) return {};
  return {sessions_.at(*most->begin()).info, static_cast<int>(most_slots)};
}

bool Dispatcher::HasQueued(const DeviceKind& kind) const {
  const auto queue = queues_.find(kind.key);
  return queue != queues_.end() && queue->second.pieces_for().contains({kind.target, kind.codegen_id});
}

std::vector<DeviceKind> Dispatcher::QueuedKinds(const std::string& key) const {
  std::vector<DeviceKind> kinds;
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) return kinds;
  for (const auto& [kind, pieces] : queue->second.pieces_for()) kinds.push_back({key, kind.first, kind.second});
  return kinds;
}

std::optional<DeviceKind> Dispatcher::Awaits(const std::string& id) const {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.lost || !WhyNothing(found->second).empty()) return std::nullopt;
  const WorkerInfo& info = found->second.info;
  return DeviceKind{info.device_key, info.target, info.codegen_id};
}

std::optional<WorkerInfo> Dispatcher::FindWorker(const DeviceKind& kind) const { return ServingOf(kind).worker; }

int Dispatcher::Slots(const DeviceKind& kind) const { return ServingOf(kind).slots; }

std::string Dispatcher::WhyNoWorker(const DeviceKind& kind) const {
  std::string why = absl::StrCat("no worker serves device key '", kind.key, "'");
  for (const std::string& id : index_.OfKey(kind.key)) {
    const Session& session = sessions_.at(id);
    if (session.lost) {
      absl::StrAppend(&why, "; the last one is lost (", session.reason, ")");
    } else if (!WhyNothing(session).empty()) {
      absl::StrAppend(&why, ": the one there is ", session.held_back.empty() ? "drained" : "pending", " (",
                      WhyNothing(session), ")");
    } else if (session.info.codegen_id != kind.codegen_id) {
      absl::StrAppend(&why, " with codegen id '", kind.codegen_id, "', which the job began on: the one there has '",
                      session.info.codegen_id, "'");
    } else {
      absl::StrAppend(&why, " for the target that the job began on: the one there has '", session.info.target, "'");
    }
    break;
  }
  return why;
}

std::vector<WorkItem> Dispatcher::Unsettled(int64_t job) const {
  std::vector<WorkItem> items;
  const auto of_job = items_of_job_.find(job);
  if (of_job == items_of_job_.end()) return items;
  for (const int64_t id : of_job->second) {
    const Item& item = items_.at(id);
    if (item.settled) continue;
    items.push_back(item.spec);
    items.back().workload = item.work->workload;
  }
  return items;
}

absl::Duration Dispatcher::GrantedAt(const std::vector<int64_t>& ids) const {
  absl::Duration first = absl::InfiniteDuration();
  for (const int64_t id : ids) {
    const auto item = items_.find(id);
    if (item == items_.end()) continue;
    for (const Attempt& attempt : item->second.attempts) first = std::min(first, attempt.granted);
  }
  return first;
}

const Work* Dispatcher::AnyQueuedFor(const std::string& key) const {
  const auto queue = queues_.find(key);
  return queue == queues_.end() ? nullptr : queue->second.Find([](const Piece&) { return true; })->work.get();
}

const char* Dispatcher::StateOf(const Session& session) const {
  if (session.lost) return "lost";
  if (!WhyNothing(session).empty()) return session.held_back.empty() ? "drained" : "pending";
  if (!session.leases.empty()) return "measuring";
  const Work* queued = AnyQueuedFor(session.info.device_key);
  if (queued == nullptr) return "idle";
  if (queued->codegen_id != session.info.codegen_id) return "version_mismatch";
  return queued->target != session.info.target ? "target_mismatch" : "idle";
}

std::map<std::string, int64_t> Dispatcher::SessionsByState() const {
  std::map<std::string_view, int64_t> counts;
  for (const auto& [id, session] : sessions_) ++counts[StateOf(session)];
  return {counts.begin(), counts.end()};
}

Dispatcher::SessionView Dispatcher::ViewOf(const Session& session) const {
  SessionView view{session.info, StateOf(session), session.reason, session.trials, session.failures, session.last_seen};
  view.drift = session.canary.latest();
  view.canary = session.canary.readings();
  if (!session.leases.empty()) {
    const Lease& lease = leases_.at(*session.leases.begin());
    view.job = lease.work->job;
    view.lease_since = lease.granted;
  }
  if (!session.lost && !WhyNothing(session).empty()) view.reason = WhyNothing(session);
  if (view.state == "version_mismatch")
    view.reason = absl::StrCat("a job needs codegen id '", AnyQueuedFor(session.info.device_key)->codegen_id, "'");
  if (view.state == "target_mismatch")
    view.reason = absl::StrCat("a job needs target '", AnyQueuedFor(session.info.device_key)->target, "'");
  return view;
}

Dispatcher::SessionList Dispatcher::Sessions(size_t offset, size_t most) const {
  SessionList list{.total = sessions_.size()};
  for (const std::string& id : index_.InOrder(offset, most)) list.views.push_back(ViewOf(sessions_.at(id)));
  return list;
}

Dispatcher::SessionPage Dispatcher::SessionsAfter(const std::string& after, size_t most) const {
  std::map<std::string_view, int> alike;
  std::vector<std::pair<std::string, const Session*>> later;
  for (const auto& [id, session] : sessions_) {
    std::string place = absl::StrCat(session.place, ".", absl::Dec(++alike[session.place], absl::kZeroPad8));
    if (place > after) later.emplace_back(std::move(place), &session);
  }
  const bool more = later.size() > most;
  const auto end = more ? later.begin() + static_cast<int64_t>(most) : later.end();
  std::ranges::partial_sort(later, end, {}, [](const auto& entry) -> const std::string& { return entry.first; });
  SessionPage page;
  for (auto entry = later.begin(); entry != end; ++entry) page.views.push_back(ViewOf(*entry->second));
  if (more && most > 0) page.next = std::prev(end)->first;
  return page;
}

const WorkerInfo* Dispatcher::FindSession(const std::string& session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() || found->second.lost ? nullptr : &found->second.info;
}

const WorkerInfo* Dispatcher::FindInstance(const std::string& instance) const {
  for (const std::string& id : index_.OfInstance(instance)) {
    if (const WorkerInfo* live = FindSession(id); live != nullptr) return live;
  }
  return nullptr;
}

Dispatcher::Census Dispatcher::TakeCensus() const {
  Census census;
  for (const auto& [key, queue] : queues_) {
    queue.Visit([&](const Piece& piece) {
      census.queued.insert(census.queued.end(), piece.items.begin(), piece.items.end());
      const auto first = items_.find(piece.items.front());
      if (first == items_.end() || !first->second.attempts.empty()) return;
      census.waiting.push_back(ShareOf(*piece.work, 0, piece.items.size()));
    });
  }
  for (const auto& [id, lease] : leases_) {
    census.leases.push_back(ShareOf(*lease.work, id, lease.work->items.size()));
    if (!lease.cancelled) census.leased.insert(census.leased.end(), lease.open.begin(), lease.open.end());
  }
  for (const GivenUp& given_up : given_up_) census.given_up.push_back(given_up.item.id);
  for (const auto& [id, session] : sessions_) {
    if (!session.lost) census.holders.push_back({session.info.slots, static_cast<int>(session.leases.size())});
  }
  return census;
}

bool Dispatcher::Live(const std::string& session) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && !found->second.lost;
}

std::map<std::string, int64_t> Dispatcher::WaitingItems() const {
  std::map<std::string, int64_t> waiting;
  for (const auto& [key, queue] : queues_) waiting[key] = queue.items();
  return waiting;
}

std::map<std::string, int64_t> Dispatcher::LeasedItems() const {
  std::map<std::string, int64_t> leased;
  for (const auto& [id, lease] : leases_) leased[lease.work->device_key] += static_cast<int64_t>(lease.open.size());
  return leased;
}

Dispatcher::Sizes Dispatcher::sizes() const {
  size_t queued = 0;
  for (const auto& [key, queue] : queues_) queued += static_cast<size_t>(queue.items());
  return {sessions_.size(), leases_.size(),       items_.size(),         queued, remembered_.size(), finished_.size(),
          over_.size(),     items_of_job_.size(), model_of_lease_.size()};
}

}  // namespace temper
