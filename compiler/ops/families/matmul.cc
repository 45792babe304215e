// Matrix multiplication with NumPy's batched broadcasting.
#include "absl/strings/str_cat.h"
#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

bool TransA(const Attrs& attrs) { return attrs.Int("trans_a", 0) != 0; }
bool TransB(const Attrs& attrs) { return attrs.Int("trans_b", 0) != 0; }
int64_t Depth(const Attrs& attrs, const Shape& a) { return a[a.size() - (TransA(attrs) ? 2 : 1)]; }

absl::StatusOr<TensorType> Infer(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"trans_a", AttrKind::kInt},
                                            {"trans_b", AttrKind::kInt},
                                            {"result", AttrKind::kString},
                                            {"tf32", AttrKind::kInt}}));  // 1: f32 may be rounded to TF32
  const Shape& a = in[0].shape;
  const Shape& b = in[1].shape;
  TEMPER_RETURN_IF_ERROR(CheckFactors(attrs, in[0].dtype, in[1].dtype));
  if (a.size() < 2 || b.size() < 2) return InvalidType("operands have rank 2 or more");
  int64_t depth_b = b[b.size() - (TransB(attrs) ? 1 : 2)];
  if (Depth(attrs, a) != depth_b)
    return InvalidType(absl::StrCat("inner dimensions ", Depth(attrs, a), " and ", depth_b, " differ"));
  TEMPER_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)));
  shape.push_back(a[a.size() - (TransA(attrs) ? 1 : 2)]);
  shape.push_back(b[b.size() - (TransB(attrs) ? 2 : 1)]);
  TEMPER_ASSIGN_OR_RETURN(const DType result, ContractionResult(attrs, in[0].dtype));
  return TensorType{result, std::move(shape), {}};
}

// The operand's element (row, column) of the batch element that `index` names.
ir::Expr At(const ir::Tensor& x, const Index& index, const ir::Expr& row, const ir::Expr& column, bool transposed) {
  Index batch(index.begin(), index.end() - 2);
  Index full = BroadcastIndex(batch, Shape(x.shape().begin(), x.shape().end() - 2));
  full.push_back(transposed ? column : row);
  full.push_back(transposed ? row : column);
  return x(full);
}

absl::StatusOr<ir::Tensor> Compute(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                                   const TensorType& output) {
  ir::Tensor left = MaterializeFormula(b, "left", in[0], output), right = MaterializeFormula(b, "right", in[1], output);
  size_t rank = output.shape.size();
  bool trans_a = TransA(attrs), trans_b = TransB(attrs);
  return ReduceStage(b, "matmul", output, {Depth(attrs, left.shape())}, ir::Combiner::kSum,
                     [=](const Index& i, const Index& k) {
                       return At(left, i, i[rank - 2], k[0], trans_a) * At(right, i, k[0], i[rank - 1], trans_b);
                     });
}

double TermsOf(const Attrs& attrs, std::span<const TensorType> in) {
  return static_cast<double>(Depth(attrs, in[0].shape));
}

double FlopsOf(const Attrs& attrs, std::span<const TensorType> in, const TensorType& output) {
  return 2 * Elements(output) * static_cast<double>(Depth(attrs, in[0].shape));
}

}  // namespace

std::vector<OpDef> MatmulOps() {
  OpDef op{"matmul", OpPattern::kAnchor, 2, 2, Infer, Compute, FlopsOf, OpTypes::kContracts};
  op.terms = TermsOf;
  return {std::move(op)};
}

}  // namespace temper::ops
