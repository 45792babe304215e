// Products of f32 whose factors are rounded first, where an operator allows it. A model allows it on its operators
// (PipelineOptions::tf32, PipelineOptions::bf16); nothing else does.
#pragma once

#include <algorithm>

#include "compiler/ops/attrs.h"

namespace temper {

// Of a contraction: whether it may round its operands of f32 to TF32, which has f32's exponents with 10 bits of
// mantissa and is what tensor cores multiply f32 as; or to bf16, which has 7 bits and is what matrix tiles multiply.
inline bool AllowsTf32(const Attrs& attrs) { return attrs.Int("tf32", 0) != 0; }
inline bool AllowsBf16(const Attrs& attrs) { return attrs.Int("bf16", 0) != 0; }

// What an f32 result may be off by, as RelativeError has it, if its products are of TF32, or of bf16. That is more than
// the type has units for: what was rounded is added up, and much of a sum may cancel; a model's result is of many such
// sums.
inline constexpr double kTf32Tolerance = 2e-2, kBf16Tolerance = 0.1;
inline double RoundedTolerance(const Attrs& attrs) {
  return std::max(AllowsTf32(attrs) ? kTf32Tolerance : 0, AllowsBf16(attrs) ? kBf16Tolerance : 0);
}

}  // namespace temper
