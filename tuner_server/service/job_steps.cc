#include "tuner_server/service/job_steps.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/utf8.h"
#include "cost_model/shipped.h"

namespace temper {
namespace {

// A worker that is being started again gets so long, whatever the job would wait for a first one.
constexpr absl::Duration kWorkerRestart = absl::Seconds(60);
constexpr absl::Duration kStoreAgain = absl::Seconds(1);
constexpr char kSuspended[] = "suspended";
constexpr char kAbandoned[] = "abandoned";     // the server ends, and waits for no disk
constexpr int64_t kRecordsToLearnFrom = 4000;  // of each template, the newest
constexpr size_t kBytesToLearnFrom = 16 << 20;
constexpr int64_t kPutToTry = 4000;  // of a task, the newest
constexpr size_t kPutBytes = 4 << 20;

nlohmann::ordered_json Counts(const std::map<Outcome, int>& outcomes) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const auto& [outcome, count] : outcomes) counts[std::string(Text(outcome))] = count;
  return counts;
}

// Records that are kept while a job learns from them, as far as there is room: each without what no search reads of it.
class KeptRecords {
 public:
  explicit KeptRecords(size_t room) : room_(room) {}

  void Add(const Record& r, const std::string& workload) {
    const size_t bytes = sizeof(Record) + workload.size() + r.template_name.size() + r.config.size() +
                         r.costs_s.size() * sizeof(r.costs_s[0]);
    if (bytes > room_) return;
    room_ -= bytes;
    records_.push_back({.workload = workload,
                        .template_name = r.template_name,
                        .template_version = r.template_version,
                        .config = r.config,
                        .purpose = r.purpose,
                        .outcome = r.outcome,
                        .costs_s = r.costs_s,
                        .job = r.job,
                        .origin = r.origin});
  }
  std::vector<Record> Take() { return std::move(records_); }

 private:
  size_t room_;
  std::vector<Record> records_;
};

}  // namespace

void JobInput::Stop(const std::string& state, const std::string& reason) {
  server_ends = server_ends || state == kSuspended || state == kAbandoned;
  if (!stop_state.empty()) return;
  stop_state = state;
  stop_reason = reason;
}

JobSteps::JobSteps(JobHost& host, JobPlan plan)
    : host_(host),
      spec_(std::move(plan.spec)),
      kind_{spec_.device_key, plan.row.target, plan.row.codegen_id},
      options_(std::move(plan.loop)),
      started_(host.clock().Monotonic() - spec_.earlier_time.value_or(absl::ZeroDuration())),
      tasks_(std::move(plan.tasks)),
      wait_until_(host.clock().Monotonic() +
                  std::max(spec_.wait_for_device, spec_.earlier_time ? kWorkerRestart : absl::ZeroDuration())),
      row_(std::move(plan.row)) {
  view_.trials_limit = spec_.trials;
  view_.model = spec_.model;
  view_.device_key = spec_.device_key;
}

absl::Duration JobSteps::Step(const JobInput& input, absl::Duration now) {
  try {
    return StepInMemory(input, now);
  } catch (const std::bad_alloc&) {  // does not end the others
    return End(absl::ResourceExhaustedError("the server has not enough memory for this job"), now);
  }
}

absl::Duration JobSteps::StepInMemory(const JobInput& input, absl::Duration now) {
  server_ends_ = input.server_ends;
  row_.priority = input.priority.value_or(row_.priority);
  if (stop_state_.empty()) {
    stop_state_ = input.stop_state;
    stop_reason_ = input.stop_reason;
  }
  for (const ItemResult& result : input.results) {
    if (state_ < State::kLoop) {
      early_.push_back(result);
    } else if (loop_ != nullptr) {
      loop_->OnResult(result, now);
    }
  }
  if (!stop_state_.empty() && state_ < State::kFinish) {
    how_ = absl::CancelledError("stopped");
    state_ = State::kFinish;
  }
  const absl::StatusOr<absl::Duration> next = Advance(now);
  return next.ok() ? *next : End(next.status(), now);
}

absl::Duration JobSteps::End(absl::Status how, absl::Duration now) {
  if (state_ == State::kFinish) return now + kStoreAgain;  // it failed at its end alone
  how_ = std::move(how);
  state_ = State::kFinish;
  return now;
}

absl::StatusOr<absl::Duration> JobSteps::Advance(absl::Duration now) {
  switch (state_) {
    case State::kAwaitWorker:
      return AwaitWorker(now);
    case State::kWarm:
      return Warm(now);
    case State::kPrepare:
      return PrepareNext(now);
    case State::kLoop:
      return Loop(now);
    case State::kSearch:
      return Search(now);
    case State::kFinish:
      return Finish(now);
    case State::kOver:
      break;
  }
  return absl::InfiniteDuration();
}

