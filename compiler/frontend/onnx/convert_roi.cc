// RoiAlign: regions of an image, each a grid of bins. A bin is the average or the maximum of samples between pixels,
// and where these lie, only the run knows. A gather takes whole pixels, all channels beside each other.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/frontend/onnx/formula.h"

namespace temper::onnx_frontend {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostSamples = 1024;            // a bin
constexpr int64_t kMostAlong = int64_t{1} << 20;  // bins, or samples of all of them, along an axis

// What is known about one axis of the regions.
struct RoiAxis {
  int64_t extent = 0;     // of the image
  int64_t bins = 0;       // of a region
  int64_t samples = 0;    // of a bin: so many, or at most so many where each region has its own number
  bool adaptive = false;  // whether it has
};

// The samples of all regions along an axis, [regions, bins * samples] each.
struct RoiSamples {
  ValueId pixels[2] = {kNoValue, kNoValue};  // the ones around the sample, as i64
  ValueId weights[2] = {kNoValue, kNoValue};
  ValueId exists = kNoValue, count = kNoValue;  // of an adaptive axis; how many there are in a bin, [regions, 1]
};

// A vector over the bins' samples.
template <typename Value>
ValueId PerSample(Context& c, DType dtype, const RoiAxis& axis, Value value) {
  NDArray data(dtype, {axis.bins * axis.samples});
  for (int64_t i = 0; i < data.size(); ++i)
    data.Set(i, value(static_cast<double>(i / axis.samples), static_cast<double>(i % axis.samples)));
  return c.Constant(std::move(data));
}

// Of regions from `begin` on that are `size` long, [regions, 1] each, in pixels.
RoiSamples SamplesOf(Context& c, Formula& f, const RoiAxis& axis, DType dtype, ValueId begin, ValueId size) {
  RoiSamples s;
  const ValueId bin = f.Div(size, f.Number(static_cast<double>(axis.bins)));
  ValueId offset = kNoValue;  // in bins
  if (axis.adaptive) {
    // A region that is larger than the image gets no more samples than the image itself.
    s.count = f.Clip(f.Call("ceil", {bin}), 0, static_cast<double>(axis.samples));
    const ValueId number = PerSample(c, dtype, axis, [](double, double i) { return i; });
    const ValueId start = PerSample(c, dtype, axis, [](double b, double) { return b; });
    s.exists = f.Call("less", {number, s.count});
    offset = f.Add(start, f.Div(f.Plus(number, 0.5), f.Call("max", {s.count, f.Number(1)})));
  } else {
    const double samples = static_cast<double>(axis.samples);
    offset = PerSample(c, dtype, axis, [samples](double b, double i) { return b + (i + 0.5) / samples; });
  }
  const double extent = static_cast<double>(axis.extent);
  const ValueId at = f.Add(begin, f.Mul(bin, offset));
  // Up to a pixel beyond the image, samples have what its edge has; what is further away is zero.
  const ValueId inside =
      f.Call("and", {f.Call("less_equal", {f.Number(-1), at}), f.Call("less_equal", {at, f.Number(extent)})});
  const ValueId near = f.Clip(at, 0, extent - 1), low = f.Call("floor", {near}), share = f.Sub(near, low);
  s.pixels[0] = f.Cast(low, "i64");
  s.pixels[1] = f.Cast(f.Clip(f.Plus(low, 1), 0, extent - 1), "i64");
  s.weights[0] = f.Call("where", {inside, f.Minus(1, share), f.Number(0)});
  s.weights[1] = f.Call("where", {inside, share, f.Number(0)});
  return s;
}

class RoiAligner {
 public:
  RoiAligner(Context& c, const OnnxNode& n, DType dtype)
      : c_(c),
        n_(n),
        f_(c, dtype),
        dtype_(dtype),
        image_(c.ShapeOf(n.Input(0))),
        regions_(c.ShapeOf(n.Input(1))[0]),
        takes_max_(n.String("mode", "avg") == "max"),
        rows_(AxisOf(image_[2], "output_height")),
        columns_(AxisOf(image_[3], "output_width")) {}

