#include "compiler/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/schedule/rewrites/rewrites.h"

namespace temper {
namespace {

std::string Named(const Loop& loop) { return loop == nullptr ? "no loop" : absl::StrCat("loop '", loop->name, "'"); }
std::string Named(const std::string& block) { return absl::StrCat("block '", block, "'"); }

}  // namespace

Schedule::Schedule(ir::Func func) : func_(std::move(func)), status_(ir::Verify(func_)) {}

bool Schedule::Take(absl::StatusOr<ir::Func> result, const std::string& what) {
  if (!result.ok()) {
    status_ = absl::Status(result.status().code(), absl::StrCat(what, ": ", result.status().message()));
    return false;
  }
  func_ = *std::move(result);
  return true;
}

template <typename T>
T Schedule::TakeValue(absl::StatusOr<rewrites::Result<T>> result, const std::string& what) {
  if (!result.ok()) {
    Take(result.status(), what);
    return T();
  }
  func_ = std::move(result->func);
  return std::move(result->value);
}

std::vector<Loop> Schedule::Loops(const std::string& block) {
  std::vector<Loop> loops;
  if (!status_.ok()) return loops;
  absl::StatusOr<nest::Path> path = nest::FindBlock(func_, block);
  if (!path.ok()) {
    Take(path.status(), absl::StrCat("loops(", Named(block), ")"));
    return loops;
  }
  for (const ir::Stmt& s : nest::LoopsOf(*path)) loops.push_back(s->var);
  return loops;
}

std::vector<std::string> Schedule::Blocks() const {
  std::vector<std::string> names;
  for (const ir::Stmt& s : nest::BlocksIn(func_.body)) names.push_back(s->block.name);
  return names;
}

int64_t Schedule::Extent(const Loop& loop) {
  if (!status_.ok()) return 0;
  absl::StatusOr<nest::Path> path = nest::FindLoop(func_, loop);
  if (path.ok()) return path->back()->extent;
  Take(path.status(), absl::StrCat("extent(", Named(loop), ")"));
  return 0;
}

// The loop itself, if it is still there or never was copied, and its copies.
std::vector<Loop> Schedule::WithCopies(const Loop& loop) const {
  std::vector<Loop> all = {loop};
  for (size_t i = 0; i < all.size(); ++i) {
    for (const auto& [from, to] : copies_) {
      if (from == all[i] && !nest::PathToLoop(func_.body, to).empty()) all.push_back(to);
    }
  }
  if (all.size() > 1 && nest::PathToLoop(func_.body, loop).empty()) all.erase(all.begin());
  return all;
}

void Schedule::Annotate(const char* rewrite, const Loop& loop, ir::ForKind kind) {
  if (!status_.ok()) return;
  const ir::Func before = func_;
  for (const Loop& each : WithCopies(loop)) {
    if (!Take(rewrites::Annotate(func_, each, kind), absl::StrCat(rewrite, "(", Named(each), ")"))) {
      func_ = before;
      return;
    }
  }
}

std::pair<Loop, Loop> Schedule::Split(const Loop& loop, int64_t factor) {
  if (!status_.ok()) return {};
  return TakeValue(rewrites::Split(func_, loop, factor), absl::StrCat("split(", Named(loop), ", factor ", factor, ")"));
}

Loop Schedule::Fuse(const Loop& outer, const Loop& inner) {
  if (!status_.ok()) return nullptr;
  return TakeValue(rewrites::Fuse(func_, outer, inner), absl::StrCat("fuse(", Named(outer), ", ", Named(inner), ")"));
}

Loop Schedule::AddLoop(const std::string& block) {
  if (!status_.ok()) return nullptr;
  return TakeValue(rewrites::AddLoop(func_, block), absl::StrCat("add_loop(", Named(block), ")"));
}

void Schedule::Reorder(const std::vector<Loop>& order) {
  if (!status_.ok()) return;
  const std::string names =
      absl::StrJoin(order, ", ", [](std::string* out, const Loop& loop) { out->append(Named(loop)); });
  Take(rewrites::Reorder(func_, order), absl::StrCat("reorder(", names, ")"));
}

void Schedule::Unroll(const Loop& loop) { Annotate("unroll", loop, ir::ForKind::kUnrolled); }
void Schedule::Vectorize(const Loop& loop) { Annotate("vectorize", loop, ir::ForKind::kVectorized); }
void Schedule::Tensorize(const Loop& loop) { Annotate("tensorize", loop, ir::ForKind::kTensor); }
void Schedule::TensorizeForTiles(const Loop& loop) { Annotate("tensorize for tiles", loop, ir::ForKind::kTile); }
void Schedule::TensorizeForTeams(const Loop& loop) { Annotate("tensorize for teams", loop, ir::ForKind::kTeamTensor); }
void Schedule::ReduceAcrossLanes(const Loop& loop) { Annotate("reduce across lanes", loop, ir::ForKind::kLanes); }
void Schedule::Parallel(const Loop& loop) { Annotate("parallel", loop, ir::ForKind::kParallel); }

void Schedule::Bind(const Loop& loop, ir::ForKind kind) { Annotate("bind", loop, kind); }

void Schedule::Partition(const Loop& loop) {
  if (!status_.ok()) return;
  const ir::Func before = func_;
  for (const Loop& each : WithCopies(loop)) {
    rewrites::LoopCopies copies =
        TakeValue(rewrites::Partition(func_, each), absl::StrCat("partition(", Named(each), ")"));
    if (!status_.ok()) {
      func_ = before;
      return;
    }
    copies_.insert(copies_.end(), copies.begin(), copies.end());
  }
}

std::array<Loop, 3> Schedule::Peel(const Loop& loop, int64_t first, int64_t last) {
  std::array<Loop, 3> parts;
  if (!status_.ok()) return parts;
  const ir::Func before = func_;
  for (const Loop& each : WithCopies(loop)) {
    rewrites::Peeled peeled = TakeValue(rewrites::Peel(func_, each, first, last),
                                        absl::StrCat("peel(", Named(each), ", first ", first, ", last ", last, ")"));
    if (!status_.ok()) {
      func_ = before;
      return {};
    }
    copies_.insert(copies_.end(), peeled.copies.begin(), peeled.copies.end());
    // Of a loop with copies, the handles stand for the parts of each.
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] != nullptr) copies_.emplace_back(parts[i], peeled.parts[i]);
    }
    if (parts == std::array<Loop, 3>()) parts = peeled.parts;
  }
  return parts;
}

