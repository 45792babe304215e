#include "compiler/schedule/nest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ir/te.h"

namespace temper::nest {

using ir::ExprKind;

namespace {

bool Search(const Stmt& s, const std::function<bool(const Stmt&)>& wanted, Path& path) {
  path.push_back(s);
  if (wanted(s)) return true;
  if (s->body && Search(s->body, wanted, path)) return true;
  if (s->else_body && Search(s->else_body, wanted, path)) return true;
  for (const Stmt& child : s->stmts) {
    if (Search(child, wanted, path)) return true;
  }
  path.pop_back();
  return false;
}

std::shared_ptr<StmtNode> Copy(const Stmt& s) { return std::make_shared<StmtNode>(*s); }

// `parent` with its direct sub-statement `child` replaced; null where that leaves nothing.
Stmt ReplaceChild(const Stmt& parent, const Stmt& child, const Stmt& replacement) {
  if (parent->kind == StmtKind::kSeq) {
    std::vector<Stmt> stmts;
    for (const Stmt& s : parent->stmts) stmts.push_back(s == child ? replacement : s);
    return Sequence(std::move(stmts));
  }
  if (parent->kind == StmtKind::kIf) {
    Stmt then_body = parent->body == child ? replacement : parent->body;
    Stmt else_body = parent->body != child && parent->else_body == child ? replacement : parent->else_body;
    if (then_body == nullptr) return else_body == nullptr ? nullptr : ir::If(Not(parent->cond), else_body);
    return ir::If(parent->cond, then_body, else_body);
  }
  if (replacement == nullptr) return nullptr;
  auto copy = Copy(parent);
  copy->body = replacement;
  return copy;
}

// Loops in no order among their iterations hold one another as launches do, and reduce nothing.
absl::Status CheckConcurrent(const Stmt& s, const std::vector<Stmt>& around) {
  const std::string named = absl::StrCat(std::string(ir::Word(s->for_kind)), " loop '", s->var->name, "'");
  for (const Stmt& outer : around) {
    if (s->for_kind != ir::ForKind::kParallel && ir::MayHold(outer->for_kind, s->for_kind)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(named, " is inside ", std::string(ir::Word(outer->for_kind)), " loop '", outer->var->name, "'"));
  }
  for (const Stmt& block : BlocksIn(s)) {
    if (ReduceLoops(*block).count(s->var.get())) {
      return absl::FailedPreconditionError(
          absl::StrCat(named, " binds a reduction iterator of block '", block->block.name, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAnnotations(const Stmt& s, std::vector<Stmt>& concurrent) {
  if (s->kind == StmtKind::kFor && s->for_kind == ir::ForKind::kVectorized) {
    absl::Status status;
    ir::VisitStmt(s->body, [&](const Stmt& below) {
      if (below->kind == StmtKind::kFor && below->extent > 1) {
        status = absl::FailedPreconditionError(absl::StrCat("loop '", s->var->name,
                                                            "' is vectorized and must stay innermost, but loop '",
                                                            below->var->name, "' is inside"));
      }
      if (below->kind == StmtKind::kBlock && ReduceLoops(*below).count(s->var.get()) &&
          SpatialLoops(*below).count(s->var.get())) {
        status = absl::FailedPreconditionError(absl::StrCat("vectorized loop '", s->var->name,
                                                            "' is fused of reduction and other iterators of block '",
                                                            below->block.name, "'"));
      }
      if (below->kind == StmtKind::kBlock && below->block.init && ReduceLoops(*below).count(s->var.get())) {
        status = absl::FailedPreconditionError(absl::StrCat("vectorized loop '", s->var->name, "' reduces in block '",
                                                            below->block.name,
                                                            "', whose initialisation has to be decomposed first"));
      }
    });
    TEMPER_RETURN_IF_ERROR(status);
  }
  const bool is_concurrent = s->kind == StmtKind::kFor && ir::IsConcurrent(s->for_kind);
  if (is_concurrent) {
    TEMPER_RETURN_IF_ERROR(CheckConcurrent(s, concurrent));
    concurrent.push_back(s);
  }
  if (s->body) TEMPER_RETURN_IF_ERROR(CheckAnnotations(s->body, concurrent));
  if (s->else_body) TEMPER_RETURN_IF_ERROR(CheckAnnotations(s->else_body, concurrent));
  for (const Stmt& child : s->stmts) TEMPER_RETURN_IF_ERROR(CheckAnnotations(child, concurrent));
  if (is_concurrent) concurrent.pop_back();
  return absl::OkStatus();
}

}  // namespace

Path PathTo(const Stmt& root, const std::function<bool(const Stmt&)>& wanted) {
  Path path;
  if (root) Search(root, wanted, path);
  return path;
}

Path PathToLoop(const Stmt& root, const Var& loop) {
  return PathTo(root, [&](const Stmt& s) { return s->kind == StmtKind::kFor && s->var == loop; });
}

Path PathToBlock(const Stmt& root, const std::string& block) {
  return PathTo(root, [&](const Stmt& s) { return s->kind == StmtKind::kBlock && s->block.name == block; });
}

absl::StatusOr<Path> FindLoop(const Func& f, const Var& loop) {
  if (loop == nullptr) return absl::InvalidArgumentError("an empty handle stands for no loop");
  Path path = PathToLoop(f.body, loop);
  if (path.empty()) return absl::NotFoundError(absl::StrCat("loop '", loop->name, "' is not in the function"));
  return path;
}

absl::StatusOr<Path> FindBlock(const Func& f, const std::string& block) {
  Path path = PathToBlock(f.body, block);
  if (path.empty()) return absl::NotFoundError(absl::StrCat("block '", block, "' is not in the function"));
  return path;
}

Stmt Sequence(std::vector<Stmt> stmts) {
  std::erase(stmts, nullptr);
  return stmts.empty() ? nullptr : ir::Seq(std::move(stmts));
}

Stmt Replace(const Path& path, Stmt replacement) {
  Stmt s = std::move(replacement);
  for (size_t i = path.size() - 1; i-- > 0;) s = ReplaceChild(path[i], path[i + 1], s);
  return s;
}

std::vector<Stmt> LoopsOf(const Path& path) {
  std::vector<Stmt> loops;
  for (const Stmt& s : path) {
    if (s->kind == StmtKind::kFor) loops.push_back(s);
  }
  return loops;
}

bool Contains(const Stmt& tree, const StmtNode* s) {
  return !PathTo(tree, [s](const Stmt& t) { return t.get() == s; }).empty();
}

std::vector<Stmt> BlocksIn(const Stmt& tree) {
  std::vector<Stmt> blocks;
  ir::VisitStmt(tree, [&](const Stmt& s) {
    if (s->kind == StmtKind::kBlock) blocks.push_back(s);
  });
  return blocks;
}

void BindLoops(const std::vector<Stmt>& loops, ir::Simplifier& simplifier) {
  for (const Stmt& s : loops) {
    if (s->kind == StmtKind::kFor) simplifier.Bind(s->var, s->extent);
  }
}

void BindLoopsIn(const Stmt& tree, ir::Simplifier& simplifier) {
  ir::VisitStmt(tree, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor) simplifier.Bind(s->var, s->extent);
  });
}

VarSet LoopVarsIn(const Stmt& tree) {
  VarSet vars;
  ir::VisitStmt(tree, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor) vars.insert(s->var.get());
  });
  return vars;
}

bool UsesAny(const Expr& e, const VarSet& vars) {
  return ir::AnyNode(e,
                     [&](const Expr& node) { return node->kind == ExprKind::kVar && vars.count(node->var.get()) > 0; });
}

bool UsesOnly(const Expr& e, const VarSet& vars) {
  return !ir::AnyNode(e, [&](const Expr& node) {
    return node->kind == ExprKind::kLoad || (node->kind == ExprKind::kVar && vars.count(node->var.get()) == 0);
  });
}

void CollectVars(const Expr& e, VarSet& vars) {
  ir::Visit(e, [&](const Expr& node) {
    if (node->kind == ExprKind::kVar) vars.insert(node->var.get());
  });
}

Stmt EditBlock(const Stmt& s, const std::function<void(StmtNode&)>& edit) {
  auto copy = Copy(s);
  edit(*copy);
  return copy;
}

Stmt EditBlocks(const Stmt& tree, const std::function<void(StmtNode&)>& edit) {
  return ir::RewriteStmt(
      tree, [&](const Stmt& s) -> Stmt { return s->kind == StmtKind::kBlock ? EditBlock(s, edit) : nullptr; });
}

std::vector<Expr> Conjuncts(const Expr& predicate) {
  if (!predicate) return {};
  if (predicate->kind != ExprKind::kAnd) return {predicate};
  std::vector<Expr> all = Conjuncts(predicate->args[0]), right = Conjuncts(predicate->args[1]);
  all.insert(all.end(), right.begin(), right.end());
  return all;
}

Expr Conjoin(const std::vector<Expr>& conjuncts) {
  Expr all;
  for (const Expr& c : conjuncts) all = all ? And(all, c) : c;
  return all;
}

void AddConjunct(StmtNode& block, Expr conjunct) {
  if (ir::AsInt(conjunct) == 1) return;
  for (const Expr& c : Conjuncts(block.block.predicate)) {
    if (ir::StructurallyEqual(c, conjunct)) return;
  }
  block.block.predicate = block.block.predicate ? And(block.block.predicate, std::move(conjunct)) : std::move(conjunct);
}

std::vector<ir::VarBinding> BindingsOf(const StmtNode& block) {
  std::vector<ir::VarBinding> bindings;
  for (size_t i = 0; i < block.block.iters.size(); ++i)
    bindings.push_back({block.block.iters[i].var, block.block.bindings[i]});
  return bindings;
}

std::vector<Expr> LoadsOf(const StmtNode& block, const Buffer& buffer) {
  std::vector<Expr> loads;
  auto visit = [&](const Expr& e) {
    if (!e) return;
    ir::Visit(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad && node->buffer == buffer) loads.push_back(node);
    });
  };
  for (const Expr& e : block.indices) visit(e);
  visit(block.block.init);
  visit(block.value);
  return loads;
}

