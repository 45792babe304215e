// Where the elements lie that indices name, for operators that read them there or write them there.
#pragma once

#include <span>

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

// The most comparisons or elements of one result that a converter asks of the run to find its elements.
constexpr int64_t kMostCompared = int64_t{1} << 28;

// An error where a constant of that many places would be too large.
absl::Status CheckPlaces(const Shape& shape);
// 0, step, 2 * step, ... in the order of the elements.
ValueId Counting(Context& c, DType dtype, Shape shape, int64_t step = 1);
// Which of so many are within the length, in i64, that is given for each of a batch: [batch, 1, 1, count].
absl::StatusOr<ValueId> WithinLengths(Context& c, ValueId lengths, int64_t count);
// Elements of `from`, which becomes `flat`, at the places `at` of its first axis.
absl::StatusOr<ValueId> GatherFlat(Context& c, ValueId from, ValueId at, Shape flat);
// The same within each line: [lines, extent, ...] at [lines, count], in i64 or i32, is [lines, count, ...].
absl::StatusOr<ValueId> GatherInLines(Context& c, ValueId from, ValueId at);
// Of i64 indices those below zero, which count from `end`, as they count from the front.
absl::StatusOr<ValueId> CountedFromFront(Context& c, ValueId at, ValueId end);
// Indices counted from the front and inside [0, extent), in i64: an error where one that is known is outside, and its
// nearest neighbour where only the run knows it. `varying`: what the extent is in a run, if only that knows it.
absl::StatusOr<ValueId> Inside(Context& c, ValueId at, int64_t extent, ValueId varying = kNoValue);
// kInvalidArgument: beside `axis` there are more indices than elements.
absl::Status CheckReach(const Shape& data, const Shape& indices, int64_t axis);
// Where each element that `indices` name along `axis` lies in the flat tensor of the shape `data`.
absl::StatusOr<ValueId> PlacesOfElements(Context& c, const Shape& data, ValueId indices, int64_t axis);
// The last axis of `indices` names the first axes of `data`: the places of what they name, in units of what is left of
// it. `names` is the number of named axes. `ends`: extents that only the run knows, by axes of `data`.
absl::StatusOr<ValueId> PlacesOfSlices(Context& c, std::span<const int64_t> data, ValueId indices, size_t* names,
                                       const Varyings& ends = {});
// Bools of which these are numbers, 0 or 1; other values as they are.
ValueId BoolsOf(const Context& c, ValueId v);
// How many bools hold, an i64 without axes: the same value of the same bools, as often as it is asked for. `counted`
// becomes that value if there is none yet.
absl::StatusOr<ValueId> CountOf(Context& c, ValueId holds, ValueId counted = kNoValue);
// Where bools of one axis hold, in their order, in i64: as many as only the run knows.
absl::StatusOr<ValueId> PlacesThatHold(Context& c, ValueId holds);
// Parts one behind another along an axis of which only the run knows how many elements some of them have.
absl::StatusOr<ValueId> ConcatVarying(Context& c, const std::vector<ValueId>& parts, int64_t axis);
// `x` of a new shape, `wanted` with the largest extents, of which `told` vary, and `open`, if it is none of less than
// 0, has what is left: each element is read from where it lies.
absl::StatusOr<ValueId> ReshapedByPlaces(Context& c, ValueId x, const Shape& wanted, Varyings told, int64_t open);
// The same of `x`, as `like` was made by it of a value of the shape and the extents of `x`.
absl::StatusOr<ValueId> ReshapedLike(Context& c, ValueId x, ValueId like);
// What `x` was made of by it, if the shape and the extents `told` are that one's. nullopt: they are not.
std::optional<ValueId> ReshapedBack(Context& c, ValueId x, const Shape& wanted, Varyings told);
// Moves axis `from` to stand at `to`; the others keep their order. Gives what Transpose takes.
std::vector<int64_t> MovedAxis(size_t rank, int64_t from, int64_t to);

}  // namespace temper::onnx_frontend
