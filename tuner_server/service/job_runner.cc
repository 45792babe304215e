#include "tuner_server/service/job_runner.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "cost_model/shipped.h"
#include "proto/convert.h"
#include "tuner_server/service/wire.h"

namespace temper {
namespace {

// A worker that is being started again gets so long, whatever the job would wait for a first one.
constexpr absl::Duration kWorkerRestart = absl::Seconds(60);
// Nothing is missed by it: every event wakes the thread. It bounds what a lost wake-up could cost.
constexpr absl::Duration kLongestWait = absl::Seconds(5);
constexpr int64_t kRecordsToLearnFrom = 4000;  // of each template, the newest

int64_t UnixMs(absl::Time time) { return absl::ToUnixMillis(time); }

}  // namespace

JobRunner::JobRunner(JobHost& host, JobSpec spec, std::vector<Task> tasks, JobRow row, JobLoopOptions options)
    : host_(host),
      spec_(std::move(spec)),
      options_(std::move(options)),
      started_(host.clock().Monotonic()),
      tasks_(std::move(tasks)),
      row_(std::move(row)) {
  head_.set_state(state_);
  head_.set_trials_limit(spec_.trials);
  head_.set_model(spec_.model);
  head_.set_device_key(spec_.device_key);
}

JobRunner::~JobRunner() {
  Stop("abandoned", "the server was stopped");
  Join();
}

void JobRunner::Join() {
  if (thread_.joinable()) thread_.join();
}

void JobRunner::Start() {
  thread_ = std::thread([this] { Run(); });
}

// --- events ---

void JobRunner::Deliver(const ItemResult& result) {
  std::lock_guard lock(mutex_);
  events_.push_back(result);
  wake_.notify_all();
}

void JobRunner::Wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  wake_.notify_all();
}

void JobRunner::Stop(const std::string& state, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!stop_state_.empty()) return;
  stop_state_ = state;
  stop_reason_ = reason;
  wake_.notify_all();
}

bool JobRunner::stopped() const {
  std::lock_guard lock(mutex_);
  return !stop_state_.empty();
}

std::vector<ItemResult> JobRunner::TakeEvents() {
  std::lock_guard lock(mutex_);
  std::vector<ItemResult> events(events_.begin(), events_.end());
  events_.clear();
  woken_ = false;
  return events;
}

void JobRunner::WaitForEvent(absl::Duration until) {
  const absl::Duration left = std::clamp(until - Now(), absl::ZeroDuration(), kLongestWait);
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, absl::ToChronoNanoseconds(left),
                 [this] { return woken_ || !events_.empty() || !stop_state_.empty(); });
}

// --- the thread ---

void JobRunner::Run() {
  const absl::Status status = Drive();
  host_.EndSearch(spec_.id);
  Finish(status);
  PokeWatchers();
  host_.JobOver(spec_.id);
}

absl::Status JobRunner::Drive() {
  TEMPER_ASSIGN_OR_RETURN(const WorkerInfo worker, AwaitWorker());
  target_ = worker.target;
  {
    std::lock_guard lock(mutex_);
    row_.target = target_;
    head_.set_target(target_);
    head_.set_fingerprint(worker.fingerprint);
  }
  SetState("running");
  TEMPER_ASSIGN_OR_RETURN(loop_, JobLoop::Create(spec_, target_, std::move(tasks_), options_, started_));
  TEMPER_RETURN_IF_ERROR(Prepare(worker));
  TEMPER_RETURN_IF_ERROR(Loop());
  return loop_->verdict();
}

absl::StatusOr<WorkerInfo> JobRunner::AwaitWorker() {
  const absl::Duration deadline = Now() + spec_.wait_for_device;
  while (!stopped()) {
    TakeEvents();  // a wake-up before the question would be lost after it
    if (std::optional<WorkerInfo> worker = host_.FindWorker(spec_, "")) return *worker;
    if (Now() >= deadline) return absl::UnavailableError(host_.WhyNoWorker(spec_));
    SetState("waiting_for_device");
    WaitForEvent(deadline);
  }
  return absl::CancelledError("stopped");
}

