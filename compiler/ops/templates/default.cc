// "default": a good schedule for whatever has no template of its own: elementwise chains, data movement, pooling,
// reductions, softmax, layer norm. Every stage is vectorised along memory and parallel over the rest.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/ir/simplify.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

using ir::Expr;

// The block's statement in the function.
ir::Stmt FindBlock(const ir::Func& func, const std::string& name) {
  ir::Stmt found;
  ir::VisitStmt(func.body, [&](const ir::Stmt& s) {
    if (s->kind == ir::StmtKind::kBlock && s->block.name == name) found = s;
  });
  return found;
}

// Every access of a block as a flat element index over its iterators; a reduction's own accumulator is left out.
std::vector<Expr> Accesses(const ir::Stmt& block, bool with_store) {
  std::vector<Expr> flat;
  ir::Visit(block->value, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad && e->buffer != block->buffer) flat.push_back(ir::FlatIndex(e->buffer, e->args));
  });
  if (with_store) flat.push_back(ir::FlatIndex(block->buffer, block->indices));
  return flat;
}

// Coefficient of `v` in `e`; nullopt if not linear.
std::optional<int64_t> Stride(const Expr& e, const ir::Var& v, const ir::Simplifier& simplifier) {
  std::optional<ir::Linear> linear = ir::AsLinear(simplifier.Simplify(e), {v});
  if (!linear.has_value()) return std::nullopt;
  return linear->coefficients[0];
}

// How many of the innermost iterators can be fused into one that walks all accesses with stride 0 or 1.
size_t FusibleSuffix(const ir::Stmt& block) {
  const std::vector<ir::IterVar>& iters = block->block.iters;
  const std::vector<Expr> accesses = Accesses(block, true);
  for (size_t first = 0; first + 1 < iters.size(); ++first) {
    ir::Simplifier simplifier;
    ir::Var fused = ir::MakeVar("f");
    std::vector<ir::VarBinding> bindings;
    int64_t extent = 1;
    for (size_t i = iters.size(); i-- > first;) {
      bindings.push_back({iters[i].var, Expr(fused) / Expr(extent) % Expr(iters[i].extent)});
      extent *= iters[i].extent;
    }
    simplifier.Bind(fused, extent);
    for (size_t i = 0; i < first; ++i) simplifier.Bind(iters[i].var, iters[i].extent);
    bool linear = std::all_of(accesses.begin(), accesses.end(), [&](const Expr& e) {
      std::optional<int64_t> stride = Stride(ir::Substitute(e, bindings), fused, simplifier);
      return stride == 0 || stride == 1;
    });
    if (linear) return iters.size() - first;
  }
  return 1;
}

// The widest run of lanes (at most `most` vectors of them) that divides `extent`, or one vector with a masked tail.
int64_t VectorLength(int64_t extent, int64_t lanes, int64_t most) {
  for (int64_t n = most; n >= 1; n /= 2) {
    if (extent % (n * lanes) == 0) return n * lanes;
  }
  return lanes;
}

Loop FuseAll(Schedule& s, const std::vector<Loop>& loops) {
  Loop fused = loops.front();
  for (size_t i = 1; i < loops.size(); ++i) fused = s.Fuse(fused, loops[i]);
  return fused;
}

void ScheduleInjective(Schedule& s, const std::string& name, const Target& t, int64_t vectors) {
  const ir::Stmt block = FindBlock(s.func(), name);
  std::vector<Loop> loops = s.Loops(name);
  if (block == nullptr || loops.empty()) return;
  const size_t fused = FusibleSuffix(block);
  std::vector<Loop> inner(loops.end() - static_cast<std::ptrdiff_t>(fused), loops.end());
  loops.resize(loops.size() - fused);
  Loop row = FuseAll(s, inner);
  if (s.Extent(row) >= t.lanes()) {
    auto [outer, lane] = s.Split(row, VectorLength(s.Extent(row), t.lanes(), vectors));
    s.Vectorize(lane);
    loops.push_back(outer);
  } else {
    loops.push_back(row);
  }
  Loop parallel = FuseAll(s, loops);
  s.Parallel(parallel);
  s.Partition(parallel);
}

// A reduction whose innermost output dimension runs along memory (pooling, sums over leading axes): vectors of outputs.
void ScheduleReduceAcross(Schedule& s, const std::string& name, size_t spatial, const Target& t, int64_t vectors) {
  std::vector<Loop> loops = s.Loops(name);
  std::vector<Loop> outer(loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(spatial));
  std::vector<Loop> order, reduce(loops.begin() + static_cast<std::ptrdiff_t>(spatial), loops.end());
  Loop lane;
  if (!outer.empty() && s.Extent(outer.back()) >= t.lanes()) {
    auto [rest, in] = s.Split(outer.back(), VectorLength(s.Extent(outer.back()), t.lanes(), vectors));
    outer.back() = rest;
    lane = in;
    order = outer;
    order.insert(order.end(), reduce.begin(), reduce.end());
    order.push_back(lane);
    s.Reorder(order);
  }
  const std::string init = s.DecomposeReduction(name, reduce.front());
  if (lane != nullptr) {
    s.Vectorize(lane);
    s.Vectorize(s.Loops(init).back());
  }
  if (outer.empty()) return;
  Loop parallel = FuseAll(s, outer);
  s.Parallel(parallel);
  s.Partition(parallel);
}

