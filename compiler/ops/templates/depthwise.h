// Depthwise convolution in tiles of output rows, columns and channel vectors: what conv2d.depthwise and kernels that go
// on from it share.
#pragma once

#include "compiler/ops/templates/conv2d_shape.h"

namespace temper::depthwise {

// One spatial dimension, and the window of input that a tile sees.
struct Axis : TiledAxis {
  // A tile of one output takes its taps as they come; a wider one takes every input in its window.
  int64_t step() const { return tile == 1 ? dilation : 1; }
  int64_t window() const { return tile == 1 ? taps : reach() + 1; }
  ir::Expr Input(const ir::Expr& block, const ir::Expr& at) const;
  // Conditions under which there is such an input, as far as they do not always hold.
  void AddInside(const ir::Expr& block, const ir::Expr& at, std::vector<ir::Expr>* conditions) const;
  // The tap through which output `i` of the tile sees position `at` of the window, and when it does.
  ir::Expr Tap(const ir::Expr& at, const ir::Expr& i, std::vector<ir::Expr>* conditions) const;
};

// What the knobs "th", "tw" and "cv" mean: the numbers that program, schedule and footprint speak of.
struct Tile {
  Axis rows, columns;
  int64_t vectors, lanes;
  Tile(const Conv2dShape& s, const Config& c, const CpuTarget& t);
  int64_t width() const { return vectors * lanes; }
  int64_t outputs() const { return rows.tile * columns.tile * vectors; }
  bool unroll_rows(const Conv2dShape& s) const;
};

// The knobs, of which "th" has the given values, and the limits that registers and code set.
void AddTileKnobs(ConfigSpace& space, const Conv2dShape& s, const std::vector<int64_t>& heights, const CpuTarget& t);
// The accumulators `name`, in whole tiles and vectors: those past the last row, column or channel are not meant to be
// stored. `x` and the filter `f` are arguments of a call; a packed filter is (kh, kw, c).
ir::Buffer Accumulate(const std::string& name, const Conv2dShape& s, const Tile& tile, const WorkloadProgram& program,
                      int x, int f, bool packed, ir::ProgramBuilder& b);
// The accumulator of the element (n, h, w, c).
ir::Expr At(const ir::Buffer& acc, const Tile& tile, const std::vector<ir::Expr>& index);
// Vector loads for each vector multiply-add of a tile.
double LoadsPerFma(const Conv2dShape& s, const Tile& tile, const CpuTarget& t);
// How Kernel::packs packs the filter.
absl::StatusOr<ir::Func> PackFilter(const Workload::Operand& filter, const Conv2dShape& s, const CpuTarget& t);

// The loops over the elements (row, column and channel in tiles) of the block that reads the accumulators.
struct TileLoops {
  Loop column_tile, channel_tile;  // outside the tile
  Loop row, column, vector, lane;  // of the tile
};
// Splits the block's loops over columns and channels; its loop `row` is over a tile's rows already.
TileLoops SplitTile(Schedule& s, const Tile& tile, const Loop& row, const Loop& column, const Loop& channel);
// Computes `acc` in registers under `under`, the innermost loop outside the tile, and unrolls tile and window.
void ScheduleAccumulators(Schedule& s, const std::string& acc, const std::string& reader, const Loop& under,
                          const Conv2dShape& shape, const Tile& tile);
// Tiles at the ends of an output row, and of the channels, become code of their own.
void PeelEdges(Schedule& s, const Conv2dShape& shape, const Tile& tile, const TileLoops& loops);

// A depthwise convolution and a pointwise one, of which one alone reads the other: the first call of a workload and its
// anchor, AreConvolutionsInARow.
struct Pair {
  Conv2dShape depthwise, pointwise;
  int x, depthwise_filter, pointwise_filter;  // inputs of the workload
  Pair(const Workload& w, bool depthwise_first);
};
// A kernel of both. The pointwise filter is packed as (panel, channel, nr filters), zeros past the last filter.
absl::StatusOr<Kernel> KernelOf(ir::Func scheduled, const Workload& w, const Pair& p, int64_t nr, const CpuTarget& t);

}  // namespace temper::depthwise
