#include "compiler/schedule/rewrites/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace temper::nest {
namespace {

// The spatial iterator that `index` is, or none.
std::optional<size_t> IterOf(const StmtNode& block, const Expr& index) {
  if (index->kind != ir::ExprKind::kVar) return std::nullopt;
  for (size_t i = 0; i < block.block.iters.size(); ++i) {
    if (block.block.iters[i].var == index->var && !block.block.iters[i].reduce) return i;
  }
  return std::nullopt;
}

std::vector<size_t> LoopOrder(const StmtNode& block) {
  std::vector<size_t> order;
  auto add = [&](size_t i) {
    if (std::count(order.begin(), order.end(), i) == 0) order.push_back(i);
  };
  for (const Expr& index : block.indices) {
    if (std::optional<size_t> i = IterOf(block, index)) add(*i);
  }
  for (bool reduce : {false, true}) {
    for (size_t i = 0; i < block.block.iters.size(); ++i) {
      if (block.block.iters[i].reduce == reduce) add(i);
    }
  }
  return order;
}

}  // namespace

std::vector<Range> WholeDomain(const StmtNode& block) {
  std::vector<Range> plan;
  for (const ir::IterVar& iter : block.block.iters) plan.push_back({Expr(0), iter.extent});
  return plan;
}

void NarrowToWrites(const StmtNode& block, const std::vector<std::optional<Range>>& region, std::vector<Range>& plan) {
  std::vector<bool> narrowed(plan.size(), false);
  for (size_t d = 0; d < block.indices.size(); ++d) {
    std::optional<size_t> i = IterOf(block, block.indices[d]);
    if (!i.has_value() || narrowed[*i]) continue;
    plan[*i] = Clip(region[d], block.block.iters[*i].extent);
    narrowed[*i] = true;
  }
}

Stmt BuildNest(const Stmt& block, const std::vector<Range>& plan, const ir::Simplifier& around) {
  ir::Simplifier simplifier = around;
  std::vector<Var> loops(plan.size());
  Stmt s = EditBlock(block, [&](StmtNode& node) {
    node.block.predicate = Expr();
    for (size_t i = 0; i < plan.size(); ++i) {
      const ir::IterVar& iter = node.block.iters[i];
      loops[i] = ir::MakeVar(absl::StrCat(node.block.name, ".", iter.var->name));
      simplifier.Bind(loops[i], plan[i].extent);
      const Expr point = plan[i].min + Expr(loops[i]);
      node.block.bindings[i] = point;
      if (!simplifier.CanProve(Expr(0) <= point)) AddConjunct(node, Expr(0) <= point);
      if (!simplifier.CanProve(point < Expr(iter.extent))) AddConjunct(node, point < Expr(iter.extent));
    }
  });
  const std::vector<size_t> order = LoopOrder(*block);
  for (size_t i = order.size(); i-- > 0;) s = ir::For(loops[order[i]], plan[order[i]].extent, ir::ForKind::kSerial, s);
  return s;
}

std::vector<Stmt> Children(const Stmt& body) {
  return body->kind == StmtKind::kSeq ? body->stmts : std::vector<Stmt>{body};
}

Stmt InsertInLoop(const Stmt& root, const Var& loop, size_t at, const Stmt& s) {
  Path path = PathToLoop(root, loop);
  std::vector<Stmt> children = Children(path.back()->body);
  children.insert(children.begin() + static_cast<std::ptrdiff_t>(std::min(at, children.size())), s);
  return Replace(path, ir::For(loop, path.back()->extent, path.back()->for_kind, ir::Seq(std::move(children))));
}

}  // namespace temper::nest
