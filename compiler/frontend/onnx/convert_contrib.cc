// Operators of ONNX Runtime's own domain, com.microsoft, that its quantizer and its optimizer write into models: each
// is a few nodes of ONNX's operators, which are added in its place.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/attention.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"
#include "compiler/frontend/onnx/rewrite.h"

namespace temper::onnx_frontend {
namespace {

// --- activations and norms ---

// gelu(x + bias)
absl::Status BiasGelu(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  std::string x = r.Operand(0);
  if (!r.Operand(1).empty()) x = r.Add("Add", {x, r.Operand(1)});
  const std::string y = r.Add("Gelu", {x});
  if (n.proto.op_type() == "FastGelu") r.With("approximate", "tanh");
  return r.Finish({y});
}

// x * sigmoid(alpha x)
absl::Status QuickGelu(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  const std::string inner = r.Add("Mul", {r.Operand(0), r.Number(n.Float("alpha", 1.702))});
  return r.Finish({r.Add("Mul", {r.Operand(0), r.Add("Sigmoid", {inner})})});
}

absl::Status SimplifiedLayerNorm(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  const std::string y = r.Add("RMSNormalization", {r.Operand(0), r.Operand(1)});
  r.WithCalls();
  return r.Finish({y});
}

// The norm of x + skip + bias, its moments, and that sum as the fourth result.
absl::Status SkipLayerNorm(Context& c, const OnnxNode& n) {
  const bool simplified = n.proto.op_type() == "SkipSimplifiedLayerNormalization";
  Rewrite r(c, n);
  std::string sum = r.Add("Add", {r.Operand(0), r.Operand(1)});
  if (const std::string bias = r.Operand(simplified ? 3 : 4); !bias.empty()) sum = r.Add("Add", {sum, bias});
  NodeNames results = {simplified ? r.Add("RMSNormalization", {sum, r.Operand(2)})
                                  : r.Add("LayerNormalization", {sum, r.Operand(2), r.Operand(3)})};
  for (int i = 1; i < 3; ++i) {
    const bool wanted = !simplified && n.proto.output_size() > i && !n.proto.output(i).empty();
    const std::string moment = simplified ? "" : r.Further();
    results.push_back(wanted ? moment : "");
  }
  r.With("epsilon", n.Float("epsilon", 1e-12));
  results.push_back(sum);
  return r.Finish(results);
}

// The second result of EmbedLayerNormalization: how many elements of each row of the mask are 1. Nothing is counted
// where there is no mask.
absl::Status SetMaskLengths(Context& c, const OnnxNode& n) {
  if (n.proto.output_size() < 2 || n.proto.output(1).empty()) return absl::OkStatus();
  const Shape ids = c.ShapeOf(n.Input(0));
  const ValueId mask = n.Input(7);
  if (mask == kNoValue) {
    Varyings batch;
    if (const Varying* own = c.VaryingAlong(n.Input(0), 0)) batch = {*own};
    TEMPER_ASSIGN_OR_RETURN(const ValueId none, WithVaryings(c, c.Constant(NDArray(DType::kI32, {ids[0]})), batch));
    return c.Set(n, none, 1);
  }
  if (c.ShapeOf(mask) != ids) return absl::InvalidArgumentError("its mask has the ids' shape");
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("equal", {}, {mask, c.Scalar(c.TypeOf(mask).dtype, 1)}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, DType::kI32));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_sum", v, {1}, false));
  return c.Set(n, v, 1);
}

// The norm of the sum of a word's, a position's and a segment's embedding; positions count up where none are given.
absl::Status EmbedLayerNorm(Context& c, const OnnxNode& n) {
  for (const size_t needed : {2, 3, 5, 6}) {
    if (n.Input(needed) == kNoValue) return absl::InvalidArgumentError(absl::StrCat("operand ", needed, " is missing"));
  }
  const Shape ids = c.ShapeOf(n.Input(0)), positions = c.ShapeOf(n.Input(3));
  if (ids.size() != 2 || positions.size() != 2 || ids[1] > positions[0])
    return absl::InvalidArgumentError("takes ids of [batch, sequence], and an embedding for each position");
  TEMPER_RETURN_IF_ERROR(SetMaskLengths(c, n));
  OnnxNode call = n;
  if (n.Input(8) == kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(call.inputs[3], c.Slice(n.Input(3), 0, 0, ids[1]));
    if (const Varying* own = c.VaryingAlong(n.Input(0), 1)) {
      TEMPER_ASSIGN_OR_RETURN(call.inputs[3], WithVaryings(c, call.inputs[3], {{0, own->extent}}));
    }
  }
  Rewrite r(c, call);
  std::string sum = r.Add("Gather", {r.Operand(2), r.Operand(0)});
  sum = r.Add("Add", {sum, n.Input(8) == kNoValue ? r.Operand(3) : r.Add("Gather", {r.Operand(3), r.Operand(8)})});
  if (n.Input(1) != kNoValue && n.Input(4) != kNoValue)
    sum = r.Add("Add", {sum, r.Add("Gather", {r.Operand(4), r.Operand(1)})});
  const std::string y = r.Add("LayerNormalization", {sum, r.Operand(5), r.Operand(6)});
  r.With("epsilon", n.Float("epsilon", 1e-12));
  return r.Finish({y, "", sum});
}

// Embeddings and the norm's weights are quantised; their scales follow the mask, then their zero points.
absl::Status QEmbedLayerNorm(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  NodeNames floats;
  for (size_t i = 2; i < 7; ++i)
    floats.push_back(
        r.Operand(i).empty() ? "" : r.Add("DequantizeLinear", {r.Operand(i), r.Operand(i + 6), r.Operand(i + 11)}));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> values, r.Values(floats));
  OnnxNode call = n;
  call.inputs.resize(8, kNoValue);
  std::ranges::copy(values, call.inputs.begin() + 2);
  return EmbedLayerNorm(c, call);
}

