// Windows of convolutions and pools, and what their converters share.
#pragma once

#include "compiler/frontend/onnx/context.h"

namespace temper::onnx_frontend {

using Ints = std::vector<int64_t>;

// What a window sees along two axes, or three; pads are those before each axis, then those behind. A model's one axis
// is the second of two.
struct Window {
  Ints kernel, strides, dilations, pads;
};
// `image` is what the window moves over, [n, c, ...].
absl::StatusOr<Window> WindowOf(const OnnxNode& n, const Ints& kernel, const Shape& image);
// Pads of a transposed convolution from the wanted output size, or from auto_pad. An output that is larger than what
// the kernel reaches gets more output padding, `extra`.
absl::Status SetTransposedPads(const OnnxNode& n, const Shape& image, Ints& extra, Window& w);
// [a] as [filler, a].
Ints Widen(Ints values, int64_t filler);
Attrs WindowAttrs(const Window& w);
// Readies an image, [n, c, h, w], for the node's window along axes that vary: behind the end comes `filler`, and pads
// that depend on the extent become elements. What its results have along those axes.
absl::StatusOr<Varyings> MoveAlongVarying(Context& c, const OnnxNode& n, double filler, Window& w, ValueId& image);

// The same for a transposed convolution, with zeros behind the end.
absl::StatusOr<Varyings> SpreadAlongVarying(Context& c, const OnnxNode& n, const Window& w, const Ints& extra,
                                            ValueId& image);

absl::StatusOr<ValueId> AddBias(Context& c, ValueId v, ValueId bias);  // one value a channel; kNoValue adds nothing
// The node's convolution over one axis or two, of these operands, with sums of that type (convert_conv.cc).
absl::StatusOr<ValueId> ConvOf(Context& c, const OnnxNode& n, ValueId x, ValueId weight, ValueId bias, DType sums);
// The node's pool, average or maximum, with a window over the two last axes of `x`, whose extents are known
// (convert_conv.cc), or over three (volume.cc).
absl::StatusOr<ValueId> PooledImage(Context& c, const OnnxNode& n, const Window& w, ValueId x, bool counts_pads);
absl::StatusOr<ValueId> PooledVolume(Context& c, const OnnxNode& n, const Window& w, ValueId x, bool counts_pads);

// The node's maximum pool with its second output, over one to three axes (convert_pool.cc).
absl::Status MaxPoolWithIndices(Context& c, const OnnxNode& n);

// A convolution that the run moves the pixels of (convert_deform.cc).
absl::Status DeformConv(Context& c, const OnnxNode& n);

// Over three axes, by what there is for two.
absl::Status VolumeConv(Context& c, const OnnxNode& n);
absl::Status VolumeConvTranspose(Context& c, const OnnxNode& n);

}  // namespace temper::onnx_frontend
