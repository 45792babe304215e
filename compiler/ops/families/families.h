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
std::vector<OpDef> ReduceOps();
std::vector<OpDef> NormOps();
std::vector<OpDef> MovementOps();
std::vector<OpDef> ResizeOps();

}  // namespace temper::ops