absl::Status JobRunner::Warm() {
  std::vector<Record> records;
  const auto keep = [&](const Record& record) { records.push_back(record); };
  std::set<std::string_view> templates;
  for (size_t i = 0; i < loop_->size(); ++i) {
    for (const TemplateDef* def : TemplatesFor(loop_->workload(i))) templates.insert(def->name);
  }
  for (const std::string_view name : templates) {
    RecordFilter filter{.target = target_, .template_name = std::string(name), .purpose = "search"};
    filter.limit = kRecordsToLearnFrom;
    filter.newest_first = true;
    TEMPER_RETURN_IF_ERROR(host_.store().Scan(filter, keep));
  }
  // However old, what was best for a shape is worth a trial with its neighbours.
  TEMPER_RETURN_IF_ERROR(host_.store().ScanBest({.target = target_}, keep));
  TEMPER_RETURN_IF_ERROR(AwaitTurn());
  const absl::Duration begun = Now();
  const absl::Status warm = loop_->Warm(spec_.booster ? ShippedBoosters() : std::vector<Booster>(), records);
  spdlog::debug("job {}: learned from {} records in {:.1f} ms", spec_.id, records.size(),
                absl::ToDoubleMilliseconds(Now() - begun));
  host_.EndSearch(spec_.id);
  return warm;
}

absl::Status JobRunner::AwaitTurn() {
  while (!host_.TryBeginSearch(spec_.id)) {
    if (stopped()) return absl::CancelledError("stopped");
    WaitForEvent(absl::InfiniteDuration());
    TakeEvents();  // nothing of this job is measured yet
  }
  return absl::OkStatus();
}

absl::Status JobRunner::Prepare(const WorkerInfo& worker) {
  if (!spec_.revalidate) TEMPER_RETURN_IF_ERROR(Warm());
  for (size_t i = 0; i < loop_->size(); ++i) {
    std::vector<Record> known;
    const RecordFilter filter{.workload = loop_->task(i).workload, .target = target_, .device_key = spec_.device_key};
    // Not by fingerprint: it tells what was measured of the machine, which varies from start to start, and a job that
    // is taken up again must not repeat itself for that.
    TEMPER_RETURN_IF_ERROR(host_.store().Scan(filter, [&](const Record& record) {
      const bool comparable = spec_.revalidate || record.codegen_id == spec_.codegen_id;
      if (record.threads == worker.threads && comparable) known.push_back(record);
    }));
    TEMPER_RETURN_IF_ERROR(AwaitTurn());
    const absl::Duration begun = Now();
    const absl::Status prepared = loop_->PrepareTask(i, known);
    search_s_ += absl::ToDoubleSeconds(Now() - begun);
    spdlog::debug("job {}: task {} with {} records prepared in {:.1f} ms", spec_.id, i, known.size(),
                  absl::ToDoubleMilliseconds(Now() - begun));
    host_.EndSearch(spec_.id);
    TEMPER_RETURN_IF_ERROR(prepared);
    if (stopped()) return absl::CancelledError("stopped");
  }
  Publish();
  return absl::OkStatus();
}

absl::Status JobRunner::Loop() {
  absl::Duration lost_since = absl::InfiniteDuration();
  while (true) {
    for (const ItemResult& event : TakeEvents()) loop_->OnResult(event, Now());
    if (stopped()) return absl::CancelledError("stopped");
    const std::optional<WorkerInfo> worker = host_.FindWorker(spec_, target_);
    if (!worker) {
      host_.EndSearch(spec_.id);
      lost_since = std::min(lost_since, Now());
      const absl::Duration deadline = lost_since + std::max(spec_.wait_for_device, kWorkerRestart);
      if (Now() >= deadline) return absl::UnavailableError(host_.WhyNoWorker(spec_));
      SetState("waiting_for_device");
      WaitForEvent(deadline);
      continue;
    }
    lost_since = absl::InfiniteDuration();
    loop_->Advance(Now(), host_);
    Publish();
    if (loop_->phase() == JobLoop::Phase::kOver) return absl::OkStatus();
    if (loop_->NeedsSearch(host_.Slots(spec_, target_), !worker->shares_server_cores)) {
      if (host_.TryBeginSearch(spec_.id)) {
        const absl::Duration begun = Now();
        const absl::Status searched = loop_->Search(begun, host_);
        search_s_ += absl::ToDoubleSeconds(Now() - begun);
        spdlog::debug("job {}: searched for {:.1f} ms", spec_.id, absl::ToDoubleMilliseconds(Now() - begun));
        host_.EndSearch(spec_.id);
        TEMPER_RETURN_IF_ERROR(searched);
        continue;
      }
    } else {
      host_.EndSearch(spec_.id);
    }
    WaitForEvent(loop_->NextDeadline());
  }
}

