// Matrix multiplication with NumPy's batched broadcasting, and that of a matrix that is kept as numbers of few bits.
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
                                            {"left_bits", AttrKind::kInt},  // the left operand may be rounded to 8
                                            {"tf32", AttrKind::kInt},       // 1: f32 may be rounded to TF32
                                            {"bf16", AttrKind::kInt}}));    // 1: ... to bf16
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

// --- matmul_nbits(x[..., k], numbers[k, n], scales[k / block, n], offsets[k / block, n]) ---
// The product of x and numbers * scales + offsets. Without offsets they are -zero * scales. Numbers are bytes, or two
// of four bits a byte, [k / 2, n]: the earlier one in the low bits.
//
// --- matmul_nbits_i8(x[..., k], numbers, scales, x_scales[..., k / block], offsets) ---
// The same with x of i8, of which a block of a row has a scale.

struct NBits {
  size_t offsets;  // which operand they are
  bool of_bytes;   // x is of i8, with scales of its own
};
constexpr NBits kOfFloats{3, false}, kOfBytes{4, true};
constexpr size_t kScalesOfX = 3;

bool HasOffsets(const NBits& op, std::span<const TensorType> in) {
  return in.size() > op.offsets && !in[op.offsets].shape.empty();
}

absl::Status CheckScalesOfX(std::span<const TensorType> in) {
  Shape each = in[0].shape;
  each.back() = in[2].shape[0];
  if (in[kScalesOfX].dtype != DType::kF32 || in[kScalesOfX].shape != each)
    return InvalidType("each row of the left operand has a scale of f32 for each of its blocks");
  return absl::OkStatus();
}

absl::StatusOr<TensorType> InferNBits(const NBits& op, const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"zero", AttrKind::kInt}}));
  const Shape &x = in[0].shape, &numbers = in[1].shape, &scales = in[2].shape;
  const bool offsets = HasOffsets(op, in);
  if (in[2].dtype != DType::kF32 || (offsets && in[op.offsets].dtype != DType::kF32))
    return InvalidType("scales and offsets are f32");
  if (in[0].dtype != (op.of_bytes ? DType::kI8 : DType::kF32))
    return InvalidType(op.of_bytes ? "the left operand is i8" : "the left operand is f32");
  if (in[1].dtype != DType::kU8) return InvalidType("numbers are u8");
  if (x.size() < 2 || numbers.size() != 2 || scales.size() != 2)
    return InvalidType("the left operand has rank 2 or more, numbers and scales have rank 2");
  if (x.back() != numbers[0] && (x.back() % 2 != 0 || x.back() / 2 != numbers[0]))
    return InvalidType(absl::StrCat("inner dimensions ", x.back(), " and ", numbers[0], " do not fit"));
  if (scales[1] != numbers[1] || scales[0] < 1 || x.back() % scales[0] != 0)
    return InvalidType("each column has a scale for each of its blocks, which are equally long");
  if (offsets && in[op.offsets].shape != scales) return InvalidType("there are as many offsets as scales");
  if (offsets && attrs.Int("zero", 0) != 0) return InvalidType("there are offsets or a zero point");
  if (op.of_bytes) TEMPER_RETURN_IF_ERROR(CheckScalesOfX(in));
  Shape shape = x;
  shape.back() = numbers[1];
  return TensorType{DType::kF32, std::move(shape), {}};
}

absl::StatusOr<ir::Tensor> ComputeNBits(const NBits& op, ir::ProgramBuilder& b, const Attrs& attrs,
                                        std::span<const ir::Tensor> in, const TensorType& output) {
  const ir::Tensor left = MaterializeFormula(b, "left", in[0], output), numbers = in[1], scales = in[2];
  const ir::Tensor offsets = in.size() > op.offsets && in[op.offsets].rank() > 0 ? in[op.offsets] : ir::Tensor();
  const ir::Tensor of_x = op.of_bytes ? MaterializeFormula(b, "of_left", in[kScalesOfX], output) : ir::Tensor();
  const int64_t depth = left.shape().back(), block = depth / scales.shape()[0];
  const int64_t per_byte = depth / numbers.shape()[0];
  const double zero = static_cast<double>(attrs.Int("zero", 0));
  return ReduceStage(b, "matmul", output, {depth}, ir::Combiner::kSum, [=](const Index& i, const Index& k) {
    Index row = i;
    row.back() = k[0];
    ir::Expr number = ir::Cast(numbers({k[0] / ir::Expr(per_byte), i.back()}), DType::kI32);
    const ir::Expr sixteen = ir::Int(16, DType::kI32);
    if (per_byte == 2) number = ir::Select(ir::Eq(k[0] % ir::Expr(2), ir::Expr(0)), number % sixteen, number / sixteen);
    const Index of_block = {k[0] / ir::Expr(block), i.back()};
    const ir::Expr scale = scales(of_block);
    const ir::Expr offset = offsets.rank() > 0 ? offsets(of_block) : scale * ir::Float(-zero);
    ir::Expr x = ir::Cast(left(row), DType::kF32);
    row.back() = of_block[0];
    if (op.of_bytes) x = x * of_x(row);
    return x * (ir::Cast(number, DType::kF32) * scale + offset);
  });
}

OpDef NBitsOp(std::string_view name, const NBits& op, int inputs) {
  OpDef def{name,
            OpPattern::kAnchor,
            inputs,
            inputs + 1,
            [op](const Attrs& attrs, std::span<const TensorType> in) { return InferNBits(op, attrs, in); },
            [op](ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in, const TensorType& output) {
              return ComputeNBits(op, b, attrs, in, output);
            },
            FlopsOf,
            OpTypes::kConverts};
  def.numbers = {Numbers::kAny, Numbers::kAny, Numbers::kFactor};
  if (op.of_bytes) def.numbers.push_back(Numbers::kFactor);
  // Of each step one with the number, and one with the offset.
  def.terms = [op](const Attrs& attrs, std::span<const TensorType> in) {
    return TermsOf(attrs, in) * (HasOffsets(op, in) ? 2 : 1);
  };
  return def;
}

}  // namespace

std::vector<OpDef> MatmulOps() {
  OpDef op{"matmul", OpPattern::kAnchor, 2, 2, Infer, Compute, FlopsOf, OpTypes::kContracts};
  op.terms = TermsOf;
  return {std::move(op), NBitsOp("matmul_nbits", kOfFloats, 3), NBitsOp("matmul_nbits_i8", kOfBytes, 4)};
}

}  // namespace temper::ops
