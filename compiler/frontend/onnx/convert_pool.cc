// Pools beyond averages and maxima, and what undoes them. Where a window's elements lie is known while importing, so
// that most become gathers along constant indices.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/shape_limits.h"
#include "base/strides.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/places.h"
#include "compiler/frontend/onnx/window.h"

namespace temper::onnx_frontend {
namespace {

constexpr int64_t kMostSights = int64_t{1} << 24;  // that windows see, all together

// [n, c, ...] with two or three axes behind the channels.
Shape AtLeastPlane(Shape shape) {
  if (shape.size() == 3) shape.insert(shape.begin() + 2, 1);
  return shape;
}

// A window on its way over an image; along each axis how far the image reaches and how often the window stops.
struct Sight {
  Window window;
  Ints extents, positions;
};

absl::StatusOr<Sight> SightOf(const OnnxNode& n, const Ints& kernel, const Shape& image) {
  if (image.size() < 3 || kernel.size() + 2 != image.size())
    return absl::InvalidArgumentError("the kernel has one element a spatial axis");
  const Shape shape = AtLeastPlane(image);
  Sight s;
  TEMPER_ASSIGN_OR_RETURN(s.window, WindowOf(n, kernel, shape));
  s.extents.assign(shape.begin() + 2, shape.end());
  const size_t axes = s.extents.size();
  for (size_t d = 0; d < axes; ++d) {
    const Window& w = s.window;
    const int64_t before = w.pads[d], behind = w.pads[axes + d], stride = w.strides[d];
    const int64_t span = (w.kernel[d] - 1) * w.dilations[d] + 1;
    if (w.kernel[d] < 1 || w.dilations[d] < 1 || before < 0 || behind < 0)
      return absl::InvalidArgumentError("kernel and dilations are positive, pads not negative");
    const int64_t room = s.extents[d] + before + behind - span;
    if (room < 0) return absl::InvalidArgumentError("the kernel is larger than the padded input");
    int64_t positions = (room + (n.Int("ceil_mode", 0) != 0 ? stride - 1 : 0)) / stride + 1;
    // A window that would start beyond the input is left out.
    if ((positions - 1) * stride >= s.extents[d] + before) --positions;
    s.positions.push_back(positions);
  }
  for (const Ints* extents : {&s.window.kernel, &s.extents, &s.positions}) {
    TEMPER_RETURN_IF_ERROR(CheckTensorShape(*extents));
  }
  return s;
}

// The pixel that each tap sees at each position, [positions, taps] in row-major order; -1 outside of the image.
absl::StatusOr<Ints> PixelsOf(const Sight& s) {
  const Window& w = s.window;
  const Ints strides = RowMajorStrides(s.extents);
  const int64_t positions = NumElements(s.positions), taps = NumElements(w.kernel);
  if (positions > kMostSights / std::max<int64_t>(taps, 1))
    return absl::UnimplementedError(absl::StrCat("an image with ", positions, " windows of ", taps, " is too large"));
  Ints pixels;
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t pixel = 0, p = position, t = tap;
      bool inside = true;
      for (size_t d = s.extents.size(); d-- > 0; p /= s.positions[d], t /= w.kernel[d]) {
        const int64_t at = p % s.positions[d] * w.strides[d] + t % w.kernel[d] * w.dilations[d] - w.pads[d];
        inside = inside && at >= 0 && at < s.extents[d];
        pixel += at * strides[d];
      }
      pixels.push_back(inside ? pixel : -1);
    }
  }
  return pixels;
}

ValueId Whole(Context& c, DType dtype, Shape shape, const Ints& values) {
  NDArray data(dtype, std::move(shape));
  for (int64_t i = 0; i < data.size(); ++i) data.Set(i, static_cast<double>(values[static_cast<size_t>(i)]));
  return c.Constant(std::move(data));
}
// [n, c] of `like`, then these extents: those of a plane, where the model's image has one axis, without the first.
Shape WithExtents(const Shape& like, const Ints& extents) {
  Shape shape = {like[0], like[1]};
  shape.insert(shape.end(), extents.begin() + (like.size() == 3 ? 1 : 0), extents.end());
  return shape;
}

// --- sums of powers ---

absl::StatusOr<ValueId> Power(Context& c, ValueId x, int64_t p) {
  if (p == 2) return c.Call("mul", {}, {x, x});
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Call("abs", {}, {x}));
  if (p == 1) return v;
  return c.Call("pow", {}, {v, c.Scalar(c.TypeOf(v).dtype, static_cast<double>(p))});
}

absl::StatusOr<ValueId> Root(Context& c, ValueId x, int64_t p) {
  if (p == 1) return x;
  if (p == 2) return c.Call("sqrt", {}, {x});
  return c.Call("pow", {}, {x, c.Scalar(c.TypeOf(x).dtype, 1 / static_cast<double>(p))});
}

