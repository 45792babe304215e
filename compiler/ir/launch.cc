#include "compiler/ir/launch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ir/walk.h"

namespace temper::ir {
namespace {

absl::Status Error(const Func& f, const Stmt& s, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(f.name, ": ", what, " in: ", FirstLine(s)));
}

bool IsGroupLoop(const Stmt& s) { return s->kind == StmtKind::kFor && IsGroup(s->for_kind); }
bool IsThreadLoop(const Stmt& s) { return s->kind == StmtKind::kFor && IsThread(s->for_kind); }
bool IsSharedAlloc(const Stmt& s) { return s->kind == StmtKind::kAlloc && s->buffer->scope == Scope::kShared; }

// Whether the expression uses a variable of a thread loop.
bool UsesThread(const Expr& e, const Launch& launch) {
  return std::ranges::any_of(launch.thread_loops, [&](const Stmt& loop) { return UsesVar(e, loop->var); });
}

class LaunchFinder {
 public:
  explicit LaunchFinder(const Func& f) : f_(f) {}
  absl::Status Visit(const Stmt& s);

  std::vector<Launch> launches;

 private:
  absl::Status Add(const Stmt& s);
  // Takes the loops of one kind off `s`: their extents by axis, and themselves.
  absl::Status Descend(Stmt& s, bool (*wanted)(const Stmt&), std::array<int64_t, 3>& extents,
                       std::vector<Stmt>& loops) const;
  absl::Status CheckThreadCode(const Launch& launch) const;
  absl::Status CheckRegister(const Launch& launch, const Stmt& s, const Buffer& buffer,
                             const std::vector<Expr>& indices) const;

  const Func& f_;
};

absl::Status LaunchFinder::Visit(const Stmt& s) {
  if (IsGroupLoop(s)) return Add(s);
  if (s->kind == StmtKind::kSeq) {
    for (const Stmt& child : s->stmts) TEMPER_RETURN_IF_ERROR(Visit(child));
    return absl::OkStatus();
  }
  if (s->kind == StmtKind::kAlloc && s->buffer->scope == Scope::kMemory) return Visit(s->body);
  return Error(f_, s, "a function with launches has nothing else but memory around them; found");
}

absl::Status LaunchFinder::Descend(Stmt& s, bool (*wanted)(const Stmt&), std::array<int64_t, 3>& extents,
                                   std::vector<Stmt>& loops) const {
  std::array<bool, 3> seen = {};
  for (; wanted(s); s = s->body) {
    const int axis = AxisOf(s->for_kind);
    if (seen[axis]) return Error(f_, s, "a launch has one loop of an axis");
    if (s->extent < 1) return Error(f_, s, "a launch needs one group and one thread at least");
    seen[axis] = true;
    extents[axis] = s->extent;
    loops.push_back(s);
  }
  return absl::OkStatus();
}

absl::Status LaunchFinder::Add(const Stmt& s) {
  Launch launch;
  Stmt at = s;
  TEMPER_RETURN_IF_ERROR(Descend(at, IsGroupLoop, launch.groups, launch.group_loops));
  for (; IsSharedAlloc(at); at = at->body) launch.shared.push_back(at->buffer);
  const Stmt threads = at;
  TEMPER_RETURN_IF_ERROR(Descend(at, IsThreadLoop, launch.threads, launch.thread_loops));
  if (launch.thread_loops.empty()) {
    return Error(f_, at, "group loops hold shared arrays and thread loops alone; found");
  }
  if (launch.num_threads() > kMaxGroupThreads) {
    return Error(f_, threads,
                 absl::StrCat(launch.num_threads(), " threads of a group where ", kMaxGroupThreads, " are possible"));
  }
  launch.body = at;
  TEMPER_RETURN_IF_ERROR(CheckThreadCode(launch));
  launches.push_back(std::move(launch));
  return absl::OkStatus();
}

absl::Status LaunchFinder::CheckRegister(const Launch& launch, const Stmt& s, const Buffer& buffer,
                                         const std::vector<Expr>& indices) const {
  if (buffer == nullptr || buffer->scope != Scope::kRegister) return absl::OkStatus();
  for (const Expr& index : indices) {
    if (!UsesThread(index, launch)) continue;
    return Error(f_, s, absl::StrCat("which element of register array ", buffer->name, " depends on the thread"));
  }
  return absl::OkStatus();
}

absl::Status LaunchFinder::CheckThreadCode(const Launch& launch) const {
  absl::Status status;
  VisitStmt(launch.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor &&
        (IsConcurrent(s->for_kind) || s->for_kind == ForKind::kOutlined || s->for_kind == ForKind::kTile ||
         s->for_kind == ForKind::kTensor || s->for_kind == ForKind::kTeamTensor || s->for_kind == ForKind::kLanes)) {
      status.Update(Error(f_, s, "a thread runs its code alone, but here it would not"));
    }
    if (s->kind == StmtKind::kAlloc && s->buffer->scope != Scope::kRegister) {
      status.Update(Error(f_, s, "a thread's own arrays are in registers, but one is not"));
    }
    status.Update(CheckRegister(launch, s, s->buffer, s->indices));
    if (s->kind != StmtKind::kStore) return;
    AnyNode(s->value, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad) status.Update(CheckRegister(launch, s, e->buffer, e->args));
      return !status.ok();
    });
  });
  return status;
}

