// The most multiply-adds a core can do: loops of nothing else, with 8 to 28 independent accumulators.
#pragma once

namespace temper {

// GFLOP/s of one thread over about `seconds`, with the widest vectors this CPU has (AVX-512, AVX2 or SSE). One sample:
// callers interleave it with what they measure and keep the best.
double FmaCeilingGflops(double seconds);

}  // namespace temper
