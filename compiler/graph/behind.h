// What lies behind the extents of a graph's inputs, where a run may have less of them than there is room for.
#pragma once

#include <vector>

#include "compiler/graph/extract.h"
#include "compiler/schedule/behind.h"

namespace temper {

// Of a graph with groups, by value; extents are counted among the hidden inputs.
struct GraphBehind {
  // As far as tensor expressions of operators show it: what values are made of, and what those that read them leave
  // out. By the index in memory.
  std::vector<std::vector<Behind>> of;
  std::vector<std::optional<ExtentBound>> limits;  // of numbers that are made of extents
  // By value: whether an element says where another one lies, or is part of a division of whole numbers, or something
  // is that is made of it. Such elements have to be ones that may be so also where nothing comes of them.
  std::vector<bool> places;
  // By input: whether nothing comes of what lies behind its ends, whatever that is.
  std::vector<bool> unread_inputs;
};
GraphBehind BehindOf(const Graph& g);

// The operands of a group, of a graph of which `behind` says that.
std::vector<OperandFacts> FactsOf(const Graph& g, const Extracted& kernel, const GraphBehind& behind);

// Whether nobody reads what a counted operator leaves behind all lines: its result becomes an output whose end another
// output tells, and that is where the lines end.
bool EndsWithItsLines(const Graph& g, const Node& counted);

}  // namespace temper
