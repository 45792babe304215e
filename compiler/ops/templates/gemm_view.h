// A workload's contraction as a batch of matrix products:
//   out[b, m, n] = epilogue(sum over r of A(b, m, r) * B(b, n, r))
// Templates of any kind of device schedule it.
#pragma once

#include "compiler/ops/templates/templates.h"

namespace temper {

enum class GemmAxis { kBatch, kRow, kColumn };

// A constant B that is kept as numbers of few bits, and multiplied as number * scale + offset. A block of a column's
// numbers has one scale, and one offset. Where A is of bytes, a block of its rows has one scale too.
struct NumbersOfB {
  int64_t per_byte, block;
  int64_t run;          // of a block: so many products are summed before the zero point's share is taken off
  int scales, offsets;  // inputs of the workload; no offsets (-1): they are -zero * scale
  int scales_of_a;      // an input; -1: A is of floats
  double zero;
  bool to_cache;  // a panel's floats come to cache before its tiles read them; else each tile makes them in registers

  double BytesEach() const;  // of memory for a number, its part of the scale and of the offset included
};

struct GemmView {
  int64_t batch = 1, rows = 1, columns = 1;
  std::vector<int64_t> reduction;  // extents, outermost first
  int b_input = 1;                 // the workload's input that is B
  int a_input = -1;                // the one that A is read from, row after row; -1: a copy, or rows that overlap
  bool b_batched = false;          // B differs along the batch
  // B's rows can be read in place: its columns are contiguous in memory.
  bool b_contiguous = false;
  // Integers are multiplied several at once, and summed in i32: two of i16, or four bytes, of A unsigned and of B
  // signed, or the other way round where B is of numbers. A factor is so many elements along the reduction's last axis,
  // whose last extent counts factors; `depth` is that axis in elements, those past which are zero and never asked for.
  int64_t ways = 1, depth = 0;
  // The axes of the reduction where rows of A are copied, whose elements are `depth` together and the reduction's one
  // axis; empty: they are `reduction`.
  Shape copied;
  // Of f32 that is rounded to bf16: A while it is copied, B while it is packed. Factors are pairs of bf16, whose
  // products are summed in f32.
  bool rounds = false;
  // Not 0: rows of A lie in place, as far apart as their neighbours in runs of so many, and what they see overlaps: of
  // what `overlap` of them read, a part is one's own.
  int64_t even_rows = 0;
  double overlap = 1;
  // B is constant and of bytes, though A is not: its panels keep the bytes, which are widened when they are read.
  bool widens_b = false;
  bool prologue = false;  // calls before the anchor make A: each chunk of rows comes to cache before its tiles read it
  std::optional<NumbersOfB> numbers;
  bool MakesB() const { return numbers && !numbers->to_cache; }
  bool CachesB() const { return numbers && numbers->to_cache; }
  // What B's elements are multiplied by before they are used, if anything is: a factor of A's.
  std::function<ir::Expr(const WorkloadProgram& program, const std::vector<ir::Expr>& r)> b_scale;
  // Elements between what neighbouring rows read of A at the same step of the reduction; 0 if it is not known.
  int64_t a_row_stride = 0;
  int64_t b_row_stride = 0;  // elements between steps of the reduction, where columns are contiguous; 0: not known

  // Element of B from its logical tensor.
  std::function<ir::Expr(const ir::Tensor& b, ir::Expr batch, ir::Expr column, const std::vector<ir::Expr>& r)>
      b_element;
  // Adds stages that A needs and returns the element of A.
  using AElement = std::function<ir::Expr(ir::Expr batch, ir::Expr row, const std::vector<ir::Expr>& r)>;
  std::function<AElement(WorkloadProgram& program, ir::ProgramBuilder& b, std::vector<std::string>* stages)> prepare;
  // The output buffer's dimensions as the template sees them (the same dense bytes as the physical output).
  struct Dim {
    GemmAxis axis;
    int64_t extent;
    int64_t stride;
  };  // position along the axis = sum of index * stride
  std::vector<Dim> out_dims;
  // Logical index of the output, for the epilogue.
  std::function<std::vector<ir::Expr>(ir::Expr batch, ir::Expr row, ir::Expr column)> out_index;
};

// Dense layers and batched matmul: the first call, of operands of the workload that are of the templates' element type.
bool IsMatmul(const Workload& w);
bool IsMatmulOf(const Workload& w, DType element);
GemmView MatmulView(const Workload& w);
// How many elements of the contraction make a factor, and the view of one of integers (several) from that of its
// elements: of any, and of the workload's anchor. `in_place`: each row of A is read where it lies, its elements one
// behind another.
int64_t WaysOf(const Workload& w, const Workload::Call& call);
GemmView OfIntegers(GemmView v, int64_t ways, bool in_place);
GemmView OfIntegers(const Workload& w, GemmView v, bool in_place);
// As matrix tiles take it, for which subnormal numbers are zero.
inline ir::Expr RoundedToBf16(const ir::Expr& e) { return ir::Cast(e, DType::kBF16, {.flush = true}); }
// The view of a contraction of f32 that may be rounded to bf16.
GemmView OfBf16(GemmView v);
int64_t ReductionLength(const GemmView& v);        // in factors
DType FactorType(const GemmView& v);               // what an operand is multiplied as, and products are summed in
int64_t FactorBytesOfB(const GemmView& v);         // in the panels of a B that is not numbers
std::vector<GemmAxis> OutAxes(const GemmView& v);  // of out_dims
// Computes the calls after the anchor and the output "out", whose dimensions are out_dims, from the anchor's elements.
using ProductElement = std::function<ir::Expr(const ir::Expr& batch, const ir::Expr& row, const ir::Expr& column)>;
absl::Status MarkOut(const Workload& w, const GemmView& v, WorkloadProgram& program, ir::ProgramBuilder& b,
                     const ProductElement& product);
// A block's outermost loops, of which each goes along an axis.
struct AxisLoops {
  std::vector<Loop> batches;
  Loop row, column;
};
AxisLoops LoopsByAxis(const std::vector<Loop>& loops, const std::vector<GemmAxis>& axes);
// A stage that copies B into panels of `nr` columns: [batch][columns / nr][reduction...][nr].
void SchedulePack(Schedule& s, const std::string& stage, const GemmView& v, int64_t nr, int64_t lanes,
                  const CpuTarget& t);
// Whether a matrix's columns lie beside each other in memory: they are its last logical axis, unless it is transposed.
bool ColumnsAreContiguous(const TensorType& type, bool transposed);
// The index of `flat` in the dimensions `shape`, row-major.
std::vector<ir::Expr> Unflatten(ir::Expr flat, std::span<const int64_t> shape);

}  // namespace temper
