#include "tuner_server/dispatch/dispatcher.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"

namespace temper {
namespace {

// A batch's slowest build and runs, were all of its candidates to use up their caps, is no measure of what it takes;
// but nothing honest takes longer.
constexpr absl::Duration kLongestModel = absl::Minutes(20);  // building and running it, by the sandbox's caps

// A result as it is compared with a later one of the same attempt: the lease is part of the key, not of the payload.
bool SamePayload(const ItemResult& a, const ItemResult& b) { return a.trial == b.trial && a.model == b.model; }

}  // namespace

Dispatcher::Dispatcher(const DispatchOptions& options)
    : options_(options), next_id_(options.first_id), suspects_(options.suspects) {}

// --- workers ---

std::string Dispatcher::NewSession() {
  return absl::StrCat(absl::Hex(options_.random(), absl::kZeroPad16), absl::Hex(options_.random(), absl::kZeroPad16));
}

int64_t Dispatcher::NewLease() {
  int64_t lease = 0;
  while (lease == 0 || leases_.contains(lease)) lease = static_cast<int64_t>(options_.random() >> 1);
  return lease;
}

void Dispatcher::Changed(const Session& session) {
  stirred_.sessions.insert(session.id);
  stirred_.keys.insert(session.info.device_key);  // what another one must not have may be for any now
  Index(session);
}

void Dispatcher::Index(const Session& session) {
  const bool may_serve = !session.lost && WhyNothing(session).empty();
  index_.Put(session.id, session.info, {session.lost, may_serve, session.last_seen});
}

void Dispatcher::Erase(const std::string& id) {
  sharing_.erase(id);
  index_.Remove(id);
  sessions_.erase(id);
}

absl::Status Dispatcher::MakeRoomFor(const WorkerInfo& info) {
  const WorkerInfo* known = FindInstance(info.instance);
  if (known != nullptr && known->device_key == info.device_key) return absl::OkStatus();  // it takes its own place
  const size_t of_holder = info.holder.empty() ? 0 : index_.CountOf(info.holder);
  const bool holder_is_full = of_holder >= options_.most_sessions_of_holder;
  if (!holder_is_full && sessions_.size() < options_.most_sessions) return absl::OkStatus();
  const std::string* gone = holder_is_full ? index_.LongestLostOf(info.holder) : index_.LongestLost();
  if (gone == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "there are ", holder_is_full ? of_holder : sessions_.size(), " workers",
        holder_is_full ? " with this certificate or token" : "", " already; one that is not heard of makes room"));
  }
  Erase(std::string(*gone));
  return absl::OkStatus();
}

// Sessions of the same life of a worker, and those of the same machine that were lost: it is one device, not two.
std::vector<std::string> Dispatcher::TakenOver(const WorkerInfo& info) const {
  std::vector<std::string> old;
  for (const std::string& id : index_.OfInstance(info.instance)) {
    if (sessions_.at(id).info.device_key == info.device_key) old.push_back(id);
  }
  if (info.name.empty()) return old;
  for (const std::string& id : index_.LostNamed(info.device_key, info.name)) {
    if (info.instance.empty() || sessions_.at(id).info.instance != info.instance) old.push_back(id);
  }
  return old;
}

std::string Dispatcher::Register(const WorkerInfo& info, absl::Duration now) {
  const std::string id = NewSession();
  Session fresh;
  for (const std::string& old_id : TakenOver(info)) {
    Session& old = sessions_.at(old_id);
    Changed(old);
    if (old.info.instance == info.instance && !old.lost) {
      fresh = std::move(old);
      for (const int64_t lease : fresh.leases) leases_.at(lease).session = id;
    }
    Erase(old_id);
  }
  for (auto [lease, end] = unclaimed_.equal_range(info.instance); lease != end;) {
    Lease& unclaimed = leases_.at(lease->second);
    const bool his = unclaimed.work->device_key == info.device_key;
    if (his) {
      unclaimed.session = id;
      fresh.leases.insert(lease->second);
    }
    lease = his ? unclaimed_.erase(lease) : std::next(lease);
  }
  fresh.id = id;
  fresh.place = HashText(StableHash(absl::StrCat(info.device_key, "\n", info.name, "\n", info.fingerprint)));
  fresh.info = info;
  if (info.name.empty()) fresh.info.name = id.substr(0, 8);
  fresh.last_seen = now;
  fresh.deadline = now + options_.session_timeout;
  fresh.sentence = suspects_.Sentence(info, now);
  Index(fresh);  // nobody else may have more by its coming, and it waits for nothing yet
  if (info.shares_server_cores) sharing_.insert(id);
  sessions_[id] = std::move(fresh);
  return id;
}