// --- products ---

// What lies as [rows, batch..., columns] as a batch of matrices.
absl::StatusOr<ValueId> BatchFirst(Context& c, ValueId v, bool wanted) {
  const int64_t rank = c.Rank(v);
  if (!wanted || rank < 3) return v;
  std::vector<int64_t> order = AxesFrom(1, rank - 1);
  order.insert(order.end(), {0, rank - 1});
  return c.Transpose(v, std::move(order));
}

absl::Status FusedMatMul(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId a, BatchFirst(c, n.Input(0), n.Int("transBatchA", 0) != 0));
  TEMPER_ASSIGN_OR_RETURN(const ValueId b, BatchFirst(c, n.Input(1), n.Int("transBatchB", 0) != 0));
  Attrs attrs;
  if (n.Int("transA", 0) != 0) attrs.Set("trans_a", int64_t{1});
  if (n.Int("transB", 0) != 0) attrs.Set("trans_b", int64_t{1});
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("matmul", std::move(attrs), {a, b}));
  if (const double alpha = n.Float("alpha", 1); alpha != 1) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, c.Scalar(c.TypeOf(v).dtype, alpha)}));
  }
  return c.Set(n, v);
}

// A convolution, or a product, with what is added to it and an activation.
absl::Status WithActivation(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  const bool conv = n.proto.op_type() == "FusedConv";
  std::string y = r.Add(conv ? "Conv" : "Gemm", {r.Operand(0), r.Operand(1), r.Operand(2)});
  r.WithCalls({"activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma"});
  if (conv && !r.Operand(3).empty()) y = r.Add("Add", {y, r.Operand(3)});
  const std::string activation = n.String("activation", "");
  const onnx::AttributeProto* params = n.Find("activation_params");
  const auto param = [&](int i, const char* name, double otherwise) {
    return params != nullptr && i < params->floats_size() ? static_cast<double>(params->floats(i))
                                                          : n.Float(name, otherwise);
  };
  constexpr std::string_view kPlain[] = {"Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "HardSwish"};
  constexpr std::pair<std::string_view, double> kOfAlpha[] = {
      {"LeakyRelu", 0.01}, {"Elu", 1}, {"Celu", 1}, {"ThresholdedRelu", 1}};
  const auto of_alpha = std::ranges::find(kOfAlpha, activation, &std::pair<std::string_view, double>::first);
  if (std::ranges::count(kPlain, activation) > 0) {
    y = r.Add(activation.c_str(), {y});
  } else if (of_alpha != std::end(kOfAlpha)) {
    y = r.Add(activation.c_str(), {y});
    r.With("alpha", param(0, "activation_alpha", of_alpha->second));
  } else if (activation == "Selu") {
    y = r.Add("Selu", {y});
    r.With("alpha", param(0, "activation_alpha", 1.67326)).With("gamma", param(1, "activation_gamma", 1.0507));
  } else if (activation == "ScaledTanh" || activation == "ParametricSoftplus") {
    const std::string inner = r.Add("Mul", {y, r.Number(param(1, "activation_beta", 1))});
    y = r.Add(activation == "ScaledTanh" ? "Tanh" : "Softplus", {inner});
    y = r.Add("Mul", {y, r.Number(param(0, "activation_alpha", 1))});
  } else if (activation == "HardSigmoid") {
    y = r.Add("HardSigmoid", {y});
    r.With("alpha", param(0, "activation_alpha", 0.2)).With("beta", param(1, "activation_beta", 0.5));
  } else if (activation == "Clip" && params != nullptr && params->floats_size() == 2) {
    y = r.Add("Clip", {y, r.Number(params->floats(0)), r.Number(params->floats(1))});
  } else if (!activation.empty()) {
    return absl::UnimplementedError(absl::StrCat("activation '", activation, "' is not supported"));
  }
  return r.Finish({y});
}

// Weights of 2, 4 or 8 bits in blocks along the rows that are summed, packed into bytes: [n, blocks, bytes of a block].
absl::StatusOr<NDArray> Unpacked(const NDArray& packed, const Shape& shape, int64_t bits, int64_t block) {
  const int64_t rows = shape[0], depth = shape[1], blocks = CeilDiv(depth, block), in_byte = 8 / bits;
  if (packed.dtype() != DType::kU8 || packed.size() != rows * blocks * block / in_byte)
    return absl::InvalidArgumentError(absl::StrCat("packed numbers of ", bits, " bits are u8, ",
                                                   rows * blocks * block / in_byte, " of them and not ",
                                                   packed.size()));
  const std::span<const uint8_t> bytes = packed.as<uint8_t>();
  NDArray numbers(DType::kU8, shape);
  uint8_t* to = numbers.as<uint8_t>().data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t at = row * blocks * block + i;
      *to++ =
          static_cast<uint8_t>(bytes[static_cast<size_t>(at / in_byte)] >> (at % in_byte * bits) & ((1 << bits) - 1));
    }
  }
  return numbers;
}

