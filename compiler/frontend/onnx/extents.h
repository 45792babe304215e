// Extents that only the run knows, such as the number of boxes that are found. A value that has some is as large as it
// can get; what counts lies at the front along their axes, and what is behind it is any numbers. Context::Call asks
// here what operators make of it. Those that would have to know the extent are refused.
#pragma once

#include <limits>

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

constexpr int64_t kMostExtent = int64_t{1} << 40;  // that is counted with
// What a hidden output tells where the model itself takes no inputs of such lengths (docs/package-format.md).
constexpr int64_t kLengthsDiffer = std::numeric_limits<int64_t>::min();

// Readies operands for an operator that combines elements along an axis whose extent varies: those behind the end
// become ones that change nothing. Negative positions along such an axis become positive ones. What the result has in
// spite of that, beside what VaryingsOfResult says.
absl::StatusOr<Varyings> PrepareVarying(Context& c, std::string_view op, const Attrs& attrs,
                                        std::vector<ValueId>& inputs);
// What the result of a node has, whose operands are ready.
absl::StatusOr<Varyings> VaryingsOfResult(Context& c, const Node& node);

// Whether a reduction combines elements of floats along an axis that varies.
bool CombinesVarying(Context& c, const Attrs& attrs, ValueId x);
// reduce_mean of such ones.
absl::StatusOr<ValueId> MeanOf(Context& c, const Attrs& attrs, ValueId x);

// `v` with `value` behind its ends, as a value of known extents.
absl::StatusOr<ValueId> Filled(Context& c, ValueId v, double value);
// A vector as a value that lies along an axis of `like`, and is the same along all others.
absl::StatusOr<ValueId> LyingAlong(Context& c, ValueId vector, int64_t axis, ValueId like);
// As Filled, along this axis alone.
absl::StatusOr<ValueId> FilledAlong(Context& c, ValueId v, int64_t axis, double value);
// The same, as a value that varies as before, of which it is known: FilledAlong of it is nothing more.
absl::StatusOr<ValueId> FilledToVary(Context& c, ValueId v, int64_t axis, double value);
// `v` with whatever is behind its end along the axis, as a value whose extent there is known.
absl::StatusOr<ValueId> WholeAlong(Context& c, ValueId v, int64_t axis);
// Readies places and updates of a scatter into `data`, which are as many: those behind the end go nowhere. Lines that
// the data has as many of stay as they are.
absl::Status CutUpdates(Context& c, ValueId data, ValueId& at, ValueId& updates);
// Which positions along an axis of `most` elements count: bools, [most].
absl::StatusOr<ValueId> WithinExtent(Context& c, const Varying& varying, int64_t most);
// An error where positions along an axis are not those of what counts: it has several lines.
absl::Status MustBeOneLine(Context& c, ValueId v, std::string_view what);
// What axis `to` of a new shape has of `v`, an axis of the old one: its elements, or each of some of them, or several
// of them. nullopt: it has something else.
absl::StatusOr<std::optional<Varying>> MovedTo(Context& c, const Varying& v, std::span<const int64_t> from,
                                               std::span<const int64_t> shape, size_t to);
// extent * factor / divisor, an i64 without axes. The same value for the same numbers: two values that have it agree.
absl::StatusOr<ValueId> ScaledExtent(Context& c, ValueId extent, int64_t factor, int64_t divisor);
// one * other, the same.
absl::StatusOr<ValueId> ProductOfExtents(Context& c, ValueId one, ValueId other);
// one + other, the same.
absl::StatusOr<ValueId> SumOfExtents(Context& c, ValueId one, ValueId other);
// Makes `extent`, a range of its own, the value of the sum of `terms` and `number`: lengths at which it is another
// number are none that the model takes.
absl::Status MakeSumOf(Context& c, ValueId extent, const std::vector<ValueId>& terms, int64_t number);
// What each of the lines has.
absl::StatusOr<ValueId> LineOf(Context& c, const Varying& v);
// Whether nothing but ranges of inputs decide it.
bool IsOfRanges(Context& c, ValueId extent);
// (extent + more) / stride + 1, rounded down, and no less than 0: how often a window of that stride stops. The same
// value for the same numbers.
absl::StatusOr<ValueId> StopsOf(Context& c, ValueId extent, int64_t more, int64_t stride);
std::string StopsTold(ValueId extent, int64_t more, int64_t stride);  // under which Context::Made has it
// The same elements, one behind another at the front, as if the extents were the largest.
absl::StatusOr<ValueId> Dense(Context& c, ValueId v);

// The first elements of `v` along the axis, `count.extent` of them, or all where there are fewer.
absl::StatusOr<ValueId> FirstOf(Context& c, ValueId v, const Varying& count);

// An error where the extents of `v` are not all known; `what` must know them.
absl::Status MustBeKnown(Context& c, ValueId v, std::string_view what);
// The same of the extents along these axes, counted from either end.
absl::Status MustBeKnownAlong(Context& c, ValueId v, const std::vector<int64_t>& axes, std::string_view what);

// A shape that is known, but for some extents perhaps, which stand with their largest.
struct Dims {
  std::vector<int64_t> most;
  Varyings varyings;  // axis: the position in `most`
};
// From a value of integers; `what` goes into the error.
absl::StatusOr<Dims> DimsOf(Context& c, ValueId v, std::string_view what);
// Of two single numbers how much the one is more than the other, as a sum that may be less than nothing; nullopt: no
// sums are counted so far.
std::optional<Context::Sum> SumLeft(const Context& c, const Dims& all, const Dims& less);
// The same as a number or an extent; nullopt: that is not known,
// or may be less than nothing where it varies.
absl::StatusOr<std::optional<Dims>> DifferenceOf(Context& c, const Dims& all, const Dims& less);
// The same of any two ranges of inputs: lengths at which the one is less are none that the model takes.
absl::StatusOr<std::optional<Dims>> DistanceOf(Context& c, const Dims& all, const Dims& less);
// How much a sum is more than nothing, as a number or an extent; nullopt: nobody knows how much that can be.
absl::StatusOr<std::optional<Dims>> MoreThanNothing(Context& c, const Context::Sum& sum);
// How many steps lead from one of two single numbers to before the other, none where that lies behind; nullopt: that is
// not known.
absl::StatusOr<std::optional<Dims>> StepsBetween(Context& c, const Dims& start, const Dims& end, int64_t step);
// `v`, which was made with the largest extents, as one that varies so, too.
absl::StatusOr<ValueId> WithVaryings(Context& c, ValueId v, const Varyings& told);

}  // namespace temper::onnx_frontend
