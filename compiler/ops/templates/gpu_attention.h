// One launch of attention. Each group has `bm` queries of a head. It multiplies them with all of the head's keys, a
// tile of columns after another, and leaves the scores in shared memory. Its threads reduce their rows: the largest,
// and the sum of the exponentials. Then it multiplies what softmax makes of the scores with the values, step by step.
//
// How a group multiplies is a matter of its own: by each thread's multiply-adds, or by instructions of warps.
#pragma once

#include "compiler/ops/templates/attention.h"
#include "compiler/ops/templates/gpu_contraction.h"
#include "compiler/ops/templates/gpu_template.h"

namespace temper {

// One of the two products, in tiles of rows and columns and steps of the reduction.
struct TiledHeads {
  std::string name;  // of its stages, before "_a", "_b" and so on
  GemmView view;
  Run run_a, run_b;
  bool made = false;  // A is computed; else it is copied from memory
};

// Attention with what a template asks before it lays out loops.
struct AttentionPlan {
  Attention attention;
  TiledHeads scores, shares;
  explicit AttentionPlan(const Workload& w);
};

// What a config says of how groups multiply. Its stages for a product are NAME_a and NAME_b, of shared memory, and
// NAME_acc, the sums.
class GroupProduct {
 public:
  virtual ~GroupProduct() = default;
  virtual int64_t bm() const = 0;  // rows, columns and steps of a tile
  virtual int64_t bn() const = 0;
  virtual int64_t bk() const = 0;
  virtual int64_t lanes() const = 0;  // threads along x
  virtual int64_t threads() const = 0;
  virtual int64_t run() const = 0;     // neighbouring columns that a thread has at once
  virtual int64_t spared() const = 0;  // elements between rows of scores, so that they lie in different banks
  // Elements that a copy of the operand takes at once.
  virtual int64_t CopyLanes(const Run& run) const = 0;
  virtual int64_t StagedBytes(const TiledHeads& p) const = 0;  // of shared memory
  // Adds the stages; the result's element is in registers. `a` and `b_element` are padded to whole tiles.
  virtual ProductElement Add(ir::ProgramBuilder& b, const TiledHeads& p, const OperandElement& a,
                             const OperandElement& b_element) const = 0;
  // The loops of a block that takes the sums: threads have them as they have the sums. `row` is one of a tile, or of
  // all tiles; the loops that go from tile to tile come back, outside the others.
  virtual TileLoops ScheduleResult(Schedule& s, const Loop& row, const Loop& column, bool vectors) const = 0;
  // The product's stages, under the loop of its column tiles.
  virtual void ScheduleSums(Schedule& s, const TiledHeads& p, const Loop& tile) const = 0;
  // A loop of as many iterations, or fewer, as there are threads beside those along x.
  virtual void BindRows(Schedule& s, const Loop& loop) const = 0;
};

// What every thread of a group does, in turn: neighbouring threads neighbouring iterations.
void SpreadOverThreads(Schedule& s, const GroupProduct& g, const Loop& loop);

absl::StatusOr<Kernel> BuildAttention(const Workload& w, const AttentionPlan& p, const GroupProduct& g);
int64_t SharedBytes(const AttentionPlan& p, const GroupProduct& g);
// Of both products and softmax, but for how a group multiplies.
GpuFootprint AttentionFootprint(const Workload& w, const AttentionPlan& p, const GroupProduct& g);

}  // namespace temper