// The zero points of weights that come without them.
NDArray MiddleOf(int64_t bits, Shape shape) {
  NDArray zeros(DType::kU8, std::move(shape));
  std::ranges::fill(zeros.as<uint8_t>(), static_cast<uint8_t>(1 << (bits - 1)));
  return zeros;
}

// g_idx says which block's scale each element of a row has. The order in which blocks lie one behind another; none if
// they do so already.
absl::StatusOr<std::vector<int64_t>> OrderOfBlocks(Context& c, ValueId groups, int64_t depth, int64_t block) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> group, c.KnownInts(groups, "g_idx"));
  if (std::ssize(group) != depth) return absl::InvalidArgumentError(absl::StrCat("g_idx has ", depth, " numbers"));
  std::vector<int64_t> order = AxesFrom(0, depth);
  std::ranges::stable_sort(order, {}, [&](int64_t i) { return group[static_cast<size_t>(i)]; });
  for (int64_t i = 0; i < depth; ++i) {
    if (group[static_cast<size_t>(order[static_cast<size_t>(i)])] != i / block)
      return absl::UnimplementedError("g_idx is supported where each of its groups is a block in size");
  }
  if (std::ranges::is_sorted(order)) order.clear();
  return order;
}

// The columns of a matrix in this order.
NDArray Reordered(const NDArray& from, const std::vector<int64_t>& order) {
  NDArray to(from.dtype(), from.shape());
  const size_t columns = order.size();
  const std::span<const uint8_t> old = from.as<uint8_t>();
  const std::span<uint8_t> fresh = to.as<uint8_t>();
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i] = old[i - i % columns + static_cast<size_t>(order[i % columns])];
  return to;
}

constexpr int64_t kAccuracyOfBytes = 4;  // the attribute where the left operand may be rounded to 8 bits