// Sums of what the window sees along one axis: averages times their number. The pads are zeros that count, and so does
// what the last window sees beyond them.
absl::StatusOr<ValueId> SumsAlong(Context& c, ValueId v, const Sight& s, size_t d) {
  const Window& w = s.window;
  const Shape shape = c.ShapeOf(v);
  const std::span<const int64_t> dims(shape);
  const int64_t reach = (s.positions[d] - 1) * w.strides[d] + (w.kernel[d] - 1) * w.dilations[d] + 1;
  TEMPER_ASSIGN_OR_RETURN(
      v, c.Reshape(v, {NumElements(dims.first(d + 2)), 1, s.extents[d], NumElements(dims.subspan(d + 3))}));
  const int64_t behind = std::max<int64_t>(0, reach - s.extents[d] - w.pads[d]);
  TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, {0, 0, w.pads[d], 0, 0, 0, behind, 0}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Slice(v, 2, 0, reach));
  Attrs attrs = WindowAttrs({{}, {w.strides[d], 1}, {w.dilations[d], 1}, {0, 0, 0, 0}});
  attrs.Set("kernel", Ints{w.kernel[d], 1});
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("avg_pool2d", std::move(attrs), {v}));
  const ValueId count = c.Scalar(c.TypeOf(v).dtype, static_cast<double>(w.kernel[d]));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("mul", {}, {v, count}));
  Shape result = shape;
  result[d + 2] = s.positions[d];
  return c.Reshape(v, std::move(result));
}

// |x| ^ p, summed over a window or the whole plane, then its root. Narrow floats are summed in f32.
absl::Status LpPool(Context& c, const OnnxNode& n) {
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  const Shape shape = c.ShapeOf(n.Input(0));
  const int64_t p = n.Int("p", 2);
  if (!IsFloat(dtype) || shape.size() < 3) return absl::InvalidArgumentError("takes floats of rank 3 or more");
  if (p < 1) return absl::InvalidArgumentError("p is positive");
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Cast(n.Input(0), dtype == DType::kF64 ? dtype : DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(v, Power(c, v, p));
  if (n.proto.op_type() == "GlobalLpPool") {
    TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_sum", v, AxesFrom(2, c.Rank(v)), true));
  } else {
    TEMPER_ASSIGN_OR_RETURN(const Sight s, SightOf(n, n.Ints("kernel_shape"), shape));
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, AtLeastPlane(shape)));
    for (size_t d = 0; d < s.extents.size(); ++d) {
      TEMPER_ASSIGN_OR_RETURN(v, SumsAlong(c, v, s, d));
    }
    TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, WithExtents(shape, s.positions)));
  }
  TEMPER_ASSIGN_OR_RETURN(v, Root(c, v, p));
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, dtype));
  return c.Set(n, v);
}

// --- indices of maxima ---

// For each index into `shape`, in row-major order: the products with the factors, summed.
Ints Dots(const Ints& shape, const Ints& factors) {
  Ints sums = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    Ints more;
    for (const int64_t sum : sums) {
      for (int64_t i = 0; i < shape[d]; ++i) more.push_back(sum + i * factors[d]);
    }
    sums = std::move(more);
  }
  return sums;
}

// Where the pixel lies that tap `taps` [planes, positions] sees, in the flat tensor: what a position and a tap each
// add.
absl::StatusOr<ValueId> PlacesOfTaps(Context& c, const Sight& s, ValueId taps, bool columns_first) {
  const Window& w = s.window;
  Ints strides = RowMajorStrides(s.extents);
  if (columns_first)
    std::exclusive_scan(s.extents.begin(), s.extents.end(), strides.begin(), int64_t{1}, std::multiplies<>());
  Ints per_position, per_tap;
  int64_t origin = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    per_position.push_back(strides[d] * w.strides[d]);
    per_tap.push_back(strides[d] * w.dilations[d]);
    origin -= strides[d] * w.pads[d];
  }
  Ints starts = Dots(s.positions, per_position);
  for (int64_t& start : starts) start += origin;
  const int64_t planes = c.ShapeOf(taps)[0];
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Gather(c.IntVector(Dots(w.kernel, per_tap)), taps, 0));
  TEMPER_ASSIGN_OR_RETURN(v, c.Call("add", {}, {v, c.IntVector(starts)}));
  return c.Call("add", {}, {v, Counting(c, DType::kI64, {planes, 1}, NumElements(s.extents))});
}

}  // namespace

