// Operands for verification and timing, drawn from a seed, within what the workload's operators are defined on.
#pragma once

#include <vector>

#include "compiler/ops/workload.h"

namespace temper::worker {

// One logical array an input. Floats are in [-1, 1], and in [0.25, 1] where they reach a root, a logarithm, a divisor
// or the base of a power; what scales sums of integers leaves numbers of 8 bits. Integers of 8 bits or fewer are all
// that there are, wider ones are small, and all are valid as indices where the workload gathers.
std::vector<NDArray> MakeInputs(const Workload& w, uint64_t seed);
// The same for a model's inputs, of which less is known: integers are 0 or 1.
NDArray MakeModelInput(DType dtype, const Shape& shape, uint64_t seed);

}  // namespace temper::worker
