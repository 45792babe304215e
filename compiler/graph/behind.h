// What lies behind the extents of a graph's inputs, where a run may have less of them than there is room for.
#pragma once

#include <vector>

#include "compiler/graph/extract.h"
#include "compiler/schedule/behind.h"

namespace temper {

// Per value of a graph with groups, as far as its operators' tensor expressions show it; by the index in memory.
// Extents are counted among the hidden inputs; of those that may be 0 nothing is said.
std::vector<std::vector<Behind>> BehindOf(const Graph& g);

// The operands of a group, of a graph of which `behind` says that.
std::vector<OperandFacts> FactsOf(const Graph& g, const Extracted& kernel,
                                  const std::vector<std::vector<Behind>>& behind);

}  // namespace temper