absl::StatusOr<absl::Duration> JobSteps::AwaitWorker(absl::Duration now) {
  std::optional<WorkerInfo> worker = host_.FindWorker(kind_);
  if (!worker && now >= wait_until_) {
    // A job that goes on, of whose kind of worker none came back: others measure all of it again.
    kind_ = {.key = spec_.device_key};
    worker = host_.FindWorker(kind_);
    if (!worker) return absl::UnavailableError(host_.WhyNoWorker(kind_));
  }
  if (!worker) {
    host_.LeavePlace(spec_.id);
    ShowState("waiting_for_device");
    return wait_until_;
  }
  if (!HasPlace()) return absl::InfiniteDuration();
  worker_ = *worker;
  kind_ = {spec_.device_key, worker_.target, worker_.codegen_id};
  row_.target = view_.target = worker_.target;
  row_.codegen_id = worker_.codegen_id;
  view_.fingerprint = worker_.fingerprint;
  ShowState("running");
  TEMPER_ASSIGN_OR_RETURN(loop_, JobLoop::Create(spec_, kind_, std::move(tasks_), options_, started_));
  adopted_ = host_.Unsettled(spec_.id);
  state_ = spec_.revalidate ? State::kPrepare : State::kWarm;
  return now;
}

bool JobSteps::HasPlace() {
  has_place_ = has_place_ || host_.TryBeginJob(spec_.id);
  if (!has_place_) ShowState("queued");
  return has_place_;
}

absl::StatusOr<std::vector<Record>> JobSteps::RecordsToLearnFrom() {
  KeptRecords known(kBytesToLearnFrom);
  const auto keep = [&](const Record& record) { known.Add(record, record.workload); };
  std::set<std::string_view> templates;
  for (size_t i = 0; i < loop_->size(); ++i) {
    for (const TemplateDef* def : TemplatesFor(loop_->workload(i), loop_->target())) templates.insert(def->name);
  }
  for (const std::string_view name : templates) {
    RecordFilter filter{.target = worker_.target, .template_name = std::string(name), .purpose = "search"};
    filter.put = false;  // nobody vouches for the times of others
    filter.limit = kRecordsToLearnFrom;
    filter.newest_first = true;
    TEMPER_RETURN_IF_ERROR(host_.store().Scan(filter, keep));
  }
  // However old, what was best for a shape is worth a trial with its neighbours.
  TEMPER_RETURN_IF_ERROR(host_.store().ScanBest({.target = worker_.target, .put = false}, keep));
  return known.Take();
}

absl::StatusOr<absl::Duration> JobSteps::Warm(absl::Duration now) {
  // Read only now: what jobs hold that wait for their turn adds up.
  if (!host_.TryBeginSearch(spec_.id)) return absl::InfiniteDuration();
  const absl::Duration begun = host_.clock().Monotonic();
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Record> known, RecordsToLearnFrom());
  TEMPER_RETURN_IF_ERROR(loop_->Warm(spec_.booster ? ShippedBoosters() : std::vector<Booster>(), known));
  spdlog::debug("job {}: learned from {} records in {:.1f} ms", spec_.id, known.size(),
                absl::ToDoubleMilliseconds(host_.clock().Monotonic() - begun));
  host_.EndSearch(spec_.id);
  state_ = State::kPrepare;
  return now;
}

absl::Status JobSteps::RecordsOfTask(size_t task, const std::function<void(const Record&)>& visit) {
  // Not by fingerprint: it tells what was measured of the machine, which varies from start to start, and a job that
  // is taken up again must not repeat itself for that.
  const auto counts = [&](const Record& record) {
    return record.threads == worker_.threads && (spec_.revalidate || record.codegen_id == kind_.codegen_id);
  };
  RecordFilter filter{
      .workload = loop_->task(task).workload, .target = worker_.target, .device_key = spec_.device_key, .put = true};
  filter.limit = kPutToTry;
  filter.newest_first = true;
  KeptRecords kept(kPutBytes);
  TEMPER_RETURN_IF_ERROR(host_.store().Scan(filter, [&](const Record& record) {
    if (counts(record)) kept.Add(record, "");
  }));
  const std::vector<Record> put = kept.Take();
  std::for_each(put.rbegin(), put.rend(), visit);
  // All that were measured: each took a worker its time, and a job that is taken up again counts its own.
  filter.put = false;
  filter.limit = 0;
  filter.newest_first = false;
  return host_.store().Scan(filter, [&](const Record& record) {
    if (counts(record)) visit(record);
  });
}