absl::Status MaxPoolWithIndices(Context& c, const OnnxNode& n) {
  TEMPER_RETURN_IF_ERROR(MustBeKnownAlong(c, n.Input(0), AxesFrom(2, c.Rank(n.Input(0))), "MaxPool with indices"));
  const Shape shape = c.ShapeOf(n.Input(0));
  const DType dtype = c.TypeOf(n.Input(0)).dtype;
  TEMPER_ASSIGN_OR_RETURN(const Sight s, SightOf(n, n.Ints("kernel_shape"), shape));
  TEMPER_ASSIGN_OR_RETURN(Ints pixels, PixelsOf(s));
  const int64_t planes = shape[0] * shape[1], positions = NumElements(s.positions), taps = NumElements(s.window.kernel);
  Ints is_inside;
  for (int64_t& pixel : pixels) {
    is_inside.push_back(pixel >= 0 ? 1 : 0);
    pixel = std::max<int64_t>(pixel, 0);
  }
  const ValueId inside = Whole(c, DType::kBool, {positions, taps}, is_inside);
  TEMPER_ASSIGN_OR_RETURN(ValueId seen, c.Reshape(n.Input(0), {planes, NumElements(s.extents)}));
  TEMPER_ASSIGN_OR_RETURN(seen, c.Gather(seen, Whole(c, DType::kI32, {positions, taps}, pixels), 1));
  const double least = IsFloat(dtype) ? -std::numeric_limits<double>::infinity() : Lowest(dtype);
  TEMPER_ASSIGN_OR_RETURN(seen, c.Call("where", {}, {inside, seen, c.Scalar(dtype, least)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId most, c.Reduce("reduce_max", seen, {2}, true));
  // The first tap that sees it: of taps outside, which have the least number, none does.
  TEMPER_ASSIGN_OR_RETURN(ValueId is_most, c.Call("equal", {}, {seen, most}));
  TEMPER_ASSIGN_OR_RETURN(is_most, c.Call("and", {}, {is_most, inside}));
  const ValueId last = c.Scalar(DType::kI32, static_cast<double>(taps - 1));
  TEMPER_ASSIGN_OR_RETURN(ValueId tap, c.Call("where", {}, {is_most, Counting(c, DType::kI32, {taps}), last}));
  TEMPER_ASSIGN_OR_RETURN(tap, c.Reduce("reduce_min", tap, {2}, false));
  TEMPER_ASSIGN_OR_RETURN(ValueId places, PlacesOfTaps(c, s, tap, n.Int("storage_order", 0) != 0));
  TEMPER_ASSIGN_OR_RETURN(places, c.Reshape(places, WithExtents(shape, s.positions)));
  TEMPER_RETURN_IF_ERROR(c.Set(n, places, 1));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Reshape(most, WithExtents(shape, s.positions)));
  return c.Set(n, v);
}

namespace {

// Planes of `room` zeros with the elements of `x` at the indices. An element stays in its plane, as a pool's index
// does; of several at one place the last one stays.
absl::StatusOr<ValueId> Unpooled(Context& c, ValueId x, ValueId indices, int64_t planes, int64_t room) {
  const int64_t elements = NumElements(c.ShapeOf(x)) / std::max<int64_t>(planes, 1);
  if (elements < 1 || room < 1) return absl::InvalidArgumentError("there is nothing to unpool");
  TEMPER_ASSIGN_OR_RETURN(ValueId at, c.Reshape(indices, {planes, elements}));
  TEMPER_ASSIGN_OR_RETURN(at, c.Call("sub", {}, {at, Counting(c, DType::kI64, {planes, 1}, room)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId updates, c.Reshape(x, {planes, elements}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId zeros, c.Expand(c.Scalar(c.TypeOf(x).dtype, 0), {planes, room}));
  Attrs attrs;
  attrs.Set("axis", int64_t{1});
  return c.Call("scatter", std::move(attrs), {zeros, at, updates});
}

// The indices count in the tensor that the window makes. A larger output_shape has it in its first corner.
absl::Status MaxUnpool(Context& c, const OnnxNode& n) {
  const Shape shape = c.ShapeOf(n.Input(0));
  const Ints kernel = n.Ints("kernel_shape");
  if (shape.size() < 3 || kernel.size() + 2 != shape.size() || c.ShapeOf(n.Input(1)) != shape)
    return absl::InvalidArgumentError("kernel_shape has one element a spatial axis, and there is one index an element");
  if (c.TypeOf(n.Input(1)).dtype != DType::kI64) return absl::InvalidArgumentError("indices are of type i64");
  const Shape image = AtLeastPlane(shape);
  TEMPER_ASSIGN_OR_RETURN(const Window w, WindowOf(n, kernel, image));
  Ints extents;
  for (size_t d = 0; d + 2 < image.size(); ++d) {
    extents.push_back((image[d + 2] - 1) * w.strides[d] + w.kernel[d] - w.pads[d] - w.pads[d + w.kernel.size()]);
    if (extents.back() < 1) return absl::InvalidArgumentError("the pads leave nothing");
  }
  TEMPER_RETURN_IF_ERROR(CheckTensorShape(extents));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, Unpooled(c, n.Input(0), n.Input(1), shape[0] * shape[1], NumElements(extents)));
  const Shape result = WithExtents(shape, extents);
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, result));
  if (n.Input(2) == kNoValue) return c.Set(n, v);
  TEMPER_ASSIGN_OR_RETURN(const Ints wanted, c.KnownInts(n.Input(2), "output_shape"));
  if (wanted.size() != result.size()) return absl::InvalidArgumentError("output_shape has one element an axis");
  Ints pads(2 * result.size(), 0);
  for (size_t d = 0; d < result.size(); ++d) {
    if (wanted[d] < result[d] || (d < 2 && wanted[d] != result[d]))
      return absl::InvalidArgumentError("output_shape is not smaller than what the window makes");
    pads[result.size() + d] = wanted[d] - result[d];
  }
  TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, std::move(pads)));
  return c.Set(n, v);
}