void Dispatcher::Restore(int64_t lease_id, const Work& work, const WorkerInfo& worker, absl::Duration now) {
  const auto shared = std::make_shared<const Work>(work);
  Lease lease{.instance = worker.instance, .work = shared, .granted = now, .deadline = now + options_.lease};
  lease.last_day = now + LongestWork(work) + options_.lease_reserve;
  for (const WorkItem& spec : work.items) {
    Item item{.work = shared, .spec = spec, .earlier = std::max(1, spec.attempt) - 1};
    item.attempts.push_back({.lease = lease_id, .worker = worker, .granted = now});
    lease.open.insert(spec.id);
    items_of_job_[work.job].insert(spec.id);
    items_[spec.id] = std::move(item);
    next_id_ = std::max(next_id_, spec.id + 1);
  }
  if (!worker.instance.empty()) unclaimed_.emplace(worker.instance, lease_id);
  leases_[lease_id] = std::move(lease);
}

void Dispatcher::TakeBack(int64_t lease, absl::Duration now) {
  if (leases_.contains(lease)) Requeue(lease, "the grant could not be stored", Loss::kLeft, now);
}

void Dispatcher::Leave(const std::string& id, const std::string& reason, absl::Duration now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.lost) return;
  found->second.last_seen = now;
  Lose(found->second, absl::StrCat("it left: ", reason), Loss::kLeft, now);
}

Dispatcher::SyncOutcome Dispatcher::Sync(const std::string& id, const std::vector<int64_t>& held, int free_slots,
                                         absl::Duration now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.lost) return SyncOutcome{.unknown_session = true};
  Session& session = found->second;
  session.last_seen = now;
  session.deadline = now + options_.session_timeout;
  const std::set<int64_t> restated(held.begin(), held.end());
  std::vector<int64_t> dropped;
  for (const int64_t lease_id : session.leases) {
    Lease& lease = leases_.at(lease_id);
    if (restated.contains(lease_id)) {
      lease.deadline = std::min(now + options_.lease, lease.last_day);
    } else if (lease.cancelled) {
      dropped.push_back(lease_id);
    } else {
      lease.deadline = std::min(lease.deadline, now + options_.broken_grace);
    }
  }
  for (const int64_t lease_id : dropped) CloseLease(lease_id);
  return Poll(id, held, free_slots, now);
}

Dispatcher::SyncOutcome Dispatcher::Poll(const std::string& id, const std::vector<int64_t>& held, int free_slots,
                                         absl::Duration now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.lost) return SyncOutcome{.unknown_session = true};
  SyncOutcome out{.draining = WhyNothing(found->second)};
  CollectCancels(id, held, out);
  GrantTo(id, found->second, free_slots, now, out);
  return out;
}

void Dispatcher::ConnectionBroke(const std::string& id, absl::Duration now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.lost) return;
  found->second.deadline = std::min(found->second.deadline, now + options_.broken_grace);
}

const std::string& Dispatcher::WhyNothing(const Session& session) {
  if (!session.held_back.empty()) return session.held_back;
  return session.drained.empty() ? session.sentence : session.drained;
}

int Dispatcher::Drain(const std::string& key, const std::string& name, const std::string& reason) {
  int count = 0;
  for (auto& [id, session] : sessions_) {
    if (session.lost || (session.info.device_key != key && session.info.name != name)) continue;
    session.drained = reason.empty() ? "drained by request" : absl::StrCat("drained by request: ", reason);
    Changed(session);
    ++count;
  }
  return count;
}

int Dispatcher::Undrain(const std::string& key, const std::string& name) {
  int count = 0;
  for (auto& [id, session] : sessions_) {
    if (session.info.device_key != key && session.info.name != name) continue;
    suspects_.Forgive(session.info);
    if (session.lost || (session.drained.empty() && session.sentence.empty())) continue;
    session.drained.clear();
    session.sentence.clear();
    Changed(session);
    ++count;
  }
  return count;
}

void Dispatcher::HoldBack(const std::string& id, const std::string& reason) {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return;
  session->second.held_back = reason;
  Changed(session->second);
}

