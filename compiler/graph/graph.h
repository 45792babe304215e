// The whole model between import and code: a list of operator calls over values, in topological order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/op.h"

namespace temper {

using ValueId = int;  // index into Graph::values; kNoValue for an absent optional operand
inline constexpr ValueId kNoValue = -1;

struct Value {
  std::string name;  // ONNX's, unique; made up for values that passes add
  TensorType type;   // logical shape and physical order
  // Logical row-major data of a constant; absent in a graph that travelled without its weights.
  std::optional<NDArray> constant;
  bool is_constant = false;
};

struct Node {
  std::string name;  // ONNX's node name, for messages
  std::string op;
  Attrs attrs;
  std::vector<ValueId> inputs;
  ValueId output = kNoValue;
};

// A fused kernel: nodes computed together; indices into Graph::nodes, in order.
struct Group {
  std::vector<int> nodes;
  int anchor = 0;  // position in `nodes`
};

// Another way to cut a part of the graph into kernels: instead of the groups `replaces` (indices into Graph::groups,
// ascending), `groups`, of the same nodes, could run at the place of the last of them.
struct Alternative {
  std::vector<int> replaces;
  std::vector<Group> groups;
};

// The extent of an output along an axis, where only the run knows it: the type has the largest that there may be. The
// elements lie one behind another at the front, as if the extents were the type's.
struct Extent {
  int output = 0;  // index into Graph::outputs
  int64_t axis = 0;
  int told_by = 0;  // the output that is the extent: an i64 without axes
};

// The extent of an input along an axis, where a run may have less than the type's. The elements that there are lie at
// the front along each axis; behind them are zeros.
struct InputExtent {
  int input = 0;  // index into Graph::inputs
  int64_t axis = 0;
  int told_by = 0;    // the input that is the extent: an i64 without axes
  int64_t least = 0;  // that a run may have
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;                 // topological order
  std::vector<ValueId> inputs, outputs;    // inputs are not constants; an output may also be a constant or an input
  std::vector<Extent> extents;             // by output and axis
  int hidden = 0;                          // the last so many outputs tell extents, and no caller sees them
  std::vector<InputExtent> input_extents;  // by input and axis
  int hidden_inputs = 0;                   // the last so many inputs tell extents, and no caller gives them
  std::vector<Group> groups;               // set by the fuse pass; covers every node once, in a valid execution order
  std::vector<Alternative> alternatives;   // set by the alternatives pass; no group is replaced by two of them

  ValueId AddValue(Value v);
  // Appends a node with inferred output type.
  absl::StatusOr<ValueId> AddNode(std::string op, Attrs attrs, std::vector<ValueId> inputs, std::string name = "");
  std::vector<int> ConsumersOf(ValueId v) const;
  // Drops dead nodes and values and renumbers; keeps inputs and outputs.
  void Compact();
};

absl::Status Verify(const Graph& g);  // order, ranks, inferred types equal stored ones, perms are permutations
std::string Text(const Graph& g);     // one line a node: "%12 = conv2d(%3, %w; attrs) : f32[...]@0231  # node name"
// Evaluates by references, node by node (logical arrays). For tests and for folding.
absl::StatusOr<std::vector<NDArray>> RunReference(const Graph& g, std::span<const NDArray> inputs);

}  // namespace temper
