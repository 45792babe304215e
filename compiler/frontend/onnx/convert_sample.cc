// GridSample: an image at positions that the run computes. Each output pixel gathers whole pixels, all channels of one
// beside each other, and adds them up by weights.
#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/formula.h"

namespace temper::onnx_frontend {
namespace {

enum class Padding { kZeros, kBorder, kReflection };

// Positions along one axis of the image, in pixels.
class Axis1d {
 public:
  Axis1d(Formula& f, int64_t extent, bool aligned, Padding padding)
      : f_(f), extent_(static_cast<double>(extent)), aligned_(aligned), padding_(padding) {}

  // From -1, the first pixel's middle or its outer edge, to 1, the last one's.
  ValueId Position(ValueId grid) {
    const double scale = (aligned_ ? extent_ - 1 : extent_) / 2;
    return Padded(f_.Plus(f_.Times(grid, scale), (extent_ - 1) / 2));
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

 private:
  ValueId Padded(ValueId position) {
    if (padding_ == Padding::kZeros) return position;
    const double low = aligned_ ? 0 : -0.5, span = aligned_ ? extent_ - 1 : extent_;
    if (padding_ == Padding::kReflection && span > 0) {
      // There and back again: twice the image.
      const ValueId shifted = f_.Plus(position, -low);
      const ValueId turns = f_.Call("floor", {f_.Times(shifted, 1 / (2 * span))});
      const ValueId there = f_.Call("sub", {shifted, f_.Times(turns, 2 * span)});
      position = f_.Plus(f_.Call("min", {there, f_.Minus(2 * span, there)}), low);
    }
    return f_.Clip(position, 0, extent_ - 1);
  }

  Formula& f_;
  double extent_;
  bool aligned_;
  Padding padding_;
};

// Pixels of [n * h * w, c], with a weight for each of the result's.
class Sampler {
 public:
  Sampler(Context& c, Formula& f, ValueId image, const Shape& out) : c_(c), f_(f), out_(out) {
    const Shape s = c.ShapeOf(image);
    width_ = s[3];
    NDArray starts(DType::kI64, {s[0], 1, 1});
    for (int64_t i = 0; i < s[0]; ++i) starts.Set(i, static_cast<double>(i * s[2] * s[3]));
    starts_ = c.Constant(std::move(starts));
    Attrs last, flat;
    last.Set("perm", std::vector<int64_t>{0, 2, 3, 1});
    flat.Set("shape", std::vector<int64_t>{s[0] * s[2] * s[3], s[1]});
    pixels_ = f.Call("reshape", {f.Call("transpose", {image}, std::move(last))}, std::move(flat));
  }
  // Adds weight times the pixel at (y, x), of [n, h, w] each.
  void Add(ValueId y, ValueId x, ValueId weight) {
    const ValueId row = f_.Call("mul", {y, c_.Scalar(DType::kI64, static_cast<double>(width_))});
    const ValueId place = f_.Call("add", {f_.Call("add", {row, x}), starts_});
    Attrs first, column;
    first.Set("axis", int64_t{0});
    column.Set("shape", std::vector<int64_t>{out_[0], out_[1], out_[2], 1});
    const ValueId pixel = f_.Call("gather", {pixels_, place}, std::move(first));
    const ValueId part = f_.Call("mul", {pixel, f_.Call("reshape", {weight}, std::move(column))});
    sum_ = sum_ == kNoValue ? part : f_.Call("add", {sum_, part});
  }
  ValueId Sum() {
    Attrs attrs;
    attrs.Set("perm", std::vector<int64_t>{0, 3, 1, 2});
    return f_.Call("transpose", {sum_}, std::move(attrs));
  }

 private:
  Context& c_;
  Formula& f_;
  Shape out_;
  int64_t width_ = 0;
  ValueId starts_ = kNoValue, pixels_ = kNoValue, sum_ = kNoValue;
};

absl::StatusOr<Padding> PaddingOf(const OnnxNode& n) {
  const std::string mode = n.String("padding_mode", "zeros");
  if (mode == "zeros") return Padding::kZeros;
  if (mode == "border") return Padding::kBorder;
  if (mode == "reflection") return Padding::kReflection;
  return absl::InvalidArgumentError("padding_mode is 'zeros', 'border' or 'reflection'");
}

// Coordinate `i` of the grid, [n, h, w].
absl::StatusOr<ValueId> Coordinate(Context& c, ValueId grid, int64_t i) {
  const Shape s = c.ShapeOf(grid);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Slice(grid, 3, i, i + 1));
  return c.Reshape(v, {s[0], s[1], s[2]});
}

absl::Status GridSample(Context& c, const OnnxNode& n) {
  const Shape image = c.ShapeOf(n.Input(0)), grid = c.ShapeOf(n.Input(1));
  if (image.size() != 4 || grid.size() != 4)
    return absl::UnimplementedError(absl::StrCat("rank ", image.size(), " is not supported, only 4"));
  if (grid[3] != 2 || grid[0] != image[0] || image[2] < 1 || image[3] < 1)
    return absl::InvalidArgumentError("the grid is [n, h, w, 2] for an image [n, c, ...] that has pixels");
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  if (!IsFloat(dtype) || c.TypeOf(n.Input(1)).dtype != dtype)
    return absl::UnimplementedError("only an image and a grid of one float type are supported");
  const std::string mode = n.String("mode", "bilinear");
  const bool nearest = mode == "nearest";
  if (!nearest && mode != "bilinear" && mode != "linear")
    return absl::UnimplementedError(absl::StrCat("mode '", mode, "' is not supported, only linear and nearest"));
  TEMPER_ASSIGN_OR_RETURN(const Padding padding, PaddingOf(n));
  TEMPER_ASSIGN_OR_RETURN(const ValueId grid_x, Coordinate(c, n.Input(1), 0));
  TEMPER_ASSIGN_OR_RETURN(const ValueId grid_y, Coordinate(c, n.Input(1), 1));

  const bool aligned = n.Int("align_corners", 0) != 0;
  Formula f(c, dtype);
  Axis1d columns(f, image[3], aligned, padding), rows(f, image[2], aligned, padding);
  Sampler sampler(c, f, n.Input(0), grid);
  const ValueId x = columns.Position(grid_x), y = rows.Position(grid_y);
  const ValueId left = f.Call(nearest ? "round" : "floor", {x}), top = f.Call(nearest ? "round" : "floor", {y});
  const ValueId right_share = f.Call("sub", {x, left}), lower_share = f.Call("sub", {y, top});
  for (const int64_t down : {0, 1}) {
    for (const int64_t over : {0, 1}) {
      if (nearest && down + over > 0) continue;
      const ValueId column = f.Plus(left, static_cast<double>(over)), row = f.Plus(top, static_cast<double>(down));
      const ValueId across = nearest ? f.Number(1) : over != 0 ? right_share : f.Minus(1, right_share);
      const ValueId along = nearest ? f.Number(1) : down != 0 ? lower_share : f.Minus(1, lower_share);
      const ValueId weight = f.Call("mul", {columns.Weight(across, column), rows.Weight(along, row)});
      Attrs full;
      full.Set("shape", Shape(grid.begin(), grid.end() - 1));
      sampler.Add(rows.Pixel(row), columns.Pixel(column), f.Call("expand", {weight}, std::move(full)));
    }
  }
  const ValueId v = sampler.Sum();
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> SampleTable() {
  static constexpr TableEntry kTable[] = {{"GridSample", GridSample, 2}};
  return kTable;
}

}  // namespace temper::onnx_frontend
