// ONNX files parsed without copying their weights.
#pragma once

#include <string_view>
#include <vector>

#include "onnx/onnx_pb.h"

namespace temper::onnx_frontend {

struct ParsedModel {
  onnx::ModelProto proto;  // its initializers have no raw data
  // By initializer: its raw data, in the bytes that were parsed; empty where it has none.
  std::vector<std::string_view> raw;
};

// False: no model. `bytes` have to outlive the result.
bool ParseModel(std::string_view bytes, ParsedModel& model);

}  // namespace temper::onnx_frontend
