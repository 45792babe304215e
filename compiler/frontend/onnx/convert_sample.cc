// GridSample: an image or a volume at positions that the run computes. Each output pixel gathers whole pixels, all
// channels of one beside each other, and adds them up by weights. AffineGrid: positions that a matrix moves.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/strides.h"
#include "compiler/frontend/onnx/formula.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 24;  // whose positions a model may carry

enum class Sampling { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

// A pixel that counts: its place, in pixels, and its weight.
struct Tap {
  ValueId place, weight;
};

// Positions along one axis of the image, in pixels.
class Axis1d {
 public:
  Axis1d(Formula& f, int64_t extent, bool aligned, Padding padding)
      : f_(f), extent_(static_cast<double>(extent)), aligned_(aligned), padding_(padding) {}

  // The pixels around the positions `grid`: from -1, the first pixel's middle or its outer edge, to 1, the last one's.
  std::vector<Tap> Taps(ValueId grid, Sampling sampling) {
    const double scale = (aligned_ ? extent_ - 1 : extent_) / 2;
    ValueId position = f_.Plus(f_.Times(grid, scale), (extent_ - 1) / 2);
    if (sampling == Sampling::kNearest) {
      const ValueId whole = f_.Call("round", {position});
      return {{Pixel(Folded(whole)), Weight(f_.Number(1), whole)}};
    }
    const bool linear = sampling == Sampling::kLinear;
    // Padding the position does for both pixels of a linear one; those of a cubic are padded one by one.
    if (linear && padding_ != Padding::kZeros) position = f_.Clip(Folded(position), 0, extent_ - 1);
    const ValueId first = f_.Call("floor", {position}), share = f_.Sub(position, first);
    std::vector<Tap> taps;
    int64_t offset = linear ? 0 : -1;
    for (const ValueId weight : linear ? LinearWeights(share) : CubicWeights(share)) {
      const ValueId whole = f_.Plus(first, static_cast<double>(offset++));
      taps.push_back({Pixel(linear ? whole : Folded(whole)), Weight(weight, whole)});
    }
    return taps;
  }

 private:
  double low() const { return aligned_ ? 0 : -0.5; }
  double span() const { return aligned_ ? extent_ - 1 : extent_; }

  std::vector<ValueId> LinearWeights(ValueId share) { return {f_.Minus(1, share), share}; }
  // Keys' convolution with a = -3/4: of the pixels at distances 1 + s, s, 1 - s and 2 - s.
  std::vector<ValueId> CubicWeights(ValueId share) {
    const ValueId rest = f_.Minus(1, share);
    return {FarWeight(share), NearWeight(share), NearWeight(rest), FarWeight(rest)};
  }
  // (a + 2) d^3 - (a + 3) d^2 + 1
  ValueId NearWeight(ValueId d) { return f_.Plus(f_.Mul(f_.Mul(d, d), f_.Plus(f_.Times(d, 1.25), -2.25)), 1); }
  // a (t^3 - 5 t^2 + 8 t - 4) at t = 1 + d, which is a d (1 - d)^2.
  ValueId FarWeight(ValueId d) {
    const ValueId rest = f_.Minus(1, d);
    return f_.Times(f_.Mul(d, f_.Mul(rest, rest)), -0.75);
  }

  // Which pixel it is, inside the image, as an i64.
  ValueId Pixel(ValueId whole) { return f_.Cast(f_.Clip(whole, 0, extent_ - 1), "i64"); }
  // The weight, or none where the pixel is outside.
  ValueId Weight(ValueId weight, ValueId whole) {
    if (padding_ != Padding::kZeros) return weight;
    const ValueId low = f_.Call("less_equal", {f_.Number(0), whole});
    const ValueId high = f_.Call("less", {whole, f_.Number(extent_)});
    return f_.Call("where", {f_.Call("and", {low, high}), weight, f_.Number(0)});
  }
  // Where a position outside is reflected to.
  ValueId Folded(ValueId position) { return padding_ == Padding::kReflection ? Reflected(position) : position; }
  // There and back again: twice the image.
  ValueId Reflected(ValueId position) {
    if (span() <= 0) return f_.Clip(position, 0, 0);
    const ValueId shifted = f_.Plus(position, -low());
    const ValueId turns = f_.Call("floor", {f_.Times(shifted, 1 / (2 * span()))});
    const ValueId there = f_.Sub(shifted, f_.Times(turns, 2 * span()));
    return f_.Plus(f_.Call("min", {there, f_.Minus(2 * span(), there)}), low());
  }

