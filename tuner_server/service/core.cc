#include "tuner_server/service/core.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "compiler/graph/graph.h"
#include "proto/convert.h"
#include "tuner_server/search/tuner.h"

namespace temper {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr int kTicksBetweenPokes = 3;  // watchers hear of progress at most every 300 ms
constexpr size_t kLongestError = 1024;

absl::Status Stopping() { return absl::UnavailableError("the server is shutting down"); }

std::string JobText(const JobSpec& spec) {
  return nlohmann::ordered_json{{"model", spec.model},
                                {"device_key", spec.device_key},
                                {"tuner", spec.tuner},
                                {"trials", spec.trials},
                                {"trials_per_task", spec.trials_per_task},
                                {"early_stopping", spec.early_stopping},
                                {"early_stopping_model", spec.early_stopping_model},
                                {"min_gain", spec.min_gain},
                                {"time_budget_s", absl::ToDoubleSeconds(spec.time_budget)},
                                {"seed", spec.seed},
                                {"revalidate", spec.revalidate},
                                {"booster", spec.booster},
                                {"workloads", spec.workloads.size()}}
      .dump();
}

// What a worker sends is not believed: a measurement without sound samples is the worker's failure.
ItemResult Checked(ItemResult result) {
  const auto sound = [](const std::vector<double>& samples) {
    return !samples.empty() &&
           std::all_of(samples.begin(), samples.end(), [](double s) { return std::isfinite(s) && s > 0; });
  };
  const bool measured = result.outcome == "ok" || result.outcome == "raced_out";
  if (!IsOutcome(result.outcome) || (measured && !sound(result.costs_s))) {
    result.error = absl::StrCat("the worker answered '", result.outcome, "' without sound samples");
    result.outcome = "infrastructure";
  }
  if (result.outcome != "ok" && result.outcome != "raced_out") result.costs_s.clear();
  if (result.error.size() > kLongestError) result.error.resize(kLongestError);
  return result;
}

absl::StatusOr<std::vector<Task>> TasksOf(const JobSpec& spec) {
  if (spec.workloads.empty()) {
    TEMPER_ASSIGN_OR_RETURN(const Graph graph, GraphFromJson(*spec.graph_json));
    return ExtractTasks(graph);
  }
  std::vector<Task> tasks;
  for (const std::string& text : spec.workloads) {
    TEMPER_ASSIGN_OR_RETURN(Workload workload, ParseWorkload(text));
    tasks.push_back({std::move(workload), 1});
  }
  return tasks;
}

}  // namespace

ServerCore::ServerCore(Store& store, const Clock& clock, CoreOptions options)
    : store_(store), clock_(clock), options_(std::move(options)), dispatcher_(options_.dispatch) {}

ServerCore::~ServerCore() { Stop(); }

absl::Status ServerCore::Start() {
  TEMPER_RETURN_IF_ERROR(CloseAbandoned());
  ticker_ = std::thread([this] { TickerLoop(); });
  committer_ = std::thread([this] { CommitterLoop(); });
  return absl::OkStatus();
}

absl::Status ServerCore::CloseAbandoned() {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> rows, store_.Jobs());
  for (JobRow row : rows) {
    if (IsFinalJobState(row.state)) continue;
    row.state = "abandoned";
    row.reason = "its server ended before it did";
    row.trials = 0;
    const RecordFilter trials{.purpose = "search", .outcome = "ok", .job = row.id};
    TEMPER_RETURN_IF_ERROR(store_.Scan(trials, [&](const Record&) { ++row.trials; }));
    row.updated_unix_ms = absl::ToUnixMillis(clock_.Wall());
    TEMPER_RETURN_IF_ERROR(store_.UpdateJob(row));
    spdlog::info("job {} was left by a server that is gone: abandoned", row.id);
  }
  return absl::OkStatus();
}

