// unfold_planes' window, which slides along the planes of volumes: what its rule, tensor expression and reference agree
// on, and templates that read through it. Volumes lie plane by plane: [n * depth, c, h, w].
#pragma once

#include "compiler/ops/families/infer_util.h"

namespace temper::ops {

struct PlaneWindow {
  int64_t depth;   // planes of a volume that is read
  int64_t planes;  // and of the result
  int64_t taps, stride, dilation;
  int64_t before;    // planes of zeros ahead of a volume; negative: planes that are left out
  int64_t group;     // of channels: of each, its planes' channels stay together
  int64_t channels;  // of a group, in one plane

  // From the attributes, checked; `x` of rank 4.
  static absl::StatusOr<PlaneWindow> Of(const Attrs& attrs, const Shape& x);

  int64_t channels_out() const { return group * taps * channels; }
  // Of the result's plane (volumes one after another): the plane read, and whether it is one of the volume's. A plane
  // outside is one of zeros.
  ir::Expr Plane(const ir::Expr& plane, const ir::Expr& tap) const;
  void AddInside(const ir::Expr& plane, const ir::Expr& tap, std::vector<ir::Expr>* conditions) const;

 private:
  ir::Expr InVolume(const ir::Expr& plane, const ir::Expr& tap) const;
};

}  // namespace temper::ops
