// Nodes in an order in which each comes behind those that compute what it reads.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace temper::onnx_frontend {

// Of the model's graph, its functions and the bodies within them: ONNX asks for such an order, but tools that change
// models add nodes at the end. Those that are in order stay as they are; others move in front of who reads them first.
// kInvalidArgument: a node reads what is computed from its own results.
absl::Status SortNodes(onnx::ModelProto& model);

}  // namespace temper::onnx_frontend
