// The largest or smallest elements along an axis, in their order.
#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

absl::Status TopK(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", -1), c.Rank(n.Input(0))));
  std::vector<int64_t> wanted = {n.Int("k", -1)};
  if (n.opset >= 10) {
    TEMPER_ASSIGN_OR_RETURN(wanted, c.KnownInts(n.Input(1), "k"));
  }
  const int64_t count = shape[static_cast<size_t>(axis)];
  if (wanted.size() != 1 || wanted[0] < 1 || wanted[0] > count)
    return absl::InvalidArgumentError(absl::StrCat("k is a number from 1 to the axis's ", count));
  // The axis last, the others one.
  const int64_t last = c.Rank(n.Input(0)) - 1;
  TEMPER_ASSIGN_OR_RETURN(ValueId x, c.Transpose(n.Input(0), MovedAxis(shape.size(), axis, last)));
  Shape result = c.ShapeOf(x);
  result.back() = wanted[0];
  TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(shape) / count, count}));
  Attrs attrs;
  attrs.Set("k", wanted[0]);
  attrs.Set("largest", int64_t{n.Int("largest", 1) != 0});
  TEMPER_ASSIGN_OR_RETURN(const ValueId places, c.Call("top_k", std::move(attrs), {x}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId values, GatherInLines(c, x, places));
  TEMPER_ASSIGN_OR_RETURN(const ValueId positions, c.Cast(places, DType::kI64));
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