void Schedule::Inline(const std::string& block) {
  if (status_.ok()) Take(rewrites::Inline(func_, block), absl::StrCat("inline(", Named(block), ")"));
}

void Schedule::ComputeAt(const std::string& block, const Loop& loop) {
  if (!status_.ok()) return;
  Take(rewrites::ComputeAt(func_, block, loop), absl::StrCat("compute_at(", Named(block), ", ", Named(loop), ")"));
}

void Schedule::ReverseComputeAt(const std::string& block, const Loop& loop) {
  if (!status_.ok()) return;
  Take(rewrites::ReverseComputeAt(func_, block, loop),
       absl::StrCat("reverse_compute_at(", Named(block), ", ", Named(loop), ")"));
}

std::string Schedule::CacheRead(const std::string& block, const std::string& buffer, ir::Scope scope) {
  if (!status_.ok()) return "";
  return TakeValue(rewrites::CacheRead(func_, block, buffer, scope),
                   absl::StrCat("cache_read(", Named(block), ", '", buffer, "')"));
}

std::string Schedule::CacheWrite(const std::string& block, ir::Scope scope) {
  if (!status_.ok()) return "";
  return TakeValue(rewrites::CacheWrite(func_, block, scope), absl::StrCat("cache_write(", Named(block), ")"));
}

void Schedule::SetScope(const std::string& block, ir::Scope scope) {
  if (status_.ok()) Take(rewrites::SetScope(func_, block, scope), absl::StrCat("set_scope(", Named(block), ")"));
}

std::string Schedule::DecomposeReduction(const std::string& block, const Loop& loop) {
  if (!status_.ok()) return "";
  return TakeValue(rewrites::DecomposeReduction(func_, block, loop),
                   absl::StrCat("decompose_reduction(", Named(block), ", ", Named(loop), ")"));
}

std::pair<std::string, std::string> Schedule::Rfactor(const std::string& block, const Loop& loop) {
  if (!status_.ok()) return {};
  return TakeValue(rewrites::Rfactor(func_, block, loop),
                   absl::StrCat("rfactor(", Named(block), ", ", Named(loop), ")"));
}

void Schedule::TransformLayout(const std::string& block, Shape shape,
                               const std::function<std::vector<ir::Expr>(const std::vector<ir::Expr>&)>& map) {
  if (!status_.ok()) return;
  Take(rewrites::TransformLayout(func_, block, shape, map),
       absl::StrCat("transform_layout(", Named(block), ", ", ShapeText(shape), ")"));
}

void Schedule::DoubleBuffer(const std::string& block, const Loop& loop) {
  if (!status_.ok()) return;
  Take(rewrites::DoubleBuffer(func_, block, loop),
       absl::StrCat("double_buffer(", Named(block), ", ", Named(loop), ")"));
}

void Schedule::Pipeline(const std::vector<std::string>& blocks, const Loop& loop, int depth) {
  if (!status_.ok()) return;
  Take(rewrites::Pipeline(func_, blocks, loop, depth),
       absl::StrCat("pipeline(", absl::StrJoin(blocks, ", "), ", ", Named(loop), ", depth ", depth, ")"));
}

void Schedule::Prefetch(const std::string& block, const std::string& buffer, const Loop& loop, int64_t distance,
                        const Loop& ahead, const std::vector<Loop>& each) {
  if (!status_.ok()) return;
  const Loop& steps = ahead ? ahead : loop;
  const std::string what = absl::StrCat("prefetch(", Named(block), ", '", buffer, "', ", Named(loop), ", distance ",
                                        distance, ahead ? absl::StrCat(" of ", Named(ahead)) : "", ")");
  if (distance < 1) {
    Take(absl::FailedPreconditionError("distance must be at least 1"), what);
    return;
  }
  std::vector<ir::VarBinding> at;
  if (steps) at.push_back({steps, ir::Expr(steps) + ir::Expr(distance)});
  Take(rewrites::Prefetch(func_, block, buffer, loop, std::move(at), each), what);
}

void Schedule::PrefetchAt(const std::string& block, const std::string& buffer, const Loop& loop,
                          const std::vector<ir::VarBinding>& at, const std::vector<Loop>& each) {
  if (!status_.ok()) return;
  Take(rewrites::Prefetch(func_, block, buffer, loop, at, each),
       absl::StrCat("prefetch_at(", Named(block), ", '", buffer, "', ", Named(loop), ")"));
}

}  // namespace temper
