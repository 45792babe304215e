// A workload for people, short enough for a row of a table.
#pragma once

#include <string>

#include "compiler/ops/workload.h"

namespace temper {

// "conv2d+add+relu 1x64x56x56 * 64x64x3x3 -> 1x64x56x56": the operators, the anchor's operands, the result.
std::string Describe(const Workload& w);

}  // namespace temper
