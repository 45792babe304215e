#include "compiler/graph/passes/transposed_conv.h"

#include <algorithm>
#include <cstring>

#include "base/division.h"

namespace temper::passes {
namespace {

// Along one axis of a transposed convolution. Pixel u of the whole result, pads included, has phase u % stride, and is
// the sum over t of input u / stride - t times tap u % stride + t * stride. So all phases of `blocks` of pixels are
// channels of a plain convolution with `taps` taps.
struct Phases {
  int64_t stride, taps, dilation;
  int64_t pad_begin, pad_end;  // of the convolution
  int64_t begin, end;          // of its pixels, those that are the result's

  Phases(int64_t inputs, int64_t outputs, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad)
      : stride(stride), taps(CeilDiv((kernel - 1) * dilation + 1, stride)), dilation(dilation) {
    pad_begin = std::max<int64_t>(taps - 1 - pad / stride, 0);
    pad_end = std::max<int64_t>((outputs - 1 + pad) / stride - (inputs - 1), 0);
    begin = pad - (taps - 1 - pad_begin) * stride;
    end = begin + outputs;
  }
  int64_t Pixels(int64_t inputs) const { return (inputs + pad_begin + pad_end - taps + 1) * stride; }
  // Where the kernel's tap belongs: its phase, and the place in the convolution's kernel, which is turned round.
  std::pair<int64_t, int64_t> PlaceOf(int64_t tap) const {
    return {tap * dilation % stride, taps - 1 - tap * dilation / stride};
  }
};

// The filters of all phases, from [inputs, filters of a group, kernel...]. Of one group the channels of a phase stay
// together, as pixels have them channels-last; of several, the phases of a channel do.
NDArray PhaseFilters(const NDArray& weight, int64_t group, const Phases& y, const Phases& x) {
  const Shape& w = weight.shape();
  const int64_t inputs = w[0] / group, filters = w[1], phases = y.stride * x.stride;
  NDArray dense(weight.dtype(), {group * filters * phases, inputs, y.taps, x.taps});
  const auto size = static_cast<size_t>(SizeOf(weight.dtype()));
  const auto* from = static_cast<const char*>(weight.data());
  auto* to = static_cast<char*>(dense.MutableData());
  std::memset(to, 0, size * static_cast<size_t>(dense.size()));
  for (int64_t at = 0; at < weight.size(); ++at, from += size) {
    const int64_t filter = at / (w[2] * w[3]) % filters, input = at / (w[2] * w[3] * filters);
    const auto [phase_y, tap_y] = y.PlaceOf(at / w[3] % w[2]);
    const auto [phase_x, tap_x] = x.PlaceOf(at % w[3]);
    const int64_t phase = phase_y * x.stride + phase_x, of_all = input / inputs * filters + filter;
    const int64_t channel = group == 1 ? phase * filters + filter : of_all * phases + phase;
    const int64_t place = ((channel * inputs + input % inputs) * y.taps + tap_y) * x.taps + tap_x;
    std::memcpy(to + static_cast<size_t>(place) * size, from, size);
  }
  return dense;
}

}  // namespace

absl::StatusOr<bool> ReplaceByConv(Rewriter& r, Node& node, const NDArray& weight, const FiltersFn& value_of) {
  const Shape image = r.ShapeOf(node.inputs[0]), result = r.ShapeOf(node.output), kernel = weight.shape();
  if (NumElements(image) == 0 || NumElements(kernel) == 0) return false;
  const std::vector<int64_t> strides = node.attrs.Ints("strides", {1, 1}),
                             dilations = node.attrs.Ints("dilations", {1, 1}),
                             pads = node.attrs.Ints("pads", std::vector<int64_t>(4, 0));
  const Phases y(image[2], result[2], kernel[2], strides[0], dilations[0], pads[0]),
      x(image[3], result[3], kernel[3], strides[1], dilations[1], pads[1]);
  const int64_t group = node.attrs.Int("group", 1);
  Attrs conv;
  conv.Set("strides", std::vector<int64_t>{1, 1});
  conv.Set("pads", std::vector<int64_t>{y.pad_begin, x.pad_begin, y.pad_end, x.pad_end});
  conv.Set("dilations", std::vector<int64_t>{1, 1});
  conv.Set("group", group);
  TEMPER_ASSIGN_OR_RETURN(const ValueId filters, value_of(PhaseFilters(weight, group, y, x)));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, r.Emit("conv2d", std::move(conv), {node.inputs[0], filters}, node.name));
  if (y.stride * x.stride > 1) {
    Attrs move;
    move.Set("blocksize", y.stride);
    if (x.stride != y.stride) move.Set("width", x.stride);
    move.Set("mode", std::string(group == 1 ? "DCR" : "CRD"));
    TEMPER_ASSIGN_OR_RETURN(v, r.Emit("depth_to_space", std::move(move), {v}, node.name));
  }
  Attrs cut;
  cut.Set("axes", std::vector<int64_t>{2, 3});
  cut.Set("starts", std::vector<int64_t>{y.begin, x.begin});
  cut.Set("ends", std::vector<int64_t>{y.end, x.end});
  cut.Set("steps", std::vector<int64_t>{1, 1});
  if (y.end - y.begin != y.Pixels(image[2]) || x.end - x.begin != x.Pixels(image[3])) {
    TEMPER_ASSIGN_OR_RETURN(v, r.Emit("slice", std::move(cut), {v}, node.name));
  }
  return r.ReplaceOutput(node, v);
}

}  // namespace temper::passes
