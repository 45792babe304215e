// What an attribute of the sequential operators means, for their tensor expressions and their templates alike.
#pragma once

#include <optional>

#include "compiler/ir/te.h"
#include "compiler/ops/workload.h"

namespace temper::ops {

// How scatter_reduce combines an update with what its place holds, by the attribute `reduction`; nullopt: unknown.
std::optional<ir::Combiner> ScatterCombiner(const Attrs& attrs);

}  // namespace temper::ops
