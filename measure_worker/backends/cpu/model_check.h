// A whole model, untuned and tuned: same outputs, and which is faster.
#pragma once

#include <functional>

#include "measure_worker/backend.h"

namespace temper::worker {

// Both packages are built with weights drawn from the seed, checked against each other and timed in turns.
ModelResult CheckModel(const ModelWork& work, const std::function<void(Phase)>& begin);

}  // namespace temper::worker