void Dispatcher::HoldBackKey(const std::string& key, const std::string& reason) {
  for (const std::string& id : SessionIndex::Ids(index_.OfKey(key))) HoldBack(id, reason);
}

std::set<std::string> Dispatcher::HeldBack(const std::string& key) const {
  std::set<std::string> fingerprints;
  for (const std::string& id : index_.OfKey(key)) {
    const Session& session = sessions_.at(id);
    if (!session.held_back.empty()) fingerprints.insert(session.info.fingerprint);
  }
  return fingerprints;
}

int Dispatcher::Admit(const std::string& key, const std::string& fingerprint) {
  int count = 0;
  for (const std::string& id : SessionIndex::Ids(index_.OfKey(key))) {
    Session& session = sessions_.at(id);
    if (session.held_back.empty() || session.info.fingerprint != fingerprint) continue;
    session.held_back.clear();
    Changed(session);
    ++count;
  }
  return count;
}

// --- grants ---

bool Dispatcher::AnotherFits(const Session& session, const Item& item) const {
  const SessionIndex::Kinds& kinds = index_.Serving(item.work->device_key);
  const auto alike = kinds.find({item.work->codegen_id, item.work->target});
  if (alike == kinds.end()) return false;
  return std::ranges::any_of(alike->second.ids, [&](const std::string& id) {
    return sessions_.at(id).info.instance != session.info.instance &&
           std::ranges::none_of(item.attempts, [&](const Attempt& a) { return a.session == id; });
  });
}

bool Dispatcher::Fits(const Session& session, const Piece& piece, absl::Duration now) const {
  if (session.info.target != piece.work->target || session.info.codegen_id != piece.work->codegen_id) return false;
  const auto item = items_.find(piece.items.front());
  if (item == items_.end() || item->second.attempts.empty() || now - piece.since >= options_.elsewhere) return true;
  const bool failed_here = std::ranges::any_of(item->second.attempts, [&](const Attempt& a) {
    return !a.handed_back && a.worker.instance == session.info.instance;
  });
  return !failed_here || !AnotherFits(session, item->second);
}

void Dispatcher::CollectCancels(const std::string& id, const std::vector<int64_t>& held, SyncOutcome& out) const {
  for (const int64_t lease_id : held) {
    if (finished_.contains(lease_id)) continue;
    const auto lease = leases_.find(lease_id);
    const bool wanted = lease != leases_.end() && lease->second.session == id && !lease->second.cancelled;
    if (!wanted) out.cancels.push_back(lease_id);
  }
}

// Candidates one after another, those before this lease that the worker still holds included.
absl::Duration Dispatcher::LongestWork(const Work& work) const {
  if (work.kind != WorkKind::kBatch) return kLongestModel;
  const absl::Duration each = absl::Milliseconds(work.plan.build_timeout_ms + 2 * work.plan.run_timeout_ms);
  return each * static_cast<int64_t>(work.items.size());
}

std::optional<Dispatcher::Grant> Dispatcher::MakeGrant(const std::string& id, Session& session, const Piece& piece,
                                                       absl::Duration now) {
  auto granted = std::make_shared<Work>(*piece.work);
  granted->items.clear();
  Lease lease{.session = id, .instance = session.info.instance, .granted = now, .deadline = now + options_.lease};
  const int64_t lease_id = NewLease();
  for (const int64_t item_id : piece.items) {
    const auto known = items_.find(item_id);
    if (known == items_.end()) continue;
    Item& item = known->second;
    item.queued = false;
    if (item.settled) continue;  // a late result came while it waited
    item.attempts.push_back({.lease = lease_id, .worker = session.info, .session = id, .granted = now});
    granted->items.push_back(item.spec);
    granted->items.back().attempt = item.Tried();
    lease.open.insert(item_id);
    if (granted->kind == WorkKind::kModel) model_of_lease_[lease_id] = item_id;
  }
  if (granted->items.empty()) return std::nullopt;
  absl::Duration before;
  for (const int64_t held : session.leases) before += LongestWork(*leases_.at(held).work);
  lease.last_day = now + before + LongestWork(*granted) + options_.lease_reserve;
  lease.work = granted;
  leases_[lease_id] = std::move(lease);
  session.leases.insert(lease_id);
  return Grant{lease_id, granted};
}

