// A product of numbers of 8 bits less their zero points, (a - zero) . b, where four bytes are multiplied at once: it is
// a . b - zero * (the sums of b), and those sums are known when the package is made.
#include <algorithm>

#include "base/division.h"
#include "compiler/graph/passes/integer_products.h"
#include "compiler/ops/few_channels.h"

namespace temper::passes {
namespace {

constexpr double kHalf = 128;  // between numbers of i8 and of u8 with the same bits, but for the first

const std::vector<int64_t> kNoPads = {0, 0, 0, 0};

// u8 or i8, cast to i16, less a zero point of i16, which may be kNoValue.
struct Bytes {
  ValueId q = kNoValue, zero = kNoValue;
};
Bytes BytesAt(const Rewriter& r, ValueId v) {
  Bytes bytes;
  if (const Node* sub = r.Producer(v, "sub")) v = sub->inputs[0], bytes.zero = sub->inputs[1];
  const Node* cast = r.Producer(v, "cast");
  if (cast == nullptr) return bytes;
  const DType from = r.TypeOf(cast->inputs[0]).dtype;
  if (from == DType::kU8 || from == DType::kI8) bytes.q = cast->inputs[0];
  return bytes;
}

bool IsByte(double zero) { return zero >= 0 && zero <= Largest(DType::kU8); }

// Whether the zero point is one for all, or one for each row of a matrix, so that it leaves the sums; and the weights'
// sums have a shape that goes with the result's.
bool IsOutsideOfSums(const Rewriter& r, const Node& node, ValueId zero) {
  const size_t rank = r.ShapeOf(node.inputs[1]).size();
  if (node.op == "matmul" && node.attrs.Int("trans_b", 0) != 0 && rank != 2) return false;
  if (zero == kNoValue || NumElements(r.ShapeOf(zero)) == 1) return true;
  return node.op == "matmul" && node.attrs.Int("trans_a", 0) == 0 && r.ShapeOf(zero).back() == 1;
}

bool IsPadded(const Node& node) {
  return std::ranges::any_of(node.attrs.Ints("pads"), [](int64_t pad) { return pad != 0; });
}

// Of an image of few channels neighbours along a row are multiplied at once: columns that are added to the filter, to
// make their number a multiple, and to the image at its right. nullopt: channels are multiplied at once.
std::optional<int64_t> ColumnsToAdd(const Node& node, const Shape& weights) {
  constexpr int64_t kAtOnce = 4;
  const std::vector<int64_t> ones = {1, 1};
  if (node.op != "conv2d" || weights[1] > kFewChannels || weights[3] == 1 || node.attrs.Int("group", 1) != 1 ||
      node.attrs.Ints("dilations", ones)[1] != 1)
    return std::nullopt;
  return CeilDiv(weights[3], kAtOnce) * kAtOnce - weights[3];
}

std::vector<int64_t> PadsOf(const Node& node) { return node.attrs.Ints("pads", kNoPads); }

// Beside the image a window sees zeros, which are the zero point among bytes. Pads the image with that, and by columns
// that filters do not see.
absl::StatusOr<ValueId> Padded(Rewriter& r, const Node& node, ValueId image, double zero, int64_t columns) {
  const std::vector<int64_t> pads = PadsOf(node);
  Attrs pad;
  pad.Set("pads", std::vector<int64_t>{0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3] + columns});
  pad.Set("value", zero);
  return r.Emit("pad", std::move(pad), {image});
}

absl::StatusOr<ValueId> Plus(Rewriter& r, ValueId v, double number) {
  NDArray constant(r.TypeOf(v).dtype, {});
  constant.Set(0, number);
  return r.Emit("add", {}, {v, r.AddConstant(std::move(constant))});
}

// Of the weights of each element of the result, so that they broadcast with it.
absl::StatusOr<ValueId> SumsOf(Rewriter& r, const Node& node, ValueId weights) {
  const auto rank = static_cast<int64_t>(r.ShapeOf(weights).size());
  const bool matmul = node.op == "matmul", trans_b = node.attrs.Int("trans_b", 0) != 0;
  TEMPER_ASSIGN_OR_RETURN(const ValueId wide, EmitCast(r, weights, DType::kI32));
  Attrs sum;
  sum.Set("axes", !matmul ? std::vector<int64_t>{1, 2, 3} : std::vector<int64_t>{trans_b ? rank - 1 : rank - 2});
  sum.Set("keepdims", int64_t{matmul && !trans_b});
  TEMPER_ASSIGN_OR_RETURN(const ValueId sums, r.Emit("reduce_sum", std::move(sum), {wide}));
  if (matmul) return sums;
  return r.Emit("reshape", IntsAttrs("shape", {r.ShapeOf(weights)[0], 1, 1}), {sums});
}

}  // namespace

