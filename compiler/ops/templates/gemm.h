// The one register-tiled contraction behind dense layers, batched matmul and convolution:
//   out[b, m, n] = epilogue(sum over r of A(b, m, r) * B(b, n, r))
// with A read as it lies or, where calls before the anchor make it, from a chunk of its rows in cache, B in panels of
// `nr` columns ([batch][columns / nr][reduction...][nr], zero-padded), a tile of mr x nr accumulators in registers, and
// the epilogue applied to them before they are stored. Where the output is too small for all threads to share, they
// share the reduction ("parts"): its parts' sums are stored and then added up.
#pragma once

#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/gemm_view.h"

namespace temper {

// A tile of accumulators is "mr" rows of "nv" vectors, and the panels of columns come in "blocks": these knobs' values,
// limits and figures, for whatever is made of such tiles.
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

// Whether the lines that a tile's rows, so many bytes apart, read at the same step push each other out of L1 before
// they are used up.
bool RowsCrowdOut(int64_t rows, int64_t stride_bytes, int64_t l1_bytes);

ConfigSpace GemmSpace(const Workload& w, const GemmView& v, const CpuTarget& t);
absl::StatusOr<Kernel> BuildGemm(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t);
CpuFootprint GemmFootprint(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t);

}  // namespace temper