void JobRunner::Finish(const absl::Status& status) {
  if (loop_ != nullptr) Publish();
  JobRow row;
  {
    std::lock_guard lock(mutex_);
    if (!stop_state_.empty() && absl::IsCancelled(status)) {
      row_.state = stop_state_;
      row_.reason = stop_reason_;
    } else if (!status.ok()) {
      row_.state = "failed";
      row_.reason = std::string(status.message());
    } else {
      row_.state = "done";
    }
    if (loop_ != nullptr) {
      const double best_s = loop_->kept_default() ? loop_->untuned_s() : loop_->tuned_s();
      row_.best_ms = best_s * 1e3;
      if (row_.state == "done") row_.build_with = loop_->kept_default() ? "default" : best_s > 0 ? "tuned" : "";
    }
    row_.summary = Summary();
    row_.updated_unix_ms = UnixMs(host_.clock().Wall());
    row = row_;
  }
  if (const absl::Status stored = host_.store().UpdateJob(row); !stored.ok()) {
    spdlog::error("job {}: its end could not be stored: {}", row.id, stored.ToString());
  }
  spdlog::info("job {} {}{}{}", row.id, row.state, row.reason.empty() ? "" : ": ", row.reason);
  // Told only when it is stored: who sees the end finds it in the database.
  std::lock_guard lock(mutex_);
  state_ = row.state;
  elapsed_s_ = absl::ToDoubleSeconds(Now() - started_);
  head_.set_state(state_);
  head_.set_reason(row.reason);
  state_version_ = ++version_;
}

// --- what is seen ---

void JobRunner::SetState(const std::string& state) {
  JobRow changed;
  {
    std::lock_guard lock(mutex_);
    if (state_ == state) return;
    spdlog::debug("job {}: {} after {:.2f} s", spec_.id, state, absl::ToDoubleSeconds(Now() - started_));
    state_ = state;
    head_.set_state(state);
    state_version_ = ++version_;
    const std::string kept = loop_ == nullptr && state == "waiting_for_device" ? "queued" : "running";
    if (row_.state != kept) {
      row_.state = kept;
      row_.updated_unix_ms = UnixMs(host_.clock().Wall());
      changed = row_;
    }
  }
  if (changed.id != 0) {
    if (const absl::Status stored = host_.store().UpdateJob(changed); !stored.ok()) {
      spdlog::warn("job {}: {}", changed.id, stored.ToString());
    }
  }
  PokeWatchers();
}

void JobRunner::Publish() {
  {
    std::lock_guard lock(mutex_);
    const std::set<size_t> tasks = loop_->TakeChanged();
    const size_t warnings = loop_->warnings().size();
    views_.resize(loop_->size());
    view_versions_.resize(loop_->size());
    const bool changed = !tasks.empty() || static_cast<size_t>(head_.warnings_size()) != warnings ||
                         head_.tuned_ms() != loop_->tuned_s() * 1e3;
    if (changed) ++version_;
    for (const size_t i : tasks) {
      views_[i] = loop_->task(i);
      view_versions_[i] = version_;
    }
    row_.trials = loop_->trials();
    head_.set_trials(loop_->trials());
    head_.set_untuned_ms(loop_->untuned_s() * 1e3);
    head_.set_tuned_ms(loop_->tuned_s() * 1e3);
    head_.set_kept_default(loop_->kept_default());
    head_.set_eta_s(loop_->EtaSeconds(Now()));
    head_.set_search_s(search_s_);
    const double gain_s = loop_->ExpectedGainSeconds(Now());
    head_.set_expected_gain_s(std::isfinite(gain_s) ? gain_s : 0);
    head_.mutable_outcomes()->clear();
    for (const auto& [outcome, count] : loop_->outcomes()) (*head_.mutable_outcomes())[outcome] = count;
    head_.mutable_warnings()->Assign(loop_->warnings().begin(), loop_->warnings().end());
  }
  switch (loop_->phase()) {
    case JobLoop::Phase::kSearch:
      SetState("running");
      break;
    case JobLoop::Phase::kFinals:
      SetState("finals");
      break;
    case JobLoop::Phase::kModelCheck:
    case JobLoop::Phase::kOver:  // until Finish names how it ended
      SetState("closing");
      break;
  }
}

