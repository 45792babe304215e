// The one register-tiled contraction behind dense layers, batched matmul and convolution:
//   out[b, m, n] = epilogue(sum over r of A(b, m, r) * B(b, n, r))
// with A read as it lies or from a chunk of its rows in cache, where calls before the anchor make it or rows collide, B
// in panels of `nr` columns ([batch][columns / nr][reduction...][nr], zero-padded), a tile of mr x nr accumulators in
// registers, and the epilogue applied to them before they are stored. Where the output is too small for all threads to
// share, they share the reduction ("parts"): its parts' sums are stored and then added up.
#pragma once

#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/gemm_view.h"

namespace temper {

ConfigSpace GemmSpace(const Workload& w, const GemmView& v, const CpuTarget& t);
absl::StatusOr<Kernel> BuildGemm(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t);
CpuFootprint GemmFootprint(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t);
// The template of what `matches`, as the contraction that `view` sees in it.
CpuTemplate GemmTemplate(std::string_view name, int version, bool (*matches)(const Workload& w),
                         GemmView (*view)(const Workload& w), std::string_view feature = {});

// The same by matrix tiles (AMX), of bytes or of bf16: the view is OfMatrixTiles, or has whole steps of theirs. The
// template matches only what fills tiles.
inline constexpr int64_t kMatrixStep = 16;  // factors of a row of A, that one product takes
GemmView OfMatrixTiles(GemmView v);
CpuTemplate MatrixTilesTemplate(std::string_view name, bool (*matches)(const Workload& w),
                                GemmView (*view)(const Workload& w), std::string_view feature);

}  // namespace temper
