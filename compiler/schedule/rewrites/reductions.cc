// Rewrites of reductions: the initialisation on its own, and partial results.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/region.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests
using ir::ExprKind;
using ir::ForKind;

namespace {

// Copies of the loops and conditions at and below path[first], down to the block: loops that bind no spatial iterator
// are left out and stand at 0.
struct SpatialCopy {
  SpatialCopy(const Path& path, size_t first) {
    const VarSet spatial = SpatialLoops(*path.back());
    for (size_t i = 0; i < first; ++i) {
      if (path[i]->kind == StmtKind::kFor) simplifier.Bind(path[i]->var, path[i]->extent);
    }
    for (size_t i = first; i + 1 < path.size(); ++i) {
      const Stmt& s = path[i];
      if (s->kind == StmtKind::kIf) {
        around.push_back(ir::If(path[i + 1] == s->body ? s->cond : Not(s->cond), nullptr));
      } else if (s->kind == StmtKind::kFor && spatial.count(s->var.get())) {
        Var var = ir::MakeVar(s->var->name);
        simplifier.Bind(var, s->extent);
        bindings.push_back({s->var, var});
        around.push_back(ir::For(var, s->extent, s->for_kind, nullptr));
      } else if (s->kind == StmtKind::kFor) {
        bindings.push_back({s->var, ir::Expr(0)});
      }
    }
  }
  Expr Map(const Expr& e) const { return ir::Substitute(e, bindings); }
  // Where everything stands at the first iteration of the loops left out.
  Expr MapPredicate(const Expr& predicate) const {
    std::vector<Expr> kept;
    for (const Expr& c : Conjuncts(predicate)) {
      Expr mapped = Map(c);
      if (!simplifier.CanProve(mapped)) kept.push_back(mapped);
    }
    return Conjoin(kept);
  }
  Stmt Wrap(Stmt s) const {
    for (size_t i = around.size(); i-- > 0;) {
      const Stmt& a = around[i];
      s = a->kind == StmtKind::kIf ? ir::If(Map(a->cond), s) : ir::For(a->var, a->extent, a->for_kind, s);
    }
    return s;
  }

  std::vector<Stmt> around;  // outermost first, without bodies
  std::vector<ir::VarBinding> bindings;
  ir::Simplifier simplifier;
};

size_t PlaceOf(const Path& path, const Var& loop) {
  auto it = std::find_if(path.begin(), path.end(),
                         [&](const Stmt& s) { return s->kind == StmtKind::kFor && s->var == loop; });
  return static_cast<size_t>(it - path.begin());
}

}  // namespace

absl::StatusOr<Result<std::string>> DecomposeReduction(const Func& f, const std::string& block, const Var& loop) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  TEMPER_RETURN_IF_ERROR(FindLoop(f, loop).status());
  const Stmt update = path.back();
  const size_t place = PlaceOf(path, loop);
  if (!update->block.init) return Refuse("the block has no initialisation");
  if (place == path.size()) return Refuse("the loop is not around the block");
  const VarSet reduce = ReduceLoops(*update);
  for (size_t i = 0; i < place; ++i) {
    if (path[i]->kind == StmtKind::kFor && reduce.count(path[i]->var.get())) {
      return Refuse(absl::StrCat("reduction loop '", path[i]->var->name, "' is outside"));
    }
  }
  const SpatialCopy copy(path, place);
  for (size_t i = 0; i < update->block.iters.size(); ++i) {
    if (!update->block.iters[i].reduce) continue;
    VarSet spatial = SpatialLoops(*update);
    if (UsesAny(update->block.bindings[i], spatial)) continue;  // a loop fused of both kinds is copied whole
    if (ir::AsInt(copy.simplifier.Simplify(copy.Map(update->block.bindings[i]))) != 0) {
      return Refuse(absl::StrCat("iterator ", update->block.iters[i].var->name, " does not start at 0 there"));
    }
  }

  // Initialised once, the element must not be summed up twice.
  ir::Simplifier ranges;
  BindLoops(path, ranges);
  if (!IsInjective(update->block.bindings, update->block.predicate,
                   LoopsOf(Path(path.begin() + static_cast<std::ptrdiff_t>(place), path.end())), ranges)) {
    return Refuse("loops below compute the same points more than once");
  }

  const std::string name = UniqueBlockName(f, block + "_init");
  Stmt init = EditBlock(update, [&](StmtNode& node) {
    node.block = {.name = name};
    for (size_t i = 0; i < update->block.iters.size(); ++i) {
      if (update->block.iters[i].reduce) continue;
      node.block.iters.push_back(update->block.iters[i]);
      node.block.bindings.push_back(copy.Map(update->block.bindings[i]));
    }
    node.block.predicate = copy.MapPredicate(update->block.predicate);
    node.value = update->block.init;
  });
  Stmt rest = EditBlock(update, [](StmtNode& node) { node.block.init = Expr(); });
  Path below(path.begin() + static_cast<std::ptrdiff_t>(place), path.end());
  Stmt nest = Replace(below, rest);
  path.resize(place + 1);
  Func result = f;
  result.body = Replace(path, ir::Seq({copy.Wrap(init), nest}));
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  return Result<std::string>{std::move(result), name};
}