  Formula& f_;
  double extent_;
  bool aligned_;
  Padding padding_;
};

// Every pixel that counts for all axes: places and weights of [n, ..., 1].
std::vector<Tap> Crossed(Context& c, Formula& f, const std::vector<std::vector<Tap>>& axes, const Shape& extents) {
  const std::vector<int64_t> strides = RowMajorStrides(extents);
  std::vector<Tap> all;
  for (size_t d = 0; d < axes.size(); ++d) {
    std::vector<Tap> crossed;
    for (Tap tap : axes[d]) {
      if (strides[d] != 1) tap.place = f.Mul(tap.place, c.Scalar(DType::kI64, static_cast<double>(strides[d])));
      if (d == 0) crossed.push_back(tap);
      for (const Tap& before : all)
        crossed.push_back({f.Add(before.place, tap.place), f.Mul(before.weight, tap.weight)});
    }
    all = std::move(crossed);
  }
  return all;
}

// Sums up the pixels of an image, [n, c, ...], at the taps: the result has the shape [n, ..., c].
absl::StatusOr<ValueId> Summed(Context& c, Formula& f, ValueId image, const std::vector<Tap>& taps, const Shape& out) {
  const Shape s = c.ShapeOf(image);
  const int64_t pixels = NumElements(std::span(s).subspan(2));
  std::vector<int64_t> channels_last = AxesFrom(0, std::ssize(s));
  std::rotate(channels_last.begin() + 1, channels_last.begin() + 2, channels_last.end());
  TEMPER_ASSIGN_OR_RETURN(ValueId flat, c.Transpose(image, channels_last));
  TEMPER_ASSIGN_OR_RETURN(flat, c.Reshape(flat, {s[0] * pixels, s[1]}));
  Shape apart(out.size() + 1, 1);
  apart[0] = s[0];
  NDArray starts(DType::kI64, apart);
  for (int64_t i = 0; i < s[0]; ++i) starts.Set(i, static_cast<double>(i * pixels));
  const ValueId first = c.Constant(std::move(starts));
  ValueId sum = kNoValue;
  for (const Tap& tap : taps) {
    const ValueId place = f.Add(tap.place, first);
    TEMPER_RETURN_IF_ERROR(f.status());
    TEMPER_ASSIGN_OR_RETURN(const ValueId at, c.Reshape(place, out));
    Attrs axis;
    axis.Set("axis", int64_t{0});
    const ValueId part = f.Mul(f.Call("gather", {flat, at}, std::move(axis)), tap.weight);
    sum = sum == kNoValue ? part : f.Add(sum, part);
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  return sum;
}

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
  Formula f(c, of_grid);
  std::vector<std::vector<Tap>> taps;
  for (int64_t d = 0; d < axes; ++d) {
    // The grid has the last axis first.
    TEMPER_ASSIGN_OR_RETURN(const ValueId along, c.Slice(n.Input(1), axes + 1, axes - 1 - d, axes - d));
    taps.push_back(Axis1d(f, image[static_cast<size_t>(d) + 2], aligned, padding).Taps(along, sampling));
  }
  std::vector<Tap> all = Crossed(c, f, taps, Shape(image.begin() + 2, image.end()));
  for (Tap& tap : all) {
    if (of_grid != dtype) tap.weight = f.Cast(tap.weight, std::string(Name(dtype)).c_str());
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Summed(c, f, n.Input(0), all, Shape(grid.begin(), grid.end() - 1)));
  std::vector<int64_t> channels_second = AxesFrom(0, std::ssize(image));
  std::rotate(channels_second.begin() + 1, channels_second.end() - 1, channels_second.end());
  TEMPER_ASSIGN_OR_RETURN(v, c.Transpose(v, channels_second));
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
  static constexpr TableEntry kTable[] = {{"GridSample", GridSample, 2}, {"AffineGrid", AffineGrid, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