// What a product of [..., depth] with weights whose zero points are halves of their range has too much where they are
// floats: the sums over each block, by what the blocks' zero points are above the halves, in units of the scales.
absl::StatusOr<ValueId> AboveMiddle(Context& c, const OnnxNode& n, ValueId rows, int64_t columns, int64_t block) {
  const double middle = static_cast<double>(1 << (n.Int("bits", 4) - 1));
  Shape shape = c.ShapeOf(rows);
  const int64_t depth = shape.back(), blocks = CeilDiv(depth, block);
  if (depth % block != 0) {
    std::vector<int64_t> pads(2 * shape.size(), 0);
    pads.back() = blocks * block - depth;
    TEMPER_ASSIGN_OR_RETURN(rows, c.Pad(rows, std::move(pads)));
  }
  shape.back() = blocks;
  shape.push_back(block);
  TEMPER_ASSIGN_OR_RETURN(rows, c.Reshape(rows, shape));
  TEMPER_ASSIGN_OR_RETURN(rows, c.Reduce("reduce_sum", rows, {std::ssize(shape) - 1}, false));
  Formula f(c, c.TypeOf(n.Input(2)).dtype);
  TEMPER_ASSIGN_OR_RETURN(ValueId zeros, c.Cast(n.Input(3), c.TypeOf(n.Input(2)).dtype));
  TEMPER_ASSIGN_OR_RETURN(zeros, c.Reshape(zeros, {columns, blocks}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId scales, c.Reshape(n.Input(2), {columns, blocks}));
  Attrs across;
  across.Set("trans_b", int64_t{1});
  const ValueId y = f.Call("matmul", {rows, f.Mul(f.Plus(zeros, -middle), scales)}, std::move(across));
  TEMPER_RETURN_IF_ERROR(f.status());
  return y;
}

absl::Status MatMulNBits(Context& c, const OnnxNode& n) {
  const int64_t depth = n.Int("K", 0), columns = n.Int("N", 0), bits = n.Int("bits", 4), block = n.Int("block_size", 0);
  if (n.Int("weight_prepacked", 0) != 0) return absl::UnimplementedError("weight_prepacked is not supported");
  if (bits != 2 && bits != 4 && bits != 8)
    return absl::UnimplementedError(absl::StrCat(bits, " bits are not supported"));
  constexpr int64_t kMost = int64_t{1} << 30;  // products of three of them, over a block, do not overflow
  if (std::max({depth, columns, block}) > kMost) return absl::UnimplementedError("K, N or block_size is too large");
  if (depth < 1 || columns < 1 || block < 16 || c.ShapeOf(n.Input(0)).empty() || c.ShapeOf(n.Input(0)).back() != depth)
    return absl::InvalidArgumentError("K, N and block_size are those of its operands");
  const NDArray* packed = c.Known(n.Input(1));
  if (packed == nullptr) return absl::UnimplementedError("the weights depend on the model's inputs");
  const int64_t blocks = CeilDiv(depth, block);
  const Shape& scales = c.ShapeOf(n.Input(2));
  if (NumElements(scales) != columns * blocks || (scales.size() > 1 && scales[0] != columns))
    return absl::InvalidArgumentError("there is one scale for each block");
  if (n.Input(5) != kNoValue && c.ShapeOf(n.Input(5)) != Shape{columns})
    return absl::InvalidArgumentError(absl::StrCat("the bias has ", columns, " numbers"));
  TEMPER_ASSIGN_OR_RETURN(NDArray weights, Unpacked(*packed, {columns, depth}, bits, block));
  std::vector<int64_t> order;
  if (n.Input(4) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(order, OrderOfBlocks(c, n.Input(4), depth, block));
    if (!order.empty()) weights = Reordered(weights, order);
  }
  NDArray zeros = MiddleOf(bits, {columns, blocks});
  OnnxNode call = n;
  if (const ValueId zero = n.Input(3); zero != kNoValue) {
    const NDArray* given = c.Known(zero);
    if (given == nullptr) return absl::UnimplementedError("the zero points depend on the model's inputs");
    if (IsFloat(given->dtype())) {
      if (given->size() != columns * blocks)
        return absl::InvalidArgumentError("there is one zero point for each block");
    } else {
      const int64_t in_byte = 8 / bits, padded = CeilDiv(blocks, in_byte) * in_byte;
      TEMPER_ASSIGN_OR_RETURN(zeros, Unpacked(*given, {columns, blocks}, bits, padded));
    }
  }
  call.inputs[1] = c.Constant(std::move(weights));
  TEMPER_ASSIGN_OR_RETURN(call.inputs[2], c.Reshape(n.Input(2), {columns, blocks}));
  call.inputs.resize(6, kNoValue);
  call.inputs[3] = c.Constant(std::move(zeros));
  Rewrite r(c, call);
  const std::string b = r.Add("DequantizeLinear", {r.Operand(1), r.Operand(2), r.Operand(3)});
  r.With("axis", int64_t{1}).With("block_size", block);
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> floats, r.Values({r.Add("Transpose", {b})}));
  Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(ValueId rows, c.Reshape(n.Input(0), shape.size() > 1 ? shape : Shape{1, depth}));
  if (!order.empty()) {
    TEMPER_ASSIGN_OR_RETURN(rows, c.Gather(rows, c.IntVector(order), c.Rank(rows) - 1));
  }
  Attrs attrs;
  if (n.Int("accuracy_level", 0) == kAccuracyOfBytes) attrs.Set("left_bits", int64_t{8});
  TEMPER_ASSIGN_OR_RETURN(ValueId y, c.Call("matmul", std::move(attrs), {rows, floats[0]}));
  if (n.Input(3) != kNoValue && IsFloat(c.TypeOf(n.Input(3)).dtype)) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId above, AboveMiddle(c, n, rows, columns, block));
    TEMPER_ASSIGN_OR_RETURN(y, c.Call("sub", {}, {y, above}));
  }
  if (n.Input(5) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(y, c.Call("add", {}, {y, n.Input(5)}));
  }
  shape.back() = columns;
  TEMPER_ASSIGN_OR_RETURN(y, c.Reshape(y, std::move(shape)));
  return c.Set(n, y);
}

