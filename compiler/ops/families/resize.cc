// Resampling of any axes: nearest, or linear (separable). Coordinates are exact fractions, so that no rounding of
// scales decides which element is nearest.
#include <algorithm>

#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

using ir::Expr;

absl::StatusOr<TensorType> Infer(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"sizes", AttrKind::kInts},
                                            {"mode", AttrKind::kString},
                                            {"coordinate_transformation_mode", AttrKind::kString},
                                            {"nearest_mode", AttrKind::kString}}));
  auto one_of = [](const std::string& value, std::initializer_list<std::string_view> choices) {
    return std::find(choices.begin(), choices.end(), value) != choices.end();
  };
  std::string mode = attrs.String("mode", "nearest");
  if (!one_of(mode, {"nearest", "linear"})) return InvalidType("mode is 'nearest' or 'linear'");
  if (!one_of(attrs.String("coordinate_transformation_mode", "half_pixel"),
              {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"})) {
    return InvalidType("coordinate_transformation_mode is unknown");
  }
  if (!one_of(attrs.String("nearest_mode", "round_prefer_floor"),
              {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})) {
    return InvalidType("nearest_mode is unknown");
  }
  if (mode == "linear" && !IsFloat(in[0].dtype)) return InvalidType("linear takes floats");
  Shape sizes = attrs.Ints("sizes");
  if (sizes.size() != in[0].shape.size()) return InvalidType("sizes has one element an axis");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > (int64_t{1} << 24) || in[0].shape[i] < 1)
      return InvalidType("sizes are out of range");
  }
  return TensorType{in[0].dtype, std::move(sizes), {}};
}

// A position on the input's axis: numerator over a constant.
struct Fraction {
  Expr numerator;
  int64_t denominator;
};

Fraction SourcePosition(const Expr& i, int64_t in, int64_t out, const std::string& mode) {
  if (mode == "asymmetric") return {i * Expr(in), out};
  if (mode == "align_corners") return out > 1 ? Fraction{i * Expr(in - 1), out - 1} : Fraction{0, 1};
  if (mode == "pytorch_half_pixel" && out == 1) return {0, 1};
  return {i * Expr(2 * in) + Expr(in - out), 2 * out};
}

Expr Clamped(const Expr& i, int64_t extent) { return ir::Min(ir::Max(i, Expr(0)), Expr(extent - 1)); }

Expr NearestIndex(const Fraction& f, const std::string& mode) {
  const Expr n = f.numerator, d = f.denominator;
  if (mode == "floor") return n / d;
  if (mode == "ceil") return (n + d - Expr(1)) / d;
  if (mode == "round_prefer_ceil") return (n * Expr(2) + d) / (d * Expr(2));
  return (n * Expr(2) + d - Expr(1)) / (d * Expr(2));  // ceil(n / d - 1/2)
}

// Interpolates along `axis` and all after it; axes before are final in `at`.
Expr Interpolate(const ir::Tensor& x, const Index& i, Index at, size_t axis, const Shape& out,
                 const std::string& coordinates) {
  while (axis < i.size() && x.shape()[axis] == out[axis]) {
    at[axis] = i[axis];
    ++axis;
  }
  if (axis == i.size()) return x(at);
  int64_t extent = x.shape()[axis];
  Fraction f = SourcePosition(i[axis], extent, out[axis], coordinates);
  Expr below = f.numerator / Expr(f.denominator);
  Expr weight = ir::Cast(f.numerator % Expr(f.denominator), x.dtype()) *
                ir::Const(1.0 / static_cast<double>(f.denominator), x.dtype());
  at[axis] = Clamped(below, extent);
  Expr low = Interpolate(x, i, at, axis + 1, out, coordinates);
  at[axis] = Clamped(below + Expr(1), extent);
  Expr high = Interpolate(x, i, at, axis + 1, out, coordinates);
  return low + (high - low) * weight;
}

absl::StatusOr<ir::Tensor> Compute(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const ir::Tensor> in,
                                   const TensorType& output) {
  std::string coordinates = attrs.String("coordinate_transformation_mode", "half_pixel");
  std::string nearest = attrs.String("nearest_mode", "round_prefer_floor");
  if (attrs.String("mode", "nearest") == "linear") {
    ir::Tensor x = MaterializeFormula(b, "resize_input", in[0], output);
    return ir::Tensor(output.dtype, output.shape,
                      [=](const Index& i) { return Interpolate(x, i, i, 0, output.shape, coordinates); });
  }
  return ir::Tensor(output.dtype, output.shape, [=, x = in[0]](const Index& i) {
    Index source = i;
    for (size_t k = 0; k < i.size(); ++k) {
      int64_t extent = x.shape()[k];
      if (extent == output.shape[k]) continue;
      source[k] = Clamped(NearestIndex(SourcePosition(i[k], extent, output.shape[k], coordinates), nearest), extent);
    }
    return x(source);
  });
}

double FlopsOf(const Attrs& attrs, std::span<const TensorType> in, const TensorType& output) {
  double taps = 1;
  for (size_t i = 0; i < output.shape.size(); ++i) taps *= in[0].shape[i] == output.shape[i] ? 1 : 2;
  return attrs.String("mode", "nearest") == "linear" ? 3 * (taps - 1) * Elements(output) : 0;
}

}  // namespace

std::vector<OpDef> ResizeOps() { return {{"resize", OpPattern::kInjective, 1, 1, Infer, Compute, FlopsOf}}; }

}  // namespace temper::ops
