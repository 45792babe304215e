#include "compiler/graph/memory_plan.h"

#include <algorithm>
#include <tuple>

#include "compiler/graph/alias.h"

namespace temper {
namespace {

constexpr int64_t kAlignment = 64;

struct Buffer {
  ValueId root = kNoValue;    // of a value; of scratch none
  int first = -1, last = -1;  // groups between which it is alive, both included
  int64_t bytes = 0, offset = 0;
};

int64_t Aligned(int64_t bytes) {
  return std::max<int64_t>(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}
int64_t AlignedBytes(const TensorType& t) { return Aligned(NumElements(t.shape) * SizeOf(t.dtype)); }

// Buffers that groups write and that are neither constants nor the caller's, with their lifetimes.
std::vector<Buffer> Buffers(const Graph& g, const std::vector<ValueId>& roots) {
  std::vector<bool> callers(g.values.size(), false);
  for (ValueId v : g.inputs) callers[v] = true;
  for (ValueId v : g.outputs) callers[v] = true;
  std::vector<Buffer> of_root(g.values.size());
  for (size_t i = 0; i < g.groups.size(); ++i) {
    const int now = static_cast<int>(i);
    const ValueId made = roots[g.nodes[g.groups[i].nodes.back()].output];
    if (!callers[made] && !g.values[made].is_constant) {
      Buffer& b = of_root[made];
      if (b.first < 0) b = {made, now, now, AlignedBytes(g.values[made].type), 0};
      b.last = now;
    }
    for (int n : g.groups[i].nodes) {
      for (ValueId v : g.nodes[n].inputs) {
        if (v != kNoValue && of_root[roots[v]].first >= 0) of_root[roots[v]].last = now;
      }
    }
  }
  std::vector<Buffer> buffers;
  for (const Buffer& b : of_root) {
    if (b.first >= 0) buffers.push_back(b);
  }
  return buffers;
}

// The lowest offset at which `b` meets none of the placed buffers that are alive with it.
int64_t FirstFit(const Buffer& b, const std::vector<Buffer>& placed) {
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (const Buffer& p : placed) {
    if (p.first <= b.last && b.first <= p.last) taken.emplace_back(p.offset, p.offset + p.bytes);
  }
  std::sort(taken.begin(), taken.end());
  int64_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (offset + b.bytes <= begin) break;
    offset = std::max(offset, end);
  }
  return offset;
}

}  // namespace

absl::StatusOr<BufferPlan> PlanMemory(const Graph& g, const std::vector<int64_t>& scratch_bytes) {
  if (g.groups.empty() && !g.nodes.empty())
    return absl::FailedPreconditionError("memory plan: the graph has no groups yet");
  BufferPlan plan;
  plan.alias_of = AliasRoots(g);
  plan.part = PartsOfConcats(g);
  plan.offset.assign(g.values.size(), -1);
  plan.scratch.assign(g.groups.size(), -1);
  std::vector<Buffer> buffers = Buffers(g, plan.alias_of);
  for (size_t i = 0; i < scratch_bytes.size(); ++i) {
    const int now = static_cast<int>(i);
    if (scratch_bytes[i] > 0) buffers.push_back({kNoValue, now, now, Aligned(scratch_bytes[i]), 0});
  }
  // Large ones first: small ones then fill the gaps.
  std::sort(buffers.begin(), buffers.end(), [](const Buffer& a, const Buffer& b) {
    return std::tuple(-a.bytes, a.root, a.first) < std::tuple(-b.bytes, b.root, b.first);
  });
  std::vector<Buffer> placed;
  for (Buffer& b : buffers) {
    b.offset = FirstFit(b, placed);
    (b.root == kNoValue ? plan.scratch[static_cast<size_t>(b.first)] : plan.offset[b.root]) = b.offset;
    plan.arena_bytes = std::max(plan.arena_bytes, b.offset + b.bytes);
    placed.push_back(b);
  }
  for (size_t i = 0; i < g.values.size(); ++i) plan.offset[i] = plan.offset[plan.alias_of[i]];
  return plan;
}

}  // namespace temper
