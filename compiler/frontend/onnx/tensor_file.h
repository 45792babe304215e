// Single tensors in ONNX's own format (TensorProto), as test data of models come.
#pragma once

#include <string>

#include "base/ndarray.h"

namespace temper {

// `name` is what errors call it (a path).
absl::StatusOr<NDArray> ParseTensorProto(const std::string& bytes, const std::string& name);

}  // namespace temper
