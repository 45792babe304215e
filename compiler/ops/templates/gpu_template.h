// Templates for GPUs: they see groups of threads that share memory, and no other kind of device.
#pragma once

#include "compiler/ops/template.h"
#include "compiler/ops/templates/gpu_footprint.h"
#include "compiler/schedule/schedule.h"

namespace temper {

// A TemplateDef over GpuTarget.
struct GpuTemplate {
  std::string_view name;
  int version;
  std::function<bool(const Workload&)> matches;
  std::function<ConfigSpace(const Workload&, const GpuTarget&)> space;
  std::function<absl::StatusOr<Kernel>(const Workload&, const Config&, const GpuTarget&)> build;
  std::function<GpuFootprint(const Workload&, const Config&, const GpuTarget&)> footprint;
  std::function<bool(const GpuTarget&)> runs_on = [](const GpuTarget&) { return true; };
  // Asked about what matches: whether the target has room for the least that a group needs.
  std::function<bool(const Workload&, const GpuTarget&)> fits = [](const Workload&, const GpuTarget&) { return true; };
};
// Matches nothing on another kind of device, whoever generates its code on this one. What it builds keeps the target's
// limits of threads and shared memory, and has its warps.
TemplateDef ForGpu(GpuTemplate t);

GpuTemplate GpuConv();       // gpu_conv.cc: convolutions as products of matrices
GpuTemplate GpuDepthwise();  // gpu_depthwise.cc: each channel by itself
GpuTemplate GpuGemm();       // gpu_gemm.cc: dense and batched matmul
GpuTemplate GpuMma();        // gpu_mma.cc: matmul and convolutions of f16, bf16 and TF32 by NVIDIA's tensor cores
GpuTemplate GpuReduce();     // gpu_reduce.cc: rows that threads reduce together
GpuTemplate GpuPixels();     // gpu_pixels.cc: sums and means of channels over images
GpuTemplate GpuWinograd();   // gpu_winograd.cc: fewer multiplications for 3x3 filters, in three launches
GpuTemplate GpuWgmma();      // gpu_wgmma.cc: those of f16 and bf16 by teams of four warps, which sm_90 has
GpuTemplate GpuAttention();  // gpu_attention_threads.cc: two products and softmax between them, in one launch
GpuTemplate GpuDefault();    // gpu_default.cc: everything, a few elements of the result a thread

// gpu_attention_mma.cc: two products of f16 or bf16 and softmax between them, by NVIDIA's tensor cores
GpuTemplate GpuAttentionMma();

inline constexpr int64_t kMostOfAxis = 65535;  // groups of a launch along y and z
// Of "threads", the threads of a group: powers of two that the target can run.
std::vector<int64_t> GroupThreads(const GpuTarget& t);
// Neighbouring threads take neighbouring iterations of `loop`, and go on, `each` times, where all of their group are
// through: [group, thread, step], bound but for the last, which is null if `each` is 1.
struct Dealt {
  Loop group, thread, step;
  Loop innermost() const { return step != nullptr ? step : thread; }
};
Dealt Deal(Schedule& s, const Loop& loop, int64_t threads, int64_t each);

// What a thread of an elementwise launch has: runs of `vector` neighbours along memory, `each` of them.
struct Share {
  int64_t threads = 1;  // of a group
  int64_t each = 1;
  int64_t vector = 1;
};
// A launch that makes the last of the stages, element by element, and the others, which are read at the very element
// that is written, beside it in registers.
void ScheduleElements(Schedule& s, const std::vector<std::string>& stages, const Share& share);

}  // namespace temper
