// What the operators of attention share.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

constexpr double kUnseen = -60000;  // a score that any type has, and whose weight is nothing

// [batch, sequence, heads * size] as [batch, heads, sequence, size]; what has four axes is so already.
absl::StatusOr<ValueId> ByHeads(Context& c, ValueId v, int64_t heads);

// Converts a node with the operands and attributes of ONNX's Attention. A query that sees nothing gives zeros; to find
// one, a mask of floats is looked through unless it is known to be finite.
absl::Status AddAttention(Context& c, const OnnxNode& n, bool mask_is_finite);

}  // namespace temper::onnx_frontend
