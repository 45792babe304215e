#include "tuner_server/dispatch/dispatcher.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

// A result as it is compared with a later one of the same attempt: the lease is part of the key, not of the payload.
bool SamePayload(const ItemResult& a, const ItemResult& b) {
  return a.outcome == b.outcome && a.error == b.error && a.costs_s == b.costs_s && a.untuned_s == b.untuned_s;
}

bool Counts(const std::string& outcome) { return outcome == "ok" || outcome == "raced_out"; }

}  // namespace

Dispatcher::Dispatcher(const DispatchOptions& options) : options_(options), next_id_(options.first_id) {}

// --- workers ---

std::string Dispatcher::Register(const WorkerInfo& info, absl::Duration now) {
  for (auto& [id, session] : sessions_) {
    const bool same =
        !info.name.empty() && session.info.name == info.name && session.info.device_key == info.device_key;
    if (same && !session.lost) Lose(session, "registered again");
  }
  // The same worker that was lost before is one device, not two.
  std::erase_if(sessions_, [&](const auto& entry) {
    return entry.second.lost && !info.name.empty() && entry.second.info.name == info.name &&
           entry.second.info.device_key == info.device_key;
  });
  const std::string id = absl::StrCat("s", next_id_++);
  Session& session = sessions_[id];
  session.info = info;
  if (info.name.empty()) session.info.name = id;
  session.last_seen = now;
  session.deadline = now + options_.session_timeout;
  return id;
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
      lease.deadline = now + options_.lease;
    } else if (lease.cancelled) {
      dropped.push_back(lease_id);
    } else {
      lease.deadline = std::min(lease.deadline, now + options_.broken_grace);
    }
  }
  for (const int64_t lease_id : dropped) CloseLease(lease_id);
  SyncOutcome out;
  CollectCancels(id, held, out);
  GrantTo(id, session, free_slots, now, out);
  return out;
}

Dispatcher::SyncOutcome Dispatcher::Poll(const std::string& id, const std::vector<int64_t>& held, int free_slots,
                                         absl::Duration now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.lost) return SyncOutcome{.unknown_session = true};
  SyncOutcome out;
  CollectCancels(id, held, out);
  GrantTo(id, found->second, free_slots, now, out);
  return out;
}

void Dispatcher::ConnectionBroke(const std::string& id, absl::Duration now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.lost) return;
  found->second.deadline = std::min(found->second.deadline, now + options_.broken_grace);
}

bool Dispatcher::Fits(const Session& session, const Work& work) const {
  return session.info.target == work.target && session.info.codegen_id == work.codegen_id;
}

void Dispatcher::CollectCancels(const std::string& id, const std::vector<int64_t>& held, SyncOutcome& out) const {
  for (const int64_t lease_id : held) {
    const auto lease = leases_.find(lease_id);
    if (finished_.contains(lease_id)) continue;
    const bool wanted = lease != leases_.end() && lease->second.session == id && !lease->second.cancelled;
    if (!wanted) out.cancels.push_back(lease_id);
  }
}

void Dispatcher::GrantTo(const std::string& id, Session& session, int free_slots, absl::Duration now,
                         SyncOutcome& out) {
  if (session.drained || (hold_shared_cores_ && session.info.shares_server_cores)) return;
  const auto queue = queues_.find(session.info.device_key);
  if (queue == queues_.end()) return;
  for (auto next = queue->second.begin(); next != queue->second.end() && free_slots > 0;) {
    if (!Fits(session, *next->work)) {
      ++next;
      continue;
    }
    auto granted = std::make_shared<Work>(*next->work);
    granted->items.clear();
    Grant grant;
    grant.lease = next_id_++;
    Lease& lease = leases_[grant.lease];
    lease.session = id;
    lease.deadline = now + options_.lease;
    for (const int64_t item_id : next->items) {
      const auto known = items_.find(item_id);
      if (known == items_.end() || known->second.settled) continue;  // a late result came while it waited
      Item& item = known->second;
      item.attempts.push_back(Attempt{.lease = grant.lease, .worker = session.info, .session = id});
      grant.attempts.push_back(static_cast<int>(item.attempts.size()));
      granted->items.push_back(item.spec);
      lease.open.insert(item_id);
      if (granted->kind == WorkKind::kModel) model_of_lease_[grant.lease] = item_id;
    }
    next = queue->second.erase(next);
    if (granted->items.empty()) {
      leases_.erase(grant.lease);
      continue;
    }
    grant.work = granted;
    lease.work = granted;
    session.leases.insert(grant.lease);
    out.grants.push_back(std::move(grant));
    --free_slots;
  }
  if (queue->second.empty()) queues_.erase(queue);
}

