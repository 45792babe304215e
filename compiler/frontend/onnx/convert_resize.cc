#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

// Values for `axes` spread over all axes of the operand, `others` elsewhere.
template <typename T>
absl::StatusOr<std::vector<T>> Spread(const std::vector<T>& values, const OnnxNode& n, std::vector<T> others) {
  if (!n.Has("axes")) {
    if (values.size() != others.size()) return absl::InvalidArgumentError("scales or sizes have one element an axis");
    return values;
  }
  const Ints axes = n.Ints("axes");
  if (values.size() != axes.size())
    return absl::InvalidArgumentError("scales or sizes have one element for each of axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(int64_t axis, Axis(axes[i], static_cast<int64_t>(others.size())));
    others[static_cast<size_t>(axis)] = values[i];
  }
  return others;
}

// Temper's resize knows sizes alone; where a scale is not their ratio, coordinates would be others than the model
// means.
absl::StatusOr<Ints> SizesFromScales(const Shape& shape, const std::vector<double>& scales,
                                     const std::string& coordinates) {
  Ints sizes;
  for (size_t i = 0; i < shape.size(); ++i) {
    const double exact = static_cast<double>(shape[i]) * scales[i];
    if (!(exact >= 1) || exact > 1e9) return absl::InvalidArgumentError("a scale is out of range");
    // Scales are floats: what they mean to hit, they miss by a rounding.
    const double whole = std::floor(exact + 1e-5 * exact);
    if (coordinates != "align_corners" && std::abs(whole - exact) > 1e-3) {
      return absl::UnimplementedError(absl::StrCat("scale ", scales[i], " of an axis of ", shape[i],
                                                   " gives no whole size, which is not supported"));
    }
    sizes.push_back(static_cast<int64_t>(whole));
  }
  return sizes;
}

absl::StatusOr<ValueId> CallResize(Context& c, const OnnxNode& n, Ints sizes, const std::string& coordinates,
                                   const std::string& nearest) {
  std::string mode = n.String("mode", "nearest");
  if (mode == "bilinear") mode = "linear";
  Attrs attrs;
  attrs.Set("sizes", std::move(sizes));
  attrs.Set("mode", std::move(mode));
  attrs.Set("coordinate_transformation_mode", coordinates);
  attrs.Set("nearest_mode", nearest);
  return c.Call("resize", std::move(attrs), {n.Input(0)});
}

// Upsample, and Resize of opset 10: scales alone, corners at the origin.
absl::Status ByScales(Context& c, const OnnxNode& n) {
  std::vector<double> scales;
  if (const onnx::AttributeProto* a = n.Find("scales")) scales.assign(a->floats().begin(), a->floats().end());
  if (n.Input(1) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(scales, c.KnownFloats(n.Input(1), "scales"));
  }
  const Shape& shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(scales, Spread(scales, n, std::vector<double>(shape.size(), 1)));
  TEMPER_ASSIGN_OR_RETURN(Ints sizes, SizesFromScales(shape, scales, "asymmetric"));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, CallResize(c, n, std::move(sizes), "asymmetric", "floor"));
  return c.Set(n, v);
}

absl::Status Resize(Context& c, const OnnxNode& n) {
  if (n.opset < 11) return ByScales(c, n);
  if (n.Int("antialias", 0) != 0) return absl::UnimplementedError("antialias is not supported");
  if (n.String("keep_aspect_ratio_policy", "stretch") != "stretch")
    return absl::UnimplementedError("keep_aspect_ratio_policy is not supported");
  const Shape& shape = c.ShapeOf(n.Input(0));
  const std::string coordinates = n.String("coordinate_transformation_mode", "half_pixel");
  const ValueId scales_in = n.Input(2), sizes_in = n.Input(3);
  Ints sizes;
  if (sizes_in != kNoValue && NumElements(c.ShapeOf(sizes_in)) > 0) {
    TEMPER_ASSIGN_OR_RETURN(sizes, c.KnownInts(sizes_in, "sizes"));
    TEMPER_ASSIGN_OR_RETURN(sizes, Spread(sizes, n, Ints(shape)));
  } else {
    TEMPER_ASSIGN_OR_RETURN(std::vector<double> scales, c.KnownFloats(scales_in, "scales"));
    TEMPER_ASSIGN_OR_RETURN(scales, Spread(scales, n, std::vector<double>(shape.size(), 1)));
    TEMPER_ASSIGN_OR_RETURN(sizes, SizesFromScales(shape, scales, coordinates));
  }
  TEMPER_ASSIGN_OR_RETURN(
      ValueId v, CallResize(c, n, std::move(sizes), coordinates, n.String("nearest_mode", "round_prefer_floor")));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> ResizeTable() {
  static constexpr TableEntry kTable[] = {{"Resize", Resize}, {"Upsample", ByScales}};
  return kTable;
}

}  // namespace temper::onnx_frontend
