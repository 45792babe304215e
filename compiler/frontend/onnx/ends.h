// What lies behind an end that only the run knows, where an operator looks there and wants more than one number. See
// extents.h.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

// `v` with its last element along the axis behind its end, as a value whose extent there is known.
absl::StatusOr<ValueId> EdgeFilled(Context& c, ValueId v, int64_t axis);

}  // namespace temper::onnx_frontend
