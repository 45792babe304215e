// Kernels in a row, each of which alone reads what the one before it makes, and for which there is a template that runs
// them as one: a pointwise and a depthwise convolution, in either order; on a GPU, the two products and softmax of
// attention. Which way is faster, measurement says.
#include <algorithm>
#include <functional>

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

  struct Row {
    Alternative alternative;    // empty: there is none
    int64_t bytes_between = 0;  // that its kernels do not exchange through memory
  };
  // The fewest from group `first` on.
  absl::StatusOr<Row> From(int first) const {
    Row row{{{first}, {GroupAt(first)}}};
    Alternative& a = row.alternative;
    while (a.replaces.size() < kMostKernels) {
      const int next = Next(a.replaces.back());
      if (next < 0) break;
      row.bytes_between += BytesMade(a.replaces.back());
      const Group& reader = GroupAt(next);
      Group& all = a.groups[0];
      all.anchor = static_cast<int>(all.nodes.size()) + reader.anchor;
      all.nodes.insert(all.nodes.end(), reader.nodes.begin(), reader.nodes.end());
      a.replaces.push_back(next);
      TEMPER_ASSIGN_OR_RETURN(const Extracted e, Extract(g_, all));
      if (HasOwnTemplate(e.workload, target_)) return row;
    }
    return Row{};
  }

 private:
  const Group& GroupAt(int i) const { return g_.groups[static_cast<size_t>(i)]; }

  ValueId MadeBy(int i) const { return g_.nodes[static_cast<size_t>(GroupAt(i).nodes.back())].output; }
  int64_t BytesMade(int i) const {
    const TensorType& type = g_.values[static_cast<size_t>(MadeBy(i))].type;
    return BytesOf(type.dtype, NumElements(type.shape));
  }

  // The group that may be one kernel with group `i`; -1 if there is none.
  int Next(int i) const {
    if (aliases_.Have(GroupAt(i)) || BytesMade(i) < LeastBytesBetween(target_)) return -1;
    const int reader = OnlyReader(g_, group_of_, MadeBy(i));
    return reader > i ? reader : -1;
  }

  const Graph& g_;
  const Target& target_;
  const Aliases aliases_;
  std::vector<int> group_of_;
};

}  // namespace

// Of two rows that share a kernel, the one with more bytes between its kernels is proposed; of two with as many, the
// later one.
absl::Status ProposeAlternatives(Graph& g, const Target& t) {
  const Rows rows(g, t);
  std::vector<Rows::Row> found;
  for (size_t i = g.groups.size(); i-- > 0;) {
    TEMPER_ASSIGN_OR_RETURN(Rows::Row row, rows.From(static_cast<int>(i)));
    if (!row.alternative.replaces.empty()) found.push_back(std::move(row));
  }
  std::ranges::stable_sort(found, std::greater(), &Rows::Row::bytes_between);
  g.alternatives.clear();
  std::vector<bool> taken(g.groups.size(), false);
  for (Rows::Row& row : found) {
    const std::vector<int>& replaced = row.alternative.replaces;
    if (std::ranges::any_of(replaced, [&](int i) { return taken[static_cast<size_t>(i)]; })) continue;
    for (const int i : replaced) taken[static_cast<size_t>(i)] = true;
    g.alternatives.push_back(std::move(row.alternative));
  }
  std::ranges::sort(g.alternatives, {}, [](const Alternative& a) { return a.replaces.front(); });
  return absl::OkStatus();
}

}  // namespace temper::passes
