// Models that only say which values are rounded how ("QDQ") multiply floats (q - zero) * scale. Such a product is the
// product of the integers, exact, times both scales.
#include <algorithm>
#include <cmath>

#include "compiler/graph/passes/integer_products.h"
#include "compiler/graph/passes/simplify.h"
#include "compiler/graph/passes/transposed_conv.h"

namespace temper::passes {
namespace {

// What a cast of a number of at most 8 bits reads.
ValueId EightBitsOf(const Rewriter& r, ValueId v) {
  const Node* cast = r.Producer(v, "cast");
  return cast != nullptr && IsNumberOf8Bits(r.TypeOf(cast->inputs[0]).dtype) ? cast->inputs[0] : kNoValue;
}

bool IsOne(const Rewriter& r, ValueId v) { return NumElements(r.ShapeOf(v)) == 1; }

// One scale for all weights, or one for each column or filter, which is an axis of theirs.
bool IsForResults(const Rewriter& r, ValueId scale, const Shape& weights, size_t axis) {
  if (IsOne(r, scale)) return true;
  const Shape& shape = r.ShapeOf(scale);
  const size_t missing = weights.size() - shape.size();  // axes that broadcasting adds
  return NumElements(shape) == weights[axis] && axis >= missing && shape[axis - missing] == weights[axis];
}

// F(2,3) and F(4,3) of floats take less time than products of integers of twice their speed, and more than of four
// times. They take more also where an image has few pixels for its filters: those come as floats, four times as many
// bytes, and are transformed for a few tiles.
bool HasWinograd(const Node& node, const Shape& image, const Shape& weights) {
  constexpr int64_t kFewPixels = 8;
  const std::vector<int64_t> ones = {1, 1};
  if (NumElements(weights) >= kFewPixels * NumElements(image)) return false;
  return node.op == "conv2d" && weights[2] == 3 && weights[3] == 3 && node.attrs.Int("group", 1) == 1 &&
         node.attrs.Ints("strides", ones) == ones && node.attrs.Ints("dilations", ones) == ones &&
         node.attrs.Int("winograd", 1) != 0;
}

// A number of 8 bits is at most 255 off its zero point. Floats do not wrap.
bool SumsMayWrap(const Node& node, const Shape& weights) {
  const bool trans_b = node.attrs.Int("trans_b", 0) != 0;
  const int64_t depth =
      node.op == "conv2d" ? NumElements(std::span(weights).subspan(1)) : weights[weights.size() - (trans_b ? 1 : 2)];
  return depth > Largest(DType::kI32) / (255 * 255);
}

absl::StatusOr<ValueId> LessZero(Rewriter& r, const Dequantized& d, DType as) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId q, EmitCast(r, d.q, as));
  if (d.zero == kNoValue) return q;
  TEMPER_ASSIGN_OR_RETURN(const ValueId zero, EmitCast(r, d.zero, as));
  return r.Emit("sub", {}, {q, zero});
}

// Dequantised numbers, or where conditions do not all hold, as behind ends that a run knows, one number instead.
struct Chosen {
  Dequantized numbers;
  std::vector<ValueId> conditions = {};
};
std::optional<Chosen> ChosenAt(const Rewriter& r, ValueId v, double otherwise) {
  if (const std::optional<Dequantized> numbers = DequantizedAt(r, v)) return Chosen{*numbers};
  const Node* where = r.Producer(v, "where");
  if (where == nullptr || r.ShapeOf(where->inputs[1]) != r.ShapeOf(v)) return std::nullopt;
  if (Uniform(r.Constant(where->inputs[2])) != otherwise) return std::nullopt;
  std::optional<Chosen> chosen = ChosenAt(r, where->inputs[1], otherwise);
  if (chosen.has_value()) chosen->conditions.push_back(where->inputs[0]);
  return chosen;
}

