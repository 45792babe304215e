// Launches: how loop nests run on devices whose threads come in groups (GPUs; OpenCL devices of any kind).
//
// A lowered function has no group and thread loops, or it is a sequence of launches that run one after another, with
// allocations of memory around them and nothing else. A launch is, from the outside in,
//   group loops     one to three, directly inside one another, each axis once
//   shared arrays   their allocations, if any
//   thread loops    one to three, directly inside one another, each axis once
//   thread code     what each thread runs: serial, unrolled and vectorised loops, Ifs, stores, prefetches, allocations
//                   of register arrays, barriers
// The extents of its loops are its geometry; axes without a loop have extent 1. Group or thread (x, y, z) has the
// number x + X*(y + Y*z), whatever the order of the loops. Threads w*i to w*i + w-1 are warp i, where w is
// Func::warp_width; warps do not reach from one group into another.
//
// Memory (parameters, arrays allocated around launches) is seen by all groups, and a launch sees what earlier ones
// wrote. Groups run in no order: what one group writes, no other group touches in the same launch. A shared array is
// made for each group anew, with undefined contents, and starts at a multiple of kSharedAlignment bytes. A register
// array is a thread's own, and its indices use no variable of a thread loop.
//
// At a barrier a thread waits for all threads of its group, and sees what they wrote before. Between two barriers
// threads run in no order: what one writes, no other touches. All threads of a group come to the same barriers, equally
// often: the Ifs around a barrier load nothing and use no variable of a thread loop, and no vectorised loop is around
// it.
//
// Some instructions the lanes of a warp of 32 run together: lane l is its thread number l. All come to the same ones,
// as threads come to barriers, but wait for no other warp. They are about matrices of 16 rows, which for operands have
// 32 bytes: 16 columns of a 2-byte type, 8 of f32. Sums are f32, in 16 columns. A matrix is four quarters, and of each
// a lane has two elements, or one where there are 8 columns: its fragment of the matrix is eight, or four, elements of
// one of its register arrays, from a multiple of so many on. Elements 2q and 2q + 1 of lane l are of the quarter q its
// elements (l / 4, 2 * (l % 4)) and the one to the right; where it has one, q is (l / 4, l % 4).
//   load matrix      four quarters from shared memory. Lane l names the first of the 16 bytes of row l % 8 of quarter
//                    l / 8, which are neighbours.
//   load transposed  ... of column l % 8 of quarter l / 8, of a 2-byte type.
//   multiply         sums(i, j) += a(i, k) * b(j, k), over all k. Both a and b are f16, or bf16, or f32, of which it
//                    drops what TF32 does not hold. Quarters of sums and a follow one another down and then to the
//                    right, those of b to the right and then down.
// Another one is about an element of a register array, of any type:
//   exchange         lane l gets what lane l ^ m has, where 0 < m < 32.
//
// Some the 128 threads of a team run together: the warps 4i to 4i + 3. They add products of matrices in shared memory,
// of f16 or of bf16, to sums in f32. A matrix lies there in tiles of eight rows of 16 bytes, one behind the other, the
// first at a multiple of 16 bytes. A tile's row is eight steps of a row of A, or of a column of B; of a turned matrix
// it is eight of these at one step. From tile to tile it is always as far along the steps, and along rows or columns.
//   begin products   of the sums in an array: from here on they are being made.
//   add product      sums(i, j) += a(i, k) * b(j, k), over 16 steps k, for 64 rows i and n columns j, a multiple of 16
//                    up to 256. All threads of the team name the same matrices. The team's warp w has the rows from
//                    16 w on: of each 16 columns in turn a fragment of sums.
//   end products     of the same array: its sums are made, and their matrices read.
// Between the first and the last stand products of these sums alone, and unrolled loops of them. What threads of the
// group stored in shared memory, products see behind a barrier.
//
// An asynchronous store to shared memory, of an element of memory or of zero, is on its way until its thread has waited
// for it: nobody reads or writes that element meanwhile, and others see it behind the barrier after that. To commit
// makes a group of the thread's copies since the last one; to wait ends when at most so many of its groups, the latest,
// are on their way.
//
// In a scheduled nest group and thread loops are marks like that of a parallel loop: the nest keeps its order, threads
// of one loop nest are done before what follows it, and there are no barriers.
#pragma once

