// Partition: full iterations without predicates, and tails whose loops have exactly the extent that is left.
//
// Below the loop a condition e < n has a base (what stands still in one iteration of the loop) and a ragged part over
// the loops inside. The body becomes  if (base + largest ragged part < n) full else tail. In the tail the base is a
// known number of steps before n, wherever it is a multiple of the ragged part's span; what remains is a condition on
// inner loops alone, and those are cut where it starts and ceases to hold.
#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/region.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper::rewrites {

using namespace nest;  // NOLINT: this file is about nests
using ir::ExprKind;
using ir::ForKind;

namespace {

// A condition e < n taken apart under one iteration of the partitioned loop.
struct Ragged {
  Expr full;  // holds where every inner point satisfies the condition
  Expr base;
  int64_t span = 0;   // the ragged part takes values in [0, span)
  int64_t limit = 0;  // n
  Expr inner;         // e - base
};

class Partitioner {
 public:
  explicit Partitioner(const Func& f) : func_(f) {
    for (const Stmt& block : BlocksIn(f.body)) names_.insert(block->block.name);
  }

  absl::StatusOr<Result<LoopCopies>> Run(const Var& loop);

 private:
  Stmt Body(const Stmt& body, std::vector<Expr> handled);
  // The first condition below that a full iteration decides, as far as it is not `handled`.
  std::optional<Ragged> Find(const Stmt& body, const std::vector<Expr>& handled) const;
  std::optional<Ragged> Analyse(const Expr& conjunct, const VarSet& inner, const ir::Simplifier& ranges) const;
  // `body` where `full` holds, and a copy where it does not.
  Stmt Full(const Stmt& body, const Expr& full) const;
  Stmt Tail(const Stmt& body, const Expr& full);
  // Cuts loops where conditions over inner loops alone change.
  Stmt Cut(const Stmt& s);
  Stmt CutLoop(const Stmt& s);
  // Removes conditions that hold and blocks whose conditions do not; null if nothing is left.
  Stmt Decide(const Stmt& s);
  // Producers of scratch below compute what their readers still need.
  Stmt ShrinkProducers(Stmt body);
  Stmt FreshCopy(const Stmt& s);

  ir::Simplifier Ranges(const Stmt& s) const {
    ir::Simplifier ranges = outer_;
    BindLoopsIn(s, ranges);
    return ranges;
  }