// Whether it is made of constants and of what a run says of its extents alone.
bool IsOfExtents(const Rewriter& r, ValueId v) {
  const Graph& g = r.graph();
  const auto hidden = std::span(g.inputs).last(static_cast<size_t>(g.hidden_inputs));
  if (g.values[static_cast<size_t>(v)].is_constant || std::ranges::find(hidden, v) != hidden.end()) return true;
  const Node* node = r.Producer(v);
  return node != nullptr && !IsFloat(r.TypeOf(v).dtype) &&
         std::ranges::all_of(node->inputs, [&](ValueId input) { return input != kNoValue && IsOfExtents(r, input); });
}

// The numbers before they are dequantised, and `otherwise` among them.
absl::StatusOr<Dequantized> WithChoice(Rewriter& r, const Chosen& x, double otherwise) {
  Dequantized all = x.numbers;
  for (const ValueId condition : x.conditions) {
    NDArray other(r.TypeOf(all.q).dtype, {});
    other.Set(0, otherwise);
    TEMPER_ASSIGN_OR_RETURN(all.q, r.Emit("where", {}, {condition, all.q, r.AddConstant(std::move(other))}));
  }
  return all;
}

// What DequantizedAt finds.
absl::StatusOr<ValueId> Dequantize(Rewriter& r, const Dequantized& d, const std::string& name) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, LessZero(r, d, DType::kI32));
  TEMPER_ASSIGN_OR_RETURN(v, EmitCast(r, v, DType::kF32));
  return r.Emit("mul", {}, {v, d.scale}, name);
}

}  // namespace

bool IsNumberOf8Bits(DType dtype) {
  const DTypeInfo& type = Info(dtype);
  return (type.kind == TypeKind::kSigned || type.kind == TypeKind::kUnsigned) && type.bits <= 8;
}

std::optional<Dequantized> DequantizedAt(const Rewriter& r, ValueId v) {
  const Node* mul = r.Producer(v, "mul");
  const Node* cast = mul == nullptr ? nullptr : r.Producer(mul->inputs[0], "cast");
  if (cast == nullptr || r.TypeOf(v).dtype != DType::kF32 || r.TypeOf(cast->inputs[0]).dtype != DType::kI32)
    return std::nullopt;
  Dequantized d{EightBitsOf(r, cast->inputs[0]), kNoValue, mul->inputs[1]};
  if (const Node* sub = r.Producer(cast->inputs[0], "sub")) {
    d.q = EightBitsOf(r, sub->inputs[0]), d.zero = EightBitsOf(r, sub->inputs[1]);
    // One that was cast when the model was read.
    const NDArray* known = d.zero == kNoValue ? r.Constant(sub->inputs[1]) : nullptr;
    if (known != nullptr && LieBetween(*known, Lowest(DType::kI8), Largest(DType::kU8))) d.zero = sub->inputs[1];
    if (d.zero == kNoValue) return std::nullopt;
  }
  const bool whole = d.q != kNoValue && r.ShapeOf(d.q) == r.ShapeOf(v);
  return whole ? std::optional(d) : std::nullopt;
}

absl::StatusOr<bool> PoolDequantized(Rewriter& r, Node& node) {
  const OpDef* op = FindOp(node.op);
  if (!op->windows || !op->exact) return false;
  const std::optional<Chosen> x = ChosenAt(r, node.inputs[0], -HUGE_VAL);
  if (!x.has_value() || !IsOne(r, x->numbers.scale)) return false;
  if (x->numbers.zero != kNoValue && !IsOne(r, x->numbers.zero)) return false;
  if (!std::ranges::all_of(x->conditions, [&](ValueId condition) { return IsOfExtents(r, condition); })) return false;
  const NDArray* scale = r.Constant(x->numbers.scale);
  if (scale == nullptr || !(scale->At(0) > 0)) return false;
  // A window all of which lies behind an end has no result that anybody reads.
  TEMPER_ASSIGN_OR_RETURN(const Dequantized all, WithChoice(r, *x, Lowest(r.TypeOf(x->numbers.q).dtype)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId largest, r.Emit(node.op, node.attrs, {all.q}, node.name));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Dequantize(r, {largest, all.zero, all.scale}, node.name));
  return r.ReplaceOutput(node, v);
}

