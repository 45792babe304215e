// oneDNN as a contender: the same shape and the same numbers, layouts of its own choosing, weights put into them
// beforehand.
#pragma once

#include "bench/kernels/shapes.h"

namespace temper::bench {

// Call once, before any kernel: threads (placed as our pool's are) and the instructions that `t` allows.
absl::Status SetUpOneDnn(const CpuTarget& t);

// Convolutions are told to be direct; a dense layer is the faster of its matmul and its inner product. kUnimplemented:
// the library has nothing for this shape.
absl::StatusOr<Contender> OneDnnKernel(const Bench& bench, const std::shared_ptr<worker::WorkloadState>& state);

}  // namespace temper::bench
