#include "compiler/graph/memory_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "base/division.h"
#include "compiler/graph/alias.h"

namespace temper {
namespace {

constexpr int64_t kNoPlace = -1;

struct Buffer {
  ValueId root = kNoValue;    // of a value; of scratch none
  int first = -1, last = -1;  // groups between which it is alive, both included
  int64_t bytes = 0, offset = kNoPlace;
  bool floats = true;  // or, where lengths vary, something else
};

// Where lengths vary, kernels may compute with what they find behind the end, though nothing comes of it. Whole numbers
// are mostly subnormal if they are read as floats, with which some CPUs take a hundred times as long. So floats never
// lie where others lay.
bool LiesWithFloats(const Graph& g, ValueId v) {
  const DType dtype = g.values[v].type.dtype;
  return g.input_extents.empty() || (IsFloat(dtype) && Info(dtype).bits >= 32);
}

// Of a group's scratch: whether none of it is likely to be whole numbers.
bool ScratchLiesWithFloats(const Graph& g, const Group& group) {
  return std::ranges::all_of(group.nodes, [&](int n) {
    const ValueId v = g.nodes[n].output;
    return g.values[v].type.dtype == DType::kBool || LiesWithFloats(g, v);
  });
}

int64_t Aligned(int64_t bytes, int64_t alignment) { return std::max(alignment, RoundUp(bytes, alignment)); }

// Buffers that groups write and that are neither constants nor the caller's, with their lifetimes.
std::vector<Buffer> Buffers(const Graph& g, const std::vector<ValueId>& roots, const KernelNeeds& needs) {
  std::vector<bool> callers(g.values.size(), false);
  for (ValueId v : g.inputs) callers[v] = true;
  for (ValueId v : g.outputs) callers[v] = true;
  std::vector<Buffer> of_root(g.values.size());
  for (size_t i = 0; i < g.groups.size(); ++i) {
    const int now = static_cast<int>(i);
    const ValueId made = roots[g.nodes[g.groups[i].nodes.back()].output];
    if (!callers[made] && !g.values[made].is_constant) {
      Buffer& b = of_root[made];
      const TensorType& t = g.values[made].type;
      if (b.first < 0) {
        const int64_t bytes = Aligned(BytesOf(t.dtype, NumElements(t.shape)), needs.alignment);
        b = {made, now, now, bytes, kNoPlace, LiesWithFloats(g, made)};
      }
      b.last = now;
    }
    const auto read = [&](ValueId v) {
      if (v != kNoValue && of_root[roots[v]].first >= 0) of_root[roots[v]].last = now;
    };
    for (int n : g.groups[i].nodes) std::ranges::for_each(g.nodes[n].inputs, read);
    if (i < needs.also_read.size()) std::ranges::for_each(needs.also_read[i], read);
  }
  std::vector<Buffer> buffers;
  for (const Buffer& b : of_root) {
    if (b.first >= 0) buffers.push_back(b);
  }
  return buffers;
}

// Whether the value has bytes of its own in the arena: all of them, and nobody else's.
std::vector<bool> OwnBytes(const Graph& g, const std::vector<ValueId>& roots) {
  std::vector<bool> own(g.values.size(), true);
  for (size_t v = 0; v < own.size(); ++v) own[v] = roots[v] == static_cast<ValueId>(v) && !g.values[v].is_constant;
  for (ValueId v : g.inputs) own[roots[v]] = false;
  for (ValueId v : g.outputs) own[roots[v]] = false;
  return own;
}

bool IsElementwise(const Graph& g, const Group& group) {
  return std::all_of(group.nodes.begin(), group.nodes.end(),
                     [&](int n) { return FindOp(g.nodes[n].op)->pattern == OpPattern::kElementwise; });
}

// What the group reads of others.
std::vector<ValueId> OperandsOf(const Graph& g, const Group& group) {
  std::vector<ValueId> operands;
  for (int n : group.nodes) {
    for (ValueId v : g.nodes[n].inputs) {
      const bool inside =
          std::any_of(group.nodes.begin(), group.nodes.end(), [&](int k) { return g.nodes[k].output == v; });
      if (v != kNoValue && !inside && std::find(operands.begin(), operands.end(), v) == operands.end())
        operands.push_back(v);
    }
  }
  return operands;
}

using Range = std::pair<int64_t, int64_t>;  // of the arena's bytes, its end not included

Range RangeOf(const Buffer& b) { return {b.offset, b.offset + b.bytes}; }

// What those buffers take that have a place and are alive with `b`, in the order of offsets.
std::vector<Range> Taken(const Buffer& b, const std::vector<Buffer>& buffers) {
  std::vector<Range> taken;
  for (const Buffer& p : buffers) {
    if (&p != &b && p.offset != kNoPlace && p.first <= b.last && b.first <= p.last) taken.push_back(RangeOf(p));
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

// The lowest offset at which `b` meets none of the buffers that have a place and are alive with it.
int64_t FirstFit(const Buffer& b, const std::vector<Buffer>& buffers) {
  int64_t offset = 0;
  for (const auto& [begin, end] : Taken(b, buffers)) {
    if (offset + b.bytes <= begin) break;
    offset = std::max(offset, end);
  }
  return offset;
}

// Of the threads of a kernel, the first write the beginning of its result and the last write its end. So the halves of
// a buffer lie in the caches of different cores, which may be far from each other.
Range HalfOf(const Buffer& b, int half) {
  const int64_t middle = b.offset + b.bytes / 2;
  return half == 0 ? Range{b.offset, middle} : Range{middle, b.offset + b.bytes};
}

int64_t Common(const Range& a, const Range& b) {
  return std::max<int64_t>(0, std::min(a.second, b.second) - std::max(a.first, b.first));
}

constexpr int kLongAgo = 32;  // groups, after which caches are taken to hold other things
constexpr int kNear = 8;      // groups, between which places are compared
// Beside the bytes that an arena must have at least, it may have a share of as many, for warmer places; but of a large
// arena caches hold little anyway.
constexpr int64_t kShareForRoom = 4, kMostRoom = 4 << 20;

// Buffers, in the order in which they come alive, and what their places have to keep to.
struct Arena {
  std::vector<Buffer> buffers;
  int64_t bytes = 0, alignment = 0;

  // Those around the i-th. One that came alive much earlier and is alive still is missed, at little cost.
  std::span<const Buffer> Around(size_t i, size_t before, size_t after) const {
    const size_t begin = i - std::min(i, before), end = std::min(buffers.size(), i + 1 + after);
    return std::span(buffers).subspan(begin, end - begin);
  }
};

// How many groups ago the bytes of the i-th buffer were last touched when it comes alive, summed over them. What was
// touched by the cores of the other half, or not at all, counts as touched long ago.
int64_t Staleness(const Arena& arena, size_t i) {
  const Buffer& b = arena.buffers[i];
  std::vector<const Buffer*> touched;
  for (const Buffer& p : arena.Around(i, 2 * kLongAgo, 0)) {
    if (p.offset != kNoPlace && p.last < b.first && Common(RangeOf(p), RangeOf(b)) > 0) touched.push_back(&p);
  }
  std::ranges::stable_sort(touched, std::greater(), &Buffer::last);
  int64_t sum = 0;
  std::vector<Range> left;
  for (int half : {0, 1}) {
    std::vector<Range> open{HalfOf(b, half)};
    for (const Buffer* p : touched) {
      const int64_t age = std::min(kLongAgo, b.first - p->last);
      left.clear();
      for (const auto& [begin, end] : open) {
        const int64_t from = std::clamp(p->offset, begin, end), to = std::clamp(p->offset + p->bytes, begin, end);
        const int64_t same_cores = Common({from, to}, HalfOf(*p, half));
        sum += same_cores * age + (to - from - same_cores) * kLongAgo;
        if (begin < from) left.emplace_back(begin, from);
        if (to < end) left.emplace_back(to, end);
      }
      open.swap(left);
    }
    for (const auto& [begin, end] : open) sum += (end - begin) * kLongAgo;
  }
  return sum;
}

// The staleness of the i-th buffer and of those that may lie soon where it lay.
int64_t StalenessAround(const Arena& arena, size_t i) {
  const int last = arena.buffers[i].last;
  int64_t sum = Staleness(arena, i);
  for (size_t k = i + 1; k < arena.buffers.size() && arena.buffers[k].first <= last + kNear; ++k) {
    if (arena.buffers[k].first > last && arena.buffers[k].offset != kNoPlace) sum += Staleness(arena, k);
  }
  return sum;
}

// Places the i-th buffer where it and its successors meet the memory that their cores touched last, and so lies nearest
// in the caches: in the place of one that is alive shortly before or after it, at an end or the middle of that, or
// beside it. Returns whether there is room for it.
bool PlaceWarm(Arena& arena, size_t i) {
  Buffer& b = arena.buffers[i];
  const std::vector<Range> taken = Taken(b, arena.buffers);
  std::set<int64_t> offsets{b.offset, 0, arena.bytes - b.bytes};
  for (const auto& [begin, end] : taken) offsets.insert({begin - b.bytes, end});
  for (const Buffer& p : arena.Around(i, 2 * kNear, 2 * kNear)) {
    if (&p == &b || p.offset == kNoPlace || p.last < b.first - kNear || p.first > b.last + kNear) continue;
    const int64_t longer = p.bytes - b.bytes, middles_meet = p.offset + longer / 2 / arena.alignment * arena.alignment;
    offsets.insert({p.offset - b.bytes, p.offset, middles_meet, p.offset + longer, p.offset + p.bytes});
  }
  std::pair<int64_t, int64_t> warmest{std::numeric_limits<int64_t>::max(), kNoPlace};
  for (const int64_t offset : offsets) {
    const Range range{offset, offset + b.bytes};
    if (offset < 0 || range.second > arena.bytes) continue;
    if (std::ranges::any_of(taken, [&](const Range& other) { return Common(range, other) > 0; })) continue;
    b.offset = offset;
    warmest = std::min(warmest, {StalenessAround(arena, i), offset});
  }
  b.offset = warmest.second;
  return b.offset != kNoPlace;
}

// Places all buffers anew, large ones first, since these have the fewest places. Where one finds no room, they return
// to where they were. Then each may move, now that all others have a place.
void PlaceAllWarm(Arena& arena) {
  const std::vector<Buffer> before = arena.buffers;
  for (Buffer& b : arena.buffers) b.offset = kNoPlace;
  std::vector<size_t> order(before.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return before[i].bytes; });
  if (!std::ranges::all_of(order, [&](size_t i) { return PlaceWarm(arena, i); })) arena.buffers = before;
  for (size_t i = 0; i < before.size(); ++i) PlaceWarm(arena, i);
}

// An arena that is as large as its buffers need.
Arena Placed(std::vector<Buffer> buffers, int64_t alignment) {
  // Large ones first: small ones then fill the gaps.
  std::ranges::sort(buffers, {}, [](const Buffer& b) { return std::tuple(-b.bytes, b.root, b.first); });
  int64_t bytes = 0;
  for (Buffer& b : buffers) {
    b.offset = FirstFit(b, buffers);
    bytes = std::max(bytes, RangeOf(b).second);
  }
  std::ranges::stable_sort(buffers, {}, &Buffer::first);
  const int64_t room = std::min(bytes / kShareForRoom, kMostRoom) / alignment * alignment;
  Arena arena{std::move(buffers), bytes + room, alignment};
  PlaceAllWarm(arena);
  arena.bytes = 0;
  for (const Buffer& b : arena.buffers) arena.bytes = std::max(arena.bytes, RangeOf(b).second);
  return arena;
}

}  // namespace

std::vector<ValueId> InPlaceOperands(const Graph& g) {
  const std::vector<ValueId> roots = AliasRoots(g);
  const std::vector<bool> own = OwnBytes(g, roots);
  std::vector<int> last_read(g.values.size(), -1);
  for (size_t i = 0; i < g.groups.size(); ++i) {
    for (ValueId v : OperandsOf(g, g.groups[i])) last_read[roots[v]] = static_cast<int>(i);
  }
  const Aliases aliases(g);
  std::vector<ValueId> result(g.groups.size(), kNoValue);
  for (size_t i = 0; i < g.groups.size(); ++i) {
    const ValueId out = g.nodes[g.groups[i].nodes.back()].output;
    if (!own[out] || !IsElementwise(g, g.groups[i]) || aliases.Have(g.groups[i])) continue;
    const std::vector<ValueId> operands = OperandsOf(g, g.groups[i]);
    for (ValueId v : operands) {
      const auto same_bytes = [&](ValueId other) { return roots[other] == roots[v]; };
      const bool all = NumElements(g.values[v].type.shape) == NumElements(g.values[roots[v]].type.shape);
      const bool fits = own[roots[v]] && all && last_read[roots[v]] == static_cast<int>(i) &&
                        g.values[v].type == g.values[out].type &&
                        std::count_if(operands.begin(), operands.end(), same_bytes) == 1;
      if (fits) result[i] = v;
    }
  }
  return result;
}

absl::StatusOr<BufferPlan> PlanMemory(const Graph& g, const KernelNeeds& needs) {
  if (g.groups.empty() && !g.nodes.empty())
    return absl::FailedPreconditionError("memory plan: the graph has no groups yet");
  BufferPlan plan;
  plan.alias_of = AliasRoots(g);
  plan.start = AliasStarts(g, plan.alias_of);
  plan.part = PartsOfConcats(g);
  for (size_t i = 0; i < needs.in_place.size(); ++i) {
    if (needs.in_place[i] == kNoValue) continue;
    const ValueId out = g.nodes[g.groups[i].nodes.back()].output;
    std::replace(plan.alias_of.begin(), plan.alias_of.end(), out, plan.alias_of[needs.in_place[i]]);
  }
  plan.offset.assign(g.values.size(), -1);
  plan.scratch.assign(g.groups.size(), -1);
  std::vector<Buffer> buffers = Buffers(g, plan.alias_of, needs);
  for (size_t i = 0; i < needs.scratch_bytes.size(); ++i) {
    const int now = static_cast<int>(i);
    if (needs.scratch_bytes[i] > 0)
      buffers.push_back({kNoValue, now, now, Aligned(needs.scratch_bytes[i], needs.alignment), kNoPlace,
                         ScratchLiesWithFloats(g, g.groups[i])});
  }
  const auto others = std::ranges::stable_partition(buffers, &Buffer::floats);
  for (const std::span<Buffer> kind : {std::span(buffers.begin(), others.begin()), std::span(others)}) {
    const Arena arena = Placed({kind.begin(), kind.end()}, needs.alignment);
    for (const Buffer& b : arena.buffers) {
      int64_t& offset = b.root == kNoValue ? plan.scratch[static_cast<size_t>(b.first)] : plan.offset[b.root];
      offset = plan.arena_bytes + b.offset;
    }
    plan.arena_bytes += arena.bytes;
  }
  // Only roots have an offset so far.
  const std::vector<int64_t> of_root = plan.offset;
  for (size_t i = 0; i < g.values.size(); ++i) {
    const int64_t offset = of_root[plan.alias_of[i]];
    plan.offset[i] = offset < 0 ? offset : offset + plan.start[i];
  }
  return plan;
}

}  // namespace temper