void Dispatcher::CloseLease(int64_t lease_id) {
  const auto lease = leases_.find(lease_id);
  if (lease == leases_.end()) return;
  const auto session = sessions_.find(lease->second.session);
  if (session != sessions_.end()) session->second.leases.erase(lease_id);
  leases_.erase(lease);
}

void Dispatcher::Requeue(int64_t lease_id, const std::string& why) {
  const Lease lease = leases_.at(lease_id);
  CloseLease(lease_id);
  if (lease.cancelled) return;
  for (const int64_t item_id : lease.open) RequeueItem(item_id, why);
}

// Finalists are compared with one another: some of them by themselves would tell nothing.
int Dispatcher::MostAttempts(const Work& work) const {
  return work.kind == WorkKind::kFinals ? 1 : options_.max_attempts;
}

// One by one, so that what killed its worker does not take its neighbours along again.
void Dispatcher::RequeueItem(int64_t item_id, const std::string& why) {
  Item& item = items_.at(item_id);
  if (item.settled || over_.contains(item.work->job)) return;
  const int attempts = static_cast<int>(item.attempts.size());
  if (attempts >= MostAttempts(*item.work)) {
    item.settled = true;
    given_up_.push_back({item.work, item.spec, attempts, item.attempts.back().worker,
                         absl::StrCat("gave up after ", attempts, " attempts: ", why)});
    return;
  }
  queues_[item.work->device_key].push_front({item.work, {item_id}});
}

void Dispatcher::Lose(Session& session, const std::string& why) {
  session.lost = true;
  session.reason = why;
  const std::set<int64_t> leases = session.leases;
  for (const int64_t lease_id : leases) Requeue(lease_id, absl::StrCat("worker ", session.info.name, " lost: ", why));
}

// --- results ---

const Dispatcher::Item* Dispatcher::FindItem(const ItemResult& result, int* attempt) const {
  int64_t item_id = result.item;
  if (item_id == 0) {
    const auto model = model_of_lease_.find(result.lease);
    if (model == model_of_lease_.end()) return nullptr;
    item_id = model->second;
  }
  const auto found = items_.find(item_id);
  if (found == items_.end()) return nullptr;
  const std::vector<Attempt>& attempts = found->second.attempts;
  for (size_t i = 0; i < attempts.size(); ++i) {
    const bool named = result.item == 0 || result.attempt == static_cast<int>(i) + 1;
    if (attempts[i].lease == result.lease && named) {
      *attempt = static_cast<int>(i) + 1;
      return &found->second;
    }
  }
  return nullptr;
}

Dispatcher::Verdict Dispatcher::Judge(const ItemResult& result) const {
  Verdict verdict;
  const Item* item = FindItem(result, &verdict.attempt);
  if (item == nullptr) return verdict;
  const Attempt& attempt = item->attempts[verdict.attempt - 1];
  verdict.work = item->work;
  verdict.item = item->spec;
  verdict.worker = attempt.worker;
  const bool infrastructure = result.outcome == "infrastructure";
  const bool attempts_left = static_cast<int>(item->attempts.size()) < MostAttempts(*item->work);
  if (attempt.result) {
    verdict.judgement = SamePayload(*attempt.result, result) ? Judgement::kDuplicate : Judgement::kConflict;
  } else if (item->settled || over_.contains(item->work->job)) {
    verdict.judgement = Judgement::kLate;
  } else if (infrastructure && (attempts_left || verdict.attempt < static_cast<int>(item->attempts.size()))) {
    verdict.judgement = Judgement::kRequeue;
  } else {
    verdict.judgement = Judgement::kFirst;
  }
  return verdict;
}

