// Kernels that do nothing for elements behind an extent that only the run knows.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "compiler/schedule/behind.h"

namespace temper {

// The shortest tile that a run's last few rows may be computed in has this share of a tile's rows.
inline constexpr int64_t kShortestTile = 4;

// A function that leaves out, with parameters more before its output: these extents, in order, each an i64 without
// dimensions; 0 counts as 1.
struct Skipping {
  ir::Func func;
  std::vector<int> extents;
};
// Of a scheduled function with one output. Iterations of its loops are skipped that make elements alone of which none
// is read, or add up nothing. `operands`: of the parameters before the output. `output`: what is known of it. What is
// unread of the output may be written or not. nullopt: behind none of `extents` is anything to skip.
std::optional<Skipping> SkipBehind(const ir::Func& scheduled, std::vector<OperandFacts> operands,
                                   const std::vector<Behind>& output, const std::set<int>& extents);

// What an answer holds for: any schedule of the function, or the one that it has, whose loops are known to leave out
// terms that change nothing.
enum class Schedules : uint8_t { kAny, kThisOne };
// Of each operand what none reads of the iterations that SkipBehind leaves out; nullopt: all may be read.
std::vector<std::optional<Behind>> UnreadOperands(const ir::Func& f, const std::vector<OperandFacts>& operands,
                                                  const std::vector<Behind>& output, int extent, Schedules of);

}  // namespace temper
