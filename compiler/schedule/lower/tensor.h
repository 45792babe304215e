// Tensor loops become instructions of warps (ir/launch.h).
#pragma once

#include "compiler/schedule/nest.h"

namespace temper::nest {

// The tensor loops of a lowered nest whose threads are joined. Such a loop holds other loops, at last one over the
// elements of a fragment of sums and one over sixteen steps k, and in them
//   sums[.., e] = sums[.., e] + f32(a[..]) * f32(b[..])
// where a and b are of f16 or bf16, in shared memory. Where the lane's element e is that of row i and column j, a is at
// the same place for all j, and b for all i; of both, eight that follow one another in k, or in i or j, are side by
// side and begin at a multiple of eight. All this is tried out at every point of a fragment, with the loops around at
// their ends. kFailedPrecondition says what is not so.
absl::StatusOr<Stmt> LowerTensorLoops(const Stmt& root);

}  // namespace temper::nest
