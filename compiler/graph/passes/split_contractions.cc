// One product for Q, K and V whose columns are then cut apart costs a copy for each part. Where all that reads a
// contraction's result (through bias, activation, reshape and transpose) are slices along its columns, each part
// becomes a contraction of its own, with its share of the weight and an epilogue of its own.
#include <algorithm>
#include <map>
#include <optional>

#include "compiler/graph/passes/simplify.h"

namespace temper::passes {
namespace {

struct Range {
  int64_t axis = 0, begin = 0, end = 0;
  auto operator<=>(const Range&) const = default;
};

class Splitter {
 public:
  explicit Splitter(Graph& g) : g_(g) {}
  absl::StatusOr<bool> Run();

 private:
  bool IsOutput(ValueId v) const { return std::find(g_.outputs.begin(), g_.outputs.end(), v) != g_.outputs.end(); }
  bool HasData(ValueId v) const { return v != kNoValue && g_.values[v].constant.has_value(); }
  const Shape& ShapeOf(ValueId v) const { return g_.values[v].type.shape; }

  bool IsRoot(const Node& node) const;
  bool IsLink(const Node& node, ValueId from) const;
  std::optional<Range> SliceOf(const Node& node) const;
  std::vector<int> Chain(int root) const;
  std::optional<Range> ThroughReshape(const Shape& in, const Shape& out, const Range& r) const;
  std::optional<std::vector<Range>> RangesAlong(const std::vector<int>& chain, Range r) const;
  absl::Status Rebuild(const std::vector<int>& chain, const std::vector<Range>& ranges, Node& slice);
  absl::StatusOr<ValueId> SliceConstant(ValueId v, const Range& r);
  absl::StatusOr<ValueId> Emit(std::string op, Attrs attrs, std::vector<ValueId> inputs, const std::string& name);

  Graph& g_;
  std::vector<Node> nodes_;  // as they came
  std::vector<std::vector<int>> readers_;
  std::vector<Node> out_;
  std::map<std::pair<ValueId, Range>, ValueId> slices_;  // of constants: steps of a recurrence share theirs
};

bool Splitter::IsRoot(const Node& node) const {
  const bool conv = node.op == "conv2d" && node.attrs.Int("group", 1) == 1;
  return (conv || (node.op == "matmul" && ShapeOf(node.inputs[1]).size() == 2)) && HasData(node.inputs[1]) &&
         node.inputs[0] != node.inputs[1];
}

// Something that a part can go through as well as the whole.
bool Splitter::IsLink(const Node& node, ValueId from) const {
  if (node.op == "reshape" || node.op == "transpose") return true;
  const OpDef& op = *FindOp(node.op);
  if (op.pattern != OpPattern::kElementwise || op.per_channel || ShapeOf(node.output) != ShapeOf(from)) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return v == from || HasData(v); });
}

std::optional<Range> Splitter::SliceOf(const Node& node) const {
  if (node.op != "slice" || node.attrs.Ints("axes").size() != 1 ||
      node.attrs.Ints("steps", {1}) != std::vector<int64_t>{1})
    return std::nullopt;
  const Shape& in = ShapeOf(node.inputs[0]);
  const int64_t rank = static_cast<int64_t>(in.size()), axis = node.attrs.Ints("axes")[0];
  Range r{axis < 0 ? axis + rank : axis, node.attrs.Ints("starts")[0], 0};
  const int64_t extent = in[static_cast<size_t>(r.axis)];
  r.begin = std::clamp<int64_t>(r.begin < 0 ? r.begin + extent : r.begin, 0, extent);
  r.end = r.begin + ShapeOf(node.output)[static_cast<size_t>(r.axis)];
  return r;
}

// The nodes from `root` to where its result is read by slices alone, two or more; empty if that does not happen.
std::vector<int> Splitter::Chain(int root) const {
  std::vector<int> chain = {root};
  while (true) {
    const ValueId v = nodes_[chain.back()].output;
    const std::vector<int>& readers = readers_[v];
    if (IsOutput(v) || readers.empty()) return {};
    if (readers.size() > 1) {
      const bool all =
          std::all_of(readers.begin(), readers.end(), [&](int n) { return SliceOf(nodes_[n]).has_value(); });
      return all ? chain : std::vector<int>();
    }
    if (!IsLink(nodes_[readers[0]], v)) return {};
    chain.push_back(readers[0]);
  }
}

// The range of the operand's axis that a range of the result's axis is. Both must be the outermost of their run of
// axes (the finest runs of axes that hold the same elements on both sides).
std::optional<Range> Splitter::ThroughReshape(const Shape& in, const Shape& out, const Range& r) const {
  const size_t axis = static_cast<size_t>(r.axis);
  int64_t before = 1, inner = 1, before_in = 1;
  for (size_t i = 0; i < axis; ++i) before *= out[i];
  for (size_t i = axis + 1; i < out.size(); ++i) inner *= out[i];
  // The operand's axis that begins after as many elements.
  size_t i = 0;
  while (i < in.size() && (before_in < before || in[i] == 1)) before_in *= in[i++];
  if (i == in.size() || before_in != before) return std::nullopt;
  int64_t inner_in = 1;
  for (size_t k = i + 1; k < in.size(); ++k) inner_in *= in[k];
  if (r.begin * inner % inner_in != 0 || r.end * inner % inner_in != 0) return std::nullopt;
  Range result{static_cast<int64_t>(i), r.begin * inner / inner_in, r.end * inner / inner_in};
  return result.end <= in[i] ? std::optional<Range>(result) : std::nullopt;
}

