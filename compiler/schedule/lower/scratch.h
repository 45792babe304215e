// Where scratch arrays begin to exist and how large they are: passes of Lower.
#pragma once

#include "compiler/schedule/nest.h"

namespace temper::nest {

// Moves every Alloc of a scheduled nest to the innermost place that covers its uses and loses nothing that is carried
// from one iteration to the next: reductions carry their element along their loops. A buffer that is used in both
// branches of an If becomes one in each.
Stmt SinkAllocs(const Stmt& root);

// Cuts every allocated buffer of a nest of stores down to the region that is used below its Alloc.
Stmt ShrinkAllocs(const Stmt& root);

}  // namespace temper::nest
