#include "compiler/schedule/lower/scratch.h"

#include <algorithm>

#include "compiler/schedule/region.h"

namespace temper::nest {
namespace {

using ir::ExprKind;

bool Loads(const Expr& e, const Buffer& buffer) {
  if (e->kind == ExprKind::kLoad && e->buffer == buffer) return true;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& a) { return Loads(a, buffer); });
}

bool Uses(const Stmt& s, const Buffer& buffer) {
  bool uses = false;
  ir::VisitStmt(s, [&](const Stmt& t) { uses = uses || (t->kind != StmtKind::kAlloc && t->buffer == buffer); });
  if (!uses) ir::VisitExprs(s, [&](const Expr& e) { uses = uses || Loads(e, buffer); });
  return uses;
}

std::shared_ptr<StmtNode> WithBody(const Stmt& s, Stmt body) {
  auto copy = std::make_shared<StmtNode>(*s);
  copy->body = std::move(body);
  return copy;
}

class AllocSinker {
 public:
  AllocSinker(const Buffer& buffer, const Stmt& root) : buffer_(buffer) {
    for (const Stmt& writer : WritersOf(root, buffer)) {
      const VarSet reduce = ReduceLoops(*writer);
      carried_.insert(reduce.begin(), reduce.end());
    }
  }

  Stmt Sink(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kAlloc:
        return WithBody(s, Sink(s->body));
      case StmtKind::kFor:
        if (carried_.count(s->var.get()) || s->for_kind == ir::ForKind::kVectorized || StaysAround(*s))
          return ir::Alloc(buffer_, s);
        return WithBody(s, Sink(s->body));
      case StmtKind::kIf:
        return SinkIf(s);
      case StmtKind::kSeq:
        return SinkSeq(s);
      case StmtKind::kStore:
      case StmtKind::kBlock:
      case StmtKind::kPrefetch:
      case StmtKind::kBarrier:
      case StmtKind::kInstruction:
        return ir::Alloc(buffer_, s);
    }
    return s;
  }

 private:
  // A device's memory belongs to no group, and what groups share to no thread.
  bool StaysAround(const StmtNode& loop) const {
    return (buffer_->scope == ir::Scope::kMemory && ir::IsGroup(loop.for_kind)) ||
           (buffer_->scope == ir::Scope::kShared && ir::IsThread(loop.for_kind));
  }

  Stmt SinkIf(const Stmt& s) {
    if (Loads(s->cond, buffer_)) return ir::Alloc(buffer_, s);
    const bool in_then = Uses(s->body, buffer_), in_else = s->else_body && Uses(s->else_body, buffer_);
    Stmt then_body = in_then ? Sink(s->body) : s->body, else_body = s->else_body;
    if (in_else && !in_then) else_body = Sink(else_body);
    if (in_else && in_then) {
      const Buffer other = ir::MakeBuffer(buffer_->name, buffer_->dtype, buffer_->shape, buffer_->scope);
      else_body = ReplaceBuffer(else_body, buffer_, other, [](const std::vector<Expr>& indices) { return indices; });
      AllocSinker sinker(other, else_body);
      sinker.carried_ = carried_;
      else_body = sinker.Sink(else_body);
    }
    return ir::If(s->cond, then_body, else_body);
  }

  Stmt SinkSeq(const Stmt& s) {
    size_t first = s->stmts.size(), last = 0;
    for (size_t i = 0; i < s->stmts.size(); ++i) {
      if (!Uses(s->stmts[i], buffer_)) continue;
      first = std::min(first, i);
      last = i;
    }
    std::vector<Stmt> stmts(s->stmts.begin(), s->stmts.begin() + static_cast<std::ptrdiff_t>(first));
    if (first == last) {
      stmts.push_back(Sink(s->stmts[first]));
    } else {
      stmts.push_back(ir::Alloc(buffer_, ir::Seq({s->stmts.begin() + static_cast<std::ptrdiff_t>(first),
                                                  s->stmts.begin() + static_cast<std::ptrdiff_t>(last) + 1})));
    }
    stmts.insert(stmts.end(), s->stmts.begin() + static_cast<std::ptrdiff_t>(last) + 1, s->stmts.end());
    return ir::Seq(std::move(stmts));
  }

  Buffer buffer_;
  VarSet carried_;
};

