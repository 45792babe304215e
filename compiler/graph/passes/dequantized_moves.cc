// Models that say which values are rounded how ("QDQ") say it around each operator, also around those that only move
// elements. What was a number of 8 bits before is the same one behind.
#include <algorithm>
#include <limits>

#include "compiler/graph/alias.h"
#include "compiler/graph/passes/integer_products.h"
#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

// x / scale + zero, rounded to the nearest number of a type of at most 8 bits.
struct Quantising {
  ValueId x;
  double scale, zero;
  DType to;
};

std::optional<Quantising> QuantisingAt(const Rewriter& r, const Node& node) {
  const DType to = r.TypeOf(node.output).dtype;
  if (node.op != "cast" || !IsNumberOf8Bits(to)) return std::nullopt;
  const std::optional<RoundedClip> rounded = RoundedClipAt(r, node.inputs[0]);
  if (!rounded.has_value() || rounded->low > Lowest(to) || rounded->high < Largest(to)) return std::nullopt;
  const Node* div = r.Producer(rounded->round->inputs[0], "div");
  const std::optional<double> scale = div == nullptr ? std::nullopt : Uniform(r.Constant(div->inputs[1]));
  if (!scale.has_value() || r.ShapeOf(div->inputs[0]) != r.ShapeOf(node.output)) return std::nullopt;
  return Quantising{div->inputs[0], *scale, rounded->shift, to};
}

// (q - zero) * scale / scale is q - zero but for two roundings, unless a product is no ordinary number.
bool IsUndoneBy(const Rewriter& r, const Dequantized& d, const Quantising& q) {
  constexpr double kMost = std::numeric_limits<float>::max() / 255, kLeast = std::numeric_limits<float>::min();
  const std::optional<double> scale = Uniform(r.Constant(d.scale));
  if (r.TypeOf(d.q).dtype != q.to || scale != q.scale || !(kLeast <= q.scale && q.scale <= kMost)) return false;
  if (d.zero == kNoValue) return q.zero == 0;
  const std::optional<NDArray> zero = Known(r, d.zero);
  return zero.has_value() && Uniform(&*zero) == q.zero;
}

bool OnlyMoves(const Node& node) {
  const Move move = MoveOf(node);
  return move == Move::kReshapes || move == Move::kTransposes || move == Move::kSlices || move == Move::kConcatenates;
}

// Whether `v` is of dequantised numbers that `q` makes what they were, moved. `steps`: so many more values are seen.
bool AreMoved(const Rewriter& r, ValueId v, const Quantising& q, int& steps) {
  if (--steps < 0) return false;
  if (const std::optional<Dequantized> d = DequantizedAt(r, v)) return IsUndoneBy(r, *d, q);
  const Node* node = r.Producer(v);
  return node != nullptr && OnlyMoves(*node) && !node->inputs.empty() &&
         std::ranges::all_of(node->inputs, [&](ValueId input) { return AreMoved(r, input, q, steps); });
}

// Those numbers, moved.
absl::StatusOr<ValueId> Moved(Rewriter& r, ValueId v) {
  if (const std::optional<Dequantized> d = DequantizedAt(r, v)) return d->q;
  const Node* node = r.Producer(v);
  std::vector<ValueId> inputs;
  for (const ValueId input : node->inputs) {
    TEMPER_ASSIGN_OR_RETURN(inputs.emplace_back(), Moved(r, input));
  }
  return r.Emit(node->op, node->attrs, std::move(inputs), node->name);
}

}  // namespace

absl::StatusOr<bool> MoveQuantized(Rewriter& r, Node& node) {
  constexpr int kMostSteps = 64;
  const std::optional<Quantising> q = QuantisingAt(r, node);
  int steps = kMostSteps;
  if (!q.has_value() || !AreMoved(r, q->x, *q, steps)) return false;
  TEMPER_ASSIGN_OR_RETURN(const ValueId numbers, Moved(r, q->x));
  return r.ReplaceOutput(node, numbers);
}

}  // namespace temper::passes
