#include "tuner_server/service/core.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "tuner_server/service/left_behind.h"
#include "tuner_server/service/job_runner.h"
#include "tuner_server/service/results.h"
#include "tuner_server/service/unknown_results.h"

namespace temper {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

// The core's lock. What is logged under it is written once it is free.
struct Hold {
  explicit Hold(std::mutex& mutex) : lock(mutex) {}
  HeldLines lines;  // ends last
  std::unique_lock<std::mutex> lock;
};

void Call(const Actions& actions) {
  for (const auto& action : actions) action();
}

// What is judged to be new is new to the store too, unless ids of items were used twice.
void TellOfPassedOver(const std::vector<Record>& records, const std::vector<int64_t>& ids) {
  const auto first = std::ranges::find(ids, 0);
  if (first == ids.end()) return;
  const Record& record = records[static_cast<size_t>(first - ids.begin())];
  LogError({.job = record.job, .key = record.device_key},
           "{} results are lost: their items have records already, as item {} attempt {} has",
           std::ranges::count(ids, 0), record.candidate, record.attempt);
}

}  // namespace

template <typename Change>
auto ServerCore::Locked(Change change) {
  Actions actions;
  if constexpr (std::is_void_v<decltype(change(actions))>) {
    {
      const Hold hold(mutex_);
      change(actions);
      if (state_.CommitWaits()) committer_wake_.notify_all();
    }
    Call(actions);
  } else {
    std::optional<Hold> hold(mutex_);
    auto result = change(actions);
    if (state_.CommitWaits()) committer_wake_.notify_all();
    hold.reset();
    Call(actions);
    return result;
  }
}

ServerCore::ServerCore(Store& store, const Clock& clock, CoreOptions options)
    : store_(store), clock_(clock), state_(std::move(options)), ticked_ms_(absl::ToInt64Milliseconds(Now())) {}

ServerCore::~ServerCore() { Stop(); }

absl::Status ServerCore::Start() {
  TEMPER_RETURN_IF_ERROR(TakeUpJobs());
  ticker_ = std::thread([this] { TickerLoop(); });
  committer_ = std::thread([this] { CommitterLoop(); });
  return absl::OkStatus();
}

absl::Status ServerCore::TakeUpJobs() {
  TEMPER_ASSIGN_OR_RETURN(LeftBehind left, ReadLeftBehind(store_, options().loop, clock_.Wall()));
  Locked([&](Actions&) { state_.GoOnFrom(left, Now()); });
  for (JobPlan& plan : left.plans) Run(std::move(plan));
  Locked([&](Actions&) { state_.Open(); });
  return absl::OkStatus();
}

bool ServerCore::Run(JobPlan plan) {
  const int64_t id = plan.row.id;
  const size_t bytes = RequestBytes(plan.spec);
  const auto runner = std::make_shared<JobRunner>(static_cast<JobHost&>(*this), std::move(plan));
  return Locked([&](Actions&) {
    if (!state_.AddJob(id, bytes, runner)) return false;
    runner->Start();
    return true;
  });
}

void ServerCore::Stop() {
  const bool first = Locked([&](Actions& actions) {
    ticker_wake_.notify_all();
    committer_wake_.notify_all();
    return state_.Stop(actions);
  });
  if (!first) return;
  if (ticker_.joinable()) ticker_.join();
  if (committer_.joinable()) committer_.join();
  // Their destructors join; until then they still ask this for what they need.
  const auto jobs = Locked([&](Actions&) { return state_.TakeJobs(); });
}

// --- the two loops ---

void ServerCore::TickerLoop() {
  // The first at once: what stands still before it can not be told from what is late.
  while (true) {
    Actions actions;
    std::vector<std::shared_ptr<JobPort>> retired;  // destroyed without the lock
    const absl::Status health = store_.Health();
    {
      const Hold hold(mutex_);
      if (state_.stopping()) return;
      state_.EndIfBroken(health);
      state_.Tick(Now(), actions);
      ticked_ms_ = absl::ToInt64Milliseconds(Now());
      if (state_.CommitWaits()) committer_wake_.notify_all();
      retired = state_.TakeRetired();
    }
    Call(actions);
    std::unique_lock lock(mutex_);
    ticker_wake_.wait_for(lock, absl::ToChronoMilliseconds(kTick), [this] { return state_.stopping(); });
  }
}

void ServerCore::CommitterLoop() {
  while (true) {
    CoreState::CommitPlan plan;
    {
      Hold hold(mutex_);
      committer_wake_.wait(hold.lock, [this] { return state_.stopping() || state_.CommitWaits(); });
      if (!state_.CommitWaits()) return;
      plan = state_.JudgeGroup(clock_.Wall());
    }
    const Changes changes = plan.changes();
    const absl::Duration begun = Now();
    Failpoint("before_commit");
    absl::StatusOr<std::vector<int64_t>> ids = std::vector<int64_t>();
    if (const absl::Status looked_up = JudgeUnknown(store_, plan); !looked_up.ok()) {
      ids = looked_up;
    } else if (changes.size() > 0) {
      ids = store_.Commit(changes);
    }
    Failpoint("after_commit");
    const absl::Status stored = ids.status();
    if (stored.ok()) TellOfPassedOver(plan.records, *ids);
    Count(plan, stored, Now() - begun);
    Locked([&](Actions& actions) { state_.FinishGroup(std::move(plan), stored, Now(), actions); });
  }
}

