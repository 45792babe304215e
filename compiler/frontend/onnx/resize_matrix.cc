#include "compiler/frontend/onnx/resize_matrix.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace temper::onnx_frontend {
namespace {

// The position on the input's axis that element `i` of the result is taken from: in f32, whose roundings decide which
// of two elements is the nearest where a model means neither.
absl::StatusOr<double> PositionOf(const std::string& coordinates, const ResampledAxis& axis, int64_t i) {
  const auto x = static_cast<float>(i), in = static_cast<float>(axis.in), out = static_cast<float>(axis.out);
  const auto scale = static_cast<float>(axis.scale);
  const float half_pixel = (x + 0.5F) / scale - 0.5F;
  if (coordinates == "half_pixel") return half_pixel;
  if (coordinates == "half_pixel_symmetric") return half_pixel + in / 2 * (1 - out / (scale * in));
  if (coordinates == "pytorch_half_pixel") return axis.out > 1 ? half_pixel : 0;
  if (coordinates == "tf_half_pixel_for_nn") return (x + 0.5F) / scale;  // of opsets before 13
  if (coordinates == "align_corners") return axis.out == 1 ? 0 : x * (in - 1) / (out - 1);
  if (coordinates == "asymmetric") return x / scale;
  if (coordinates == "tf_crop_and_resize") {
    const auto begin = static_cast<float>(axis.begin), end = static_cast<float>(axis.end);
    if (axis.out == 1) return (begin + end) / 2 * (in - 1);
    return begin * (in - 1) + x * (end - begin) * (in - 1) / (out - 1);
  }
  return absl::InvalidArgumentError(absl::StrCat("coordinate_transformation_mode '", coordinates, "' is unknown"));
}

absl::StatusOr<double> NearestTo(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  if (mode == "round_prefer_floor") return std::ceil(x - 0.5);
  if (mode == "round_prefer_ceil") return std::floor(x + 0.5);
  return absl::InvalidArgumentError(absl::StrCat("nearest_mode '", mode, "' is unknown"));
}

// The filter's weight so far from its middle.
double Linear(double x) { return std::max(0.0, 1 - std::abs(x)); }
double Cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

int64_t Clamped(double i, const ResampledAxis& axis) {
  return static_cast<int64_t>(std::clamp(i, 0.0, static_cast<double>(axis.in - 1)));
}

bool IsOutside(double i, const ResampledAxis& axis) { return i < 0 || i > static_cast<double>(axis.in - 1); }

// Adds what the element at position `x` is made of to its row.
void AddWeights(const Resampling& r, const ResampledAxis& axis, double x, double* row) {
  // A filter that makes an image smaller is stretched, so that it sees all of it.
  const double stretch = r.antialias ? std::max(1.0, 1 / axis.scale) : 1, reach = (r.mode == "cubic" ? 2 : 1) * stretch;
  std::vector<std::pair<double, double>> taps;
  double sum = 0;
  for (double i = std::floor(x - reach) + 1; i < x + reach; ++i) {
    const double distance = (i - x) / stretch;
    const double weight = r.mode == "cubic" ? Cubic(distance, r.cubic_a) : Linear(distance);
    if (r.exclude_outside && IsOutside(i, axis)) continue;
    taps.emplace_back(i, weight);
    sum += weight;
  }
  const bool whole = !r.antialias && !r.exclude_outside;  // the weights add up to one
  for (const auto& [i, weight] : taps) row[Clamped(i, axis)] += whole || sum == 0 ? weight : weight / sum;
}

}  // namespace

int64_t ExtentByScale(int64_t in, double scale) {
  const double exact = static_cast<double>(in) * scale;
  return static_cast<int64_t>(std::floor(exact + 1e-5 * exact));
}

absl::StatusOr<std::vector<bool>> OutsideOf(const Resampling& r, const ResampledAxis& axis) {
  std::vector<bool> outside;
  for (int64_t i = 0; i < axis.out; ++i) {
    TEMPER_ASSIGN_OR_RETURN(const double x, PositionOf(r.coordinates, axis, i));
    outside.push_back(r.coordinates == "tf_crop_and_resize" && IsOutside(x, axis));
  }
  return outside;
}

absl::StatusOr<std::vector<int64_t>> NearestIndices(const Resampling& r, const ResampledAxis& axis) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < axis.out; ++i) {
    TEMPER_ASSIGN_OR_RETURN(const double x, PositionOf(r.coordinates, axis, i));
    TEMPER_ASSIGN_OR_RETURN(const double nearest, NearestTo(r.nearest, x));
    indices.push_back(Clamped(nearest, axis));
  }
  return indices;
}

absl::StatusOr<std::vector<double>> ResamplingMatrix(const Resampling& r, const ResampledAxis& axis) {
  if (r.mode != "linear" && r.mode != "cubic")
    return absl::InvalidArgumentError(absl::StrCat("mode '", r.mode, "' is unknown"));
  std::vector<double> matrix(static_cast<size_t>(axis.out * axis.in), 0);
  for (int64_t i = 0; i < axis.out; ++i) {
    TEMPER_ASSIGN_OR_RETURN(const double x, PositionOf(r.coordinates, axis, i));
    AddWeights(r, axis, x, &matrix[static_cast<size_t>(i * axis.in)]);
  }
  return matrix;
}

}  // namespace temper::onnx_frontend
