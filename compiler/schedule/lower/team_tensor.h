// Tensor loops of teams become products of matrices in shared memory (ir/launch.h).
#pragma once

#include "compiler/schedule/nest.h"

namespace temper::nest {

// One tensor loop of a lowered nest whose threads are joined, and the loops around it. It holds other loops, at last
// those over 16 columns at a time, over the elements of a fragment of sums, and over the steps k of an instruction, and
// in them
//   sums[.., c, e] = sums[.., c, e] + f32(a[..]) * f32(b[..])
// where a and b are of f16 or bf16, in shared memory. A warp's lanes are 4 threads along x and 8 along y, and its
// number is the thread along z: a team has four of them that follow one another. Warp w of a team has the rows from 16
// w on. A is at the same place for all columns and B for all rows, and both lie in tiles. All this is tried out at
// every point of a product, with the loops around at their ends. kFailedPrecondition says what is not so.
absl::StatusOr<Stmt> LowerTeamTensorLoop(const Stmt& loop, const std::vector<Stmt>& around);

}  // namespace temper::nest