std::string JobRunner::Summary() const {
  if (loop_ == nullptr) return "";
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (size_t i = 0; i < loop_->size(); ++i) {
    const TaskView& view = loop_->task(i);
    tasks.push_back({{"workload", view.workload},
                     {"weight", view.weight},
                     {"alternative", view.alternative},
                     {"trials", view.trials},
                     {"failures", view.failures},
                     {"untuned_ms", view.default_s * 1e3},
                     {"best_ms", view.best_s * 1e3},
                     {"template", view.template_name},
                     {"config", view.config},
                     {"why_done", view.why_done}});
  }
  const nlohmann::ordered_json summary = {{"model", spec_.model},
                                          {"target", target_},
                                          {"device", spec_.device_key},
                                          {"trials", loop_->trials()},
                                          {"seconds", absl::ToDoubleSeconds(Now() - started_)},
                                          {"search_seconds", search_s_},
                                          {"outcomes", loop_->outcomes()},
                                          {"untuned_ms", loop_->untuned_s() * 1e3},
                                          {"tuned_ms", loop_->tuned_s() * 1e3},
                                          {"kept_default", loop_->kept_default()},
                                          {"warnings", loop_->warnings()},
                                          {"tasks", tasks}};
  return summary.dump();
}

bool JobRunner::over() const {
  std::lock_guard lock(mutex_);
  return IsFinalJobState(state_);
}

JobRow JobRunner::row() const {
  std::lock_guard lock(mutex_);
  JobRow row = row_;
  row.state = state_;
  return row;
}

std::optional<v1::JobEvent> JobRunner::Since(int64_t cursor) const {
  std::lock_guard lock(mutex_);
  if (cursor >= version_) return std::nullopt;
  v1::JobEvent event = head_;
  event.set_cursor(version_);
  event.set_elapsed_s(elapsed_s_ > 0 ? elapsed_s_ : absl::ToDoubleSeconds(Now() - started_));
  for (size_t i = 0; i < views_.size(); ++i) {
    if (view_versions_[i] > cursor) *event.add_tasks() = ToWire(views_[i], static_cast<int>(i));
  }
  return event;
}

bool JobRunner::StateChangedSince(int64_t cursor) const {
  std::lock_guard lock(mutex_);
  return state_version_ > cursor;
}

void JobRunner::AddWatcher(const std::shared_ptr<JobWatcher>& watcher) {
  std::lock_guard lock(mutex_);
  watchers_.push_back(watcher);
  was_watched_ = true;
}

void JobRunner::RemoveWatcher(const std::shared_ptr<JobWatcher>& watcher) {
  std::lock_guard lock(mutex_);
  std::erase(watchers_, watcher);
  if (watchers_.empty()) unwatched_since_ = Now();
}

void JobRunner::PokeWatchers() {
  std::vector<std::shared_ptr<JobWatcher>> watchers;
  {
    std::lock_guard lock(mutex_);
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher->Poke();
}

bool JobRunner::Orphaned(absl::Duration now, absl::Duration grace) const {
  std::lock_guard lock(mutex_);
  return spec_.close_with_command && was_watched_ && watchers_.empty() && now - unwatched_since_ >= grace;
}

}  // namespace temper
