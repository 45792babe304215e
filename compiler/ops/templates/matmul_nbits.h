// How the register-tiled contraction (gemm.h) keeps a B of few bits, and reads it.
#pragma once

#include "compiler/ops/templates/gemm_tile.h"

namespace temper::nbits {

// The inputs that are packed: numbers as bytes [1][panels][steps / per_byte][nr], of two numbers the earlier step's in
// the low bits; for rows of bytes as i32 of four such bytes, [1][panels][steps / per_byte / 4][nr], the low bits those
// of four steps and the high bits those of the next four; scales and offsets as [1][panels][blocks][nr]. Past the last
// column all are zero.
struct Packing {
  std::vector<Shape> shapes;  // by input of the workload; empty: as it is
  std::vector<DType> types;
};
Packing PackingOf(const Workload& w, const GemmView& v, const GemmTile& tile);
absl::StatusOr<std::vector<ir::Func>> Packs(const Workload& w, const GemmView& v, const GemmTile& tile,
                                            const CpuTarget& t);
// The float at a step of the reduction in a column of a panel.
ir::Expr Element(const WorkloadProgram& program, const GemmView& v, const ir::Expr& panel, const ir::Expr& step,
                 const ir::Expr& column);
// Lays out the stage `block`, which makes a panel's floats under `panel`.
void ScheduleToCache(Schedule& s, const std::string& block, const Loop& panel, const GemmView& v, const GemmTile& tile);
// The stage "acc": the sum over runs of (a run's sum of A * number) * scale + (its sum of A) * offset; times the scale
// of A's block, if it has one. `a`: its factors.
ir::Buffer SumOfBlocks(ir::ProgramBuilder& b, const WorkloadProgram& program, const GemmView& v, const GemmTile& tile,
                       const GemmView::AElement& a);
// Lays out it and what it reads: sums of A under `chunk`, tiles in registers under `row_tile`.
void ScheduleBlocks(Schedule& s, const GemmView& v, const GemmTile& tile, const Loop& chunk, const Loop& row_tile);

}  // namespace temper::nbits
