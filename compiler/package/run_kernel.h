// Compiles a kernel and runs it in this process, on given arrays: the shortest way from a config to numbers.
#pragma once

#include <span>

#include "base/rng.h"
#include "compiler/ops/op.h"
#include "compiler/ops/template.h"

namespace temper {

// Runs a kernel of the workload. `logical` has an array for each of the workload's inputs; constant ones are packed as
// the kernel asks. The result is in physical order. Outputs and scratch start as NaN, and parallel loops run in two
// shares, one after the other. The target's code must run on this machine.
absl::StatusOr<NDArray> RunKernel(const Workload& w, const Kernel& kernel, const Target& t,
                                  std::span<const NDArray> logical);

// An array for each of the workload's inputs: floats between -1 and 1, integers 0 or 1.
std::vector<NDArray> RandomInputs(const Workload& w, Rng& rng);

}  // namespace temper
