#include "compiler/schedule/lower/lanes.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"

namespace temper::nest {
namespace {

using ir::ExprKind;
using ir::ForKind;

// What the value folds into the element itself; empty where it does not.
Expr Folded(const StmtNode& node) {
  constexpr ExprKind kFolds[] = {ExprKind::kAdd, ExprKind::kMul, ExprKind::kMin, ExprKind::kMax};
  if (std::ranges::find(kFolds, node.value->kind) == std::end(kFolds)) return {};
  const Expr self = ir::Load(node.buffer, node.indices);
  for (const size_t side : {0, 1}) {
    if (ir::StructurallyEqual(node.value->args[side], self)) return node.value->args[1 - side];
  }
  return {};
}

// Whether as many initial elements as lanes are as good as one.
bool ChangesNothing(const Expr& init, ExprKind fold) {
  const auto is = [&](double v) { return ir::StructurallyEqual(init, ir::Const(v, init->dtype)); };
  return fold == ExprKind::kAdd ? is(0) : fold == ExprKind::kMul ? is(1) : true;
}

// The most threads along x in the launch that the loop is part of; 0 in none.
int64_t ThreadsAcross(const std::vector<Stmt>& around) {
  int64_t most = 0;
  const auto group = std::ranges::find_if(around, [](const Stmt& s) { return ir::IsGroup(s->for_kind); });
  if (group == around.end()) return 0;
  ir::VisitStmt(*group, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor && s->for_kind == ForKind::kThreadX) most = std::max(most, s->extent);
  });
  return most;
}

// Empty: nothing is wrong.
std::string WhatIsWrong(const Func& f, const Stmt& loop) {
  const std::vector<Stmt> around = LoopsOf(PathToLoop(f.body, loop->var));
  if (std::ranges::any_of(around, [](const Stmt& s) { return s->for_kind == ForKind::kThreadX; }))
    return "a loop along x is around it";
  if (loop->extent != ThreadsAcross(around) || loop->extent > ir::kTensorWarp ||
      !std::has_single_bit(static_cast<uint64_t>(loop->extent))) {
    return absl::StrCat("its ", loop->extent, " lanes are not the threads along x, a power of two up to a warp's");
  }
  const Stmt& block = loop->body;
  if (block->kind != StmtKind::kBlock) return "it is not directly around a block";
  if (block->buffer->scope != ir::Scope::kRegister) return "its result is not in registers";
  const Expr folded = Folded(*block);
  if (!folded || folded->kind != ExprKind::kLoad || folded->buffer->scope != ir::Scope::kRegister ||
      folded->buffer == block->buffer) {
    return "its block folds no registers of the lanes";
  }
  if (!block->block.init || !ChangesNothing(block->block.init, block->value->kind))
    return "its block begins with nothing, or with more than nothing";
  if (WritersOf(f.body, block->buffer).size() != 1) return "other blocks write its result";
  return "";
}

}  // namespace

absl::Status CheckLanes(const Func& f) {
  absl::Status status;
  ir::VisitStmt(f.body, [&](const Stmt& s) {
    if (!status.ok() || s->kind != StmtKind::kFor || s->for_kind != ForKind::kLanes) return;
    const std::string wrong = WhatIsWrong(f, s);
    if (!wrong.empty())
      status = absl::FailedPreconditionError(absl::StrCat("lanes loop '", s->var->name, "': ", wrong));
  });
  return status;
}

Stmt LowerLanes(const Stmt& loop, const Var& x) {
  const Stmt own = ir::Substitute(loop->body, {{loop->var, Expr(x)}});
  // if (condition) { if (lane == 0) init; [if (condition)] fold }, with conditions or without.
  const bool conditional = own->kind == StmtKind::kIf;
  const Stmt& both = conditional ? own->body : own;
  const Stmt &init = both->stmts[0]->body, &rest = both->stmts[1];
  const Stmt& fold = rest->kind == StmtKind::kIf ? rest->body : rest;
  const Buffer theirs = ir::MakeBuffer(fold->buffer->name + "_theirs", fold->buffer->dtype, {1}, ir::Scope::kRegister);
  std::vector<Stmt> stmts = {init, conditional ? ir::If(own->cond, rest) : rest};
  const Expr sum = ir::Load(fold->buffer, fold->indices);
  for (int64_t apart = loop->extent / 2; apart > 0; apart /= 2) {
    stmts.push_back(ir::Exchange(theirs, {Expr(0)}, sum, apart));
    stmts.push_back(
        ir::Store(fold->buffer, fold->indices, ir::Binary(fold->value->kind, sum, ir::Load(theirs, {Expr(0)}))));
  }
  return ir::Alloc(theirs, ir::Seq(std::move(stmts)));
}

}  // namespace temper::nest
