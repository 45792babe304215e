// The rewrites: each moves a scheduled function to an equivalent one, checks that it may, and says why where not.
//
// Errors are sticky, like a stream's: after the first refused rewrite the rest do nothing and return empty handles,
// and status() names the rewrite, its operands and the reason. So a template reads as the list of its rewrites, and
// whoever builds it checks once. Loops are named by their variable, blocks by name. Not thread-safe.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/stmt.h"

namespace temper {

using Loop = ir::Var;

namespace rewrites {
template <typename T>
struct Result;
}

class Schedule {
 public:
  explicit Schedule(ir::Func func);

  const ir::Func& func() const { return func_; }
  const absl::Status& status() const { return status_; }
  std::vector<Loop> Loops(const std::string& block);  // around the block, outermost first
  std::vector<std::string> Blocks() const;            // in program order
  int64_t Extent(const Loop& loop);

  // --- loops ---
  // [outer, inner] with inner in [0, factor); where factor does not divide, blocks below get a predicate.
  std::pair<Loop, Loop> Split(const Loop& loop, int64_t factor);
  Loop Fuse(const Loop& outer, const Loop& inner);  // inner directly and solely inside outer
  // A loop of one iteration directly around a block: what stands in no loop can be bound by it.
  Loop AddLoop(const std::string& block);
  // The named loops, all on one path with nothing but loops between the first and the last of them, in the new order;
  // the places they take are the ones they had.
  void Reorder(const std::vector<Loop>& order);
  void Unroll(const Loop& loop);
  // A vectorised loop is innermost on its path but for unrolled ones around it. Over a reduction iterator it is a
  // horizontal reduction.
  void Vectorize(const Loop& loop);
  // Code for a CPU makes the loop's nest an instruction of its matrix tiles: see codegen/llvm/emit_tiles.cc for what it
  // has to be.
  void TensorizeForTiles(const Loop& loop);
  // Lower makes the loop's nest instructions of warps, whose lanes are the threads along x and y: see lower/tensor.h
  // for what it has to be.
  void Tensorize(const Loop& loop);
  // ... of teams of four warps, which the threads along z number: see lower/team_tensor.h.
  void TensorizeForTeams(const Loop& loop);
  // A reduction of what the threads along x hold in registers, which Lower makes exchanges between lanes of a warp: see
  // lower/lanes.h for what it has to be. All of them have the result then, in registers too.
  void ReduceAcrossLanes(const Loop& loop);
  // Binds no reduction iterator, nothing else parallel around or below it, and its iterations write different elements,
  // but for scratch that is used below the loop alone.
  void Parallel(const Loop& loop);
  // The loop becomes an axis of the launch: `kind` is one of the group or thread kinds. The same holds as for Parallel,
  // but that group loops hold thread loops and different axes hold one another, and that scratch of a group's own is
  // shared or in registers, scratch of a thread's own in registers. Nests of threads follow one another in a group as
  // loops do, and may differ in their extents: Lower places the barriers. A nest in no thread loop is one thread's; but
  // where it makes registers, all threads run it, and each has its own.
  void Bind(const Loop& loop, ir::ForKind kind);
  // For each block below with predicate (e < n): the smallest subtree that `loop` encloses becomes
  // if (the predicate holds for every inner iteration) { full } else { tail }, where full has no predicate and in
  // tail the inner loop's extent shrinks to what is left (exactly, when e = base + inner and base is a multiple of
  // inner's extent). One call deals with all such predicates below. A vectorised loop keeps its extent, and the
  // predicate of its last, partial vector. Scratch is computed only as far as the tail reads it. No group or thread
  // loop is below. Loops and blocks of tails are copies (blocks are named NAME_tail); a later Unroll, Vectorize,
  // Parallel, Bind or Partition of a loop is also one of its copies.
  void Partition(const Loop& loop);
  // The first `first` iterations of the loop, the last `last` and those between become three loops, one after another,
  // each with its own of the scratch that is used below alone; returns [first, middle, last], null where there is none.
  // Unrolled, they decide the conditions that hold between them. Copied blocks are named NAME_part; a later Unroll,
  // Vectorize, Parallel, Bind, Peel or Partition of a loop below is also one of its copies.
  std::array<Loop, 3> Peel(const Loop& loop, int64_t first, int64_t last);

