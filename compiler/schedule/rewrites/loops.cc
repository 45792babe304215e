// Split, fuse, reorder and the annotations of loops.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/region.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests
using ir::ForKind;

namespace {

const char* KindName(ForKind kind) {
  switch (kind) {
    case ForKind::kSerial:
      return "serial";
    case ForKind::kParallel:
      return "parallel";
    case ForKind::kVectorized:
      return "vectorized";
    case ForKind::kUnrolled:
      return "unrolled";
    case ForKind::kOutlined:
      return "outlined";
    case ForKind::kTile:
      return "a tile's";
    case ForKind::kGroupX:
    case ForKind::kGroupY:
    case ForKind::kGroupZ:
      return "group";
    case ForKind::kThreadX:
    case ForKind::kThreadY:
    case ForKind::kThreadZ:
      return "thread";
    case ForKind::kLanes:
      return "made for lanes";
    case ForKind::kTensor:
    case ForKind::kTeamTensor:
      return "tensor";
  }
  return "";
}

// "C.i0" and "C.i1" fuse to "C.i0.i1".
std::string FusedName(const std::string& outer, const std::string& inner) {
  const size_t dot = inner.find('.');
  const bool same_block = dot != std::string::npos && outer.compare(0, dot + 1, inner, 0, dot + 1) == 0;
  return absl::StrCat(outer, ".", same_block ? inner.substr(dot + 1) : inner);
}

// The block's reduction loops, outermost first.
std::vector<Var> ReductionOrder(const Stmt& root, const Stmt& block) {
  const VarSet reduce = ReduceLoops(*block);
  std::vector<Var> order;
  for (const Stmt& loop : LoopsOf(PathToBlock(root, block->block.name))) {
    if (reduce.count(loop->var.get()) > 0) order.push_back(loop->var);
  }
  return order;
}

// A reduction that initialises its element at its first step has to come to that step first, and loops inside the
// outermost reduction loop must lead to other points each time, else the element is taken up again after the first.
absl::Status CheckReductionOrder(const Stmt& before, const Stmt& root, const Stmt& below) {
  for (const Stmt& block : BlocksIn(below)) {
    const std::vector<Var> order = ReductionOrder(root, block);
    if (!block->block.init || order.empty()) continue;
    std::vector<Stmt> loops = LoopsOf(PathToBlock(root, block->block.name));
    ir::Simplifier ranges;
    BindLoops(loops, ranges);
    auto top = std::find_if(loops.begin(), loops.end(), [&](const Stmt& s) { return s->var == order.front(); });
    if (!IsInjective(block->block.bindings, block->block.predicate, {top, loops.end()}, ranges)) {
      return Refuse(absl::StrCat("block '", block->block.name,
                                 "' computes points more than once inside reduction loop '", (*top)->var->name, "'"));
    }
    // Loops that only reduce all stand at 0 first, whatever their order.
    const VarSet spatial = SpatialLoops(*block);
    for (const Var& loop : order) {
      if (spatial.count(loop.get()) > 0 && order != ReductionOrder(before, block)) {
        return Refuse(absl::StrCat("loop '", loop->name, "' is fused of reduction and other iterators of block '",
                                   block->block.name, "', whose initialisation has to be decomposed first"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Result<std::pair<Var, Var>>> Split(const Func& f, const Var& loop, int64_t factor) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindLoop(f, loop));
  if (factor < 1) return Refuse("factor must be at least 1");
  const Stmt s = path.back();
  if (s->for_kind == ForKind::kVectorized) return Refuse("the loop is vectorized");
  Var outer = ir::MakeVar(loop->name + ".o"), inner = ir::MakeVar(loop->name + ".i");
  const ir::Expr point = ir::Expr(outer) * ir::Expr(factor) + ir::Expr(inner);
  Stmt body = ir::Substitute(s->body, {{loop, point}});
  if (s->extent % factor != 0) {
    body = EditBlocks(body, [&](StmtNode& block) { AddConjunct(block, point < ir::Expr(s->extent)); });
  }
  const ForKind inner_kind = s->for_kind == ForKind::kUnrolled ? ForKind::kUnrolled : ForKind::kSerial;
  Stmt nest = ir::For(outer, CeilDiv(s->extent, factor), s->for_kind, ir::For(inner, factor, inner_kind, body));
  Func result = f;
  result.body = Replace(path, nest);
  return Result<std::pair<Var, Var>>{std::move(result), {outer, inner}};
}

absl::StatusOr<Result<Var>> Fuse(const Func& f, const Var& outer, const Var& inner) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindLoop(f, outer));
  TEMPER_RETURN_IF_ERROR(FindLoop(f, inner).status());
  const Stmt s = path.back();
  if (s->body->kind != StmtKind::kFor || s->body->var != inner) {
    return Refuse(absl::StrCat("loop '", inner->name, "' is not directly and solely inside loop '", outer->name, "'"));
  }
  const Stmt below = s->body;
  if (s->for_kind != below->for_kind || s->for_kind == ForKind::kVectorized) {
    return Refuse(
        absl::StrCat("a ", KindName(s->for_kind), " and a ", KindName(below->for_kind), " loop can not be fused"));
  }
  Var fused = ir::MakeVar(FusedName(outer->name, inner->name));
  const ir::Expr width(below->extent);
  // Where one of the two takes a single value, no div and mod is needed.
  ir::Expr outer_value = below->extent == 1 ? ir::Expr(fused) : s->extent == 1 ? ir::Expr(0) : ir::Expr(fused) / width;
  ir::Expr inner_value = s->extent == 1 ? ir::Expr(fused) : ir::Expr(fused) % width;
  Stmt body = ir::Substitute(below->body, {{outer, outer_value}, {inner, inner_value}});
  Func result = f;
  result.body = Replace(path, ir::For(fused, s->extent * below->extent, s->for_kind, body));
  return Result<Var>{std::move(result), fused};
}

absl::StatusOr<Result<Var>> AddLoop(const Func& f, const std::string& block) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  Var loop = ir::MakeVar(block + ".once");
  Func result = f;
  result.body = Replace(path, ir::For(loop, 1, ForKind::kSerial, path.back()));
  return Result<Var>{std::move(result), loop};
}

absl::StatusOr<Func> Reorder(const Func& f, const std::vector<Var>& order) {
  if (order.empty()) return Refuse("no loops are named");
  Path path;
  for (const Var& loop : order) {
    TEMPER_ASSIGN_OR_RETURN(Path p, FindLoop(f, loop));
    if (p.size() > path.size()) path = std::move(p);
    if (std::count(order.begin(), order.end(), loop) > 1)
      return Refuse(absl::StrCat("loop '", loop->name, "' is named twice"));
  }
  // The places of the named loops along the path to the deepest of them.
  std::vector<size_t> places;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i]->kind == StmtKind::kFor && std::count(order.begin(), order.end(), path[i]->var) > 0)
      places.push_back(i);
  }
  if (places.size() != order.size()) {
    for (const Var& loop : order) {
      if (std::none_of(places.begin(), places.end(), [&](size_t i) { return path[i]->var == loop; })) {
        return Refuse(
            absl::StrCat("loop '", loop->name, "' is not on the path to loop '", path.back()->var->name, "'"));
      }
    }
  }
  for (size_t i = places.front(); i < path.size(); ++i) {
    if (path[i]->kind != StmtKind::kFor) {
      return Refuse(absl::StrCat("there is more than loops between loop '", path[places.front()]->var->name,
                                 "' and loop '", path.back()->var->name, "'"));
    }
  }
  std::vector<Stmt> chain(path.begin() + static_cast<std::ptrdiff_t>(places.front()), path.end());
  Stmt s = chain.back()->body;
  for (size_t i = chain.size(), next = order.size(); i-- > 0;) {
    Stmt loop = chain[i];
    if (std::count(places.begin(), places.end(), places.front() + i) > 0) {
      const Var& named = order[--next];
      loop = *std::find_if(chain.begin(), chain.end(), [&](const Stmt& c) { return c->var == named; });
    }
    s = ir::For(loop->var, loop->extent, loop->for_kind, s);
  }
  path.resize(places.front() + 1);
  Func result = f;
  result.body = Replace(path, s);
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  TEMPER_RETURN_IF_ERROR(CheckReductionOrder(f.body, result.body, s));
  return result;
}

absl::StatusOr<Func> Annotate(const Func& f, const Var& loop, ForKind kind) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindLoop(f, loop));
  const Stmt s = path.back();
  // The loops of instructions are unrolled.
  const bool more = (kind == ForKind::kTensor || kind == ForKind::kTeamTensor) && s->for_kind == ForKind::kUnrolled;
  if (s->for_kind != ForKind::kSerial && s->for_kind != kind && !more)
    return Refuse(absl::StrCat("the loop is ", KindName(s->for_kind), " already"));
  Func result = f;
  result.body = Replace(path, ir::For(s->var, s->extent, kind, s->body));
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  if (ir::IsConcurrent(kind)) TEMPER_RETURN_IF_ERROR(CheckRaces(result));
  return result;
}

}  // namespace temper::rewrites
