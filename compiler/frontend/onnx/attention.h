// What the operators of attention share.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

constexpr double kUnseen = -60000;  // a score that any type has, and whose weight is nothing

// [batch, sequence, heads * size] as [batch, heads, sequence, size]; what has four axes is so already.
absl::StatusOr<ValueId> ByHeads(Context& c, ValueId v, int64_t heads);

}  // namespace temper::onnx_frontend