bool LoadsOwn(const StmtNode& block, const Expr& load) {
  return load->buffer == block.buffer && std::equal(load->args.begin(), load->args.end(), block.indices.begin(),
                                                    block.indices.end(), ir::StructurallyEqual);
}

std::vector<Expr> ReadsOf(const StmtNode& block, const Buffer& buffer) {
  std::vector<Expr> reads = LoadsOf(block, buffer);
  if (buffer != block.buffer) return reads;
  std::erase_if(reads, [&](const Expr& load) { return LoadsOwn(block, load); });
  return reads;
}

bool Reads(const StmtNode& block, const Buffer& buffer) { return !ReadsOf(block, buffer).empty(); }

std::vector<Buffer> BuffersRead(const StmtNode& block) {
  std::vector<Buffer> buffers;
  auto visit = [&](const Expr& e) {
    if (!e) return;
    ir::Visit(e, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad || std::count(buffers.begin(), buffers.end(), node->buffer) > 0) return;
      if (Reads(block, node->buffer)) buffers.push_back(node->buffer);
    });
  };
  for (const Expr& e : block.indices) visit(e);
  visit(block.block.init);
  visit(block.value);
  return buffers;
}

std::vector<Stmt> WritersOf(const Stmt& root, const Buffer& buffer) {
  std::vector<Stmt> blocks = BlocksIn(root);
  std::erase_if(blocks, [&](const Stmt& s) { return s->buffer != buffer; });
  return blocks;
}