  absl::StatusOr<ValueId> Run(ValueId image, ValueId regions) {
    for (const RoiAxis& axis : {rows_, columns_}) {
      if (axis.samples > kMostAlong || axis.bins > kMostAlong / axis.samples)
        return absl::UnimplementedError(absl::StrCat(axis.bins, " bins of ", axis.samples, " samples"));
    }
    if (rows_.samples * columns_.samples > kMostSamples)
      return absl::UnimplementedError(absl::StrCat("sampling_ratio 0 takes up to ", rows_.samples, " x ",
                                                   columns_.samples, " samples a bin here, which is too many"));
    const RoiSamples y = Along(rows_, regions, 1), x = Along(columns_, regions, 0);
    const ValueId v = Bins(Sampled(image, y, x), y, x);
    TEMPER_RETURN_IF_ERROR(f_.status());
    return c_.Transpose(v, {0, 3, 1, 2});
  }

 private:
  RoiAxis AxisOf(int64_t extent, const char* bins) const {
    RoiAxis axis{extent, n_.Int(bins, 1), n_.Int("sampling_ratio", 0), false};
    axis.adaptive = axis.samples == 0;
    if (axis.adaptive) axis.samples = CeilDiv(extent, axis.bins);
    return axis;
  }

  ValueId Reshape(ValueId v, Ints shape) {
    Attrs attrs;
    attrs.Set("shape", std::move(shape));
    return f_.Call("reshape", {v}, std::move(attrs));
  }
  ValueId Reduce(const char* op, ValueId v, Ints axes) {
    Attrs attrs;
    attrs.Set("axes", std::move(axes));
    attrs.Set("keepdims", int64_t{0});
    return f_.Call(op, {v}, std::move(attrs));
  }
  // Coordinate `i` of the regions, in pixels of the image.
  ValueId Coordinate(ValueId regions, int64_t i) {
    Attrs attrs;
    attrs.Set("axes", Ints{1});
    attrs.Set("starts", Ints{i});
    attrs.Set("ends", Ints{i + 1});
    attrs.Set("steps", Ints{1});
    const ValueId scaled = f_.Times(f_.Call("slice", {regions}, std::move(attrs)), n_.Float("spatial_scale", 1));
    return ShiftsPixels() ? f_.Plus(scaled, -0.5) : scaled;
  }
  // Before opset 16 there is no choice.
  bool ShiftsPixels() const {
    return n_.String("coordinate_transformation_mode", n_.opset < 16 ? "output_half_pixel" : "half_pixel") ==
           "half_pixel";
  }
  RoiSamples Along(const RoiAxis& axis, ValueId regions, int64_t first) {
    const ValueId begin = Coordinate(regions, first);
    ValueId size = f_.Sub(Coordinate(regions, first + 2), begin);
    if (!ShiftsPixels()) size = f_.Call("max", {size, f_.Number(1)});
    return SamplesOf(c_, f_, axis, dtype_, begin, size);
  }

  int64_t RowSamples() const { return rows_.bins * rows_.samples; }
  int64_t ColumnSamples() const { return columns_.bins * columns_.samples; }
  // One value a row of samples and one a column as one a sample.
  ValueId Grid(const char* op, ValueId y, ValueId x) {
    return f_.Call(op, {Reshape(y, {regions_, RowSamples(), 1}), Reshape(x, {regions_, 1, ColumnSamples()})});
  }

  // [regions, rows, columns, channels]: of the four pixels around a sample the sum, or the largest, by their weights.
  ValueId Sampled(ValueId image, const RoiSamples& y, const RoiSamples& x) {
    Attrs last;
    last.Set("perm", Ints{0, 2, 3, 1});
    const ValueId pixels =
        Reshape(f_.Call("transpose", {image}, std::move(last)), {image_[0] * image_[2] * image_[3], image_[1]});
    const auto whole = [&](int64_t v) { return c_.Scalar(DType::kI64, static_cast<double>(v)); };
    const ValueId batch = Reshape(f_.Cast(n_.Input(2), "i64"), {regions_, 1, 1});
    const ValueId start = f_.Mul(batch, whole(image_[2] * image_[3]));
    ValueId sum = kNoValue;
    for (const int down : {0, 1}) {
      for (const int over : {0, 1}) {
        const ValueId row = f_.Mul(y.pixels[down], whole(image_[3]));
        const ValueId place = f_.Add(Grid("add", row, x.pixels[over]), start);
        const ValueId weight = Grid("mul", y.weights[down], x.weights[over]);
        Attrs first;
        first.Set("axis", int64_t{0});
        const ValueId part = f_.Mul(f_.Call("gather", {pixels, place}, std::move(first)),
                                    Reshape(weight, {regions_, RowSamples(), ColumnSamples(), 1}));
        sum = sum == kNoValue ? part : f_.Call(takes_max_ ? "max" : "add", {sum, part});
      }
    }
    return sum;
  }

