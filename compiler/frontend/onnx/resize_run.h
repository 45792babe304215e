// Resampling along an axis of which only the run knows how long it is, or is to be: what resize_matrix.h has as
// constants, the run computes.
#pragma once

#include <optional>

#include "compiler/frontend/onnx/context.h"
#include "compiler/frontend/onnx/resize_matrix.h"

namespace temper::onnx_frontend {

// An axis, and what there is of it before and after: i64s without axes, or kNoValue where the shape tells.
struct RangedAxis {
  int64_t axis = 0;
  ValueId in = kNoValue, out = kNoValue;
  bool scaled = false;  // the scale is told, not the size
  bool by_run = false;  // where its elements come from depends on the extents
};
// Of an axis of `x` that is resampled as `as` says of the largest extents. `out`: what its size is told by, kNoValue
// for one that is known; nullopt: its scale is told.
absl::StatusOr<RangedAxis> RangedAxisOf(Context& c, ValueId x, const Resampling& r, const ResampledAxis& as,
                                        int64_t axis, std::optional<ValueId> out);
// `x` ready to be resampled with its largest extents along an axis that is not `by_run`, whose extent is known then.
absl::StatusOr<ValueId> ReadyAlong(Context& c, ValueId x, const Resampling& r, const ResampledAxis& as,
                                   const RangedAxis& axis);
// `x` resampled along an axis that is `by_run`, with `as.out` elements.
absl::StatusOr<ValueId> ResampledByRun(Context& c, ValueId x, const Resampling& r, const ResampledAxis& as,
                                       const RangedAxis& axis);

}  // namespace temper::onnx_frontend
