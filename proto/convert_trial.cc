#include "proto/convert_trial.h"

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace temper {
namespace {

template <typename T, typename U>
void TakePositive(T& field, U value) {
  if (value > 0) field = value;
}

// The wire carries finite numbers from 0 on (see proto/limits.h); what is none counts as the worst.
double Finite(double value, double worst) { return value >= 0 && value <= worst ? value : worst; }

constexpr int kMostSamples = 1024;
constexpr double kLongest = 1e9, kWorstDrift = 1e6;

void SetSamples(const std::vector<double>& samples, google::protobuf::RepeatedField<double>* out) {
  for (const double sample : samples) {
    if (out->size() < kMostSamples) out->Add(Finite(sample, kLongest));
  }
}

template <typename Result>
void TakeOutcome(const std::string& text, Result& result) {
  const std::optional<Outcome> outcome = ParseOutcome(text);
  result.outcome = outcome.value_or(Outcome::kInfrastructure);
  if (!outcome) result.error = absl::StrCat("the worker answered with an unknown outcome: ", result.error);
}

}  // namespace

v1::SamplingPlan ToWire(const SamplingPlan& plan) {
  v1::SamplingPlan out;
  out.set_repeats(plan.repeats);
  out.set_min_sample_us(static_cast<int32_t>(plan.min_sample_us));
  out.set_race_factor(plan.race_factor);
  out.set_build_timeout_ms(static_cast<int32_t>(plan.build_timeout_ms));
  out.set_run_timeout_ms(static_cast<int32_t>(plan.run_timeout_ms));
  out.set_cache_policy(plan.cache_policy);
  out.set_constant_bytes(plan.constant_bytes);
  return out;
}

SamplingPlan FromWire(const v1::SamplingPlan& plan) {
  SamplingPlan out;
  TakePositive(out.repeats, plan.repeats());
  TakePositive(out.min_sample_us, plan.min_sample_us());
  TakePositive(out.build_timeout_ms, plan.build_timeout_ms());
  TakePositive(out.run_timeout_ms, plan.run_timeout_ms());
  out.race_factor = plan.race_factor();
  if (!plan.cache_policy().empty()) out.cache_policy = plan.cache_policy();
  TakePositive(out.constant_bytes, plan.constant_bytes());
  return out;
}

v1::CandidateSpec ToWire(const Candidate& candidate) {
  v1::CandidateSpec out;
  out.set_candidate(candidate.id);
  out.set_attempt(candidate.attempt);
  out.set_template_name(candidate.template_name);
  out.set_template_version(candidate.template_version);
  out.set_config(candidate.config);
  return out;
}

Candidate FromWire(const v1::CandidateSpec& candidate) {
  return {candidate.candidate(), candidate.attempt(), candidate.template_name(), candidate.template_version(),
          candidate.config()};
}

v1::KernelPick ToWire(const KernelPick& pick) {
  v1::KernelPick out;
  out.set_workload(pick.workload);
  out.set_template_name(pick.template_name);
  out.set_config(pick.config);
  out.set_seconds(pick.seconds);
  return out;
}

KernelPick FromWire(const v1::KernelPick& pick) {
  return {pick.workload(), pick.template_name(), pick.config(), pick.seconds()};
}

v1::Batch ToWire(const BatchWork& work) {
  v1::Batch out;
  out.set_workload(work.workload);
  out.set_target(work.target);
  out.set_incumbent_s(work.incumbent_s);
  *out.mutable_plan() = ToWire(work.plan);
  for (const Candidate& candidate : work.candidates) *out.add_candidates() = ToWire(candidate);
  return out;
}

BatchWork FromWire(const v1::Batch& batch) {
  BatchWork out{batch.workload(), batch.target(), batch.incumbent_s(), FromWire(batch.plan()), {}};
  for (const v1::CandidateSpec& candidate : batch.candidates()) out.candidates.push_back(FromWire(candidate));
  return out;
}

v1::ModelCheck ToWire(const ModelWork& work) {
  v1::ModelCheck out;
  out.set_graph_json(*work.graph_json);
  out.set_target(work.target);
  out.set_seed(work.seed);
  for (const KernelPick& pick : work.picks) *out.add_picks() = ToWire(pick);
  out.set_rounds(work.rounds);
  out.set_budget_ms(static_cast<int32_t>(work.budget_ms));
  return out;
}

ModelWork FromWire(const v1::ModelCheck& model) {
  ModelWork out;
  out.graph_json = std::make_shared<const std::string>(model.graph_json());
  out.target = model.target();
  out.seed = model.seed();
  for (const v1::KernelPick& pick : model.picks()) out.picks.push_back(FromWire(pick));
  TakePositive(out.rounds, model.rounds());
  out.budget_ms = model.budget_ms();
  return out;
}

v1::ModelFinals ToWire(const FinalsWork& work) {
  v1::ModelFinals out;
  *out.mutable_model() = ToWire(work.model);
  for (const FinalsTask& task : work.tasks) {
    v1::Batch* batch = out.add_tasks();
    batch->set_workload(task.workload);
    for (const Candidate& candidate : task.candidates) *batch->add_candidates() = ToWire(candidate);
  }
  return out;
}

FinalsWork FromWire(const v1::ModelFinals& finals) {
  FinalsWork out{FromWire(finals.model()), {}};
  for (const v1::Batch& task : finals.tasks()) {
    FinalsTask& to = out.tasks.emplace_back(FinalsTask{task.workload(), {}});
    for (const v1::CandidateSpec& candidate : task.candidates()) to.candidates.push_back(FromWire(candidate));
  }
  return out;
}

v1::CandidateResult ToWire(int64_t lease, const Candidate& candidate, const TrialResult& result) {
  v1::CandidateResult out;
  out.set_lease(lease);
  out.set_candidate(candidate.id);
  out.set_attempt(candidate.attempt);
  out.set_outcome(std::string(Text(result.outcome)));
  out.set_error(ToUtf8(result.error));
  SetSamples(result.costs_s, out.mutable_costs_s());
  out.set_build_ms(static_cast<int32_t>(result.build_ms));
  out.set_run_ms(static_cast<int32_t>(result.run_ms));
  out.set_drift(Finite(result.drift, kWorstDrift));
  return out;
}

TrialResult FromWire(const v1::CandidateResult& result) {
  TrialResult out;
  out.error = result.error();
  TakeOutcome(result.outcome(), out);
  out.costs_s.assign(result.costs_s().begin(), result.costs_s().end());
  out.build_ms = result.build_ms();
  out.run_ms = result.run_ms();
  out.drift = result.drift();
  return out;
}

v1::ModelResult ToWire(int64_t lease, const ModelResult& result) {
  v1::ModelResult out;
  out.set_lease(lease);
  out.set_outcome(std::string(Text(result.outcome)));
  out.set_error(ToUtf8(result.error));
  SetSamples(result.untuned_s, out.mutable_untuned_s());
  SetSamples(result.tuned_s, out.mutable_tuned_s());
  out.set_relative_error(Finite(result.relative_error, kLongest));
  return out;
}

ModelResult FromWire(const v1::ModelResult& result) {
  ModelResult out;
  out.error = result.error();
  TakeOutcome(result.outcome(), out);
  out.untuned_s.assign(result.untuned_s().begin(), result.untuned_s().end());
  out.tuned_s.assign(result.tuned_s().begin(), result.tuned_s().end());
  out.relative_error = result.relative_error();
  return out;
}

}  // namespace temper
