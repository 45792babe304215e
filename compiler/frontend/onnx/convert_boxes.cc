// Boxes that detectors find.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/extents.h"
#include "compiler/frontend/onnx/formula.h"
#include "compiler/frontend/onnx/places.h"

namespace temper::onnx_frontend {
namespace {

// Edges [images, 4, boxes] of boxes [images, boxes, 4]: two corners, in any order, or center and size.
absl::StatusOr<ValueId> EdgesOf(Context& c, ValueId boxes, bool by_center) {
  TEMPER_ASSIGN_OR_RETURN(boxes, c.CallWhole("identity", {}, {boxes}));
  TEMPER_ASSIGN_OR_RETURN(boxes, c.Transpose(boxes, {0, 2, 1}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId one, c.Slice(boxes, 1, 0, 2));
  TEMPER_ASSIGN_OR_RETURN(const ValueId other, c.Slice(boxes, 1, 2, 4));
  Formula f(c, DType::kF32);
  ValueId low = kNoValue, high = kNoValue;
  if (by_center) {
    const ValueId half = f.Div(other, f.Number(2));
    low = f.Sub(one, half);
    high = f.Add(one, half);
  } else {
    low = f.Call("min", {one, other});
    high = f.Call("max", {one, other});
  }
  TEMPER_RETURN_IF_ERROR(f.status());
  return c.Concat({low, high}, 1);
}

// An operand of one float; `otherwise` if it is left out.
absl::StatusOr<ValueId> Threshold(Context& c, ValueId v, double otherwise) {
  if (v == kNoValue) return c.Reshape(c.Scalar(DType::kF32, otherwise), {1});
  if (NumElements(c.ShapeOf(v)) != 1) return absl::InvalidArgumentError("a threshold is one number");
  TEMPER_ASSIGN_OR_RETURN(v, c.Cast(v, DType::kF32));
  return c.Reshape(v, {1});
}

// [images * classes * k, 3]: the image, the class and the box of each place.
absl::StatusOr<ValueId> Rows(Context& c, ValueId places) {
  const Shape shape = c.ShapeOf(places);
  const int64_t count = NumElements(shape);
  NDArray lines(DType::kI64, {count, 2});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t line = i / shape[2];
    lines.as<int64_t>()[static_cast<size_t>(2 * i)] = line / shape[1];
    lines.as<int64_t>()[static_cast<size_t>(2 * i + 1)] = line % shape[1];
  }
  TEMPER_ASSIGN_OR_RETURN(places, c.Cast(places, DType::kI64));
  TEMPER_ASSIGN_OR_RETURN(places, c.Reshape(places, {count, 1}));
  return c.Concat({c.Constant(std::move(lines)), places}, 1);
}

absl::Status NonMaxSuppression(Context& c, const OnnxNode& n) {
  constexpr int64_t kMostRows = int64_t{1} << 24;
  const Shape boxes = c.ShapeOf(n.Input(0)), scores = c.ShapeOf(n.Input(1));
  if (boxes.size() != 3 || scores.size() != 3 || boxes[2] != 4 || boxes[0] != scores[0] || boxes[1] != scores[2])
    return absl::InvalidArgumentError("takes boxes [images, boxes, 4] and scores [images, classes, boxes]");
  int64_t k = 0;
  if (n.Input(2) != kNoValue) {
    TEMPER_ASSIGN_OR_RETURN(k, c.KnownInt(n.Input(2), "max_output_boxes_per_class"));
  }
  k = std::min(k, boxes[1]);
  if (k < 1 || NumElements(scores) == 0) return c.Set(n, c.Constant(NDArray(DType::kI64, {0, 3})));
  if (k > kMostRows / (scores[0] * scores[1]))
    return absl::UnimplementedError(absl::StrCat("more than ", kMostRows, " boxes are not supported"));
  TEMPER_ASSIGN_OR_RETURN(const ValueId edges, EdgesOf(c, n.Input(0), n.Int("center_point_box", 0) != 0));
  // A box behind the end of its list scores nothing.
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  ValueId scored = n.Input(1);
  if (n.Input(4) == kNoValue) {  // all boxes count, those with that score too
    const ValueId lowest = c.Scalar(DType::kF32, std::numeric_limits<float>::lowest());
    TEMPER_ASSIGN_OR_RETURN(scored, c.Call("max", {}, {scored, lowest}));
  }
  TEMPER_RETURN_IF_ERROR(MustBeOneLine(c, scored, "NonMaxSuppression"));
  TEMPER_ASSIGN_OR_RETURN(const ValueId filled, Filled(c, scored, kNothing));
  TEMPER_ASSIGN_OR_RETURN(const ValueId overlap, Threshold(c, n.Input(3), 0));
  TEMPER_ASSIGN_OR_RETURN(const ValueId least, Threshold(c, n.Input(4), kNothing));
  Attrs attrs;
  attrs.Set("k", k);
  TEMPER_ASSIGN_OR_RETURN(ValueId places,
                          c.Call("non_max_suppression", std::move(attrs), {edges, filled, overlap, least}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId rows, Rows(c, places));
  TEMPER_ASSIGN_OR_RETURN(places, c.Reshape(places, {NumElements(c.ShapeOf(places))}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId none, c.Call("less", {}, {places, c.Scalar(DType::kI32, 0)}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId found, c.Call("not", {}, {none}));
  TEMPER_ASSIGN_OR_RETURN(const ValueId at, PlacesThatHold(c, found));
  TEMPER_ASSIGN_OR_RETURN(const ValueId v, c.Gather(rows, at, 0));
  return c.Set(n, v);
}

}  // namespace

std::span<const TableEntry> BoxesTable() {
  static constexpr TableEntry kTable[] = {{"NonMaxSuppression", NonMaxSuppression, 2, Extents::kAlongAnyAxis}};
  return kTable;
}

}  // namespace temper::onnx_frontend
