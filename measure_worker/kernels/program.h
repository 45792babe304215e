// One candidate, built for a device: its code, its packed constants, its scratch.
#pragma once

#include <memory>

#include "measure_worker/backend.h"
#include "measure_worker/kernels/cache_plan.h"
#include "measure_worker/kernels/code_cache.h"
#include "measure_worker/kernels/workload_state.h"

namespace temper::worker {

// The protocol, the same on all devices. Outputs and scratch are poisoned, the first answer and the latest are
// compared with the reference, and inputs have to be as they were drawn after each of the two.
std::unique_ptr<Program> NewProgram(LoadedKernel code, std::shared_ptr<WorkloadState> state, const CachePlan& cache);

}  // namespace temper::worker