void ServerCore::Stop() {
  std::map<int64_t, std::shared_ptr<JobRunner>> jobs;
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    jobs = jobs_;
    for (auto& [ticket, parked] : parked_) actions.push_back([done = std::move(parked.done)] { done(Stopping()); });
    parked_.clear();
    ticker_wake_.notify_all();
  }
  for (auto& action : actions) action();
  for (auto& [id, job] : jobs) job->Stop("abandoned", "the server was shut down");
  {
    std::lock_guard lock(queue_mutex_);
    queue_closed_ = true;
    queue_wake_.notify_all();
  }
  if (ticker_.joinable()) ticker_.join();
  if (committer_.joinable()) committer_.join();
  for (auto& [id, job] : jobs) job->Join();
}

// --- workers ---

absl::StatusOr<std::string> ServerCore::Register(const WorkerInfo& info) {
  if (info.device_key.empty()) return absl::InvalidArgumentError("a worker needs a device key");
  TEMPER_RETURN_IF_ERROR(ParseTarget(info.target).status());
  std::lock_guard lock(mutex_);
  if (stopping_) return Stopping();
  const std::string session = dispatcher_.Register(info, Now());
  spdlog::info("worker {} serves device key '{}' ({})", info.name, info.device_key, info.fingerprint);
  WakeAllJobs();
  return session;
}

int64_t ServerCore::NewTicket() {
  std::lock_guard lock(mutex_);
  return next_ticket_++;
}

void ServerCore::Sync(SyncCall call, std::function<void(const absl::StatusOr<Dispatcher::SyncOutcome>&)> done) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      actions.push_back([done = std::move(done)] { done(Stopping()); });
    } else {
      for (auto older = parked_.begin(); older != parked_.end();) {
        if (older->second.call.session != call.session) {
          ++older;
          continue;
        }
        actions.push_back([done = std::move(older->second.done)] { done(Dispatcher::SyncOutcome()); });
        older = parked_.erase(older);
      }
      const Dispatcher::SyncOutcome outcome = dispatcher_.Sync(call.session, call.held, call.free_slots, Now());
      const absl::Duration wait = std::min(call.wait, options_.longest_poll);
      if (!outcome.empty() || wait <= absl::ZeroDuration()) {
        actions.push_back([done = std::move(done), outcome] { done(outcome); });
      } else {
        const int64_t ticket = call.ticket;
        parked_.emplace(ticket, Parked{std::move(call), Now() + wait, std::move(done)});
      }
      AfterChange(actions);
    }
  }
  for (auto& action : actions) action();
}

void ServerCore::BreakSync(int64_t ticket) {
  std::function<void(const absl::StatusOr<Dispatcher::SyncOutcome>&)> done;
  {
    std::lock_guard lock(mutex_);
    const auto parked = parked_.find(ticket);
    if (parked == parked_.end()) return;
    dispatcher_.ConnectionBroke(parked->second.call.session, Now());
    done = std::move(parked->second.done);
    parked_.erase(parked);
  }
  done(Dispatcher::SyncOutcome());
}

void ServerCore::SubmitResults(std::vector<ItemResult> results,
                               std::function<void(const absl::StatusOr<std::vector<bool>>&)> done) {
  for (ItemResult& result : results) result = Checked(std::move(result));
  {
    std::lock_guard lock(queue_mutex_);
    if (!queue_closed_) {
      queue_.push_back({std::move(results), std::move(done)});
      queue_wake_.notify_all();
      return;
    }
  }
  done(Stopping());
}

void ServerCore::HoldOrRelease() { dispatcher_.HoldSharedCores(!searching_.empty() || !search_wanted_.empty()); }

void ServerCore::AfterChange(Actions& actions) {
  if (!search_wanted_.empty() && !dispatcher_.SharedCoresBusy()) {
    for (const int64_t job : search_wanted_) {
      if (const auto found = jobs_.find(job); found != jobs_.end()) found->second->Wake();
    }
  }
  for (auto next = parked_.begin(); next != parked_.end();) {
    const SyncCall& call = next->second.call;
    Dispatcher::SyncOutcome outcome = dispatcher_.Poll(call.session, call.held, call.free_slots, Now());
    if (outcome.empty()) {
      ++next;
      continue;
    }
    actions.push_back([done = std::move(next->second.done), outcome = std::move(outcome)] { done(outcome); });
    next = parked_.erase(next);
  }
}

void ServerCore::WakeAllJobs() {
  for (const auto& [id, job] : jobs_) job->Wake();
}

