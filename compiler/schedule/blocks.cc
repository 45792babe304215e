// Where blocks are computed: inlined into their readers, or moved under one of their readers' or writers' loops.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/placement.h"
#include "compiler/schedule/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests

namespace {

absl::Status Refuse(const std::string& why) { return absl::FailedPreconditionError(why); }

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
    if (std::count(axes.begin(), axes.end(), iter.var) == 0) return Refuse(absl::StrCat("iterator ", iter.var->name, " is not among its indices"));
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
    if (!Contains(target.back(), reader.get())) return Refuse(absl::StrCat("its reader '", reader->block.name, "' is not below the loop"));
  }

  const Stmt without = Replace(path, nullptr);
  target = PathToLoop(without, loop);
  const std::vector<Stmt> children = Children(target.back()->body);
  auto holds_reader = [&](const Stmt& s) { return !ReadersOf(s, buffer).empty(); };
  const size_t first = static_cast<size_t>(std::find_if(children.begin(), children.end(), holds_reader) - children.begin());
  const std::vector<Stmt> order = BlocksIn(without);
  const size_t first_reader = OrderOf(order, BlocksIn(children[first]).front().get());
  for (const Buffer& input : BuffersRead(*producer)) {
    for (const Stmt& writer : WritersOf(without, input)) {
      if (OrderOf(order, writer.get()) >= first_reader) {
        return Refuse(absl::StrCat("it reads what '", writer->block.name, "' computes, which does not come before its readers there"));
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
  absl::Status Narrow(const StmtNode& consumer, const Buffer& input, std::vector<Range>& plan, std::vector<bool>& narrowed) {
    std::vector<Stmt> below = WritersOf(target_.back(), input);
    for (const Stmt& writer : WritersOf(root_, input)) {
      if (!below.empty() && !Contains(target_.back(), writer.get())) {
        return Refuse(absl::StrCat("'", input->name, "' is also written by '", writer->block.name, "', which is not below the loop"));
      }
      if (below.empty()) TEMPER_RETURN_IF_ERROR(CheckReady(writer));
    }
    if (below.empty()) return absl::OkStatus();
    found_ = true;
    RegionUnion region(simplifier_, inner_);
    for (const Stmt& writer : below) TEMPER_RETURN_IF_ERROR(AddWriter(writer, region));
    for (const Expr& load : ReadsOf(consumer, input)) {
      for (size_t d = 0; d < load->args.size(); ++d) {
        const Range made = Clip(region.ranges()[d], input->shape[d]);
        if (!IsWhole(made, input->shape[d])) TEMPER_RETURN_IF_ERROR(Follow(consumer, load->args[d], made, plan, narrowed));
      }
    }
    return absl::OkStatus();
  }

  bool found() const { return found_; }

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
        return Refuse(absl::StrCat("it also reads what '", writer->block.name, "' computes for one iteration of loop '", path[i]->var->name, "'"));
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
    RegionUnion own(simplifier_, inner_);
    own.Add(Bind(writer->indices, *writer));
    VarSet spatial;
    for (size_t i = 0; i < writer->block.iters.size(); ++i) {
      if (!writer->block.iters[i].reduce) CollectVars(writer->block.bindings[i], spatial);
    }
    int64_t points = 1, box = 1;
    for (const Stmt& loop : LoopsOf(PathToBlock(target_.back()->body, writer->block.name))) {
      if (spatial.count(loop->var.get())) points *= loop->extent;
    }
    for (const std::optional<Range>& range : own.ranges()) box = range.has_value() ? box * range->extent : -1;
    if (points != box) {
      return Refuse(absl::StrCat("what '", writer->block.name, "' writes in one iteration of the loop is no dense box"));
    }
    region.Add(Bind(writer->indices, *writer));
    return absl::OkStatus();
  }

  absl::Status Follow(const StmtNode& consumer, const Expr& index, const Range& made, std::vector<Range>& plan, std::vector<bool>& narrowed) {
    for (size_t i = 0; i < plan.size(); ++i) {
      const ir::IterVar& iter = consumer.block.iters[i];
      if (index->kind != ir::ExprKind::kVar || index->var != iter.var || iter.reduce) continue;
      const Range wanted = Clip(made, iter.extent);
      if (narrowed[i] && (!SameStart(plan[i], wanted, simplifier_) || plan[i].extent != wanted.extent)) {
        return Refuse(absl::StrCat("iterator ", iter.var->name, " would have to follow two different regions"));
      }
      plan[i] = wanted;
      narrowed[i] = true;
      return absl::OkStatus();
    }
    return Refuse(absl::StrCat("it reads at ", ir::Text(index), ", which may lie outside what one iteration of the loop makes"));
  }

  const Path& target_;
  const Stmt& root_;
  ir::Simplifier simplifier_;
  VarSet inner_;
  bool found_ = false;
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
  for (const Buffer& input : BuffersRead(*consumer)) TEMPER_RETURN_IF_ERROR(made.Narrow(*consumer, input, plan, narrowed));
  if (!made.found()) return Refuse("nothing below the loop writes what it reads");
  Func result = f;
  result.body = InsertInLoop(without, loop, Children(target.back()->body).size(), BuildNest(consumer, plan, made.simplifier()));
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.body));
  return result;
}

}  // namespace temper::rewrites
