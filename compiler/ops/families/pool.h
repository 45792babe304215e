// What pooling is made of, for templates that make it in steps of their own.
#pragma once

#include <vector>

#include "compiler/ops/families/infer_util.h"
#include "compiler/ops/workload.h"

namespace temper::ops {

absl::StatusOr<Window> PoolWindow(const Attrs& attrs);

// Reduces what each window sees along the axes of the image, 0 for its rows and 1 for its columns, that are listed; the
// other one, if there is one, stays as it is. Pixels outside `x` count as the combiner's identity.
ir::Tensor PoolStage(ir::ProgramBuilder& b, const std::string& name, const ir::Tensor& x, const Window& window,
                     const std::vector<int>& axes, const TensorType& output, ir::Combiner combiner);

// avg_pool2d of an image of the shape: the windows' sums, each over how many of its taps count.
ir::Tensor MeanOfWindows(const ir::Tensor& sum, const Attrs& attrs, const Window& window, const Shape& image,
                         const TensorType& output);

}  // namespace temper::ops