void Dispatcher::CountResult(const Item& item, const Attempt& attempt, const ItemResult& result) {
  const auto found = sessions_.find(attempt.session);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  if (Counts(result.outcome))
    ++session.trials;
  else
    ++session.failures;
  if (result.outcome != "infrastructure") {
    session.faults.clear();
    return;
  }
  // Finalists fail together, for one reason.
  session.faults.insert(item.work->kind == WorkKind::kFinals ? item.work->items.front().id : item.spec.id);
  if (static_cast<int>(session.faults.size()) < options_.drain_after || session.drained) return;
  session.drained = true;
  session.reason = absl::StrCat("could not measure ", session.faults.size(), " in a row: ", result.error);
  const std::set<int64_t> leases = session.leases;
  for (const int64_t lease_id : leases) Requeue(lease_id, session.reason);
}

void Dispatcher::Commit(const ItemResult& result, absl::Duration now) {
  const Verdict verdict = Judge(result);
  if (verdict.judgement == Judgement::kUnknown || verdict.judgement == Judgement::kDuplicate ||
      verdict.judgement == Judgement::kConflict) {
    return;
  }
  Item& item = items_.at(verdict.item.id);
  Attempt& attempt = item.attempts[verdict.attempt - 1];
  attempt.result = result;
  if (const auto lease = leases_.find(result.lease); lease != leases_.end()) {
    lease->second.open.erase(item.spec.id);
    lease->second.deadline = std::max(lease->second.deadline, now + options_.broken_grace);
    if (lease->second.open.empty()) {
      CloseLease(result.lease);
      finished_.insert(result.lease);
    }
  }
  const bool newest = verdict.attempt == static_cast<int>(item.attempts.size());
  if (verdict.judgement == Judgement::kFirst) item.settled = true;
  if (verdict.judgement == Judgement::kRequeue && newest) RequeueItem(item.spec.id, result.error);
  CountResult(item, attempt, result);
  const bool complete =
      std::all_of(item.attempts.begin(), item.attempts.end(), [](const Attempt& a) { return a.result.has_value(); });
  if (item.settled && complete) Remember(item.spec.id);
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

std::vector<int64_t> Dispatcher::Add(Work work) {
  std::vector<int64_t> ids;
  for (WorkItem& item : work.items) {
    item.id = next_id_++;
    ids.push_back(item.id);
  }
  auto shared = std::make_shared<Work>(std::move(work));
  for (const WorkItem& item : shared->items) items_[item.id] = Item{.work = shared, .spec = item};
  items_of_job_[shared->job].insert(ids.begin(), ids.end());
  queues_[shared->device_key].push_back({shared, ids});
  return ids;
}

void Dispatcher::CancelJob(int64_t job) {
  over_.insert(job);
  for (auto& [key, queue] : queues_) {
    std::erase_if(queue, [&](const Queued& queued) { return queued.work->job == job; });
  }
  std::erase_if(queues_, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [id, lease] : leases_) {
    if (lease.work->job == job) lease.cancelled = true;
  }
}

void Dispatcher::Withdraw(const std::vector<int64_t>& items) {
  for (const int64_t id : items) {
    if (const auto item = items_.find(id); item != items_.end()) item->second.settled = true;
  }
  const auto settled = [&](int64_t id) {
    const auto item = items_.find(id);
    return item == items_.end() || item->second.settled;
  };
  for (auto& [key, queue] : queues_) {
    std::erase_if(queue, [&](const Queued& q) { return std::all_of(q.items.begin(), q.items.end(), settled); });
  }
  std::erase_if(queues_, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [id, lease] : leases_) {
    if (std::all_of(lease.open.begin(), lease.open.end(), settled)) lease.cancelled = true;
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
    for (auto& [id, lease] : leases_) lease.deadline += gap;
    for (auto& [id, session] : sessions_) session.deadline += gap;
  }
  last_tick_ = now;
  for (auto& [id, session] : sessions_) {
    if (session.lost || session.deadline > now) continue;
    Lose(session, "not heard of any more");
    changed = true;
  }
  std::vector<int64_t> expired;
  for (const auto& [id, lease] : leases_) {
    if (lease.deadline <= now) expired.push_back(id);
  }
  for (const int64_t id : expired) Requeue(id, "the lease ran out");
  std::erase_if(sessions_, [&](const auto& entry) {
    return entry.second.lost && now - entry.second.last_seen > options_.keep_lost;
  });
  return changed || !expired.empty();
}

std::vector<Dispatcher::GivenUp> Dispatcher::TakeGivenUp() { return std::exchange(given_up_, {}); }

// --- what is there ---

bool Dispatcher::SharedCoresBusy() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    const Session& session = entry.second;
    return !session.lost && session.info.shares_server_cores && !session.leases.empty();
  });
}

