// Between the wire's messages and the worker's values.
#pragma once

#include "measure_worker/work.h"
#include "temper/v1/worker.pb.h"

namespace temper::worker {

BatchWork BatchWorkFromWire(const v1::Batch& batch);
FinalsWork FinalsWorkFromWire(const v1::ModelFinals& finals);
ModelWork ModelWorkFromWire(const v1::ModelCheck& model);
v1::CandidateResult ToWire(int64_t lease, const CandidateSpec& candidate, const TrialResult& result);
v1::ModelResult ToWire(int64_t lease, const ModelResult& result);

}  // namespace temper::worker