void ServerCore::Count(const CoreState::CommitPlan& plan, const absl::Status& stored, absl::Duration took) {
  if (!plan.records.empty()) metrics().Observe(Metric::kStoreCommitSeconds, absl::ToDoubleSeconds(took));
  if (!stored.ok()) {
    metrics().Add(Metric::kFailures, "store");
    return;
  }
  metrics().Observe(Metric::kCommitGroupResults, static_cast<double>(plan.fresh.size()));
  for (const ItemResult& result : plan.fresh) metrics().Add(Metric::kTrials, Text(result.outcome()));
  const int64_t measured =
      std::ranges::count_if(plan.fresh, [](const ItemResult& result) { return IsMeasured(result.outcome()); });
  throughput_.Add(clock_.Wall(), measured, static_cast<int64_t>(plan.fresh.size()) - measured);
  for (const CoreState::Submission& submission : plan.submissions) {
    metrics().Add(Metric::kAcks, "", static_cast<double>(std::ranges::count(submission.acks, true)));
    metrics().Add(Metric::kFailures, "conflicting_result", submission.contradicting);
  }
}

// --- workers ---

absl::StatusOr<std::string> ServerCore::Register(const WorkerInfo& info) {
  return Locked([&](Actions&) { return state_.Register(info, Now()); });
}

int64_t ServerCore::NewTicket() {
  return Locked([&](Actions&) { return state_.NewTicket(); });
}

void ServerCore::Sync(SyncCall call, SyncDone done) {
  const absl::Duration begun = Now();
  Locked([&](Actions& actions) { state_.Sync(std::move(call), std::move(done), Now(), actions); });
  metrics().Observe(Metric::kSyncSeconds, absl::ToDoubleSeconds(Now() - begun));
}

void ServerCore::BreakSync(int64_t ticket) {
  Locked([&](Actions& actions) { state_.BreakSync(ticket, Now(), actions); });
}

absl::Status ServerCore::Leave(const std::string& session, const std::string& holder, const std::string& reason) {
  return Locked([&](Actions& actions) { return state_.Leave(session, holder, reason, Now(), actions); });
}

void ServerCore::HoldBack(const std::string& session, const std::string& reason) {
  Locked([&](Actions&) { state_.HoldBack(session, reason); });
}

void ServerCore::HoldBackKey(const std::string& key, const std::string& reason) {
  Locked([&](Actions&) { state_.HoldBackKey(key, reason); });
}

std::set<std::string> ServerCore::HeldBack(const std::string& key) {
  return Locked([&](Actions&) { return state_.HeldBack(key); });
}

int ServerCore::AdmitDevice(const std::string& key, const std::string& fingerprint) {
  return Locked([&](Actions& actions) { return state_.AdmitDevice(key, fingerprint, Now(), actions); });
}

int ServerCore::Drain(const std::string& key, const std::string& name, const std::string& reason) {
  return Locked([&](Actions& actions) { return state_.Drain(key, name, reason, Now(), actions); });
}

int ServerCore::Undrain(const std::string& key, const std::string& name) {
  return Locked([&](Actions& actions) { return state_.Undrain(key, name, Now(), actions); });
}

void ServerCore::SubmitResults(std::vector<ItemResult> results, SubmitDone done) {
  for (ItemResult& result : results) result = Checked(std::move(result));
  Locked([&](Actions& actions) { state_.Submit(std::move(results), std::move(done), actions); });
}

Dispatcher::SessionList ServerCore::Sessions(size_t offset, size_t most) {
  return Locked([&](Actions&) { return state_.Sessions(offset, most); });
}

Dispatcher::SessionPage ServerCore::SessionsAfter(const std::string& after, size_t most) {
  return Locked([&](Actions&) { return state_.SessionsAfter(after, most); });
}

void ServerCore::NoteAwaited(const std::string& who, const std::string& key) {
  Locked([&](Actions&) { state_.NoteAwaited(who, key, Now()); });
}

FleetStatus ServerCore::Status() {
  FleetStatus status = Locked([&](Actions&) { return state_.Status(); });
  status.tick_age = TickAge();
  return status;
}

absl::Duration ServerCore::TickAge() const { return Now() - absl::Milliseconds(ticked_ms_.load()); }

// --- clients ---

absl::StatusOr<int64_t> ServerCore::SubmitJob(JobSpec spec, std::string request) {
  spec.wait_for_device = std::min(spec.wait_for_device, options().longest_wait);
  const size_t bytes = RequestBytes(spec);
  const std::string owner = spec.owner, request_id = spec.request_id;
  // Before anything is made of it: many at once get no more places than there are.
  int64_t known = 0;
  TEMPER_RETURN_IF_ERROR(Locked([&](Actions&) {
    known = state_.FindRequest(owner, request_id);
    return known != 0 ? absl::OkStatus() : state_.ReservePlace(owner, bytes, request_id);
  }));
  if (known != 0) return known;
  const absl::StatusOr<int64_t> id = CreateJob(std::move(spec), std::move(request));
  Locked([&](Actions&) { state_.GiveBackPlace(owner, bytes, request_id); });
  return id;
}