void Dispatcher::GrantTo(const std::string& id, Session& session, int free_slots, absl::Duration now,
                         SyncOutcome& out) {
  if (!WhyNothing(session).empty() || (hold_shared_cores_ && session.info.shares_server_cores)) return;
  const auto queue = queues_.find(session.info.device_key);
  if (queue == queues_.end() || !HasQueued({session.info.device_key, session.info.target, session.info.codegen_id}))
    return;
  // What it said at Register counts, whatever it says now.
  const int slots = std::clamp(session.info.slots, 1, kMostSlots);
  free_slots = std::min(free_slots, slots - static_cast<int>(session.leases.size()));
  const auto fits = [&](const Piece& piece) { return Fits(session, piece, now); };
  while (free_slots > 0) {
    const std::optional<Piece> piece = queue->second.Take(fits);
    if (!piece) break;
    std::optional<Grant> grant = MakeGrant(id, session, *piece, now);
    if (!grant) continue;
    out.grants.push_back(*std::move(grant));
    --free_slots;
  }
  if (queue->second.empty()) queues_.erase(queue);
}

// --- leases that end without a result ---

void Dispatcher::CloseLease(int64_t lease_id) {
  const auto lease = leases_.find(lease_id);
  if (lease == leases_.end()) return;
  const auto session = sessions_.find(lease->second.session);
  if (session != sessions_.end()) {
    session->second.leases.erase(lease_id);
    stirred_.sessions.insert(session->first);
  }
  for (auto [entry, end] = unclaimed_.equal_range(lease->second.instance); entry != end;)
    entry = entry->second == lease_id ? unclaimed_.erase(entry) : std::next(entry);
  leases_.erase(lease);
  closed_.push_back(lease_id);
}

void Dispatcher::Requeue(int64_t lease_id, const std::string& why, Loss loss, absl::Duration now) {
  const Lease lease = leases_.at(lease_id);
  CloseLease(lease_id);
  if (lease.cancelled) return;
  for (const int64_t item_id : lease.open) {
    for (Attempt& attempt : items_.at(item_id).attempts) {
      if (attempt.lease == lease_id && loss == Loss::kLeft) attempt.handed_back = true;
    }
  }
  // Finalists are compared with one another: they go on together, or not at all.
  if (lease.work->kind == WorkKind::kFinals && lease.open.size() < lease.work->items.size()) {
    for (const int64_t item_id : lease.open) GiveUp(items_.at(item_id), why);
  } else if (lease.work->kind == WorkKind::kFinals) {
    std::vector<int64_t> together;  // in their order
    for (const WorkItem& item : lease.work->items) together.push_back(item.id);
    RequeueItems(std::move(together), why, now);
  } else {
    // One by one, so that what killed its worker does not take its neighbours along again.
    for (const int64_t item_id : lease.open) RequeueItems({item_id}, why, now);
  }
}

bool Dispatcher::AttemptsLeft(const Item& item) const {
  const auto counted = std::ranges::count_if(item.attempts, [](const Attempt& a) { return !a.handed_back; });
  return item.earlier + counted < options_.max_attempts;
}

void Dispatcher::RequeueItems(std::vector<int64_t> ids, const std::string& why, absl::Duration now) {
  std::erase_if(ids, [&](int64_t id) {
    const Item& item = items_.at(id);
    return item.settled || item.queued || Held(item) || over_.contains(item.work->job);
  });
  if (ids.empty()) return;
  const Item& first = items_.at(ids.front());
  if (!AttemptsLeft(first)) {
    for (const int64_t id : ids) GiveUp(items_.at(id), why);
    return;
  }
  for (const int64_t id : ids) items_.at(id).queued = true;
  Enqueue({first.work, ids, now}, true);
}

// At the priority that its job has now, which is not always what it was when the work was made.
void Dispatcher::Enqueue(const Piece& piece, bool again) {
  WorkQueue& queue = queues_[piece.work->device_key];
  queue.Add(piece, again);
  const auto priority = priorities_.find(piece.work->job);
  if (priority != priorities_.end()) queue.SetPriority(piece.work->job, priority->second);
  stirred_.keys.insert(piece.work->device_key);
}

