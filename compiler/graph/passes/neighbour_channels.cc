// Convolutions of few output channels, as they end networks that make images or depths: a vector of output channels
// would be mostly empty. Neighbours along a row of the result become channels of one wider filter, which holds the
// original once for each of them, shifted: its zeros cost less than empty lanes. Channels last, the result has the
// pixels where they belong, so nothing moves. As with Winograd's algorithm, an infinity in the image reaches a few
// pixels more than it should.
#include <algorithm>
#include <cstring>

#include "base/division.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/graph/passes/rewriter.h"

namespace temper::passes {
namespace {

constexpr double kGain = 1.3;                      // less is not worth a kernel more for what follows
constexpr double kFewest = double{1 << 24};        // multiplications, in whole vectors: fewer take no time
constexpr int64_t kMostFilter = int64_t{1} << 20;  // elements of the wider filter, which has to stay in a cache

struct Neighbours {
  int64_t lanes, channels, kernel, stride;

  int64_t Kernel(int64_t count) const { return kernel + (count - 1) * stride; }
  // The share of multiplications that are the original's, were `count` neighbours one pixel.
  double Use(int64_t count) const {
    const int64_t made = count * channels;
    const double full = static_cast<double>(made) / static_cast<double>(CeilDiv(made, lanes) * lanes);
    return full * static_cast<double>(kernel) / static_cast<double>(Kernel(count));
  }
  // How many should be one: 1 if none should.
  int64_t Best(int64_t most) const {
    int64_t best = 1;
    for (int64_t count = 2; count <= most; ++count) {
      if (Use(count) > Use(best)) best = count;
    }
    return Use(best) >= kGain * Use(1) ? best : 1;
  }
};

// Of each neighbour all channels, one neighbour behind another.
NDArray WiderFilter(const NDArray& filter, int64_t count, int64_t stride) {
  Shape shape = filter.shape();
  const int64_t kernel = shape[3], rows = filter.size() / kernel, wider = kernel + (count - 1) * stride;
  shape[0] *= count;
  shape[3] = wider;
  NDArray result(filter.dtype(), shape);
  const int64_t bytes = SizeOf(filter.dtype());
  const auto* from = static_cast<const char*>(filter.data());
  auto* to = static_cast<char*>(result.MutableData());
  std::memset(to, 0, static_cast<size_t>(result.bytes()));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + ((i * rows + row) * wider + i * stride) * bytes, from + row * kernel * bytes,
                  static_cast<size_t>(kernel * bytes));
    }
  }
  return result;
}

absl::StatusOr<bool> Widen(Rewriter& r, Node& node, int64_t lanes) {
  if (node.op != "conv2d" || node.attrs.Int("group", 1) != 1) return false;
  const NDArray* filter = r.Constant(node.inputs[1]);
  if (filter == nullptr || filter->dtype() != DType::kF32 || r.TypeOf(node.output).dtype != DType::kF32) return false;
  const std::vector<int64_t> strides = node.attrs.Ints("strides", {1, 1}),
                             dilations = node.attrs.Ints("dilations", {1, 1});
  std::vector<int64_t> pads = node.attrs.Ints("pads", std::vector<int64_t>(4, 0));
  const Shape image = r.ShapeOf(node.inputs[0]), result = r.ShapeOf(node.output);
  const int64_t channels = result[1], width = result[3], stride = strides[1];
  if (dilations[1] != 1 || channels >= lanes || filter->size() == 0) return false;
  const double vectors = static_cast<double>(NumElements(result)) / static_cast<double>(channels);
  if (vectors * static_cast<double>(lanes * filter->size() / channels) < kFewest) return false;
  const Neighbours neighbours{lanes, channels, filter->shape()[3], stride};
  const int64_t count = neighbours.Best(std::min(lanes, width)), pixels = CeilDiv(width, count);
  if (count == 1 || filter->size() / neighbours.kernel * neighbours.Kernel(count) * count > kMostFilter) return false;

  pads[3] = std::max<int64_t>(0, (pixels * count - 1) * stride + neighbours.kernel - image[3] - pads[1]);
  Attrs conv = IntsAttrs("strides", {strides[0], count * stride});
  conv.Set("pads", pads);
  conv.Set("dilations", dilations);
  conv.Set("group", int64_t{1});
  const ValueId wider = r.AddConstant(WiderFilter(*filter, count, stride));
  TEMPER_ASSIGN_OR_RETURN(ValueId v, r.Emit("conv2d", std::move(conv), {node.inputs[0], wider}, node.name));
  const Attrs apart = IntsAttrs("shape", {result[0], count, channels, result[2], pixels});
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("reshape", apart, {v}, node.name));
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("transpose", IntsAttrs("perm", {0, 2, 3, 4, 1}), {v}, node.name));
  const Attrs together = IntsAttrs("shape", {result[0], channels, result[2], pixels * count});
  TEMPER_ASSIGN_OR_RETURN(v, r.Emit("reshape", together, {v}, node.name));
  if (pixels * count != width) {
    TEMPER_ASSIGN_OR_RETURN(v, r.Emit("slice", SliceAttrs(3, 0, width), {v}, node.name));
  }
  return r.ReplaceOutput(node, v);
}

}  // namespace

absl::Status NeighboursAsChannels(Graph& g, const Target& t) {
  if (t.cpu() == nullptr) return absl::OkStatus();
  const Rewriter::Rule rules[] = {
      [lanes = t.cpu()->lanes()](Rewriter& r, Node& node) { return Widen(r, node, lanes); }};
  return Rewriter(g).Run(rules).status();
}

}  // namespace temper::passes
