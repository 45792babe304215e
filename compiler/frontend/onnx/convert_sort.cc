// The largest or smallest elements along an axis, in their order. Each element's place is how many others come before
// it: comparisons of all with all, which are vectors, and no order of steps that depends on the data.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMost = 16384;  // elements that are compared with each other: time grows with their square

// Whether `other` comes before `own` by its value, and whether they are alike. NaN counts as the largest.
struct Order {
  ValueId before = kNoValue, same = kNoValue;
};
absl::StatusOr<Order> OrderOf(Context& c, ValueId other, ValueId own, bool largest) {
  Order order;
  TEMPER_ASSIGN_OR_RETURN(order.before, c.Call(largest ? "greater" : "less", {}, {other, own}));
  TEMPER_ASSIGN_OR_RETURN(order.same, c.Call("equal", {}, {other, own}));
  if (!IsFloat(c.TypeOf(own).dtype)) return order;
  TEMPER_ASSIGN_OR_RETURN(ValueId other_is_number, c.Call("equal", {}, {other, other}));
  TEMPER_ASSIGN_OR_RETURN(ValueId own_is_number, c.Call("equal", {}, {own, own}));
  TEMPER_ASSIGN_OR_RETURN(ValueId other_is_nan, c.Call("not", {}, {other_is_number}));
  TEMPER_ASSIGN_OR_RETURN(ValueId own_is_nan, c.Call("not", {}, {own_is_number}));
  TEMPER_ASSIGN_OR_RETURN(
      ValueId one_is_nan,
      c.Call("and", {}, {largest ? other_is_nan : other_is_number, largest ? own_is_number : own_is_nan}));
  TEMPER_ASSIGN_OR_RETURN(ValueId both_are_nan, c.Call("and", {}, {other_is_nan, own_is_nan}));
  TEMPER_ASSIGN_OR_RETURN(order.before, c.Call("or", {}, {order.before, one_is_nan}));
  TEMPER_ASSIGN_OR_RETURN(order.same, c.Call("or", {}, {order.same, both_are_nan}));
  return order;
}

// The place of each element of [rows, count] in its row, of equal ones the first before the others: i32.
absl::StatusOr<ValueId> PlacesOf(Context& c, ValueId x, bool largest) {
  const Shape shape = c.ShapeOf(x);
  const int64_t rows = shape[0], count = shape[1];
  TEMPER_ASSIGN_OR_RETURN(ValueId own, c.Reshape(x, {rows, count, 1}));
  TEMPER_ASSIGN_OR_RETURN(ValueId other, c.Reshape(x, {rows, 1, count}));
  TEMPER_ASSIGN_OR_RETURN(const Order order, OrderOf(c, other, own, largest));
  TEMPER_ASSIGN_OR_RETURN(
      ValueId earlier,
      c.Call("less", {}, {Counting(c, DType::kI32, {1, 1, count}), Counting(c, DType::kI32, {1, count, 1})}));
  TEMPER_ASSIGN_OR_RETURN(ValueId first, c.Call("and", {}, {order.same, earlier}));
  TEMPER_ASSIGN_OR_RETURN(ValueId before, c.Call("or", {}, {order.before, first}));
  TEMPER_ASSIGN_OR_RETURN(before, c.Cast(before, DType::kI32));
  return c.Reduce("reduce_sum", before, {2}, false);
}

// Of [rows, count] the positions of the first `k` by their places: [rows, k] of i64.
absl::StatusOr<ValueId> FirstOf(Context& c, ValueId places, int64_t k) {
  const Shape shape = c.ShapeOf(places);
  TEMPER_ASSIGN_OR_RETURN(ValueId place, c.Reshape(places, {shape[0], 1, shape[1]}));
  TEMPER_ASSIGN_OR_RETURN(ValueId taken, c.Call("equal", {}, {place, Counting(c, DType::kI32, {k, 1})}));
  TEMPER_ASSIGN_OR_RETURN(ValueId position,
                          c.Call("where", {}, {taken, Counting(c, DType::kI32, {shape[1]}), c.Scalar(DType::kI32, 0)}));
  TEMPER_ASSIGN_OR_RETURN(position, c.Reduce("reduce_sum", position, {2}, false));
  return c.Cast(position, DType::kI64);
}

// Of [rows, count]: values and positions of the first `k` of each row.
struct First {
  ValueId values = kNoValue, positions = kNoValue;
};
absl::StatusOr<First> FirstOfRows(Context& c, ValueId x, int64_t k, bool largest) {
  First first;
  TEMPER_ASSIGN_OR_RETURN(const ValueId places, PlacesOf(c, x, largest));
  TEMPER_ASSIGN_OR_RETURN(first.positions, FirstOf(c, places, k));
  TEMPER_ASSIGN_OR_RETURN(first.values, GatherInLines(c, x, first.positions));
  return first;
}