std::vector<Stmt> ReadersOf(const Stmt& root, const Buffer& buffer) {
  std::vector<Stmt> blocks = BlocksIn(root);
  std::erase_if(blocks, [&](const Stmt& s) { return !Reads(*s, buffer); });
  return blocks;
}

bool IsParam(const Func& f, const Buffer& buffer) { return std::count(f.params.begin(), f.params.end(), buffer) > 0; }

bool IsReduction(const StmtNode& block) {
  return block.block.init ||
         std::any_of(block.block.iters.begin(), block.block.iters.end(), [](const ir::IterVar& i) { return i.reduce; });
}

namespace {

VarSet LoopsThatBind(const StmtNode& block, bool reduce) {
  VarSet vars;
  for (size_t i = 0; i < block.block.iters.size(); ++i) {
    if (block.block.iters[i].reduce == reduce) CollectVars(block.block.bindings[i], vars);
  }
  return vars;
}

}  // namespace

VarSet ReduceLoops(const StmtNode& block) { return LoopsThatBind(block, true); }
VarSet SpatialLoops(const StmtNode& block) { return LoopsThatBind(block, false); }

Stmt ReplaceBuffer(const Stmt& root, const Buffer& from, const Buffer& to,
                   const std::function<std::vector<Expr>(const std::vector<Expr>&)>& map) {
  Stmt loads = ir::RewriteExprs(root, [&](const Expr& e) {
    return ir::Rewrite(e, [&](const Expr& node) {
      return node->kind == ExprKind::kLoad && node->buffer == from ? ir::Load(to, map(node->args)) : Expr();
    });
  });
  return ir::RewriteStmt(loads, [&](const Stmt& s) -> Stmt {
    if (s->buffer != from) return nullptr;
    auto copy = Copy(s);
    copy->buffer = to;
    if (s->kind != StmtKind::kAlloc) copy->indices = map(s->indices);
    return copy;
  });
}

