// Moves that do nothing, undo each other, or can be had for free by whoever reads them.
#include <algorithm>
#include <numeric>

#include "compiler/graph/alias.h"
#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

bool AllZero(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 0; });
}

bool MovesNothing(const Rewriter& r, const Node& node) {
  if (node.op == "identity") return true;
  if (node.inputs.empty() || r.TypeOf(node.inputs[0]) != r.TypeOf(node.output)) return false;
  if (node.op == "reshape" || node.op == "cast" || node.op == "expand") return true;
  if (node.op == "concat") return node.inputs.size() == 1;
  if (node.op == "pad") return AllZero(node.attrs.Ints("pads"));
  if (node.op == "tile") return true;
  if (node.op == "slice") {
    const std::vector<int64_t> steps = node.attrs.Ints("steps");
    return std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s > 0; });
  }
  const std::vector<int64_t> axes = node.attrs.Ints("perm");
  return node.op == "transpose" && std::is_sorted(axes.begin(), axes.end());
}

absl::StatusOr<bool> RemoveIdentity(Rewriter& r, Node& node) {
  return MovesNothing(r, node) && r.ReplaceOutput(node, node.inputs[0]);
}

absl::StatusOr<bool> MergeReshapes(Rewriter& r, Node& node) {
  if (node.op != "reshape") return false;
  const Node* inner = r.Producer(node.inputs[0], "reshape");
  if (inner == nullptr) return false;
  r.Become(node, "reshape", IntsAttrs("shape", r.ShapeOf(node.output)), {inner->inputs[0]});
  return true;
}

absl::StatusOr<bool> MergeTransposes(Rewriter& r, Node& node) {
  if (node.op != "transpose") return false;
  const Node* inner = r.Producer(node.inputs[0], "transpose");
  if (inner == nullptr) return false;
  const std::vector<int64_t> first = inner->attrs.Ints("perm");
  std::vector<int64_t> axes;
  for (int64_t axis : node.attrs.Ints("perm")) axes.push_back(first[axis]);
  r.Become(node, "transpose", IntsAttrs("perm", std::move(axes)), {inner->inputs[0]});
  return true;
}

// A transpose that only moves axes of extent 1 is a reshape.
absl::StatusOr<bool> TransposeToReshape(Rewriter& r, Node& node) {
  if (node.op != "transpose" || !TransposeAliasPerm(r.TypeOf(node.inputs[0]), node.attrs.Ints("perm")).empty())
    return false;
  r.Become(node, "reshape", IntsAttrs("shape", r.ShapeOf(node.output)), node.inputs);
  return true;
}

bool SwapsLastTwo(const std::vector<int64_t>& axes) {
  const size_t rank = axes.size();
  if (rank < 2) return false;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (axes[i] != static_cast<int64_t>(i)) return false;
  }
  return axes[rank - 1] == static_cast<int64_t>(rank) - 2;
}

absl::StatusOr<bool> TransposedOperands(Rewriter& r, Node& node) {
  if (node.op != "matmul") return false;
  for (size_t i = 0; i < 2; ++i) {
    const Node* transpose = r.Producer(node.inputs[i], "transpose");
    if (transpose == nullptr || !SwapsLastTwo(transpose->attrs.Ints("perm"))) continue;
    // A dense layer keeps its transpose: the layout pass often makes it free, and rows then stay rows.
    if (i == 0 && r.graph().values[node.inputs[1]].is_constant) continue;
    const char* flag = i == 0 ? "trans_a" : "trans_b";
    Attrs attrs = node.attrs;
    attrs.Set(flag, int64_t{node.attrs.Int(flag, 0) == 0});
    std::vector<ValueId> inputs = node.inputs;
    inputs[i] = transpose->inputs[0];
    r.Become(node, "matmul", std::move(attrs), std::move(inputs));
    return true;
  }
  return false;
}

// Padding an image with zeros is what convolutions do anyway.
absl::StatusOr<bool> PadIntoConv(Rewriter& r, Node& node) {
  if (node.op != "conv2d") return false;
  const Node* pad = r.Producer(node.inputs[0], "pad");
  if (pad == nullptr || pad->attrs.String("mode", "constant") != "constant" || pad->attrs.Float("value", 0) != 0)
    return false;
  const std::vector<int64_t> extra = pad->attrs.Ints("pads");
  const bool spatial = extra[0] == 0 && extra[1] == 0 && extra[4] == 0 && extra[5] == 0;
  if (!spatial || *std::min_element(extra.begin(), extra.end()) < 0) return false;
  std::vector<int64_t> pads = node.attrs.Ints("pads", {0, 0, 0, 0});
  for (size_t i = 0; i < 2; ++i) {
    pads[i] += extra[2 + i];
    pads[2 + i] += extra[6 + i];
  }
  Attrs attrs = node.attrs;
  attrs.Set("pads", std::move(pads));
  r.Become(node, "conv2d", std::move(attrs), {pad->inputs[0], node.inputs[1]});
  return true;
}

// Elementwise work that only one other node reads and that knows no axis but the last.
bool WorksOnRows(const Rewriter& r, const Node& node) {
  const OpDef& op = *FindOp(node.op);
  if (op.pattern != OpPattern::kElementwise || op.per_channel || node.inputs.empty() || !r.OnlyUse(node.output) ||
      r.ShapeOf(node.inputs[0]) != r.ShapeOf(node.output))
    return false;
  return std::all_of(node.inputs.begin() + 1, node.inputs.end(),
                     [&](ValueId v) { return v != kNoValue && r.Constant(v) != nullptr && r.ShapeOf(v).size() <= 1; });
}

