// A whole model, untuned and tuned: same outputs, and which is faster.
#pragma once

#include <functional>
#include <optional>

#include "measure_worker/backend.h"
#include "measure_worker/models/model_runner.h"

namespace temper::worker {

// Both packages are built with weights drawn from the seed, checked against each other and timed in turns. What finals
// of the same model kept is not made again.
ModelResult CheckModel(const ModelWork& work, const std::function<void(Phase)>& begin,
                       std::optional<KeptModel> kept = std::nullopt,
                       const std::function<bool()>& as_usual = AlwaysAsUsual);

}  // namespace temper::worker
