// Resize and Upsample.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/resize_matrix.h"
#include "compiler/frontend/onnx/resize_run.h"

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

constexpr int64_t kLargestAxis = int64_t{1} << 24, kLargestMatrix = int64_t{1} << 24;

// Scales are floats: what they mean to hit, they miss by a rounding.
absl::StatusOr<std::vector<ResampledAxis>> ByScales(const Shape& shape, const std::vector<double>& scales) {
  std::vector<ResampledAxis> axes;
  for (size_t i = 0; i < shape.size(); ++i) {
    const double exact = static_cast<double>(shape[i]) * scales[i];
    if (!(exact >= 1) || exact > kLargestAxis) return absl::InvalidArgumentError("a scale is out of range");
    axes.push_back({shape[i], ExtentByScale(shape[i], scales[i]), scales[i]});
  }
  return axes;
}

// `policy` of those axes that are given sizes: all are scaled alike, and none is larger, or smaller, than its size.
absl::StatusOr<std::vector<ResampledAxis>> BySizes(const OnnxNode& n, const Shape& shape, const Ints& sizes) {
  const std::string policy = n.String("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    return absl::InvalidArgumentError(absl::StrCat("keep_aspect_ratio_policy '", policy, "' is unknown"));
  std::vector<bool> given(shape.size(), !n.Has("axes"));
  for (int64_t axis : n.Ints("axes")) {
    TEMPER_ASSIGN_OR_RETURN(axis, Axis(axis, static_cast<int64_t>(shape.size())));
    given[static_cast<size_t>(axis)] = true;
  }
  std::vector<ResampledAxis> axes;
  std::vector<double> scales;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > kLargestAxis || shape[i] < 1)
      return absl::InvalidArgumentError("sizes are out of range");
    axes.push_back({shape[i], sizes[i], static_cast<double>(sizes[i]) / static_cast<double>(shape[i])});
    if (given[i]) scales.push_back(axes.back().scale);
  }
  if (policy == "stretch" || scales.empty()) return axes;
  const double scale = policy == "not_larger" ? *std::ranges::min_element(scales) : *std::ranges::max_element(scales);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!given[i]) continue;
    axes[i].scale = scale;
    axes[i].out = std::max<int64_t>(static_cast<int64_t>(std::floor(scale * static_cast<double>(shape[i]) + 0.5)), 1);
  }
  return axes;
}

// Temper's own resize knows sizes alone, and reads just what it needs. Where a scale is not their ratio, coordinates
// would be others than the model means.
bool IsPlain(const Resampling& r, const std::vector<ResampledAxis>& axes) {
  if (r.mode == "cubic" || r.antialias || r.exclude_outside) return false;
  for (const char* own : {"tf_crop_and_resize", "half_pixel_symmetric", "tf_half_pixel_for_nn"}) {
    if (r.coordinates == own) return false;
  }
  return r.coordinates == "align_corners" || std::ranges::all_of(axes, [](const ResampledAxis& axis) {
           return std::abs(axis.scale * static_cast<double>(axis.in) - static_cast<double>(axis.out)) <= 1e-3;
         });
}

absl::StatusOr<ValueId> Plain(Context& c, ValueId x, const Resampling& r, const std::vector<ResampledAxis>& axes) {
  Ints sizes;
  for (const ResampledAxis& axis : axes) sizes.push_back(axis.out);
  Attrs attrs;
  attrs.Set("sizes", std::move(sizes));
  attrs.Set("mode", r.mode);
  attrs.Set("coordinate_transformation_mode", r.coordinates);
  attrs.Set("nearest_mode", r.nearest);
  return c.Call("resize", std::move(attrs), {x});
}

absl::StatusOr<ValueId> AlongAxis(Context& c, ValueId x, size_t at, const Resampling& r, const ResampledAxis& axis) {
  if (r.mode == "nearest") {
    TEMPER_ASSIGN_OR_RETURN(const Ints from, NearestIndices(r, axis));
    NDArray indices(DType::kI64, {axis.out});
    for (int64_t i = 0; i < axis.out; ++i) indices.Set(i, static_cast<double>(from[static_cast<size_t>(i)]));
    return c.Gather(x, c.Constant(std::move(indices)), static_cast<int64_t>(at));
  }
  if (axis.in * axis.out > kLargestMatrix)
    return absl::UnimplementedError(
        absl::StrCat("resampling ", axis.in, " to ", axis.out, " elements is not supported"));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> weights, ResamplingMatrix(r, axis));
  // The axis comes last, and the matrix to the right.
  NDArray matrix(DType::kF32, {axis.in, axis.out});
  for (int64_t i = 0; i < axis.out; ++i) {
    for (int64_t k = 0; k < axis.in; ++k) matrix.Set(k * axis.out + i, weights[static_cast<size_t>(i * axis.in + k)]);
  }
  std::vector<int64_t> perm(c.ShapeOf(x).size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[at], perm.back());
  const bool last = at + 1 == perm.size();
  if (!last) {
    TEMPER_ASSIGN_OR_RETURN(x, c.Transpose(x, perm));
  }
  const Shape shape = c.ShapeOf(x);
  TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, {NumElements(shape) / axis.in, axis.in}));
  TEMPER_ASSIGN_OR_RETURN(x, c.Call("matmul", {}, {x, c.Constant(std::move(matrix))}));
  Shape made = shape;
  made.back() = axis.out;
  TEMPER_ASSIGN_OR_RETURN(x, c.Reshape(x, std::move(made)));
  return last ? absl::StatusOr<ValueId>(x) : c.Transpose(x, perm);
}

