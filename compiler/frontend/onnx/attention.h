// What the operators of attention share.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

constexpr double kUnseen = -60000;  // a score that any type has, and whose weight is nothing

// [batch, sequence, heads * size] as [batch, heads, sequence, size]; what has four axes is so already.
absl::StatusOr<ValueId> ByHeads(Context& c, ValueId v, int64_t heads);
// What queries of [batch, heads, sequence, size] see, with the queries themselves behind the sequence's end. Masks say
// nothing of what lies there: only so do kernels that follow see that they may leave out what is made of it.
absl::StatusOr<ValueId> QueriesBehind(Context& c, ValueId seen, ValueId queries);

// Converts a node with the operands and attributes of ONNX's Attention. A query that sees nothing gives zeros; to find
// one, a mask of floats is looked through unless it is known to be finite.
absl::Status AddAttention(Context& c, const OnnxNode& n, bool mask_is_finite);

// Of com.microsoft (convert_fused_attention.cc).
absl::Status FusedAttention(Context& c, const OnnxNode& n);
absl::Status MultiHeadAttention(Context& c, const OnnxNode& n);
// The attention of queries, keys and values that are the columns of `all`. Earlier keys and values are the two parts
// of one operand, and all of them those of the second result.
absl::Status SetFusedAttention(Context& c, const OnnxNode& n, ValueId all, ValueId padding, ValueId added,
                               ValueId past);

}  // namespace temper::onnx_frontend
