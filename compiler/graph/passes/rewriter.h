// One sweep over a graph's nodes, in order, that replaces some by others. Rules look backward, at producers, which have
// already been rewritten; what loses its last reader is swept away at the end.
#pragma once

#include <deque>
#include <functional>

#include "compiler/graph/graph.h"

namespace temper::passes {

class Rewriter {
 public:
  explicit Rewriter(Graph& g);

  // Whether the rule made something else of the node: it may change the node in place (its output value stays), add
  // nodes before it, or replace its output by another value.
  using Rule = std::function<absl::StatusOr<bool>(Rewriter& r, Node& node)>;
  // Every rule on every node, until none applies any more. Compacts the graph. Whether anything changed.
  absl::StatusOr<bool> Run(std::span<const Rule> rules);

  const Graph& graph() const { return g_; }
  const TensorType& TypeOf(ValueId v) const { return g_.values[v].type; }
  const Shape& ShapeOf(ValueId v) const { return g_.values[v].type.shape; }
  // The data of a constant; null for anything else, constants without data included.
  const NDArray* Constant(ValueId v) const;
  // The node that makes `v`, if it is of operator `op` (any, if empty); null if `v` is an input or a constant.
  const Node* Producer(ValueId v, std::string_view op = "") const;
  // `v` is read once and is no graph output: whoever reads it may absorb its producer.
  bool OnlyUse(ValueId v) const { return uses_[v] == 1; }
  bool IsOutput(ValueId v) const { return is_output_[v]; }

  ValueId AddConstant(NDArray data, std::string name = "");
  // Adds a node before the current one.
  absl::StatusOr<ValueId> Emit(std::string op, Attrs attrs, std::vector<ValueId> inputs, std::string name = "");
  // The current node's output becomes `by` for all readers. False (and nothing done) where that can not be: a graph
  // output that would have to become an input, a constant or another output.
  bool ReplaceOutput(const Node& node, ValueId by);
  // Turns `node` into another call in place.
  void Become(Node& node, std::string op, Attrs attrs, std::vector<ValueId> inputs);

 private:
  void CountUses(const Node& node, int by);
  absl::StatusOr<bool> Sweep(std::span<const Rule> rules);
  ValueId Resolve(ValueId v) const;

  Graph& g_;
  std::deque<Node> out_;              // a deque: rules hold on to producers while they add nodes
  std::vector<int> producer_, uses_;  // per value: index into out_, or -1; number of reads, graph outputs included
  std::vector<bool> is_output_;
  std::vector<ValueId> replaced_;
};

// One attribute, as a reshape's shape is and a transpose's order.
Attrs IntsAttrs(const char* name, std::vector<int64_t> values);
// What a slice along one axis, of every element from `begin` to before `end`, is called with.
Attrs SliceAttrs(int64_t axis, int64_t begin, int64_t end);

}  // namespace temper::passes