std::string UniqueBlockName(const Func& f, const std::string& wish) {
  std::string name = wish;
  for (int n = 1; !PathToBlock(f.body, name).empty(); ++n) name = absl::StrCat(wish, "_", n);
  return name;
}

std::string UniqueBufferName(const Func& f, const std::string& wish) {
  std::unordered_set<std::string> names;
  for (const Buffer& b : f.params) names.insert(b->name);
  ir::VisitStmt(f.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kAlloc) names.insert(s->buffer->name);
  });
  std::string name = wish;
  for (int n = 1; names.count(name) > 0; ++n) name = absl::StrCat(wish, "_", n);
  return name;
}

NestCopy CopyNest(const Stmt& s, const std::string& suffix, std::unordered_set<std::string>& names) {
  NestCopy copy;
  std::vector<ir::VarBinding> renamed;
  Stmt loops = ir::RewriteStmt(s, [&](const Stmt& node) -> Stmt {
    if (node->kind != StmtKind::kFor) return nullptr;
    Var var = ir::MakeVar(node->var->name);
    renamed.push_back({node->var, var});
    copy.loops.emplace_back(node->var, var);
    return ir::For(var, node->extent, node->for_kind, node->body);
  });
  copy.nest = EditBlocks(ir::Substitute(loops, renamed), [&](StmtNode& block) {
    const std::string wish = block.block.name.substr(0, block.block.name.find(suffix)) + suffix;
    block.block.name = wish;
    for (int n = 1; !names.insert(block.block.name).second; ++n) block.block.name = absl::StrCat(wish, n);
  });
  return copy;
}

std::optional<GuardedUpdate> GuardOf(const StmtNode& block) {
  const Expr& value = block.value;
  const Expr self = ir::Load(block.buffer, block.indices);
  auto guards = [](const Expr& e) { return e->kind == ExprKind::kSelect && !HasLoad(e->args[0]); };
  if (guards(value) && ir::StructurallyEqual(value->args[2], self))
    return GuardedUpdate{value->args[0], value->args[1]};
  constexpr std::pair<ExprKind, ir::Combiner> kCombiners[] = {{ExprKind::kAdd, ir::Combiner::kSum},
                                                              {ExprKind::kMul, ir::Combiner::kProd},
                                                              {ExprKind::kMax, ir::Combiner::kMax},
                                                              {ExprKind::kMin, ir::Combiner::kMin}};
  for (const auto& [kind, combiner] : kCombiners) {
    if (value->kind != kind || !ir::StructurallyEqual(value->args[0], self)) continue;
    const Expr& operand = value->args[1];
    if (!guards(operand) || !ir::StructurallyEqual(operand->args[2], ir::Identity(combiner, operand->dtype))) continue;
    return GuardedUpdate{operand->args[0], ir::Binary(kind, self, operand->args[1])};
  }
  return std::nullopt;
}

absl::Status CheckAnnotations(const Stmt& root) {
  std::vector<Stmt> concurrent;
  return CheckAnnotations(root, concurrent);
}

}  // namespace temper::nest
