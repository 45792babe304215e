#pragma once

#include "compiler/graph/graph.h"

namespace temper::testing {

// A graph of `nodes` steps over values of rank 1 to 5: elementwise chains and diamonds, broadcasts, Concat, Softmax,
// Reduce, Slice, Reshape, Transpose and Pad on any axis, dense layers, convolutions, pooling, norms written out.
Graph RandomGraph(uint64_t seed, int nodes);

}  // namespace temper::testing
