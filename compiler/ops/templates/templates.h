// The built-in templates, all of them for CPUs, one function a file, and what they share.
#pragma once

#include <optional>

#include "base/division.h"
#include "compiler/ops/templates/cpu_template.h"
#include "compiler/schedule/schedule.h"

namespace temper {

CpuTemplate Conv2dDirect();       // conv2d.cc: filters of one pixel, a GEMM over channels-last rows
CpuTemplate Conv2dRows();         // conv2d_rows.cc: larger filters, tiles within a row of the image
CpuTemplate Conv2dWinograd();     // winograd.cc: fewer multiplications for 3x3 filters
CpuTemplate DepthwiseConv2d();    // depthwise.cc: vectorised over channels
CpuTemplate SeparableConv2d();    // separable.cc: depthwise, then pointwise, through a strip of rows in cache
CpuTemplate ExpandedConv2d();     // expanded.cc: pointwise, then depthwise, a panel of channels of a strip in cache
CpuTemplate MatmulPacked();       // matmul.cc: dense and batched
CpuTemplate Conv2dInteger();      // conv2d_windows.cc: of integers, summed in i32
CpuTemplate MatmulInteger();      // matmul.cc: the same
CpuTemplate Conv2dTiles();        // conv2d_windows.cc: of bytes, by matrix tiles
CpuTemplate MatmulTiles();        // matmul.cc: the same
CpuTemplate Conv2dBf16();         // conv2d_windows.cc: of f32 rounded to bf16
CpuTemplate MatmulBf16();         // matmul.cc: the same
CpuTemplate Conv2dTilesBf16();    // conv2d_windows.cc: of f32 rounded to bf16, by matrix tiles
CpuTemplate MatmulTilesBf16();    // matmul.cc: the same
CpuTemplate MatmulNBits();        // matmul_nbits.cc: by a matrix of few bits, a number at a time in registers
CpuTemplate MatmulNBitsI8();      // matmul_nbits.cc: the same, of rows of bytes
CpuTemplate MatmulNBitsCached();  // matmul_nbits.cc: the same, a panel at a time in cache
CpuTemplate AttentionRows();      // attention_rows.cc: both products and softmax, some rows at a time in cache
CpuTemplate ReducePixels();       // reduce_pixels.cc: sums and means over large images
CpuTemplate SeparablePool();      // pool.cc: pooling, along rows and then along columns
CpuTemplate ScanTemplate();       // scan.cc: running sums
CpuTemplate CompactTemplate();    // compact.cc: lines of a length that data has, one behind another
CpuTemplate ScatterTemplate();    // scatter.cc: updates of places, one after another
CpuTemplate TopKTemplate();       // top_k.cc: the first elements in their order
CpuTemplate SuppressTemplate();   // suppress.cc: boxes that overlap no better one
CpuTemplate DefaultTemplate();    // default.cc: everything else

// The operands of a workload as buffers of a program under construction, and the values its calls make.
class WorkloadProgram {
 public:
  // `packed[i]`, if set, is the physical shape in which operand i arrives instead of its own; `types[i]`, if there are
  // any, is of what type.
  WorkloadProgram(const Workload& w, ir::ProgramBuilder& b, const std::vector<Shape>& packed = {},
                  const std::vector<DType>& types = {});
  const ir::Buffer& buffer(int input) const { return buffers_[input]; }
  const ir::Tensor& value(int arg) const { return values_[arg]; }
  // Runs the tensor expressions of calls [first, last).
  absl::Status Compute(int first, int last);
  // Replaces the result of `call` (the anchor, computed by a template's own stages).
  void SetResult(int call, ir::Tensor t) { values_[w_.inputs.size() + call] = std::move(t); }
  const ir::Tensor& result() const { return values_.back(); }
  // The last stage, "out": the result in its physical order.
  void MarkOut();

 private:
  const Workload& w_;
  ir::ProgramBuilder& b_;
  std::vector<ir::Buffer> buffers_;
  std::vector<ir::Tensor> values_;
};

// The calls before the anchor, if there are any, are elementwise, end in its first operand and do not read its second.
// Those after it do not read constants among its other operands, which may be packed.
bool AnchorReadsElementwise(const Workload& w);
// The widest run of lanes (at most `most` vectors of them) whose last, partial one leaves few vectors without work.
int64_t VectorLength(int64_t extent, int64_t lanes, int64_t most);

// What was scheduled, or the schedule's error: a kernel of a CPU, which ForCpu lowers.
absl::StatusOr<ir::Func> Finished(const Schedule& s);
absl::StatusOr<ir::Func> LowerSchedule(const Schedule& s);  // the same, lowered
// One elementwise stage scheduled well: vectorised along its innermost loop, the others fused and parallel.
void ScheduleElementwise(Schedule& s, const std::string& block, const CpuTarget& t);
// A lowered function with one parameter in and one out, for Kernel::packs. `host` is the CPU that it is scheduled for:
// a CPU template's own target. A template for another device gives HostTarget's, because packs run on the host.
absl::StatusOr<ir::Func> BuildPack(
    const std::string& name, const Workload::Operand& operand, Shape packed_shape,
    const std::function<ir::Expr(const ir::Tensor& logical, const std::vector<ir::Expr>& index)>& element,
    const CpuTarget& host);

}  // namespace temper
