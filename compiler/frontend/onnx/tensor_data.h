// ONNX tensors as arrays.
#pragma once

#include <string>
#include <string_view>

#include "base/ndarray.h"
#include "onnx/onnx_pb.h"

namespace temper::onnx_frontend {

// Temper's element type for TensorProto.DataType; an error names those that it has none for.
absl::StatusOr<DType> DTypeOf(int onnx_type);
// `folder` is where external data lie; empty where there is no file. `raw` stands for the tensor's own raw data.
absl::StatusOr<NDArray> ArrayOf(const onnx::TensorProto& tensor, const std::string& folder, std::string_view raw);
absl::StatusOr<NDArray> ArrayOf(const onnx::TensorProto& tensor, const std::string& folder);

}  // namespace temper::onnx_frontend
