// Kernels in a row, each of which alone reads what the one before it makes, and for which there is a template that runs
// them as one: a pointwise and a depthwise convolution, in either order; the two products and softmax of attention.
// Which way is faster, measurement says.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "compiler/graph/alias.h"
#include "compiler/graph/alternatives.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/ops/template.h"

namespace temper::passes {
namespace {

constexpr size_t kMostKernels = 3;   // in a row
constexpr int64_t kManyL2 = 8;       // times what cores' own caches hold: little of it is left there
constexpr double kDraftsGain = 0.9;  // of the time apart

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

// Seconds that drafts expect of groups' kernels.
class Drafts {
 public:
  Drafts(const Graph& g, const Target& t) : g_(g), target_(t) {}
  // No end of time where all but the fallback are used only if they were measured.
  absl::StatusOr<double> Of(const Group& group) {
    TEMPER_ASSIGN_OR_RETURN(const Extracted e, Extract(g_, group));
    const auto [known, is_new] = seconds_.try_emplace(Text(e.workload));
    if (is_new) {
      TEMPER_ASSIGN_OR_RETURN(const Choice choice, DefaultChoice(e.workload, target_));
      known->second = choice.def->fallback && HasOwnTemplate(e.workload, target_)
                          ? std::numeric_limits<double>::infinity()
                          : choice.def->footprint(e.workload, choice.config, target_).draft_s;
    }
    return known->second;
  }

 private:
  const Graph& g_;
  const Target& target_;
  std::map<std::string, double> seconds_;  // by workload
};

// Whether kernels in a row are one unless measurements say otherwise: what lies between them does not stay in the
// caches of a CPU's cores, and they are expected to gain by more than the drafts are wrong.
absl::StatusOr<bool> IsOneByDefault(const Graph& g, const Rows::Row& row, const Target& t, Drafts& drafts) {
  const CpuTarget* cpu = t.cpu();
  if (cpu != nullptr && row.bytes_between <= kManyL2 * cpu->threads * cpu->l2_bytes) return false;
  TEMPER_ASSIGN_OR_RETURN(const double one, drafts.Of(row.alternative.groups[0]));
  double apart = 0;
  for (const int i : row.alternative.replaces) {
    TEMPER_ASSIGN_OR_RETURN(const double part, drafts.Of(g.groups[static_cast<size_t>(i)]));
    apart += part;
  }
  return one < kDraftsGain * apart;
}

// The kernels become one, and `a` says how they were.
void MakeOne(Graph& g, Alternative& a, std::vector<Alternative>& others) {
  std::vector<Group> parts;
  for (int i : a.replaces) parts.push_back(g.groups[static_cast<size_t>(i)]);
  g.groups = WithAlternatives(g.groups, {&a, 1});
  // Groups behind the first of those that are gone have moved up.
  const auto place = [&a](int i) {
    return i - static_cast<int>(std::ranges::count_if(a.replaces, [i](int gone) { return gone < i; }));
  };
  for (Alternative& other : others) {
    if (&other == &a) continue;
    for (int& i : other.replaces) i = place(i) + (i > a.replaces.back() ? 1 : 0);
  }
  a = {{place(a.replaces.back())}, std::move(parts)};
}

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
  Drafts drafts(g, t);
  std::vector<bool> taken(g.groups.size(), false);
  std::vector<size_t> ones;
  for (Rows::Row& row : found) {
    const std::vector<int>& replaced = row.alternative.replaces;
    if (std::ranges::any_of(replaced, [&](int i) { return taken[static_cast<size_t>(i)]; })) continue;
    for (const int i : replaced) taken[static_cast<size_t>(i)] = true;
    TEMPER_ASSIGN_OR_RETURN(const bool one, IsOneByDefault(g, row, t, drafts));
    if (one) ones.push_back(g.alternatives.size());
    g.alternatives.push_back(std::move(row.alternative));
  }
  for (size_t i : ones) MakeOne(g, g.alternatives[i], g.alternatives);
  std::ranges::sort(g.alternatives, {}, [](const Alternative& a) { return a.replaces.front(); });
  return absl::OkStatus();
}

}  // namespace temper::passes
