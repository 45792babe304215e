#include "compiler/ops/templates/vectors.h"

#include <bit>

namespace temper {

int64_t Lanes::Length(int64_t extent) const {
  return extent >= lanes ? VectorLength(extent, lanes, vectors)
                         : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent)));
}

Reduction ReductionOf(const ir::Stmt& block, const Lanes& v) {
  Reduction r;
  for (const ir::IterVar& iter : block->block.iters) ++(iter.reduce ? r.reduce : r.spatial);
  r.along = FusibleSuffix(block, r.spatial, false);
  int64_t extent = 1;
  for (size_t i = 0; i < r.along; ++i) extent *= block->block.iters[r.spatial + r.reduce - 1 - i].extent;
  if (!v.Fills(extent)) r.along = 0;
  return r;
}

// The innermost `count` loops of a stage without reduction: those that run along memory become vectors.
static void VectorizeInjective(Schedule& s, const std::string& name, size_t count, const Lanes& v) {
  const ir::Stmt block = BlockNamed(s.func(), name);
  std::vector<Loop> loops = s.Loops(name);
  const size_t fused = std::max<size_t>(1, FusibleSuffix(block, block->block.iters.size() - count, true));
  if (count == 0 || loops.size() < fused) return;
  Loop run = FuseAll(s, Innermost(loops, fused));
  if (!v.Fills(s.Extent(run))) return;
  auto [rest, lane] = s.Split(run, v.Length(s.Extent(run)));
  s.Vectorize(lane);
  if (v.unroll) s.Unroll(rest);
  s.Partition(rest);
}

static void VectorizeAlong(Schedule& s, const std::string& name, const Reduction& r, const Lanes& v) {
  const std::vector<Loop> loops = s.Loops(name);
  if (!s.status().ok()) return;
  Loop run = FuseAll(s, Innermost(loops, r.along));
  auto [rest, lane] = s.Split(run, v.Length(s.Extent(run)));
  const Loop first = r.reduce == r.along ? rest : loops[loops.size() - r.reduce];
  auto [partial, last] = s.Rfactor(name, lane);
  s.SetScope(partial, ir::Scope::kRegister);
  const std::string init = s.DecomposeReduction(partial, first);
  s.Vectorize(lane);
  if (!s.status().ok()) return;
  s.Vectorize(s.Loops(init).back());
  s.DecomposeReduction(last, s.Loops(last).back());
  s.Vectorize(s.Loops(last).back());
  if (v.unroll) s.Unroll(rest);
  s.Partition(rest);
}

void VectorizeAcross(Schedule& s, const std::string& name, const Reduction& r, bool vector) {
  constexpr int64_t kSmallWindow = 16;
  const std::vector<Loop> loops = s.Loops(name);
  if (!s.status().ok()) return;
  const std::vector<Loop> reduce = Innermost(loops, r.reduce);
  std::vector<Loop> order = reduce;
  if (vector) {  // then there is a loop around them; a sum to one number has none
    order.push_back(loops[loops.size() - r.reduce - 1]);
    s.Reorder(order);
  }
  const std::string init = s.DecomposeReduction(name, reduce.front());
  int64_t window = 1;
  for (const Loop& loop : reduce) window *= s.Extent(loop);
  for (const Loop& loop : reduce) {
    if (window <= kSmallWindow) s.Unroll(loop);
  }
  if (!vector || !s.status().ok()) return;
  s.Vectorize(order.back());
  s.Vectorize(s.Loops(init).back());
}

void ScheduleInside(Schedule& s, const std::string& name, size_t count, const Lanes& v) {
  const ir::Stmt block = BlockNamed(s.func(), name);
  if (!block->block.init) return VectorizeInjective(s, name, count, v);
  const Reduction r = ReductionOf(block, v);
  if (r.along > 0) return VectorizeAlong(s, name, r, v);
  if (count == 0) return VectorizeAcross(s, name, r, false);
  std::vector<Loop> loops = s.Loops(name);
  if (!s.status().ok()) return;
  const Loop last = loops[loops.size() - r.reduce - 1];
  if (s.Extent(last) < v.lanes) return VectorizeAcross(s, name, r, false);
  auto [rest, lane] = s.Split(last, v.Length(s.Extent(last)));
  VectorizeAcross(s, name, r, true);
  s.Partition(rest);
}

}  // namespace temper