// An item whose workers never said a word about it may be what took them along.
void Dispatcher::GiveUp(Item& item, const std::string& why) {
  if (item.settled || Held(item)) return;
  item.settled = true;
  ++failures_.given_up_items;
  const int attempts = item.Tried();
  const bool silent = std::ranges::none_of(item.attempts, [](const Attempt& a) { return a.result.has_value(); });
  const bool poison = silent && item.work->kind == WorkKind::kBatch;
  given_up_.push_back({item.work, item.spec, item.attempts.back().worker,
                       poison ? Outcome::kQuarantined : Outcome::kInfrastructure,
                       absl::StrCat("gave up after ", attempts, attempts == 1 ? " attempt: " : " attempts: ", why)});
  given_up_.back().item.attempt = attempts;
}

void Dispatcher::Lose(Session& session, const std::string& why, Loss loss, absl::Duration now) {
  session.lost = true;
  session.reason = why;
  Changed(session);
  if (loss == Loss::kExpired) ++failures_.lost_workers;
  LogInfo({.worker = session.info.name, .key = session.info.device_key}, "the worker is lost: {}", why);
  const std::set<int64_t> leases = session.leases;
  for (const int64_t lease_id : leases)
    Requeue(lease_id, absl::StrCat("worker ", session.info.name, " lost: ", why), loss, now);
  if (loss == Loss::kExpired && !leases.empty()) Punish(session, suspects_.OnLoss(session.info, why, now), now);
}

void Dispatcher::Punish(Session& session, const std::string& why, absl::Duration now) {
  if (why.empty()) return;
  session.sentence = why;
  Changed(session);
  ++failures_.drained_workers;
  LogWarn({.worker = session.info.name, .key = session.info.device_key}, "the worker is drained: it {}", why);
  const std::set<int64_t> leases = session.leases;
  for (const int64_t lease_id : leases) Requeue(lease_id, why, Loss::kLeft, now);
}

// --- results ---

const Dispatcher::Item* Dispatcher::FindItem(const ItemResult& result, size_t* place) const {
  int64_t item_id = result.item;
  if (item_id == 0) {
    const auto model = model_of_lease_.find(result.lease);
    if (model == model_of_lease_.end()) return nullptr;
    item_id = model->second;
  }
  const auto found = items_.find(item_id);
  if (found == items_.end()) return nullptr;
  const Item& item = found->second;
  for (size_t i = 0; i < item.attempts.size(); ++i) {
    const bool named = result.item == 0 || result.attempt == item.earlier + static_cast<int>(i) + 1;
    if (item.attempts[i].lease != result.lease || !named) continue;
    *place = i;
    return &item;
  }
  return nullptr;
}

Dispatcher::Attempt* Dispatcher::FindAttempt(const ItemResult& result) {
  size_t place = 0;
  const Item* item = FindItem(result, &place);
  return item == nullptr ? nullptr : &items_.at(item->spec.id).attempts[place];
}

bool Dispatcher::Held(const Item& item) {
  return std::ranges::any_of(item.attempts, [](const Attempt& a) { return a.held; });
}

void Dispatcher::Hold(const ItemResult& result) {
  if (Attempt* attempt = FindAttempt(result)) attempt->held = true;
}

void Dispatcher::Drop(const ItemResult& result, absl::Duration now) {
  Attempt* attempt = FindAttempt(result);
  if (attempt == nullptr) return;
  attempt->held = false;
  size_t place = 0;
  const Item& item = *FindItem(result, &place);
  // Its lease ended meanwhile, and nobody would send the result again.
  if (leases_.contains(item.attempts.back().lease)) return;
  if (item.work->kind == WorkKind::kFinals) {
    GiveUp(items_.at(item.spec.id), "its result could not be stored");
  } else {
    RequeueItems({item.spec.id}, "its result could not be stored", now);
  }
}

Dispatcher::Verdict Dispatcher::Judge(const ItemResult& result) const {
  Verdict verdict;
  size_t place = 0;
  const Item* item = FindItem(result, &place);
  if (item == nullptr) return verdict;
  const Attempt& attempt = item->attempts[place];
  verdict.work = item->work;
  verdict.item = item->spec;
  verdict.item.attempt = item->earlier + static_cast<int>(place) + 1;
  verdict.worker = attempt.worker;
  const bool newest = verdict.item.attempt == item->Tried();
  // Some finalists by themselves would tell nothing.
  const bool again = result.outcome() == Outcome::kInfrastructure && item->work->kind != WorkKind::kFinals &&
                     (!newest || AttemptsLeft(*item));
  // A lease that an earlier version stored does not tell who has it.
  const bool his = attempt.worker.holder.empty() || attempt.worker.holder == result.holder;
  if (attempt.worker.instance != result.instance || !his) {
    verdict.judgement = Judgement::kConflict;
  } else if (attempt.result) {
    verdict.judgement = SamePayload(*attempt.result, result) ? Judgement::kDuplicate : Judgement::kConflict;
  } else if (item->settled || over_.contains(item->work->job)) {
    verdict.judgement = Judgement::kLate;
  } else {
    verdict.judgement = again ? Judgement::kRequeue : Judgement::kFirst;
  }
  return verdict;
}

