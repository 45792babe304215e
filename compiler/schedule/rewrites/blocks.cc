// Where blocks are computed: inlined into their readers, or moved under one of their readers' or writers' loops.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/rewrites/placement.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests

namespace {

absl::Status CheckIntermediate(const Func& f, const Buffer& buffer) {
  if (IsParam(f, buffer)) return Refuse(absl::StrCat("'", buffer->name, "' is an output of the function"));
  const size_t writers = WritersOf(f.body, buffer).size();
  if (writers != 1) return Refuse(absl::StrCat("'", buffer->name, "' is written by ", writers, " blocks"));
  return absl::OkStatus();
}

// Position of each block in program order; the size of `blocks` for one that is not there.
size_t OrderOf(const std::vector<Stmt>& blocks, const StmtNode* s) {
  auto it = std::find_if(blocks.begin(), blocks.end(), [s](const Stmt& b) { return b.get() == s; });
  return static_cast<size_t>(it - blocks.begin());
}

std::vector<Expr> Bind(const std::vector<Expr>& indices, const StmtNode& block) {
  std::vector<Expr> bound;
  for (const Expr& e : indices) bound.push_back(ir::Substitute(e, BindingsOf(block)));
  return bound;
}

// Loops around and in `path`'s last loop, as ranges.
ir::Simplifier RangesAt(const Path& path) {
  ir::Simplifier simplifier;
  BindLoops(LoopsOf(path), simplifier);
  BindLoopsIn(path.back()->body, simplifier);
  return simplifier;
}

}  // namespace

absl::StatusOr<Func> Inline(const Func& f, const std::string& block) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  const Stmt producer = path.back();
  const Buffer buffer = producer->buffer;
  TEMPER_RETURN_IF_ERROR(CheckIntermediate(f, buffer));
  if (IsReduction(*producer)) return Refuse("it is a reduction");
  if (Reads(*producer, buffer)) return Refuse("it reads its own result");
  const std::vector<Stmt> readers = ReadersOf(f.body, buffer);
  if (readers.empty()) return Refuse("nothing reads it");
  std::vector<Var> axes;
  for (const Expr& index : producer->indices) {
    const bool is_iter = index->kind == ir::ExprKind::kVar && std::count(axes.begin(), axes.end(), index->var) == 0;
    if (!is_iter) return Refuse(absl::StrCat("its index ", ir::Text(index), " is not an iterator of its own"));
    axes.push_back(index->var);
  }
  for (const ir::IterVar& iter : producer->block.iters) {
    if (std::count(axes.begin(), axes.end(), iter.var) == 0)
      return Refuse(absl::StrCat("iterator ", iter.var->name, " is not among its indices"));
  }
  Stmt body = Replace(path, nullptr);
  body = ir::RewriteExprs(body, [&](const Expr& e) {
    return ir::Rewrite(e, [&](const Expr& node) {
      if (node->kind != ir::ExprKind::kLoad || node->buffer != buffer) return Expr();
      std::vector<ir::VarBinding> bindings;
      for (size_t d = 0; d < axes.size(); ++d) bindings.push_back({axes[d], node->args[d]});
      return ir::Substitute(producer->value, bindings);
    });
  });
  Func result = f;
  result.body = ir::RewriteStmt(body, [&](const Stmt& s) -> Stmt {
    return s->kind == StmtKind::kAlloc && s->buffer == buffer ? s->body : nullptr;
  });
  return result;
}

absl::StatusOr<Func> ComputeAt(const Func& f, const std::string& block, const Var& loop) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  TEMPER_ASSIGN_OR_RETURN(Path target, FindLoop(f, loop));
  const Stmt producer = path.back();
  const Buffer buffer = producer->buffer;
  TEMPER_RETURN_IF_ERROR(CheckIntermediate(f, buffer));
  if (target.back()->for_kind == ir::ForKind::kVectorized) return Refuse("the loop is vectorized");
  if (Reads(*producer, buffer)) return Refuse("it reads its own result");
  const std::vector<Stmt> readers = ReadersOf(f.body, buffer);
  if (readers.empty()) return Refuse("nothing reads it");
  for (const Stmt& reader : readers) {
    if (!Contains(target.back(), reader.get()))
      return Refuse(absl::StrCat("its reader '", reader->block.name, "' is not below the loop"));
  }

  const Stmt without = Replace(path, nullptr);
  target = PathToLoop(without, loop);
  const std::vector<Stmt> children = Children(target.back()->body);
  auto holds_reader = [&](const Stmt& s) { return !ReadersOf(s, buffer).empty(); };
  const size_t first =
      static_cast<size_t>(std::find_if(children.begin(), children.end(), holds_reader) - children.begin());
  const std::vector<Stmt> order = BlocksIn(without);
  const size_t first_reader = OrderOf(order, BlocksIn(children[first]).front().get());
  for (const Buffer& input : BuffersRead(*producer)) {
    for (const Stmt& writer : WritersOf(without, input)) {
      if (OrderOf(order, writer.get()) >= first_reader) {
        return Refuse(absl::StrCat("it reads what '", writer->block.name,
                                   "' computes, which does not come before its readers there"));
      }
    }
  }

  const ir::Simplifier simplifier = RangesAt(target);
  const VarSet inner = LoopVarsIn(target.back()->body);
  RegionUnion region(simplifier, inner);
  for (const Stmt& reader : readers) {
    for (const Expr& load : ReadsOf(*reader, buffer)) region.Add(Bind(load->args, *reader));
  }
  std::vector<Range> plan = WholeDomain(*producer);
  NarrowToWrites(*producer, region.ranges(), plan);
  Func result = f;
  result.body = InsertInLoop(without, loop, first, BuildNest(producer, plan, simplifier));
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  TEMPER_RETURN_IF_ERROR(CheckRaces(result));
  return result;
}

