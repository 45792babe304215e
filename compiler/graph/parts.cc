#include "compiler/graph/parts.h"

#include <algorithm>

#include "compiler/graph/alias.h"
#include "compiler/ops/physical_axis.h"

namespace temper {
namespace {

// Who makes each value, and how often it is read, by the caller too.
struct Uses {
  std::vector<const Group*> maker;
  std::vector<int> reads;
};
Uses UsesOf(const Graph& g) {
  Uses uses{std::vector<const Group*>(g.values.size(), nullptr), std::vector<int>(g.values.size(), 0)};
  for (const Group& group : g.groups) {
    uses.maker[g.nodes[group.nodes.back()].output] = &group;
    for (int n : group.nodes) {
      for (ValueId v : g.nodes[n].inputs) {
        if (v != kNoValue) ++uses.reads[v];
      }
    }
  }
  for (ValueId v : g.outputs) ++uses.reads[v];
  return uses;
}

bool IsConcat(const Graph& g, const Group& group) {
  return group.nodes.size() == 1 && FindOp(g.nodes[group.nodes[0]].op)->move == Move::kConcatenates;
}

// Whether the operator's kernel may write its result with gaps. Sequential ones go through memory as if it had none.
bool WritesAnywhere(const Node& node) {
  const OpPattern pattern = FindOp(node.op)->pattern;
  return pattern != OpPattern::kOpaque && pattern != OpPattern::kSequential;
}

// Whether the value can have a kernel of its own, whose result nothing else reads.
bool IsMadeForOneReader(const Graph& g, const Uses& uses, ValueId v) {
  const Group* maker = uses.maker[v];
  if (maker == nullptr || uses.reads[v] != 1 || IsConcat(g, *maker)) return false;
  return std::all_of(maker->nodes.begin(), maker->nodes.end(), [&](int n) { return WritesAnywhere(g.nodes[n]); });
}

// Of such values, those that would have none, since they are other values' bytes.
bool IsRenamed(const Graph& g, const Uses& uses, ValueId v) {
  const Group* maker = uses.maker[v];
  return maker->nodes.size() == 1 && IsAliasNode(g, g.nodes[maker->nodes[0]]);
}

}  // namespace

std::vector<std::optional<Part>> PartsOfConcats(const Graph& g) {
  std::vector<std::optional<Part>> parts(g.values.size());
  const Uses uses = UsesOf(g);
  for (const Group& group : g.groups) {
    if (!IsConcat(g, group)) continue;
    const Node& node = g.nodes[group.nodes[0]];
    const TensorType& out = g.values[node.output].type;
    const int rank = static_cast<int>(out.shape.size());
    const int64_t axis = (node.attrs.Int("axis", 0) + rank) % rank;
    const size_t position = PhysicalAxis(out, axis);
    const Shape physical = out.PhysicalShape();
    // Of the dimensions between, kernels may make one with those outside.
    const bool outermost = NumElements(std::span(physical).first(position)) == 1;
    const int64_t inside = NumElements(std::span(physical).subspan(position + 1));
    const bool fits = (outermost || inside == 1) && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
                        return g.values[v].type.perm == out.perm && IsMadeForOneReader(g, uses, v);
                      });
    if (!fits) continue;
    // What is only renamed is copied to its part, as the concatenation would copy it, which then copies nothing else.
    if (std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return IsRenamed(g, uses, v); })) continue;
    int64_t offset = 0;
    for (ValueId v : node.inputs) {
      const int64_t inner = g.values[v].type.shape[static_cast<size_t>(axis)] * inside;
      parts[v] = Part{inner, physical[position] * inside, offset};
      offset += inner;
    }
  }
  return parts;
}

bool IsWrittenInParts(const Graph& g, const Group& group, const std::vector<std::optional<Part>>& parts) {
  return IsConcat(g, group) && parts[g.nodes[group.nodes[0]].inputs[0]].has_value();
}

}  // namespace temper