// Rows of a table of 4 or 8 bits, dequantised.
absl::Status GatherBlockQuantized(Context& c, const OnnxNode& n) {
  const NDArray* table = c.Known(n.Input(0));
  if (table == nullptr) return absl::UnimplementedError("the table depends on the model's inputs");
  const int64_t bits = n.Int("bits", 4), block = n.Int("block_size", 128);
  const bool bytes = table->dtype() == DType::kU8, halves = bytes && bits == 4;
  Shape shape = table->shape();
  const int64_t axis = n.Int("quantize_axis", 1);
  if (shape.size() != 2 || n.Int("gather_axis", 0) != 0 || (axis != 1 && axis != -1))
    return absl::UnimplementedError("only rows of a matrix that is quantized along them are supported");
  if (table->size() == 0 || block < 16) return absl::InvalidArgumentError("the table is empty, or block_size below 16");
  const bool fours = table->dtype() == DType::kU4 || table->dtype() == DType::kI4;
  if (!halves && !(bytes && bits == 8) && !(fours && bits == 4))
    return absl::UnimplementedError(
        absl::StrCat("a table of ", std::string(Name(table->dtype())), " and ", bits, " bits"));
  if (halves) shape[1] *= 2;
  const Shape each = {shape[0], CeilDiv(shape[1], block)};
  if (c.ShapeOf(n.Input(2)) != each)
    return absl::InvalidArgumentError(absl::StrCat("scales are [", ShapeText(each), "], one for each block"));
  const Shape packed = {each[0], halves ? CeilDiv(each[1], int64_t{2}) : each[1]};
  if (n.Input(3) != kNoValue && c.ShapeOf(n.Input(3)) != packed)
    return absl::InvalidArgumentError(absl::StrCat("zero points are [", ShapeText(packed), "]"));

  OnnxNode call = n;
  call.inputs.resize(4, kNoValue);
  if (halves) {
    TEMPER_ASSIGN_OR_RETURN(NDArray numbers, Unpacked(*table, shape, 4, shape[1]));
    call.inputs[0] = c.Constant(std::move(numbers));
  }
  ValueId& zeros = call.inputs[3];
  if (zeros == kNoValue && bytes) {
    zeros = c.Constant(MiddleOf(bits, each));
  } else if (zeros != kNoValue && halves) {
    const NDArray* given = c.Known(zeros);
    if (given == nullptr) return absl::UnimplementedError("the zero points depend on the model's inputs");
    TEMPER_ASSIGN_OR_RETURN(NDArray numbers, Unpacked(*given, each, 4, 2 * packed[1]));
    zeros = c.Constant(std::move(numbers));
  }
  for (ValueId* numbers : {&call.inputs[0], &zeros}) {
    if (*numbers != kNoValue) *numbers = InBytes(c, *numbers);
  }
  Rewrite r(c, call);
  NodeNames rows;
  for (const size_t i : {0, 2, 3})
    rows.push_back(r.Operand(i).empty() ? "" : r.Add("Gather", {r.Operand(i), r.Operand(1)}));
  const std::string y = r.Add("DequantizeLinear", rows);
  r.With("axis", int64_t{-1}).With("block_size", block);
  return r.Finish({y});
}

