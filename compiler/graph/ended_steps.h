// Steps of sequences that may have ended: a model of loops that are unrolled has all of them, up to the longest run.
#pragma once

#include <optional>
#include <vector>

#include "compiler/graph/behind.h"

namespace temper {

// Something is needed by runs alone whose extent, counted among the hidden inputs, is `least` or more.
struct NeededFrom {
  int extent = 0;
  int64_t least = 0;
};
// Per group whether it is left out by other runs; nullopt: all need it. `in_place`: per group the operand whose bytes
// its result takes, or kNoValue; what would leave it as it is need not be done either.
std::vector<std::optional<NeededFrom>> EndedSteps(const Graph& g, const GraphBehind& behind,
                                                  const std::vector<ValueId>& in_place);

}  // namespace temper