// The range at each node's result along the chain for the range `r` of the last; nullopt if it is no range of columns.
std::optional<std::vector<Range>> Splitter::RangesAlong(const std::vector<int>& chain, Range r) const {
  std::vector<Range> ranges(chain.size());
  for (size_t i = chain.size(); i-- > 0;) {
    ranges[i] = r;
    const Node& node = nodes_[chain[i]];
    if (node.op == "transpose") r.axis = node.attrs.Ints("perm")[static_cast<size_t>(r.axis)];
    if (node.op != "reshape") continue;
    std::optional<Range> in = ThroughReshape(ShapeOf(node.inputs[0]), ShapeOf(node.output), r);
    if (!in.has_value()) return std::nullopt;
    r = *in;
  }
  const Node& root = nodes_[chain[0]];
  const size_t columns = root.op == "matmul" ? ShapeOf(root.output).size() - 1 : 1;
  return r.axis == static_cast<int64_t>(columns) ? std::optional<std::vector<Range>>(ranges) : std::nullopt;
}

absl::StatusOr<ValueId> Splitter::SliceConstant(ValueId v, const Range& r) {
  const auto [known, fresh] = slices_.try_emplace({v, r});
  if (!fresh) return known->second;
  const Attrs attrs = SliceAttrs(r.axis, r.begin, r.end);
  const OpDef* op = FindOp("slice");
  const TensorType types[] = {g_.values[v].type};
  TEMPER_ASSIGN_OR_RETURN(TensorType type, op->infer(attrs, types));
  const NDArray args[] = {*g_.values[v].constant};
  Value part{"", type, std::nullopt, true};
  TEMPER_ASSIGN_OR_RETURN(part.constant, op->reference(attrs, args, type));
  return known->second = g_.AddValue(std::move(part));
}

absl::StatusOr<ValueId> Splitter::Emit(std::string op, Attrs attrs, std::vector<ValueId> inputs,
                                       const std::string& name) {
  TEMPER_ASSIGN_OR_RETURN(ValueId v, g_.AddNode(std::move(op), std::move(attrs), std::move(inputs), name));
  out_.push_back(std::move(g_.nodes.back()));
  g_.nodes.pop_back();
  return v;
}

// The chain again for one part; `slice` becomes its last node.
absl::Status Splitter::Rebuild(const std::vector<int>& chain, const std::vector<Range>& ranges, Node& slice) {
  ValueId previous = kNoValue;
  for (size_t i = 0; i < chain.size(); ++i) {
    const Node& node = nodes_[chain[i]];
    const Range& r = ranges[i];
    std::vector<ValueId> inputs = node.inputs;
    Attrs attrs = node.attrs;
    const Shape shape = ShapeOf(node.output);
    if (i == 0) {
      const int64_t weight_axis = node.op == "conv2d" || node.attrs.Int("trans_b", 0) != 0 ? 0 : 1;
      TEMPER_ASSIGN_OR_RETURN(inputs[1], SliceConstant(inputs[1], {weight_axis, r.begin, r.end}));
    } else {
      for (ValueId& v : inputs) {
        const int64_t axis = r.axis - static_cast<int64_t>(shape.size() - ShapeOf(v).size());
        if (v == nodes_[chain[i - 1]].output) {
          v = previous;
        } else if (axis >= 0 && ShapeOf(v)[static_cast<size_t>(axis)] != 1) {
          TEMPER_ASSIGN_OR_RETURN(v, SliceConstant(v, {axis, r.begin, r.end}));
        }
      }
    }
    if (node.op == "reshape") {
      Shape part = shape;
      part[static_cast<size_t>(r.axis)] = r.end - r.begin;
      attrs.Set("shape", std::move(part));
    }
    TEMPER_ASSIGN_OR_RETURN(previous, Emit(node.op, std::move(attrs), std::move(inputs), node.name));
  }
  // The last of them makes the slice's value itself, so that readers and graph outputs need no change.
  out_.back().output = slice.output;
  return absl::OkStatus();
}

absl::StatusOr<bool> Splitter::Run() {
  nodes_ = g_.nodes;
  readers_.resize(g_.values.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (ValueId v : nodes_[i].inputs) {
      if (v != kNoValue) readers_[v].push_back(static_cast<int>(i));
    }
  }
  std::vector<std::pair<std::vector<int>, std::vector<Range>>> parts(nodes_.size());  // per slice that goes: its chain
  bool any = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::vector<int> chain = IsRoot(nodes_[i]) ? Chain(static_cast<int>(i)) : std::vector<int>();
    if (chain.empty()) continue;
    std::vector<std::pair<int, std::vector<Range>>> found;
    int64_t columns = 0;
    for (int n : readers_[nodes_[chain.back()].output]) {
      std::optional<std::vector<Range>> ranges = RangesAlong(chain, *SliceOf(nodes_[n]));
      if (!ranges.has_value()) break;
      columns += ranges->front().end - ranges->front().begin;
      found.emplace_back(n, *std::move(ranges));
    }
    const Shape& whole = ShapeOf(nodes_[i].output);
    const int64_t all_columns = nodes_[i].op == "matmul" ? whole.back() : whole[1];
    // Parts that overlap would be computed twice.
    if (found.size() != readers_[nodes_[chain.back()].output].size() || columns > all_columns) continue;
    for (auto& [n, ranges] : found) parts[static_cast<size_t>(n)] = {chain, std::move(ranges)};
    any = true;
  }
  if (!any) return false;
  g_.nodes.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (parts[i].first.empty())
      out_.push_back(nodes_[i]);
    else
      TEMPER_RETURN_IF_ERROR(Rebuild(parts[i].first, parts[i].second, nodes_[i]));
  }
  g_.nodes = std::move(out_);
  g_.Compact();
  return true;
}

}  // namespace

absl::StatusOr<bool> SplitContractions(Graph& g) { return Splitter(g).Run(); }

}  // namespace temper::passes
