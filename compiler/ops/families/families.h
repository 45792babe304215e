// The operator families; registry.cc lists them in order.
#pragma once

#include <vector>

#include "compiler/ops/op.h"

namespace temper::ops {

std::vector<OpDef> UnaryOps();
std::vector<OpDef> BinaryOps();
std::vector<OpDef> ConvOps();
std::vector<OpDef> MatmulOps();
std::vector<OpDef> PoolOps();
// Of arg_max and arg_min: a NaN counts as an infinity of the sign that is looked for, so that it wins over all numbers;
// of equal ones the first wins, or the last. (NumPy takes a NaN before an infinity; ONNX does not say.)
std::vector<OpDef> ReduceOps();
std::vector<OpDef> NormOps();
std::vector<OpDef> MovementOps();
std::vector<OpDef> ResizeOps();
std::vector<OpDef> SequentialOps();
std::vector<OpDef> BoxesOps();

}  // namespace temper::ops
