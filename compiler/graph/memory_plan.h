// Where activations live: one arena, offsets by liveness.
#pragma once

#include "compiler/graph/graph.h"

namespace temper {

struct BufferPlan {
  // Per value: offset in the arena in bytes (64-aligned), or -1 for constants, graph inputs, graph outputs, their
  // aliases, and values that never exist.
  std::vector<int64_t> offset;
  // Per value: the value whose bytes it shares (aliases of free reshapes), itself otherwise. A value that a graph
  // output renames is that output's alias: its group writes to the caller. Never an alias of an alias.
  std::vector<ValueId> alias_of;
  int64_t arena_bytes = 0;
};
// Groups in order; two values alive at once never overlap; outputs of the graph are written where the caller wants
// them.
absl::StatusOr<BufferPlan> PlanMemory(const Graph& g);

}  // namespace temper
