// matmul.packed: dense layers (a constant or shared right operand: all leading dimensions are rows) and batched matmul.
// matmul.integer: those of i16, or of u8 by i8, summed in i32; elementwise calls may make their left operand.
// matmul.tiles: those of u8 by i8, by matrix tiles.
// matmul.bf16, matmul.tiles_bf16: those of f32 that may be rounded to bf16, the latter by matrix tiles.
#include <algorithm>
#include <optional>

#include "base/strides.h"
#include "compiler/ops/rounded_products.h"
#include "compiler/ops/templates/gemm.h"

namespace temper {

using ir::Expr;

std::vector<Expr> Unflatten(Expr flat, std::span<const int64_t> shape) {
  std::vector<Expr> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = d == 0 ? flat : flat % Expr(shape[d]);
    flat = flat / Expr(shape[d]);
  }
  return index;
}

namespace {

// Where a matmul's operands lie in terms of (batch, row, column).
struct MatmulShape {
  bool trans_a, trans_b;
  Shape a, b, out;  // logical
  std::vector<int> out_perm;
  bool shared_b;  // B has no batch dimensions: they all are rows
  int64_t k;

  explicit MatmulShape(const Workload& w) {
    const Workload::Call& call = w.calls[w.anchor];
    a = w.TypeOf(call.args[0]).shape, b = w.TypeOf(call.args[1]).shape, out = call.type.shape;
    trans_a = call.attrs.Int("trans_a", 0) != 0, trans_b = call.attrs.Int("trans_b", 0) != 0;
    out_perm = w.output().perm;
    k = trans_b ? b[b.size() - 1] : b[b.size() - 2];
    shared_b = NumElements(std::span(b).first(b.size() - 2)) == 1 && out_perm.empty() &&
               w.TypeOf(call.args[0]).perm.empty() && (!trans_a || out.size() == 2);
  }
};

// The operand's index for batch index `batch` of the output under numpy broadcasting.
std::vector<Expr> Broadcast(const std::vector<Expr>& batch, const Shape& operand) {
  std::vector<Expr> index;
  const size_t rank = operand.size() - 2;
  for (size_t d = 0; d < rank; ++d) index.push_back(operand[d] == 1 ? Expr(0) : batch[batch.size() - rank + d]);
  return index;
}

// Elements between neighbouring rows of an operand.
int64_t RowStride(const TensorType& a, bool transposed) {
  const int rank = static_cast<int>(a.shape.size()), row_axis = rank - (transposed ? 1 : 2);
  int64_t stride = 1;
  for (int p = rank; p-- > 0;) {
    const int axis = a.perm.empty() ? p : a.perm[static_cast<size_t>(p)];
    if (axis == row_axis) break;
    stride *= a.shape[static_cast<size_t>(axis)];
  }
  return stride;
}

}  // namespace

GemmView MatmulView(const Workload& w) {
  const MatmulShape s(w);
  const Workload::Call& call = w.calls[w.anchor];
  const size_t rank = s.out.size();
  GemmView v;
  v.prologue = call.args[0] >= static_cast<int>(w.inputs.size());
  v.a_input = s.trans_a || v.prologue ? -1 : call.args[0];
  v.b_input = call.args[1];
  v.reduction = {s.k};
  v.columns = s.out[rank - 1];
  const Shape batch_shape(s.out.begin(), s.out.end() - 2), row_shape(s.out.begin(), s.out.end() - 1);
  v.batch = s.shared_b ? 1 : NumElements(batch_shape);
  v.rows = s.shared_b ? NumElements(row_shape) : s.out[rank - 2];
  v.b_batched = !s.shared_b;
  const TensorType& b_type = w.TypeOf(call.args[1]);
  v.b_contiguous = ColumnsAreContiguous(b_type, s.trans_b);

  v.a_row_stride = RowStride(w.TypeOf(call.args[0]), s.trans_a);
  if (v.b_contiguous) v.b_row_stride = RowStride(b_type, s.trans_b);
  v.b_element = [s, batch_shape](const ir::Tensor& b, Expr batch, Expr column, const std::vector<Expr>& r) {
    std::vector<Expr> index =
        s.shared_b ? std::vector<Expr>(s.b.size() - 2, Expr(0)) : Broadcast(Unflatten(batch, batch_shape), s.b);
    index.push_back(s.trans_b ? column : r[0]);
    index.push_back(s.trans_b ? r[0] : column);
    return b(index);
  };
  const int a_arg = call.args[0];
  v.prepare = [s, a_arg, batch_shape, row_shape](WorkloadProgram& program, ir::ProgramBuilder&,
                                                 std::vector<std::string>*) -> GemmView::AElement {
    ir::Tensor a = program.value(a_arg);
    return [s, a, batch_shape, row_shape](Expr batch, Expr row, const std::vector<Expr>& r) {
      std::vector<Expr> index, out_index;
      if (s.shared_b) {
        out_index = Unflatten(row, row_shape);
        row = out_index.back();
        out_index.pop_back();
      } else {
        out_index = Unflatten(batch, batch_shape);
      }
      index = Broadcast(out_index, s.a);
      index.push_back(s.trans_a ? r[0] : row);
      index.push_back(s.trans_a ? row : r[0]);
      return a(index);
    };
  };
  if (s.shared_b) {
    v.out_dims = {{GemmAxis::kRow, v.rows, 1}, {GemmAxis::kColumn, v.columns, 1}};
  } else {
    const std::vector<int64_t> stride = RowMajorStrides(batch_shape);
    for (size_t p = 0; p < rank; ++p) {
      size_t d = s.out_perm.empty() ? p : static_cast<size_t>(s.out_perm[p]);
      GemmAxis axis = d + 1 == rank ? GemmAxis::kColumn : d + 2 == rank ? GemmAxis::kRow : GemmAxis::kBatch;
      v.out_dims.push_back({axis, s.out[d], axis == GemmAxis::kBatch ? stride[d] : 1});
    }
  }
  v.out_index = [s, batch_shape, row_shape](Expr batch, Expr row, Expr column) {
    std::vector<Expr> index = s.shared_b ? Unflatten(row, row_shape) : Unflatten(batch, batch_shape);
    if (!s.shared_b) index.push_back(row);
    index.push_back(column);
    return index;
  };
  return v;
}