void Dispatcher::CountResult(const Item& item, const Attempt& attempt, const ItemResult& result, absl::Duration now) {
  const auto found = sessions_.find(attempt.session);
  const bool failed = result.outcome() == Outcome::kInfrastructure;
  if (!failed) suspects_.OnSuccess(attempt.worker);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  ++(IsMeasured(result.outcome()) ? session.trials : session.failures);
  if (!result.model) session.canary.Note(result.trial.drift, now);
  if (!failed || !session.sentence.empty()) return;
  // Finalists fail together, for one reason, and so does a model.
  const std::string blamed =
      item.work->kind == WorkKind::kBatch ? item.work->workload : absl::StrCat("job ", item.work->job);
  Punish(session, suspects_.OnFailure(session.info, blamed, result.error(), now), now);
}

void Dispatcher::Commit(const ItemResult& result, absl::Duration now) {
  const Verdict verdict = Judge(result);
  if (verdict.judgement == Judgement::kUnknown || verdict.judgement == Judgement::kDuplicate ||
      verdict.judgement == Judgement::kConflict) {
    return;
  }
  const int64_t item_id = verdict.item.id;
  Item& item = items_.at(item_id);
  Attempt& attempt = *FindAttempt(result);
  attempt.result = result;
  attempt.held = false;
  if (const auto lease = leases_.find(result.lease); lease != leases_.end()) {
    lease->second.open.erase(item_id);
    lease->second.deadline = std::max(lease->second.deadline, now + options_.broken_grace);
    if (lease->second.open.empty()) {
      CloseLease(result.lease);
      finished_.insert(result.lease);
    }
  }
  const bool newest = verdict.item.attempt == item.Tried();
  if (verdict.judgement == Judgement::kFirst) item.settled = true;
  if (verdict.judgement == Judgement::kRequeue && newest) RequeueItems({item_id}, result.error(), now);
  CountResult(item, attempt, result, now);
  const bool complete = std::ranges::all_of(item.attempts, [](const Attempt& a) { return a.result.has_value(); });
  if (item.settled && complete) Remember(item_id);
}

void Dispatcher::Remember(int64_t item_id) {
  remembered_.push_back(item_id);
  if (remembered_.size() <= options_.remembered) return;
  Forget(remembered_.front());
  remembered_.pop_front();
}

void Dispatcher::Forget(int64_t item_id) {
  const auto item = items_.find(item_id);
  if (item == items_.end()) return;  // with its job
  for (const Attempt& attempt : item->second.attempts) {
    model_of_lease_.erase(attempt.lease);
    finished_.erase(attempt.lease);
  }
  if (const auto job = items_of_job_.find(item->second.work->job); job != items_of_job_.end()) {
    job->second.erase(item_id);
  }
  items_.erase(item);
}

// --- jobs ---

std::vector<int64_t> Dispatcher::Add(Work work, absl::Duration now) {
  std::vector<int64_t> ids;
  if (const auto priority = priorities_.find(work.job); priority != priorities_.end()) work.priority = priority->second;
  for (WorkItem& item : work.items) {
    item.id = next_id_++;
    ids.push_back(item.id);
  }
  auto shared = std::make_shared<const Work>(std::move(work));
  for (const WorkItem& item : shared->items) items_[item.id] = Item{.work = shared, .spec = item, .queued = true};
  items_of_job_[shared->job].insert(ids.begin(), ids.end());
  Enqueue({shared, ids, now}, false);
  return ids;
}

void Dispatcher::SetPriority(int64_t job, int priority) {
  priorities_[job] = priority;
  for (auto& [key, queue] : queues_) queue.SetPriority(job, priority);
}

void Dispatcher::Cancel(Lease& lease) {
  lease.cancelled = true;
  stirred_.sessions.insert(lease.session);
}

