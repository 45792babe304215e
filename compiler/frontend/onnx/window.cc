#include "compiler/frontend/onnx/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/division.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// Pads [a, b] as [0, a, 0, b].
Ints WidenPads(const Ints& pads) { return pads.size() == 2 ? Ints{0, pads[0], 0, pads[1]} : pads; }

// auto_pad for windows that shrink what they see.
Ints AutoPads(const std::string& mode, const Shape& image, const Window& w) {
  const size_t axes = w.kernel.size();
  Ints pads(2 * axes, 0);
  for (size_t i = 0; i < axes && mode != "VALID"; ++i) {
    const int64_t out = (image[2 + i] + w.strides[i] - 1) / w.strides[i];
    const int64_t span = (w.kernel[i] - 1) * w.dilations[i] + 1;
    const int64_t total = std::max<int64_t>(0, (out - 1) * w.strides[i] + span - image[2 + i]);
    pads[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    pads[axes + i] = total - pads[i];
  }
  return pads;
}

}  // namespace

Ints Widen(Ints values, int64_t filler) {
  if (values.size() == 1) values.insert(values.begin(), filler);
  return values;
}

absl::StatusOr<Window> WindowOf(const OnnxNode& n, const Ints& kernel, const Shape& image) {
  Window w{Widen(kernel, 1), {}, {}, {}};
  const Ints ones(kernel.size(), 1), zeros(2 * kernel.size(), 0);
  w.strides = Widen(n.Ints("strides", ones), 1);
  w.dilations = Widen(n.Ints("dilations", ones), 1);
  w.pads = WidenPads(n.Ints("pads", zeros));
  const size_t axes = w.kernel.size();
  if (axes != 2 && axes != 3) return absl::UnimplementedError("only windows over one, two or three axes are supported");
  if (w.strides.size() != axes || w.dilations.size() != axes || w.pads.size() != 2 * axes || image.size() != 2 + axes)
    return absl::InvalidArgumentError("strides and dilations have one element a spatial axis, pads two");
  if (*std::min_element(w.strides.begin(), w.strides.end()) < 1)
    return absl::InvalidArgumentError("strides are at least 1");
  constexpr int64_t kMost = int64_t{1} << 30;  // products of two of them do not overflow
  for (const Ints* numbers : {&w.kernel, &w.strides, &w.dilations, &w.pads}) {
    if (std::ranges::any_of(*numbers, [](int64_t number) { return number < -kMost || number > kMost; }))
      return absl::InvalidArgumentError("kernel, strides, dilations or pads are out of range");
  }
  const std::string mode = n.String("auto_pad", "NOTSET");
  if (mode != "NOTSET" && !mode.empty()) w.pads = AutoPads(mode, image, w);
  return w;
}