bool IsMatmul(const Workload& w) { return IsMatmulOf(w, kElement); }

// Of operands that can be told apart, of two axes or more.
static bool IsMatmulOfMatrices(const Workload& w) {
  const Workload::Call& call = w.calls[w.anchor];
  if (call.op != "matmul" || !AnchorReadsElementwise(w)) return false;
  if (call.args[1] >= static_cast<int>(w.inputs.size()) || call.args[0] == call.args[1]) return false;
  const TensorType &a = w.TypeOf(call.args[0]), &b = w.TypeOf(call.args[1]);
  if (a.shape.size() < 2 || b.shape.size() < 2) return false;
  // A constant's panels are packed from the logical order.
  return !w.inputs[call.args[1]].constant || b.perm.empty();
}

bool IsMatmulOf(const Workload& w, DType element) {
  return w.anchor == 0 && IsOfElement(w, w.calls[w.anchor], element) && IsMatmulOfMatrices(w);
}

// Rows of several elements at once are read in place where they lie so.
static GemmView IntegerMatmulView(const Workload& w) {
  const int a = w.calls[w.anchor].args[0];
  GemmView v = MatmulView(w);
  return OfIntegers(w, std::move(v), w.TypeOf(a).perm.empty() && v.a_input == a);
}

static bool IsIntegerMatmul(const Workload& w) { return WaysOf(w, w.calls[w.anchor]) > 1 && IsMatmulOfMatrices(w); }

// Few rows by a computed operand whose columns each lie in one piece: dot products, for which the fallback reads
// it as it lies. To copy it into panels first takes longer, and up to three times as long where it is in no cache.
static bool IsDotProducts(const Workload& w) {
  constexpr int64_t kFewRows = 4;
  const GemmView v = MatmulView(w);
  const TensorType& b = w.inputs[v.b_input].type;
  const int rank = static_cast<int>(b.shape.size()), along = b.perm.empty() ? rank - 1 : b.perm.back();
  const bool trans_b = w.calls[w.anchor].attrs.Int("trans_b", 0) != 0;
  return !w.inputs[v.b_input].constant && along == rank - (trans_b ? 1 : 2) && v.rows <= kFewRows;
}

static GemmView BytesMatmulView(const Workload& w) { return OfMatrixTiles(IntegerMatmulView(w)); }

static bool IsPackedMatmul(const Workload& w) { return IsMatmul(w) && !IsDotProducts(w); }

static bool IsRoundedMatmul(const Workload& w) {
  const Workload::Call& call = w.calls[w.anchor];
  return AllowsBf16(call.attrs) && IsOfElement(w, call) && IsMatmulOfMatrices(w);
}
static GemmView RoundedMatmulView(const Workload& w) { return OfBf16(MatmulView(w)); }
static GemmView RoundedTilesView(const Workload& w) { return OfMatrixTiles(RoundedMatmulView(w)); }

CpuTemplate MatmulPacked() { return GemmTemplate("matmul.packed", 5, IsPackedMatmul, MatmulView); }
CpuTemplate MatmulInteger() { return GemmTemplate("matmul.integer", 3, IsIntegerMatmul, IntegerMatmulView); }
CpuTemplate MatmulTiles() { return MatrixTilesTemplate("matmul.tiles", IsIntegerMatmul, BytesMatmulView, "amx-int8"); }
CpuTemplate MatmulBf16() { return GemmTemplate("matmul.bf16", 1, IsRoundedMatmul, RoundedMatmulView, "avx512bf16"); }
CpuTemplate MatmulTilesBf16() {
  return MatrixTilesTemplate("matmul.tiles_bf16", IsRoundedMatmul, RoundedTilesView, "amx-bf16");
}

}  // namespace temper
