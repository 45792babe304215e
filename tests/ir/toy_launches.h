// Small launches as a template would make them, each with the plain nest that says what it computes; and another way to
// run launches, to check the interpreter against.
#pragma once

#include <string>
#include <vector>

#include "base/rng.h"
#include "compiler/ir/launch.h"

namespace temper::ir {

struct Toy {
  std::string name;  // with what was chosen
  Func plain, launch;
};

// out[row] = sum of in[row, :]: each thread sums its share, then a tree in shared memory does.
struct ReductionChoice {
  int64_t rows = 4, columns = 50;
  int64_t threads = 16;       // by row; a power of two
  int64_t rows_a_group = 2;   // divides rows
  bool strided = true;        // a thread's elements lie `threads` apart, else side by side
  bool unrolled = false;      // the sum of the share
  bool spare_barrier = true;  // one that is not needed, before the result is written
};
Toy Reduction(const ReductionChoice& c);

// out[j, i] = in[i, j] by way of square tiles in shared memory.
struct TransposeChoice {
  int64_t rows = 40, columns = 70;
  int64_t tile = 16;
  int64_t rows_a_pass = 4;    // of the tile: threads are tile x rows_a_pass; divides tile
  int64_t padding = 1;        // elements behind each row of the tile
  int64_t tiles_a_group = 2;  // side by side, one after another in the same shared memory
  bool turn_early = false;    // the tile is written turned, else it is read turned
};
Toy Transpose(const TransposeChoice& c);

// c = a * b by tiles in shared memory and in registers.
struct MatmulChoice {
  int64_t m = 20, n = 24, k = 18;
  int64_t threads_x = 4, threads_y = 4;  // along columns, along rows
  int64_t rows = 2, columns = 3;         // of c, a thread
  int64_t depth = 4;                     // of k, at a time
  int64_t buffers = 1;                   // 2: the next step's operands are fetched while this one's are used
  int64_t padding = 0;                   // elements behind each row of the tile of a
  bool turned_a = false;                 // the tile of a is kept as [k, m]
  bool side_by_side = true;              // a thread's rows and columns, else they are dealt out to all in turns
  bool swapped_axes = false;             // x goes along rows, y along columns
  bool unrolled = true;                  // the loops over a thread's rows and columns
  bool depth_inside = false;             // the loop over depth is inside those
};
Toy Matmul(const MatmulChoice& c);

// Any of them, with anything chosen.
Toy DrawToy(Rng& rng);

// The toy's parameters with inputs drawn (small integers: sums are exact in any order) and outputs NaN.
std::vector<NDArray> DrawArguments(const Func& f, Rng& rng);

int CountBarriers(const Func& f);
Func WithoutBarrier(const Func& f, int which);  // counted from 0 in program order

// The launches as nests for a CPU: groups one after another, and in each the code between barriers as loops over the
// threads, in the order of their numbers or the reverse. Barriers are where such loops end. It checks nothing.
Func Serialized(const Func& f, bool reverse);

}  // namespace temper::ir