void Dispatcher::CancelJob(int64_t job) {
  over_.insert(job);
  priorities_.erase(job);
  for (auto& [key, queue] : queues_) queue.Drop(job, [](const Piece&) { return true; });
  std::erase_if(queues_, [](const auto& entry) { return entry.second.empty(); });
  if (const auto items = items_of_job_.find(job); items != items_of_job_.end()) {
    for (const int64_t id : items->second) items_.at(id).queued = false;
  }
  for (auto& [id, lease] : leases_) {
    if (lease.work->job == job) Cancel(lease);
  }
}

void Dispatcher::Withdraw(const std::vector<int64_t>& ids) {
  std::set<int64_t> jobs;
  for (const int64_t id : ids) {
    const auto item = items_.find(id);
    if (item == items_.end()) continue;
    item->second.settled = true;
    jobs.insert(item->second.work->job);
  }
  const auto settled = [&](int64_t id) {
    const auto item = items_.find(id);
    return item == items_.end() || item->second.settled;
  };
  for (const int64_t job : jobs) {
    for (auto& [key, queue] : queues_) {
      queue.Drop(job, [&](const Piece& piece) { return std::ranges::all_of(piece.items, settled); });
    }
  }
  std::erase_if(queues_, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [id, lease] : leases_) {
    if (std::ranges::all_of(lease.open, settled)) Cancel(lease);
  }
}

void Dispatcher::ForgetJob(int64_t job) {
  CancelJob(job);
  over_.erase(job);
  const auto items = items_of_job_.extract(job);
  if (items.empty()) return;
  for (const int64_t item_id : items.mapped()) {
    for (const Attempt& attempt : items_.at(item_id).attempts) CloseLease(attempt.lease);
    Forget(item_id);
  }
}

// --- time ---

bool Dispatcher::Tick(absl::Duration now) {
  bool changed = false;
  if (last_tick_ && now - *last_tick_ > options_.frozen_gap) {
    const absl::Duration gap = now - *last_tick_;
    for (auto& [id, lease] : leases_) {
      lease.deadline += gap;
      lease.last_day += gap;
    }
    for (auto& [id, session] : sessions_) session.deadline += gap;
  }
  last_tick_ = now;
  for (auto& [id, session] : sessions_) {
    if (session.lost) continue;
    if (!session.sentence.empty() && suspects_.Sentence(session.info, now).empty()) {
      session.sentence.clear();
      Changed(session);
      changed = true;
    }
    if (session.deadline > now) continue;
    Lose(session, "not heard of any more", Loss::kExpired, now);
    changed = true;
  }
  std::vector<int64_t> expired;
  for (const auto& [id, lease] : leases_) {
    if (lease.deadline <= now) expired.push_back(id);
  }
  for (const int64_t id : expired) {
    const auto lease = leases_.find(id);
    if (lease == leases_.end()) continue;
    const bool old = now >= lease->second.last_day;
    const std::string why = old ? "its lease became older than its work may take" : "the lease ran out";
    const bool cancelled = lease->second.cancelled;
    ++failures_.expired_leases;
    const auto session = sessions_.find(lease->second.session);
    LogInfo({.job = lease->second.work->job, .lease = id, .key = lease->second.work->device_key}, "{}", why);
    Requeue(id, why, Loss::kExpired, now);
    if (session != sessions_.end() && !cancelled)
      Punish(session->second, suspects_.OnLoss(session->second.info, why, now), now);
  }
  for (const std::string* lost = index_.LongestLost();
       lost != nullptr && now - sessions_.at(*lost).last_seen > options_.keep_lost; lost = index_.LongestLost())
    Erase(std::string(*lost));
  suspects_.Forget(now);
  return changed || !expired.empty();
}

std::vector<Dispatcher::GivenUp> Dispatcher::TakeGivenUp() { return std::exchange(given_up_, {}); }

// --- search beside measurement ---

void Dispatcher::HoldSharedCores(bool hold) {
  if (hold_shared_cores_ && !hold) stirred_.sessions.insert(sharing_.begin(), sharing_.end());
  hold_shared_cores_ = hold;
}

bool Dispatcher::SharedCoresBusy() const {
  return std::ranges::any_of(sharing_, [&](const std::string& id) {
    const Session& session = sessions_.at(id);
    return !session.lost && !session.leases.empty();
  });
}

}  // namespace temper