// How many elements of so many in a row are compared with each other, so that the fewest are compared in all: those of
// a part, and then the first `k` of each part. 0: all of them.
int64_t PartOf(int64_t count, int64_t k) {
  if (count <= kMost) return 0;
  int64_t best = 0;
  double least = 0;
  for (int64_t part = 16; part <= kMost; part *= 2) {
    const int64_t left = CeilDiv(count, part) * k;
    if (part < k || left > kMost) continue;
    const double compared =
        static_cast<double>(count) * static_cast<double>(part) + static_cast<double>(left) * static_cast<double>(left);
    if (best == 0 || compared < least) best = part, least = compared;
  }
  return best;
}

// The same of long rows: first of each of their parts. Equal ones stay in their order, as parts do.
absl::StatusOr<First> FirstOfParts(Context& c, ValueId x, int64_t k, int64_t part, bool largest) {
  const int64_t rows = c.ShapeOf(x)[0], count = c.ShapeOf(x)[1], whole = count / part * part;
  std::vector<ValueId> values, positions;
  const auto add = [&](int64_t begin, int64_t end, int64_t length) -> absl::Status {
    const int64_t parts = (end - begin) / length, taken = std::min(k, length);
    TEMPER_ASSIGN_OR_RETURN(ValueId own, c.Slice(x, 1, begin, end));
    TEMPER_ASSIGN_OR_RETURN(own, c.Reshape(own, {rows * parts, length}));
    TEMPER_ASSIGN_OR_RETURN(First first, FirstOfRows(c, own, taken, largest));
    TEMPER_ASSIGN_OR_RETURN(first.positions, c.Reshape(first.positions, {rows, parts, taken}));
    NDArray starts(DType::kI64, {parts, 1});
    for (int64_t i = 0; i < parts; ++i) starts.Set(i, static_cast<double>(begin + i * length));
    TEMPER_ASSIGN_OR_RETURN(first.positions, c.Call("add", {}, {first.positions, c.Constant(std::move(starts))}));
    TEMPER_ASSIGN_OR_RETURN(values.emplace_back(), c.Reshape(first.values, {rows, parts * taken}));
    TEMPER_ASSIGN_OR_RETURN(positions.emplace_back(), c.Reshape(first.positions, {rows, parts * taken}));
    return absl::OkStatus();
  };
  TEMPER_RETURN_IF_ERROR(add(0, whole, part));
  if (whole < count) TEMPER_RETURN_IF_ERROR(add(whole, count, count - whole));
  const bool two = values.size() > 1;
  TEMPER_ASSIGN_OR_RETURN(const ValueId left, two ? c.Concat(values, 1) : values[0]);
  TEMPER_ASSIGN_OR_RETURN(const ValueId from, two ? c.Concat(positions, 1) : positions[0]);
  TEMPER_ASSIGN_OR_RETURN(First first, FirstOfRows(c, left, k, largest));
  TEMPER_ASSIGN_OR_RETURN(first.positions, GatherInLines(c, from, first.positions));
  return first;
}

absl::Status TopK(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", -1), c.Rank(n.Input(0))));
  Ints wanted = {n.Int("k", -1)};
  if (n.opset >= 10) {
    TEMPER_ASSIGN_OR_RETURN(wanted, c.KnownInts(n.Input(1), "k"));
  }
  const int64_t count = shape[static_cast<size_t>(axis)];
  if (wanted.size() != 1 || wanted[0] < 1 || wanted[0] > count)
    return absl::InvalidArgumentError(absl::StrCat("k is a number from 1 to the axis's ", count));
  const int64_t part = PartOf(count, wanted[0]);
  if (part == 0 && count > kMost) {
    return absl::UnimplementedError(
        absl::StrCat("the first ", wanted[0], " of ", count, " are not supported: too many are left to compare"));
  }
  // The axis last, the others one.
  const int64_t last = c.Rank(n.Input(0)) - 1;
  TEMPER_ASSIGN_OR_RETURN(ValueId x, c.Transpose(n.Input(0), MovedAxis(shape.size(), axis, last)));
  Shape result = c.ShapeOf(x);
  TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(shape) / count, count}));
  const bool largest = n.Int("largest", 1) != 0;
  TEMPER_ASSIGN_OR_RETURN(const First first, part == 0 ? FirstOfRows(c, x, wanted[0], largest)
                                                       : FirstOfParts(c, x, wanted[0], part, largest));
  result.back() = wanted[0];
  int output = 0;
  for (ValueId v : {first.values, first.positions}) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, result));
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, MovedAxis(shape.size(), last, axis)));
    TEMPER_RETURN_IF_ERROR(c.Set(n, v, output++));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const TableEntry> SortTable() {
  static constexpr TableEntry kTable[] = {{"TopK", TopK}};
  return kTable;
}

}  // namespace temper::onnx_frontend
