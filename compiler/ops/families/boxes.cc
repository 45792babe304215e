// What detectors do with boxes: of those that overlap much, the best alone stays.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/ops/families/boxes.h"
#include "compiler/ops/families/compute_util.h"
#include "compiler/ops/families/families.h"
#include "compiler/ops/families/infer_util.h"

namespace temper::ops {
namespace {

using ir::Expr;
using ir::Tensor;

// Picks of a class that tensor expressions make, a few launches each. More take a template.
constexpr int64_t kMostStages = 64;

absl::StatusOr<TensorType> InferSuppress(const Attrs& attrs, std::span<const TensorType> in) {
  TEMPER_RETURN_IF_ERROR(CheckAttrs(attrs, {{"k", AttrKind::kInt}}));
  const TensorType &boxes = in[0], &scores = in[1];
  if (boxes.dtype != DType::kF32 || scores.dtype != DType::kF32) return InvalidType("boxes and scores are f32");
  if (Rank(boxes) != 3 || Rank(scores) != 3 || boxes.shape[1] != 4 || boxes.shape[0] != scores.shape[0] ||
      boxes.shape[2] != scores.shape[2])
    return InvalidType("takes boxes [images, 4, boxes] and scores [images, classes, boxes]");
  for (const TensorType& threshold : in.subspan(2)) {
    if (threshold != TensorType{DType::kF32, {1}, {}}) return InvalidType("thresholds are f32[1]");
  }
  const int64_t count = boxes.shape[2], k = attrs.Int("k", 0);
  if (count > std::numeric_limits<int32_t>::max()) return InvalidType("an i32 does not hold every position");
  if (k < 1 || k > count) return InvalidType(absl::StrCat("k is a number from 1 to the ", count, " boxes"));
  return TensorType{DType::kI32, {scores.shape[0], scores.shape[1], k}, {}};
}

absl::StatusOr<Tensor> ComputeSuppress(ir::ProgramBuilder& b, const Attrs& attrs, std::span<const Tensor> in,
                                       const TensorType& output) {
  const int64_t k = attrs.Int("k", 0), count = in[0].shape()[2];
  if (k > kMostStages)
    return absl::UnimplementedError(absl::StrCat("more than ", kMostStages, " boxes of a class on this target"));
  const Tensor boxes = in[0], scores = in[1], overlap = in[2], least = in[3];
  const Expr nothing = ir::Float(-std::numeric_limits<double>::infinity());
  const Shape of_class(output.shape.begin(), output.shape.end() - 1);
  // The scores of the boxes that are left, and minus infinity for the others.
  Tensor left(DType::kF32, scores.shape(),
              [=](const Index& i) { return ir::Select(least({0}) < scores(i), scores(i), nothing); });
  std::vector<Tensor> picks;
  for (int64_t pick = 0; pick < k; ++pick) {
    left = b.Materialize("left", left);
    const auto at = [left](const Index& i, const Expr& box) { return left({i[0], i[1], box}); };
    const Tensor best = ReduceStage(b, "best", {DType::kF32, of_class, {}}, {count}, ir::Combiner::kMax,
                                    [at](const Index& i, const Index& r) { return at(i, r[0]); });
    const Tensor picked = ReduceStage(
        b, "picked", {DType::kI32, of_class, {}}, {count}, ir::Combiner::kMin, [=](const Index& i, const Index& r) {
          const Expr is_best = ir::And(nothing < best(i), ir::Eq(at(i, r[0]), best(i)));
          return ir::Select(is_best, ir::Cast(r[0], DType::kI32), ir::Int(count, DType::kI32));
        });
    left = Tensor(DType::kF32, scores.shape(), [=](const Index& i) {
      const Expr place = ir::Cast(picked({i[0], i[1]}), DType::kI64);
      const auto box = [&](const Expr& which) { return BoxAt([&](int edge) { return boxes({i[0], edge, which}); }); };
      const Expr gone =
          ir::Or(ir::Eq(place, i[2]), Overlaps(box(ir::Min(place, Expr(count - 1))), box(i[2]), overlap({0})));
      return ir::Select(ir::And(place < Expr(count), gone), nothing, left(i));
    });
    picks.push_back(picked);
  }
  return Tensor(output.dtype, output.shape, [=](const Index& i) {
    Expr picked = ir::Int(-1, DType::kI32);
    for (size_t pick = picks.size(); pick-- > 0;)
      picked = ir::Select(ir::Eq(i[2], Expr(static_cast<int64_t>(pick))), picks[pick]({i[0], i[1]}), picked);
    return ir::Select(picked < ir::Int(count, DType::kI32), picked, ir::Int(-1, DType::kI32));
  });
}

double FlopsOfSuppress(const Attrs&, std::span<const TensorType> in, const TensorType&) { return Elements(in[1]); }

}  // namespace

Box BoxAt(const std::function<Expr(int edge)>& edge) { return {edge(0), edge(1), edge(2), edge(3)}; }

Expr Overlaps(const Box& a, const Box& b, const Expr& threshold) {
  const Expr zero = ir::Float(0);
  const auto area = [](const Box& box) { return (box.right - box.left) * (box.bottom - box.top); };
  const Expr width = ir::Min(a.right, b.right) - ir::Max(a.left, b.left);
  const Expr height = ir::Min(a.bottom, b.bottom) - ir::Max(a.top, b.top);
  const Expr common = ir::Max(width, zero) * ir::Max(height, zero);
  // Where there is something in common, neither area is zero.
  return ir::And(zero < common, threshold < common / (area(a) + area(b) - common));
}

std::vector<OpDef> BoxesOps() {
  return {{"non_max_suppression", OpPattern::kSequential, 4, 4, InferSuppress, ComputeSuppress, FlopsOfSuppress}};
}

}  // namespace temper::ops
