// The one tiled contraction behind the GPUs' matmuls and convolutions. Each group has a tile of bm rows and bn columns,
// of which each thread has tm x tn results in its registers. Step by step, bk of the reduction at a time, all threads
// bring their group's rows of A and columns of B by way of their registers to shared memory, zeros where there are
// none, and multiply from there. Only what is stored at the end asks whether it is inside. With two stages the next
// step's elements are on their way while this one's are multiplied.
//
// Where tiles are too few for the device, the reduction is split into parts, each with groups of its own: they leave
// slices of the result in memory, and a second launch adds them up.
//
// A thread's rows are tm / fm runs of fm, a run of each thread in turn, and its columns likewise: neighbouring threads
// read neighbouring banks and write neighbouring elements. Constant B is packed when the package is made, zeros past
// its end.
//
// Operands of f16 and bf16 become f32 on the way to shared memory, and sums are f32: so it serves devices without
// tensor cores, and products that are too small for these.
#pragma once

#include "compiler/ops/templates/gemm_view.h"
#include "compiler/ops/templates/gpu_template.h"

namespace temper {

// Convolutions as products of matrices that are never built (gpu_conv.cc). Rows are the output's pixels, columns its
// channels, and the reduction goes over the filter's taps and the input's channels, which are neighbours in memory.
bool IsGpuConv(const Workload& w, DType element);
GemmView GpuConvView(const Workload& w);

inline constexpr DType kGpuGemmTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
// Whether the view's batch fits a grid.
bool GpuGemmFits(const GemmView& v);
ConfigSpace GpuGemmSpace(const Workload& w, const GemmView& v, const GpuTarget& t);
absl::StatusOr<Kernel> BuildGpuGemm(const Workload& w, const GemmView& v, const Config& c, const GpuTarget& t);
GpuFootprint GpuGemmFootprint(const Workload& w, const GemmView& v, const Config& c, const GpuTarget& t);

// For templates that put launches of their own before and after the contraction. Before it is what the view's `prepare`
// adds. The contraction's last stage is "partial", of batch * split slices, rows and columns: its result, in memory.
// The slices of a product of the batch follow one another, and their sum is the product.
std::vector<Shape> GpuGemmPacked(const Workload& w, const GemmView& v, const Config& c);  // as WorkloadProgram takes it
ir::Buffer AddGpuGemm(const Workload& w, const GemmView& v, const Config& c, WorkloadProgram& program,
                      ir::ProgramBuilder& b);
void ScheduleGpuGemm(Schedule& s, const Workload& w, const GemmView& v, const Config& c);  // its launch
// The contraction's knobs and what they require, after knobs by which the view differs, but not in how operands lie.
using ViewOfConfig = std::function<const GemmView&(const Config& c)>;
void AddGpuGemmKnobs(ConfigSpace& space, const Workload& w, const std::vector<int64_t>& splits, const GpuTarget& t,
                     const ViewOfConfig& view);
// Parts that the reduction may be split into, none of them shorter than that; and the most groups that they make.
std::vector<int64_t> SplitsOf(const GemmView& v, int64_t shortest, const GpuTarget& t);
int64_t MostSplitGroups(const GpuTarget& t);
// The product of which each batch element has so many slices; who asks for an element adds them up, in the stage
// "total". The launch that does: the stages "total" and "out", in groups of up to so many threads.
ProductElement SumOfSlices(ir::ProgramBuilder& b, const GemmView& v, int64_t split, const ir::Buffer& slices);
void ScheduleSumOfSlices(Schedule& s, const GemmView& v, int64_t most_threads);
// Of the contraction's launch without what it writes. All rows of A have `a_bytes` in memory at most.
GpuFootprint GpuProductFootprint(const Workload& w, const GemmView& v, const Config& c, double a_bytes,
                                 const GpuTarget& t);

}  // namespace temper