// Whether the product's left operand is `rows` with its leading axes flattened, which a result of shape `out` has
// again.
bool FlattensRows(const Rewriter& r, const Node& product, const Shape& rows, const Shape& out) {
  const Shape &left = r.ShapeOf(product.inputs[0]), &result = r.ShapeOf(product.output);
  return product.attrs.Int("trans_a", 0) == 0 && result.size() == 2 && r.ShapeOf(product.inputs[1]).size() == 2 &&
         rows.size() == out.size() && rows.size() > 1 && std::equal(rows.begin(), rows.end() - 1, out.begin()) &&
         rows.back() == left.back() && out.back() == result.back();
}

// A product whose rows are flattened before and get their axes back after it keeps them: then what follows can join it.
absl::StatusOr<bool> KeepAxesOfRows(Rewriter& r, Node& node) {
  if (node.op != "reshape") return false;
  std::vector<const Node*> after;  // the product and what follows it, backward
  const Node* product = r.Producer(node.inputs[0]);
  for (; product != nullptr && WorksOnRows(r, *product); product = r.Producer(product->inputs[0]))
    after.push_back(product);
  if (product == nullptr || product->op != "matmul" || !r.OnlyUse(product->output)) return false;
  const Node* flat = r.Producer(product->inputs[0], "reshape");
  if (flat == nullptr || !FlattensRows(r, *product, r.ShapeOf(flat->inputs[0]), r.ShapeOf(node.output))) return false;
  after.push_back(product);
  ValueId value = flat->inputs[0];
  while (true) {
    const Node& next = *after.back();
    after.pop_back();
    std::vector<ValueId> inputs = next.inputs;
    inputs[0] = value;
    if (after.empty()) {
      node.name = next.name;
      r.Become(node, next.op, next.attrs, std::move(inputs));
      return true;
    }
    TEMPER_ASSIGN_OR_RETURN(value, r.Emit(next.op, next.attrs, std::move(inputs), next.name));
  }
}

// The largest of all elements is the same in whatever order they lie.
absl::StatusOr<bool> ReduceAsTheyLie(Rewriter& r, Node& node) {
  const OpDef& op = *FindOp(node.op);
  if (op.pattern != OpPattern::kReduction || !op.exact || op.windows) return false;
  const bool keeps_axes = node.attrs.Int("keepdims", 1) != 0;
  const Node* move = r.Producer(node.inputs[0]);
  if (move == nullptr || (move->op != "transpose" && (move->op != "reshape" || keeps_axes))) return false;
  if (node.attrs.Ints("axes").size() != r.ShapeOf(node.inputs[0]).size()) return false;
  std::vector<int64_t> axes(r.ShapeOf(move->inputs[0]).size());
  if (axes.empty()) return false;
  std::iota(axes.begin(), axes.end(), 0);
  Attrs attrs = node.attrs;
  attrs.Set("axes", std::move(axes));
  r.Become(node, node.op, std::move(attrs), {move->inputs[0]});
  return true;
}

// The same bytes with the last two axes changed over, one of which has one element.
absl::StatusOr<ValueId> Turned(Rewriter& r, ValueId v, const std::string& name) {
  Shape shape = r.ShapeOf(v);
  std::swap(shape[2], shape[3]);
  if (const NDArray* known = r.Constant(v)) return r.AddConstant(known->Reshaped(std::move(shape)));
  return r.Emit("reshape", IntsAttrs("shape", std::move(shape)), {v}, name);
}

// Kernels go along rows of the result: tiles of pixels, and vectors of them, end where a row does. So what slides along
// a column goes along a row.
absl::StatusOr<bool> ColumnAsRow(Rewriter& r, Node& node) {
  if (!FindOp(node.op)->windows) return false;
  const Shape image = r.ShapeOf(node.inputs[0]), result = r.ShapeOf(node.output);
  const int64_t wide = node.inputs.size() > 1 ? r.ShapeOf(node.inputs[1])[3] : node.attrs.Ints("kernel")[1];
  if (wide != 1 || image[3] != 1 || result[3] != 1 || result[2] == 1) return false;
  Attrs attrs = node.attrs;
  for (const char* name : {"kernel", "strides", "dilations", "pads", "output_padding"}) {  // of both axes in turn
    std::vector<int64_t> values = attrs.Ints(name);
    for (size_t i = 0; i + 1 < values.size(); i += 2) std::swap(values[i], values[i + 1]);
    if (!values.empty()) attrs.Set(name, std::move(values));
  }
  std::vector<ValueId> inputs;
  for (const ValueId v : node.inputs) {
    TEMPER_ASSIGN_OR_RETURN(const ValueId turned, Turned(r, v, node.name));
    inputs.push_back(turned);
  }
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, r.Emit(node.op, std::move(attrs), std::move(inputs), node.name));
  r.Become(node, "reshape", IntsAttrs("shape", result), {v});
  return true;
}

}  // namespace

std::span<const Rewriter::Rule> MoveRules() {
  static const std::vector<Rewriter::Rule> rules = {RemoveIdentity,     MergeReshapes,      MergeTransposes,
                                                    TransposeToReshape, TransposedOperands, PadIntoConv,
                                                    KeepAxesOfRows,     ReduceAsTheyLie,    ColumnAsRow};
  return rules;
}

}  // namespace temper::passes
