// Physical orders. Convolutions read and write channels last; what follows keeps the order of what it reads;
// reshapes and transposes take the order in which they move no bytes. Graph inputs and outputs are row-major. Operators
// are stated over logical axes, so any choice is right; this one is fast.
#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "base/strides.h"
#include "compiler/graph/alias.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/ops/few_channels.h"

namespace temper::passes {
namespace {

constexpr int kFewSteps = 8;  // from a value to an output

// What convolutions read and write, on every target: the lanes of a CPU's vectors and a GPU's neighbouring threads have
// neighbouring channels, so channels come last.
const std::vector<int> kConvOrder = {0, 2, 3, 1};

bool IsConv(const Node& node) {
  const OpDef& op = *FindOp(node.op);
  return op.pattern == OpPattern::kAnchor && op.windows;
}

// One right operand for all of a matmul's batch: every leading axis then counts as a row, if the order is logical.
bool IsDense(const Graph& g, const Node& node) {
  if (node.op != "matmul") return false;
  const Shape& b = g.values[node.inputs[1]].type.shape;
  return NumElements(std::span(b).first(b.size() - 2)) == 1 && node.attrs.Int("trans_a", 0) == 0;
}

// The order of what is left of `perm` without the axes.
std::vector<int> WithoutAxes(const TensorType& in, const std::vector<int64_t>& axes) {
  const int rank = static_cast<int>(in.shape.size());
  std::vector<int> new_axis(rank, 0), perm;
  for (int64_t axis : axes) new_axis[axis < 0 ? axis + rank : axis] = -1;
  int next = 0;
  for (int& axis : new_axis) axis = axis < 0 ? -1 : next++;
  for (int axis : in.perm) {
    if (new_axis[axis] >= 0) perm.push_back(new_axis[axis]);
  }
  return perm;
}

// For each position in an array of `dims` laid out in `order`: where its element is in the row-major array.
std::vector<int64_t> RowOrder(const Shape& dims, const std::vector<int>& order) {
  const std::vector<int64_t> stride = RowMajorStrides(dims);
  std::vector<int64_t> index(dims.size(), 0);
  std::vector<int64_t> source;
  for (int64_t i = NumElements(dims); i > 0; --i) {
    int64_t from = 0;
    for (size_t p = 0; p < order.size(); ++p) from += index[p] * stride[order[p]];
    source.push_back(from);
    for (size_t p = order.size(); p-- > 0 && ++index[p] == dims[order[p]];) index[p] = 0;
  }
  return source;
}

class LayoutPass {
 public:
  explicit LayoutPass(Graph& g) : g_(g) {}
  absl::Status Run();

 private:
  TensorType& TypeOf(ValueId v) { return g_.values[v].type; }
  bool IsOutput(ValueId v) const { return std::find(g_.outputs.begin(), g_.outputs.end(), v) != g_.outputs.end(); }

  absl::Status Visit(Node node);
  absl::Status ReadInOrder(Node& node, size_t operand, const std::vector<int>& perm);
  void Choose(const Node& node);
  bool LeavesInOrder(ValueId v, int depth) const;
  std::vector<int> ElementwiseOrder(const Node& node);
  std::vector<int> MoveOrder(const Node& node);
  std::vector<int> ReductionOrder(const Node& node);
  std::vector<int> MatmulOrder(const Node& node);
  bool KeepsAxes(const Node& node) const;
  bool FeedsConv(ValueId v, int depth) const;
  bool IsReadByConvs(const Node& node) const;
  bool IsPickedOften(const Node& node) const;
  void OrderConstants(const Node& node);
  void CloseOutputs();

  bool IsFlattenForDense(const Node& node, size_t* kept);
  absl::Status FlattenInPlace(Node& node, size_t kept);
  ValueId PermuteRows(const Node& matmul, const Shape& dims, const std::vector<int>& order);