// --- products of integers ---

// (a - zero) (b - zero) * scales + bias, in floats; operands by their places.
std::string IntegerProduct(Rewrite& r, const std::string& a, const std::string& a_scale, const std::string& a_zero,
                           const std::string& b, const std::string& b_scale, const std::string& b_zero,
                           const std::string& bias) {
  const std::string sums = r.Add("MatMulInteger", {a, b, a_zero, b_zero});
  const std::string floats = r.Add("Cast", {sums});
  r.With("to", int64_t{onnx::TensorProto::FLOAT});
  const std::string y = r.Add("Mul", {floats, r.Add("Mul", {a_scale, b_scale})});
  return bias.empty() ? y : r.Add("Add", {y, bias});
}

absl::Status MatMulIntegerToFloat(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  return r.Finish({IntegerProduct(r, r.Operand(0), r.Operand(2), r.Operand(4), r.Operand(1), r.Operand(3), r.Operand(5),
                                  r.Operand(6))});
}

absl::Status DynamicQuantizeMatMul(Context& c, const OnnxNode& n) {
  // The quantization has three results, of which a node of Rewrite names one.
  onnx::NodeProto proto;
  proto.set_name(n.proto.name());
  for (const char* name : {"numbers", "scale", "zero"}) proto.add_output(absl::StrCat(n.proto.output(0), ".", name));
  proto.set_op_type("DynamicQuantizeLinear");
  OnnxNode call = n;
  call.inputs.resize(7, kNoValue);
  {
    Context::Scope scope(c, /*closed=*/true);
    TEMPER_RETURN_IF_ERROR(FindConverter(proto)->convert(c, OnnxNode{proto, n.opset, {n.Input(0)}}));
    for (const auto& [operand, output] : {std::pair{0, 0}, {5, 1}, {6, 2}})
      call.inputs[static_cast<size_t>(operand)] = c.Find(proto.output(output))->value;
  }
  Rewrite r(c, call);
  return r.Finish({IntegerProduct(r, r.Operand(0), r.Operand(5), r.Operand(6), r.Operand(1), r.Operand(2), r.Operand(3),
                                  r.Operand(4))});
}

// --- quantised operators, as "QDQ" has them ---

// Operands i, i + 1 and i + 2 are numbers, their scale and their zero point.
std::string Floats(Rewrite& r, size_t i) {
  return r.Add("DequantizeLinear", {r.Operand(i), r.Operand(i + 1), r.Operand(i + 2)});
}
// Without a zero point the result has the type that the first operand's numbers have.
std::string Numbers(Rewrite& r, Context& c, ValueId like, const std::string& y, size_t scale) {
  const std::string numbers = r.Add("QuantizeLinear", {y, r.Operand(scale), r.Operand(scale + 1)});
  const bool is_signed = c.TypeOf(like).dtype == DType::kI8;
  r.With("output_dtype", int64_t{is_signed ? onnx::TensorProto::INT8 : onnx::TensorProto::UINT8});
  return numbers;
}

template <const char* const& op>
absl::Status QLinearUnary(Context& c, const OnnxNode& n) {
  if (n.proto.op_type() == "QLinearSoftmax" && n.Int("opset", 13) < 13) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", -1), c.Rank(n.Input(0))));
    if (axis + 1 != c.Rank(n.Input(0)))
      return absl::UnimplementedError("before opset 13 only the last axis is supported");
  }
  const int64_t rank = c.Rank(n.Input(0));
  const bool last = n.Int("channels_last", 0) != 0;
  if (last && rank < 3) return absl::InvalidArgumentError("takes an image");
  Rewrite r(c, n);
  std::string y = Floats(r, 0);
  if (last) y = r.ChannelsSecond(y, rank);
  y = r.Add(op, {y});
  r.WithCalls({"channels_last", "opset"});
  if (last) y = r.ChannelsLast(y, rank);
  return r.Finish({Numbers(r, c, n.Input(0), y, 3)});
}

