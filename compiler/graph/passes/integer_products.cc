// Products of integers, and of what was quantised to integers. Where no template multiplies integers: while sums stay
// within what f32 holds exactly, f32 multiplies as exactly as they do, and by fast kernels. A reduction is cut into
// parts whose sums stay so, and the parts are added up as integers.
#include "compiler/graph/passes/integer_products.h"

#include <algorithm>
#include <cmath>

#include "compiler/graph/passes/passes.h"
#include "compiler/ops/template.h"

namespace temper::passes {
namespace {

constexpr double kExactInF32 = 1 << 24;
constexpr int kMakers = 4;  // so far back a value is followed

std::optional<NDArray> KnownBy(const Rewriter& r, ValueId v, int makers) {
  if (const NDArray* data = r.Constant(v)) return *data;
  const Node* node = r.Producer(v);
  if (node == nullptr || makers == 0 || !FindOp(node->op)->reference) return std::nullopt;
  std::vector<NDArray> inputs;
  for (const ValueId input : node->inputs) {
    std::optional<NDArray> data = input == kNoValue ? std::nullopt : KnownBy(r, input, makers - 1);
    if (!data.has_value()) return std::nullopt;
    inputs.push_back(*std::move(data));
  }
  const absl::StatusOr<NDArray> made = FindOp(node->op)->reference(node->attrs, inputs, r.TypeOf(v));
  return made.ok() ? std::optional(*made) : std::nullopt;
}

// Whether it has such data, without making it.
bool IsKnown(const Rewriter& r, ValueId v, int makers) {
  if (r.Constant(v) != nullptr) return true;
  const Node* node = r.Producer(v);
  return node != nullptr && makers > 0 && std::ranges::all_of(node->inputs, [&](ValueId input) {
           return input != kNoValue && IsKnown(r, input, makers - 1);
         });
}

struct Range {
  double least, most;
  double magnitude() const { return std::max(std::abs(least), std::abs(most)); }
};

// What the integers of a value lie between, as far as a few of its makers tell.
Range RangeOf(const Rewriter& r, ValueId v, int makers = kMakers) {
  const DType dtype = r.TypeOf(v).dtype;
  const Range all{Lowest(dtype), Largest(dtype)};
  if (const NDArray* data = r.Constant(v); data != nullptr && data->size() == 1) return {data->At(0), data->At(0)};
  const Node* node = r.Producer(v);
  if (node == nullptr || makers == 0 || IsFloat(r.TypeOf(node->inputs[0]).dtype)) return all;
  Range made = all;
  if (node->op == "cast" || node->op == "reshape") made = RangeOf(r, node->inputs[0], makers - 1);
  if (node->op == "sub") {
    const Range a = RangeOf(r, node->inputs[0], makers - 1), b = RangeOf(r, node->inputs[1], makers - 1);
    made = {a.least - b.most, a.most - b.least};
  }
  return made.least >= all.least && made.most <= all.most ? made : all;
}

// Positions along the weights' axis that is summed, with the first and the end, between which sums are exact; empty
// where one product alone may not be. Weights before the axis, and of a matrix those behind it, belong to different
// sums.
std::vector<int64_t> Cuts(const Rewriter& r, const Node& node, size_t axis) {
  const Shape& shape = r.ShapeOf(node.inputs[1]);
  const double factor = RangeOf(r, node.inputs[0]).magnitude();
  const int64_t extent = shape[axis], outer = NumElements(std::span(shape).first(axis));
  const int64_t inner = NumElements(std::span(shape).subspan(axis + 1));
  const bool apart = node.op == "matmul";
  const std::optional<NDArray> known = Known(r, node.inputs[1]);
  const double any = !known.has_value() ? RangeOf(r, node.inputs[1]).magnitude() : 0;
  std::vector<double> sums(static_cast<size_t>(outer * (apart ? inner : 1)), 0), step(sums.size());
  std::vector<int64_t> cuts = {0};
  for (int64_t k = 0; k < extent; ++k) {
    std::ranges::fill(step, any * static_cast<double>(apart ? 1 : inner));
    for (int64_t o = 0; known.has_value() && o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i)
        step[static_cast<size_t>(apart ? o * inner + i : o)] += std::abs(known->At((o * extent + k) * inner + i));
    }
    const auto fit = [&](const std::vector<double>& all) {
      return std::ranges::all_of(all, [&](double sum) { return sum * factor <= kExactInF32; });
    };
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += step[i];
    if (fit(sums)) continue;
    if (!fit(step)) return {};
    cuts.push_back(k);
    sums = step;
  }
  cuts.push_back(extent);
  return cuts;
}

absl::StatusOr<ValueId> Slice(Rewriter& r, ValueId v, size_t axis, int64_t begin, int64_t end) {
  return r.Emit("slice", SliceAttrs(static_cast<int64_t>(axis), begin, end), {v});
}

absl::StatusOr<ValueId> SumOfParts(Rewriter& r, const Node& node, size_t a_axis, size_t b_axis,
                                   const std::vector<int64_t>& cuts) {
  TEMPER_ASSIGN_OR_RETURN(const ValueId a, EmitCast(r, node.inputs[0], DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(const ValueId b, EmitCast(r, node.inputs[1], DType::kF32));
  Attrs attrs = WithResult(node.attrs, std::nullopt);
  if (node.op == "conv2d") attrs.Set("winograd", int64_t{0});  // it rounds
  ValueId sum = kNoValue;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    ValueId part_a = a, part_b = b;
    if (cuts.size() > 2) {
      TEMPER_ASSIGN_OR_RETURN(part_a, Slice(r, a, a_axis, cuts[i], cuts[i + 1]));
      TEMPER_ASSIGN_OR_RETURN(part_b, Slice(r, b, b_axis, cuts[i], cuts[i + 1]));
    }
    TEMPER_ASSIGN_OR_RETURN(ValueId part, r.Emit(node.op, attrs, {part_a, part_b}, node.name));
    TEMPER_ASSIGN_OR_RETURN(part, EmitCast(r, part, DType::kI32));
    if (sum != kNoValue) {
      TEMPER_ASSIGN_OR_RETURN(part, r.Emit("add", {}, {sum, part}));
    }
    sum = part;
  }
  return sum;
}

}  // namespace

std::optional<NDArray> Known(const Rewriter& r, ValueId v) { return KnownBy(r, v, kMakers); }

bool LieBetween(const NDArray& numbers, double least, double most) {
  bool all = true;
  for (int64_t i = 0; i < numbers.size(); ++i) all &= numbers.At(i) >= least && numbers.At(i) <= most;
  return all;
}

Attrs Without(const Attrs& attrs, std::string_view name) {
  Attrs others;
  for (const auto& [other, value] : attrs.values()) {
    if (other != name) others.Set(other, value);
  }
  return others;
}

Attrs WithResult(const Attrs& attrs, std::optional<DType> result) {
  Attrs others = Without(attrs, "result");
  if (result.has_value()) others.Set("result", std::string(Name(*result)));
  return others;
}

absl::StatusOr<ValueId> EmitCast(Rewriter& r, ValueId v, DType to) {
  Attrs attrs;
  attrs.Set("to", std::string(Name(to)));
  return r.Emit("cast", std::move(attrs), {v});
}

Workload::Operand OperandAt(const Rewriter& r, const Node& node, size_t i) {
  return {r.TypeOf(node.inputs[i]), IsKnown(r, node.inputs[i], kMakers)};
}

bool HasIntegerTemplate(const Node& node, Workload::Operand a, Workload::Operand b, TensorType sums, const Target& t) {
  sums.dtype = DType::kI32;
  if (node.op == "conv2d") a.type.perm = sums.perm = {0, 2, 3, 1};  // as ChooseLayouts will have it
  Workload w;
  w.inputs = {std::move(a), std::move(b)};
  w.calls = {{node.op, WithResult(node.attrs, DType::kI32), {0, 1}, std::move(sums)}};
  return HasOwnTemplate(w, t);
}

absl::StatusOr<bool> MultiplyInFloats(Rewriter& r, Node& node, const Target& t) {
  const bool matmul = node.op == "matmul";
  if ((!matmul && node.op != "conv2d") || r.TypeOf(node.inputs[0]).dtype != DType::kI16 ||
      r.TypeOf(node.output).dtype != DType::kI32)
    return false;
  if (HasIntegerTemplate(node, OperandAt(r, node, 0), OperandAt(r, node, 1), r.TypeOf(node.output), t)) return false;
  const bool transposed = node.attrs.Int("trans_a", 0) != 0 || node.attrs.Int("trans_b", 0) != 0;
  const size_t a_axis = matmul ? r.ShapeOf(node.inputs[0]).size() - 1 : 1;
  const size_t b_axis = matmul ? r.ShapeOf(node.inputs[1]).size() - 2 : 1;
  const std::vector<int64_t> cuts = transposed ? std::vector<int64_t>() : Cuts(r, node, b_axis);
  const bool groups = node.attrs.Int("group", 1) != 1;
  if (cuts.size() < 2 || (groups && cuts.size() > 2)) return false;  // channels of groups are not cut
  TEMPER_ASSIGN_OR_RETURN(const ValueId sum, SumOfParts(r, node, a_axis, b_axis, cuts));
  return r.ReplaceOutput(node, sum);
}

// Constants of a product of pairs take half the memory as bytes.
static absl::StatusOr<bool> KeepBytes(Rewriter& r, Node& node, const Target& t) {
  if ((node.op != "matmul" && node.op != "conv2d") || r.TypeOf(node.output).dtype != DType::kI32) return false;
  for (const ValueId operand : node.inputs) {
    if (r.TypeOf(operand).dtype != DType::kI16) return false;
  }
  Workload::Operand b = OperandAt(r, node, 1);
  b.type.dtype = DType::kI8;
  if (!HasIntegerTemplate(node, OperandAt(r, node, 0), b, r.TypeOf(node.output), t)) return false;
  const std::optional<NDArray> weights = Known(r, node.inputs[1]);
  if (!weights.has_value() || !LieBetween(*weights, Lowest(DType::kI8), Largest(DType::kI8))) return false;
  TEMPER_ASSIGN_OR_RETURN(const ValueId bytes, EmitCast(r, node.inputs[1], DType::kI8));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, r.Emit(node.op, node.attrs, {node.inputs[0], bytes}, node.name));
  return r.ReplaceOutput(node, v);
}

// An operator that keeps what it reads, as one along a range may, hides who made it.
static absl::StatusOr<bool> WithoutName(Rewriter& r, Node& node) {
  return node.op == "identity" && r.ReplaceOutput(node, node.inputs[0]);
}

absl::Status MultiplyIntegers(Graph& g, const Target& t) {
  NBitsConstants shared;
  const Rewriter::Rule rules[] = {WithoutName,
                                  [&t](Rewriter& r, Node& node) { return MultiplyDequantized(r, node, t); },
                                  PoolDequantized,
                                  MoveQuantized,
                                  TransposeDequantized,
                                  [&](Rewriter& r, Node& node) { return MultiplyNBits(r, node, t, shared); },
                                  ForgetLeftBits,
                                  [&t](Rewriter& r, Node& node) { return MultiplyBytes(r, node, t); },
                                  [&t](Rewriter& r, Node& node) { return MultiplyInFloats(r, node, t); },
                                  [&t](Rewriter& r, Node& node) { return KeepBytes(r, node, t); }};
  return Rewriter(g).Run(rules).status();
}

}  // namespace temper::passes
