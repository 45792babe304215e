// Resampling along an axis, of any filter, scale and region that ONNX's Resize has: by indices, or as a product with a
// matrix of constants. Errors are InvalidArgument: a name is not ONNX's.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace temper::onnx_frontend {

struct Resampling {
  std::string mode = "nearest";  // or "linear", "cubic"
  std::string coordinates = "half_pixel";
  std::string nearest = "round_prefer_floor";
  double cubic_a = -0.75;
  bool antialias = false, exclude_outside = false;
};

struct ResampledAxis {
  int64_t in = 1, out = 1;
  double scale = 1;           // may be another number than out / in
  double begin = 0, end = 1;  // of the region that "tf_crop_and_resize" sees, as parts of the axis
};

// What a scale makes of an extent.
int64_t ExtentByScale(int64_t in, double scale);
// Where elements of the result lie outside the region of "tf_crop_and_resize", and hold a value of their own.
absl::StatusOr<std::vector<bool>> OutsideOf(const Resampling& r, const ResampledAxis& axis);
// Of mode "nearest": which element of the input each element of the result is.
absl::StatusOr<std::vector<int64_t>> NearestIndices(const Resampling& r, const ResampledAxis& axis);
// Of the others: what each element of the result is the sum of, row-major [out][in].
absl::StatusOr<std::vector<double>> ResamplingMatrix(const Resampling& r, const ResampledAxis& axis);

}  // namespace temper::onnx_frontend