// --- time ---

void ServerCore::TickerLoop() {
  for (int tick = 0;; ++tick) {
    Actions actions;
    {
      std::unique_lock lock(mutex_);
      ticker_wake_.wait_for(lock, absl::ToChronoMilliseconds(kTick), [this] { return stopping_; });
      if (stopping_) return;
      Tick(actions);
      if (tick % kTicksBetweenPokes == 0) {
        for (const auto& [id, job] : jobs_) {
          if (!over_at_.contains(id)) actions.push_back([job = job] { job->PokeWatchers(); });
          if (!job->over() && job->Orphaned(Now(), options_.orphan_grace)) {
            job->Stop("cancelled", "its command is gone");
          }
        }
      }
    }
    for (auto& action : actions) action();
  }
}

void ServerCore::Tick(Actions& actions) {
  const absl::Duration now = Now();
  for (auto next = parked_.begin(); next != parked_.end();) {
    if (next->second.deadline > now) {
      ++next;
      continue;
    }
    actions.push_back([done = std::move(next->second.done)] { done(Dispatcher::SyncOutcome()); });
    next = parked_.erase(next);
  }
  if (dispatcher_.Tick(now)) WakeAllJobs();
  if (std::vector<Dispatcher::GivenUp> given_up = dispatcher_.TakeGivenUp(); !given_up.empty()) {
    std::lock_guard lock(queue_mutex_);
    std::move(given_up.begin(), given_up.end(), std::back_inserter(given_up_));
    queue_wake_.notify_all();
  }
  for (auto over = over_at_.begin(); over != over_at_.end();) {
    if (now - over->second < options_.forget_after) {
      ++over;
      continue;
    }
    dispatcher_.ForgetJob(over->first);
    // The thread that is joined has ended long ago.
    jobs_.erase(over->first);
    over = over_at_.erase(over);
  }
  AfterChange(actions);
}

// --- results ---

Record ServerCore::MakeRecord(const Work& work, const WorkItem& item, const WorkerInfo& worker,
                              const ItemResult& result) const {
  Record record;
  const bool is_final = work.kind == WorkKind::kFinals;
  record.workload = is_final ? item.workload : work.workload;
  record.anchor = is_final ? item.anchor : work.anchor;
  record.target = work.target;
  record.device_key = work.device_key;
  record.fingerprint = worker.fingerprint;
  record.threads = worker.threads;
  record.cache_policy = work.plan.cache_policy;
  record.template_name = item.template_name;
  record.template_version = item.template_version;
  record.config = item.config;
  record.codegen_id = work.codegen_id;
  record.purpose = !is_final ? "search" : work.revalidate ? "revalidate" : "final";
  if (MeasuredInNoise(work.kind, item, result)) record.purpose = "canary";
  // Raced out is a measurement like any other, with too few samples to ever be best.
  record.outcome = result.outcome == "raced_out" ? "ok" : result.outcome;
  record.error = result.error;
  record.costs_s = result.costs_s;
  record.tuner = work.tuner;
  record.job = work.job;
  record.time_unix_ms = absl::ToUnixMillis(clock_.Wall());
  return record;
}

void ServerCore::CommitterLoop() {
  while (true) {
    std::vector<Submission> group;
    std::vector<Dispatcher::GivenUp> given_up;
    {
      std::unique_lock lock(queue_mutex_);
      queue_wake_.wait(lock, [this] { return queue_closed_ || !queue_.empty() || !given_up_.empty(); });
      group.swap(queue_);
      given_up.swap(given_up_);
      if (group.empty() && given_up.empty()) return;
    }
    const absl::Status committed = CommitGroup(group, std::move(given_up));
    if (committed.ok()) {
      store_fails_since_ = absl::InfiniteDuration();
      continue;
    }
    StoreFails(committed);
    for (Submission& submission : group) {
      submission.done(absl::UnavailableError(absl::StrCat("results could not be stored: ", committed.message())));
    }
  }
}

