#include "compiler/graph/alias.h"

#include <algorithm>
#include <numeric>

#include "compiler/ops/families/slice_util.h"

namespace temper {
namespace {

std::vector<int> ExpandPerm(const std::vector<int>& perm, size_t rank) {
  if (!perm.empty()) return perm;
  std::vector<int> identity(rank);
  std::iota(identity.begin(), identity.end(), 0);
  return identity;
}

// A run of operand axes [in_begin, in_end) that covers the same elements as the result's axes [out_begin, out_end).
struct Run {
  size_t in_begin, in_end, out_begin, out_end;
};

// The finest such runs, left to right; axes of extent 1 left over at the end are runs of their own.
std::vector<Run> MatchRuns(const Shape& in, const Shape& out) {
  std::vector<Run> runs;
  size_t i = 0, o = 0;
  while (i < in.size() || o < out.size()) {
    Run run{i, i, o, o};
    int64_t a = i < in.size() ? in[i++] : 1, b = o < out.size() ? out[o++] : 1;
    while (a != b) {
      if (a < b && i < in.size())
        a *= in[i++];
      else if (o < out.size())
        b *= out[o++];
      else
        break;
    }
    run.in_end = i;
    run.out_end = o;
    runs.push_back(run);
  }
  return runs;
}

}  // namespace

bool SameBytes(const Shape& shape, const std::vector<int>& a, const std::vector<int>& b) {
  auto meaningful = [&shape](const std::vector<int>& perm) {
    std::vector<int> order;
    for (int axis : ExpandPerm(perm, shape.size())) {
      if (shape[axis] != 1) order.push_back(axis);
    }
    return order;
  };
  return meaningful(a) == meaningful(b);
}

std::optional<std::vector<int>> ReshapeAliasPerm(const TensorType& in, const Shape& shape) {
  if (in.perm.empty() || NumElements(in.shape) <= 1) return std::vector<int>();
  const std::vector<Run> runs = MatchRuns(in.shape, shape);
  std::vector<size_t> run_of(in.shape.size());
  for (size_t r = 0; r < runs.size(); ++r) {
    for (size_t i = runs[r].in_begin; i < runs[r].in_end; ++i) run_of[i] = r;
  }
  // Walks memory: each run's axes must come together and in logical order; axes of extent 1 take no place.
  std::vector<size_t> order;
  int last_axis = -1;
  for (int axis : in.perm) {
    if (in.shape[axis] == 1) continue;
    const size_t run = run_of[axis];
    const bool starts = std::find(order.begin(), order.end(), run) == order.end();
    if (starts)
      order.push_back(run);
    else if (order.back() != run || axis < last_axis)
      return std::nullopt;
    last_axis = axis;
  }
  std::vector<int> perm;
  auto append = [&](const Run& run) {
    for (size_t o = run.out_begin; o < run.out_end; ++o) perm.push_back(static_cast<int>(o));
  };
  // Runs of extent 1 go first: a leading batch of one then stays where people expect it.
  for (size_t r = 0; r < runs.size(); ++r) {
    if (std::find(order.begin(), order.end(), r) == order.end()) append(runs[r]);
  }
  for (size_t r : order) append(runs[r]);
  return SameBytes(shape, perm, {}) ? std::vector<int>() : perm;
}

std::vector<int> TransposeAliasPerm(const TensorType& in, const std::vector<int64_t>& axes) {
  std::vector<int> result_axis(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) result_axis[axes[i]] = static_cast<int>(i);
  std::vector<int> perm;
  Shape shape;
  for (int64_t axis : axes) shape.push_back(in.shape[axis]);
  for (int axis : ExpandPerm(in.perm, axes.size())) perm.push_back(result_axis[axis]);
  return SameBytes(shape, perm, {}) ? std::vector<int>() : perm;
}

std::optional<int64_t> SliceStart(const Graph& g, const Node& node) {
  constexpr int64_t kAlignment = 64;
  if (MoveOf(node) != Move::kSlices) return std::nullopt;
  const TensorType& in = g.values[node.inputs[0]].type;
  const TensorType& out = g.values[node.output].type;
  const absl::StatusOr<std::vector<ops::AxisSlice>> slices = ops::SlicesOf(node.attrs, in.shape);
  if (!slices.ok() || NumElements(out.shape) == 0 || !SameBytes(out.shape, in.perm, out.perm)) return std::nullopt;
  // From the innermost axis outward: of what holds a cut axis, one element only.
  int64_t elements = 0, stride = 1;
  bool cut = false;
  const std::vector<int> perm = ExpandPerm(in.perm, in.shape.size());
  for (auto axis = perm.rbegin(); axis != perm.rend(); ++axis) {
    const ops::AxisSlice& s = (*slices)[static_cast<size_t>(*axis)];
    const int64_t extent = in.shape[static_cast<size_t>(*axis)];
    if (s.count != 1 && (cut || s.step != 1)) return std::nullopt;
    cut = cut || s.count != extent;
    elements += s.start * stride;
    stride *= extent;
  }
  const int64_t bits = elements * Info(in.dtype).bits;
  return bits % (8 * kAlignment) == 0 ? std::optional<int64_t>(bits / 8) : std::nullopt;
}

bool IsAliasNode(const Graph& g, const Node& node) {
  const TensorType& out = g.values[node.output].type;
  const TensorType& in = node.inputs.empty() || node.inputs[0] == kNoValue ? out : g.values[node.inputs[0]].type;
  switch (MoveOf(node)) {
    case Move::kSame:
      return SameBytes(out.shape, in.perm, out.perm);
    case Move::kReshapes: {
      const std::optional<std::vector<int>> perm = ReshapeAliasPerm(in, out.shape);
      return perm.has_value() && SameBytes(out.shape, *perm, out.perm);
    }
    case Move::kTransposes:
      return SameBytes(out.shape, TransposeAliasPerm(in, node.attrs.Ints("perm")), out.perm);
    case Move::kSlices:
      return SliceStart(g, node).has_value();
    case Move::kConcatenates:
    case Move::kPicks:
    case Move::kNone:
      break;
  }
  return false;
}

std::vector<ValueId> AliasRoots(const Graph& g) {
  std::vector<ValueId> root(g.values.size());
  std::iota(root.begin(), root.end(), 0);
  // The output that a class is written to, once one has claimed it.
  std::vector<ValueId> written_to(g.values.size(), kNoValue);
  std::vector<bool> fixed(g.values.size(), false), is_output(g.values.size(), false);
  std::vector<bool> cut(g.values.size(), false);  // less than all of its root's bytes
  for (size_t i = 0; i < g.values.size(); ++i) fixed[i] = g.values[i].is_constant;
  for (ValueId v : g.inputs) fixed[v] = true;
  for (ValueId v : g.outputs) {
    is_output[v] = true;
    written_to[v] = v;
  }
  const std::vector<std::optional<Part>> parts = PartsOfConcats(g);
  for (const Group& group : g.groups) {
    const Node& node = g.nodes[group.nodes.front()];
    if (IsWrittenInParts(g, group, parts)) {
      for (ValueId v : node.inputs) root[v] = node.output;
    }
    if (group.nodes.size() != 1 || !IsAliasNode(g, node)) continue;
    const ValueId base = root[node.inputs[0]];
    cut[node.output] = cut[node.inputs[0]] || MoveOf(node) == Move::kSlices;
    if (is_output[node.output]) {
      if (fixed[base] || cut[node.output] || written_to[base] != kNoValue) continue;  // a copy
      written_to[base] = node.output;
    }
    root[node.output] = base;
  }
  std::vector<ValueId> result(g.values.size());
  for (size_t i = 0; i < g.values.size(); ++i) {
    const ValueId output = written_to[root[i]];
    result[i] = output == kNoValue ? root[i] : output;
  }
  return result;
}

std::vector<int64_t> AliasStarts(const Graph& g, const std::vector<ValueId>& roots) {
  std::vector<int64_t> start(g.values.size(), 0);
  for (const Group& group : g.groups) {
    const Node& node = g.nodes[group.nodes.front()];
    if (group.nodes.size() != 1 || !IsAliasNode(g, node) || roots[node.output] != roots[node.inputs[0]]) continue;
    start[node.output] = start[node.inputs[0]] + SliceStart(g, node).value_or(0);
  }
  return start;
}

bool Aliases::Have(const Group& group) const {
  if (IsWrittenInParts(g_, group, parts_)) return true;
  const Node& node = g_.nodes[group.nodes[0]];
  return group.nodes.size() == 1 && IsAliasNode(g_, node) && roots_[node.output] == roots_[node.inputs[0]];
}

}  // namespace temper
