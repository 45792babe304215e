// The stages of a GEMM's program, and how what comes before its tiles is laid out.
#pragma once

#include "compiler/ops/templates/gemm_tile.h"

namespace temper {

struct GemmProgram {
  ir::Func func;
  std::vector<std::string> copies;  // stages that run before the main loop
  std::string tiled = "out";        // what the tiles are stored to; "sums": of the parts, which the output adds up
};

// Stages: "a", where a chunk's rows are copied; "acc", the sums; "sums", a copy of them, where the reduction comes in
// parts or matrix tiles sum; "out". `sums` is the view whose batches are the parts.
absl::StatusOr<GemmProgram> BuildGemmProgram(const Workload& w, const GemmView& v, const GemmView& sums,
                                             const GemmTile& tile);
void ScheduleCopies(Schedule& s, const GemmProgram& program, const GemmView& v, const GemmTile& tile,
                    const CpuTarget& t);
// The loops over the output, outermost first: chunks of rows and blocks of columns, which threads share; the panels of
// a block; the tiles of a chunk's rows; the rows of a tile, its vectors and their lanes.
struct OutputLoops {
  std::vector<Loop> outer;
  Loop chunk, panel, row_tile, row, vector, lane;
};
OutputLoops TileOutput(Schedule& s, const std::string& stage, const GemmView& v, const GemmTile& tile);
// What a chunk's tiles read of A is made before the first of them, `under` the loop over chunks, and lies row by row in
// cache, where rows that collided are a line further apart.
void ScheduleRows(Schedule& s, const GemmView& v, const Loop& under, const CpuTarget& t);
// Of Kernel::packs: constant B in panels.
absl::StatusOr<std::vector<ir::Func>> GemmPacks(const Workload& w, const GemmView& v, const GemmTile& tile,
                                                const CpuTarget& t);

}  // namespace temper
