// The numbers of a conv2d workload, by name.
#pragma once

#include <optional>

#include "compiler/ops/families/planes.h"
#include "compiler/ops/few_channels.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/templates.h"

namespace temper {

inline const std::vector<int> kChannelsLast = {0, 2, 3, 1};  // as TensorType::perm

struct Conv2dShape {
  int64_t n, c, h, w, oc, oh, ow, kh, kw, group;
  int64_t stride_h, stride_w, dilation_h, dilation_w, top, left, bottom, right;
  explicit Conv2dShape(const Workload& workload) : Conv2dShape(workload, workload.anchor) {}
  Conv2dShape(const Workload& workload, int call);

  bool depthwise() const { return group == c && group > 1 && oc == c; }
  // Each output sees one pixel.
  bool pointwise() const { return kh * kw == 1 && top + left + bottom + right == 0; }
  // And each pixel is seen by one, in all its channels: a product of matrices as they lie.
  bool dense_pointwise() const { return pointwise() && group == 1 && stride_h == 1 && stride_w == 1; }
};

// One spatial dimension of a convolution: its output in tiles of `tile`, and what they see of the input.
struct TiledAxis {
  int64_t out, in, taps, stride, dilation, before, tile;
  int64_t tiles() const { return CeilDiv(out, tile); }
  // From a tile's first input to its last.
  int64_t reach() const { return (tile - 1) * stride + (taps - 1) * dilation; }
  // Tiles [first_inside, end_inside) are whole and see no input outside the image.
  int64_t first_inside() const;
  int64_t end_inside() const;
  int64_t edges() const { return first_inside() + tiles() - end_inside(); }
};

// `value` where all conditions hold, else 0.
ir::Expr ValueWhere(const std::vector<ir::Expr>& conditions, const ir::Expr& value);

// The first call and the anchor, a later one, are conv2d of element type, channels-last, with constant filters; the
// calls between them are elementwise, and the last of those makes what the anchor reads.
bool AreConvolutionsInARow(const Workload& w);

// The first call makes of the first input what the second alone reads: a conv2d, channels-last, whose filters are the
// second input, constant, and its own.
bool ConvReadsFirstCall(const Workload& w);

// Such a workload whose first call only brings an image of few channels into the order that the convolution asks for.
// That may as well read it as it lies, a plane a channel.
bool ReadsPlanes(const Workload& w);

// Such a workload whose first call lays planes of volumes beside each other: the convolution may as well read them
// where they lie. The window; nullopt for other workloads. Volumes of so few channels a group that vectors of them are
// not whole are no such workloads.
std::optional<ops::PlaneWindow> UnfoldedPlanes(const Workload& w);

// The anchor is a conv2d of that element type, input and output channels-last. It is the first call, whose operands are
// the workload's first two inputs; or, with a prologue, elementwise calls may make what it reads beside the filter.
bool IsChannelsLastConv2d(const Workload& w, bool prologue = false, DType element = kElement);
// The same of any types.
bool IsConv2dOfPixels(const Workload& w, bool prologue);

}  // namespace temper
