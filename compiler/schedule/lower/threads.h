// From marked group and thread loops to launches (see ir/launch.h): what Lower does for devices alone.
#pragma once

#include "compiler/schedule/nest.h"

namespace temper::nest {

// Of a scheduled nest: no two threads or groups write the same elements, no two threads read the same element of a
// register array that only one of them can have, and lanes loops are as lanes.h has them. kFailedPrecondition names the
// loop.
absl::Status CheckThreads(const Func& f);

// Of a nest of stores, in each group: the thread loops come together outermost, with as many threads as the largest
// nest has. Smaller nests run under a condition on the thread, and what is in no thread loop is run by thread 0, but
// what writes registers by all threads, each its own. Lanes loops become exchanges (lanes.h). A
// barrier stands before what touches an array that another thread may have touched, as far as whole arrays tell, or
// versions of them that steps of a loop take in turn.
// Shared arrays move out of the thread loops, and register arrays shrink to a thread's part. Without group loops it is
// the same nest.
Stmt JoinThreads(const Stmt& root);

}  // namespace temper::nest