absl::StatusOr<absl::Duration> JobSteps::PrepareNext(absl::Duration now) {
  if (prepared_ < loop_->size()) {
    if (!host_.TryBeginSearch(spec_.id)) return absl::InfiniteDuration();
    const absl::Duration begun = host_.clock().Monotonic();
    absl::Status read;
    const KnownRecords known = [&](const auto& visit) { read = RecordsOfTask(prepared_, visit); };
    const absl::Status prepared = loop_->PrepareTask(prepared_, known);
    const absl::Duration took = host_.clock().Monotonic() - begun;
    search_s_ += absl::ToDoubleSeconds(took);
    spdlog::debug("job {}: task {} prepared in {:.1f} ms", spec_.id, prepared_, absl::ToDoubleMilliseconds(took));
    host_.EndSearch(spec_.id);
    TEMPER_RETURN_IF_ERROR(read);
    TEMPER_RETURN_IF_ERROR(prepared);
    ++prepared_;
    return now;
  }
  loop_->Adopt(adopted_, now);
  for (const ItemResult& result : std::exchange(early_, {})) loop_->OnResult(result, now);
  ShowProgress(now);
  state_ = State::kLoop;
  return now;
}

absl::StatusOr<absl::Duration> JobSteps::Loop(absl::Duration now) {
  const std::optional<WorkerInfo> worker = host_.FindWorker(kind_);
  if (!worker) {
    host_.EndSearch(spec_.id);
    lost_since_ = std::min(lost_since_, now);
    const absl::Duration restarted = lost_since_ + kWorkerRestart;
    const absl::Duration deadline = std::max(lost_since_ + spec_.wait_for_device, restarted);
    if (now >= deadline) return absl::UnavailableError(host_.WhyNoWorker(kind_));
    ShowState("waiting_for_device");
    if (now < restarted) return restarted;
    has_place_ = false;
    host_.LeavePlace(spec_.id);
    return deadline;
  }
  lost_since_ = absl::InfiniteDuration();
  if (!HasPlace()) return absl::InfiniteDuration();
  loop_->Advance(now, host_);
  ShowProgress(now);
  if (loop_->phase() == JobLoop::Phase::kOver) {
    how_ = loop_->verdict();
    state_ = State::kFinish;
    return now;
  }
  if (loop_->NeedsSearch(host_.Slots(kind_), !worker->shares_server_cores)) {
    state_ = State::kSearch;  // a step of its own: what was learned is published before
    return now;
  }
  host_.EndSearch(spec_.id);
  return loop_->NextDeadline();
}

absl::StatusOr<absl::Duration> JobSteps::Search(absl::Duration now) {
  state_ = State::kLoop;
  if (!host_.TryBeginSearch(spec_.id)) return loop_->NextDeadline();
  const absl::Status searched = loop_->Search(now, host_, host_.Slots(kind_));
  const absl::Duration took = host_.clock().Monotonic() - now;
  search_s_ += absl::ToDoubleSeconds(took);
  spdlog::debug("job {}: searched for {:.1f} ms", spec_.id, absl::ToDoubleMilliseconds(took));
  host_.EndSearch(spec_.id);
  TEMPER_RETURN_IF_ERROR(searched);
  return now;
}

void JobSteps::DecideEnd(absl::Duration now) {
  if (loop_ != nullptr) ShowProgress(now);
  if (!stop_state_.empty() && absl::IsCancelled(how_)) {
    row_.state = stop_state_;
    row_.reason = stop_reason_;
  } else if (!how_.ok()) {
    row_.state = "failed";
    row_.reason = std::string(how_.message());
  } else {
    row_.state = "done";
  }
  if (loop_ != nullptr) {
    const double best_s = loop_->kept_default() ? loop_->untuned_s() : loop_->tuned_s();
    row_.best_ms = best_s * 1e3;
    if (row_.state == "done") row_.build_with = loop_->kept_default() ? "default" : best_s > 0 ? "tuned" : "";
  }
  row_.summary = Summary(now);
  row_.updated_unix_ms = absl::ToUnixMillis(host_.clock().Wall());
}

