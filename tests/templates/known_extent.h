// Kernels that leave out, for a run whose extent is known.
#pragma once

#include "compiler/schedule/lower.h"
#include "compiler/schedule/skip_behind.h"
#include "tests/templates/check_gpu.h"

namespace temper {

// The kernel of a run that has so much of the only extent that its schedule is told.
inline absl::StatusOr<Kernel> OfExtent(const Kernel& kernel, const Skipping& skipping, int64_t extent) {
  ir::Func known = skipping.func;
  const ir::Buffer parameter = known.params[known.params.size() - 2];
  known.params.erase(known.params.end() - 2);
  known.body = ir::RewriteExprs(known.body, [&](const ir::Expr& e) {
    return ir::Rewrite(e, [&](const ir::Expr& node) {
      return node->kind == ir::ExprKind::kLoad && node->buffer == parameter ? ir::Expr(extent) : ir::Expr();
    });
  });
  Kernel shorter = kernel;
  TEMPER_ASSIGN_OR_RETURN(shorter.main, Lower(known));
  return shorter;
}

}  // namespace temper
