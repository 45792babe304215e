// What lies behind an end that only the run knows, where an operator looks there and wants more than one number. See
// extents.h.
#pragma once

#include "compiler/frontend/onnx/extents.h"

namespace temper::onnx_frontend {

// `v` with its last element along the axis behind its end, as a value whose extent there is known.
absl::StatusOr<ValueId> EdgeFilled(Context& c, ValueId v, int64_t axis);

// Elements before the first along the axis, or behind the last, as a pad of mode "edge" or "reflect" adds them to an
// axis that varies. Negative numbers take some away.
absl::StatusOr<ValueId> PaddedFromEnds(Context& c, ValueId v, const Varying& along, int64_t begin, int64_t end,
                                       const std::string& mode);
// Elements along an axis that varies from `start`, which is counted from the end, to `end`: as Slice means them.
absl::StatusOr<ValueId> SlicedFromEnd(Context& c, ValueId v, const Varying& along, int64_t start, int64_t end,
                                      int64_t step);
// The same from `start`, which is counted from the front, back to before `end`.
absl::StatusOr<ValueId> SlicedBack(Context& c, ValueId v, const Varying& along, int64_t start, int64_t end,
                                   int64_t step);
// Elements along an axis between two places of which only the run knows one or both: `end` may be known to be behind
// all, and is no number counted from the end.
absl::StatusOr<ValueId> SlicedBetween(Context& c, ValueId v, int64_t axis, const Dims& start, const Dims& end);
// The same between places that values of the run say, one each: as many as there are then.
absl::StatusOr<ValueId> SlicedAt(Context& c, ValueId v, int64_t axis, ValueId start, ValueId end);
// Makes `v` a value of known extents; those that it had.
absl::StatusOr<Varyings> MakeWhole(Context& c, ValueId& v);

}  // namespace temper::onnx_frontend
