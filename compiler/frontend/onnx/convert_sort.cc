// The largest or smallest elements along an axis, in their order.
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// Behind the end of an axis whose extent only the run knows come elements that are sorted last. Lines behind other ends
// are sorted like others.
absl::StatusOr<ValueId> WholeAxis(Context& c, ValueId x, int64_t axis, bool largest) {
  if (!c.Varies(x)) return x;
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, x, "TopK"));
  const DType dtype = c.TypeOf(x).dtype;
  if (c.VaryingAlong(x, axis) != nullptr) {
    if (!IsFloat(dtype) && Info(dtype).bits > 32)
      return absl::UnimplementedError("integers of 64 bits, as many as only the run knows");
    const double extreme = IsFloat(dtype) ? (largest ? -1 : 1) * std::numeric_limits<double>::infinity()
                                          : (largest ? Lowest(dtype) : Largest(dtype));
    TEMPER_ASSIGN_OR_RETURN(x, FilledAlong(c, x, axis, extreme));
  }
  TEMPER_RETURN_IF_ERROR(MakeWhole(c, x).status());
  return x;
}

absl::Status TopK(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(n.Int("axis", -1), c.Rank(n.Input(0))));
  std::vector<int64_t> wanted = {n.Int("k", -1)};
  const int64_t count = shape[static_cast<size_t>(axis)];
  // Where only the run knows k, all are sorted, and the first of them count.
  const bool varies = n.opset >= 10 && c.Known(n.Input(1)) == nullptr;
  if (varies) {
    wanted = {count};
  } else if (n.opset >= 10) {
    TEMPER_ASSIGN_OR_RETURN(wanted, c.KnownInts(n.Input(1), "k"));
  }
  if (wanted.size() != 1 || wanted[0] < 1 || wanted[0] > count)
    return absl::InvalidArgumentError(absl::StrCat("k is a number from 1 to the axis's ", count));
  // The axis last, the others one.
  const int64_t last = c.Rank(n.Input(0)) - 1;
  TEMPER_ASSIGN_OR_RETURN(ValueId x, WholeAxis(c, n.Input(0), axis, n.Int("largest", 1) != 0));
  TEMPER_ASSIGN_OR_RETURN(x, c.Transpose(x, MovedAxis(shape.size(), axis, last)));
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
  Varyings varyings = c.VaryingsOf(n.Input(0));
  std::erase_if(varyings, [axis](const Varying& v) { return v.axis == axis; });
  if (varies) {
    TEMPER_ASSIGN_OR_RETURN(ValueId extent, c.Reshape(n.Input(1), {}));
    TEMPER_ASSIGN_OR_RETURN(extent, c.Cast(extent, DType::kI64));
    varyings.push_back({axis, extent});
  }
  for (ValueId v : {values, positions}) {
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, result));
    TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, MovedAxis(shape.size(), last, axis)));
    c.AddVaryings(v, varyings);
    TEMPER_RETURN_IF_ERROR(c.Set(n, v, output++));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const TableEntry> SortTable() {
  static constexpr TableEntry kTable[] = {{"TopK", TopK, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