absl::Status SetTransposedPads(const OnnxNode& n, const Shape& image, Ints& extra, Window& w) {
  const std::string mode = n.String("auto_pad", "NOTSET");
  const Ints wanted = Widen(n.Ints("output_shape"), 1);
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  const size_t axes = w.kernel.size();
  if (wanted.empty() && !same) return absl::OkStatus();
  if (!wanted.empty() && wanted.size() != axes)
    return absl::InvalidArgumentError("output_shape has one element a spatial axis");
  for (size_t i = 0; i < axes; ++i) {
    const int64_t out = wanted.empty() ? image[2 + i] * w.strides[i] : wanted[i];
    const int64_t full = (image[2 + i] - 1) * w.strides[i] + extra[i] + (w.kernel[i] - 1) * w.dilations[i] + 1;
    const int64_t total = std::max<int64_t>(0, full - out);
    w.pads[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pads[axes + i] = total - w.pads[i];
    extra[i] += std::max<int64_t>(0, out - full);
    if (out > full && extra[i] >= std::max(w.strides[i], w.dilations[i])) {
      return absl::UnimplementedError(
          absl::StrCat("output_shape is larger than the kernel reaches: ", out, " where ", full, " are reached"));
    }
  }
  return absl::OkStatus();
}

Attrs WindowAttrs(const Window& w) {
  Attrs attrs;
  attrs.Set("strides", w.strides);
  attrs.Set("dilations", w.dilations);
  attrs.Set("pads", w.pads);
  return attrs;
}

namespace {

// `image` along an axis that varies, with `filler` around it for windows that stop `most` times at the most: how much
// there is before it depends on the extent.
absl::StatusOr<ValueId> PaddedToSame(Context& c, const OnnxNode& n, ValueId image, const Varying& along, int64_t most,
                                     int64_t stride, int64_t span, double filler) {
  const int64_t length = (most - 1) * stride + span;
  TEMPER_RETURN_IF_ERROR(CheckPlaces({length}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId stops, StopsOf(c, along.extent, -1, stride));
  Formula f(c, DType::kI64);
  const ValueId seen = f.Plus(f.Times(f.Plus(stops, -1), static_cast<double>(stride)), static_cast<double>(span));
  const ValueId total = f.Call("max", {f.Sub(seen, along.extent), f.Number(0)}), half = f.Div(total, f.Number(2));
  const bool upper = n.String("auto_pad", "NOTSET") == "SAME_UPPER";
  const ValueId at = f.Sub(Counting(c, DType::kI64, {length}), upper ? half : f.Sub(total, half));
  ValueId inside = f.Call("and", {f.Call("less_equal", {f.Number(0), at}), f.Call("less", {at, along.extent})});
  const ValueId last = f.Call("max", {f.Plus(along.extent, -1), f.Number(0)});
  const ValueId place = f.Call("min", {f.Call("max", {at, f.Number(0)}), last});
  TEMPER_RETURN_IF_ERROR(f.status());
  TEMPER_ASSIGN_OR_RETURN(inside, LyingAlong(c, inside, along.axis, image));
  TEMPER_ASSIGN_OR_RETURN(image, WholeAlong(c, image, along.axis));
  TEMPER_ASSIGN_OR_RETURN(image, c.Gather(image, place, along.axis));
  return c.Call("where", {}, {inside, image, c.Scalar(c.TypeOf(image).dtype, filler)});
}

// Whether windows of auto_pad SAME begin as far before the image whatever its extent is. What is added on both sides is
// less than a window, and at least what windows that do not reach the next one's place lack.
bool BeginsAlike(bool upper, int64_t stride, int64_t span) {
  const int64_t least = std::max<int64_t>(span - stride, 0), most = span - 1, more = upper ? 0 : 1;
  return (least + more) / 2 == (most + more) / 2;
}

}  // namespace

absl::StatusOr<Varyings> MoveAlongVarying(Context& c, const OnnxNode& n, double filler, Window& w, ValueId& image) {
  const bool same = n.String("auto_pad", "NOTSET").starts_with("SAME");
  const size_t axes = w.kernel.size();
  const bool single = std::ranges::all_of(w.kernel, [](int64_t taps) { return taps == 1; }) &&
                      std::ranges::all_of(w.pads, [](int64_t pad) { return pad == 0; });
  Varyings moved;
  for (const Varying v : Varyings(c.VaryingsOf(image))) {
    if (v.axis < 2) continue;
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, image, n.proto.op_type()));
    const size_t d = static_cast<size_t>(v.axis) - 2;
    const int64_t stride = w.strides[d], span = (w.kernel[d] - 1) * w.dilations[d] + 1, behind = w.pads[axes + d];
    const bool upper = n.String("auto_pad", "NOTSET") == "SAME_UPPER";
    if (same && !BeginsAlike(upper, stride, span)) {
      const int64_t most = CeilDiv(c.ShapeOf(image)[static_cast<size_t>(v.axis)], stride);
      TEMPER_ASSIGN_OR_RETURN(image, PaddedToSame(c, n, image, v, most, stride, span, filler));
      w.pads[d] = w.pads[axes + d] = 0;
      TEMPER_ASSIGN_OR_RETURN(const ValueId stops, StopsOf(c, v.extent, -1, stride));
      moved.push_back({v.axis, stops});
      continue;
    }
    if (const int64_t least = c.LeastOf(v.extent) + w.pads[d] + behind; !same && least < span) {
      return absl::UnimplementedError(
          absl::StrCat("a window sees ", span, " elements along an axis that may have as few as ", least));
    }
    // Also where no window reaches behind the end: kernels may transform what is there with what is before it. But
    // windows of one element do not meet.
    TEMPER_ASSIGN_OR_RETURN(image, single ? WholeAlong(c, image, v.axis) : FilledAlong(c, image, v.axis, filler));
    int64_t more = behind - span;
    // Windows that reach out, but none that begins behind the end.
    if (n.Int("ceil_mode", 0) != 0) more = std::min<int64_t>(more + stride - 1, -1);
    TEMPER_ASSIGN_OR_RETURN(const ValueId stops, StopsOf(c, v.extent, same ? -1 : w.pads[d] + more, stride));
    moved.push_back({v.axis, stops});
  }
  return moved;
}

absl::StatusOr<Varyings> SpreadAlongVarying(Context& c, const OnnxNode& n, const Window& w, const Ints& extra,
                                            ValueId& image) {
  const size_t axes = w.kernel.size();
  Varyings spread;
  for (const Varying v : Varyings(c.VaryingsOf(image))) {
    if (v.axis < 2) continue;
    TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, image, n.proto.op_type()));
    if (n.Has("output_shape"))
      return absl::UnimplementedError("output_shape of an image whose extent only the run knows");
    const size_t d = static_cast<size_t>(v.axis) - 2;
    const int64_t stride = w.strides[d], span = (w.kernel[d] - 1) * w.dilations[d] + 1;
    const int64_t more = span + extra[d] - stride - w.pads[d] - w.pads[axes + d];
    if (const int64_t least = c.LeastOf(v.extent); least * stride + more < 1)
      return absl::UnimplementedError(absl::StrCat("pads may leave nothing of ", least, " elements"));
    TEMPER_ASSIGN_OR_RETURN(image, FilledAlong(c, image, v.axis, 0));
    TEMPER_ASSIGN_OR_RETURN(ValueId extent, ScaledExtent(c, v.extent, stride, 1));
    TEMPER_ASSIGN_OR_RETURN(extent, StopsOf(c, extent, more - 1, 1));
    spread.push_back({v.axis, extent});
  }
  return spread;
}

absl::StatusOr<ValueId> AddBias(Context& c, ValueId v, ValueId bias) {
  if (bias == kNoValue) return v;
  TEMPER_ASSIGN_OR_RETURN(bias, c.Reshape(bias, {NumElements(c.ShapeOf(bias)), 1, 1}));
  return c.Call("add", {}, {v, bias});
}

}  // namespace temper::onnx_frontend
