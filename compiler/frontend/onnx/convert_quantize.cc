// Numbers of few bits with a scale and a zero point: x = (q - zero) * scale. Products of them are sums of 32 bits,
// exact, as ONNX has it; where a model only says which values are rounded how ("QDQ"), it computes in floats.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/frontend/onnx/context.h"
#include "compiler/frontend/onnx/tensor_data.h"
#include "compiler/frontend/onnx/window.h"

namespace temper::onnx_frontend {
namespace {

// Scale and zero point; the zero point may be kNoValue, which is zero.
struct Quantity {
  ValueId scale, zero;
};

// A parameter that is one, one for each position of an axis, or one for each block of such positions, so that it
// broadcasts with what has this shape.
absl::StatusOr<ValueId> ForElements(Context& c, ValueId v, const Shape& shape, int64_t axis, int64_t block) {
  if (v == kNoValue || NumElements(c.ShapeOf(v)) == 1) return v == kNoValue ? v : c.Reshape(v, {});
  const int64_t rank = static_cast<int64_t>(shape.size());
  TEMPER_ASSIGN_OR_RETURN(axis, Axis(axis, rank));
  const size_t at = static_cast<size_t>(axis);
  if (block == 0) {
    if (c.ShapeOf(v) != Shape{shape[at]})
      return absl::InvalidArgumentError(absl::StrCat("scales and zero points are one, or ", shape[at], " in a row"));
    Shape along(static_cast<size_t>(rank - axis), 1);
    along[0] = shape[at];
    return c.Reshape(v, std::move(along));
  }
  if (block < 0) return absl::InvalidArgumentError(absl::StrCat("block_size is ", block));
  block = std::clamp<int64_t>(block, 1, std::max<int64_t>(shape[at], 1));
  Shape blocks = shape;
  blocks[at] = CeilDiv(shape[at], block);
  if (c.ShapeOf(v) != blocks)
    return absl::InvalidArgumentError("scales and zero points are one for each block along the axis");
  Shape apart = blocks;
  apart.insert(apart.begin() + axis + 1, 1);
  Shape repeated = apart;
  repeated[at + 1] = block;
  blocks[at] *= block;
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(apart)));
  TEMPER_ASSIGN_OR_RETURN(v, c.Expand(v, std::move(repeated)));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(blocks)));
  return c.Slice(v, axis, 0, shape[at]);
}

// What a node quantises or dequantises, and by what. Whole blocks lie along an axis of their own, so that no parameter
// is there more than once.
struct Blocks {
  ValueId v;
  Quantity q;
  Shape shape;  // of the result
};

absl::StatusOr<Blocks> BlocksOf(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));  // a copy: calls move what it refers to
  const int64_t block = n.Int("block_size", 0);
  Blocks b{n.Input(0), {n.Input(1), n.Input(2)}, shape};
  int64_t axis = n.Int("axis", 1);
  if (block > 0 && !shape.empty()) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(axis, std::ssize(shape)));
    const size_t at = static_cast<size_t>(axis);
    Shape blocks = shape;
    blocks[at] /= block;
    if (shape[at] % block == 0 && c.ShapeOf(b.q.scale) == blocks) {
      Shape apart = blocks;
      apart.insert(apart.begin() + axis + 1, 1);
      for (ValueId* parameter : {&b.q.scale, &b.q.zero}) {
        if (*parameter == kNoValue) continue;
        if (c.ShapeOf(*parameter) != blocks)
          return absl::InvalidArgumentError("scales and zero points are one for each block along the axis");
        TEMPER_ASSIGN_OR_RETURN(*parameter, c.Reshape(*parameter, apart));
      }
      apart[at + 1] = block;
      TEMPER_ASSIGN_OR_RETURN(b.v, c.Reshape(b.v, std::move(apart)));
      return b;
    }
  }
  TEMPER_ASSIGN_OR_RETURN(b.q.scale, ForElements(c, n.Input(1), shape, axis, block));
  TEMPER_ASSIGN_OR_RETURN(b.q.zero, ForElements(c, n.Input(2), shape, axis, block));
  return b;
}

// The type that the attribute names, if it does.
absl::StatusOr<DType> TypeNamed(const OnnxNode& n, const char* attribute, DType otherwise) {
  const int64_t code = n.Int(attribute, 0);
  if (code == 0) return otherwise;
  return DTypeOf(static_cast<int>(code));
}

