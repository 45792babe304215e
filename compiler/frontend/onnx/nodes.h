// Nodes of an ONNX graph, and the graphs within it: bodies of If, Loop and Scan, and the functions that a model brings.
// All of them become nodes of the one graph that is built.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

std::string NameOf(const onnx::NodeProto& node);  // its own, or else its first result's
bool IsStandard(const std::string& domain);       // ONNX's own
absl::StatusOr<int> SupportedOpset(int64_t version);
Functions FunctionsOf(const onnx::ModelProto& model);

// All unsupported operators at once, each with its nodes, those of bodies and functions among them.
absl::Status CheckOperators(const Nodes& nodes, const Functions& functions);
// Converts the nodes in their order; an error says in which one it is.
absl::Status AddNodes(Context& c, const Nodes& nodes, int opset);
// The tensor under a name that `nodes` should have computed.
absl::StatusOr<ValueId> ValueOf(Context& c, const std::string& name, const Nodes& nodes);
// The graph that is the node's attribute of that name.
absl::StatusOr<const onnx::GraphProto*> BodyOf(const OnnxNode& n, std::string_view name);
// Adds the nodes of a body, whose inputs are these; what its outputs are. It sees the names around it.
absl::StatusOr<std::vector<Bound>> Inline(Context& c, const onnx::GraphProto& body, const std::vector<Bound>& inputs,
                                          int opset);

}  // namespace temper::onnx_frontend