  // --- blocks ---
  void Inline(const std::string& block);  // a non-reduction block into all its readers
  // Moves the producer (consumer) `block` under `loop`, computing just the region that its readers (writers) below
  // `loop` need (made); loops over the region are new, one an iterator: the buffer's dimensions, the last innermost,
  // then the reductions inside them. Scratch shrinks to what is live below its loop when the function is lowered.
  void ComputeAt(const std::string& block, const Loop& loop);
  void ReverseComputeAt(const std::string& block, const Loop& loop);
  // A new block `NAME` that copies what `block` reads from `buffer` (writes) through a new buffer in `scope`; returns
  // its name. The copy is placed before (after) `block`'s nest; move it with (Reverse)ComputeAt.
  std::string CacheRead(const std::string& block, const std::string& buffer, ir::Scope scope);
  std::string CacheWrite(const std::string& block, ir::Scope scope);
  // The intermediate buffer that `block` writes moves to `scope`.
  void SetScope(const std::string& block, ir::Scope scope);
  // The initialisation of a reduction becomes a block of its own, directly before `loop`; returns its name. `loop` is
  // around all reduction loops of the block. The loops between are copied.
  std::string DecomposeReduction(const std::string& block, const Loop& loop);
  // The reduction over `loop` becomes partial results kept per iteration of `loop` (a new innermost dimension of a
  // new buffer), and a second reduction over them in a new block after the outermost reduction loop; returns
  // [partial block, final block]. The partial block keeps its loops, `loop` among them in its old place; the final one
  // keeps the name of `block`.
  std::pair<std::string, std::string> Rfactor(const std::string& block, const Loop& loop);
  // The intermediate buffer `block` writes gets the shape and index that `map` gives: reads and writes follow.
  void TransformLayout(const std::string& block, Shape shape,
                       const std::function<std::vector<ir::Expr>(const std::vector<ir::Expr>&)>& map);
  // Scratch that `block` makes in each iteration of the serial `loop`, for what comes after it there, is made in the
  // iteration before, in one of two versions: for the first iteration ahead of the loop, for the next one at the end of
  // the body. What makes scratch for the block alone, registers say, runs at the start of the body, so that what it
  // asks of memory is on its way meanwhile. A dimension of the scratch is the iteration. Copied blocks are named
  // NAME_first.
  void DoubleBuffer(const std::string& block, const Loop& loop);
  // Scratch in shared memory that the blocks, elementwise copies of parameters or of zeros, make in each iteration of
  // the serial `loop`, for what comes after them there, is copied asynchronously `depth` - 1 iterations ahead, into one
  // of `depth` versions: ahead of the loop for its first iterations, at the start of the body for later ones. A
  // dimension of the scratch is the iteration. Copied blocks are named NAME_first.
  void Pipeline(const std::vector<std::string>& blocks, const Loop& loop, int depth);
  // Fetches, at each iteration of `loop`, what `block` will read of `buffer` there `distance` iterations of `ahead`
  // later, which is a loop around `loop` or, by default, `loop` itself: one element for each iteration of the loops
  // `each` below it, with the others at their first.
  void Prefetch(const std::string& block, const std::string& buffer, const Loop& loop, int64_t distance,
                const Loop& ahead = nullptr, const std::vector<Loop>& each = {});
  // Fetches, at each iteration of `loop`, what `block` would read of `buffer` if the loops of `at` stood there: values
  // of loops that are around `loop`, or itself. It may lie past the buffer's end. If `buffer` is what the block writes,
  // it is fetched to be written: no other core keeps a copy.
  void PrefetchAt(const std::string& block, const std::string& buffer, const Loop& loop,
                  const std::vector<ir::VarBinding>& at, const std::vector<Loop>& each = {});

 private:
  bool Take(absl::StatusOr<ir::Func> result, const std::string& what);
  template <typename T>
  T TakeValue(absl::StatusOr<rewrites::Result<T>> result, const std::string& what);
  std::vector<Loop> WithCopies(const Loop& loop) const;
  void Annotate(const char* rewrite, const Loop& loop, ir::ForKind kind);

  ir::Func func_;
  absl::Status status_;
  std::vector<std::pair<Loop, Loop>> copies_;  // by Partition and Peel: a loop and one copied from it
};

}  // namespace temper
