// Concatenations without a copy: the kernels that make the operands write straight into the result.
#pragma once

#include <optional>
#include <vector>

#include "compiler/graph/graph.h"

namespace temper {

// Of every `total` elements that are neighbours in the result, `inner` from `offset` on.
struct Part {
  int64_t inner = 0, total = 0, offset = 0;
  bool operator==(const Part&) const = default;
};

// Per value: where it lies in the result of the concatenation that alone reads it, if its kernel writes it there. All
// operands of such a concatenation are written so: it is no kernel itself.
std::vector<std::optional<Part>> PartsOfConcats(const Graph& g);

// Whether the group is such a concatenation, `parts` being those of its graph.
bool IsWrittenInParts(const Graph& g, const Group& group, const std::vector<std::optional<Part>>& parts);

}  // namespace temper
