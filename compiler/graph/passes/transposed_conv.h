// A transposed convolution is a plain one that makes blocks of pixels at once, a move, and a cut.
#pragma once

#include <functional>

#include "compiler/graph/passes/rewriter.h"

namespace temper::passes {

// The value of the plain convolution's filters, from their data: of the weight's type, zero where no tap is. Of one
// group they are the weight's filters once for each phase, one phase behind another.
using FiltersFn = std::function<absl::StatusOr<ValueId>(NDArray filters)>;
// Replaces a conv_transpose2d whose weight has that data. False if it has no elements.
absl::StatusOr<bool> ReplaceByConv(Rewriter& r, Node& node, const NDArray& weight, const FiltersFn& value_of);

}  // namespace temper::passes
