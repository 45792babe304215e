// ONNX files (opset 7 to 28) to a Graph, by libonnx's protobuf classes.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "compiler/graph/graph.h"

namespace temper {

// The length of a dimension, or a range: the graph is of the most, and each run has as many as it likes.
struct DimLength {
  DimLength(int64_t length) : least(length), most(length) {}  // NOLINT: a number is a length
  DimLength(int64_t least, int64_t most) : least(least), most(most) {}
  bool operator==(const DimLength&) const = default;
  int64_t least, most;
};

// What --shape says of a dimension: its length, or a name, under which `dims` has it.
using InputDim = std::variant<int64_t, std::string>;

struct ImportOptions {
  std::map<std::string, std::vector<InputDim>> shapes;  // of inputs by name (--shape NAME=1,3,224,width)
  // Lengths of dimensions, by the names that the model or `shapes` gives them (--dim NAME=1).
  std::map<std::string, DimLength> dims = {};
  // Makes inputs constants, which the graph then does not have as inputs (--value NAME=true). Numbers, or truths.
  std::map<std::string, std::vector<std::string>> values = {};
};
// Errors, each one line: the file is missing, empty, truncated or no ONNX model; all unsupported operators at once with
// their node names; a symbolic dimension that the options leave open, with the options to give.
absl::StatusOr<Graph> ImportOnnx(const std::string& path, const ImportOptions& options = {});
absl::StatusOr<Graph> ImportOnnxBytes(std::string_view bytes, const std::string& name,
                                      const ImportOptions& options = {});

}  // namespace temper