  Graph& g_;
  std::vector<Node> done_;
  std::vector<std::vector<int>> readers_;  // per value, of the graph as it came
  std::vector<Node> nodes_;                // the graph's as it came; later ones may be changed by earlier ones
  std::vector<bool> from_anchor_;          // per value: a contraction's output, or elementwise work on it
  absl::flat_hash_map<std::pair<ValueId, std::string>, ValueId> copies_;
};

// A move of no kind that others make use of, such as a pad, from an image to an image.
bool LayoutPass::KeepsAxes(const Node& node) const {
  return FindOp(node.op)->pattern == OpPattern::kInjective && MoveOf(node) == Move::kNone && !node.inputs.empty() &&
         g_.values[node.output].type.shape.size() == g_.values[node.inputs[0]].type.shape.size();
}

// Whether an image is moved for convolutions alone, and grows by it: what they ask for is copied at less cost before.
// One of few channels they may read as it lies.
bool LayoutPass::IsReadByConvs(const Node& node) const {
  if (!KeepsAxes(node) || IsOutput(node.output) || readers_[node.output].empty()) return false;
  const Shape &in = g_.values[node.inputs[0]].type.shape, &out = g_.values[node.output].type.shape;
  return in.size() == 4 && in[1] > kFewChannels && NumElements(out) >= NumElements(in) &&
         std::ranges::all_of(readers_[node.output],
                             [&](int n) { return IsConv(nodes_[n]) && nodes_[n].inputs[0] == node.output; });
}

// Through elementwise work, concatenation and moves that leave the axes as they are.
bool LayoutPass::FeedsConv(ValueId v, int depth) const {
  if (depth == 0) return false;
  return std::any_of(readers_[v].begin(), readers_[v].end(), [&](int n) {
    const Node& node = nodes_[n];
    if (IsConv(node)) return true;
    const bool through =
        FindOp(node.op)->pattern == OpPattern::kElementwise || MoveOf(node) == Move::kConcatenates || KeepsAxes(node);
    return through && FeedsConv(node.output, depth - 1);
  });
}

// Whether a row-major copy of the operand costs less than all that pick from it where it lies: they read scattered
// elements of pieces that are whole by its axes. A result of the operand's rank is written in the order it is read in.
bool LayoutPass::IsPickedOften(const Node& node) const {
  if (MoveOf(node) != Move::kPicks) return false;
  const TensorType& in = g_.values[node.inputs[0]].type;
  const auto last = static_cast<int>(in.shape.size()) - 1;
  const int64_t axis = node.attrs.Int("axis", 0);
  if (in.perm.empty() || in.perm.back() == last || axis == last || axis == -1) return false;
  if (g_.values[node.inputs[1]].type.shape.size() < 2) return false;
  int64_t picked = 0;
  for (int n : readers_[node.inputs[0]]) {
    if (MoveOf(nodes_[n]) == Move::kPicks) picked += NumElements(g_.values[nodes_[n].output].type.shape);
  }
  return picked >= NumElements(in.shape);
}

// Whether the caller gets it in its order, through elementwise work, other axes and ends of lines alone.
bool LayoutPass::LeavesInOrder(ValueId v, int depth) const {
  if (depth == 0) return false;
  return IsOutput(v) || std::ranges::any_of(readers_[v], [&](int n) {
           const Node& node = nodes_[n];
           const bool elementwise = FindOp(node.op)->pattern == OpPattern::kElementwise &&
                                    g_.values[node.output].type.shape == g_.values[v].type.shape;
           const bool keeps = MoveOf(node) == Move::kReshapes || FindOp(node.op)->counted;
           return (elementwise || (keeps && node.inputs[0] == v)) && LeavesInOrder(node.output, depth - 1);
         });
}

std::vector<int> LayoutPass::ElementwiseOrder(const Node& node) {
  const Shape& shape = TypeOf(node.output).shape;
  const TensorType* first = nullptr;
  const TensorType* partial = nullptr;
  bool row_major = false;  // an operand
  for (ValueId v : node.inputs) {
    if (v == kNoValue || g_.values[v].is_constant) continue;
    const TensorType& t = TypeOf(v);
    if (t.shape == shape && from_anchor_[v]) {
      from_anchor_[node.output] = true;
      return t.perm;
    }
    row_major |= t.shape == shape && t.perm.empty();
    if (t.shape == shape && (first == nullptr || first->perm.empty())) first = &t;
    if (t.shape.size() == shape.size() && !t.perm.empty()) partial = &t;
  }
  if (row_major && LeavesInOrder(node.output, kFewSteps)) return {};
  if (first != nullptr) return first->perm;
  return partial != nullptr ? partial->perm : std::vector<int>();
}

std::vector<int> LayoutPass::MoveOrder(const Node& node) {
  const TensorType& in = TypeOf(node.inputs[0]);
  const TensorType& out = TypeOf(node.output);
  switch (MoveOf(node)) {
    case Move::kTransposes:
      return TransposeAliasPerm(in, node.attrs.Ints("perm"));
    case Move::kReshapes:
      if (std::optional<std::vector<int>> perm = ReshapeAliasPerm(in, out.shape)) return *perm;
      return out.shape.size() == 4 && FeedsConv(node.output, 4) ? kConvOrder : std::vector<int>();
    case Move::kPicks:
      if (TypeOf(node.inputs[1]).shape.empty()) return WithoutAxes(in, {node.attrs.Int("axis", 0)});
      break;
    case Move::kConcatenates:
      for (ValueId v : node.inputs) {
        if (!TypeOf(v).perm.empty()) return TypeOf(v).perm;
      }
      break;
    case Move::kSame:
    case Move::kSlices:
    case Move::kNone:
      break;
  }
  return in.shape.size() == out.shape.size() ? in.perm : std::vector<int>();
}

std::vector<int> LayoutPass::ReductionOrder(const Node& node) {
  const TensorType& in = TypeOf(node.inputs[0]);
  if (in.shape.size() == TypeOf(node.output).shape.size()) return in.perm;
  std::vector<int64_t> axes = node.attrs.Ints("axes");
  if (node.attrs.Has("axis")) axes = {node.attrs.Int("axis", 0)};
  return axes.empty() ? std::vector<int>() : WithoutAxes(in, axes);
}

// Batched products that are transposed next (heads back beside each other) are written where the transpose wants them.
std::vector<int> LayoutPass::MatmulOrder(const Node& node) {
  if (IsDense(g_, node)) return {};
  ValueId v = node.output;
  while (readers_[v].size() == 1 && !IsOutput(v)) {
    const Node& next = nodes_[readers_[v][0]];
    if (FindOp(next.op)->pattern == OpPattern::kElementwise && TypeOf(next.output).shape == TypeOf(v).shape) {
      v = next.output;
      continue;
    }
    if (MoveOf(next) != Move::kTransposes) return {};
    const std::vector<int64_t> axes = next.attrs.Ints("perm");
    // Columns must stay contiguous.
    if (axes.back() + 1 != static_cast<int64_t>(axes.size())) return {};
    return std::vector<int>(axes.begin(), axes.end());
  }
  return {};
}

// A constant as large as the result lies in the result's order.
void LayoutPass::OrderConstants(const Node& node) {
  const TensorType& out = TypeOf(node.output);
  for (ValueId v : node.inputs) {
    if (v == kNoValue || !g_.values[v].is_constant || readers_[v].size() != 1 || IsOutput(v)) continue;
    if (TypeOf(v).shape == out.shape) TypeOf(v).perm = out.perm;
  }
}

void LayoutPass::Choose(const Node& node) {
  std::vector<int> perm;
  const OpPattern pattern = FindOp(node.op)->pattern;
  if (IsConv(node)) {
    perm = kConvOrder;
  } else if (node.op == "matmul") {
    perm = MatmulOrder(node);
  } else if (pattern == OpPattern::kElementwise || node.op == "layout_copy") {
    perm = ElementwiseOrder(node);
  } else if (pattern == OpPattern::kReduction) {
    perm = ReductionOrder(node);
  } else if (pattern == OpPattern::kInjective && !node.inputs.empty()) {
    perm = MoveOrder(node);
  }
  if (pattern == OpPattern::kAnchor) from_anchor_[node.output] = true;
  // What computes nothing on the way may as well write the caller's order at once.
  const bool anchored = pattern == OpPattern::kAnchor || pattern == OpPattern::kElementwise;
  const bool picks = MoveOf(node) == Move::kPicks && LeavesInOrder(node.output, kFewSteps);
  if ((IsOutput(node.output) && !anchored) || picks) perm.clear();
  if (std::is_sorted(perm.begin(), perm.end())) perm.clear();
  TypeOf(node.output).perm = perm;
  if (pattern == OpPattern::kElementwise) OrderConstants(node);
}

// Has `node` read a copy of its operand that lies in the order `perm`.
absl::Status LayoutPass::ReadInOrder(Node& node, size_t operand, const std::vector<int>& perm) {
  const ValueId v = node.inputs[operand];
  if (TypeOf(v).perm == perm) return absl::OkStatus();
  auto [it, fresh] = copies_.try_emplace({v, std::string(perm.begin(), perm.end())}, kNoValue);
  if (fresh) {
    TEMPER_ASSIGN_OR_RETURN(it->second, g_.AddNode("layout_copy", {}, {v}, node.name));
    done_.push_back(std::move(g_.nodes.back()));
    g_.nodes.pop_back();
    TypeOf(it->second).perm = perm;
    readers_.resize(g_.values.size());
    from_anchor_.resize(g_.values.size(), false);
  }
  node.inputs[operand] = it->second;
  return absl::OkStatus();
}

// Whether the node flattens axes from `kept` on, out of order in memory, for nothing but dense layers with known
// weights: their rows can be put into memory's order instead.
bool LayoutPass::IsFlattenForDense(const Node& node, size_t* kept) {
  if (MoveOf(node) != Move::kReshapes || IsOutput(node.output) || readers_[node.output].empty()) return false;
  const TensorType& in = TypeOf(node.inputs[0]);
  if (IsPacked(in.dtype)) return false;  // rows need not begin at a byte
  const Shape& out = TypeOf(node.output).shape;
  if (in.perm.empty() || out.size() < 2 || ReshapeAliasPerm(in, out).has_value()) return false;
  int64_t flat = 1;
  *kept = in.shape.size();
  while (*kept > 0 && flat < out.back()) flat *= in.shape[--*kept];
  if (flat != out.back()) return false;
  for (size_t i = 0; i < *kept; ++i) {
    if (in.perm[i] != static_cast<int>(i)) return false;
  }
  return std::all_of(readers_[node.output].begin(), readers_[node.output].end(), [&](int n) {
    const Node& reader = nodes_[n];
    return IsDense(g_, reader) && reader.inputs[0] == node.output && g_.values[reader.inputs[1]].is_constant;
  });
}

// A constant with the rows of the matmul's weight in memory's order: row (i, j, k) of `dims` goes where `order` has it.
ValueId LayoutPass::PermuteRows(const Node& matmul, const Shape& dims, const std::vector<int>& order) {
  const Value& old = g_.values[matmul.inputs[1]];
  Value v{"", old.type, std::nullopt, true};
  if (old.constant.has_value()) {
    const std::vector<int64_t> source = RowOrder(dims, order);
    const int64_t rows = static_cast<int64_t>(source.size()), columns = old.constant->size() / rows,
                  bytes = SizeOf(old.type.dtype);
    NDArray data(old.type.dtype, old.type.shape);
    const char* from = static_cast<const char*>(old.constant->data());
    char* to = static_cast<char*>(data.MutableData());
    // Transposed, the rows are the elements of each line; else they are the lines.
    const bool trans_b = matmul.attrs.Int("trans_b", 0) != 0;
    const int64_t lines = trans_b ? columns : 1, piece = trans_b ? bytes : columns * bytes;
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(to + (line * rows + row) * piece, from + (line * rows + source[row]) * piece,
                    static_cast<size_t>(piece));
      }
    }
    v.constant = std::move(data);
  }
  return g_.AddValue(std::move(v));
}