// A full disk may be freed, and workers send again until then; but no job waits for that without an end.
void ServerCore::StoreFails(const absl::Status& why) {
  const std::string line = absl::StrCat("results could not be stored: ", why.message());
  if (store_fails_since_ == absl::InfiniteDuration()) {
    store_fails_since_ = Now();
    spdlog::error("{}", line);
  }
  if (Now() - store_fails_since_ < options_.store_patience) return;
  std::lock_guard lock(mutex_);
  for (const auto& [id, job] : jobs_) job->Stop("failed", line);
}

// Many submissions, one transaction: what waits while one is written goes with the next.
absl::Status ServerCore::CommitGroup(std::vector<Submission>& group, std::vector<Dispatcher::GivenUp> given_up) {
  std::vector<Record> records;
  std::vector<std::vector<bool>> acks;
  std::vector<ItemResult> fresh;
  std::vector<std::pair<int64_t, ItemResult>> deliveries;
  {
    std::lock_guard lock(mutex_);
    std::set<std::tuple<int64_t, int64_t, int>> seen;
    for (const Submission& submission : group) {
      std::vector<bool>& acked = acks.emplace_back();
      for (const ItemResult& result : submission.results) {
        const Dispatcher::Verdict verdict = dispatcher_.Judge(result);
        acked.push_back(verdict.judgement != Dispatcher::Judgement::kConflict);
        if (!acked.back()) {
          spdlog::warn("lease {} item {} attempt {}: a second result contradicts the first: refused", result.lease,
                       result.item, result.attempt);
        }
        const bool first = verdict.judgement == Dispatcher::Judgement::kFirst;
        const bool late = verdict.judgement == Dispatcher::Judgement::kLate;
        const bool again = verdict.judgement == Dispatcher::Judgement::kRequeue;
        if (!first && !late && !again) continue;
        if (!seen.insert({result.lease, result.item, result.attempt}).second) continue;
        fresh.push_back(result);
        if (!again && verdict.work->kind != WorkKind::kModel) {
          records.push_back(MakeRecord(*verdict.work, verdict.item, verdict.worker, result));
        }
        if (!first) continue;
        deliveries.emplace_back(verdict.work->job, result);
        deliveries.back().second.item = verdict.item.id;  // a model's result names its lease alone
      }
    }
  }
  for (const Dispatcher::GivenUp& lost : given_up) {
    const ItemResult result{
        .item = lost.item.id, .attempt = lost.attempt, .outcome = "infrastructure", .error = lost.error};
    if (lost.work->kind != WorkKind::kModel) records.push_back(MakeRecord(*lost.work, lost.item, lost.worker, result));
    deliveries.emplace_back(lost.work->job, result);
  }
  absl::Status stored;
  if (!records.empty()) stored = store_.Append(records).status();
  // What was given up is told anyway: nobody would send it again.
  if (!stored.ok() && given_up.empty()) return stored;
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    if (stored.ok()) {
      for (const ItemResult& result : fresh) dispatcher_.Commit(result, Now());
    }
    for (const auto& [job, result] : deliveries) {
      const bool lost = result.lease == 0;
      const auto found = jobs_.find(job);
      if (found != jobs_.end() && (stored.ok() || lost)) found->second->Deliver(result);
    }
    AfterChange(actions);
  }
  // The acknowledgement first: the worker's next call comes while the job thinks.
  if (stored.ok()) {
    for (size_t i = 0; i < group.size(); ++i) group[i].done(acks[i]);
  }
  for (auto& action : actions) action();
  return stored;
}

// --- clients ---