// As integers of `wide` less their zero point, or as the floats that they are.
absl::StatusOr<ValueId> LessZero(Context& c, ValueId v, ValueId zero, DType wide) {
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, wide));
  if (zero == kNoValue) return v;
  TEMPER_ASSIGN_OR_RETURN(zero, c.Cast(zero, wide));
  return c.Call("sub", {}, {v, zero});
}

// Integers of at most 8 bits, and of two axes or more. The passes are to see them as they are, and what multiplies
// them.
bool IsWeight(const Context& c, ValueId v) {
  const DTypeInfo& type = Info(c.TypeOf(v).dtype);
  const bool integer = type.kind == TypeKind::kSigned || type.kind == TypeKind::kUnsigned;
  return integer && type.bits <= 8 && c.Rank(v) >= 2 && c.Known(v) != nullptr;
}

absl::StatusOr<ValueId> Dequantized(Context& c, ValueId v, Quantity q) {
  if (IsWeight(c, v)) {
    Attrs wide;
    wide.Set("to", std::string(Name(DType::kI32)));
    TEMPER_ASSIGN_OR_RETURN(v, c.Defer("cast", std::move(wide), {v}));
  }
  TEMPER_ASSIGN_OR_RETURN(v, LessZero(c, v, q.zero, IsFloat(c.TypeOf(v).dtype) ? DType::kF32 : DType::kI32));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(const ValueId scale, c.Cast(q.scale, DType::kF32));
  return c.Call("mul", {}, {v, scale});
}

// The number of `to` that is nearest to v / scale + zero, ties to even; what is too large is the largest.
absl::StatusOr<ValueId> Quantized(Context& c, ValueId v, Quantity q, DType to, bool saturate) {
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(const ValueId scale, c.Cast(q.scale, DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("div", {}, {v, scale}));
  const bool rounds = !IsFloat(to);  // a cast to a float rounds by itself
  if (rounds) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("round", {}, {v}));
  }
  if (q.zero != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId zero, c.Cast(q.zero, DType::kF32));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, zero}));
  }
  Attrs cast;
  cast.Set("to", std::string(Name(to)));
  if (rounds) {
    Attrs range;
    range.Set("min", Lowest(to));
    range.Set("max", Largest(to));
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("clip", std::move(range), {v}));
  } else if (HasCastMode(to) && saturate) {
    cast.Set("saturate", int64_t{1});
  }
  return c.Call("cast", std::move(cast), {v});
}

absl::Status DequantizeLinear(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const DType to, TypeNamed(n, "output_dtype", c.TypeOf(n.Input(1)).dtype));
  OnnxNode whole = n;
  for (const size_t i : {0, 2}) {
    if (n.Input(i) != kNoValue) whole.inputs[i] = InBytes(c, n.Input(i));
  }
  TEMPER_ASSIGN_OR_RETURN(Blocks blocks, BlocksOf(c, whole));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Dequantized(c, blocks.v, blocks.q));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, to));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(blocks.shape)));
  return c.Set(n, v);
}

absl::Status QuantizeLinear(Context& c, const OnnxNode& n) {
  DType to = DType::kU8;
  if (n.Input(2) != kNoValue) {
    to = c.TypeOf(n.Input(2)).dtype;
  } else {
    TEMPER_ASSIGN_OR_RETURN(to, TypeNamed(n, "output_dtype", to));
  }
  TEMPER_ASSIGN_OR_RETURN(Blocks blocks, BlocksOf(c, n));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Quantized(c, blocks.v, blocks.q, to, n.Int("saturate", 1) != 0));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(blocks.shape)));
  return c.Set(n, v);
}