absl::StatusOr<int64_t> ServerCore::CreateJob(JobSpec spec, std::string request) {
  TEMPER_ASSIGN_OR_RETURN(JobPlan plan, PlanJob(std::move(spec), options().loop, clock_.Wall()));
  // A command's job ends with its command, which does not outlive the server.
  if (!plan.spec.close_with_command) plan.row.request = std::move(request);
  TEMPER_ASSIGN_OR_RETURN(const int64_t id, store_.CreateJob(plan.row));
  plan.row.request.clear();
  plan.spec.id = plan.row.id = id;
  LogInfo({.job = id, .key = plan.row.device_key}, "a job begins: {}, {} tasks", plan.row.model, plan.tasks.size());
  JobRow row = plan.row;
  if (Run(std::move(plan))) return id;
  row.state = "abandoned";
  row.reason = "the server was shut down";
  TEMPER_RETURN_IF_ERROR(store_.UpdateJob(row));
  return absl::UnavailableError(row.reason);
}

void ServerCore::SetPriority(int64_t id, int priority, PriorityDone done) {
  Locked([&](Actions& actions) { state_.SetPriority(id, priority, std::move(done), actions); });
}

absl::Status ServerCore::CancelJob(int64_t id, const std::string& reason) {
  const std::shared_ptr<JobPort> job = Locked([&](Actions&) { return state_.FindJob(id); });
  if (job == nullptr) return store_.GetJob(id).status();  // one that is over needs no cancelling
  job->Stop("cancelled", reason);
  return absl::OkStatus();
}

int ServerCore::CancelJobsOf(const std::string& owner, const std::function<bool(const std::string&)>& whose,
                             const std::string& reason) {
  int cancelled = 0;
  for (const std::shared_ptr<JobPort>& job : Locked([&](Actions&) { return state_.JobsOf(owner); })) {
    if (!whose(job->spec().device_key)) continue;
    job->Stop("cancelled", reason);
    ++cancelled;
  }
  return cancelled;
}

absl::StatusOr<std::vector<JobRow>> ServerCore::Jobs(const JobFilter& filter) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<JobRow> rows, store_.Jobs(filter));
  for (JobRow& row : rows) {
    const std::shared_ptr<JobFeed> feed = FindJob(row.id);
    if (feed != nullptr && !feed->over()) row = feed->row();
  }
  return rows;
}

std::shared_ptr<JobFeed> ServerCore::FindJob(int64_t id) {
  return Locked([&](Actions&) { return state_.FindFeed(id); });
}

// --- what jobs ask for ---

std::vector<int64_t> ServerCore::Submit(Work work) {
  return Locked([&](Actions& actions) { return state_.AddWork(std::move(work), Now(), actions); });
}

void ServerCore::Withdraw(const std::vector<int64_t>& items) {
  Locked([&](Actions& actions) { state_.Withdraw(items, Now(), actions); });
}

std::optional<WorkerInfo> ServerCore::FindWorker(const DeviceKind& kind) {
  return Locked([&](Actions&) { return state_.FindWorker(kind); });
}

int ServerCore::Slots(const DeviceKind& kind) {
  return Locked([&](Actions&) { return state_.Slots(kind); });
}

std::string ServerCore::WhyNoWorker(const DeviceKind& kind) {
  return Locked([&](Actions&) { return state_.WhyNoWorker(kind); });
}

std::vector<WorkItem> ServerCore::Unsettled(int64_t job) {
  return Locked([&](Actions&) { return state_.Unsettled(job); });
}

absl::Duration ServerCore::GrantedAt(const std::vector<int64_t>& items) {
  return Locked([&](Actions&) { return state_.GrantedAt(items); });
}

bool ServerCore::TryBeginJob(int64_t job) {
  return Locked([&](Actions&) { return state_.TryBeginJob(job); });
}

void ServerCore::LeavePlace(int64_t job) {
  Locked([&](Actions&) { state_.LeavePlace(job); });
}

bool ServerCore::TryBeginSearch(int64_t job) {
  return Locked([&](Actions&) { return state_.TryBeginSearch(job); });
}

void ServerCore::EndSearch(int64_t job) {
  Locked([&](Actions& actions) { state_.EndSearch(job, Now(), actions); });
}

void ServerCore::JobOver(int64_t job) {
  Locked([&](Actions& actions) {
    state_.JobOver(job, Now(), actions);
    const std::shared_ptr<JobFeed> over = state_.FindFeed(job);
    const std::string state = over == nullptr ? "" : over->state();
    if (IsFinalJobState(state)) metrics().Add(Metric::kJobsEnded, state);  // else the next server goes on with it
  });
}

}  // namespace temper
