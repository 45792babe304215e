// What the products by NVIDIA's tensor cores share, whoever gives the instruction: a warp, or a team of warps. How
// all threads of a group copy operands to shared memory, and which thread has which sums.
#pragma once

#include "compiler/ir/launch.h"
#include "compiler/ops/templates/gpu_contraction.h"

namespace temper {

inline constexpr int64_t kLaneRows = 8, kLaneColumns = 4;  // a warp's lanes along y and x
inline constexpr int64_t kLeastAsyncCopy = 4;              // bytes
inline constexpr int64_t kMostAtOnce = 16;                 // copies of a thread through registers; of more ptxas spills

// What a group has of a product at once. Each warp, or team of them, has tm x tn matrices of the sums, of which it
// makes a part by one instruction: 16 rows for each of its warps, and 16 columns.
struct TensorTile {
  DType type;                          // of the operands
  int64_t warps;                       // of a team; 1: each by itself
  int64_t wm, wn, tm, tn, bk, stages;  // as configs have them
  int64_t split;                       // parts of the reduction, each with groups of its own

  TensorTile(DType type, int64_t warps, const Config& c);
  int64_t matrix_rows() const { return warps * ir::kMatrixSide; }
  int64_t bm() const { return wm * tm * matrix_rows(); }
  int64_t bn() const { return wn * tn * ir::kMatrixSide; }
  int64_t threads() const { return wm * wn * warps * ir::kTensorWarp; }
  int64_t sums() const { return ir::kFragmentLength * tm * tn; }  // of a thread
  int64_t bytes() const { return SizeOf(type); }                  // of an element
  int64_t depth() const { return ir::MatrixColumns(type); }       // of the reduction, in an instruction
};

// Tiles of a product, and steps of each. Its slices are the batch's, of each as many as the reduction has parts; those
// of one product follow one another.
struct TensorTiles {
  int64_t slices, rows, columns, steps;
  TensorTiles(const GemmView& v, const TensorTile& tile);
};

// Elements of the widest copies that a run divides into.
int64_t CopiedAtOnce(DType type, const Run& run);

// An operand's way to shared memory. It lies there in runs of 16 bytes along the axis that has its neighbours in
// memory.
struct TensorOperand {
  std::string stage;
  DType type;
  Run run;
  int64_t size, bk;  // of a tile: rows of A or columns of B, and steps of the reduction
  int64_t split;     // parts of the reduction
  // What a load takes at once: of so many rows so many runs. The runs of each row are turned by the row's number, so
  // that these are in different banks. 0 rows: nobody loads, and nothing is turned.
  int64_t loaded_rows = 0, loaded_runs = 1;

  TensorOperand(std::string stage, const Run& run, int64_t size, const TensorTile& tile);
  int64_t run_length() const { return ir::QuarterColumns(type); }
  int64_t rows() const { return run.along_reduction ? size : bk; }
  int64_t runs() const { return (run.along_reduction ? bk : size) / run_length(); }  // of a row
  int64_t lanes() const { return CopiedAtOnce(type, run); }                          // elements of a copy
  int64_t copies() const { return size * bk / lanes(); }                             // of all threads, in a step
  // Through a register, since it is too little for an asynchronous copy.
  bool at_once() const { return lanes() * SizeOf(type) < kLeastAsyncCopy; }
  PaddedOperand padded(int64_t tiles, int64_t steps) const { return {run, lanes(), tiles * size, split * steps * bk}; }

  // The stage: by slice, tile, step, row, run and element of the run.
  ir::Buffer Stage(ir::ProgramBuilder& b, int64_t batch, int64_t tiles, int64_t steps,
                   const OperandElement& element) const;
  // Its element of the tile's row or column `outer` and the step's k. `at`: slice, tile and step.
  ir::Expr Element(const ir::Buffer& shared, std::vector<ir::Expr> at, const ir::Expr& outer, const ir::Expr& k) const;

 private:
  ir::Expr Turn(const ir::Expr& row) const;
};

// A value under several conditions, each of them with zero for else, under one for all: what a copy takes.
ir::Expr UnderOneCondition(ir::Expr value);

// The stage `name`, in registers: by slice, tile of rows and of columns, warp, lane along y and x, matrix of the warp's
// rows and columns, and element of a lane's fragment. `factors`: of the step's k, at those places of the tile.
using FactorsAt =
    std::function<std::pair<ir::Expr, ir::Expr>(const std::vector<ir::Expr>& tile, const ir::Expr& step,
                                                const ir::Expr& row, const ir::Expr& column, const ir::Expr& k)>;
ir::Buffer TensorSums(ir::ProgramBuilder& b, const std::string& name, const TensorTile& tile, const TensorTiles& tiles,
                      const FactorsAt& factors);
// A slice's element.
ir::Expr TensorSumAt(const ir::Buffer& sums, const TensorTile& tile, const ir::Expr& slice, const ir::Expr& row,
                     const ir::Expr& column);

void BindWarps(Schedule& s, const Loop& warp, const Loop& y, const Loop& x);
// What all threads of a group bring for `stage`, whose last three dimensions are rows, their runs and elements of
// these, `lanes` at a time: neighbouring threads neighbouring runs. The loops of what a thread brings in turn, and of
// what it brings at once.
struct DealtRuns {
  Loop turn, lane;
};
DealtRuns DealRuns(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes);
void ScheduleCopies(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes);  // that are copies

// The loops of a block that takes the sums: threads have them as they have the sums.
TileLoops ScheduleTakers(Schedule& s, const TensorTile& tile, const Loop& row, const Loop& column, bool vectors);

// The stage `sums` and those that bring its factors, under the loop. Its loops: over steps, over the instructions of a
// step, and over the warp's matrices of rows, which is the first of those that an instruction replaces.
struct SumLoops {
  Loop step, depth, row;
};
SumLoops ScheduleTensorSums(Schedule& s, const std::string& sums, const std::string& a, const std::string& b,
                            const Loop& under);

}  // namespace temper
