#include "compiler/schedule/lower/threads.h"

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/region.h"
#include "compiler/schedule/lower/scratch.h"

namespace temper::nest {
namespace {

using ir::ForKind;
using Extents = std::array<int64_t, 3>;  // of threads, by axis

constexpr ForKind kThreadKinds[] = {ForKind::kThreadX, ForKind::kThreadY, ForKind::kThreadZ};

bool IsThreadLoop(const Stmt& s) { return s->kind == StmtKind::kFor && ir::IsThread(s->for_kind); }
bool IsGroupLoop(const Stmt& s) { return s->kind == StmtKind::kFor && ir::IsGroup(s->for_kind); }

bool HasThreadLoop(const Stmt& s) {
  bool found = false;
  ir::VisitStmt(s, [&](const Stmt& node) { found = found || IsThreadLoop(node); });
  return found;
}

// The arrays that some threads touch and others may see.
struct Touched {
  std::set<const ir::BufferNode*> read, written;

  static Touched By(const Stmt& s) {
    Touched t;
    auto visible = [](const Buffer& b) { return b->scope != ir::Scope::kRegister; };
    ir::VisitStmt(s, [&](const Stmt& node) {
      if (node->kind == StmtKind::kStore && visible(node->buffer)) t.written.insert(node->buffer.get());
    });
    ir::VisitExprs(s, [&](const Expr& root) {
      ir::Visit(root, [&](const Expr& e) {
        if (e->kind == ir::ExprKind::kLoad && visible(e->buffer)) t.read.insert(e->buffer.get());
      });
    });
    return t;
  }
  // Whether what comes `later` has to wait for this.
  bool Blocks(const Touched& later) const {
    auto meet = [](const std::set<const ir::BufferNode*>& a, const std::set<const ir::BufferNode*>& b) {
      return std::ranges::any_of(a, [&](const ir::BufferNode* buffer) { return b.contains(buffer); });
    };
    return meet(written, later.read) || meet(written, later.written) || meet(read, later.written);
  }
  void Add(const Touched& other) {
    read.insert(other.read.begin(), other.read.end());
    written.insert(other.written.begin(), other.written.end());
  }
};

// A copy of a group's code, thread loops in their places, with barriers. `since` is what was touched since the last
// one.
Stmt PlaceBarriers(const Stmt& s, Touched& since) {
  if (s->kind == StmtKind::kBarrier) {
    since = {};
    return s;
  }
  if (!HasThreadLoop(IsThreadLoop(s) ? s->body : s)) {
    const Touched own = Touched::By(s);
    const bool wait = since.Blocks(own);
    if (wait) since = {};
    since.Add(own);
    return wait ? ir::Seq({ir::Barrier(), s}) : s;
  }
  switch (s->kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) stmts.push_back(PlaceBarriers(child, since));
      return ir::Seq(std::move(stmts));
    }
    case StmtKind::kFor: {
      Stmt body = PlaceBarriers(s->body, since);
      // The second time round, what one step does meets what the one before it did. Threads take one step.
      if (s->extent > 1 && !IsThreadLoop(s)) body = PlaceBarriers(body, since);
      return ir::For(s->var, s->extent, s->for_kind, body);
    }
    case StmtKind::kIf: {
      Touched other = since;
      Stmt then_body = PlaceBarriers(s->body, since);
      Stmt else_body = s->else_body ? PlaceBarriers(s->else_body, other) : nullptr;
      since.Add(other);
      return ir::If(s->cond, then_body, else_body);
    }
    case StmtKind::kAlloc:
      return ir::Alloc(s->buffer, PlaceBarriers(s->body, since));
    case StmtKind::kStore:
    case StmtKind::kBlock:
    case StmtKind::kPrefetch:
    case StmtKind::kBarrier:
      break;  // hold no thread loops
  }
  return s;
}

// One group's code.
class Joiner {
 public:
  Stmt Join(const Stmt& group_code) {
    ir::VisitStmt(group_code, [&](const Stmt& s) {
      if (!IsThreadLoop(s)) return;
      const size_t axis = AxisOf(s);
      if (vars_[axis] != nullptr && s->extent <= extents_[axis]) return;
      extents_[axis] = s->extent;
      vars_[axis] = ir::MakeVar(s->var->name);
    });
    if (std::ranges::all_of(vars_, [](const Var& v) { return v == nullptr; })) vars_[0] = ir::MakeVar("thread");
    Touched nothing;
    Stmt code = Take(PlaceBarriers(group_code, nothing), {1, 1, 1});
    for (size_t axis = 0; axis < vars_.size(); ++axis) {
      if (vars_[axis] != nullptr) code = ir::For(vars_[axis], extents_[axis], kThreadKinds[axis], code);
    }
    for (const Buffer& b : shared_) code = ir::Alloc(b, code);
    return code;
  }