template <const char* const& op>
absl::Status QLinearBinary(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  const std::string a = Floats(r, 0), b = Floats(r, 3);
  return r.Finish({Numbers(r, c, n.Input(0), r.Add(op, {a, b}), 6)});
}

// Behind the condition come three operands for each choice.
absl::Status QLinearWhere(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  const std::string y = r.Add("Where", {r.Operand(0), Floats(r, 1), Floats(r, 4)});
  return r.Finish({Numbers(r, c, n.Input(1), y, 7)});
}

// The scale and the zero point of the result come first, then three operands for each part.
absl::Status QLinearConcat(Context& c, const OnnxNode& n) {
  if (n.inputs.size() % 3 != 2)
    return absl::InvalidArgumentError("a part has numbers, their scale and their zero point");
  Rewrite r(c, n);
  NodeNames parts;
  for (size_t i = 2; i + 2 < n.inputs.size(); i += 3) parts.push_back(Floats(r, i));
  const std::string y = r.Add("Concat", parts);
  r.WithCalls();
  return r.Finish({Numbers(r, c, n.Input(2), y, 0)});
}

// The bias is of 32 bits and has the scale of the product. Without a scale of its own the result is of floats.
absl::Status QGemm(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  const std::string a = Floats(r, 0), b = r.Add("DequantizeLinear", {r.Operand(3), r.Operand(4), r.Operand(5)});
  r.With("axis", int64_t{n.Int("transB", 0) != 0 ? 0 : 1});
  std::string y = r.Add("Gemm", {a, b});
  r.WithCalls({"alpha"});
  if (!r.Operand(6).empty()) {
    const std::string floats = r.Add("Cast", {r.Operand(6)});
    r.With("to", int64_t{onnx::TensorProto::FLOAT});
    y = r.Add("Add", {y, r.Add("Mul", {floats, r.Add("Mul", {r.Operand(1), r.Operand(4)})})});
  }
  if (const double alpha = n.Float("alpha", 1); alpha != 1) y = r.Add("Mul", {y, r.Number(alpha)});
  return r.Finish({r.Operand(7).empty() ? y : Numbers(r, c, n.Input(0), y, 7)});
}

// --- attention ---

// Queries, keys and values come from one product of bytes.
absl::Status QAttention(Context& c, const OnnxNode& n) {
  Rewrite r(c, n);
  const std::string product = IntegerProduct(r, r.Operand(0), r.Operand(3), r.Operand(6), r.Operand(1), r.Operand(4),
                                             r.Operand(7), r.Operand(2));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ValueId> all, r.Values({product}));
  return SetFusedAttention(c, n, all[0], n.Input(5), kNoValue, n.Input(8));
}

// Where their number is not stated, heads are as long as a row of the caches has pairs.
int64_t RotaryHeads(Context& c, const OnnxNode& n) {
  const Shape &x = c.ShapeOf(n.Input(0)), &cosines = c.ShapeOf(n.Input(2));
  const int64_t stated = n.Int("num_heads", 0);
  if (stated != 0 || n.Int("rotary_embedding_dim", 0) != 0 || cosines.size() != 2 || cosines[1] < 1) return stated;
  return x.back() / 2 / cosines[1];
}

absl::Status Rotary(Context& c, const OnnxNode& n) {
  if (n.Float("scale", 1) != 1 || n.Int("is_packed_batching", 0) != 0)
    return absl::UnimplementedError("a scale and packed batches are not supported");
  const Shape shape = c.ShapeOf(n.Input(0)), positions = c.ShapeOf(n.Input(1));
  if (shape.size() < 3) return absl::InvalidArgumentError("takes three axes or four");
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(0), "an embedding"));
  const int64_t batch = shape[0], sequence = shape.size() == 4 ? shape[2] : shape[1];
  OnnxNode call = n;
  if (NumElements(positions) == 1) {  // of the first; the others follow
    TEMPER_ASSIGN_OR_RETURN(ValueId first, c.Reshape(n.Input(1), {1, 1}));
    TEMPER_ASSIGN_OR_RETURN(first, c.Call("add", {}, {first, Counting(c, DType::kI64, {1, sequence})}));
    TEMPER_ASSIGN_OR_RETURN(first, c.Expand(first, {batch, sequence}));
    Varyings own;
    for (const auto& [axis, from] : {std::pair(0, 0), {1, shape.size() == 4 ? 2 : 1}}) {
      if (const Varying* varying = c.VaryingAlong(n.Input(0), from)) own.push_back({axis, varying->extent});
    }
    TEMPER_ASSIGN_OR_RETURN(call.inputs[1], WithVaryings(c, first, own));
  }
  Rewrite r(c, call);
  const std::string y = r.Add("RotaryEmbedding", {r.Operand(0), r.Operand(2), r.Operand(3), r.Operand(1)});
  r.WithCalls({"scale", "is_packed_batching", "num_heads"});
  r.With("num_heads", RotaryHeads(c, n));
  return r.Finish({y});
}

