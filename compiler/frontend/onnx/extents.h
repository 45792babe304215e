// Extents that only the run knows, such as the number of boxes that are found. A value that has one is as large as it
// can get; what counts lies at the front along that axis, and what is behind it is any numbers. Context::Call asks here
// what operators make of it. Those that would have to know the extent are refused.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

// Readies operands for an operator that combines elements along an axis whose extent varies: those behind the end
// become ones that change nothing. Negative positions along such an axis become positive ones. What the result has in
// spite of that; nullopt: as VaryingOf says.
absl::StatusOr<std::optional<Varying>> PrepareVarying(Context& c, std::string_view op, const Attrs& attrs,
                                                      std::vector<ValueId>& inputs);
// What the result of a node has, whose operands are ready; nullopt: all of its extents are known.
absl::StatusOr<std::optional<Varying>> VaryingOf(Context& c, const Node& node);

// `v` with `value` behind its end, as a value of known extents.
absl::StatusOr<ValueId> Filled(Context& c, ValueId v, double value);
// Readies places and updates of a scatter into `data`, which are as many: those behind the end go nowhere. Lines that
// the data has as many of stay as they are.
absl::Status CutUpdates(Context& c, ValueId data, ValueId& at, ValueId& updates);
// Which positions along the axis count: bools, [extent].
absl::StatusOr<ValueId> WithinExtent(Context& c, const Varying& varying, int64_t extent);
// extent * factor / divisor, an i64 without axes. The same value for the same numbers: two values that have it agree.
absl::StatusOr<ValueId> ScaledExtent(Context& c, ValueId extent, int64_t factor, int64_t divisor);
// The same elements, one behind another at the front, as if the extent were the largest.
absl::StatusOr<ValueId> Dense(Context& c, ValueId v);

// The first elements of `v` along the axis, `count.extent` of them, or all where there are fewer.
absl::StatusOr<ValueId> FirstOf(Context& c, ValueId v, const Varying& count);

// An error where the extents of `v` are not all known; `what` must know them.
absl::Status MustBeKnown(Context& c, ValueId v, std::string_view what);
// The same of the extents along these axes, counted from either end.
absl::Status MustBeKnownAlong(Context& c, ValueId v, const std::vector<int64_t>& axes, std::string_view what);

// A shape that is known, but for one extent perhaps, which stands with its largest.
struct Dims {
  std::vector<int64_t> most;
  std::optional<Varying> varying;  // axis: the position in `most`
};
// From a value of integers; `what` goes into the error.
absl::StatusOr<Dims> DimsOf(Context& c, ValueId v, std::string_view what);
// `v`, which was made with the largest extents, as one of these.
absl::StatusOr<ValueId> WithDims(Context& c, ValueId v, const Dims& dims);

}  // namespace temper::onnx_frontend