// --- columns to images ---

// For each pixel, which of [taps * positions] add up to it: as many a pixel as the most that one has. What is left is
// `none`.
absl::StatusOr<Ints> SourcesOf(const Ints& pixels, int64_t taps, int64_t count, int64_t none, int64_t* most) {
  const int64_t positions = static_cast<int64_t>(pixels.size()) / taps;
  std::vector<Ints> sources(static_cast<size_t>(count));
  for (int64_t i = 0; i < static_cast<int64_t>(pixels.size()); ++i) {
    const int64_t pixel = pixels[static_cast<size_t>(i)];
    if (pixel >= 0) sources[static_cast<size_t>(pixel)].push_back(i % taps * positions + i / taps);
  }
  *most = 1;
  for (const Ints& s : sources) *most = std::max(*most, static_cast<int64_t>(s.size()));
  if (count > kMostSights / *most)
    return absl::UnimplementedError(absl::StrCat("an image of ", count, " pixels, of ", *most, " columns each"));
  Ints flat;
  for (Ints& s : sources) {
    s.resize(static_cast<size_t>(*most), none);
    flat.insert(flat.end(), s.begin(), s.end());
  }
  return flat;
}

absl::Status Col2Im(Context& c, const OnnxNode& n) {
  TEMPER_ASSIGN_OR_RETURN(const Ints image, c.KnownInts(n.Input(1), "image_shape"));
  TEMPER_ASSIGN_OR_RETURN(const Ints block, c.KnownInts(n.Input(2), "block_shape"));
  const Shape shape = c.ShapeOf(n.Input(0));
  if (image.empty() || image.size() != block.size() || *std::min_element(image.begin(), image.end()) < 1 ||
      *std::min_element(block.begin(), block.end()) < 1)
    return absl::InvalidArgumentError("image_shape and block_shape have one positive element a spatial axis");
  Shape whole = {1, 1};
  whole.insert(whole.end(), image.begin(), image.end());
  TEMPER_ASSIGN_OR_RETURN(const Sight s, SightOf(n, block, whole));
  TEMPER_ASSIGN_OR_RETURN(const Ints pixels, PixelsOf(s));
  const int64_t positions = NumElements(s.positions), taps = NumElements(block), count = NumElements(image);
  if (shape.size() != 3 || shape[1] % taps != 0 || shape[2] != positions)
    return absl::InvalidArgumentError(absl::StrCat("takes [n, channels * ", taps, ", ", positions, "]"));
  if (count > kMostSights) return absl::UnimplementedError("an image that large is not supported");
  whole[0] = shape[0];
  whole[1] = shape[1] / taps;
  int64_t most = 0;
  TEMPER_ASSIGN_OR_RETURN(const Ints sources, SourcesOf(pixels, taps, count, taps * positions, &most));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, c.Reshape(n.Input(0), {whole[0] * whole[1], taps * positions}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Pad(v, {0, 0, 0, 1}));
  TEMPER_ASSIGN_OR_RETURN(v, c.Gather(v, Whole(c, DType::kI32, {count, most}, sources), 1));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reduce("reduce_sum", v, {2}, false));
  TEMPER_ASSIGN_OR_RETURN(v, c.Reshape(v, whole));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> PoolTable() {
  static constexpr TableEntry kTable[] = {
      {"LpPool", LpPool}, {"GlobalLpPool", LpPool}, {"MaxUnpool", MaxUnpool, 2}, {"Col2Im", Col2Im, 3}};
  return kTable;
}

}  // namespace temper::onnx_frontend
