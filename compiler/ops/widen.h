// Operators on types that have no arithmetic (base/dtype.h): what an operator computes with is widened before it, and
// its result is rounded after it, in its tensor expression and in its reference alike.
#pragma once

#include "compiler/ops/op.h"

namespace temper::ops {

// `op` for every type of the table. Its own compute and reference see types with arithmetic alone, or, if it moves
// elements, types of whole bytes alone. infer refuses types that are not computed with at all.
OpDef Widened(OpDef op);

}  // namespace temper::ops