// reshape(x) -> matmul(W) becomes reshape(transpose(x)) -> matmul(W's rows in that order), where neither moves a byte.
absl::Status LayoutPass::FlattenInPlace(Node& node, size_t kept) {
  const TensorType in = TypeOf(node.inputs[0]);
  std::vector<int64_t> axes(in.perm.begin(), in.perm.end());
  const Shape dims(in.shape.begin() + static_cast<std::ptrdiff_t>(kept), in.shape.end());
  std::vector<int> order;
  for (size_t i = kept; i < in.perm.size(); ++i) order.push_back(in.perm[i] - static_cast<int>(kept));
  for (int n : readers_[node.output]) {
    nodes_[n].inputs[1] = PermuteRows(nodes_[n], dims, order);
  }
  Attrs attrs;
  attrs.Set("perm", axes);
  TEMPER_ASSIGN_OR_RETURN(ValueId turned, g_.AddNode("transpose", std::move(attrs), {node.inputs[0]}, node.name));
  done_.push_back(std::move(g_.nodes.back()));
  g_.nodes.pop_back();
  node.inputs[0] = turned;
  readers_.resize(g_.values.size());
  from_anchor_.resize(g_.values.size(), false);
  return absl::OkStatus();
}

absl::Status LayoutPass::Visit(Node node) {
  if (IsConv(node) || IsReadByConvs(node)) TEMPER_RETURN_IF_ERROR(ReadInOrder(node, 0, kConvOrder));
  if (IsDense(g_, node) && !SameBytes(TypeOf(node.inputs[0]).shape, TypeOf(node.inputs[0]).perm, {})) {
    TEMPER_RETURN_IF_ERROR(ReadInOrder(node, 0, {}));
  }
  if (IsPickedOften(node)) TEMPER_RETURN_IF_ERROR(ReadInOrder(node, 0, {}));
  if (FindOp(node.op)->pattern == OpPattern::kSequential) {  // its template goes through memory in order
    for (size_t i = 0; i < node.inputs.size(); ++i) TEMPER_RETURN_IF_ERROR(ReadInOrder(node, i, {}));
  }
  size_t kept = 0;
  if (IsFlattenForDense(node, &kept)) TEMPER_RETURN_IF_ERROR(FlattenInPlace(node, kept));
  Choose(node);
  done_.push_back(std::move(node));
  return absl::OkStatus();
}

// Graph outputs that lie in another order get a row-major copy that takes over their name.
void LayoutPass::CloseOutputs() {
  for (ValueId& v : g_.outputs) {
    if (TypeOf(v).perm.empty()) continue;
    Value row_major{g_.values[v].name, TypeOf(v), std::nullopt, false};
    row_major.type.perm.clear();
    g_.values[v].name = "";
    const ValueId from = v;
    v = g_.AddValue(std::move(row_major));
    done_.push_back({"", "layout_copy", {}, {from}, v});
  }
}

absl::Status LayoutPass::Run() {
  nodes_ = std::move(g_.nodes);
  g_.nodes.clear();
  readers_.resize(g_.values.size());
  from_anchor_.resize(g_.values.size(), false);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (ValueId v : nodes_[i].inputs) {
      if (v != kNoValue) readers_[v].push_back(static_cast<int>(i));
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) TEMPER_RETURN_IF_ERROR(Visit(nodes_[i]));
  CloseOutputs();
  g_.nodes = std::move(done_);
  g_.Compact();
  return absl::OkStatus();
}

}  // namespace

absl::Status ChooseLayouts(Graph& g) { return LayoutPass(g).Run(); }

}  // namespace temper::passes