std::optional<WorkerInfo> Dispatcher::FindWorker(const std::string& device_key, const std::string& codegen_id,
                                                 const std::string& target) const {
  for (const auto& [id, session] : sessions_) {
    const WorkerInfo& info = session.info;
    const bool fits =
        info.device_key == device_key && info.codegen_id == codegen_id && (target.empty() || info.target == target);
    if (fits && !session.lost && !session.drained) return info;
  }
  return std::nullopt;
}

int Dispatcher::Slots(const std::string& device_key, const std::string& codegen_id, const std::string& target) const {
  int slots = 0;
  for (const auto& [id, session] : sessions_) {
    const WorkerInfo& info = session.info;
    const bool fits = info.device_key == device_key && info.codegen_id == codegen_id && info.target == target;
    if (fits && !session.lost && !session.drained) slots += info.slots;
  }
  return slots;
}

std::string Dispatcher::WhyNoWorker(const std::string& device_key, const std::string& codegen_id) const {
  std::string why = absl::StrCat("no worker serves device key '", device_key, "'");
  for (const auto& [id, session] : sessions_) {
    if (session.info.device_key != device_key) continue;
    if (session.lost) {
      absl::StrAppend(&why, "; the last one is lost (", session.reason, ")");
    } else if (session.drained) {
      absl::StrAppend(&why, " any more: it was drained because it ", session.reason);
    } else if (session.info.codegen_id != codegen_id) {
      absl::StrAppend(&why, " with codegen id '", codegen_id, "': the one there has '", session.info.codegen_id, "'");
    } else {
      continue;
    }
    break;
  }
  return why;
}

std::vector<Dispatcher::SessionView> Dispatcher::Sessions() const {
  std::vector<SessionView> views;
  for (const auto& [id, session] : sessions_) {
    SessionView view{session.info, "idle", session.reason, session.trials, session.failures, session.last_seen};
    const auto queue = queues_.find(session.info.device_key);
    if (session.lost) {
      view.state = "lost";
    } else if (session.drained) {
      view.state = "drained";
    } else if (!session.leases.empty()) {
      view.state = "measuring";
    } else if (queue != queues_.end()) {
      for (const Queued& queued : queue->second) {
        if (queued.work->codegen_id == session.info.codegen_id) continue;
        view.state = "version_mismatch";
        view.reason = absl::StrCat("a job needs codegen id '", queued.work->codegen_id, "'");
      }
    }
    views.push_back(std::move(view));
  }
  return views;
}

bool Dispatcher::Live(const std::string& session) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && !found->second.lost;
}

}  // namespace temper
