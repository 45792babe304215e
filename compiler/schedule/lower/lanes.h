// Lanes loops become exchanges between the lanes of a warp (ir/launch.h).
#pragma once

#include "compiler/schedule/nest.h"

namespace temper::nest {

// Of a scheduled nest: each lanes loop is directly around a block that folds, by +, *, min or max,
//   to[..] = to[..] + from[.., lane]
// where both are in registers, nothing else writes `to`, and its initialisation changes nothing. No loop along x is
// around it, and its lanes are the threads along x: as many, a power of two up to a warp's. kFailedPrecondition names
// the loop and says what is not so.
absl::Status CheckLanes(const Func& f);

// What all threads run instead of such a loop, of a nest of stores, where the thread along x is `x`: each begins with
// what it holds, and exchanges sums with ever nearer lanes until all have the whole one. A condition is about what a
// thread holds alone, so all come to the exchanges.
Stmt LowerLanes(const Stmt& loop, const Var& x);

}  // namespace temper::nest
