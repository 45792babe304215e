// What is rounded to integers of few bits and read back as other numbers, as models say by QuantizeLinear and
// DequantizeLinear: clipped and rounded floats are those integers already.
#include <cmath>

#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

constexpr double kExact = 1 << 24;  // up to which f32 has every integer

bool IsWhole(double x) { return std::abs(x) <= kExact && x == std::nearbyint(x); }

// What is rounded so that results are integers as f32 has them; nullopt if `v` is nothing of the kind.
std::optional<RoundedClip> IntegersOf(const Rewriter& r, ValueId v) {
  std::optional<RoundedClip> rounded = r.TypeOf(v).dtype == DType::kF32 ? RoundedClipAt(r, v) : std::nullopt;
  const bool whole = rounded.has_value() && IsWhole(rounded->low) && IsWhole(rounded->high) && IsWhole(rounded->shift);
  return whole ? rounded : std::nullopt;
}

bool Holds(DType dtype, const RoundedClip& integers) {
  if (IsFloat(dtype)) return dtype == DType::kF32;
  return dtype != DType::kBool && Lowest(dtype) <= integers.low && integers.high <= Largest(dtype);
}

// A cast that passes by a type which holds the integers.
absl::StatusOr<bool> CastOfCast(Rewriter& r, Node& node) {
  if (node.op != "cast") return false;
  const Node* inner = r.Producer(node.inputs[0], node.op);
  if (inner == nullptr || !r.OnlyUse(inner->output)) return false;
  const ValueId source = inner->inputs[0];
  const std::optional<RoundedClip> integers = IntegersOf(r, source);
  const DType to = r.TypeOf(node.output).dtype;
  if (!integers.has_value() || !Holds(r.TypeOf(inner->output).dtype, *integers) || !Holds(to, *integers)) return false;
  if (to == DType::kF32) return r.ReplaceOutput(node, source);
  r.Become(node, "cast", node.attrs, {source});
  return true;
}

// The zero point, added before the clip and taken away behind it, moves the bounds of the clip; a zero is none.
absl::StatusOr<bool> WithoutZeroPoint(Rewriter& r, Node& node) {
  const DType dtype = r.TypeOf(node.output).dtype;
  if (node.op != "sub" || IsFloat(dtype)) return false;
  const std::optional<double> zero = Uniform(r.Constant(node.inputs[1]));
  if (!zero.has_value()) return false;
  if (*zero == 0 && r.ShapeOf(node.inputs[0]) == r.ShapeOf(node.output)) return r.ReplaceOutput(node, node.inputs[0]);
  const Node* cast = r.Producer(node.inputs[0], "cast");
  if (cast == nullptr || !r.OnlyUse(cast->output) || !r.OnlyUse(cast->inputs[0])) return false;
  const std::optional<RoundedClip> integers = IntegersOf(r, cast->inputs[0]);
  if (!integers.has_value() || !Holds(dtype, *integers)) return false;
  const Node* add = integers->add;
  if (add == nullptr || !r.OnlyUse(add->output) || integers->shift != *zero) return false;
  RoundedClip moved = *integers;
  moved.low -= *zero, moved.high -= *zero;
  const bool exact = std::abs(moved.low) <= kExact && std::abs(moved.high) <= kExact && Holds(dtype, moved);
  if (!exact || r.ShapeOf(add->inputs[0]) != r.ShapeOf(node.output)) return false;
  Attrs bounds, to;
  bounds.Set("min", moved.low);
  bounds.Set("max", moved.high);
  to.Set("to", std::string(Name(dtype)));
  TEMPER_ASSIGN_OR_RETURN(const ValueId clip, r.Emit("clip", std::move(bounds), {add->inputs[0]}, node.name));
  r.Become(node, "cast", std::move(to), {clip});
  return true;
}

}  // namespace

std::optional<RoundedClip> RoundedClipAt(const Rewriter& r, ValueId v) {
  const Node* clip = r.Producer(v, "clip");
  if (clip == nullptr) return std::nullopt;
  RoundedClip result{r.Producer(clip->inputs[0], "add"), nullptr, clip->attrs.Float("min", -HUGE_VAL),
                     clip->attrs.Float("max", HUGE_VAL)};
  if (result.add != nullptr) {
    const std::optional<double> constant = Uniform(r.Constant(result.add->inputs[1]));
    if (!constant.has_value()) return std::nullopt;
    result.shift = *constant;
  }
  result.round = r.Producer(result.add != nullptr ? result.add->inputs[0] : clip->inputs[0], "round");
  return result.round == nullptr ? std::nullopt : std::optional(result);
}

std::span<const Rewriter::Rule> QuantisedRules() {
  static const std::vector<Rewriter::Rule> rules = {CastOfCast, WithoutZeroPoint};
  return rules;
}

}  // namespace temper::passes
