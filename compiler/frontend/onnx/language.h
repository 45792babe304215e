// Layers of language models that are no attention: those whose state goes from one call to the next, in ONNX's domain
// and com.microsoft's, and mixtures of experts.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

absl::Status LinearAttention(Context& c, const OnnxNode& n);      // convert_linear_attention.cc
absl::Status CausalConvWithState(Context& c, const OnnxNode& n);  // convert_linear_attention.cc
absl::Status MixtureOfExperts(Context& c, const OnnxNode& n);     // convert_experts.cc

}  // namespace temper::onnx_frontend
