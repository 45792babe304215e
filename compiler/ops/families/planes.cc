#include "compiler/ops/families/planes.h"

#include <algorithm>

namespace temper::ops {

using ir::Expr;

absl::StatusOr<PlaneWindow> PlaneWindow::Of(const Attrs& attrs, const Shape& x) {
  constexpr int64_t kMost = int64_t{1} << 24;  // of each number, so that no sum of them overflows
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"depth", AttrKind::kInt},
                                            {"taps", AttrKind::kInt},
                                            {"stride", AttrKind::kInt},
                                            {"dilation", AttrKind::kInt},
                                            {"pads", AttrKind::kInts},
                                            {"group", AttrKind::kInt}}));
  const std::vector<int64_t> pads = attrs.Ints("pads", {0, 0});
  if (x.size() != 4) return InvalidType("takes rank 4");
  if (pads.size() != 2) return InvalidType("pads are two, before and after");
  PlaneWindow w{attrs.Int("depth", 1),    0,       attrs.Int("taps", 1),  attrs.Int("stride", 1),
                attrs.Int("dilation", 1), pads[0], attrs.Int("group", 1), 0};
  const auto [least, most] = std::minmax({w.depth, w.taps, w.stride, w.dilation, w.group});
  if (least < 1 || most > kMost || std::min(pads[0], pads[1]) < -kMost || std::max(pads[0], pads[1]) > kMost)
    return InvalidType("attributes are out of range");
  if (x[0] % w.depth != 0) return InvalidType("depth divides the planes");
  if (x[1] % w.group != 0) return InvalidType("group divides the channels");
  const int64_t room = w.depth + pads[0] + pads[1] - 1 - (w.taps - 1) * w.dilation;
  if (room < 0) return InvalidType("the window is larger than a padded volume");
  w.planes = room / w.stride + 1;
  w.channels = x[1] / w.group;
  return w;
}

Expr PlaneWindow::InVolume(const Expr& plane, const Expr& tap) const {
  return plane % Expr(planes) * Expr(stride) + tap * Expr(dilation) - Expr(before);
}

Expr PlaneWindow::Plane(const Expr& plane, const Expr& tap) const {
  return plane / Expr(planes) * Expr(depth) + InVolume(plane, tap);
}

void PlaneWindow::AddInside(const Expr& plane, const Expr& tap, std::vector<Expr>* conditions) const {
  if (before > 0) conditions->push_back(Expr(0) <= InVolume(plane, tap));
  if ((planes - 1) * stride + (taps - 1) * dilation - before >= depth)
    conditions->push_back(InVolume(plane, tap) < Expr(depth));
}

}  // namespace temper::ops