  // [regions, bins, bins, channels]
  ValueId Bins(ValueId v, const RoiSamples& y, const RoiSamples& x) {
    const bool adaptive = rows_.adaptive;
    if (adaptive) {
      const ValueId exists = Reshape(Grid("and", y.exists, x.exists), {regions_, RowSamples(), ColumnSamples(), 1});
      const double none = takes_max_ ? -std::numeric_limits<double>::infinity() : 0;
      v = f_.Call("where", {exists, v, f_.Number(none)});
    }
    v = Reshape(v, {regions_, rows_.bins, rows_.samples, columns_.bins, columns_.samples, image_[1]});
    v = Reduce(takes_max_ ? "reduce_max" : adaptive ? "reduce_sum" : "reduce_mean", v, {2, 4});
    if (!adaptive) return v;
    // A region without any samples is zero.
    const ValueId count = Reshape(f_.Mul(y.count, x.count), {regions_, 1, 1, 1});
    if (takes_max_) return f_.Call("where", {f_.Call("less", {count, f_.Number(1)}), f_.Number(0), v});
    return f_.Div(v, f_.Call("max", {count, f_.Number(1)}));
  }

  Context& c_;
  const OnnxNode& n_;
  Formula f_;
  DType dtype_;
  Shape image_;
  int64_t regions_;
  bool takes_max_;
  RoiAxis rows_, columns_;
};

// Only the run may know them, but those that are known are images that are there.
absl::Status CheckBatches(Context& c, ValueId batches, int64_t count) {
  if (IsFloat(c.TypeOf(batches).dtype)) return absl::InvalidArgumentError("batch_indices are integers");
  if (c.Known(batches) == nullptr) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const Ints known, c.KnownInts(batches, "batch_indices"));
  if (std::ranges::any_of(known, [&](int64_t batch) { return batch < 0 || batch >= count; }))
    return absl::InvalidArgumentError("a batch index names no image");
  return absl::OkStatus();
}

// Narrow floats are computed in f32.
absl::Status RoiAlign(Context& c, const OnnxNode& n) {
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  const Shape image = c.ShapeOf(n.Input(0)), regions = c.ShapeOf(n.Input(1));
  if (!IsFloat(dtype) || c.TypeOf(n.Input(1)).dtype != dtype)
    return absl::InvalidArgumentError("the image and the regions are of one float type");
  if (image.size() != 4 || NumElements(image) < 1 || regions.size() != 2 || regions[1] != 4 ||
      c.ShapeOf(n.Input(2)) != Shape{regions[0]})
    return absl::InvalidArgumentError("the image is [n, c, h, w], regions are [count, 4] and batch_indices [count]");
  const std::string mode = n.String("mode", "avg");
  const std::string shift = n.String("coordinate_transformation_mode", "half_pixel");
  if ((mode != "avg" && mode != "max") || (shift != "half_pixel" && shift != "output_half_pixel"))
    return absl::InvalidArgumentError("mode is 'avg' or 'max', coordinates are 'half_pixel' or 'output_half_pixel'");
  if (n.Int("output_height", 1) < 1 || n.Int("output_width", 1) < 1 || n.Int("sampling_ratio", 0) < 0)
    return absl::InvalidArgumentError("the output has bins, and sampling_ratio is not negative");
  if (std::max(n.Int("output_height", 1), n.Int("output_width", 1)) > kMostAlong)
    return absl::UnimplementedError(absl::StrCat("more than ", kMostAlong, " bins are not supported"));
  TEMPER_RETURN_IF_ERROR(CheckBatches(c, n.Input(2), image[0]));
  const DType wide = dtype == DType::kF64 ? dtype : DType::kF32;
  TEMPER_ASSIGN_OR_RETURN(const ValueId x, c.Cast(n.Input(0), wide));
  TEMPER_ASSIGN_OR_RETURN(const ValueId coordinates, c.Cast(n.Input(1), wide));
  RoiAligner aligner(c, n, wide);
  TEMPER_ASSIGN_OR_RETURN(ValueId v, aligner.Run(x, coordinates));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, dtype));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> RoiTable() {
  static constexpr TableEntry kTable[] = {{"RoiAlign", RoiAlign, 3}};
  return kTable;
}

}  // namespace temper::onnx_frontend
