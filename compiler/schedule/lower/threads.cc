#include "compiler/schedule/lower/threads.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/lower/lanes.h"
#include "compiler/schedule/lower/scratch.h"
#include "compiler/schedule/region.h"

namespace temper::nest {
namespace {

using ir::ForKind;
using Extents = std::array<int64_t, 3>;  // of threads, by axis; 0: no loop along it

constexpr ForKind kThreadKinds[] = {ForKind::kThreadX, ForKind::kThreadY, ForKind::kThreadZ};

bool IsThreadLoop(const Stmt& s) { return s->kind == StmtKind::kFor && ir::IsThread(s->for_kind); }
bool IsGroupLoop(const Stmt& s) { return s->kind == StmtKind::kFor && ir::IsGroup(s->for_kind); }

bool HasThreadLoop(const Stmt& s) { return ir::AnyOf(s, IsThreadLoop); }

// What some threads touch of an array, and others may see: all of it, or where each step of a loop has a version of its
// own, the one that an index `at` % `versions` tells.
struct Touch {
  const ir::BufferNode* buffer;
  size_t dimension = 0;
  int64_t versions = 0;  // 0: all of them
  Expr at;

  bool Meets(const Touch& other) const {
    if (buffer != other.buffer) return false;
    if (versions == 0 || versions != other.versions || dimension != other.dimension) return true;
    const std::optional<int64_t> distance = ir::AsInt(ir::Simplifier().Simplify(at - other.at));
    return !distance.has_value() || *distance % versions == 0;
  }
  bool operator==(const Touch& other) const {
    return buffer == other.buffer && versions == other.versions && dimension == other.dimension &&
           (versions == 0 || ir::StructurallyEqual(at, other.at));
  }
};

struct Touched {
  std::vector<Touch> read, written;

  // By `s`. `steps`: the loops around it whose iterations all threads of the group take together.
  static Touched By(const Stmt& s, const VarSet& steps) {
    Touched t;
    ir::Simplifier ranges;
    BindLoopsIn(s, ranges);
    // `copy`: of a pipeline, whose first steps stand before its loop.
    const auto add = [&](std::vector<Touch>& list, const Buffer& b, const std::vector<Expr>& indices, bool copy) {
      if (b->scope == ir::Scope::kRegister) return;
      Touch touch{b.get()};
      for (size_t d = 0; d < indices.size() && touch.versions == 0; ++d) {
        const Expr e = ranges.Simplify(indices[d]);
        if (e->kind == ir::ExprKind::kMod && UsesOnly(e, steps))
          touch = {b.get(), d, ir::AsInt(e->args[1]).value_or(0), e->args[0]};
        if (copy && e->kind == ir::ExprKind::kInt && b->shape[d] > 1) touch = {b.get(), d, b->shape[d], e};
      }
      if (std::ranges::find(list, touch) == list.end()) list.push_back(touch);
    };
    ir::VisitStmt(s, [&](const Stmt& node) {
      if (node->kind == StmtKind::kStore) add(t.written, node->buffer, node->indices, node->ahead > 0);
    });
    ir::VisitExprs(s, [&](const Expr& root) {
      ir::Visit(root, [&](const Expr& e) {
        if (e->kind == ir::ExprKind::kLoad) add(t.read, e->buffer, e->args, false);
      });
    });
    return t;
  }
  // Whether what comes `later` has to wait for this.
  bool Blocks(const Touched& later) const {
    const auto meet = [](const std::vector<Touch>& a, const std::vector<Touch>& b) {
      return std::ranges::any_of(
          a, [&](const Touch& x) { return std::ranges::any_of(b, [&](const Touch& y) { return x.Meets(y); }); });
    };
    return meet(written, later.read) || meet(written, later.written) || meet(read, later.written);
  }
  void Add(const Touched& other) {
    read.insert(read.end(), other.read.begin(), other.read.end());
    written.insert(written.end(), other.written.begin(), other.written.end());
  }
  void Change(const std::function<void(Touch&)>& change) {
    for (std::vector<Touch>* list : {&read, &written}) std::ranges::for_each(*list, change);
  }
};

// Whether every run of `s` comes to a barrier.
bool Waits(const Stmt& s) {
  if (s->kind == StmtKind::kSeq) return std::ranges::any_of(s->stmts, Waits);
  if (s->kind == StmtKind::kFor || s->kind == StmtKind::kAlloc) return Waits(s->body);
  return s->kind == StmtKind::kBarrier;
}

Stmt PlaceBarriers(const Stmt& s, Touched& since, VarSet& steps);

// The second time round, what one step does meets what the one before it did.
Stmt PlaceInSteps(const Stmt& loop, Touched& since, VarSet& steps) {
  if (loop->extent == 1) return PlaceBarriers(ir::Substitute(loop->body, {{loop->var, Expr(0)}}), since, steps);
  steps.insert(loop->var.get());
  Stmt body = PlaceBarriers(loop->body, since, steps);
  // Without a barrier in each, steps before that one may not be done either.
  const bool apart = Waits(body);
  since.Change([&](Touch& t) {
    if (!apart) t.versions = 0;
    if (t.versions > 0) t.at = ir::Substitute(t.at, {{loop->var, Expr(loop->var) - Expr(1)}});
  });
  body = PlaceBarriers(body, since, steps);
  steps.erase(loop->var.get());
  since.Change([&](Touch& t) {
    if (t.versions > 0 && ir::UsesVar(t.at, loop->var)) t.versions = 0;
  });
  return ir::For(loop->var, loop->extent, loop->for_kind, body);
}

// A copy of a group's code, thread loops in their places, with barriers. `since` is what was touched since the last
// one.
Stmt PlaceBarriers(const Stmt& s, Touched& since, VarSet& steps) {
  if (s->kind == StmtKind::kBarrier) {
    since = {};
    return s;
  }
  if (!HasThreadLoop(IsThreadLoop(s) ? s->body : s)) {
    const Touched own = Touched::By(s, steps);
    const bool wait = since.Blocks(own);
    if (wait) since = {};
    since.Add(own);
    return wait ? ir::Seq({ir::Barrier(), s}) : s;
  }
  switch (s->kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) stmts.push_back(PlaceBarriers(child, since, steps));
      return ir::Seq(std::move(stmts));
    }
    case StmtKind::kFor:
      if (!IsThreadLoop(s)) return PlaceInSteps(s, since, steps);
      return ir::For(s->var, s->extent, s->for_kind, PlaceBarriers(s->body, since, steps));
    case StmtKind::kIf: {
      Touched other = since;
      Stmt then_body = PlaceBarriers(s->body, since, steps);
      Stmt else_body = s->else_body ? PlaceBarriers(s->else_body, other, steps) : nullptr;
      since.Add(other);
      return ir::If(s->cond, then_body, else_body);
    }
    case StmtKind::kAlloc:
      return ir::Alloc(s->buffer, PlaceBarriers(s->body, since, steps));
    case StmtKind::kStore:
    case StmtKind::kBlock:
    case StmtKind::kPrefetch:
    case StmtKind::kBarrier:
    case StmtKind::kInstruction:
      break;  // hold no thread loops
  }
  return s;
}

