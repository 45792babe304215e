// The finals: what candidates take as kernels of the whole model, where caches, weights and neighbours are as they will
// be.
#pragma once

#include <functional>
#include <optional>

#include "measure_worker/backend.h"
#include "measure_worker/models/model_runner.h"

namespace temper::worker {

// Packages that differ in which finalist a workload has run in turns, with every step timed. Both ways that
// alternatives leave to cut the graph are among them, so all workloads get their times. A result for each of
// `work.Candidates()`. `kept`, if given, is set where the finals could be held.
std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const std::function<void(Phase)>& begin,
                                       std::optional<KeptModel>* kept = nullptr,
                                       const std::function<bool()>& as_usual = AlwaysAsUsual);

}  // namespace temper::worker