// What threads come to together below `s`; null if there is nothing.
const char* Meeting(const Stmt& s) {
  const char* found = nullptr;
  VisitStmt(s, [&](const Stmt& node) {
    if (node->kind == StmtKind::kBarrier) found = "a barrier";
    if (found == nullptr && node->kind == StmtKind::kInstruction && IsOfWarp(node->instruction))
      found = "an instruction of their warp";
  });
  return found;
}

bool IsOfTeam(const Stmt& s) { return s->kind == StmtKind::kInstruction && IsOfTeam(s->instruction); }

// That products are begun, added and ended in turn, of one array, which is allocated around them, and that nothing else
// stands between.
class ProductOrder {
 public:
  explicit ProductOrder(const Func& f) : f_(f) {}
  absl::Status Visit(const Stmt& s) {
    if (IsOfTeam(s)) return VisitInstruction(s);
    const bool plain = s->kind == StmtKind::kSeq || (s->kind == StmtKind::kFor && s->for_kind == ForKind::kUnrolled);
    if (made_ != nullptr && !plain) return Error(f_, s, "something else where products are made");
    const Buffer before = made_;
    for (const Stmt& child : s->stmts) TEMPER_RETURN_IF_ERROR(Visit(child));
    if (s->kind == StmtKind::kSeq) return absl::OkStatus();
    for (const Stmt& child : {s->body, s->else_body}) {
      if (child != nullptr) TEMPER_RETURN_IF_ERROR(Visit(child));
      if (made_ != before) return Error(f_, s, "products that begin or end in a part of the code alone");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status VisitInstruction(const Stmt& s) {
    const bool begins = s->instruction == Instruction::kBeginProducts;
    if (made_ != (begins ? nullptr : s->buffer)) return Error(f_, s, "products out of their turn");
    if (begins) made_ = s->buffer;
    if (s->instruction == Instruction::kEndProducts) made_ = nullptr;
    return absl::OkStatus();
  }

  const Func& f_;
  Buffer made_;  // whose sums are being made; null: none
};

}  // namespace

bool IsTensorType(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32; }

int64_t SharedBytes(const Buffer& array) { return SharedAligned(NumElements(array->shape) * SizeOf(array->dtype)); }

int64_t Launch::shared_bytes() const {
  int64_t bytes = 0;
  for (const Buffer& b : shared) bytes += SharedBytes(b);
  return bytes;
}

bool HasLaunches(const Func& f) {
  return AnyOf(f.body, [](const Stmt& s) {
    return IsGroupLoop(s) || IsThreadLoop(s) || IsSharedAlloc(s) || s->kind == StmtKind::kBarrier ||
           s->kind == StmtKind::kInstruction;
  });
}

absl::StatusOr<std::vector<Launch>> LaunchesOf(const Func& f) {
  LaunchFinder finder(f);
  if (HasLaunches(f)) TEMPER_RETURN_IF_ERROR(finder.Visit(f.body));
  return std::move(finder.launches);
}

absl::Status CheckBarriers(const Func& f, const Launch& launch) {
  absl::Status status;
  VisitStmt(launch.body, [&](const Stmt& s) {
    const char* const meeting = Meeting(s);
    if (!status.ok() || meeting == nullptr) return;
    if (s->kind == StmtKind::kInstruction && (f.warp_width != kTensorWarp || launch.num_threads() % kTensorWarp != 0)) {
      status = Error(f, s, "an instruction of warps needs groups of whole warps of 32 threads, but here is");
    }
    if (IsOfTeam(s) && launch.num_threads() % kTeamThreads != 0)
      status = Error(f, s, "an instruction of teams needs groups of whole teams of 128 threads, but here is");
    if (s->kind == StmtKind::kIf && (UsesThread(s->cond, launch) || HasLoad(s->cond))) {
      status = Error(f, s, absl::StrCat("threads may disagree whether they come to ", meeting));
    }
    if (s->kind == StmtKind::kFor && s->for_kind == ForKind::kVectorized) {
      status = Error(f, s, absl::StrCat(meeting, " is inside a vectorised loop"));
    }
  });
  status.Update(ProductOrder(f).Visit(launch.body));
  return status;
}

}  // namespace temper::ir
