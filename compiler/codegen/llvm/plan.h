// What is decided about a function before any instruction is written: where its scratch memory lies.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/status.h"
#include "compiler/ir/stmt.h"

namespace temper {

struct Placement {
  enum Kind { kWorkspace, kThreadWorkspace, kStack } kind;
  int64_t offset = 0;  // bytes, of the first two
};

struct FunctionPlan {
  std::map<const ir::BufferNode*, Placement> placements;  // of Allocs of scope memory
  std::vector<ir::Buffer> workspace_buffers;              // those in the shared workspace, in program order
  int64_t workspace_bytes = 0;
  int64_t thread_workspace_bytes = 0;
};

// Scratch outside parallel loops is shared and lies in the workspace; inside, small arrays go on the stack and others
// to the thread's own part. No two arrays share bytes, so all of them are free of aliases.
FunctionPlan PlanFunction(const ir::Func& func);

// What the body of a parallel or outlined loop needs of the world around it.
struct Captures {
  std::vector<ir::Buffer> buffers;         // loaded, stored or prefetched, allocated outside; in order of first use
  std::vector<ir::Buffer> thread_buffers;  // allocated inside, placed in the thread's workspace (or the shared one)
  std::vector<ir::Var> vars;               // used but not bound inside
};
absl::StatusOr<Captures> CapturesOf(const ir::Stmt& loop, const FunctionPlan& plan);

// [0, extent) cut into pieces whose lengths are powers of two, none above `cap`: the largest first.
struct VectorPiece {
  int64_t base, length;
};
std::vector<VectorPiece> PowerOfTwoPieces(int64_t extent, int64_t cap);

}  // namespace temper
