// What the sequential operators mean, for their tensor expressions and their templates alike.
#pragma once

#include <optional>

#include "compiler/ir/te.h"
#include "compiler/ops/workload.h"

namespace temper::ops {

// Whether `a` comes before `b` where the largest elements come first, or the least. A NaN counts as the largest.
ir::Expr ComesBefore(const ir::Expr& a, const ir::Expr& b, bool largest);

// How scatter_reduce combines an update with what its place holds, by the attribute `reduction`; nullopt: unknown.
std::optional<ir::Combiner> ScatterCombiner(const Attrs& attrs);

}  // namespace temper::ops
