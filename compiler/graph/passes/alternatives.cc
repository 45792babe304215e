// Two kernels, the second of which alone reads what the first makes, through its anchor, and for which there is a
// template that runs them as one (a depthwise and a pointwise convolution): which way is faster, measurement says.
#include <algorithm>

#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/ops/template.h"

namespace temper::passes {
namespace {

// What lies between two kernels and is smaller stays in a core's caches anyway.
constexpr int64_t kLeastBytesBetween = 512 * 1024;

// The only group that reads `value`, -1 if there is none or several, or a graph output has it.
int OnlyReader(const Graph& g, const std::vector<int>& group_of, ValueId value) {
  if (std::count(g.outputs.begin(), g.outputs.end(), value) > 0) return -1;
  int reader = -1;
  for (int n : g.ConsumersOf(value)) {
    if (reader >= 0 && group_of[static_cast<size_t>(n)] != reader) return -1;
    reader = group_of[static_cast<size_t>(n)];
  }
  return reader;
}

}  // namespace

absl::Status ProposeAlternatives(Graph& g, const Target& t) {
  std::vector<int> group_of(g.nodes.size());
  for (size_t i = 0; i < g.groups.size(); ++i) {
    for (int n : g.groups[i].nodes) group_of[static_cast<size_t>(n)] = static_cast<int>(i);
  }
  g.alternatives.clear();
  const Aliases aliases(g);
  std::vector<bool> taken(g.groups.size(), false);
  for (size_t i = 0; i < g.groups.size(); ++i) {
    const Group& first = g.groups[i];
    const ValueId made = g.nodes[static_cast<size_t>(first.nodes.back())].output;
    const TensorType& type = g.values[static_cast<size_t>(made)].type;
    if (taken[i] || aliases.Have(first) || BytesOf(type.dtype, NumElements(type.shape)) < kLeastBytesBetween) continue;
    const int reader = OnlyReader(g, group_of, made);
    if (reader <= static_cast<int>(i) || taken[static_cast<size_t>(reader)]) continue;
    const Group& second = g.groups[static_cast<size_t>(reader)];
    Group both{first.nodes, static_cast<int>(first.nodes.size()) + second.anchor};
    both.nodes.insert(both.nodes.end(), second.nodes.begin(), second.nodes.end());
    TEMPER_ASSIGN_OR_RETURN(const Extracted e, Extract(g, both));
    if (!HasOwnTemplate(e.workload, t)) continue;
    g.alternatives.push_back({{static_cast<int>(i), reader}, {std::move(both)}});
    taken[i] = taken[static_cast<size_t>(reader)] = true;
  }
  return absl::OkStatus();
}

}  // namespace temper::passes
