// TF32, a float of f32's exponents with 10 bits of mantissa: what tensor cores multiply f32 as, where an operator
// allows it. A model allows it on its operators (PipelineOptions::tf32); nothing else does.
#pragma once

#include "compiler/ops/attrs.h"

namespace temper {

// Of a contraction: whether it may round its operands of f32.
inline bool AllowsTf32(const Attrs& attrs) { return attrs.Int("tf32", 0) != 0; }

// What an f32 result may be off by, as RelativeError has it, if its products are of TF32. That is more than the type
// has units for: what was rounded is added up, and much of a sum may cancel; a model's result is of many such sums.
inline constexpr double kTf32Tolerance = 2e-2;

}  // namespace temper