bool MultipliesBytes(const Target& t) {
  const auto has = [&](std::string_view feature) { return t.cpu() != nullptr && t.cpu()->Has(feature); };
  return has("avx512vnni") || has("avxvnni") || has("dotprod");
}

bool HasBytesTemplate(const Node& node, Workload::Operand a, Workload::Operand b, TensorType sums, const Target& t) {
  if (!MultipliesBytes(t)) return false;
  a.type.dtype = DType::kU8, b.type.dtype = DType::kI8;
  const std::optional<int64_t> columns = ColumnsToAdd(node, b.type.shape);
  if (!columns.has_value()) return HasIntegerTemplate(node, std::move(a), std::move(b), std::move(sums), t);
  const std::vector<int64_t> pads = PadsOf(node);
  a.type.shape[2] += pads[0] + pads[2];
  a.type.shape[3] += pads[1] + pads[3] + *columns;
  b.type.shape[3] += *columns;
  Node padded = node;
  padded.attrs.Set("pads", kNoPads);
  return HasIntegerTemplate(padded, std::move(a), std::move(b), std::move(sums), t);
}

absl::StatusOr<bool> MultiplyBytes(Rewriter& r, Node& node, const Target& t) {
  const bool matmul = node.op == "matmul";
  if (!MultipliesBytes(t) || (!matmul && node.op != "conv2d") || node.attrs.String("result", "") != "i32") return false;
  if (r.TypeOf(node.inputs[0]).dtype != DType::kI16) return false;
  Bytes a = BytesAt(r, node.inputs[0]);
  if (a.q == kNoValue || !IsOutsideOfSums(r, node, a.zero)) return false;
  const bool is_signed = r.TypeOf(a.q).dtype == DType::kI8;
  const std::optional<NDArray> zero = a.zero == kNoValue ? NDArray(DType::kI16, {}) : Known(r, a.zero);
  if (IsPadded(node) && (!zero.has_value() || !IsByte(zero->At(0) + (is_signed ? kHalf : 0)))) return false;
  if (!HasBytesTemplate(node, {r.TypeOf(a.q)}, OperandAt(r, node, 1), r.TypeOf(node.output), t)) return false;
  const std::optional<NDArray> weights = Known(r, node.inputs[1]);
  if (!weights.has_value() || !LieBetween(*weights, Lowest(DType::kI8), Largest(DType::kI8))) return false;

  TEMPER_ASSIGN_OR_RETURN(ValueId w, EmitCast(r, node.inputs[1], DType::kI8));
  if (is_signed) {
    TEMPER_ASSIGN_OR_RETURN(a.q, EmitCast(r, a.q, DType::kI16));
    TEMPER_ASSIGN_OR_RETURN(a.q, Plus(r, a.q, kHalf));
    TEMPER_ASSIGN_OR_RETURN(a.q, EmitCast(r, a.q, DType::kU8));
    if (a.zero == kNoValue) a.zero = r.AddConstant(NDArray(DType::kI16, {}));
    TEMPER_ASSIGN_OR_RETURN(a.zero, Plus(r, a.zero, kHalf));
  }
  Attrs attrs = node.attrs;
  const std::optional<int64_t> columns = ColumnsToAdd(node, r.ShapeOf(w));
  const double beside = zero.has_value() ? zero->At(0) + (is_signed ? kHalf : 0) : 0;
  if (columns.value_or(0) > 0 || (IsPadded(node) && (columns.has_value() || beside != 0))) {
    TEMPER_ASSIGN_OR_RETURN(a.q, Padded(r, node, a.q, beside, columns.value_or(0)));
    attrs.Set("pads", kNoPads);
  }
  if (columns.value_or(0) > 0) {
    TEMPER_ASSIGN_OR_RETURN(w, r.Emit("pad", IntsAttrs("pads", {0, 0, 0, 0, 0, 0, 0, *columns}), {w}));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, r.Emit(node.op, std::move(attrs), {a.q, w}, node.name));
  if (a.zero != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(ValueId less, SumsOf(r, node, w));
    TEMPER_ASSIGN_OR_RETURN(const ValueId each, EmitCast(r, a.zero, DType::kI32));
    TEMPER_ASSIGN_OR_RETURN(less, r.Emit("mul", {}, {less, each}));
    TEMPER_ASSIGN_OR_RETURN(v, r.Emit("sub", {}, {v, less}, node.name));
  }
  return r.ReplaceOutput(node, v);
}

}  // namespace temper::passes
