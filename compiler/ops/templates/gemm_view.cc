#include "compiler/ops/templates/gemm_view.h"

#include <algorithm>

#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/stages.h"

namespace temper {

using ir::Expr;

int64_t ReductionLength(const GemmView& v) { return NumElements(v.reduction); }

double NumbersOfB::BytesEach() const {
  return 1 / static_cast<double>(per_byte) + (offsets < 0 ? 4.0 : 8.0) / static_cast<double>(block);
}

int64_t WaysOf(const Workload& w, const Workload::Call& call) {
  const bool contracts = FindOp(call.op)->types == OpTypes::kContracts;
  if (!contracts || call.type.dtype != DType::kI32) return 1;
  const DType a = w.TypeOf(call.args[0]).dtype, b = w.TypeOf(call.args[1]).dtype;
  if (a == DType::kI16 && (b == DType::kI16 || b == DType::kI8)) return 2;
  return a == DType::kU8 && b == DType::kI8 ? 4 : 1;
}

DType FactorType(const GemmView& v) { return v.ways > 1 && !v.rounds ? DType::kI32 : kElement; }

GemmView OfBf16(GemmView v) {
  v.rounds = true;
  return OfIntegers(std::move(v), 2, false);
}

GemmView OfIntegers(const Workload& w, GemmView v, bool in_place) {
  const int64_t ways = WaysOf(w, w.calls[w.anchor]);
  v.widens_b = ways == 2 && w.inputs[v.b_input].constant && w.TypeOf(v.b_input).dtype == DType::kI8;
  return OfIntegers(std::move(v), ways, in_place);
}

GemmView OfIntegers(GemmView v, int64_t ways, bool in_place) {
  v.ways = ways;
  v.depth = v.reduction.back();
  v.reduction.back() = CeilDiv(v.depth, v.ways);
  v.prologue |= !in_place || v.depth % v.ways != 0;
  v.a_input = -1;
  v.a_row_stride = v.reduction.size() == 1 ? v.reduction.back() : 0;
  v.b_contiguous = false;  // its factors are made while it is packed
  return v;
}

int64_t FactorBytesOfB(const GemmView& v) { return v.widens_b ? v.ways : kElementBytes; }

std::vector<GemmAxis> OutAxes(const GemmView& v) {
  std::vector<GemmAxis> axes;
  for (const GemmView::Dim& dim : v.out_dims) axes.push_back(dim.axis);
  return axes;
}

absl::Status MarkOut(const Workload& w, const GemmView& v, WorkloadProgram& program, ir::ProgramBuilder& b,
                     const ProductElement& product) {
  // The epilogue reads the anchor at the very element that is being written, so the product's stands for it.
  Expr current;
  const TensorType& anchor = w.calls[w.anchor].type;
  program.SetResult(w.anchor,
                    ir::Tensor(anchor.dtype, anchor.shape, [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  Shape out_shape;
  for (const GemmView::Dim& dim : v.out_dims) out_shape.push_back(dim.extent);
  b.MarkOutput(b.Compute("out", w.output().dtype, out_shape, [&](const std::vector<Expr>& index) {
    Expr batch(0), row(0), column(0);
    for (size_t d = 0; d < index.size(); ++d) {
      Expr& axis = v.out_dims[d].axis == GemmAxis::kBatch ? batch : v.out_dims[d].axis == GemmAxis::kRow ? row : column;
      axis = axis + index[d] * Expr(v.out_dims[d].stride);
    }
    current = product(batch, row, column);
    return program.result()(v.out_index(batch, row, column));
  }));
  return absl::OkStatus();
}

bool ColumnsAreContiguous(const TensorType& type, bool transposed) {
  const int axis = static_cast<int>(type.shape.size()) - (transposed ? 2 : 1);
  return type.perm.empty() ? !transposed : type.perm.back() == axis;
}

AxisLoops LoopsByAxis(const std::vector<Loop>& loops, const std::vector<GemmAxis>& axes) {
  AxisLoops by_axis;
  for (size_t d = 0; d < axes.size() && d < loops.size(); ++d) {
    if (axes[d] == GemmAxis::kBatch) by_axis.batches.push_back(loops[d]);
    if (axes[d] == GemmAxis::kRow) by_axis.row = loops[d];
    if (axes[d] == GemmAxis::kColumn) by_axis.column = loops[d];
  }
  return by_axis;
}

// The largest divisor of `extent` that is at most a line's elements.
static int64_t LineDivisor(int64_t extent) {
  int64_t step = kLineElements;
  while (extent % step != 0) --step;
  return step;
}

// The steps of a reduction that is innermost but for the columns, which become vectors. As many steps as lanes are a
// square, whose lines are read whole and transposed in registers.
static void PackSquares(Schedule& s, const Loop& step, const Loop& column, int64_t lanes) {
  auto [vector, lane] = s.Split(column, lanes);
  if (s.status().ok() && s.Extent(step) % lanes == 0) {
    auto [squares, line] = s.Split(step, lanes);
    s.Reorder({squares, vector, line, lane});
    s.Unroll(line);
  }
  s.Vectorize(lane);
  s.Unroll(vector);
}

// B's columns lie across memory. Only in the last panel may columns be missing; the others ask for no masks. Where the
// batch does not give threads enough to do, they share whole panels, whose columns are read side by side from their
// starts to their ends, or where one is not whole the lines along the columns.
static void SchedulePackAcross(Schedule& s, const std::string& stage, const GemmView& v, int64_t nr, int64_t lanes,
                               const CpuTarget& t) {
  std::vector<Loop> order = s.Loops(stage);  // batch, panel, reduction..., column
  if (!s.status().ok()) return;
  const Loop panel = order[1], column = order.back();
  if (v.batch < 4 * t.threads && v.columns % nr == 0) {
    PackSquares(s, order[order.size() - 2], column, lanes);
    s.Parallel(s.Fuse(order[0], panel));
    return;
  }
  const int64_t k = v.reduction.back();
  auto [lines, step] = s.Split(order[order.size() - 2], v.batch >= 4 * t.threads ? k : LineDivisor(k));
  order.erase(order.begin() + 1);
  order.resize(order.size() - 2);
  order.push_back(lines);
  std::vector<Loop> inside = order;
  inside.insert(inside.end(), {panel, step, column});
  s.Reorder(inside);
  PackSquares(s, step, column, lanes);
  if (v.columns % nr != 0) s.Peel(panel, 0, 1);
  s.Parallel(FuseAll(s, order));
}

void SchedulePack(Schedule& s, const std::string& stage, const GemmView& v, int64_t nr, int64_t lanes,
                  const CpuTarget& t) {
  if (v.b_contiguous) return ScheduleElementwise(s, stage, t);
  SchedulePackAcross(s, stage, v, nr, lanes, t);
}

}  // namespace temper
