// Whole models on any device: their packages are written, loaded and timed here, and the device's kernels tell whether
// it is as fast as usual meanwhile.
#pragma once

#include <memory>

#include "measure_worker/backend.h"
#include "measure_worker/kernels/kernel_bench.h"

namespace temper::worker {

// `kernels` lives longer.
std::unique_ptr<ModelBench> NewModelBench(DeviceKernels& kernels);

}  // namespace temper::worker
