// When moving data moves no bytes: reshapes, transposes and layout changes that only rename what lies in memory, and
// slices of what lies in one piece.
#pragma once

#include <optional>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/graph/parts.h"

namespace temper {

// Where the node's operator takes elements from, if it only moves them.
inline Move MoveOf(const Node& node) { return FindOp(node.op)->move; }

// Whether both orders lay the elements of `shape` out alike (axes of extent 1 may stand anywhere).
bool SameBytes(const Shape& shape, const std::vector<int>& a, const std::vector<int>& b);

// The physical order under which reshaping `in` to `shape` leaves the bytes alone; nullopt if there is none.
std::optional<std::vector<int>> ReshapeAliasPerm(const TensorType& in, const Shape& shape);
// The same for a transpose: result axis i is operand axis axes[i]. There always is one.
std::vector<int> TransposeAliasPerm(const TensorType& in, const std::vector<int64_t>& axes);

// Of a slice whose result, in its stored order, lies in one piece in its operand: the bytes before it there, a multiple
// of 64. nullopt for others.
std::optional<int64_t> SliceStart(const Graph& g, const Node& node);

// Whether the node's output, in its stored order, is its first input's bytes, or for a slice a piece of them.
bool IsAliasNode(const Graph& g, const Node& node);

// Per value: the value whose bytes it shares, or is a part of (a slice; see PartsOfConcats too), itself otherwise.
// Values of one class live in the class's graph input, constant or (failing those) graph output, else in the first of
// them. A graph output whose bytes belong to a graph input, a constant or another output is a copy: its own root.
std::vector<ValueId> AliasRoots(const Graph& g);
// Per value: the bytes before it in its root.
std::vector<int64_t> AliasStarts(const Graph& g, const std::vector<ValueId>& roots);

// Groups that run nothing: the output is the input's bytes, in the same buffer (see AliasRoots), or a concatenation
// whose operands are written into it (see PartsOfConcats). A reshape of a graph input, a constant or another output
// into a graph output is no alias but a copy. As the graph was when this was made; refers to it.
class Aliases {
 public:
  explicit Aliases(const Graph& g) : g_(g), roots_(AliasRoots(g)), parts_(PartsOfConcats(g)) {}
  bool Have(const Group& group) const;

 private:
  const Graph& g_;
  std::vector<ValueId> roots_;
  std::vector<std::optional<Part>> parts_;
};

}  // namespace temper
