#include "tuner_server/service/core_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "storage/check.h"
#include "tuner_server/service/fair_share.h"
#include "tuner_server/service/results.h"
#include "tuner_server/service/stored_lease.h"

namespace temper {
namespace {

// Items above the latest recorded one may have been given too: models' checks, and what was in flight.
constexpr int64_t kIdsWithoutRecords = 1 << 20;
constexpr int kLastingFailures = 3;                        // of the store, in a row
constexpr int kTicksBetweenPokes = 3;                      // watchers hear of progress at most so often
constexpr absl::Duration kAwaitedFor = absl::Seconds(30);  // autoscalers look twice meanwhile
constexpr size_t kMostAwaited = 1000;
constexpr int kTicksBetweenOffers = 10;  // of work to those whom nothing but time concerns

absl::Status Stopping() { return absl::UnavailableError("the server is shutting down"); }

std::optional<Record> RecordOf(const Dispatcher::Verdict& verdict, const ItemResult& result, absl::Time wall) {
  const bool kept =
      verdict.judgement == Dispatcher::Judgement::kFirst || verdict.judgement == Dispatcher::Judgement::kLate;
  if (!kept || verdict.work->kind == WorkKind::kModel) return std::nullopt;
  return MakeRecord(*verdict.work, verdict.item, verdict.worker, result.trial, wall);
}

}  // namespace

CoreState::CoreState(CoreOptions options)
    : options_(std::move(options)), dispatcher_(options_.dispatch), places_(options_.most_jobs) {}

bool CoreState::Stop(Actions& actions) {
  if (std::exchange(stopping_, true)) return false;
  while (!parked_.empty()) actions.push_back([done = Unpark(parked_.begin())] { done(Stopping()); });
  for (Granted& granted : std::exchange(granted_, {}))
    actions.push_back([done = std::move(granted.done)] { done(Stopping()); });
  for (const auto& [id, job] : jobs_) {
    if (job.port == nullptr) continue;
    job.port->Stop(Survives(id) ? "suspended" : "abandoned", "the server was shut down");
  }
  return true;
}

absl::Status CoreState::Serving() const {
  if (stopping_) return Stopping();
  return open_ ? absl::OkStatus() : absl::UnavailableError("the server is starting");
}

// --- workers ---

absl::StatusOr<std::string> CoreState::Register(const WorkerInfo& info, absl::Duration now) {
  TEMPER_RETURN_IF_ERROR(Serving());
  TEMPER_RETURN_IF_ERROR(CheckWorker(info));
  // Who takes an instance up takes up its leases.
  if (const WorkerInfo* known = dispatcher_.FindInstance(info.instance);
      known != nullptr && known->holder != info.holder)
    return absl::FailedPreconditionError("the instance is another worker's, for as long as that one is there");
  TEMPER_RETURN_IF_ERROR(dispatcher_.MakeRoomFor(info));
  const std::string session = dispatcher_.Register(info, now);
  LogInfo({.worker = info.name, .key = info.device_key}, "a worker serves its device: {}", info.fingerprint);
  for (const auto& [id, job] : jobs_) {
    if (job.port != nullptr && job.port->spec().device_key == info.device_key) job.port->Wake();
  }
  return session;
}

absl::Status CoreState::CheckHolder(const std::string& session, const std::string& holder) const {
  const WorkerInfo* worker = dispatcher_.FindSession(session);
  if (worker == nullptr || worker->holder == holder) return absl::OkStatus();
  return absl::PermissionDeniedError("the session is another worker's");
}

void CoreState::Sync(SyncCall call, SyncDone done, absl::Duration now, Actions& actions) {
  absl::Status refused = Serving();
  refused.Update(CheckHolder(call.session, call.holder));
  if (!refused.ok()) {
    actions.push_back([done = std::move(done), refused] { done(refused); });
    return;
  }
  if (const auto older = ticket_of_session_.find(call.session); older != ticket_of_session_.end()) {
    actions.push_back([done = Unpark(parked_.find(older->second))] { done(Dispatcher::SyncOutcome()); });
  }
  Dispatcher::SyncOutcome outcome = dispatcher_.Sync(call.session, call.held, call.free_slots, now);
  const absl::Duration wait = std::min(call.wait, options_.longest_poll);
  if (!outcome.empty() || wait <= absl::ZeroDuration()) {
    Answer(call.session, std::move(outcome), std::move(done), actions);
  } else {
    Park(std::move(call), now + wait, std::move(done));
  }
  AfterChange(now, actions);
}

void CoreState::Park(SyncCall call, absl::Duration deadline, SyncDone done) {
  ticket_of_session_[call.session] = call.ticket;
  const int64_t ticket = call.ticket;
  Enlist(parked_.emplace(ticket, Parked{std::move(call), std::nullopt, deadline, std::move(done)}).first);
}

SyncDone CoreState::Unpark(ParkedCalls::iterator parked) {
  ticket_of_session_.erase(parked->second.call.session);
  Strike(parked);
  SyncDone done = std::move(parked->second.done);
  parked_.erase(parked);
  return done;
}

void CoreState::Enlist(ParkedCalls::iterator parked) {
  parked->second.awaits = dispatcher_.Awaits(parked->second.call.session);
  if (parked->second.awaits) tickets_awaiting_[*parked->second.awaits].insert(parked->first);
}

void CoreState::Strike(ParkedCalls::iterator parked) {
  if (!parked->second.awaits) return;
  const auto alike = tickets_awaiting_.find(*parked->second.awaits);
  alike->second.erase(parked->first);
  if (alike->second.empty()) tickets_awaiting_.erase(alike);
}

bool CoreState::Survives(int64_t job) const {
  const std::shared_ptr<JobPort> port = FindJob(job);
  return port != nullptr && !port->spec().close_with_command;
}

void CoreState::Answer(const std::string& session, Dispatcher::SyncOutcome outcome, SyncDone done, Actions& actions) {
  const bool kept = std::ranges::any_of(outcome.grants, [&](const Dispatcher::Grant& grant) {
    return grant.work->kind == WorkKind::kBatch && Survives(grant.work->job);
  });
  const WorkerInfo* worker = dispatcher_.FindSession(session);
  if (kept && worker != nullptr) {
    granted_.push_back({std::move(outcome), std::move(done), *worker});
  } else {
    actions.push_back([done = std::move(done), outcome = std::move(outcome)] { done(outcome); });
  }
}

absl::Status CoreState::Leave(const std::string& session, const std::string& holder, const std::string& reason,
                              absl::Duration now, Actions& actions) {
  TEMPER_RETURN_IF_ERROR(CheckHolder(session, holder));
  dispatcher_.Leave(session, reason, now);
  AfterChange(now, actions);
  return absl::OkStatus();
}

int CoreState::AdmitDevice(const std::string& key, const std::string& fingerprint, absl::Duration now,
                           Actions& actions) {
  const int admitted = dispatcher_.Admit(key, fingerprint);
  AfterChange(now, actions);
  return admitted;
}

int CoreState::Drain(const std::string& key, const std::string& name, const std::string& reason, absl::Duration now,
                     Actions& actions) {
  const int drained = dispatcher_.Drain(key, name, reason);
  AfterChange(now, actions);
  return drained;
}

int CoreState::Undrain(const std::string& key, const std::string& name, absl::Duration now, Actions& actions) {
  const int undrained = dispatcher_.Undrain(key, name);
  AfterChange(now, actions);
  return undrained;
}

void CoreState::BreakSync(int64_t ticket, absl::Duration now, Actions& actions) {
  const auto parked = parked_.find(ticket);
  if (parked == parked_.end()) return;
  dispatcher_.ConnectionBroke(parked->second.call.session, now);
  actions.push_back([done = Unpark(parked)] { done(Dispatcher::SyncOutcome()); });
}

void CoreState::HoldOrRelease() { dispatcher_.HoldSharedCores(!searching_.empty() || !search_wanted_.empty()); }

void CoreState::AfterChange(absl::Duration now, Actions& actions) {
  if (!search_wanted_.empty() && std::ssize(searching_) < options_.most_searches && !dispatcher_.SharedCoresBusy()) {
    for (const int64_t job : search_wanted_) {
      if (const auto port = FindJob(job)) port->Wake();
    }
  }
  const Dispatcher::Stirred stirred = dispatcher_.TakeStirred();
  for (const std::string& session : stirred.sessions) {
    const auto ticket = ticket_of_session_.find(session);
    if (ticket == ticket_of_session_.end()) continue;
    const auto parked = parked_.find(ticket->second);
    Strike(parked);
    Enlist(parked);
    Offer(parked->first, now, actions);
  }
  for (const std::string& key : stirred.keys) {
    for (const DeviceKind& kind : dispatcher_.QueuedKinds(key)) OfferTo(kind, now, actions);
  }
}

void CoreState::OfferTo(const DeviceKind& kind, absl::Duration now, Actions& actions) {
  for (int64_t latest = 0; dispatcher_.HasQueued(kind);) {
    const auto waiting = tickets_awaiting_.find(kind);
    if (waiting == tickets_awaiting_.end()) return;
    const auto next = waiting->second.upper_bound(latest);
    if (next == waiting->second.end()) return;
    latest = *next;
    Offer(latest, now, actions);
  }
}

void CoreState::Offer(int64_t ticket, absl::Duration now, Actions& actions) {
  const auto parked = parked_.find(ticket);
  const SyncCall& call = parked->second.call;
  Dispatcher::SyncOutcome outcome = dispatcher_.Poll(call.session, call.held, call.free_slots, now);
  if (outcome.empty()) return;
  const std::string session = call.session;
  Answer(session, std::move(outcome), Unpark(parked), actions);
}

void CoreState::WakeAllJobs() {
  for (const auto& [id, job] : jobs_) {
    if (job.port != nullptr) job.port->Wake();
  }
}

// --- time ---

void CoreState::Tick(absl::Duration now, Actions& actions) {
  // Time alone can make work fit a worker.
  const bool all = ticks_ % kTicksBetweenOffers == 0;
  std::vector<int64_t> waiting;
  for (const auto& [ticket, parked] : parked_) {
    if (all || parked.deadline <= now) waiting.push_back(ticket);
  }
  for (const int64_t ticket : waiting) {
    Offer(ticket, now, actions);
    const auto parked = parked_.find(ticket);
    if (parked == parked_.end() || parked->second.deadline > now) continue;
    actions.push_back([done = Unpark(parked)] { done(Dispatcher::SyncOutcome()); });
  }
  if (dispatcher_.Tick(now)) WakeAllJobs();
  std::ranges::move(dispatcher_.TakeGivenUp(), std::back_inserter(given_up_));
  ForgetOldJobs(now);
  std::erase_if(awaited_, [&](const auto& entry) { return now - entry.second.said > kAwaitedFor; });
  AfterChange(now, actions);
  if (ticks_++ % kTicksBetweenPokes == 0) TendJobs(now, actions);
}

void CoreState::NoteAwaited(const std::string& who, const std::string& key, absl::Duration now) {
  const auto own = std::ranges::count_if(awaited_, [&](const auto& entry) { return entry.second.who == who; });
  if (awaited_.contains(key)) {
    awaited_[key].said = now;
  } else if (LeavesEnough(who, static_cast<size_t>(own), 1, awaited_.size(), kMostAwaited)) {
    awaited_[key] = {who, now};
  }
}

void CoreState::ForgetOldJobs(absl::Duration now) {
  std::erase_if(jobs_, [&](const auto& entry) {
    const auto& [id, job] = entry;
    if (job.port != nullptr || now - job.over_at < options_.forget_after) return false;
    dispatcher_.ForgetJob(id);
    return true;
  });
}

void CoreState::TendJobs(absl::Duration now, Actions& actions) {
  for (const auto& [id, job] : jobs_) {
    if (job.port == nullptr) continue;
    actions.push_back([feed = job.feed] { feed->PokeWatchers(); });
    if (job.port->spec().close_with_command && job.feed->Orphaned(now, options_.orphan_grace)) {
      job.port->Stop("cancelled", "its command is gone");
    }
  }
}

// --- results ---

void CoreState::Submit(std::vector<ItemResult> results, SubmitDone done, Actions& actions) {
  if (const absl::Status serving = Serving(); !serving.ok()) {
    actions.push_back([done = std::move(done), serving] { done(serving); });
    return;
  }
  submissions_.push_back({std::move(results), std::move(done), {}});
}

// What a store would refuse costs the result that it is in, and nobody else anything: the worker failed at it.
void CoreState::JudgeResult(ItemResult result, absl::Time wall, CommitPlan& plan) {
  Dispatcher::Verdict verdict = dispatcher_.Judge(result);
  std::optional<Record> record = RecordOf(verdict, result, wall);
  if (const absl::Status kept = record ? CheckRecord(*record) : absl::OkStatus(); !kept.ok()) {
    result.trial = {.outcome = Outcome::kInfrastructure, .error = std::string(kept.message())};
    verdict = dispatcher_.Judge(result);
    record = RecordOf(verdict, result, wall);
    if (record && !CheckRecord(*record).ok()) record.reset();
  }
  dispatcher_.Hold(result);
  if (record) plan.records.push_back(*std::move(record));
  if (verdict.judgement == Dispatcher::Judgement::kFirst) {
    plan.deliveries.push_back({verdict.work->job, result});
    plan.deliveries.back().result.item = verdict.item.id;  // a model's result names its lease alone
  }
  plan.fresh.push_back(std::move(result));
}

void CoreState::JudgeSubmission(size_t place, absl::Time wall, CommitPlan& plan, Known& known) {
  Submission& submission = plan.submissions[place];
  const ItemResult* refused = nullptr;  // the first
  std::string holder;                   // of its lease
  for (const ItemResult& result : submission.results) {
    // Two of one group are compared with one another, for neither is committed yet.
    const std::tuple key(result.lease, result.item, result.attempt);
    const auto first = known.find(key);
    const ItemResult* same = first == known.end() ? nullptr : &plan.fresh[first->second];
    const bool contradicts = same != nullptr && !(same->trial == result.trial && same->model == result.model);
    const Dispatcher::Verdict verdict = dispatcher_.Judge(result);
    const bool conflict = verdict.judgement == Dispatcher::Judgement::kConflict || contradicts;
    if (verdict.judgement == Dispatcher::Judgement::kUnknown) plan.unknown.emplace_back(place, submission.acks.size());
    submission.acks.push_back(!conflict && verdict.judgement != Dispatcher::Judgement::kUnknown);
    submission.contradicting += conflict ? 1 : 0;
    if (conflict && refused == nullptr) {
      refused = &result;
      holder = verdict.worker.name;
    }
    switch (verdict.judgement) {
      case Dispatcher::Judgement::kFirst:
      case Dispatcher::Judgement::kLate:
      case Dispatcher::Judgement::kRequeue:
        if (same != nullptr) break;
        known.emplace(key, plan.fresh.size());
        JudgeResult(result, wall, plan);
        break;
      case Dispatcher::Judgement::kConflict:
      case Dispatcher::Judgement::kDuplicate:
      case Dispatcher::Judgement::kUnknown:
        break;
    }
  }
  if (refused == nullptr) return;
  LogWarn({.lease = refused->lease, .worker = holder},
          "item {} attempt {}: it contradicts what came first, or is another worker's: {} results of {} are refused",
          refused->item, refused->attempt, submission.contradicting, submission.acks.size());
}

void CoreState::PlanLeases(CommitPlan& plan, absl::Time wall) {
  plan.granted = std::exchange(granted_, {});
  for (const Granted& granted : plan.granted) {
    for (const Dispatcher::Grant& grant : granted.outcome.grants) {
      if (!Survives(grant.work->job)) continue;
      if (std::optional<LeaseRow> row = ToRow(grant, granted.worker, wall)) plan.leases.push_back(*std::move(row));
    }
  }
  std::ranges::move(dispatcher_.TakeClosed(), std::back_inserter(closed_));
  plan.closed = std::exchange(closed_, {});
}

CoreState::CommitPlan CoreState::JudgeGroup(absl::Time wall) {
  CommitPlan plan;
  PlanLeases(plan, wall);
  for (auto& [change, done] : std::exchange(ranked_, {})) {
    plan.priorities.push_back(change);
    plan.ranked.push_back(std::move(done));
  }
  plan.submissions = std::exchange(submissions_, {});
  Known known;
  for (size_t i = 0; i < plan.submissions.size(); ++i) JudgeSubmission(i, wall, plan, known);
  for (const Dispatcher::GivenUp& lost : std::exchange(given_up_, {})) {
    const TrialResult result{.outcome = lost.outcome, .error = lost.error};
    if (lost.work->kind != WorkKind::kModel) {
      Record record = MakeRecord(*lost.work, lost.item, lost.worker, result, wall);
      record.candidate = record.attempt = 0;  // of no execution: the last one's result may still come
      if (CheckRecord(record).ok()) plan.records.push_back(std::move(record));
    }
    plan.deliveries.push_back({lost.work->job, {.item = lost.item.id, .trial = result}, true});
  }
  return plan;
}

void CoreState::FinishGroup(CommitPlan plan, const absl::Status& stored, absl::Duration now, Actions& actions) {
  // The acknowledgement first: the worker's next call comes while the job thinks.
  for (Submission& submission : plan.submissions) {
    absl::StatusOr<std::vector<bool>> acks = std::move(submission.acks);
    if (!stored.ok()) {
      acks = absl::UnavailableError(absl::StrCat("results could not be stored: ", stored.message()));
    }
    actions.push_back([done = std::move(submission.done), acks = std::move(acks)] { done(acks); });
  }
  for (Granted& granted : plan.granted) {
    absl::StatusOr<Dispatcher::SyncOutcome> outcome = std::move(granted.outcome);
    if (!stored.ok()) {
      for (const Dispatcher::Grant& grant : outcome->grants) dispatcher_.TakeBack(grant.lease, now);
      outcome = absl::UnavailableError(absl::StrCat("leases could not be stored: ", stored.message()));
    }
    actions.push_back([done = std::move(granted.done), outcome = std::move(outcome)] { done(outcome); });
  }
  FinishPriorities(plan, stored, actions);
  if (!stored.ok()) std::ranges::move(plan.closed, std::back_inserter(closed_));
  if (stored.ok()) {
    store_fails_since_ = absl::InfiniteDuration();
    store_failures_ = 0;
    for (const ItemResult& result : plan.fresh) dispatcher_.Commit(result, now);
  } else {
    for (const ItemResult& result : plan.fresh) dispatcher_.Drop(result, now);
    StoreFails(stored, now);
  }
  for (const Delivery& delivery : plan.deliveries) {
    // What was given up is told anyway: nobody would send it again.
    if (!stored.ok() && !delivery.given_up) continue;
    if (const auto job = FindJob(delivery.job)) job->Deliver(delivery.result);
  }
  AfterChange(now, actions);
}

// A full disk may be freed, and workers send again until then; but no job waits for that without an end.
void CoreState::StoreFails(const absl::Status& why, absl::Duration now) {
  const std::string line = absl::StrCat("results could not be stored: ", why.message());
  if (store_fails_since_ == absl::InfiniteDuration()) {
    store_fails_since_ = now;
    LogError({}, "{}", line);
  }
  EndIfBroken(why);
  // Two failures far apart, with nothing to be stored between, are no failure that lasts.
  if (++store_failures_ < kLastingFailures || now - store_fails_since_ < options_.store_patience) return;
  for (const auto& [id, job] : jobs_) {
    if (job.port != nullptr) job.port->Stop("failed", line);
  }
}

void CoreState::EndIfBroken(const absl::Status& health) {
  if (absl::IsDataLoss(health) && !std::exchange(store_broken_, true)) options_.on_broken_store(health);
}

// --- jobs ---

CoreState::Load CoreState::LoadOf(const std::string* owner) const {
  Load load;
  const auto add = [&](const std::string& whose, size_t bytes) {
    if (owner != nullptr && *owner != whose) return;
    ++load.jobs;
    load.bytes += bytes;
  };
  for (const auto& [id, job] : jobs_) {
    if (job.port != nullptr) add(job.port->spec().owner, job.bytes);
  }
  for (const auto& [whose, bytes] : reserved_) add(whose, bytes);
  return load;
}

int64_t CoreState::FindRequest(const std::string& owner, const std::string& request_id) const {
  if (request_id.empty()) return 0;
  const auto found = std::ranges::find_if(jobs_, [&](const auto& entry) {
    return entry.second.request_id == request_id && entry.second.feed->owner() == owner;
  });
  return found == jobs_.end() ? 0 : found->first;
}

absl::Status CoreState::ReservePlace(const std::string& owner, size_t bytes, const std::string& request_id) {
  TEMPER_RETURN_IF_ERROR(Serving());
  if (arriving_.contains({owner, request_id})) return absl::UnavailableError("this request is being worked on");
  const Load all = LoadOf(nullptr), own = LoadOf(&owner);
  const size_t most = options_.most_jobs + options_.most_waiting, most_bytes = options_.most_request_bytes;
  if (all.jobs >= most) return absl::ResourceExhaustedError(absl::StrCat(most, " jobs are running or waiting already"));
  if ((!owner.empty() && own.jobs >= static_cast<size_t>(options_.most_jobs_of_owner)) ||
      !LeavesEnough(owner, own.jobs, 1, all.jobs, most)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(own.jobs, " jobs of ", owner, " are running or waiting already, and others need places too"));
  }
  if (bytes > most_bytes || all.bytes > most_bytes - bytes) {
    return absl::ResourceExhaustedError("the requests of the jobs that are running or waiting are too large together");
  }
  if (!LeavesEnough(owner, own.bytes, bytes, all.bytes, most_bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the requests of ", owner, "'s jobs that are running or waiting are too large together"));
  }
  reserved_.emplace(owner, bytes);
  if (!request_id.empty()) arriving_.emplace(owner, request_id);
  return absl::OkStatus();
}

void CoreState::GiveBackPlace(const std::string& owner, size_t bytes, const std::string& request_id) {
  arriving_.erase({owner, request_id});
  reserved_.erase(reserved_.find({owner, bytes}));
}

bool CoreState::AddJob(int64_t id, size_t bytes, std::shared_ptr<JobPort> job) {
  if (stopping_) return false;
  jobs_[id] = Job{.port = job,
                  .feed = job->feed(),
                  .bytes = bytes,
                  .priority = job->feed()->row().priority,
                  .request_id = job->spec().request_id};
  return true;
}

void CoreState::GoOnFrom(const LeftBehind& left, absl::Duration now) {
  dispatcher_.BeginIdsAbove(left.highest_item + kIdsWithoutRecords);
  for (const JobPlan& plan : left.plans) dispatcher_.SetPriority(plan.row.id, plan.row.priority);
  for (const LeftBehind::Lease& lease : left.leases) dispatcher_.Restore(lease.id, lease.work, lease.worker, now);
}

void CoreState::SetPriority(int64_t id, int priority, PriorityDone done, Actions& actions) {
  absl::Status taken = Serving();
  if (FindJob(id) == nullptr) taken.Update(absl::NotFoundError(absl::StrCat("no job ", id, " is running or waiting")));
  if (taken.ok()) {
    ranked_.emplace_back(JobPriority{id, priority}, std::move(done));
  } else {
    actions.push_back([done = std::move(done), taken] { done(taken); });
  }
}

void CoreState::FinishPriorities(CommitPlan& plan, const absl::Status& stored, Actions& actions) {
  const absl::Status how =
      stored.ok() ? absl::OkStatus()
                  : absl::UnavailableError(absl::StrCat("the priority could not be stored: ", stored.message()));
  for (const JobPriority& change : plan.priorities) {
    const std::shared_ptr<JobPort> job = FindJob(change.job);
    if (!stored.ok() || job == nullptr) continue;  // it ended meanwhile
    jobs_.at(change.job).priority = change.priority;
    dispatcher_.SetPriority(change.job, change.priority);
    places_.SetPriority(change.job, change.priority);
    job->SetPriority(change.priority);
  }
  for (PriorityDone& done : plan.ranked) actions.push_back([done = std::move(done), how] { done(how); });
}

std::shared_ptr<JobPort> CoreState::FindJob(int64_t id) const {
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : job->second.port;
}

std::vector<std::shared_ptr<JobPort>> CoreState::JobsOf(const std::string& owner) const {
  std::vector<std::shared_ptr<JobPort>> ports;
  for (const auto& [id, job] : jobs_) {
    if (job.port != nullptr && job.port->spec().owner == owner) ports.push_back(job.port);
  }
  return ports;
}

std::shared_ptr<JobFeed> CoreState::FindFeed(int64_t id) const {
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : job->second.feed;
}

std::vector<std::shared_ptr<JobPort>> CoreState::TakeJobs() {
  std::vector<std::shared_ptr<JobPort>> ports = TakeRetired();
  for (auto& [id, job] : jobs_) {
    if (job.port != nullptr) ports.push_back(std::move(job.port));
  }
  return ports;
}

CoreState::Census CoreState::TakeCensus() const {
  Census census{.dispatch = dispatcher_.TakeCensus(),
                .sizes = dispatcher_.sizes(),
                .parked = parked_.size(),
                .submissions = submissions_.size(),
                .jobs = jobs_.size()};
  for (const Dispatcher::GivenUp& given_up : given_up_) census.given_up.push_back(given_up.item.id);
  return census;
}

FleetStatus CoreState::Status() const {
  FleetStatus status;
  for (const auto& [key, items] : dispatcher_.WaitingItems()) status.keys[key].pending = items;
  for (const auto& [key, items] : dispatcher_.LeasedItems()) status.keys[key].leased = items;
  for (const auto& [id, job] : jobs_) {
    ++status.jobs[job.feed->state()];
    if (job.port != nullptr) ++status.keys[job.port->spec().device_key].jobs;
  }
  for (const auto& [key, awaited] : awaited_) status.keys[key].awaited = true;
  status.workers = dispatcher_.SessionsByState();
  const Dispatcher::Failures& failures = dispatcher_.failures();
  status.failures = {{"lease_expired", failures.expired_leases},
                     {"worker_lost", failures.lost_workers},
                     {"worker_drained", failures.drained_workers},
                     {"given_up", failures.given_up_items}};
  status.leases = static_cast<int64_t>(dispatcher_.sizes().leases);
  status.parked_calls = static_cast<int64_t>(parked_.size());
  status.store_ok = store_fails_since_ == absl::InfiniteDuration();
  status.stopping = stopping_;
  return status;
}

std::vector<int64_t> CoreState::AddWork(Work work, absl::Duration now, Actions& actions) {
  std::vector<int64_t> ids = dispatcher_.Add(std::move(work), now);
  AfterChange(now, actions);
  return ids;
}

void CoreState::Withdraw(const std::vector<int64_t>& items, absl::Duration now, Actions& actions) {
  dispatcher_.Withdraw(items);
  AfterChange(now, actions);
}

bool CoreState::TryBeginJob(int64_t job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || found->second.port == nullptr) return false;
  return places_.Ask(job, found->second.port->spec().owner, found->second.priority);
}

void CoreState::LeavePlace(int64_t job) {
  if (places_.Leave(job)) WakeAllJobs();
}

bool CoreState::TryBeginSearch(int64_t job) {
  const bool full = std::ssize(searching_) >= options_.most_searches && !searching_.contains(job);
  const bool busy = full || dispatcher_.SharedCoresBusy();
  if (busy) {
    search_wanted_.insert(job);
  } else {
    search_wanted_.erase(job);
    searching_.insert(job);
  }
  HoldOrRelease();
  return !busy;
}

void CoreState::EndSearch(int64_t job, absl::Duration now, Actions& actions) {
  if (search_wanted_.erase(job) + searching_.erase(job) == 0) return;
  HoldOrRelease();
  AfterChange(now, actions);
}

void CoreState::JobOver(int64_t job, absl::Duration now, Actions& actions) {
  dispatcher_.CancelJob(job);
  places_.Leave(job);
  if (const auto over = jobs_.find(job); over != jobs_.end() && over->second.port != nullptr) {
    over->second.over_at = now;
    retired_.push_back(std::move(over->second.port));
  }
  WakeAllJobs();  // one of them may have its place
  AfterChange(now, actions);
}

}  // namespace temper