absl::StatusOr<int64_t> ServerCore::SubmitJob(JobSpec spec) {
  const TunerDef* tuner = FindTuner(spec.tuner);
  JobLoopOptions loop = options_.loop;
  if (tuner == nullptr && !loop.make_tuner) {
    std::string names;
    for (const TunerDef& def : AllTuners()) absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(def.name));
    return absl::InvalidArgumentError(absl::StrCat("no tuner '", spec.tuner, "'; there are: ", names));
  }
  if (!loop.make_tuner) loop.make_tuner = tuner->make;
  TEMPER_ASSIGN_OR_RETURN(std::vector<Task> tasks, TasksOf(spec));
  JobRow row;
  row.model = spec.model;
  row.device_key = spec.device_key;
  row.tuner = spec.tuner;
  row.codegen_id = spec.codegen_id;
  row.spec = JobText(spec);
  row.model_hash = ModelHash(tasks);
  row.created_unix_ms = row.updated_unix_ms = absl::ToUnixMillis(clock_.Wall());
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return Stopping();
    if (static_cast<int>(jobs_.size() - over_at_.size()) >= options_.most_jobs) {
      return absl::ResourceExhaustedError(absl::StrCat(options_.most_jobs, " jobs are running already"));
    }
  }
  TEMPER_ASSIGN_OR_RETURN(row.id, store_.CreateJob(row));
  spec.id = row.id;
  spdlog::info("job {}: {}, {} tasks, device key '{}'", row.id, row.model, tasks.size(), row.device_key);
  auto job = std::make_shared<JobRunner>(static_cast<JobHost&>(*this), std::move(spec), std::move(tasks), row,
                                         std::move(loop));
  std::lock_guard lock(mutex_);
  if (stopping_) job->Stop("abandoned", "the server was shut down");
  jobs_[row.id] = job;
  job->Start();
  return row.id;
}

absl::Status ServerCore::CancelJob(int64_t id) {
  if (const std::shared_ptr<JobRunner> job = FindJob(id)) {
    job->Stop("cancelled", "cancelled by request");
    return absl::OkStatus();
  }
  return store_.GetJob(id).status();  // one that is over needs no cancelling
}

absl::StatusOr<std::vector<JobRow>> ServerCore::Jobs() {
  TEMPER_ASSIGN_OR_RETURN(std::vector<JobRow> rows, store_.Jobs());
  std::lock_guard lock(mutex_);
  for (JobRow& row : rows) {
    const auto job = jobs_.find(row.id);
    if (job != jobs_.end() && !job->second->over()) row = job->second->row();
  }
  return rows;
}

std::vector<Dispatcher::SessionView> ServerCore::Sessions() {
  std::lock_guard lock(mutex_);
  return dispatcher_.Sessions();
}

std::shared_ptr<JobRunner> ServerCore::FindJob(int64_t id) {
  std::lock_guard lock(mutex_);
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : job->second;
}

// --- what jobs ask for ---

std::vector<int64_t> ServerCore::Submit(Work work) {
  Actions actions;
  std::vector<int64_t> ids;
  {
    std::lock_guard lock(mutex_);
    ids = dispatcher_.Add(std::move(work));
    AfterChange(actions);
  }
  for (auto& action : actions) action();
  return ids;
}

void ServerCore::Withdraw(const std::vector<int64_t>& items) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    dispatcher_.Withdraw(items);
    AfterChange(actions);
  }
  for (auto& action : actions) action();
}

std::optional<WorkerInfo> ServerCore::FindWorker(const JobSpec& spec, const std::string& target) {
  std::lock_guard lock(mutex_);
  return dispatcher_.FindWorker(spec.device_key, spec.codegen_id, target);
}

int ServerCore::Slots(const JobSpec& spec, const std::string& target) {
  std::lock_guard lock(mutex_);
  return dispatcher_.Slots(spec.device_key, spec.codegen_id, target);
}

std::string ServerCore::WhyNoWorker(const JobSpec& spec) {
  std::lock_guard lock(mutex_);
  return dispatcher_.WhyNoWorker(spec.device_key, spec.codegen_id);
}

bool ServerCore::TryBeginSearch(int64_t job) {
  std::lock_guard lock(mutex_);
  const bool busy = dispatcher_.SharedCoresBusy();
  if (busy) {
    search_wanted_.insert(job);
  } else {
    search_wanted_.erase(job);
    searching_.insert(job);
  }
  HoldOrRelease();
  return !busy;
}

void ServerCore::EndSearch(int64_t job) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    if (search_wanted_.erase(job) + searching_.erase(job) == 0) return;
    HoldOrRelease();
    AfterChange(actions);
  }
  for (auto& action : actions) action();
}

void ServerCore::JobOver(int64_t job) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    dispatcher_.CancelJob(job);
    over_at_[job] = Now();
    AfterChange(actions);
  }
  for (auto& action : actions) action();
}

}  // namespace temper