namespace {

// Everything about a reduction that rfactor takes apart.
struct Factoring {
  Stmt block;
  size_t top = 0;  // place of the outermost reduction loop on the path
  ExprKind combine = ExprKind::kAdd;
  Buffer partial;    // the new buffer
  ir::IterVar lane;  // its new dimension
};

// The partial block: its reduction iterators are the loops that still reduce, one each.
absl::StatusOr<Stmt> PartialBlock(const Path& path, const Factoring& factoring, const Var& loop,
                                  const std::string& name) {
  const StmtNode& old = *factoring.block;
  const VarSet reduce = ReduceLoops(old);
  ir::BlockInfo info{.name = name, .init = old.block.init};
  std::vector<ir::VarBinding> to_iters, values;
  for (size_t i = 0; i < old.block.iters.size(); ++i) {
    if (old.block.iters[i].reduce) continue;
    info.iters.push_back(old.block.iters[i]);
    info.bindings.push_back(old.block.bindings[i]);
  }
  info.iters.push_back(factoring.lane);
  info.bindings.push_back(loop);
  to_iters.push_back({loop, factoring.lane.var});
  size_t number = 0;
  for (const Stmt& s : LoopsOf(path)) {
    if (s->var == loop || !reduce.count(s->var.get())) continue;
    info.iters.push_back({ir::MakeVar(absl::StrCat("r", number++)), s->extent, true});
    info.bindings.push_back(s->var);
    to_iters.push_back({s->var, info.iters.back().var});
  }
  for (size_t i = 0; i < old.block.iters.size(); ++i) {
    if (old.block.iters[i].reduce)
      values.push_back({old.block.iters[i].var, ir::Substitute(old.block.bindings[i], to_iters)});
  }
  // What the predicate says of the reduction is part of the computation now: a lane that has nothing to add keeps its
  // value, and still is initialised.
  std::vector<Expr> kept, guards;
  for (const Expr& c : Conjuncts(old.block.predicate)) {
    if (!UsesAny(c, reduce)) {
      kept.push_back(c);
    } else if (UsesOnly(c, reduce)) {
      guards.push_back(ir::Substitute(c, to_iters));
    } else {
      return Refuse(absl::StrCat("its predicate ", ir::Text(c), " mixes reduction loops with others"));
    }
  }
  info.predicate = Conjoin(kept);
  std::vector<Expr> indices = old.indices;
  indices.push_back(factoring.lane.var);
  Expr current = ir::Load(factoring.partial, indices);
  if (number == 0) {  // nothing is left to reduce
    current = info.init;
    info.init = Expr();
  }
  Expr value = ir::Rewrite(ir::Substitute(old.value, values), [&](const Expr& e) {
    return e->kind == ExprKind::kLoad && e->buffer == old.buffer ? current : Expr();
  });
  if (Expr guard = Conjoin(guards)) value = ir::Select(guard, value, current);
  return ir::BlockStmt(std::move(info), factoring.partial, std::move(indices), std::move(value));
}

// The reduction of the partial results, under copies of the spatial loops inside the first reduction loop.
Stmt FinalNest(const Path& path, const Factoring& factoring, const Var& loop) {
  const SpatialCopy copy(path, factoring.top);
  const Stmt& old = factoring.block;
  Var over = ir::MakeVar(loop->name), lane = ir::MakeVar(factoring.lane.var->name);
  Stmt block = EditBlock(old, [&](StmtNode& node) {
    node.block = {.name = old->block.name, .init = old->block.init};
    for (size_t i = 0; i < old->block.iters.size(); ++i) {
      if (old->block.iters[i].reduce) continue;
      node.block.iters.push_back(old->block.iters[i]);
      node.block.bindings.push_back(copy.Map(old->block.bindings[i]));
    }
    node.block.iters.push_back({lane, factoring.lane.extent, true});
    node.block.bindings.push_back(over);
    std::vector<Expr> kept;
    for (const Expr& c : Conjuncts(old->block.predicate)) {
      if (!UsesAny(c, ReduceLoops(*old))) kept.push_back(copy.Map(c));
    }
    node.block.predicate = Conjoin(kept);
    std::vector<Expr> partial = old->indices;
    partial.push_back(lane);
    node.value =
        ir::Binary(factoring.combine, ir::Load(old->buffer, old->indices), ir::Load(factoring.partial, partial));
  });
  return copy.Wrap(ir::For(over, factoring.lane.extent, ForKind::kSerial, block));
}

// The operation that folds one more value into the block's element, if its value is of that form.
std::optional<ExprKind> CombinerOf(const StmtNode& block) {
  const Expr& value = block.value;
  constexpr ExprKind kCombiners[] = {ExprKind::kAdd, ExprKind::kMul, ExprKind::kMin, ExprKind::kMax};
  if (std::find(std::begin(kCombiners), std::end(kCombiners), value->kind) == std::end(kCombiners)) return std::nullopt;
  const Expr self = ir::Load(block.buffer, block.indices);
  for (int side : {0, 1}) {
    if (!ir::StructurallyEqual(value->args[side], self)) continue;
    if (LoadsOf(block, block.buffer).size() == 1) return value->kind;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Result<std::pair<std::string, std::string>>> Rfactor(const Func& f, const std::string& block,
                                                                    const Var& loop) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  TEMPER_RETURN_IF_ERROR(FindLoop(f, loop).status());
  const Stmt old = path.back();
  const size_t place = PlaceOf(path, loop);
  if (place == path.size()) return Refuse("the loop is not around the block");
  if (!old->block.init) return Refuse("the block has no initialisation");
  const VarSet reduce = ReduceLoops(*old);
  if (!reduce.count(loop.get())) return Refuse("the loop does not reduce");
  if (WritersOf(f.body, old->buffer).size() != 1)
    return Refuse(absl::StrCat("'", old->buffer->name, "' is written by other blocks too"));
  std::optional<ExprKind> combine = CombinerOf(*old);
  if (!combine.has_value())
    return Refuse("its value is no sum, product, minimum or maximum of its element and another value");
  for (const auto* v : SpatialLoops(*old)) {
    if (reduce.count(v)) return Refuse(absl::StrCat("loop '", v->name, "' is fused of reduction and other iterators"));
  }
  Factoring factoring{.block = old, .combine = *combine};
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i]->kind == StmtKind::kFor && reduce.count(path[i]->var.get())) factoring.top = i;
  }
  for (size_t i = factoring.top; i + 1 < path.size(); ++i) {
    if (path[i]->kind == StmtKind::kIf) return Refuse("the block is under a condition inside its reduction");
    if (path[i]->kind == StmtKind::kFor && path[i]->for_kind == ForKind::kVectorized)
      return Refuse(absl::StrCat("loop '", path[i]->var->name, "' is vectorized"));
  }
  Shape shape = old->buffer->shape;
  shape.push_back(path[place]->extent);
  factoring.partial =
      ir::MakeBuffer(UniqueBufferName(f, old->buffer->name + "_rf"), old->buffer->dtype, std::move(shape));
  factoring.lane = {ir::MakeVar("lane"), path[place]->extent, false};

  const std::string name = UniqueBlockName(f, block + "_rf");
  TEMPER_ASSIGN_OR_RETURN(Stmt partial, PartialBlock(path, factoring, loop, name));
  Path below(path.begin() + static_cast<std::ptrdiff_t>(factoring.top), path.end());
  Stmt nest = Replace(below, partial);
  Stmt last = FinalNest(path, factoring, loop);
  path.resize(factoring.top + 1);
  Func result = f;
  result.body = ir::Alloc(factoring.partial, Replace(path, ir::Seq({nest, last})));
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  return Result<std::pair<std::string, std::string>>{std::move(result), {name, block}};
}

}  // namespace temper::rewrites
