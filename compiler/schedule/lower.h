// From a scheduled function to one that code generators and the interpreter's lowered stage take.
#pragma once

#include "compiler/ir/stmt.h"

namespace temper {

// Blocks become Stores under their predicates (init under "first along every reduction loop"), indices are simplified,
// allocations sink to the innermost place that covers their uses and shrink to what is used there, conditions leave the
// loops that do not change them, loops of one iteration vanish. Group and thread loops become launches, with barriers
// where threads need what others made (threads.h). Verified.
// After it, unrolled loops are still loops (codegen expands them).
absl::StatusOr<ir::Func> Lower(const ir::Func& scheduled);

}  // namespace temper