// Whether it writes registers that it does not allocate itself, and whether it writes anything else.
struct Writes {
  bool registers = false, others = false;
  explicit Writes(const Stmt& s) {
    std::vector<const ir::BufferNode*> own;
    ir::VisitStmt(s, [&](const Stmt& node) {
      if (node->kind == StmtKind::kAlloc) own.push_back(node->buffer.get());
    });
    ir::VisitStmt(s, [&](const Stmt& node) {
      if (node->kind != StmtKind::kStore || std::ranges::count(own, node->buffer.get()) > 0) return;
      (node->buffer->scope == ir::Scope::kRegister ? registers : others) = true;
    });
  }
  bool both() const { return registers && others; }
};

bool HasCopies(const Stmt& s) {
  return ir::AnyOf(s, [](const Stmt& node) { return node->ahead > 0; });
}

// The array to which the nest does nothing but copy; null: there is none.
const ir::BufferNode* CopiedTo(const Stmt& nest) {
  const ir::BufferNode* to = nullptr;
  bool alone = true;
  ir::VisitStmt(nest, [&](const Stmt& s) {
    if (s->kind != StmtKind::kStore) return;
    alone = alone && s->ahead > 0 && (to == nullptr || to == s->buffer.get());
    to = s->buffer.get();
  });
  return alone ? to : nullptr;
}

// Nests that copy one after another, each to an array of its own, make a group.
Stmt CommitGroups(const Stmt& root) {
  return ir::RewriteStmt(root, [](const Stmt& s) -> Stmt {
    if (s->kind != StmtKind::kSeq) return nullptr;
    std::vector<Stmt> stmts;
    std::vector<const ir::BufferNode*> group;
    const auto commit = [&] {
      if (!group.empty()) stmts.push_back(ir::CommitCopies());
      group.clear();
    };
    for (const Stmt& child : s->stmts) {
      const ir::BufferNode* to = CopiedTo(child);
      if (to == nullptr || std::ranges::count(group, to) > 0) commit();
      if (to != nullptr) group.push_back(to);
      stmts.push_back(child);
    }
    commit();
    return stmts.size() == s->stmts.size() ? nullptr : ir::Seq(std::move(stmts));
  });
}

