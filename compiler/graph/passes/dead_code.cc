#include "compiler/graph/passes/passes.h"

namespace temper::passes {

absl::Status RemoveDeadCode(Graph& g) {
  g.Compact();
  return absl::OkStatus();
}

}  // namespace temper::passes
