// The CPU that this process runs on: candidates through LLVM into this process, timed on the pinned thread pool that
// packages use too.
#pragma once

#include <memory>

#include "measure_worker/backend.h"

namespace temper::worker {

std::unique_ptr<Backend> NewCpuBackend();

}  // namespace temper::worker