  const Func& func_;
  Stmt whole_;                             // the partitioned loop as it was
  std::unordered_set<std::string> names_;  // of blocks
  LoopCopies copies_;
  ir::Simplifier outer_;  // loops around, the partitioned one included, and cut loops being walked
  VarSet inside_;         // loops below the partitioned one
};

// A block that updates its element only under a condition, without initialising it, has that condition as predicate.
Stmt GuardsToPredicates(const Stmt& s) {
  return EditBlocks(s, [](StmtNode& block) {
    if (block.block.init || block.value->kind != ExprKind::kSelect || HasLoad(block.value->args[0])) return;
    if (!ir::StructurallyEqual(block.value->args[2], ir::Load(block.buffer, block.indices))) return;
    for (const Expr& c : Conjuncts(block.value->args[0])) AddConjunct(block, ir::Substitute(c, BindingsOf(block)));
    block.value = block.value->args[1];
  });
}

std::optional<Ragged> Partitioner::Analyse(const Expr& conjunct, const VarSet& inner,
                                           const ir::Simplifier& ranges) const {
  if (conjunct->kind != ExprKind::kLt) return std::nullopt;
  std::optional<int64_t> limit = ir::AsInt(conjunct->args[1]);
  if (!limit.has_value()) return std::nullopt;
  std::optional<Range> range = RangeOf(conjunct->args[0], ranges, inner);
  if (!range.has_value()) return std::nullopt;
  Ragged r{.base = range->min, .span = range->extent, .limit = *limit};
  r.inner = ranges.Simplify(conjunct->args[0] - r.base);
  r.full = ranges.Simplify(r.base + Expr(r.span - 1) < Expr(*limit));
  return r;
}

std::optional<Ragged> Partitioner::Find(const Stmt& body, const std::vector<Expr>& handled) const {
  const ir::Simplifier ranges = Ranges(body);
  const VarSet inner = LoopVarsIn(body);
  for (const Stmt& block : BlocksIn(body)) {
    for (const Expr& c : Conjuncts(block->block.predicate)) {
      std::optional<Ragged> r = Analyse(c, inner, ranges);
      if (!r.has_value() || ir::AsInt(r->full).has_value() || ir::AsInt(r->base).has_value()) continue;
      const bool is_new = std::none_of(handled.begin(), handled.end(),
                                       [&](const Expr& e) { return ir::StructurallyEqual(e, r->full); });
      if (is_new) return r;
    }
  }
  return std::nullopt;
}

// Applies `map` to the conditions that `full` decides.
Stmt EditConditions(const Stmt& body, const std::function<std::optional<Expr>(const Expr&)>& map) {
  return EditBlocks(body, [&](StmtNode& block) {
    std::vector<Expr> kept;
    for (const Expr& c : Conjuncts(block.block.predicate)) {
      std::optional<Expr> mapped = map(c);
      if (mapped.has_value() && *mapped) kept.push_back(*mapped);
      if (!mapped.has_value()) kept.push_back(c);
    }
    block.block.predicate = Conjoin(kept);
  });
}

Stmt Partitioner::Full(const Stmt& body, const Expr& full) const {
  const ir::Simplifier ranges = Ranges(body);
  const VarSet inner = LoopVarsIn(body);
  return EditConditions(body, [&](const Expr& c) -> std::optional<Expr> {
    std::optional<Ragged> r = Analyse(c, inner, ranges);
    if (r.has_value() && ir::StructurallyEqual(r->full, full)) return Expr();
    return std::nullopt;
  });
}

Stmt Partitioner::Tail(const Stmt& body, const Expr& full) {
  const Stmt copy = FreshCopy(body);
  const ir::Simplifier ranges = Ranges(copy);
  const VarSet inner = LoopVarsIn(copy);
  return EditConditions(copy, [&](const Expr& c) -> std::optional<Expr> {
    std::optional<Ragged> r = Analyse(c, inner, ranges);
    if (!r.has_value() || !ir::StructurallyEqual(r->full, full)) return std::nullopt;
    if (ir::AsInt(ranges.Simplify(r->base % Expr(r->span))) != 0) return std::nullopt;
    // The base is a multiple of the span and its iteration not full, so it is the last multiple before the limit.
    const Expr left = r->inner < Expr(r->limit % r->span);
    const Expr any = r->base < Expr(r->limit);
    return ranges.CanProve(any) ? left : And(any, left);
  });
}

Stmt Partitioner::FreshCopy(const Stmt& s) {
  NestCopy copy = CopyNest(s, "_tail", names_);
  for (const auto& [from, to] : copy.loops) inside_.insert(to.get());
  copies_.insert(copies_.end(), copy.loops.begin(), copy.loops.end());
  return copy.nest;
}

Stmt Partitioner::Decide(const Stmt& s) {
  if (s->kind == StmtKind::kBlock) {
    bool never = false;
    std::vector<Expr> kept;
    for (const Expr& c : Conjuncts(s->block.predicate)) {
      std::optional<int64_t> decided = ir::AsInt(outer_.Simplify(c));
      never = never || decided == 0;
      if (!decided.has_value()) kept.push_back(c);
    }
    if (never) return nullptr;
    return EditBlock(s, [&](StmtNode& block) { block.block.predicate = Conjoin(kept); });
  }
  if (s->kind == StmtKind::kSeq) {
    std::vector<Stmt> stmts;
    for (const Stmt& child : s->stmts) stmts.push_back(Decide(child));
    return Sequence(std::move(stmts));
  }
  if (s->kind == StmtKind::kFor) {
    outer_.Bind(s->var, s->extent);
    Stmt body = Decide(s->body);
    outer_.Unbind(s->var);
    return body == nullptr ? nullptr : ir::For(s->var, s->extent, s->for_kind, body);
  }
  if (s->kind == StmtKind::kIf) {
    Stmt then_body = Decide(s->body), else_body = s->else_body ? Decide(s->else_body) : nullptr;
    if (then_body == nullptr) return else_body == nullptr ? nullptr : ir::If(Not(s->cond), else_body);
    return ir::If(s->cond, then_body, else_body);
  }
  return s;
}

// Where along [0, extent) of `loop` a condition c*loop + rest < n stops holding for all of the rest, and for any.
struct Cuts {
  int64_t full, any;
};
std::optional<Cuts> CutsOf(const Expr& conjunct, const Stmt& loop, const VarSet& inside, const ir::Simplifier& ranges) {
  if (conjunct->kind != ExprKind::kLt || !ir::UsesVar(conjunct, loop->var)) return std::nullopt;
  const Expr ragged = ranges.Simplify(conjunct->args[0]);
  if (!UsesOnly(ragged, inside)) return std::nullopt;
  std::optional<int64_t> limit = ir::AsInt(conjunct->args[1]);
  std::optional<ir::Linear> linear = ir::AsLinear(ragged, {loop->var});
  if (!limit.has_value() || !linear.has_value() || linear->coefficients[0] <= 0) return std::nullopt;
  std::optional<ir::Interval> rest = ranges.Bounds(linear->rest);
  if (!rest.has_value()) return std::nullopt;
  const int64_t c = linear->coefficients[0];
  const int64_t full = std::clamp<int64_t>(CeilDiv(*limit - rest->max, c), 0, loop->extent);
  return Cuts{full, std::clamp<int64_t>(CeilDiv(*limit - rest->min, c), full, loop->extent)};
}

Stmt Partitioner::CutLoop(const Stmt& s) {
  std::vector<int64_t> cuts = {0, s->extent};
  if (s->for_kind != ForKind::kVectorized) {
    const ir::Simplifier ranges = Ranges(s);
    for (const Stmt& block : BlocksIn(s->body)) {
      for (const Expr& c : Conjuncts(block->block.predicate)) {
        std::optional<Cuts> found = CutsOf(c, s, inside_, ranges);
        if (found.has_value()) cuts.insert(cuts.end(), {found->full, found->any});
      }
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  if (cuts.size() == 2) {
    outer_.Bind(s->var, s->extent);
    Stmt body = Cut(s->body);
    outer_.Unbind(s->var);
    return body == nullptr ? nullptr : ir::For(s->var, s->extent, s->for_kind, body);
  }
  std::vector<Stmt> pieces;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int64_t begin = cuts[i], extent = cuts[i + 1] - begin;
    Stmt copy = i == 0 ? s : FreshCopy(s);
    if (extent == 1) {
      pieces.push_back(ir::Substitute(copy->body, {{copy->var, Expr(begin)}}));
    } else {
      Stmt body = begin == 0 ? copy->body : ir::Substitute(copy->body, {{copy->var, Expr(copy->var) + Expr(begin)}});
      pieces.push_back(ir::For(copy->var, extent, copy->for_kind, body));
    }
    // Each piece stands alone now: conditions that it decides go before deeper loops are cut.
    pieces.back() = Decide(pieces.back());
    if (pieces.back() == nullptr) continue;
    if (extent == 1) {
      pieces.back() = Cut(pieces.back());
      continue;
    }
    const Stmt piece = pieces.back();
    outer_.Bind(piece->var, piece->extent);
    Stmt body = Cut(piece->body);
    outer_.Unbind(piece->var);
    pieces.back() = body == nullptr ? nullptr : ir::For(piece->var, piece->extent, piece->for_kind, body);
  }
  return Sequence(std::move(pieces));
}

Stmt Partitioner::Cut(const Stmt& s) {
  if (s == nullptr) return nullptr;
  if (s->kind == StmtKind::kFor) return CutLoop(s);
  if (s->kind == StmtKind::kSeq) {
    std::vector<Stmt> stmts;
    for (const Stmt& child : s->stmts) stmts.push_back(Cut(child));
    return Sequence(std::move(stmts));
  }
  if (s->kind == StmtKind::kIf) {
    Stmt then_body = Cut(s->body), else_body = Cut(s->else_body);
    if (then_body == nullptr) return else_body == nullptr ? nullptr : ir::If(Not(s->cond), else_body);
    return ir::If(s->cond, then_body, else_body);
  }
  return Decide(s);
}

// The spatial extent along one dimension that a block writes past what is read, as a condition on its loops; none
// where it writes no more, or where the cut would go through a vector.
std::optional<Expr> Surplus(const Stmt& writer, size_t d, const Range& read, const Stmt& body,
                            const ir::Simplifier& ranges, const VarSet& inner) {
  const Expr index = ir::Substitute(writer->indices[d], BindingsOf(*writer));
  std::optional<Range> written = RangeOf(index, ranges, inner);
  if (!written.has_value() || written->extent <= read.extent || !SameStart(*written, read, ranges)) return std::nullopt;
  const Expr inside = ranges.Simplify(index - written->min);
  for (const Stmt& loop : LoopsOf(PathToBlock(body, writer->block.name))) {
    if (loop->for_kind == ForKind::kVectorized && ir::UsesVar(inside, loop->var) && read.extent % loop->extent != 0)
      return std::nullopt;
    if (ReduceLoops(*writer).count(loop->var.get()) && ir::UsesVar(inside, loop->var)) return std::nullopt;
  }
  return inside < Expr(read.extent);
}

Stmt Partitioner::ShrinkProducers(Stmt body) {
  std::vector<Buffer> scratch;
  if (body == nullptr) return nullptr;
  for (const Stmt& block : BlocksIn(body)) {
    const Buffer& b = block->buffer;
    if (IsParam(func_, b) || std::count(scratch.begin(), scratch.end(), b) > 0) continue;
    // What is read elsewhere too has to be computed in full.
    if (ReadersOf(func_.body, b).size() == ReadersOf(whole_, b).size()) scratch.push_back(b);
  }
  for (size_t i = scratch.size(); i-- > 0;) {
    const Buffer& buffer = scratch[i];
    const ir::Simplifier ranges = Ranges(body);
    const VarSet inner = LoopVarsIn(body);
    RegionUnion region(ranges, inner);
    for (const Stmt& reader : ReadersOf(body, buffer)) {
      for (const Expr& load : ReadsOf(*reader, buffer)) {
        std::vector<Expr> bound;
        for (const Expr& e : load->args) bound.push_back(ir::Substitute(e, BindingsOf(*reader)));
        region.Add(bound);
      }
    }
    if (region.empty()) continue;
    bool found = false;
    Stmt shrunk = EditBlocks(body, [&](StmtNode& block) {
      if (block.buffer != buffer) return;
      const Stmt writer = PathToBlock(body, block.block.name).back();
      for (size_t d = 0; d < block.indices.size(); ++d) {
        if (!region.ranges()[d].has_value()) continue;
        std::optional<Expr> surplus = Surplus(writer, d, *region.ranges()[d], body, ranges, inner);
        if (!surplus.has_value()) continue;
        AddConjunct(block, *surplus);
        found = true;
      }
    });
    if (found) body = Cut(shrunk);
  }
  return body;
}

Stmt Partitioner::Body(const Stmt& body, std::vector<Expr> handled) {
  std::optional<Ragged> ragged = Find(body, handled);
  if (!ragged.has_value()) {
    Stmt left = ShrinkProducers(Cut(body));
    return left == nullptr || BlocksIn(left).empty() ? nullptr : left;  // prefetches alone are for nothing
  }
  handled.push_back(ragged->full);
  // The copy is made first, so that both branches start from the same body.
  Stmt tail = Tail(body, ragged->full);
  Stmt full = Body(Full(body, ragged->full), handled);
  tail = Body(tail, handled);
  if (full == nullptr) return tail == nullptr ? nullptr : ir::If(Not(ragged->full), tail);
  return ir::If(ragged->full, full, tail);
}

absl::Status CheckNoLaunchBelow(const Stmt& loop) {
  absl::Status status;
  ir::VisitStmt(loop->body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kFor || !(ir::IsGroup(s->for_kind) || ir::IsThread(s->for_kind))) return;
    status.Update(absl::FailedPreconditionError(absl::StrCat(std::string(ir::Word(s->for_kind)), " loop '",
                                                             s->var->name, "' is inside, which can not be cut")));
  });
  return status;
}

absl::StatusOr<Result<LoopCopies>> Partitioner::Run(const Var& loop) {
  TEMPER_ASSIGN_OR_RETURN(Path path, FindLoop(func_, loop));
  const Stmt s = path.back();
  // Tails have threads of their own, which are others than those that hold the values in registers.
  TEMPER_RETURN_IF_ERROR(CheckNoLaunchBelow(s));
  whole_ = s;
  BindLoops(LoopsOf(path), outer_);
  inside_ = LoopVarsIn(s->body);
  Stmt body = Body(GuardsToPredicates(s->body), {});
  Result<LoopCopies> result{func_, std::move(copies_)};
  if (body == nullptr) return absl::FailedPreconditionError("nothing below the loop is ever computed");
  result.func.body = Replace(path, ir::For(s->var, s->extent, s->for_kind, body));
  TEMPER_RETURN_IF_ERROR(CheckAnnotations(result.func.body));
  return result;
}

}  // namespace

absl::StatusOr<Result<LoopCopies>> Partition(const Func& f, const Var& loop) { return Partitioner(f).Run(loop); }

}  // namespace temper::rewrites
