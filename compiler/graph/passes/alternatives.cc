// Kernels in a row, each of which alone reads what the one before it makes, and for which there is a template that runs
// them as one: a depthwise and a pointwise convolution; on a GPU, the two products and softmax of attention. Which way
// is faster, measurement says.
#include <algorithm>

#include "compiler/graph/alias.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/ops/template.h"

namespace temper::passes {
namespace {

constexpr size_t kMostKernels = 3;  // in a row

// What lies between two kernels and is smaller is not worth it: on a CPU it stays in a core's caches anyway. On a GPU
// it goes through memory, or a cache that is far from what computes, and each kernel is a launch.
int64_t LeastBytesBetween(const Target& t) { return t.gpu() != nullptr ? 0 : 512 * 1024; }

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

// Finds kernels that may be one.
class Rows {
 public:
  Rows(const Graph& g, const Target& t) : g_(g), target_(t), aliases_(g), group_of_(g.nodes.size()) {
    for (size_t i = 0; i < g.groups.size(); ++i) {
      for (int n : g.groups[i].nodes) group_of_[static_cast<size_t>(n)] = static_cast<int>(i);
    }
  }

  // The fewest from group `first` on, none of them `taken`; empty if there are none.
  absl::StatusOr<Alternative> From(int first, const std::vector<bool>& taken) const {
    Alternative a{{first}, {GroupAt(first)}};
    while (a.replaces.size() < kMostKernels) {
      const int next = Next(a.replaces.back());
      if (next < 0 || taken[static_cast<size_t>(next)]) break;
      const Group& reader = GroupAt(next);
      Group& all = a.groups[0];
      all.anchor = static_cast<int>(all.nodes.size()) + reader.anchor;
      all.nodes.insert(all.nodes.end(), reader.nodes.begin(), reader.nodes.end());
      a.replaces.push_back(next);
      TEMPER_ASSIGN_OR_RETURN(const Extracted e, Extract(g_, all));
      if (HasOwnTemplate(e.workload, target_)) return a;
    }
    return Alternative{};
  }

 private:
  const Group& GroupAt(int i) const { return g_.groups[static_cast<size_t>(i)]; }

  // The group that may be one kernel with group `i`; -1 if there is none.
  int Next(int i) const {
    const ValueId made = g_.nodes[static_cast<size_t>(GroupAt(i).nodes.back())].output;
    const TensorType& type = g_.values[static_cast<size_t>(made)].type;
    if (aliases_.Have(GroupAt(i)) || BytesOf(type.dtype, NumElements(type.shape)) < LeastBytesBetween(target_))
      return -1;
    const int reader = OnlyReader(g_, group_of_, made);
    return reader > i ? reader : -1;
  }

  const Graph& g_;
  const Target& target_;
  const Aliases aliases_;
  std::vector<int> group_of_;
};

}  // namespace

absl::Status ProposeAlternatives(Graph& g, const Target& t) {
  g.alternatives.clear();
  const Rows rows(g, t);
  std::vector<bool> taken(g.groups.size(), false);
  for (size_t i = 0; i < g.groups.size(); ++i) {
    if (taken[i]) continue;
    TEMPER_ASSIGN_OR_RETURN(Alternative a, rows.From(static_cast<int>(i), taken));
    for (const int replaced : a.replaces) taken[static_cast<size_t>(replaced)] = true;
    if (!a.replaces.empty()) g.alternatives.push_back(std::move(a));
  }
  return absl::OkStatus();
}

}  // namespace temper::passes
