// "default": a good schedule for whatever has no template of its own: elementwise chains, data movement, pooling,
// reductions, softmax, layer norm. Every stage is vectorised along memory. Stages that share their outermost loops are
// one kernel: all of a row's stages run one after another beside its data, or a vector's in registers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/ir/simplify.h"
#include "compiler/ir/walk.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/vectors.h"

namespace temper {
namespace {

using ir::Expr;

// As many of the outermost loops as give threads enough to share become one parallel loop; the others run inside it,
// so that no index is divided out of it again.
Loop ParallelPrefix(Schedule& s, const std::vector<Loop>& loops, const CpuTarget& t) {
  const size_t count = std::max<size_t>(1, LoopsToShare(s, loops, t));
  Loop parallel = FuseAll(s, {loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(count)});
  s.Parallel(parallel);
  return parallel;
}

// A copy whose innermost dimension is too short for a vector, while the one around it runs along memory in the source
// (planes of an image that become pixels): vectors of each plane go through registers, and are stored interleaved.
bool InterleavePlanes(Schedule& s, const std::string& name, const CpuTarget& t) {
  const ir::Stmt block = BlockNamed(s.func(), name);
  const std::vector<ir::IterVar>& iters = block->block.iters;
  if (block->block.init || iters.size() < 3 || block->value->kind != ir::ExprKind::kLoad) return false;
  const ir::IterVar &planes = iters.back(), &along = iters[iters.size() - 2];
  const int64_t lanes = std::min<int64_t>(t.lanes(), 8);  // of wider vectors the shuffles cost more than they save
  if (planes.extent < 2 || planes.extent > 4 || along.extent % lanes != 0) return false;
  ir::Simplifier simplifier;
  for (const ir::IterVar& iter : iters) simplifier.Bind(iter.var, iter.extent);
  const ir::Buffer& from = block->value->buffer;
  if (Stride(ir::FlatIndex(from, block->value->args), along.var, simplifier) != 1) return false;
  // The source's last dimension is the one that runs along memory, by itself.
  const Expr& last = block->value->args.back();
  if (last->kind != ir::ExprKind::kVar || last->var != along.var) return false;

  std::vector<Loop> loops = s.Loops(name);
  if (!s.status().ok()) return true;
  auto [rest, lane] = s.Split(loops[loops.size() - 2], lanes);
  const Loop pixels = s.Fuse(lane, loops.back());
  const std::string vectors = s.CacheRead(name, from->name, ir::Scope::kRegister);
  s.ComputeAt(vectors, rest);
  s.Vectorize(pixels);
  if (!s.status().ok()) return true;
  const std::vector<Loop> plane = s.Loops(vectors);
  s.Vectorize(plane.back());
  for (size_t i = loops.size() - 1; i + 1 < plane.size(); ++i) s.Unroll(plane[i]);
  loops.pop_back();
  loops.back() = rest;
  ParallelPrefix(s, loops, t);
  return true;
}

// The dimension along which neighbours are read, where elements that are stored side by side are read far apart: an
// iterator, of whose elements every `parts`-th are such neighbours, as where channels were interleaved.
struct Line {
  size_t iter;
  int64_t parts;
};
constexpr int64_t kLine = 16;

std::optional<Line> LineOf(const std::vector<ir::IterVar>& iters, std::vector<Expr> loads) {
  constexpr int64_t kMostParts = 8;
  ir::Simplifier simplifier;
  for (const ir::IterVar& iter : iters) simplifier.Bind(iter.var, iter.extent);
  std::erase_if(loads, [&](const Expr& load) {
    const std::optional<int64_t> across = Stride(load, iters.back().var, simplifier);
    return !across.has_value() || *across < kLine;
  });
  for (int64_t parts = 1; parts <= kMostParts; ++parts) {
    for (const Expr& load : loads) {
      for (size_t i = 0; i + 1 < iters.size(); ++i) {
        if (iters[i].extent % parts != 0 || iters[i].extent / parts < kLine) continue;
        const ir::Var at = ir::MakeVar("at"), part = ir::MakeVar("part");
        ir::Simplifier in_parts = simplifier;
        in_parts.Bind(at, iters[i].extent / parts);
        in_parts.Bind(part, parts);
        const Expr index = ir::Substitute(load, {{iters[i].var, Expr(at) * Expr(parts) + Expr(part)}});
        if (Stride(index, at, in_parts) == 1) return Line{i, parts};
      }
    }
  }
  return std::nullopt;
}

// A stage that reads along one of its outer dimensions and writes along its innermost: tiles in which whole lines are
// read, in squares of vectors that are transposed in registers.
bool TransposeTiles(Schedule& s, const std::string& name, const CpuTarget& t) {
  const ir::Stmt block = BlockNamed(s.func(), name);
  const std::vector<ir::IterVar>& iters = block->block.iters;
  if (block->block.init || iters.size() < 2) return false;
  const std::optional<Line> along = LineOf(iters, Accesses(block, false));
  if (!along.has_value()) return false;
  const size_t fused = FusibleSuffix(block, along->iter + 1, true, true);
  std::vector<Loop> loops = s.Loops(name);
  if (fused == 0 || !s.status().ok()) return false;
  int64_t length = 1;
  for (const Loop& loop : Innermost(loops, fused)) length *= s.Extent(loop);
  if (length < kLine) return false;
  Loop line = loops[along->iter];
  const Loop run = FuseAll(s, Innermost(loops, fused));
  loops.resize(loops.size() - fused);
  if (along->parts == 1) {
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(along->iter));
  } else {
    std::tie(line, loops[along->iter]) = s.Split(line, along->parts);
  }
  // Of wider squares the shuffles cost more than they save.
  const int64_t bytes = std::max<int64_t>(SizeOf(block->buffer->dtype), 4);
  auto [runs, lane] = s.Split(run, std::min<int64_t>(t.lanes() * 4 / bytes, 8));
  auto [lines, row] = s.Split(line, kLine);
  loops.insert(loops.end(), {lines, runs});
  std::vector<Loop> order = loops;
  order.insert(order.end(), {row, lane});
  s.Reorder(order);
  s.Vectorize(lane);
  s.Partition(ParallelPrefix(s, loops, t));
  s.Unroll(row);
  return true;
}

// One stage by itself, parallel over its outermost loops.
void ScheduleAlone(Schedule& s, const std::string& name, const CpuTarget& t, const Lanes& v) {
  const ir::Stmt block = BlockNamed(s.func(), name);
  size_t spatial = 0;
  for (const ir::IterVar& iter : block->block.iters) spatial += iter.reduce ? 0 : 1;
  const Reduction r = ReductionOf(block, v);
  std::vector<Loop> outer = s.Loops(name);
  if (spatial == 0) return ScheduleInside(s, name, 0, v);
  if (InterleavePlanes(s, name, t) || TransposeTiles(s, name, t)) return;
  outer.resize(spatial);
  if (block->block.init && r.along > 0) {
    ScheduleInside(s, name, 0, v);
    ParallelPrefix(s, outer, t);
    return;
  }
  // The loops that become vectors keep one loop of them for the threads, where there is no other.
  size_t inner = block->block.init ? 1 : std::max<size_t>(1, FusibleSuffix(block, 0, true));
  Loop run = FuseAll(s, {outer.end() - static_cast<std::ptrdiff_t>(inner), outer.end()});
  outer.resize(spatial - inner);
  const bool vector = s.Extent(run) >= t.lanes();
  if (vector) {
    auto [rest, lane] = s.Split(run, v.Length(s.Extent(run)));
    outer.push_back(rest);
    if (!block->block.init) s.Vectorize(lane);
  } else {
    outer.push_back(run);
  }
  if (block->block.init) VectorizeAcross(s, name, r, vector);
  s.Partition(ParallelPrefix(s, outer, t));
}

// Whether every stage's part of a row is a few whole vectors, walked from its start to its end.
bool RowFitsRegisters(const ir::Func& func, size_t shared, const CpuTarget& t, const Lanes& v) {
  bool fits = true;
  ir::VisitStmt(func.body, [&](const ir::Stmt& s) {
    if (s->kind != ir::StmtKind::kBlock) return;
    const Shape& shape = s->buffer->shape;
    fits = fits && shape.size() == shared + 1;
    if (!fits) return;
    const Reduction r = ReductionOf(s, v);
    if (s->block.init) fits = r.reduce == 1 && r.along == 1 && shape.back() == 1;
    const int64_t length = s->block.init ? s->block.iters.back().extent : shape.back();
    fits = fits && (length == 1 || v.Fills(length)) && length <= v.lanes * t.vector_registers / 4;
  });
  return fits;
}

// The operand as large as the result that the block reads where its loops say, if there is one.
std::string LargeOperand(const ir::Func& func, const ir::Stmt& block, const Shape& result) {
  std::string found;
  ir::AnyNode(block->value, [&](const Expr& e) {
    if (e->kind != ir::ExprKind::kLoad || NumElements(e->buffer->shape) != NumElements(result)) return false;
    if (std::ranges::any_of(e->args, ir::HasLoad)) return false;
    if (std::ranges::find(func.params, e->buffer) != func.params.end()) found = e->buffer->name;
    return !found.empty();
  });
  return found;
}

// While a row is worked on, what follows is on its way: the lines that its results go to, and the next row of the
// operand. The last stage before the results that reads the operand has the work to hide that behind.
void FetchBesideRow(Schedule& s, const Loop& row) {
  const std::vector<std::string> stages = s.Blocks();
  const ir::Stmt out = BlockNamed(s.func(), "out");
  const std::vector<Loop> last = s.Loops("out");
  if (IsPacked(out->buffer->dtype)) return;
  for (size_t i = stages.size(); i-- > 0;) {
    if (stages[i].starts_with("out")) continue;  // or its tail
    const std::string from = LargeOperand(s.func(), BlockNamed(s.func(), stages[i]), out->buffer->shape);
    if (from.empty()) continue;
    const std::vector<Loop> there = s.Loops(stages[i]);
    if (!s.status().ok() || there.size() < 3 || last.size() != 3) return;  // row, vectors, lanes
    const Loop run = there[there.size() - 2], lane = there.back();
    if (s.Extent(run) != s.Extent(last[1]) || s.Extent(lane) != s.Extent(last[2])) return;
    for (int64_t at = 0; at < s.Extent(lane); at += kLineBytes / SizeOf(out->buffer->dtype)) {
      s.PrefetchAt("out", "out", run, {{last[1], Expr(run)}, {last[2], Expr(at)}});
      s.PrefetchAt(stages[i], from, run, {{row, Expr(row) + Expr(1)}, {lane, Expr(at)}});
    }
    return;
  }
}

// All stages of one row, a point of the shared loops, one after another beside each other's results.
// A short row stays in registers.
void ScheduleRows(Schedule& s, size_t shared, const CpuTarget& t, Lanes v) {
  const std::vector<std::string> stages = s.Blocks();
  v.unroll = RowFitsRegisters(s.func(), shared, t, v);
  const std::vector<Loop> loops = s.Loops(stages.back());
  Loop row = FuseAll(s, {loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(shared)});
  for (size_t i = stages.size() - 1; i-- > 0;) {
    s.ComputeAt(stages[i], row);
    if (v.unroll) s.SetScope(stages[i], ir::Scope::kRegister);
  }
  for (const std::string& name : stages) {
    if (!s.status().ok()) return;
    const ir::Stmt block = BlockNamed(s.func(), name);
    ScheduleInside(s, name, block->indices.size() - shared, v);
  }
  if (!v.unroll) FetchBesideRow(s, row);
  s.Parallel(row);
}

// Vectors of output elements that each have results of their own in every stage: these stay in registers.
void ScheduleVectors(Schedule& s, const CpuTarget& t, const Lanes& v) {
  const std::vector<std::string> stages = s.Blocks();
  std::vector<Loop> loops = s.Loops(stages.back());
  const int64_t width = s.Extent(loops.back()), length = v.Length(width);
  auto [rest, lane] = s.Split(loops.back(), length);
  loops.back() = rest;
  for (size_t i = stages.size() - 1; i-- > 0;) {
    s.ComputeAt(stages[i], rest);
    s.SetScope(stages[i], ir::Scope::kRegister);
  }
  s.Vectorize(lane);
  for (size_t i = 0; i + 1 < stages.size() && s.status().ok(); ++i) {
    const ir::Stmt block = BlockNamed(s.func(), stages[i]);
    if (block->block.init) {
      VectorizeAcross(s, stages[i], ReductionOf(block, v), true);
    } else {
      s.Vectorize(s.Loops(stages[i]).back());
    }
  }
  const Loop parallel = ParallelPrefix(s, loops, t);
  if (!s.status().ok() || width % length == 0) return;
  // Registers are allocated to whole vectors and to the last, partial one apart.
  const std::vector<Loop> left = s.Loops(stages.back());
  if (left.size() > 2) {
    s.Peel(left[left.size() - 2], 0, 1);
  } else {
    s.Partition(parallel);
  }
}

void ScheduleStages(Schedule& s, const CpuTarget& t, const Lanes& v) {
  constexpr int64_t kSmall = 1 << 16;  // elements: so few that one thread is as quick as several
  const std::vector<std::string> stages = s.Blocks();
  const ir::Stmt out = BlockNamed(s.func(), stages.back());
  const Shape& shape = out->buffer->shape;
  const size_t shared = SharedLoops(s.func());
  int64_t rows = 1;
  for (size_t d = 0; d < shared; ++d) rows *= shape[d];
  bool along = false;
  for (const std::string& name : stages) {
    const ir::Stmt block = BlockNamed(s.func(), name);
    along = along || (block->block.init && ReductionOf(block, v).along > 0);
  }
  if (stages.size() > 1 && shared > 0 && shared == shape.size() && !along && shape.back() >= v.lanes)
    return ScheduleVectors(s, t, v);
  if (stages.size() > 1 && shared > 0 && (rows >= 4 * t.threads || NumElements(shape) <= kSmall))
    return ScheduleRows(s, shared, t, v);
  for (const std::string& name : stages) ScheduleAlone(s, name, t, v);
}

// Whether one thread is done before another would have begun: that takes some hundred nanoseconds, and more where cores
// are far from one another.
bool IsLittle(const Workload& w) {
  constexpr double kLittleBytes = 4096, kLittleFlops = 16384;
  return CompulsoryBytes(w) <= kLittleBytes && Flops(w) <= kLittleFlops;
}

ir::Func OnOneThread(const ir::Func& f) {
  ir::Func alone = f;
  alone.body = ir::RewriteStmt(f.body, [](const ir::Stmt& s) -> ir::Stmt {
    if (s->kind != ir::StmtKind::kFor || s->for_kind != ir::ForKind::kParallel) return nullptr;
    return ir::For(s->var, s->extent, ir::ForKind::kSerial, s->body);
  });
  return alone;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildStages(w));
  Schedule s(std::move(func));
  ScheduleStages(s, t, {t.lanes(), c["vectors"]});
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, Finished(s));
  if (IsLittle(w)) kernel.scheduled = OnOneThread(kernel.scheduled);
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

ConfigSpace Space(const Workload&, const CpuTarget&) {
  ConfigSpace space;
  space.Add("vectors", {1, 2, 4});
  return space;
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  CpuFootprint f;
  f.flops = f.padded_flops = std::max(1.0, Flops(w));
  f.vector_lanes = t.lanes();
  f.tile_columns = static_cast<double>(c["vectors"] * t.lanes());
  f.loads_per_fma = 1;
  f.compulsory_bytes = f.memory_traffic = f.l2_traffic = CompulsoryBytes(w);
  f.parallel_chunks = std::max(1.0, static_cast<double>(NumElements(w.output().shape)) / f.tile_columns);
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  return f;
}

}  // namespace

CpuTemplate DefaultTemplate() { return {"default", 7, HasTensorExpressions, Space, Build, FootprintOf}; }

}  // namespace temper
