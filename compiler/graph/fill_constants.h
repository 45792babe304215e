// Weights for a graph that travelled without its own.
#pragma once

#include <cstdint>

#include "compiler/graph/graph.h"

namespace temper {

// Draws every constant that has no data from the seed, each by what it is for (OpDef::numbers, OpDef::terms), so that
// activations keep their scale through deep networks: timings must not be those of infinities or denormals.
void FillConstants(Graph& g, uint64_t seed);

}  // namespace temper
