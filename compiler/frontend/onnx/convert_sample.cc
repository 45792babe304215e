// GridSample: an image or a volume at positions that the run computes. AffineGrid: positions that a matrix moves.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/ends.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/sampling.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 24;  // whose positions a model may carry

absl::StatusOr<Padding> PaddingOf(const OnnxNode& n) {
  const std::string mode = n.String("padding_mode", "zeros");
  if (mode == "zeros") return Padding::kZeros;
  if (mode == "border") return Padding::kBorder;
  if (mode == "reflection") return Padding::kReflection;
  return absl::InvalidArgumentError("padding_mode is 'zeros', 'border' or 'reflection'");
}

absl::StatusOr<Sampling> SamplingOf(const OnnxNode& n, int64_t axes) {
  const std::string mode = n.String("mode", "linear");
  if (mode == "nearest") return Sampling::kNearest;
  if (mode == "linear" || mode == "bilinear") return Sampling::kLinear;
  if ((mode == "cubic" || mode == "bicubic") && axes == 2) return Sampling::kCubic;
  return absl::UnimplementedError(absl::StrCat("mode '", mode, "' is not supported for rank ", axes + 2,
                                               ", only linear, nearest and, of rank 4, cubic"));
}

absl::Status GridSample(Context& c, const OnnxNode& n) {
  const Shape image = c.ShapeOf(n.Input(0)), grid = c.ShapeOf(n.Input(1));
  const int64_t axes = std::ssize(image) - 2;
  if (axes != 2 && axes != 3)
    return absl::UnimplementedError(absl::StrCat("rank ", image.size(), " is not supported, only 4 and 5"));
  if (grid.size() != image.size() || grid.back() != axes || grid[0] != image[0] ||
      *std::min_element(image.begin() + 2, image.end()) < 1)
    return absl::InvalidArgumentError("the grid is [n, ..., axes] for an image [n, c, ...] that has pixels");
  const DType dtype = c.TypeOf(n.Input(0)).dtype, of_grid = c.TypeOf(n.Input(1)).dtype;
  if (!IsFloat(dtype) || !IsFloat(of_grid))
    return absl::UnimplementedError("only an image and a grid of floats are supported");
  TEMPER_ASSIGN_OR_RETURN(const Sampling sampling, SamplingOf(n, axes));
  TEMPER_ASSIGN_OR_RETURN(const Padding padding, PaddingOf(n));
  const bool aligned = n.Int("align_corners", 0) != 0;
  // Positions behind the end are any numbers, and so are pixels of theirs.
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, n.Input(1), "GridSample"));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(0), AxesFrom(1, axes + 2), "GridSample"));
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(1), {axes + 1}, "GridSample"));
  ValueId image_of_all = n.Input(0), positions = n.Input(1);
  Varyings sampled = c.VaryingsOf(image_of_all);
  TEMPER_ASSIGN_OR_RETURN(image_of_all, WholeAlong(c, image_of_all, 0));
  TEMPER_ASSIGN_OR_RETURN(const Varyings of_grid_axes, MakeWhole(c, positions));
  for (Varying v : of_grid_axes) {
    if (v.axis == 0 && !sampled.empty()) {
      c.MustAgree(v.extent, sampled[0].extent);
      continue;
    }
    v.axis += v.axis > 0 ? 1 : 0;
    sampled.push_back(v);
  }
  Formula f(c, of_grid);
  std::vector<std::vector<Tap>> taps;
  for (int64_t d = 0; d < axes; ++d) {
    // The grid has the last axis first.
    TEMPER_ASSIGN_OR_RETURN(const ValueId along, c.Slice(positions, axes + 1, axes - 1 - d, axes - d));
    taps.push_back(Axis1d(f, image[static_cast<size_t>(d) + 2], aligned, padding).Taps(along, sampling));
  }
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Sampled(c, f, image_of_all, taps, Shape(grid.begin(), grid.end() - 1)));
  std::vector<int64_t> channels_second = AxesFrom(0, std::ssize(image));
  std::rotate(channels_second.begin() + 1, channels_second.end() - 1, channels_second.end());
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, channels_second));
  c.SetVaryings(v, std::move(sampled));
  return c.Set(n, v);
}

// Positions of all pixels of `extents`, the last axis first, and 1: [pixels, axes + 1]. Of one pixel alone the middle
// is the middle of the axis.
NDArray PixelPositions(DType dtype, const Shape& extents, bool aligned) {
  const int64_t columns = std::ssize(extents) + 1;
  NDArray positions(dtype, {NumElements(extents), columns});
  for (int64_t pixel = 0; pixel < positions.shape()[0]; ++pixel) {
    int64_t rest = pixel, column = 0;
    for (size_t d = extents.size(); d-- > 0; rest /= extents[d]) {
      const double at = static_cast<double>(rest % extents[d]), extent = static_cast<double>(extents[d]);
      const double steps = aligned ? std::max(extent - 1, 1.0) : extent;
      positions.Set(pixel * columns + column++, (2 * at - (extent - 1)) / steps);
    }
    positions.Set(pixel * columns + column, 1);
  }
  return positions;
}

// A sum of a few products each: no matrix product, whose factors may be rounded.
absl::Status AffineGrid(Context& c, const OnnxNode& n) {
  const Shape theta = c.ShapeOf(n.Input(0));
  TEMPER_ASSIGN_OR_RETURN(const Shape size, c.KnownInts(n.Input(1), "size"));
  const int64_t axes = std::ssize(size) - 2;
  if (axes != 2 && axes != 3) return absl::InvalidArgumentError("size is [n, c, h, w] or [n, c, d, h, w]");
  if (theta != Shape{size[0], axes, axes + 1} || *std::min_element(size.begin(), size.end()) < 1)
    return absl::InvalidArgumentError("theta is [n, axes, axes + 1] for a size of n");
  Shape grid(size.begin() + 2, size.end());
  double pixels_in_all = 1;
  for (const int64_t extent : grid) pixels_in_all *= static_cast<double>(extent);
  if (pixels_in_all > static_cast<double>(kMostPixels))
    return absl::UnimplementedError(absl::StrCat("more than ", kMostPixels, " pixels"));
  const int64_t pixels = NumElements(grid);
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  const bool aligned = n.Int("align_corners", 0) != 0;
  TEMPER_ASSIGN_OR_RETURN(const ValueId at,
                          c.Reshape(c.Constant(PixelPositions(dtype, grid, aligned)), {1, pixels, 1, axes + 1}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId matrix, c.Reshape(n.Input(0), {size[0], 1, axes, axes + 1}));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Call("mul", {}, {matrix, at}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_sum", v, {3}, false));
  grid.insert(grid.begin(), size[0]);
  grid.push_back(axes);
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, std::move(grid)));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> SampleTable() {
  static constexpr TableEntry kTable[] = {{"GridSample", GridSample, 2, Extents::kAlongAnyAxis},
                                          {"AffineGrid", AffineGrid, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
