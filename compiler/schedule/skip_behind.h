// Kernels that do nothing for elements behind an extent that only the run knows.
#pragma once

#include <optional>
#include <vector>

#include "compiler/schedule/behind.h"

namespace temper {

// The shortest tile that a run's last few rows may be computed in has this share of a tile's rows.
inline constexpr int64_t kShortestTile = 4;

// A scheduled function with one output and a parameter more, which comes before the output: the extent, an i64 without
// dimensions; 0 counts as 1. Iterations of its loops are skipped that make elements alone of which none is read, or
// add up nothing. `operands`: of the parameters before the output. `output`: what is known of it; facts of other
// extents are passed over. What is unread of the output may be written or not. nullopt: there is nothing to skip.
std::optional<ir::Func> SkipBehind(const ir::Func& scheduled, const std::vector<OperandFacts>& operands,
                                   const std::vector<Behind>& output, int extent);

// Of each operand what none reads of the iterations that SkipBehind leaves out; nullopt: all may be read.
std::vector<std::optional<Behind>> UnreadOperands(const ir::Func& f, const std::vector<OperandFacts>& operands,
                                                  const std::vector<Behind>& output, int extent);

}  // namespace temper
