// Where activations live, and the kernels' scratch: one arena, offsets by liveness.
#pragma once

#include "compiler/graph/graph.h"
#include "compiler/graph/parts.h"

namespace temper {

struct BufferPlan {
  // Per value: offset in the arena in bytes (aligned, and 64-aligned where `start` is not 0), or -1 for constants,
  // graph inputs, graph outputs, their aliases, and values that never exist.
  std::vector<int64_t> offset;
  // Per value: the value whose bytes it shares (reshapes, results in place) or is a part of, itself otherwise. A value
  // that a graph output renames is that output's alias: its group writes to the caller. Never an alias of an alias.
  std::vector<ValueId> alias_of;
  // Per value: the bytes before it in `alias_of`'s, where it is a slice of them (64-aligned).
  std::vector<int64_t> start;
  // Per value: set where it is a part of `alias_of`'s bytes; its kernel writes that part.
  std::vector<std::optional<Part>> part;
  // Per group: offset of its scratch in the arena, or -1 where it needs none.
  std::vector<int64_t> scratch;
  int64_t arena_bytes = 0;
};

// Per group: an operand whose bytes its result may take, since nothing reads them later and the group, elementwise all
// through, reads of them what it is about to write; kNoValue for others.
std::vector<ValueId> InPlaceOperands(const Graph& g);

// What is known of the kernels, per group; empty lists mean none.
struct KernelNeeds {
  std::vector<int64_t> scratch_bytes;           // while it runs
  std::vector<ValueId> in_place;                // of InPlaceOperands, those whose kernels can
  std::vector<std::vector<ValueId>> also_read;  // beside what the graph says
  int64_t alignment = 64;                       // of all that lies in the arena, in bytes
};
// Groups in order; two values alive at once never overlap, but for results in place of operands; outputs of the graph
// are written where the caller wants them.
absl::StatusOr<BufferPlan> PlanMemory(const Graph& g, const KernelNeeds& needs = {});

}  // namespace temper