// To u8 by a range that holds zero and all elements. Where all are zero, any scale is right.
absl::Status DynamicQuantizeLinear(Context& c, const OnnxNode& n) {
  const ValueId x = n.Input(0), none = c.Scalar(DType::kF32, 0);
  const std::vector<int64_t> axes = AxesFrom(0, c.Rank(x));
  TEMPER_ASSIGN_OR_RETURN(ValueId high, c.Reduce("reduce_max", x, axes, false));
  TEMPER_ASSIGN_OR_RETURN(ValueId low, c.Reduce("reduce_min", x, axes, false));
  TEMPER_ASSIGN_OR_RETURN(high, c.Call("max", {}, {high, none}));
  TEMPER_ASSIGN_OR_RETURN(low, c.Call("min", {}, {low, none}));
  Quantity q;
  TEMPER_ASSIGN_OR_RETURN(q.scale, c.Call("sub", {}, {high, low}));
  TEMPER_ASSIGN_OR_RETURN(q.scale, c.Call("div", {}, {q.scale, c.Scalar(DType::kF32, 255)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId empty, c.Call("equal", {}, {q.scale, none}));
  TEMPER_ASSIGN_OR_RETURN(q.scale, c.Call("where", {}, {empty, c.Scalar(DType::kF32, 1), q.scale}));
  TEMPER_ASSIGN_OR_RETURN(low, c.Call("neg", {}, {low}));
  TEMPER_ASSIGN_OR_RETURN(q.zero, Quantized(c, low, {q.scale, kNoValue}, DType::kU8, true));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Quantized(c, x, q, DType::kU8, true));
  TEMPER_RETURN_IF_ERROR(c.Set(n, v));
  TEMPER_RETURN_IF_ERROR(c.Set(n, q.scale, 1));
  return c.Set(n, q.zero, 2);
}

// A factor less its zero point is at most 255 off zero, and what products of them are summed in.
constexpr DType kFactor = DType::kI16, kSum = DType::kI32;

absl::Status CheckFactors(const Context& c, ValueId a, ValueId b) {
  for (ValueId v : {a, b}) {
    const DType dtype = c.TypeOf(v).dtype;
    if (dtype != DType::kI8 && dtype != DType::kU8)
      return absl::UnimplementedError(absl::StrCat("factors of ", std::string(Name(dtype)), " are not supported"));
  }
  return absl::OkStatus();
}

// Null where it is known to be nothing but zeros.
ValueId UnlessZero(Context& c, ValueId v) {
  const NDArray* known = v == kNoValue ? nullptr : c.Known(v);
  if (known == nullptr) return v;
  for (int64_t i = 0; i < known->size(); ++i) {
    if (known->At(i) != 0) return v;
  }
  return kNoValue;
}

// One for a matrix, or one for each of its rows or columns.
absl::StatusOr<ValueId> ForMatrix(Context& c, ValueId v, bool rows) {
  if (v == kNoValue || c.Rank(v) != 1) return v;
  const int64_t count = c.ShapeOf(v)[0];
  return c.Reshape(v, count == 1 ? Shape{} : rows ? Shape{count, 1} : Shape{count});
}

absl::StatusOr<ValueId> IntegerProduct(Context& c, ValueId a, ValueId a_zero, ValueId b, ValueId b_zero) {
  TEMPER_RETURN_IF_ERROR(CheckFactors(c, a, b));
  if (c.Rank(a) < 2 || c.Rank(b) < 2) return absl::UnimplementedError("vectors are not supported, only matrices");
  if (c.ShapeOf(a).back() != c.ShapeOf(b)[c.ShapeOf(b).size() - 2])
    return absl::InvalidArgumentError("the factors differ in the axis that is summed");
  TEMPER_ASSIGN_OR_RETURN(a_zero, ForMatrix(c, UnlessZero(c, a_zero), true));
  TEMPER_ASSIGN_OR_RETURN(b_zero, ForMatrix(c, UnlessZero(c, b_zero), false));
  TEMPER_ASSIGN_OR_RETURN(a, LessZero(c, a, a_zero, kFactor));
  TEMPER_ASSIGN_OR_RETURN(b, LessZero(c, b, b_zero, kFactor));
  Attrs sums;
  sums.Set("result", std::string(Name(kSum)));
  return c.Call("matmul", std::move(sums), {a, b});
}

absl::Status MatMulInteger(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, OfMatrices(c, n.Input(0), n.Input(1), [&](ValueId a, ValueId b) {
                            return IntegerProduct(c, a, n.Input(2), b, n.Input(3));
                          }));
  return c.Set(n, v);
}