// How many groups of a step, and of those before it, the next step does not need yet.
int64_t GroupsAhead(const Stmt& body) {
  int64_t ahead = 0, groups = 0;
  ir::VisitStmt(body, [&](const Stmt& s) {
    if (s->ahead > 0) ahead = s->ahead;
    if (s->kind == StmtKind::kInstruction && s->instruction == ir::Instruction::kCommitCopies) groups += ahead - 1;
  });
  return groups;
}

// Before each barrier threads wait for their copies, but for the `most` that are for later.
Stmt WaitAtBarriers(const Stmt& s, int64_t most) {
  if (s->kind == StmtKind::kBarrier) return ir::Seq({ir::WaitCopies(most), s});
  if (s->kind == StmtKind::kFor && !IsThreadLoop(s)) most = GroupsAhead(s->body);
  auto copy = std::make_shared<StmtNode>(*s);
  if (s->body != nullptr) copy->body = WaitAtBarriers(s->body, most);
  if (s->else_body != nullptr) copy->else_body = WaitAtBarriers(s->else_body, most);
  if (s->kind != StmtKind::kSeq) return copy;
  std::vector<Stmt> stmts;
  for (const Stmt& child : s->stmts) stmts.push_back(WaitAtBarriers(child, most));
  return ir::Seq(std::move(stmts));
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
    VarSet no_steps;
    Stmt ordered = PlaceBarriers(HasCopies(group_code) ? CommitGroups(group_code) : group_code, nothing, no_steps);
    if (HasCopies(group_code)) ordered = WaitAtBarriers(ordered, 0);
    Stmt code = Take(ordered, {0, 0, 0});
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
    if (s->kind == StmtKind::kBarrier || s->kind == StmtKind::kInstruction) return s;
    switch (s->kind) {
      case StmtKind::kSeq: {
        std::vector<Stmt> stmts;
        for (const Stmt& child : s->stmts) stmts.push_back(Take(child, bound));
        return ir::Seq(std::move(stmts));
      }
      case StmtKind::kFor:
        if (s->for_kind == ForKind::kLanes) return Guarded(LowerLanes(s, vars_[0]), bound);
        if (!HasThreadLoop(s) && !Writes(s).both()) break;
        return ir::For(s->var, s->extent, s->for_kind, Take(s->body, bound));
      case StmtKind::kIf:
        if (!HasThreadLoop(s) && !Writes(s).both()) break;
        return ir::If(s->cond, Take(s->body, bound), s->else_body ? Take(s->else_body, bound) : nullptr);
      case StmtKind::kAlloc:
        return ir::Alloc(s->buffer, Take(s->body, bound));
      case StmtKind::kStore:
      case StmtKind::kBlock:
      case StmtKind::kPrefetch:
      case StmtKind::kBarrier:
      case StmtKind::kInstruction:
        break;
    }
    return Guarded(s, bound);
  }

  // By as many threads of each axis as its loops asked for; along one without a loop by all, each for its registers.
  Stmt Guarded(const Stmt& s, const Extents& bound) const {
    const Writes writes(s);
    const bool by_all = writes.registers && !writes.others;
    std::vector<Expr> conditions;
    for (size_t axis = 0; axis < bound.size(); ++axis) {
      const int64_t wanted = std::max<int64_t>(bound[axis], 1);
      if (wanted >= extents_[axis] || (by_all && bound[axis] == 0)) continue;
      conditions.push_back(Expr(vars_[axis]) < Expr(wanted));
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

// Whether no loop along the axis is around what writes the buffer, so that all threads along it make their own.
bool MadeByAll(const Func& f, const Buffer& buffer, ForKind axis) {
  return std::ranges::none_of(WritersOf(f.body, buffer), [&](const Stmt& writer) {
    return std::ranges::any_of(LoopsOf(PathToBlock(f.body, writer->block.name)),
                               [&](const Stmt& loop) { return loop->for_kind == axis; });
  });
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
      if (!IsThreadLoop(loop) || UsedOnlyIn(loop, f, buffer) || MadeByAll(f, buffer, loop->for_kind)) continue;
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
  TEMPER_RETURN_IF_ERROR(CheckLanes(f));
  for (const Stmt& block : BlocksIn(f.body)) {
    for (const Buffer& buffer : BuffersRead(*block)) {
      if (buffer->scope == ir::Scope::kRegister) TEMPER_RETURN_IF_ERROR(CheckRegisterReads(f, *block, buffer));
    }
  }
  return absl::OkStatus();
}

Stmt JoinThreads(const Stmt& root) {
  return ir::AnyOf(root, IsGroupLoop) ? ShrinkAllocs(JoinBelow(root, false)) : root;
}

}  // namespace temper::nest