 private:
  static size_t AxisOf(const Stmt& loop) { return static_cast<size_t>(ir::AxisOf(loop->for_kind)); }

  // `s` with its thread loops and shared allocations taken out. `bound`: the extents of the thread loops around it.
  Stmt Take(const Stmt& s, const Extents& bound) {
    if (IsThreadLoop(s)) {
      Extents inside = bound;
      inside[AxisOf(s)] = s->extent;
      return Take(ir::Substitute(s->body, {{s->var, Expr(vars_[AxisOf(s)])}}), inside);
    }
    if (s->kind == StmtKind::kAlloc && s->buffer->scope == ir::Scope::kShared) {
      shared_.push_back(s->buffer);
      return Take(s->body, bound);
    }
    if (s->kind == StmtKind::kBarrier) return s;
    switch (s->kind) {
      case StmtKind::kSeq: {
        std::vector<Stmt> stmts;
        for (const Stmt& child : s->stmts) stmts.push_back(Take(child, bound));
        return ir::Seq(std::move(stmts));
      }
      case StmtKind::kFor:
        if (!HasThreadLoop(s)) break;
        return ir::For(s->var, s->extent, s->for_kind, Take(s->body, bound));
      case StmtKind::kIf:
        if (!HasThreadLoop(s)) break;
        return ir::If(s->cond, Take(s->body, bound), s->else_body ? Take(s->else_body, bound) : nullptr);
      case StmtKind::kAlloc:
        return ir::Alloc(s->buffer, Take(s->body, bound));
      case StmtKind::kStore:
      case StmtKind::kBlock:
      case StmtKind::kPrefetch:
      case StmtKind::kBarrier:
        break;
    }
    return Guarded(s, bound);
  }

  // By as many threads of each axis as its loops asked for.
  Stmt Guarded(const Stmt& s, const Extents& bound) const {
    std::vector<Expr> conditions;
    for (size_t axis = 0; axis < bound.size(); ++axis) {
      if (bound[axis] < extents_[axis]) conditions.push_back(Expr(vars_[axis]) < Expr(bound[axis]));
    }
    return conditions.empty() ? s : ir::If(Conjoin(conditions), s);
  }

  Extents extents_ = {1, 1, 1};
  std::array<Var, 3> vars_;
  std::vector<Buffer> shared_;
};

Stmt JoinBelow(const Stmt& s, bool in_group) {
  if (IsGroupLoop(s)) return ir::For(s->var, s->extent, s->for_kind, JoinBelow(s->body, true));
  if (in_group) return Joiner().Join(s);
  auto copy = std::make_shared<StmtNode>(*s);
  if (s->body != nullptr) copy->body = JoinBelow(s->body, false);
  if (s->else_body != nullptr) copy->else_body = JoinBelow(s->else_body, false);
  for (Stmt& child : copy->stmts) child = JoinBelow(child, false);
  return copy;
}

// Threads that read the same element of registers read what only one of them can have made, unless each made its own.
absl::Status CheckRegisterReads(const Func& f, const StmtNode& block, const Buffer& buffer) {
  const std::vector<Stmt> around = LoopsOf(PathToBlock(f.body, block.block.name));
  ir::Simplifier ranges;
  BindLoops(around, ranges);
  for (const Expr& load : ReadsOf(block, buffer)) {
    std::vector<Expr> element;
    for (const Expr& e : load->args) element.push_back(ir::Substitute(e, BindingsOf(block)));
    for (const Stmt& loop : UntoldLoops(element, block.block.predicate, around, ranges)) {
      if (!IsThreadLoop(loop) || UsedOnlyIn(loop, f, buffer)) continue;
      return absl::FailedPreconditionError(absl::StrCat("threads of loop '", loop->var->name, "' read the same '",
                                                        ir::Text(load), "' in block '", block.block.name,
                                                        "', which is in registers of one thread"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckThreads(const Func& f) {
  TEMPER_RETURN_IF_ERROR(CheckRaces(f));
  for (const Stmt& block : BlocksIn(f.body)) {
    for (const Buffer& buffer : BuffersRead(*block)) {
      if (buffer->scope == ir::Scope::kRegister) TEMPER_RETURN_IF_ERROR(CheckRegisterReads(f, *block, buffer));
    }
  }
  return absl::OkStatus();
}

Stmt JoinThreads(const Stmt& root) {
  bool has_groups = false;
  ir::VisitStmt(root, [&](const Stmt& s) { has_groups = has_groups || IsGroupLoop(s); });
  return has_groups ? ShrinkAllocs(JoinBelow(root, false)) : root;
}

}  // namespace temper::nest
