#include "compiler/codegen/llvm/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/division.h"

namespace temper {
namespace {

using ir::ForKind;
using ir::Stmt;
using ir::StmtKind;

constexpr int64_t kLargestOnStack = 16 << 10, kLargestFrame = 64 << 10, kAlignment = 64;

class Planner {
 public:
  void Visit(const Stmt& s, bool parallel) {
    if (s == nullptr) return;
    switch (s->kind) {
      case StmtKind::kFor:
        if (s->for_kind == ForKind::kParallel && !parallel) {
          stack_ = thread_ = 0;
          Visit(s->body, true);
          plan.thread_workspace_bytes = std::max(plan.thread_workspace_bytes, thread_);
        } else {
          // Scratch made inside a vectorised loop is each lane's own.
          const int64_t outer = lanes_;
          if (s->for_kind == ForKind::kVectorized) lanes_ = std::max(lanes_, s->extent);
          Visit(s->body, parallel);
          lanes_ = outer;
        }
        break;
      case StmtKind::kAlloc:
        if (s->buffer->scope == ir::Scope::kMemory) Place(s->buffer, parallel);
        Visit(s->body, parallel);
        break;
      case StmtKind::kIf:
        Visit(s->body, parallel);
        Visit(s->else_body, parallel);
        break;
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) Visit(child, parallel);
        break;
      case StmtKind::kStore:
      case StmtKind::kBlock:
      case StmtKind::kPrefetch:
      case StmtKind::kBarrier:
      case StmtKind::kInstruction:
        break;
    }
  }

  FunctionPlan plan;

 private:
  void Place(const ir::Buffer& buffer, bool parallel) {
    const int64_t elements = std::max<int64_t>(1, NumElements(buffer->shape)) * lanes_;
    const int64_t bytes = RoundUp(elements * SizeOf(buffer->dtype), kAlignment);
    Placement& p = plan.placements[buffer.get()];
    if (!parallel) {
      p = {Placement::kWorkspace, plan.workspace_bytes};
      plan.workspace_bytes += bytes;
      plan.workspace_buffers.push_back(buffer);
    } else if (bytes <= kLargestOnStack && stack_ + bytes <= kLargestFrame) {
      p = {Placement::kStack};
      stack_ += bytes;
    } else {
      p = {Placement::kThreadWorkspace, thread_};
      thread_ += bytes;
    }
  }

  int64_t stack_ = 0, thread_ = 0, lanes_ = 1;
};

template <typename T>
void AddOnce(std::vector<T>& list, const T& item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

}  // namespace

FunctionPlan PlanFunction(const ir::Func& func) {
  Planner planner;
  planner.Visit(func.body, false);
  return std::move(planner.plan);
}

absl::StatusOr<Captures> CapturesOf(const Stmt& loop, const FunctionPlan& plan) {
  Captures captures;
  std::set<const ir::VarNode*> bound;
  std::set<const ir::BufferNode*> inside;
  ir::VisitStmt(loop, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor) bound.insert(s->var.get());
    if (s->kind == StmtKind::kAlloc) {
      inside.insert(s->buffer.get());
      auto placed = plan.placements.find(s->buffer.get());
      if (placed != plan.placements.end() && placed->second.kind != Placement::kStack) {
        AddOnce(captures.thread_buffers, s->buffer);
      }
    }
  });
  absl::Status status;
  auto use = [&](const ir::Buffer& buffer) {
    if (inside.contains(buffer.get())) return;
    if (buffer->scope != ir::Scope::kMemory) {
      status = absl::InvalidArgumentError(
          absl::StrCat("register array ", buffer->name, " is used across ",
                       loop->for_kind == ForKind::kParallel ? "a parallel" : "an outlined", " loop"));
    }
    AddOnce(captures.buffers, buffer);
  };
  ir::VisitStmt(loop, [&](const Stmt& s) {
    if (s->kind == StmtKind::kStore || s->kind == StmtKind::kPrefetch) use(s->buffer);
  });
  ir::VisitExprs(loop, [&](const ir::Expr& root) {
    ir::Visit(root, [&](const ir::Expr& e) {
      if (e->kind == ir::ExprKind::kLoad) use(e->buffer);
      if (e->kind == ir::ExprKind::kVar && !bound.contains(e->var.get())) AddOnce(captures.vars, e->var);
    });
  });
  TEMPER_RETURN_IF_ERROR(status);
  return captures;
}

std::vector<VectorPiece> PowerOfTwoPieces(int64_t extent, int64_t cap) {
  std::vector<VectorPiece> pieces;
  for (int64_t base = 0; base < extent;) {
    int64_t length = 1;
    while (length * 2 <= std::min(cap, extent - base)) length *= 2;
    pieces.push_back({base, length});
    base += length;
  }
  return pieces;
}

}  // namespace temper
