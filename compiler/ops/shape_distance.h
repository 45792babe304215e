// How alike two workloads are, for what was learned of one to be tried on the other.
#pragma once

#include "compiler/ops/workload.h"

namespace temper {

// How far the shapes of the anchors' operands and results are apart: the sum of the logarithms of their dimensions'
// ratios. Infinite for other operators, and where ranks differ.
double ShapeDistance(const Workload& a, const Workload& b);

}  // namespace temper
