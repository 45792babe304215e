// A convolution over one axis or three is one over two between moves that take the model's axes away and give them
// back. Elementwise work and concatenations behind such moves come before them: so they join the convolution's kernel,
// and the moves meet those ahead of the next convolution, which undo them.
#include <algorithm>

#include "compiler/graph/alias.h"
#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

bool GivesAxes(const Node* node) {
  return node != nullptr && (MoveOf(*node) == Move::kReshapes || MoveOf(*node) == Move::kTransposes);
}

// Whether `v` comes from an operator that slides a window, by moves and elementwise work alone.
bool ComesFromWindow(const Rewriter& r, ValueId v) {
  constexpr int kFarthest = 16;
  for (int i = 0; i < kFarthest; ++i) {
    const Node* node = v == kNoValue ? nullptr : r.Producer(v);
    if (node == nullptr || node->inputs.empty()) return false;
    const OpDef& op = *FindOp(node->op);
    if (op.windows) return true;
    if (op.pattern != OpPattern::kElementwise && op.pattern != OpPattern::kInjective) return false;
    v = node->inputs[0];
  }
  return false;
}

int64_t Before(const Shape& shape, size_t axis) { return NumElements(std::span(shape).first(axis)); }

// The axis of what the move reads that is its result's `axis`, of more than one element; nullopt if none is.
std::optional<size_t> AxisBefore(const Node& move, const Shape& from, const Shape& to, size_t axis) {
  if (MoveOf(move) == Move::kTransposes) return static_cast<size_t>(move.attrs.Ints("perm")[axis]);
  for (size_t a = 0; a < from.size(); ++a) {
    if (from[a] == to[axis] && Before(from, a) == Before(to, axis)) return a;
  }
  return std::nullopt;
}

// A constant operand of work on what the move makes, for work on what it reads: of one value, or of values along one
// axis. nullopt for others.
std::optional<NDArray> ConstantBefore(const Node& move, const Shape& from, const Shape& to, const NDArray& c) {
  if (c.shape().size() > to.size()) return std::nullopt;
  const size_t missing = to.size() - c.shape().size();
  std::optional<size_t> along;
  for (size_t i = 0; i < c.shape().size(); ++i) {
    if (c.shape()[i] == 1) continue;
    if (along.has_value() || c.shape()[i] != to[missing + i]) return std::nullopt;
    along = missing + i;
  }
  Shape shape(from.size(), 1);
  if (along.has_value()) {
    const std::optional<size_t> axis = AxisBefore(move, from, to, *along);
    if (!axis.has_value()) return std::nullopt;
    shape[*axis] = to[*along];
  }
  return c.Reshaped(std::move(shape));
}

// The move that makes operand `v`, if it is like `other`, of as many elements along each axis; null if it is not.
const Node* MoveLike(const Rewriter& r, ValueId v, const Node* other) {
  const Node* move = r.Producer(v);
  if (!GivesAxes(move)) return nullptr;
  const bool like = other == nullptr || (move->op == other->op && move->attrs == other->attrs &&
                                         r.ShapeOf(move->inputs[0]) == r.ShapeOf(other->inputs[0]));
  return like ? move : nullptr;
}

absl::StatusOr<bool> ElementwiseBeforeMove(Rewriter& r, Node& node) {
  const OpDef& op = *FindOp(node.op);
  if (op.pattern != OpPattern::kElementwise || op.per_channel) return false;
  const Shape to = r.ShapeOf(node.output);
  const Node* move = nullptr;
  for (const ValueId v : node.inputs) {
    if (v == kNoValue) return false;
    if (r.Constant(v) != nullptr) continue;
    move = r.ShapeOf(v) == to ? MoveLike(r, v, move) : nullptr;
    if (move == nullptr) return false;
  }
  if (move == nullptr || NumElements(to) == 0 || !ComesFromWindow(r, move->inputs[0])) return false;
  std::vector<ValueId> inputs;
  for (const ValueId v : node.inputs) {
    const NDArray* constant = r.Constant(v);
    if (constant == nullptr) {
      inputs.push_back(r.Producer(v)->inputs[0]);
      continue;
    }
    std::optional<NDArray> before = ConstantBefore(*move, r.ShapeOf(move->inputs[0]), to, *constant);
    if (!before.has_value()) return false;
    inputs.push_back(r.AddConstant(*std::move(before)));
  }
  Attrs attrs = move->attrs;
  const std::string moved_by = move->op;
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, r.Emit(node.op, node.attrs, std::move(inputs), node.name));
  r.Become(node, moved_by, std::move(attrs), {v});
  return true;
}

// The axis along which what the moves read is concatenated, where their results are along `axis`; nullopt if there is
// none.
std::optional<size_t> ConcatAxisBefore(const Rewriter& r, const std::vector<const Node*>& moves, size_t axis) {
  std::optional<size_t> before;
  Shape others;  // of what the first move reads, without that axis
  for (const Node* move : moves) {
    const Shape &from = r.ShapeOf(move->inputs[0]), &to = r.ShapeOf(move->output);
    if (!before.has_value()) before = AxisBefore(*move, from, to, axis);
    if (!before.has_value() || *before >= from.size() || from[*before] != to[axis] ||
        (MoveOf(*move) == Move::kReshapes && Before(from, *before) != Before(to, axis)))
      return std::nullopt;
    Shape rest = from;
    rest[*before] = 0;
    if (move == moves.front()) others = rest;
    if (rest != others) return std::nullopt;
  }
  return before;
}

absl::StatusOr<bool> ConcatBeforeMoves(Rewriter& r, Node& node) {
  if (MoveOf(node) != Move::kConcatenates || node.inputs.empty()) return false;
  const auto rank = static_cast<int64_t>(r.ShapeOf(node.output).size());
  const int64_t axis = node.attrs.Int("axis", 0);
  std::vector<const Node*> moves;
  std::vector<ValueId> inputs;
  for (const ValueId v : node.inputs) {
    const Node* move = r.Producer(v);
    if (!GivesAxes(move) || !ComesFromWindow(r, move->inputs[0])) return false;
    const Node* first = moves.empty() ? move : moves.front();
    if (move->op != first->op || (MoveOf(*move) == Move::kTransposes && move->attrs != first->attrs)) return false;
    moves.push_back(move);
    inputs.push_back(move->inputs[0]);
  }
  const std::optional<size_t> before = ConcatAxisBefore(r, moves, static_cast<size_t>(axis < 0 ? axis + rank : axis));
  if (!before.has_value()) return false;
  const std::string moved_by = moves.front()->op;
  const bool transposes = MoveOf(*moves.front()) == Move::kTransposes;
  Attrs attrs = transposes ? moves.front()->attrs : IntsAttrs("shape", r.ShapeOf(node.output));
  Attrs concat;
  concat.Set("axis", static_cast<int64_t>(*before));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, r.Emit(node.op, std::move(concat), std::move(inputs), node.name));
  r.Become(node, moved_by, std::move(attrs), {v});
  return true;
}

}  // namespace

std::span<const Rewriter::Rule> OrderRules() {
  static const std::vector<Rewriter::Rule> rules = {ElementwiseBeforeMove, ConcatBeforeMoves};
  return rules;
}

}  // namespace temper::passes
