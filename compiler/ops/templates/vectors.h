// Stages laid out in vectors along memory, whose outer loops are settled.
#pragma once

#include "compiler/ops/templates/stages.h"

namespace temper {

// What a config and the target mean for every stage.
struct Lanes {
  int64_t lanes, vectors;
  bool unroll = false;  // loops over the vectors of a row, which is held in registers
  // A run of a short row is one vector, some of its lanes masked, where masks are cheap and lanes enough in use.
  bool Fills(int64_t extent) const { return extent >= lanes || (lanes >= 8 && extent > lanes / 4); }
  int64_t Length(int64_t extent) const;
};

// Everything about a reduction that decides how its loops go.
struct Reduction {
  size_t spatial = 0, reduce = 0;  // iterators
  size_t along = 0;  // innermost reduction iterators that run along memory together, if they fill a vector
};
Reduction ReductionOf(const ir::Stmt& block, const Lanes& v);

// One stage, its innermost `count` spatial iterators still to be laid out.
void ScheduleInside(Schedule& s, const std::string& name, size_t count, const Lanes& v);
// A reduction whose innermost output dimension runs along memory (pooling, sums over leading axes), if `vector`, in
// vectors of outputs: the reduction's loops go around them. Small windows are unrolled.
void VectorizeAcross(Schedule& s, const std::string& name, const Reduction& r, bool vector);

}  // namespace temper