constexpr const char* kAdd = "Add";
constexpr const char* kMul = "Mul";
constexpr const char* kSigmoid = "Sigmoid";
constexpr const char* kLeakyRelu = "LeakyRelu";
constexpr const char* kSoftmax = "Softmax";
constexpr const char* kAveragePool = "AveragePool";
constexpr const char* kGlobalAveragePool = "GlobalAveragePool";

}  // namespace

std::span<const TableEntry> ContribTable() {
  static constexpr TableEntry kTable[] = {
      {"Gelu", BiasGelu, 1, Extents::kAlongAnyAxis},
      {"FastGelu", BiasGelu, 1, Extents::kAlongAnyAxis},
      {"BiasGelu", BiasGelu, 2, Extents::kAlongAnyAxis},
      {"QuickGelu", QuickGelu, 1, Extents::kAlongAnyAxis},
      {"SimplifiedLayerNormalization", SimplifiedLayerNorm, 2, Extents::kAlongAnyAxis},
      {"SkipLayerNormalization", SkipLayerNorm, 3, Extents::kAlongAnyAxis},
      {"SkipSimplifiedLayerNormalization", SkipLayerNorm, 3, Extents::kAlongAnyAxis},
      {"EmbedLayerNormalization", EmbedLayerNorm, 1, Extents::kAlongAnyAxis},
      {"QEmbedLayerNormalization", QEmbedLayerNorm, 1, Extents::kAlongAnyAxis},
      {"FusedMatMul", FusedMatMul, 2, Extents::kAlongAnyAxis},
      {"TransposeMatMul", FusedMatMul, 2, Extents::kAlongAnyAxis},  // its older name
      {"FusedConv", WithActivation, 2, Extents::kAlongAnyAxis},
      {"FusedGemm", WithActivation, 2, Extents::kAlongAnyAxis},
      {"MatMulNBits", MatMulNBits, 3, Extents::kAlongAnyAxis},
      {"GatherBlockQuantized", GatherBlockQuantized, 3},
      {"MatMulIntegerToFloat", MatMulIntegerToFloat, 4, Extents::kAlongAnyAxis},
      {"DynamicQuantizeMatMul", DynamicQuantizeMatMul, 3, Extents::kAlongAnyAxis},
      {"QLinearAdd", QLinearBinary<kAdd>, 7, Extents::kAlongAnyAxis},
      {"QLinearMul", QLinearBinary<kMul>, 7, Extents::kAlongAnyAxis},
      {"QLinearSigmoid", QLinearUnary<kSigmoid>, 4, Extents::kAlongAnyAxis},
      {"QLinearLeakyRelu", QLinearUnary<kLeakyRelu>, 4, Extents::kAlongAnyAxis},
      {"QLinearSoftmax", QLinearUnary<kSoftmax>, 4, Extents::kAlongAnyAxis},
      {"QLinearAveragePool", QLinearUnary<kAveragePool>, 4, Extents::kAlongAnyAxis},
      {"QLinearGlobalAveragePool", QLinearUnary<kGlobalAveragePool>, 4, Extents::kAlongAnyAxis},
      {"QLinearWhere", QLinearWhere, 9, Extents::kAlongAnyAxis},
      {"QLinearConcat", QLinearConcat, 5, Extents::kAlongAnyAxis},
      {"QGemm", QGemm, 6, Extents::kAlongAnyAxis},
      {"Attention", FusedAttention, 2, Extents::kAlongAnyAxis},
      {"QAttention", QAttention, 5, Extents::kAlongAnyAxis},
      {"MultiHeadAttention", MultiHeadAttention, 1, Extents::kAlongAnyAxis},
      {"RotaryEmbedding", Rotary, 4, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