// Its filters are dequantised as the weight is: their scales once for each phase.
absl::StatusOr<bool> TransposeDequantized(Rewriter& r, Node& node) {
  if (node.op != "conv_transpose2d" || !ChosenAt(r, node.inputs[0], 0).has_value()) return false;
  const std::optional<Dequantized> w = DequantizedAt(r, node.inputs[1]);
  const NDArray *q = w.has_value() ? r.Constant(w->q) : nullptr, *scale = q == nullptr ? nullptr : r.Constant(w->scale);
  if (scale == nullptr) return false;
  const std::optional<NDArray> zero = w->zero == kNoValue ? NDArray(DType::kI32, {}) : Known(r, w->zero);
  if (!zero.has_value() || !LieBetween(*zero, 0, 0)) return false;
  const bool one_group = node.attrs.Int("group", 1) == 1;
  if (!IsOne(r, w->scale) && !(one_group && IsForResults(r, w->scale, q->shape(), 1))) return false;
  return ReplaceByConv(r, node, *q, [&](NDArray filters) {
    NDArray scales(DType::kF32, {filters.shape()[0], 1, 1, 1});
    for (int64_t i = 0; i < scales.size(); ++i) scales.Set(i, scale->At(i % scale->size()));
    const ValueId of_phases = r.AddConstant(std::move(filters));
    return Dequantize(r, {of_phases, kNoValue, r.AddConstant(std::move(scales))}, node.name);
  });
}

absl::StatusOr<bool> MultiplyDequantized(Rewriter& r, Node& node, const Target& t) {
  if ((node.op != "matmul" && node.op != "conv2d") || node.inputs[0] == node.inputs[1]) return false;
  const std::optional<Chosen> chosen = ChosenAt(r, node.inputs[0], 0);
  const std::optional<Dequantized> b = DequantizedAt(r, node.inputs[1]);
  if (!chosen.has_value() || !b.has_value() || r.Constant(b->q) == nullptr) return false;
  Dequantized a = chosen->numbers;
  const Shape weights = r.ShapeOf(b->q);
  const bool matmul = node.op == "matmul";
  const size_t axis = !matmul ? 0 : weights.size() - (node.attrs.Int("trans_b", 0) != 0 ? 2 : 1);
  if (!IsForResults(r, b->scale, weights, axis) || (HasWinograd(node, r.ShapeOf(a.q), weights) && !MultipliesBytes(t)))
    return false;
  if (!IsOne(r, a.scale) || (a.zero != kNoValue && !IsOne(r, a.zero))) return false;
  // Numbers that are none are zero, as their zero point is.
  const std::optional<NDArray> zero = a.zero == kNoValue ? NDArray(DType::kI32, {}) : Known(r, a.zero);
  if (SumsMayWrap(node, weights) || (!chosen->conditions.empty() && !zero.has_value())) return false;
  Workload::Operand left{r.TypeOf(a.q)}, right{r.TypeOf(b->q), true};
  left.type.dtype = right.type.dtype = DType::kI16;
  const TensorType& sums = r.TypeOf(node.output);
  if (!HasIntegerTemplate(node, left, right, sums, t) && !HasBytesTemplate(node, left, right, sums, t)) return false;

  TEMPER_ASSIGN_OR_RETURN(a, WithChoice(r, *chosen, zero.has_value() ? zero->At(0) : 0));
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, LessZero(r, a, DType::kI16));
  TEMPER_ASSIGN_OR_RETURN(const ValueId w, LessZero(r, *b, DType::kI16));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, r.Emit(node.op, WithResult(node.attrs, DType::kI32), {x, w}, node.name));
  TEMPER_ASSIGN_OR_RETURN(v, EmitCast(r, v, DType::kF32));
  const int64_t scales = NumElements(r.ShapeOf(b->scale));
  Attrs shape = IntsAttrs("shape", matmul ? Shape{scales} : Shape{scales, 1, 1});
  TEMPER_ASSIGN_OR_RETURN(ValueId scale, r.Emit("reshape", std::move(shape), {b->scale}));
  TEMPER_ASSIGN_OR_RETURN(scale, r.Emit("mul", {}, {scale, a.scale}));
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("mul", {}, {v, scale}, node.name));
  return r.ReplaceOutput(node, v);
}

}  // namespace temper::passes