namespace {

// What the loop's iterations leave ready for a consumer that is to move below it.
class MadeBelow {
 public:
  MadeBelow(const Path& target, const Stmt& root)
      : target_(target), root_(root), simplifier_(RangesAt(target)), inner_(LoopVarsIn(target.back()->body)) {}

  const ir::Simplifier& simplifier() const { return simplifier_; }

  // Narrows `plan` to what of `input` an iteration makes.
  absl::Status Narrow(const StmtNode& consumer, const Buffer& input, std::vector<Range>& plan,
                      std::vector<bool>& narrowed) {
    std::vector<Stmt> below = WritersOf(target_.back(), input);
    for (const Stmt& writer : WritersOf(root_, input)) {
      if (!below.empty() && !Contains(target_.back(), writer.get())) {
        return Refuse(absl::StrCat("'", input->name, "' is also written by '", writer->block.name,
                                   "', which is not below the loop"));
      }
      if (below.empty()) TEMPER_RETURN_IF_ERROR(CheckReady(writer));
    }
    if (below.empty()) return absl::OkStatus();
    found_ = true;
    RegionUnion region(simplifier_, inner_);
    for (const Stmt& writer : below) TEMPER_RETURN_IF_ERROR(AddWriter(writer, region));
    for (const Expr& load : ReadsOf(consumer, input)) {
      for (size_t d = 0; d < load->args.size(); ++d) {
        const Range& range = *region.ranges()[d];
        const Range made = ir::AsInt(range.min).has_value() ? Clip(range, input->shape[d]) : range;
        if (!IsWhole(made, input->shape[d]))
          TEMPER_RETURN_IF_ERROR(Follow(consumer, load->args[d], made, plan, narrowed));
      }
    }
    return absl::OkStatus();
  }

  bool found() const { return found_; }
  const std::vector<Expr>& conditions() const { return conditions_; }

 private:
  // A writer elsewhere has to be done, for every iteration, before the loop begins.
  absl::Status CheckReady(const Stmt& writer) {
    const std::vector<Stmt> order = BlocksIn(root_);
    if (OrderOf(order, writer.get()) > OrderOf(order, BlocksIn(target_.back()).front().get())) {
      return Refuse(absl::StrCat("it also reads what '", writer->block.name, "' computes after the loop"));
    }
    const Path path = PathToBlock(root_, writer->block.name);
    for (size_t i = 0; i < path.size() && i < target_.size() && path[i] == target_[i]; ++i) {
      if (path[i]->kind == StmtKind::kFor) {
        return Refuse(absl::StrCat("it also reads what '", writer->block.name, "' computes for one iteration of loop '",
                                   path[i]->var->name, "'"));
      }
    }
    return absl::OkStatus();
  }

  // The writer's results of one iteration have to be complete and to fill a box.
  absl::Status AddWriter(const Stmt& writer, RegionUnion& region) {
    for (const Stmt& loop : LoopsOf(target_)) {
      if (ReduceLoops(*writer).count(loop->var.get())) {
        return Refuse(absl::StrCat("loop '", loop->var->name, "' still reduces in '", writer->block.name, "'"));
      }
    }
    TEMPER_RETURN_IF_ERROR(AddConditions(*writer));
    RegionUnion own(simplifier_, inner_);
    own.Add(Bind(writer->indices, *writer));
    VarSet spatial;
    std::vector<Expr> bindings;
    for (size_t i = 0; i < writer->block.iters.size(); ++i) {
      if (writer->block.iters[i].reduce) continue;
      CollectVars(writer->block.bindings[i], spatial);
      bindings.push_back(writer->block.bindings[i]);
    }
    std::vector<Stmt> loops = LoopsOf(PathToBlock(target_.back()->body, writer->block.name));
    std::erase_if(loops, [&](const Stmt& loop) { return spatial.count(loop->var.get()) == 0; });
    int64_t points = 1, box = 1;
    for (const Stmt& loop : loops) points *= loop->extent;
    for (const std::optional<Range>& range : own.ranges()) box = range.has_value() ? box * range->extent : -1;
    if (points != box || !IsInjective(bindings, writer->block.predicate, loops, simplifier_)) {
      return Refuse(
          absl::StrCat("what '", writer->block.name, "' writes in one iteration of the loop is no dense box"));
    }
    // Of several writers (an initialisation and its update) each has to write all of it.
    for (size_t d = 0; !region.empty() && d < own.ranges().size(); ++d) {
      const std::optional<Range>&a = region.ranges()[d], &b = own.ranges()[d];
      if (!a.has_value() || !SameStart(*a, *b, simplifier_) || a->extent != b->extent) {
        return Refuse(absl::StrCat("'", writer->block.name, "' and others write different parts of '",
                                   writer->buffer->name, "'"));
      }
    }
    region.Add(Bind(writer->indices, *writer));
    return absl::OkStatus();
  }

