// A tile of accumulators in registers, for whatever is made of such tiles: its knobs, its schedule and its figures.
#pragma once

#include "compiler/ops/templates/cpu_footprint.h"
#include "compiler/ops/templates/cpu_template.h"
#include "compiler/schedule/config_space.h"
#include "compiler/schedule/schedule.h"

namespace temper {

// The tile is "mr" rows of "nv" vectors, and the panels of columns come in "blocks": these knobs' values,
// limits and figures.
std::vector<int64_t> TileVectors(int64_t columns, int64_t lanes);  // of "nv"
// Of "vl": vectors of fewer lanes than the target's leave fewer of them idle past the last column. Worth trying is half
// a vector where that cuts at least a twentieth of the columns computed; the knob may be left out where none is.
std::vector<int64_t> LanesOf(int64_t columns, const CpuTarget& t);
int64_t LanesOf(const Config& c, const CpuTarget& t);
void RequireRegisters(ConfigSpace& space, const CpuTarget& t);  // the tile's; part of RequireTile
void RequireTile(ConfigSpace& space, int64_t columns, const CpuTarget& t);
void DescribeTile(CpuFootprint& f, int64_t rows, int64_t vectors, int64_t lanes);
// Unrolls the two loops around a block's innermost one and vectorises that.
void UnrollTile(Schedule& s, const std::string& block);
// The reduction `acc` over its last `reductions` iterators becomes a tile of accumulators in registers, filled and
// emptied under the loop `under`, whose innermost loops are rows and columns of the tile: vectors along the columns,
// the last reduction loop unrolled `unroll` times.
void TileAccumulators(Schedule& s, const std::string& acc, const Loop& under, size_t reductions, int64_t lanes,
                      int64_t unroll);
// The same of a block that is in its place already.
void TileReduction(Schedule& s, const std::string& acc, size_t reductions, int64_t lanes, int64_t unroll);

// At the beginning of a tile, under `loop`, the lines of "out" that block `out` stores it to are fetched for that,
// while its sums are computed: other cores have read what lay there, and are slow to give it up. `row` and `vector` are
// the block's loops over the tile's rows and over the vectors of a row, which has so many columns.
void FetchForStore(Schedule& s, const std::string& out, const Loop& loop, const Loop& row, const Loop& vector,
                   int64_t columns);

inline constexpr int64_t kL1Span = 4096;  // bytes, after which an x86 CPU's L1 comes back to the same set
// Whether the lines that a tile's rows, so many bytes apart, read at the same step push each other out of L1 before
// they are used up.
bool RowsCrowdOut(int64_t rows, int64_t stride_bytes, int64_t l1_bytes);
// Accumulators and operands; one vector folds its broadcast or its load into the multiply-add.
int64_t TileRegisters(int64_t rows, int64_t vectors);

}  // namespace temper
