// The largest or smallest elements along an axis, in their order. Each element's place is how many others come before
// it: comparisons of all with all, which are vectors, and no order of steps that depends on the data.
#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMost = 16384;  // elements along the axis: time grows with their square

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
  if (count > kMost)
    return absl::UnimplementedError(absl::StrCat("an axis of ", count, " is not supported, only up to ", kMost));
  // The axis last, the others one.
  const int64_t last = c.Rank(n.Input(0)) - 1;
  TEMPER_ASSIGN_OR_RETURN(ValueId x, c.Transpose(n.Input(0), MovedAxis(shape.size(), axis, last)));
  Shape result = c.ShapeOf(x);
  TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(shape) / count, count}));
  TEMPER_ASSIGN_OR_RETURN(ValueId places, PlacesOf(c, x, n.Int("largest", 1) != 0));
  TEMPER_ASSIGN_OR_RETURN(ValueId positions, FirstOf(c, places, wanted[0]));
  TEMPER_ASSIGN_OR_RETURN(ValueId values, GatherInLines(c, x, positions));
  result.back() = wanted[0];
  int output = 0;
  for (ValueId v : {values, positions}) {
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
