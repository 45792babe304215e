// What converters of ONNX operators work with: the node at hand, and the graph that is being built.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "onnx/onnx_pb.h"

namespace temper::onnx_frontend {

// A node with its operands looked up. Attributes come with ONNX's defaults passed in by the converter.
struct OnnxNode {
  const onnx::NodeProto& proto;
  int opset = 0;
  std::vector<ValueId> inputs;  // kNoValue for those left out; trailing ones may be missing

  ValueId Input(size_t i) const { return i < inputs.size() ? inputs[i] : kNoValue; }
  const onnx::AttributeProto* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  int64_t Int(std::string_view name, int64_t otherwise) const;
  double Float(std::string_view name, double otherwise) const;
  std::string String(std::string_view name, std::string otherwise) const;
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> otherwise = {}) const;
};

class Context {
 public:
  Context(Graph& g, std::string folder) : g_(g), folder_(std::move(folder)) {}

  Graph& graph() { return g_; }
  const std::string& folder() const { return folder_; }
  const TensorType& TypeOf(ValueId v) const { return g_.values[v].type; }
  const Shape& ShapeOf(ValueId v) const { return g_.values[v].type.shape; }
  int64_t Rank(ValueId v) const { return static_cast<int64_t>(ShapeOf(v).size()); }

  // The data of a constant; null if `v` is none.
  const NDArray* Known(ValueId v) const;
  // The same as integers or floats, for operands that must be known now, such as shapes. `what` goes into the error.
  absl::StatusOr<std::vector<int64_t>> KnownInts(ValueId v, std::string_view what) const;
  absl::StatusOr<std::vector<double>> KnownFloats(ValueId v, std::string_view what) const;

  ValueId Constant(NDArray data, std::string name = "");
  ValueId Scalar(DType dtype, double value);
  ValueId IntVector(const std::vector<int64_t>& values);

  // Adds a call of a Temper operator; one on small known operands is computed at once, so that the arithmetic on
  // shapes that models carry is gone when a converter asks for its result.
  absl::StatusOr<ValueId> Call(std::string op, Attrs attrs, std::vector<ValueId> inputs);
  // The same, left to the passes even where all is known.
  absl::StatusOr<ValueId> Defer(std::string op, Attrs attrs, std::vector<ValueId> inputs);
  absl::StatusOr<ValueId> Reshape(ValueId v, Shape shape);
  absl::StatusOr<ValueId> Transpose(ValueId v, std::vector<int64_t> axes);
  absl::StatusOr<ValueId> Slice(ValueId v, int64_t axis, int64_t start, int64_t end);
  absl::StatusOr<ValueId> Pad(ValueId v, std::vector<int64_t> pads, double value = 0, std::string mode = "constant");
  absl::StatusOr<ValueId> Concat(std::vector<ValueId> parts, int64_t axis);
  absl::StatusOr<ValueId> Expand(ValueId v, Shape shape);
  absl::StatusOr<ValueId> Cast(ValueId v, DType to);  // nothing to do where it is of that type
  absl::StatusOr<ValueId> Reduce(std::string op, ValueId v, std::vector<int64_t> axes, bool keeps_axes);

  // The value under an ONNX name.
  void Bind(const std::string& name, ValueId v) { by_name_[name] = v; }
  std::optional<ValueId> Lookup(const std::string& name) const;
  // Binds the node's i-th output.
  absl::Status Set(const OnnxNode& node, ValueId v, int output = 0);
  // Nodes added from here on carry this name.
  void SetNodeName(std::string name) { node_name_ = std::move(name); }

 private:
  Graph& g_;
  std::string folder_;
  std::map<std::string, ValueId> by_name_;
  std::string node_name_;
};

// "[-rank, rank)" to "[0, rank)".
absl::StatusOr<int64_t> Axis(int64_t axis, int64_t rank);
// axis, axis + 1, ... up to rank - 1.
std::vector<int64_t> AxesFrom(int64_t axis, int64_t rank);
// An axes operand (from the opset on where they moved) or attribute, normalised; nullopt if neither is given.
absl::StatusOr<std::optional<std::vector<int64_t>>> AxesOf(Context& c, const OnnxNode& n, size_t input, int64_t rank);

using Converter = absl::Status (*)(Context& c, const OnnxNode& n);
struct TableEntry {
  std::string_view op;
  Converter convert;
  size_t operands = 1;  // that must be there; the converter need not look
};
std::span<const TableEntry> ElementwiseTable(), ConvTable(), MoveTable(), IndexTable(), EinsumTable(), AttentionTable(),
    ReduceTable(), ResizeTable(), RecurrentTable(), SampleTable(), SortTable(), KnownTable(), MathTable(),
    QuantizeTable();
// Null if the operator is not supported. Only the default domain is known.
const TableEntry* FindConverter(const onnx::NodeProto& node);

}  // namespace temper::onnx_frontend