// Sums of 32 bits as numbers of the output's scale and type. The scales' product is one constant, if they are.
absl::StatusOr<ValueId> Requantized(Context& c, ValueId sums, ValueId a_scale, ValueId b_scale, Quantity out) {
  TEMPER_ASSIGN_OR_RETURN(sums, c.Cast(sums, DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(ValueId scale, c.Call("mul", {}, {a_scale, b_scale}));
  TEMPER_ASSIGN_OR_RETURN(scale, c.Call("div", {}, {scale, out.scale}));
  TEMPER_ASSIGN_OR_RETURN(sums, c.Call("mul", {}, {sums, scale}));
  return Quantized(c, sums, {c.Scalar(DType::kF32, 1), out.zero}, c.TypeOf(out.zero).dtype, true);
}

absl::Status QLinearMatMul(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId sums, IntegerProduct(c, n.Input(0), n.Input(2), n.Input(3), n.Input(5)));
  TEMPER_ASSIGN_OR_RETURN(ValueId a_scale, c.Cast(n.Input(1), DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(ValueId b_scale, c.Cast(n.Input(4), DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(a_scale, ForMatrix(c, a_scale, true));
  TEMPER_ASSIGN_OR_RETURN(b_scale, ForMatrix(c, b_scale, false));
  Quantity out{kNoValue, n.Input(7)};
  TEMPER_ASSIGN_OR_RETURN(out.scale, c.Cast(n.Input(6), DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Requantized(c, sums, a_scale, b_scale, out));
  return c.Set(n, v);
}

// One for all filters, or one for each.
absl::StatusOr<ValueId> ForFilters(Context& c, ValueId v, int64_t ones) {
  if (v == kNoValue) return v;
  Shape shape(static_cast<size_t>(ones) + 1, 1);
  shape[0] = NumElements(c.ShapeOf(v));
  return c.Reshape(v, shape[0] == 1 ? Shape{} : std::move(shape));
}

absl::StatusOr<ValueId> IntegerConv(Context& c, const OnnxNode& n, ValueId x, ValueId x_zero, ValueId w, ValueId w_zero,
                                    ValueId bias) {
  TEMPER_RETURN_IF_ERROR(CheckFactors(c, x, w));
  if (c.Rank(x) < 3 || c.Rank(w) != c.Rank(x))
    return absl::InvalidArgumentError("takes data of rank 3 or more and weights of the same rank");
  x_zero = UnlessZero(c, x_zero);
  if (x_zero != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(x_zero, c.Reshape(x_zero, {}));
  }
  TEMPER_ASSIGN_OR_RETURN(w_zero, ForFilters(c, UnlessZero(c, w_zero), c.Rank(w) - 1));
  TEMPER_ASSIGN_OR_RETURN(x, LessZero(c, x, x_zero, kFactor));
  TEMPER_ASSIGN_OR_RETURN(w, LessZero(c, w, w_zero, kFactor));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, ConvOf(c, n, x, w, kNoValue, kSum));
  if (bias == kNoValue) return v;
  TEMPER_ASSIGN_OR_RETURN(bias, ForFilters(c, bias, c.Rank(v) - 2));
  return c.Call("add", {}, {v, bias});
}

absl::Status ConvInteger(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, IntegerConv(c, n, n.Input(0), n.Input(2), n.Input(1), n.Input(3), kNoValue));
  return c.Set(n, v);
}

absl::Status QLinearConv(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId sums,
                          IntegerConv(c, n, n.Input(0), n.Input(2), n.Input(3), n.Input(5), n.Input(8)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId w_scale, ForFilters(c, n.Input(4), c.Rank(n.Input(3)) - 2));
  TEMPER_ASSIGN_OR_RETURN(const ValueId x_scale, c.Reshape(n.Input(1), {}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Requantized(c, sums, x_scale, w_scale, {n.Input(6), n.Input(7)}));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> QuantizeTable() {
  static constexpr TableEntry kTable[] = {{"DequantizeLinear", DequantizeLinear, 2, Extents::kAlongAnyAxis},
                                          {"QuantizeLinear", QuantizeLinear, 2, Extents::kAlongAnyAxis},
                                          {"DynamicQuantizeLinear", DynamicQuantizeLinear, 1, Extents::kAlongAnyAxis},
                                          {"MatMulInteger", MatMulInteger, 2, Extents::kAlongAnyAxis},
                                          {"ConvInteger", ConvInteger, 2, Extents::kAlongAnyAxis},
                                          {"QLinearMatMul", QLinearMatMul, 8, Extents::kAlongAnyAxis},
                                          {"QLinearConv", QLinearConv, 8, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