// Adds what `s` touches of the buffer. Whole vectors of registers and memory are touched where a condition holds for
// some of their lanes alone; of shared memory only that is touched for which it holds.
void AddAccesses(const Stmt& s, const Buffer& buffer, const ir::Simplifier& ranges, RegionUnion& region) {
  if (s->kind == StmtKind::kIf && buffer->scope == ir::Scope::kShared && !Loads(s->cond, buffer)) {
    ir::Simplifier within = ranges;
    within.Assume(ranges.Simplify(s->cond));
    AddAccesses(s->body, buffer, within, region);
    if (s->else_body) AddAccesses(s->else_body, buffer, ranges, region);
    return;
  }
  if (s->kind == StmtKind::kFor || s->kind == StmtKind::kAlloc) return AddAccesses(s->body, buffer, ranges, region);
  if (s->kind == StmtKind::kSeq) {
    for (const Stmt& child : s->stmts) AddAccesses(child, buffer, ranges, region);
    return;
  }
  ir::VisitStmt(s, [&](const Stmt& t) {
    if (t->kind == StmtKind::kStore && t->buffer == buffer) region.Add(t->indices, ranges);
  });
  ir::VisitExprs(s, [&](const Expr& e) {
    ir::Visit(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad && node->buffer == buffer) region.Add(node->args, ranges);
    });
  });
}

Stmt Shrink(const Stmt& s, const ir::Simplifier& outer) {
  ir::Simplifier ranges = outer;
  BindLoopsIn(s->body, ranges);
  const Buffer& buffer = s->buffer;
  const VarSet inner = LoopVarsIn(s->body);
  RegionUnion region(ranges, inner);
  AddAccesses(s->body, buffer, ranges, region);
  if (region.empty()) return s->body;
  Shape shape;
  std::vector<Expr> start;
  bool moved = false;
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    // Registers hold whole vectors, the lanes of a last one that lie past the end too.
    const std::optional<Range>& used = region.ranges()[d];
    const bool whole_vectors = buffer->scope == ir::Scope::kRegister && used.has_value() && ir::AsInt(used->min);
    const Range r = whole_vectors ? *used : Clip(used, buffer->shape[d]);
    shape.push_back(r.extent);
    start.push_back(r.min);
    moved = moved || ir::AsInt(r.min) != 0;
  }
  if (shape == buffer->shape && !moved) return s;
  const Buffer small = ir::MakeBuffer(buffer->name, buffer->dtype, shape, buffer->scope);
  Stmt body = ReplaceBuffer(s->body, buffer, small, [&](const std::vector<Expr>& indices) {
    std::vector<Expr> rebased;
    for (size_t d = 0; d < indices.size(); ++d) rebased.push_back(indices[d] - start[d]);
    return rebased;
  });
  return ir::Alloc(small, body);
}

Stmt ShrinkAllocs(const Stmt& s, ir::Simplifier& ranges) {
  switch (s->kind) {
    case StmtKind::kFor: {
      ranges.Bind(s->var, s->extent);
      Stmt body = ShrinkAllocs(s->body, ranges);
      ranges.Unbind(s->var);
      return WithBody(s, body);
    }
    case StmtKind::kIf: {
      Stmt then_body = ShrinkAllocs(s->body, ranges);
      return ir::If(s->cond, then_body, s->else_body ? ShrinkAllocs(s->else_body, ranges) : nullptr);
    }
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) stmts.push_back(ShrinkAllocs(child, ranges));
      return ir::Seq(std::move(stmts));
    }
    case StmtKind::kAlloc:
      return Shrink(WithBody(s, ShrinkAllocs(s->body, ranges)), ranges);
    case StmtKind::kStore:
    case StmtKind::kBlock:
    case StmtKind::kPrefetch:
    case StmtKind::kBarrier:
    case StmtKind::kInstruction:
      return s;
  }
  return s;
}

}  // namespace

Stmt SinkAllocs(const Stmt& root) {
  std::vector<Buffer> buffers;
  Stmt s = ir::RewriteStmt(root, [&](const Stmt& node) -> Stmt {
    if (node->kind != StmtKind::kAlloc) return nullptr;
    buffers.push_back(node->buffer);
    return node->body;
  });
  for (const Buffer& buffer : buffers) {
    if (Uses(s, buffer)) s = AllocSinker(buffer, s).Sink(s);
  }
  return s;
}

Stmt ShrinkAllocs(const Stmt& root) {
  ir::Simplifier ranges;
  return ShrinkAllocs(root, ranges);
}

}  // namespace temper::nest
