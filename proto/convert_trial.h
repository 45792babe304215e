// Between the wire's messages and what is handed to who measures (trial/trial.h): the only such conversions, used by
// server and worker alike. Nothing is checked here: proto/check.h has done so before.
#pragma once

#include "temper/v1/worker.pb.h"
#include "trial/trial.h"

namespace temper {

v1::SamplingPlan ToWire(const SamplingPlan& plan);
// What the message leaves open, or sets to nonsense, is as in a SamplingPlan that was just made.
SamplingPlan FromWire(const v1::SamplingPlan& plan);

v1::CandidateSpec ToWire(const Candidate& candidate);
Candidate FromWire(const v1::CandidateSpec& candidate);

v1::KernelPick ToWire(const KernelPick& pick);
KernelPick FromWire(const v1::KernelPick& pick);

v1::Batch ToWire(const BatchWork& work);
BatchWork FromWire(const v1::Batch& batch);

v1::ModelCheck ToWire(const ModelWork& work);
ModelWork FromWire(const v1::ModelCheck& model);

v1::ModelFinals ToWire(const FinalsWork& work);
FinalsWork FromWire(const v1::ModelFinals& finals);

// An outcome that is not known here is kInfrastructure, and the error says so.
v1::CandidateResult ToWire(int64_t lease, const Candidate& candidate, const TrialResult& result);
TrialResult FromWire(const v1::CandidateResult& result);

v1::ModelResult ToWire(int64_t lease, const ModelResult& result);
ModelResult FromWire(const v1::ModelResult& result);

}  // namespace temper