// What lies outside the region is `value`.
absl::StatusOr<ValueId> Extrapolated(Context& c, ValueId x, double value, const Resampling& r,
                                     const std::vector<ResampledAxis>& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<bool> outside, OutsideOf(r, axes[i]));
    if (std::ranges::find(outside, true) == outside.end()) continue;
    Shape shape(axes.size() - i, 1);
    shape[0] = axes[i].out;
    NDArray mask(DType::kBool, std::move(shape));
    for (size_t k = 0; k < outside.size(); ++k) mask.Set(static_cast<int64_t>(k), outside[k] ? 1 : 0);
    const ValueId own = c.Scalar(c.TypeOf(x).dtype, value);
    TEMPER_ASSIGN_OR_RETURN(x, c.Call("where", {}, {c.Constant(std::move(mask)), own, x}));
  }
  return x;
}

// The nearest that the integer type has.
absl::StatusOr<ValueId> Rounded(Context& c, ValueId x, DType to) {
  Formula f(c, DType::kF32);
  x = f.Clip(f.Call("round", {x}), to == DType::kU8 ? 0 : -128, to == DType::kU8 ? 255 : 127);
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Cast(x, to);
}

bool Stays(const ResampledAxis& axis) {
  return axis.in == axis.out && axis.scale == 1 && axis.begin == 0 && axis.end == 1;
}

absl::StatusOr<ValueId> ResampledWhole(Context& c, const OnnxNode& n, ValueId x, const Resampling& r,
                                       const std::vector<ResampledAxis>& axes) {
  const DType dtype = c.TypeOf(x).dtype;
  const bool between = r.mode != "nearest", rounds = between && !IsFloat(dtype);
  if (rounds && dtype != DType::kU8 && dtype != DType::kI8)
    return absl::UnimplementedError(absl::StrCat(r.mode, " takes floats and integers of 8 bits"));
  if (rounds || (between && !IsPlain(r, axes))) {
    TEMPER_ASSIGN_OR_RETURN(x, c.Cast(x, DType::kF32));
  }
  if (IsPlain(r, axes)) {
    TEMPER_ASSIGN_OR_RETURN(x, Plain(c, x, r, axes));
    return rounds ? Rounded(c, x, dtype) : x;
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const ResampledAxis& axis = axes[i];
    if (Stays(axis)) continue;
    TEMPER_ASSIGN_OR_RETURN(x, AlongAxis(c, x, i, r, axis));
  }
  TEMPER_ASSIGN_OR_RETURN(x, Extrapolated(c, x, n.Float("extrapolation_value", 0), r, axes));
  return rounds ? Rounded(c, x, dtype) : c.Cast(x, dtype);
}

// By axis, what a size is told by that only the run knows, or kNoValue; nullopt: scales are told.
using Told = std::optional<std::vector<ValueId>>;

absl::StatusOr<ValueId> Resampled(Context& c, const OnnxNode& n, const Resampling& r, std::vector<ResampledAxis> axes,
                                  const Told& told) {
  ValueId x = n.Input(0);
  Varyings varyings;
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, x, n.proto.op_type()));
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const ValueId size = told.has_value() ? (*told)[i] : kNoValue;
    if (c.VaryingAlong(x, at) == nullptr && size == kNoValue) continue;
    const auto out = told.has_value() ? std::optional(size) : std::nullopt;
    TEMPER_ASSIGN_OR_RETURN(const RangedAxis axis, RangedAxisOf(c, x, r, axes[i], at, out));
    if (axis.out != kNoValue) varyings.push_back({at, axis.out});
    if (axis.by_run && r.mode != "nearest" && !IsFloat(c.TypeOf(x).dtype))
      return absl::UnimplementedError("integers between others, along an axis whose extent only the run knows");
    TEMPER_ASSIGN_OR_RETURN(x,
                            axis.by_run ? ResampledByRun(c, x, r, axes[i], axis) : ReadyAlong(c, x, r, axes[i], axis));
    if (axis.by_run) axes[i] = {axes[i].out, axes[i].out};
  }
  TEMPER_ASSIGN_OR_RETURN(x, ResampledWhole(c, n, x, r, axes));
  if (!varyings.empty()) c.SetVaryings(x, std::move(varyings));
  return x;
}

