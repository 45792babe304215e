#include "compiler/ops/widen.h"

#include "absl/strings/str_cat.h"

namespace temper::ops {
namespace {

DType WideOf(DType dtype) { return Info(dtype).wide; }

DType AccumulatorOf(DType dtype) { return Info(dtype).accumulator; }

// What the reference of a moving operator takes: whole bytes.
DType ByteWideOf(DType dtype) { return IsPacked(dtype) ? WideOf(dtype) : dtype; }

// The type in which an operator sees an operand or a result.
DType (*WideningOf(OpTypes types))(DType) {
  switch (types) {
    case OpTypes::kMoves:
      return ByteWideOf;
    case OpTypes::kContracts:
      return AccumulatorOf;
    case OpTypes::kComputes:
    case OpTypes::kConverts:
      break;
  }
  return WideOf;
}

ir::Tensor Converted(const ir::Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  return ir::Tensor(to, x.shape(), [x, to](const std::vector<ir::Expr>& i) { return ir::Cast(x(i), to); });
}

}  // namespace

OpDef Widened(OpDef op) {
  if (op.types == OpTypes::kConverts) return op;
  const bool moves = op.types == OpTypes::kMoves;
  DType (*const widen)(DType) = WideningOf(op.types);
  if (op.reference)
    op.reference = [widen, rule = std::move(op.reference)](const Attrs& attrs, std::span<const NDArray> inputs,
                                                           const TensorType& output) -> absl::StatusOr<NDArray> {
      std::vector<NDArray> wide;
      for (const NDArray& x : inputs) wide.push_back(x.data() == nullptr ? x : x.ConvertedTo(widen(x.dtype())));
      TEMPER_ASSIGN_OR_RETURN(NDArray result, rule(attrs, wide, {widen(output.dtype), output.shape, output.perm}));
      return result.ConvertedTo(output.dtype);
    };
  if (moves) return op;
  op.infer = [rule = std::move(op.infer)](const Attrs& attrs,
                                          std::span<const TensorType> inputs) -> absl::StatusOr<TensorType> {
    TEMPER_ASSIGN_OR_RETURN(TensorType type, rule(attrs, inputs));
    if (Info(type.dtype).arithmetic == Arithmetic::kNone)
      return absl::InvalidArgumentError(absl::StrCat(std::string(Name(type.dtype)), " has no arithmetic"));
    return type;
  };
  if (!op.compute) return op;
  op.compute = [widen, rule = std::move(op.compute)](ir::ProgramBuilder& b, const Attrs& attrs,
                                                     std::span<const ir::Tensor> inputs,
                                                     const TensorType& output) -> absl::StatusOr<ir::Tensor> {
    std::vector<ir::Tensor> wide;
    for (const ir::Tensor& x : inputs) wide.push_back(Converted(x, widen(x.dtype())));
    TEMPER_ASSIGN_OR_RETURN(ir::Tensor result, rule(b, attrs, wide, {widen(output.dtype), output.shape, output.perm}));
    return Converted(result, output.dtype);
  };
  return op;
}

}  // namespace temper::ops
