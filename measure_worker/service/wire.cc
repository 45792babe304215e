#include "measure_worker/service/wire.h"

#include <cmath>

#include "base/utf8.h"

namespace temper::worker {
namespace {

// What the server leaves open, or sets to nonsense, gets our default.
template <typename T>
void TakePositive(T& field, T value) {
  if (value > 0) field = value;
}

}  // namespace

BatchWork BatchWorkFromWire(const v1::Batch& batch) {
  BatchWork work;
  work.workload = batch.workload();
  work.target = batch.target();
  work.incumbent_s = batch.incumbent_s();
  const v1::SamplingPlan& plan = batch.plan();
  TakePositive(work.plan.repeats, static_cast<int>(plan.repeats()));
  TakePositive(work.plan.min_sample_us, static_cast<int64_t>(plan.min_sample_us()));
  TakePositive(work.plan.build_timeout_ms, static_cast<int64_t>(plan.build_timeout_ms()));
  TakePositive(work.plan.run_timeout_ms, static_cast<int64_t>(plan.run_timeout_ms()));
  work.plan.race_factor = plan.race_factor();
  if (!plan.cache_policy().empty()) work.plan.cache_policy = plan.cache_policy();
  for (const v1::CandidateSpec& c : batch.candidates()) {
    work.candidates.push_back({c.candidate(), c.attempt(), c.template_name(), c.template_version(), c.config()});
  }
  return work;
}

ModelWork ModelWorkFromWire(const v1::ModelCheck& model) {
  ModelWork work;
  work.graph_json = model.graph_json();
  work.target = model.target();
  work.seed = model.seed();
  TakePositive(work.rounds, static_cast<int>(model.rounds()));
  work.budget_ms = model.budget_ms();
  for (const v1::KernelPick& p : model.picks())
    work.picks.push_back({p.workload(), p.template_name(), p.config(), p.seconds()});
  return work;
}

FinalsWork FinalsWorkFromWire(const v1::ModelFinals& finals) {
  FinalsWork work{ModelWorkFromWire(finals.model()), {}};
  for (const v1::Batch& task : finals.tasks()) {
    BatchWork batch = BatchWorkFromWire(task);
    work.tasks.push_back({std::move(batch.workload), std::move(batch.candidates)});
  }
  return work;
}

v1::CandidateResult ToWire(int64_t lease, const CandidateSpec& candidate, const TrialResult& result) {
  v1::CandidateResult out;
  out.set_lease(lease);
  out.set_candidate(candidate.candidate);
  out.set_attempt(candidate.attempt);
  out.set_outcome(ToUtf8(result.outcome));
  out.set_error(ToUtf8(result.error));
  out.mutable_costs_s()->Assign(result.costs_s.begin(), result.costs_s.end());
  out.set_build_ms(static_cast<int32_t>(result.build_ms));
  out.set_run_ms(static_cast<int32_t>(result.run_ms));
  out.set_drift(result.drift);
  return out;
}

v1::ModelResult ToWire(int64_t lease, const ModelResult& result) {
  v1::ModelResult out;
  out.set_lease(lease);
  out.set_outcome(ToUtf8(result.outcome));
  out.set_error(ToUtf8(result.error));
  out.mutable_untuned_s()->Assign(result.untuned_s.begin(), result.untuned_s.end());
  out.mutable_tuned_s()->Assign(result.tuned_s.begin(), result.tuned_s.end());
  out.set_relative_error(std::isfinite(result.relative_error) ? result.relative_error : 1e9);
  return out;
}

}  // namespace temper::worker