// A reduction along memory (softmax, norms, means over the last axis): partial results per lane, then one across lanes.
void ScheduleReduceAlong(Schedule& s, const std::string& name, size_t spatial, const Target& t, int64_t vectors) {
  std::vector<Loop> loops = s.Loops(name);
  auto [rest, lane] = s.Split(loops.back(), VectorLength(s.Extent(loops.back()), t.lanes(), vectors));
  auto [partial, last] = s.Rfactor(name, lane);
  loops = s.Loops(last);
  if (!s.status().ok()) return;
  if (spatial > 0) {
    Loop parallel = FuseAll(s, std::vector<Loop>(loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(spatial)));
    s.ComputeAt(partial, parallel);
    s.SetScope(partial, ir::Scope::kRegister);
    s.Parallel(parallel);
  }
  std::vector<Loop> inside = s.Loops(partial);
  if (!s.status().ok()) return;
  Loop lanes = lane, first = inside.front();
  if (spatial > 0) {
    // Placed anew, the nest has its lanes before the reduction loops; they go innermost.
    const ir::Stmt block = FindBlock(s.func(), partial);
    size_t reduce = 0;
    for (const ir::IterVar& iter : block->block.iters) reduce += iter.reduce ? 1 : 0;
    lanes = inside[inside.size() - reduce - 1];
    std::vector<Loop> order(inside.end() - static_cast<std::ptrdiff_t>(reduce), inside.end());
    first = order.front();
    order.push_back(lanes);
    s.Reorder(order);
  }
  const std::string init = s.DecomposeReduction(partial, first);
  s.Vectorize(lanes);
  s.Vectorize(s.Loops(init).back());
  const std::string last_init = s.DecomposeReduction(last, s.Loops(last).back());
  s.Vectorize(s.Loops(last).back());
  s.Partition(first);
}

void ScheduleReduction(Schedule& s, const std::string& name, const Target& t, int64_t vectors) {
  const ir::Stmt block = FindBlock(s.func(), name);
  ir::Simplifier simplifier;
  size_t spatial = 0;
  for (const ir::IterVar& iter : block->block.iters) {
    simplifier.Bind(iter.var, iter.extent);
    spatial += iter.reduce ? 0 : 1;
  }
  const ir::IterVar& inner = block->block.iters.back();
  bool along = inner.extent >= t.lanes();
  for (const Expr& access : Accesses(block, false)) {
    std::optional<int64_t> stride = Stride(access, inner.var, simplifier);
    along = along && (stride == 0 || stride == 1);
  }
  if (along) {
    ScheduleReduceAlong(s, name, spatial, t, vectors);
  } else {
    ScheduleReduceAcross(s, name, spatial, t, vectors);
  }
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w) {
  ir::ProgramBuilder b("stages");
  WorkloadProgram program(w, b);
  TEMPER_RETURN_IF_ERROR(program.Compute(0, static_cast<int>(w.calls.size())));
  ir::Buffer out =
      b.Compute("out", w.output().dtype, w.output().PhysicalShape(), [&](const std::vector<Expr>& physical) {
        std::vector<Expr> logical = physical;
        for (size_t i = 0; i < w.output().perm.size(); ++i)
          logical[static_cast<size_t>(w.output().perm[i])] = physical[i];
        return program.result()(logical);
      });
  b.MarkOutput(out);
  return b.Finish();
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const Target& t) {
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w));
  Schedule s(std::move(func));
  for (const std::string& name : s.Blocks()) {
    const ir::Stmt block = FindBlock(s.func(), name);
    if (block->block.init) {
      ScheduleReduction(s, name, t, c["vectors"]);
    } else {
      ScheduleInjective(s, name, t, c["vectors"]);
    }
  }
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

ConfigSpace Space(const Workload&, const Target&) {
  ConfigSpace space;
  space.Add("vectors", {1, 2, 4});
  return space;
}

Footprint FootprintOf(const Workload& w, const Config& c, const Target& t) {
  Footprint f;
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

TemplateDef DefaultTemplate() {
  return {"default",
          1,
          [](const Workload& w) {
            return std::all_of(w.calls.begin(), w.calls.end(), [](const Workload::Call& call) {
              const OpDef* op = FindOp(call.op);
              return op != nullptr && op->compute != nullptr;
            });
          },
          Space,
          Build,
          FootprintOf};
}

}  // namespace temper
