// What the options say of a model's inputs: shapes, dimensions by their names, and values.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/importer.h"
#include "onnx/onnx_pb.h"

namespace temper::onnx_frontend {

// Asked for each input once, then for what was wrong with all of them. `options` outlives it.
class InputOptions {
 public:
  explicit InputOptions(const ImportOptions& options) : options_(options) {}

  // The input's shape: the model's, with open dimensions taken from the options. Those that stay open are 1, and
  // Finish() says so.
  absl::StatusOr<Shape> ShapeOf(const onnx::ValueInfoProto& input);
  // Where the options give dimensions of the input ranges, by axis.
  struct Range {
    int64_t axis;
    std::string dimension;
    int64_t least;
    // Where the dimension is a sum: those of its names that have ranges, and what all else adds up to.
    std::vector<std::string> terms = {};
    int64_t number = 0;
  };
  absl::StatusOr<std::vector<Range>> RangesOf(const onnx::ValueInfoProto& input) const;
  // The value that the options give it; nullopt: none.
  absl::StatusOr<std::optional<NDArray>> ValueOf(const onnx::ValueInfoProto& input, DType dtype);
  // kInvalidArgument: something is still open, or an option names what the model does not have.
  absl::Status Finish() const;

 private:
  // A dimension of an input.
  struct Dim {
    std::optional<int64_t> own, given;  // its length in the model, and by --shape
    std::string name = {};              // in the model, or by --shape
  };
  // Those of the model, with what --shape says of them. The model or --shape has the input's shape.
  absl::StatusOr<std::vector<Dim>> DimsOf(const onnx::ValueInfoProto& input) const;
  // The range that the options give a dimension, whose axis is the caller's; nullopt: none.
  std::optional<Range> RangeOf(const std::string& dimension) const;
  // What the options make of a dimension's name; adds names that they leave open.
  std::optional<int64_t> ByName(const std::string& dimension, std::set<std::string>& open);
  // Of each dimension, nullopt where it is open: adds its names. The model or --shape has the input's shape.
  absl::StatusOr<std::vector<std::optional<int64_t>>> Extents(const onnx::ValueInfoProto& input,
                                                              std::set<std::string>& open);

  const ImportOptions& options_;
  std::vector<std::string> inputs_, advice_;
  std::set<std::string> dimensions_, open_;  // names of dimensions: all, and those that nothing fixes
};

}  // namespace temper::onnx_frontend