// Upsample, and Resize of opset 10: scales alone, corners at the origin.
absl::Status Upsample(Context& c, const OnnxNode& n) {
  std::vector<double> scales;
  if (const onnx::AttributeProto* a = n.Find("scales")) scales.assign(a->floats().begin(), a->floats().end());
  if (n.Input(1) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(scales, c.KnownFloats(n.Input(1), "scales"));
  }
  const Shape shape = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(scales, Spread(scales, n, std::vector<double>(shape.size(), 1)));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ResampledAxis> axes, ByScales(shape, scales));
  Resampling r{.mode = n.String("mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
  if (r.mode == "bilinear") r.mode = "linear";
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Resampled(c, n, r, axes, std::nullopt));
  return c.Set(n, v);
}

// The region of "tf_crop_and_resize": where it begins along each of the axes, and then where it ends.
absl::Status SetRegion(Context& c, const OnnxNode& n, std::vector<ResampledAxis>& axes) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> roi, c.KnownFloats(n.Input(1), "roi"));
  if (roi.size() % 2 != 0) return absl::InvalidArgumentError("roi has a beginning and an end for each axis");
  const auto middle = roi.begin() + static_cast<std::ptrdiff_t>(roi.size() / 2);
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> begins,
                          Spread(std::vector<double>(roi.begin(), middle), n, std::vector<double>(axes.size(), 0)));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> ends,
                          Spread(std::vector<double>(middle, roi.end()), n, std::vector<double>(axes.size(), 1)));
  for (size_t i = 0; i < axes.size(); ++i) axes[i].begin = begins[i], axes[i].end = ends[i];
  return absl::OkStatus();
}

// The largest, of all axes, and what tells those that only the run knows.
absl::StatusOr<Ints> SizesOf(Context& c, const OnnxNode& n, const Shape& shape, Told& told) {
  TEMPER_ASSIGN_OR_RETURN(const Dims dims, DimsOf(c, n.Input(3), "sizes"));
  TEMPER_ASSIGN_OR_RETURN(const Ints sizes, Spread(dims.most, n, Ints(shape)));
  const int64_t rank = std::ssize(shape);
  const Ints axes = n.Ints("axes", AxesFrom(0, rank));
  told.emplace(shape.size(), kNoValue);
  for (int64_t i = 0; i < rank; ++i) {
    // What is not listed stays.
    const Varying* own = c.VaryingAlong(n.Input(0), i);
    const bool listed = std::ranges::any_of(axes, [&](int64_t axis) { return axis == i || axis + rank == i; });
    if (own != nullptr && !listed) (*told)[static_cast<size_t>(i)] = own->extent;
  }
  for (const Varying& v : dims.varyings) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[static_cast<size_t>(v.axis)], rank));
    (*told)[static_cast<size_t>(axis)] = v.extent;
  }
  const bool stretches = n.String("keep_aspect_ratio_policy", "stretch") == "stretch";
  const bool varies = c.Varies(n.Input(0)) || !dims.varyings.empty();
  if (!stretches && varies) return absl::UnimplementedError("one scale of sizes that only the run knows");
  return sizes;
}

absl::Status Resize(Context& c, const OnnxNode& n) {
  if (n.opset < 11) return Upsample(c, n);
  const Shape shape = c.ShapeOf(n.Input(0));
  Resampling r{.mode = n.String("mode", "nearest"),
               .coordinates = n.String("coordinate_transformation_mode", "half_pixel"),
               .nearest = n.String("nearest_mode", "round_prefer_floor"),
               .cubic_a = n.Float("cubic_coeff_a", -0.75),
               .antialias = n.Int("antialias", 0) != 0,
               .exclude_outside = n.Int("exclude_outside", 0) != 0};
  const ValueId sizes_in = n.Input(3);
  std::vector<ResampledAxis> axes;
  Told told;
  if (sizes_in != kNoValue && NumElements(c.ShapeOf(sizes_in)) > 0) {
    TEMPER_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(c, n, shape, told));
    TEMPER_ASSIGN_OR_RETURN(axes, BySizes(n, shape, sizes));
  } else {
    TEMPER_ASSIGN_OR_RETURN(std::vector<double> scales, c.KnownFloats(n.Input(2), "scales"));
    TEMPER_ASSIGN_OR_RETURN(scales, Spread(scales, n, std::vector<double>(shape.size(), 1)));
    TEMPER_ASSIGN_OR_RETURN(axes, ByScales(shape, scales));
  }
  if (r.coordinates == "tf_crop_and_resize") TEMPER_RETURN_IF_ERROR(SetRegion(c, n, axes));
  const bool repeats =
      std::ranges::all_of(axes, [](const ResampledAxis& axis) { return axis.in > 0 && axis.out % axis.in == 0; });
  // Where each element is repeated, it makes no difference that middles are asked for.
  const bool known =
      !told.has_value() || (!c.Varies(n.Input(0)) && std::ranges::count(*told, kNoValue) == std::ssize(*told));
  if (r.coordinates == "tf_half_pixel_for_nn" && r.nearest == "floor" && repeats && known) r.coordinates = "asymmetric";
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, Resampled(c, n, r, axes, told));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> ResizeTable() {
  static constexpr TableEntry kTable[] = {{"Resize", Resize, 1, Extents::kAlongAnyAxis},
                                          {"Upsample", Upsample, 1, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
