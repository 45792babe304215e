#include "compiler/schedule/lower.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/schedule/lower/epilogue.h"
#include "compiler/schedule/nest.h"
#include "compiler/schedule/lower/scratch.h"
#include "compiler/schedule/lower/tensor.h"
#include "compiler/schedule/lower/threads.h"
#include "spdlog/spdlog.h"

namespace temper {
namespace {

using namespace nest;  // NOLINT: this file is about nests
using ir::ExprKind;

// if (condition) s, and s where there is none.
Stmt Under(const Expr& condition, Stmt s) { return condition ? ir::If(condition, std::move(s)) : s; }

// An element that keeps its value unless a condition holds is not stored at all where it does not.
Stmt StoreOf(const StmtNode& block, const std::vector<Expr>& indices) {
  const auto bindings = BindingsOf(block);
  if (std::optional<GuardedUpdate> guarded = GuardOf(block)) {
    return ir::If(ir::Substitute(guarded->condition, bindings),
                  ir::Store(block.buffer, indices, ir::Substitute(guarded->value, bindings)));
  }
  Stmt store = ir::Store(block.buffer, indices, ir::Substitute(block.value, bindings));
  if (block.ahead == 0) return store;
  auto copy = std::make_shared<StmtNode>(*store);
  copy->ahead = block.ahead;
  return copy;
}

Stmt LowerBlock(const StmtNode& block) {
  const auto bindings = BindingsOf(block);
  std::vector<Expr> indices;
  for (const Expr& e : block.indices) indices.push_back(ir::Substitute(e, bindings));
  Stmt store = StoreOf(block, indices);
  if (block.block.init) {
    std::vector<Expr> first;
    for (size_t i = 0; i < block.block.iters.size(); ++i) {
      if (block.block.iters[i].reduce) first.push_back(Eq(block.block.bindings[i], Expr(0)));
    }
    Stmt init = ir::Store(block.buffer, indices, ir::Substitute(block.block.init, bindings));
    store = ir::Seq({Under(Conjoin(first), init), store});
  }
  return Under(block.block.predicate, store);
}

Stmt LowerBlocks(const Stmt& root) {
  return ir::RewriteStmt(root,
                         [](const Stmt& s) -> Stmt { return s->kind == StmtKind::kBlock ? LowerBlock(*s) : nullptr; });
}

// A copy with loop variables of its own.
Stmt Renamed(const Stmt& s) {
  std::vector<ir::VarBinding> renamed;
  Stmt loops = ir::RewriteStmt(s, [&](const Stmt& node) -> Stmt {
    if (node->kind != StmtKind::kFor) return nullptr;
    Var var = ir::MakeVar(node->var->name);
    renamed.push_back({node->var, var});
    return ir::For(var, node->extent, node->for_kind, node->body);
  });
  return ir::Substitute(loops, renamed);
}

// The part [begin, end) of a loop; null if it is empty.
Stmt Part(const Stmt& loop, int64_t begin, int64_t end, const Stmt& body) {
  if (body == nullptr || begin >= end) return nullptr;
  Stmt shifted = begin == 0 ? body : ir::Substitute(body, {{loop->var, Expr(loop->var) + Expr(begin)}});
  return Renamed(ir::For(loop->var, end - begin, loop->for_kind, shifted));
}

// A loop whose body is decided by its variable's being below a constant becomes two.
Stmt SplitByCondition(const Stmt& loop) {
  const Stmt& body = loop->body;
  const Expr& c = body->cond;
  if (c->kind != ExprKind::kLt || loop->for_kind == ir::ForKind::kVectorized) return nullptr;
  if (body->else_body && loop->for_kind == ir::ForKind::kParallel) return nullptr;
  auto is_var = [&](const Expr& e) { return e->kind == ExprKind::kVar && e->var == loop->var; };
  Stmt first = body->body, second = body->else_body;
  std::optional<int64_t> middle;
  if (is_var(c->args[0])) {
    middle = ir::AsInt(c->args[1]);
  } else if (is_var(c->args[1]) && ir::AsInt(c->args[0])) {
    middle = *ir::AsInt(c->args[0]) + 1;
    std::swap(first, second);
  }
  if (!middle.has_value()) return nullptr;
  middle = std::clamp<int64_t>(*middle, 0, loop->extent);
  Stmt both = Sequence({Part(loop, 0, *middle, first), Part(loop, *middle, loop->extent, second)});
  return both ? both : ir::Seq({});
}

// Conditions that a loop does not change move out of it. Group and thread loops hold what there is.
Stmt HoistFromLoop(const Stmt& loop) {
  const Stmt& body = loop->body;
  if (ir::IsGroup(loop->for_kind) || ir::IsThread(loop->for_kind)) return nullptr;
  if (body->kind != StmtKind::kIf || HasLoad(body->cond)) return nullptr;
  if (Stmt split = SplitByCondition(loop)) return split;
  if (body->else_body) {
    if (loop->for_kind == ir::ForKind::kParallel || ir::UsesVar(body->cond, loop->var)) return nullptr;
    // The variable is bound once in each branch.
    Stmt other = Renamed(ir::For(loop->var, loop->extent, loop->for_kind, body->else_body));
    return ir::If(body->cond, ir::For(loop->var, loop->extent, loop->for_kind, body->body), other);
  }
  std::vector<Expr> fixed, varying;
  for (const Expr& c : Conjuncts(body->cond)) (ir::UsesVar(c, loop->var) ? varying : fixed).push_back(c);
  if (fixed.empty()) return nullptr;
  return ir::If(Conjoin(fixed), ir::For(loop->var, loop->extent, loop->for_kind, Under(Conjoin(varying), body->body)));
}

bool SameCondition(const Stmt& a, const Stmt& b) {
  return a->kind == StmtKind::kIf && b->kind == StmtKind::kIf && !a->else_body && !b->else_body && !HasLoad(a->cond) &&
         ir::StructurallyEqual(a->cond, b->cond);
}

// Neighbours under the same condition share one If.
Stmt MergeIfs(const Stmt& seq) {
  std::vector<Stmt> merged;
  for (const Stmt& s : seq->stmts) {
    if (!merged.empty() && SameCondition(merged.back(), s)) {
      merged.back() = ir::If(s->cond, ir::Seq({merged.back()->body, s->body}));
    } else {
      merged.push_back(s);
    }
  }
  return merged.size() == seq->stmts.size() ? nullptr : ir::Seq(std::move(merged));
}

// What is done with scratch under a condition needs the scratch only there.
Stmt HoistFromAlloc(const Stmt& alloc) {
  const Stmt& body = alloc->body;
  if (body->kind != StmtKind::kIf || body->else_body || HasLoad(body->cond)) return nullptr;
  return ir::If(body->cond, ir::Alloc(alloc->buffer, body->body));
}

Stmt HoistConditions(const Stmt& root) {
  return ir::RewriteStmt(root, [](const Stmt& s) -> Stmt {
    if (s->kind == StmtKind::kFor) return HoistFromLoop(s);
    if (s->kind == StmtKind::kAlloc) return HoistFromAlloc(s);
    return s->kind == StmtKind::kSeq ? MergeIfs(s) : nullptr;
  });
}

struct Pass {
  const char* name;
  absl::StatusOr<Stmt> (*run)(const Stmt&);
};
// What can not fail.
template <Stmt (*kRun)(const Stmt&)>
absl::StatusOr<Stmt> Sure(const Stmt& s) {
  return kRun(s);
}
constexpr Pass kPasses[] = {
    {"sink allocations", Sure<SinkAllocs>},      {"blocks to stores", Sure<LowerBlocks>},
    {"shrink allocations", Sure<ShrinkAllocs>},  {"join threads", Sure<JoinThreads>},
    {"tensor loops", LowerTensorLoops},          {"simplify", Sure<ir::Simplify>},
    {"hoist conditions", Sure<HoistConditions>}, {"simplify what they leave", Sure<ir::Simplify>},
    {"roll epilogues", Sure<RollEpilogues>},
};

}  // namespace

absl::StatusOr<ir::Func> Lower(const ir::Func& scheduled) {
  ir::Func f = scheduled;
  if (ir::HasLaunches(f)) TEMPER_RETURN_IF_ERROR(CheckThreads(f));
  for (const Pass& pass : kPasses) {
    absl::StatusOr<Stmt> body = pass.run(f.body);
    if (!body.ok()) return absl::Status(body.status().code(), absl::StrCat(f.name, ": ", body.status().message()));
    f.body = *std::move(body);
    SPDLOG_TRACE("{} after '{}':\n{}", f.name, pass.name, ir::Text(f.body));
  }
  TEMPER_RETURN_IF_ERROR(ir::Verify(f));
  return f;
}

}  // namespace temper
