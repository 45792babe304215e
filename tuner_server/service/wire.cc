#include "tuner_server/service/wire.h"

#include "base/utf8.h"
#include "proto/convert_trial.h"

namespace temper {
namespace {

absl::Duration Milliseconds(int64_t ms) { return absl::Milliseconds(ms); }

BatchWork BatchOf(const Work& work) {
  return {work.workload, work.target, work.incumbent_s, work.plan, {work.items.begin(), work.items.end()}};
}

FinalsWork FinalsOf(const Work& work) {
  FinalsWork out{work.model, {}};
  for (const WorkItem& item : work.items) {
    if (out.tasks.empty() || out.tasks.back().workload != item.workload) out.tasks.push_back({item.workload, {}});
    out.tasks.back().candidates.push_back(item);
  }
  return out;
}

v1::TaskProgress TaskToWire(const TaskView& view, int index) {
  v1::TaskProgress out;
  out.set_task(index);
  out.set_workload(view.workload);
  out.set_weight(view.weight);
  out.set_flops(view.flops);
  out.set_trials(view.trials);
  for (const auto& [outcome, count] : view.failures) (*out.mutable_failures())[std::string(Text(outcome))] = count;
  out.set_default_s(view.default_s);
  out.set_best_s(view.best_s);
  out.set_template_name(view.template_name);
  out.set_config(view.config);
  out.set_done(view.done);
  out.set_why_done(view.why_done);
  out.set_alternative(view.alternative);
  return out;
}

}  // namespace

WorkerInfo FromWire(const v1::RegisterRequest& request) {
  WorkerInfo info;
  info.device_key = request.device_key();
  info.fingerprint = request.fingerprint();
  info.target = request.target();
  info.codegen_id = request.codegen_id();
  info.name = request.name();
  info.threads = request.threads();
  info.slots = request.slots();
  info.shares_server_cores = request.shares_server_cores();
  info.instance = request.instance();
  info.wire_version = request.wire_version();
  info.sandbox = request.sandbox();
  return info;
}

v1::RegisterRequest ToWire(const WorkerInfo& worker) {
  v1::RegisterRequest out;
  out.set_device_key(worker.device_key);
  out.set_fingerprint(worker.fingerprint);
  out.set_target(worker.target);
  out.set_codegen_id(worker.codegen_id);
  out.set_name(worker.name);
  out.set_threads(worker.threads);
  out.set_slots(worker.slots);
  out.set_shares_server_cores(worker.shares_server_cores);
  out.set_instance(worker.instance);
  out.set_wire_version(worker.wire_version);
  out.set_sandbox(worker.sandbox);
  return out;
}

ItemResult ItemResultOf(const v1::CandidateResult& r) {
  return {.lease = r.lease(), .item = r.candidate(), .attempt = r.attempt(), .trial = FromWire(r)};
}

ItemResult ItemResultOf(const v1::ModelResult& r) { return {.lease = r.lease(), .model = FromWire(r)}; }

v1::Lease ToWire(const Dispatcher::Grant& grant) {
  v1::Lease out;
  out.set_lease(grant.lease);
  out.set_job(grant.work->job);
  switch (grant.work->kind) {
    case WorkKind::kBatch:
      *out.mutable_batch() = ToWire(BatchOf(*grant.work));
      break;
    case WorkKind::kFinals:
      *out.mutable_finals() = ToWire(FinalsOf(*grant.work));
      break;
    case WorkKind::kModel:
      *out.mutable_model() = ToWire(grant.work->model);
      break;
  }
  return out;
}

v1::SyncReply ToWire(const Dispatcher::SyncOutcome& outcome) {
  v1::SyncReply out;
  out.set_unknown_session(outcome.unknown_session);
  out.set_draining(outcome.draining);
  for (const Dispatcher::Grant& grant : outcome.grants) *out.add_grants() = ToWire(grant);
  for (const int64_t cancel : outcome.cancels) out.add_cancels(cancel);
  return out;
}

v1::Device ToWire(const Dispatcher::SessionView& view, absl::Duration now) {
  v1::Device out;
  out.set_key(view.info.device_key);
  out.set_fingerprint(view.info.fingerprint);
  out.set_state(view.state);
  out.set_reason(view.reason);
  out.set_trials(view.trials);
  out.set_failures(view.failures);
  out.set_last_seen_s(absl::ToDoubleSeconds(now - view.last_seen));
  out.set_name(view.info.name);
  out.set_lease_job(view.job);
  if (view.job != 0) out.set_lease_age_s(absl::ToDoubleSeconds(now - view.lease_since));
  out.set_drift(view.drift);
  out.set_sandbox(view.info.sandbox);
  out.set_wire_version(view.info.wire_version);
  out.set_target(view.info.target);
  out.set_codegen_id(view.info.codegen_id);
  return out;
}

v1::JobEvent ToWire(const JobNews& news) {
  const JobView& job = news.job;
  v1::JobEvent out;
  out.set_cursor(news.cursor);
  out.set_elapsed_s(news.elapsed_s);
  out.set_state(job.state);
  out.set_reason(job.reason);
  out.set_model(NameForWire(job.model));
  out.set_device_key(job.device_key);
  out.set_target(job.target);
  out.set_fingerprint(job.fingerprint);
  out.set_trials(job.trials);
  out.set_trials_limit(job.trials_limit);
  out.set_untuned_ms(job.untuned_s * 1e3);
  out.set_tuned_ms(job.tuned_s * 1e3);
  out.set_kept_default(job.kept_default);
  out.set_eta_s(job.eta_s);
  out.set_search_s(job.search_s);
  out.set_expected_gain_s(job.expected_gain_s);
  for (const auto& [outcome, count] : job.outcomes) (*out.mutable_outcomes())[std::string(Text(outcome))] = count;
  out.mutable_warnings()->Assign(job.warnings.begin(), job.warnings.end());
  for (const auto& [index, task] : news.tasks) *out.add_tasks() = TaskToWire(task, index);
  return out;
}

absl::StatusOr<JobSpec> FromWire(const v1::SubmitJobRequest& r) {
  if (r.device_key().empty()) return absl::InvalidArgumentError("the job names no device key");
  if (r.trials() == 0 && r.trials_per_task() == 0 && r.early_stopping() == 0 && r.early_stopping_model() == 0 &&
      r.min_gain() == 0 && r.time_budget_ms() == 0 && !r.revalidate()) {
    return absl::InvalidArgumentError(
        "the job would never end: give trials, early stopping, a least gain or a time budget");
  }
  JobSpec spec;
  spec.model = r.model();
  spec.graph_json = std::make_shared<const std::string>(r.graph_json());
  spec.device_key = r.device_key();
  spec.tuner = r.tuner();
  spec.trials = r.trials();
  spec.trials_per_task = r.trials_per_task();
  spec.early_stopping = r.early_stopping();
  spec.early_stopping_model = r.early_stopping_model();
  spec.min_gain = r.min_gain();
  spec.time_budget = Milliseconds(r.time_budget_ms());
  spec.seed = r.seed();
  spec.wait_for_device = Milliseconds(r.wait_for_device_ms());
  spec.close_with_command = r.close_with_command();
  spec.revalidate = r.revalidate();
  spec.booster = !r.no_booster();
  spec.workloads.assign(r.workloads().begin(), r.workloads().end());
  spec.priority = r.priority();
  spec.request_id = r.request_id();
  return spec;
}

v1::JobEvent FinalEvent(const JobRow& row) {
  v1::JobEvent out;
  out.set_cursor(1);
  out.set_state(row.state);
  out.set_reason(ToUtf8(row.reason));
  out.set_trials(static_cast<int32_t>(row.trials));
  out.set_model(NameForWire(row.model));
  out.set_device_key(row.device_key);
  out.set_target(row.target);
  return out;
}

}  // namespace temper
