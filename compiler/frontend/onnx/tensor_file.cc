#include "compiler/frontend/onnx/tensor_file.h"

#include "onnx/onnx_pb.h"

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/tensor_data.h"

namespace temper {

absl::StatusOr<NDArray> ParseTensorProto(const std::string& bytes, const std::string& name) {
  onnx::TensorProto proto;
  if (bytes.empty() || !proto.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not an ONNX tensor (.pb)"));
  }
  absl::StatusOr<NDArray> array = onnx_frontend::ArrayOf(proto, "");
  if (!array.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", array.status().message()));
  return array;
}

}  // namespace temper
