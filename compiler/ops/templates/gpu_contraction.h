// What the GPUs' tiled contractions share: how operands lie in memory, how tiles pad them, and how tiles of the result
// become groups.
#pragma once

#include "compiler/ops/templates/gemm_view.h"
#include "compiler/ops/templates/gpu_template.h"

namespace temper {

DType ElementOf(const Workload& w);  // of operands and result

// Along which of an operand's two axes its elements are neighbours in memory, and how many of them at least are, in
// runs that begin at a multiple of their length; 0: in runs of any length.
struct Run {
  bool along_reduction = true;
  int64_t length = 1;
};
Run RunOfA(const Workload& w, const GemmView& v);
Run RunOfB(const Workload& w, const GemmView& v);  // constant B is packed, along columns

bool HasConstantB(const Workload& w, const GemmView& v);
// For each operand the shape in which it arrives, as WorkloadProgram takes them: constant B by batch, padded step of
// the reduction and padded column.
std::vector<Shape> PackedShapes(const Workload& w, const GemmView& v, int64_t padded_length, int64_t padded_columns);
// Kernel::packs for these shapes: zeros past B's ends.
absl::StatusOr<std::vector<ir::Func>> PackB(const Workload& w, const GemmView& v, const std::vector<Shape>& packed);

// An operand of whole tiles and steps.
struct PaddedOperand {
  Run run;
  int64_t lanes;   // of a copy, along the run: all of its elements are inside, or none
  int64_t outers;  // rows of A, columns of B
  int64_t length;  // of the reduction
};
// Elements by batch, row or column, and step of the reduction: zeros past the ends.
using OperandElement = std::function<ir::Expr(const ir::Expr& batch, const ir::Expr& outer, const ir::Expr& k)>;
OperandElement PaddedA(WorkloadProgram& program, ir::ProgramBuilder& b, const GemmView& v, const PaddedOperand& p);
// Constant B is read as PackedShapes says.
OperandElement PaddedB(const Workload& w, const WorkloadProgram& program, const GemmView& v, const PaddedOperand& p);

// Groups that each bring bm rows of A and bn columns of B, all steps of the reduction.
struct GroupTiles {
  int64_t products, row_tiles, column_tiles, bm, bn, element_bytes;
};
// The traffic of memory and of the cache without what is written. All rows of A have `a_bytes` in memory at most. `f`
// has the groups, the reduction, and what groups need.
void AddOperandTraffic(GpuFootprint& f, const GemmView& v, const GroupTiles& g, double a_bytes, const GpuTarget& t);

// Whether threads can store `lanes` neighbouring columns of the block's results at once.
bool StoresRuns(const Schedule& s, const std::string& block, const std::vector<GemmAxis>& axes, int64_t columns,
                int64_t lanes);
// The loop in parts, outermost first: each factor in turn is cut off inside what is left. Where the innermost ones
// divide, no condition depends on them.
std::vector<Loop> Cut(Schedule& s, Loop loop, const std::vector<int64_t>& factors);
// The loops that go from tile to tile of a product.
struct TileLoops {
  Loop row, column;
};
void BindGroups(Schedule& s, const std::vector<Loop>& batches, const Loop& row, const Loop& column);

}  // namespace temper