absl::Duration JobSteps::Finish(absl::Duration now) {
  host_.EndSearch(spec_.id);
  if (stop_state_ == kSuspended) {
    view_.state = kSuspended;
    state_ = State::kOver;
    return absl::InfiniteDuration();
  }
  if (!IsFinalJobState(row_.state)) DecideEnd(now);
  absl::Status stored = host_.store().UpdateJob(row_);
  if (absl::IsInvalidArgument(stored)) {  // an end without its details is better than none
    LogError({.job = row_.id}, "{}", stored.ToString());
    row_.reason = ToUtf8(row_.reason);
    row_.summary.clear();
    row_.build_with.clear();
    row_.best_ms = 0;
    stored = host_.store().UpdateJob(row_);
  }
  if (!stored.ok() && !absl::IsNotFound(stored) && !server_ends_) {
    if (!std::exchange(told_that_end_waits_, true))
      LogError({.job = row_.id}, "the job's end can not be stored yet: {}", stored.ToString());
    return now + kStoreAgain;
  }
  if (!stored.ok() && !absl::IsNotFound(stored)) row_.state = kSuspended;  // the next server ends it
  LogInfo({.job = row_.id, .key = row_.device_key}, "the job is {}{}{}", row_.state, row_.reason.empty() ? "" : ": ",
          row_.reason);
  // Told only when it is stored: who sees the end finds it in the database.
  view_.state = row_.state;
  view_.reason = row_.reason;
  state_ = State::kOver;
  return absl::InfiniteDuration();
}

// --- what is seen ---

void JobSteps::ShowState(const std::string& state) {
  if (view_.state == state) return;
  LogDebug({.job = spec_.id}, "the job is {}", state);
  view_.state = state;
  const bool waits = state == "waiting_for_device" || state == "queued";
  const std::string kept = loop_ == nullptr && waits ? "queued" : "running";
  if (row_.state == kept) return;
  row_.state = kept;
  StoreRow();
}

void JobSteps::StoreRow() {
  row_.updated_unix_ms = absl::ToUnixMillis(host_.clock().Wall());
  if (const absl::Status stored = host_.store().UpdateJob(row_); !stored.ok()) {
    LogWarn({.job = row_.id}, "the job's state could not be stored: {}", stored.ToString());
  }
}

void JobSteps::ShowProgress(absl::Duration now) {
  row_.trials = view_.trials = loop_->trials();
  view_.untuned_s = loop_->untuned_s();
  view_.tuned_s = loop_->tuned_s();
  view_.kept_default = loop_->kept_default();
  view_.eta_s = loop_->EtaSeconds(now);
  view_.search_s = search_s_;
  const double gain_s = loop_->ExpectedGainSeconds(now);
  view_.expected_gain_s = std::isfinite(gain_s) ? gain_s : 0;
  view_.outcomes = loop_->outcomes();
  view_.warnings = loop_->warnings();
  switch (loop_->phase()) {
    case JobLoop::Phase::kSearch:
      ShowState("running");
      break;
    case JobLoop::Phase::kFinals:
      ShowState("finals");
      break;
    case JobLoop::Phase::kModelCheck:
    case JobLoop::Phase::kOver:  // until Finish names how it ended
      ShowState("closing");
      break;
  }
}

std::vector<std::pair<size_t, TaskView>> JobSteps::TakeChangedTasks() {
  std::vector<std::pair<size_t, TaskView>> tasks;
  if (loop_ == nullptr || state_ < State::kLoop) return tasks;
  for (const size_t i : loop_->TakeChanged()) tasks.emplace_back(i, loop_->task(i));
  return tasks;
}

std::string JobSteps::Summary(absl::Duration now) const {
  if (loop_ == nullptr) return "";
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (size_t i = 0; i < loop_->size(); ++i) {
    const TaskView& view = loop_->task(i);
    tasks.push_back({{"workload", view.workload},
                     {"weight", view.weight},
                     {"alternative", view.alternative},
                     {"trials", view.trials},
                     {"failures", Counts(view.failures)},
                     {"untuned_ms", view.default_s * 1e3},
                     {"best_ms", view.best_s * 1e3},
                     {"template", view.template_name},
                     {"config", view.config},
                     {"why_done", view.why_done}});
  }
  const nlohmann::ordered_json summary = {{"model", spec_.model},
                                          {"target", worker_.target},
                                          {"device", spec_.device_key},
                                          {"trials", loop_->trials()},
                                          {"seconds", absl::ToDoubleSeconds(now - started_)},
                                          {"search_seconds", search_s_},
                                          {"outcomes", Counts(loop_->outcomes())},
                                          {"untuned_ms", loop_->untuned_s() * 1e3},
                                          {"tuned_ms", loop_->tuned_s() * 1e3},
                                          {"kept_default", loop_->kept_default()},
                                          {"warnings", loop_->warnings()},
                                          {"tasks", tasks}};
  // Warnings quote what came from elsewhere: no byte of it may make this throw.
  return summary.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace temper