#include <array>

#include "base/division.h"
#include "compiler/ir/stmt.h"

namespace temper::ir {

// The most threads of a group on any device. Targets have smaller limits, and limits for shared memory, of their own.
inline constexpr int64_t kMaxGroupThreads = 1024;
inline constexpr int64_t kSharedAlignment = 128;
// Bytes of shared memory that an array of so many takes.
constexpr int64_t SharedAligned(int64_t bytes) { return RoundUp(bytes, kSharedAlignment); }

inline constexpr int64_t kTensorWarp = 32;     // lanes of a warp that has instructions of its own
inline constexpr int64_t kMatrixSide = 16;     // rows of the matrices that they are about, columns of sums
inline constexpr int64_t kFragmentLength = 8;  // a lane's elements of sums
inline constexpr int64_t kQuarterBytes = 16;   // of a row of an operand's quarter
inline constexpr int64_t kTeamWarps = 4;       // of a team
inline constexpr int64_t kTeamThreads = kTeamWarps * kTensorWarp;
inline constexpr int64_t kTeamRows = kTeamWarps * kMatrixSide;  // of its products' sums
inline constexpr int64_t kTeamColumns = 256, kTeamSteps = 16;   // of them the most, and of the reduction
inline constexpr int64_t kTileSide = 8;                         // of tiles in shared memory
inline constexpr int64_t kMostTileBytes = int64_t{1} << 18;     // that lie between two of them
bool IsTensorType(DType dtype);                                 // of operands
// Of operands: elements of a row of a quarter, of a row of the matrix, of a lane's fragment.
inline int64_t QuarterColumns(DType operand) { return kQuarterBytes / SizeOf(operand); }
inline int64_t MatrixColumns(DType operand) { return 2 * QuarterColumns(operand); }
inline int64_t FragmentLength(DType operand) { return QuarterColumns(operand); }
struct MatrixPlace {
  int64_t row, column;
};
// Of a lane's element, where quarters have so many columns.
inline MatrixPlace FragmentPlace(int64_t lane, int64_t element, int64_t quarter_columns, bool of_b) {
  const int64_t own = quarter_columns / 4, quarter = element / own;
  const int64_t down = of_b ? quarter / 2 : quarter % 2, right = of_b ? quarter % 2 : quarter / 2;
  return {lane / 4 + 8 * down, own * (lane % 4) + element % own + quarter_columns * right};
}
inline MatrixPlace SumPlace(int64_t lane, int64_t element) { return FragmentPlace(lane, element, 8, false); }

// Of a shared array, up to where the next may start.
int64_t SharedBytes(const Buffer& array);

struct Launch {
  std::array<int64_t, 3> groups = {1, 1, 1}, threads = {1, 1, 1};  // by axis: x, y, z
  std::vector<Stmt> group_loops, thread_loops;                     // outermost first
  std::vector<Buffer> shared;
  Stmt body;  // thread code

  int64_t num_groups() const { return groups[0] * groups[1] * groups[2]; }
  int64_t num_threads() const { return threads[0] * threads[1] * threads[2]; }  // of a group
  int64_t shared_bytes() const;                                                 // the arrays one after another
};

// What warps asked of shared memory. A request is what the lanes of a warp ask with one load or store, or those of its
// half, quarter... where all of them ask more than 128 bytes (vectors). It takes a pass through the 32 banks of 4 bytes
// for each of the different words that the busiest bank is asked for; passes beyond the first are conflicts.
struct SharedTraffic {
  int64_t requests = 0, conflicts = 0;
};

// Whether the function holds anything that only a launch may: group or thread loops, barriers, shared arrays.
bool HasLaunches(const Func& f);
// The launches of a lowered function, in their order; none of a function without. Errors: kInvalidArgument names the
// statement that is where a launch has no place for it.
absl::StatusOr<std::vector<Launch>> LaunchesOf(const Func& f);
// All threads of a group come to the same barriers, those of a warp or team to the same instructions of it; and what
// stands where products are made.
absl::Status CheckBarriers(const Func& f, const Launch& launch);

}  // namespace temper::ir
