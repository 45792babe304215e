// Who may use Winograd's algorithm, and how its filters are transformed.
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/ops/templates/winograd.h"

namespace temper {

using ir::Expr;

bool MayUseWinograd(const Workload& w, bool planes) {
  const bool readable = (planes && UnfoldedPlanes(w).has_value()) || IsChannelsLastConv2d(w);
  if (!readable || !w.inputs[1].constant) return false;
  if (w.calls[w.anchor].attrs.Int("winograd", 1) == 0) return false;
  const Conv2dShape s(w);
  return s.group == 1 && s.kh == 3 && s.kw == 3 && s.stride_h == 1 && s.stride_w == 1 && s.dilation_h == 1 &&
         s.dilation_w == 1 && s.c >= 8 && s.oc >= 8;
}

Expr FilterTap(const ir::Tensor& filter, const Workload& w, const FilterPanels& p, const FilterIndex& i) {
  const Conv2dShape s(w);
  const Expr column = i[0] * Expr(p.columns) + i[4];
  const Expr exists = And(column < Expr(s.oc), i[1] < Expr(s.c));
  return ir::Select(exists, filter({column, i[1], i[2], i[3]}), ir::Float(0));
}

ir::Buffer TransformFilters(ir::ProgramBuilder& b, const FilterPanels& p, const std::string& name, Shape shape,
                            const std::function<Expr(const FilterIndex&)>& tap,
                            const std::function<FilterIndex(const std::vector<Expr>&)>& at) {
  const Matrix matrix = MakeWinograd(p.m).filter;
  const int64_t points = p.m + 2;
  const ir::Buffer lines = b.Compute("filter_lines", kElement, {p.panels, p.channels, points, 3, p.columns},
                                     [&](const std::vector<Expr>& i) {
                                       return MatrixTimes(
                                           matrix, i[2],
                                           [&](const Expr& k) {
                                             return tap({i[0], i[1], k, i[3], i[4]});
                                           },
                                           Sharing::kEvenOdd);
                                     });
  return b.Compute(name, kElement, std::move(shape), [&](const std::vector<Expr>& index) {
    const FilterIndex i = at(index);
    return MatrixTimes(
        matrix, i[3],
        [&](const Expr& k) {
          return ir::Load(lines, {i[0], i[1], i[2], k, i[4]});
        },
        Sharing::kEvenOdd);
  });
}

absl::StatusOr<ir::Func> TransformedFilters(const Workload& w, const FilterPanels& p, Shape shape,
                                            const std::function<FilterIndex(const std::vector<Expr>&)>& at) {
  ir::ProgramBuilder b("pack");
  const TensorType& type = w.inputs[1].type;
  const ir::Tensor filter = ir::Tensor::OfBuffer(b.Input("in", type.dtype, type.PhysicalShape()), type.perm);
  const ir::Buffer taps = b.Compute("taps", kElement, {p.panels, p.channels, 3, 3, p.columns},
                                    [&](const std::vector<Expr>& i) { return FilterTap(filter, w, p, i); });
  b.MarkOutput(TransformFilters(
      b, p, "packed", std::move(shape), [&](const FilterIndex& i) { return ir::Load(taps, i); }, at));
  return b.Finish();
}

void ScheduleTransformedFilters(Schedule& s, const std::vector<Loop>& outer, const std::array<Loop, 2>& points,
                                const Loop& columns, int64_t lanes) {
  auto [vector, lane] = s.Split(columns, lanes);
  std::vector<Loop> order = outer;
  order.insert(order.end(), {vector, points[0], points[1], lane});
  s.Reorder(order);
  InRegisters(s, {"filter_lines", "taps"}, vector);
  for (const char* step : {"packed", "filter_lines", "taps"}) UnrollTile(s, step);
  s.Parallel(FuseAll(s, outer));
}

}  // namespace temper
