#include "compiler/ops/templates/stages.h"

#include <algorithm>

#include "compiler/ops/families/infer_util.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"

namespace temper {

using ir::Expr;

ir::Stmt BlockNamed(const ir::Func& func, const std::string& name) {
  ir::Stmt found;
  ir::VisitStmt(func.body, [&](const ir::Stmt& s) {
    if (s->kind == ir::StmtKind::kBlock && s->block.name == name) found = s;
  });
  return found;
}

std::vector<Expr> Accesses(const ir::Stmt& block, bool with_store) {
  std::vector<Expr> flat;
  ir::Visit(block->value, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad && e->buffer != block->buffer) flat.push_back(ir::FlatIndex(e->buffer, e->args));
  });
  if (with_store) flat.push_back(ir::FlatIndex(block->buffer, block->indices));
  return flat;
}

std::optional<int64_t> Stride(const Expr& e, const ir::Var& v, const ir::Simplifier& simplifier) {
  std::optional<ir::Linear> linear = ir::AsLinear(simplifier.Simplify(e), {v});
  if (!linear.has_value()) return std::nullopt;
  return linear->coefficients[0];
}

size_t FusibleSuffix(const ir::Stmt& block, size_t first, bool with_store, bool any_stride) {
  const std::vector<ir::IterVar>& iters = block->block.iters;
  const std::vector<Expr> accesses = Accesses(block, with_store);
  for (; first < iters.size(); ++first) {
    if (iters[first].reduce != iters.back().reduce) continue;
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
      return stride.has_value() && (any_stride || *stride == 0 || *stride == 1);
    });
    if (linear) return iters.size() - first;
  }
  return 0;
}

bool RunsAlongMemory(const ir::Stmt& block) {
  const std::vector<ir::IterVar>& iters = block->block.iters;
  const auto last = std::find_if(iters.rbegin(), iters.rend(), [](const ir::IterVar& iter) { return !iter.reduce; });
  if (last == iters.rend()) return false;
  ir::Simplifier simplifier;
  for (const ir::IterVar& iter : iters) simplifier.Bind(iter.var, iter.extent);
  return std::ranges::all_of(Accesses(block, true), [&](const Expr& e) {
    const std::optional<int64_t> stride = Stride(e, last->var, simplifier);
    return stride == 0 || stride == 1;
  });
}

size_t SharedLoops(const ir::Func& func, bool any_one) {
  std::vector<ir::Stmt> blocks;
  ir::VisitStmt(func.body, [&](const ir::Stmt& s) {
    if (s->kind == ir::StmtKind::kBlock) blocks.push_back(s);
  });
  const Shape& out = blocks.back()->buffer->shape;
  size_t shared = out.size();
  auto limit = [&](size_t rank, const std::function<bool(size_t)>& same) {
    size_t d = 0;
    while (d < std::min(shared, rank) && same(d)) ++d;
    shared = d;
  };
  for (const ir::Stmt& block : blocks) {
    limit(block->buffer->shape.size(),
          [&](size_t d) { return block->buffer->shape[d] == out[d] && block->indices[d]->kind == ir::ExprKind::kVar; });
  }
  for (const ir::Stmt& block : blocks) {
    ir::Visit(block->value, [&](const Expr& e) {
      if (e->kind != ir::ExprKind::kLoad) return;
      const bool made =
          std::any_of(blocks.begin(), blocks.end(), [&](const ir::Stmt& b) { return b->buffer == e->buffer; });
      if (!made) return;
      limit(e->args.size(), [&](size_t d) {
        return (any_one && e->buffer->shape[d] == 1) || ir::StructurallyEqual(e->args[d], block->indices[d]);
      });
    });
  }
  return shared;
}

size_t LoopsToShare(Schedule& s, const std::vector<Loop>& loops, const CpuTarget& t) {
  size_t count = 0;
  for (int64_t chunks = 1; count < loops.size() && chunks < kChunksEach * t.threads; ++count)
    chunks *= s.Extent(loops[count]);
  return count;
}

Loop FuseAll(Schedule& s, const std::vector<Loop>& loops) {
  Loop fused = loops.front();
  for (size_t i = 1; i < loops.size(); ++i) fused = s.Fuse(fused, loops[i]);
  return fused;
}

std::vector<Loop> Innermost(const std::vector<Loop>& loops, size_t count) {
  return {loops.end() - static_cast<std::ptrdiff_t>(count), loops.end()};
}

void InRegisters(Schedule& s, const std::vector<std::string>& steps, const Loop& loop) {
  for (const std::string& step : steps) {
    s.ComputeAt(step, loop);
    s.SetScope(step, ir::Scope::kRegister);
  }
}

absl::StatusOr<ir::Func> BuildStages(const Workload& w) {
  ir::ProgramBuilder b("stages");
  WorkloadProgram program(w, b);
  TEMPER_RETURN_IF_ERROR(program.Compute(0, static_cast<int>(w.calls.size())));
  program.MarkOut();
  return b.Finish();
}

bool SumsPixels(const Workload& w, std::span<const DType> types, int64_t fewest) {
  const Workload::Call& call = w.calls[0];
  if (w.anchor != 0 || (call.op != "reduce_mean" && call.op != "reduce_sum")) return false;
  const auto of = [&](DType type) { return IsOfElement(w, call, type); };
  if (std::ranges::none_of(types, of) || call.args[0] >= static_cast<int>(w.inputs.size())) return false;
  const TensorType& x = w.TypeOf(call.args[0]);
  const absl::StatusOr<std::vector<int64_t>> axes =
      ops::NormalizeAxes(call.attrs.Ints("axes"), static_cast<int64_t>(x.shape.size()));
  return x.perm == kChannelsLast && axes.ok() && *axes == std::vector<int64_t>{2, 3} &&
         x.shape[2] * x.shape[3] >= fewest &&
         std::all_of(w.calls.begin() + 1, w.calls.end(), [&](const Workload::Call& after) {
           return FindOp(after.op)->pattern == OpPattern::kElementwise && after.type.shape == call.type.shape;
         });
}

bool HasTensorExpressions(const Workload& w) {
  return std::ranges::all_of(w.calls, [](const Workload::Call& call) {
    const OpDef* op = FindOp(call.op);
    return op != nullptr && op->compute != nullptr;
  });
}

}  // namespace temper
