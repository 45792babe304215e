// How much memory a measuring child may take, and what does not fit into it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "compiler/graph/graph.h"
#include "compiler/ops/workload.h"

namespace temper::worker {

int64_t MemoryLimit();  // what the supervisor said in TEMPER_MEMORY_BYTES; else all of the machine's

// kResourceExhausted: verifying and timing the workload's kernels takes more. Nothing is allocated.
absl::Status CheckFits(const Workload& workload, int64_t limit = MemoryLimit());
// The same for a model's weights.
absl::Status CheckFits(const Graph& graph, int64_t limit = MemoryLimit());

int64_t ConstantBytes(const Graph& graph);

}  // namespace temper::worker
