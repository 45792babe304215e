// What lies behind the extents of a graph's inputs, where a run may have less of them than there is room for.
#pragma once

#include <span>
#include <vector>

#include "compiler/graph/extract.h"
#include "compiler/schedule/behind.h"

namespace temper {

// Of a graph with groups, by value.
struct GraphBehind {
  // The numbers that facts are about, by their extents: the hidden inputs, and then sums of several of them, which
  // groups make. What is known by a sum is known of values alone that are made later.
  std::vector<ValueId> extents;
  // As far as tensor expressions of operators show it: what values are made of, and what those that read them leave
  // out. By the index in memory.
  std::vector<std::vector<Behind>> of;
  std::vector<std::optional<ExtentBound>> limits;  // of numbers that are made of extents
  std::vector<WholeNumbers> numbers;
  // By value: whether an element says where another one lies, or is part of a division of whole numbers, or something
  // is that is made of it. Such elements have to be ones that may be so also where nothing comes of them.
  std::vector<bool> places;
  // By input: whether nothing comes of what lies behind its ends, whatever that is.
  std::vector<bool> unread_inputs;
};
// `schedules`: per group the function that its kernel is made of, if that is known: what none of its loops reads is not
// read then. Empty: none is known.
GraphBehind BehindOf(const Graph& g, std::span<const ir::Func> schedules = {});

// The operands of a group, of a graph of which `behind` says that.
std::vector<OperandFacts> FactsOf(const Graph& g, const Extracted& kernel, const GraphBehind& behind);

// Whether nobody reads what a counted operator leaves behind all lines: its result becomes an output whose end another
// output tells, and that is where the lines end.
bool EndsWithItsLines(const Graph& g, const Node& counted);

}  // namespace temper