  // Iterations in which the writer does nothing are none for the consumer either. That points lie in the domain needs
  // no condition: the consumer has its own.
  absl::Status AddConditions(const StmtNode& writer) {
    for (const Expr& c : Conjuncts(writer.block.predicate)) {
      if (IsDomainGuard(writer, c)) continue;
      if (UsesAny(c, inner_)) {
        return Refuse(absl::StrCat("'", writer.block.name, "' computes only part of its nest, where ", ir::Text(c)));
      }
      conditions_.push_back(c);
    }
    return absl::OkStatus();
  }

  // The condition says of one iterator that it is in its domain.
  bool IsDomainGuard(const StmtNode& block, const Expr& c) const {
    auto zero = [&](const Expr& e) { return ir::AsInt(simplifier_.Simplify(e)) == 0; };
    for (size_t i = 0; i < block.block.iters.size(); ++i) {
      const Expr& at = block.block.bindings[i];
      if (c->kind == ir::ExprKind::kLt && zero(c->args[0] - at) && ir::AsInt(c->args[1]) == block.block.iters[i].extent)
        return true;
      if (c->kind == ir::ExprKind::kLe && zero(c->args[0]) && zero(c->args[1] - at)) return true;
    }
    return false;
  }

  absl::Status Follow(const StmtNode& consumer, const Expr& index, const Range& made, std::vector<Range>& plan,
                      std::vector<bool>& narrowed) {
    for (size_t i = 0; i < plan.size(); ++i) {
      const ir::IterVar& iter = consumer.block.iters[i];
      if (index->kind != ir::ExprKind::kVar || index->var != iter.var || iter.reduce) continue;
      // Points past the iterator's end, where the buffer is wider, are left to the predicate: the start must stay.
      const Range wanted = ir::AsInt(made.min).has_value() ? Clip(made, iter.extent) : made;
      if (narrowed[i] && (!SameStart(plan[i], wanted, simplifier_) || plan[i].extent != wanted.extent)) {
        return Refuse(absl::StrCat("iterator ", iter.var->name, " would have to follow two different regions"));
      }
      plan[i] = wanted;
      narrowed[i] = true;
      return absl::OkStatus();
    }
    return Refuse(
        absl::StrCat("it reads at ", ir::Text(index), ", which may lie outside what one iteration of the loop makes"));
  }

  const Path& target_;
  const Stmt& root_;
  ir::Simplifier simplifier_;
  VarSet inner_;
  bool found_ = false;
  std::vector<Expr> conditions_;  // over loops around, under which the writers write
};

}  // namespace

absl::StatusOr<Func> ReverseComputeAt(const Func& f, const std::string& block, const Var& loop) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindBlock(f, block));
  TEMPER_ASSIGN_OR_RETURN(Path target, FindLoop(f, loop));
  const Stmt consumer = path.back();
  if (target.back()->for_kind == ir::ForKind::kVectorized) return Refuse("the loop is vectorized");
  if (Contains(target.back(), consumer.get())) return Refuse("it is below the loop already");
  if (WritersOf(f.body, consumer->buffer).size() != 1) {
    return Refuse(absl::StrCat("'", consumer->buffer->name, "' is written by other blocks too"));
  }
  const std::vector<Stmt> before = BlocksIn(f.body);
  if (OrderOf(before, consumer.get()) < OrderOf(before, BlocksIn(target.back()).front().get())) {
    return Refuse("it comes before the loop");
  }
  const Stmt without = Replace(path, nullptr);
  target = PathToLoop(without, loop);
  MadeBelow made(target, without);
  std::vector<Range> plan = WholeDomain(*consumer);
  std::vector<bool> narrowed(plan.size(), false);
  for (const Buffer& input : BuffersRead(*consumer))
    TEMPER_RETURN_IF_ERROR(made.Narrow(*consumer, input, plan, narrowed));
  if (!made.found()) return Refuse("nothing below the loop writes what it reads");
  Stmt nest = EditBlocks(BuildNest(consumer, plan, made.simplifier()), [&](StmtNode& node) {
    for (const Expr& c : made.conditions()) AddConjunct(node, c);
  });
  Func result = f;
  result.body = InsertInLoop(without, loop, Children(target.back()->body).size(), nest);
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  TEMPER_RETURN_IF_ERROR(CheckRaces(result));
  return result;
}

}  // namespace temper::rewrites
