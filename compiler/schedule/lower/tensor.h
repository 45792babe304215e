// Tensor loops become instructions of warps (ir/launch.h); those of teams are team_tensor.h's.
#pragma once

#include "compiler/schedule/nest.h"

namespace temper::nest {

// The tensor loops of a lowered nest whose threads are joined. Such a loop holds other loops, at last one over the
// elements of a fragment of sums and one over the steps k of an instruction, and in them
//   sums[.., e] = sums[.., e] + f32(a[..]) * f32(b[..])
// where a and b are of f16 or bf16, in shared memory, or of f32 with tf32() for f32(): no f32 is rounded that the nest
// does not round. Where the lane's element e is that of row i and column j, a is at the same place for all j, and b for
// all i. Of either, 16 bytes that follow one another in k are side by side and begin at a multiple of 16; or those that
// do so in i or j, of a 2-byte type; or, of f32, lanes load one element after another. All this is tried out at every
// point of a fragment, with the loops around at their ends. kFailedPrecondition says what is not so.
absl::StatusOr<Stmt> LowerTensorLoops(const Stmt& root);

}  // namespace temper::nest
