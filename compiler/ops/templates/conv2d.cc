// conv2d.direct: filters of one pixel, which are a GEMM. Rows are the flattened (n, oh, ow), so tiles cross image rows;
// columns are output channels, and the reduction is over the input's.
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/gemm.h"

namespace temper {
namespace {

using ir::Expr;

GemmView ViewOf(const Workload& w) {
  const Conv2dShape s(w);
  const std::vector<int>& args = w.calls[w.anchor].args;
  const int x_arg = args[0];
  GemmView v;
  v.batch = s.group;
  v.rows = s.n * s.oh * s.ow;
  v.columns = s.oc / s.group;
  v.b_batched = s.group > 1;
  v.a_input = w.anchor == 0 ? x_arg : -1;
  v.b_input = args[1];
  const int64_t ic = s.c / s.group;
  v.reduction = {ic};
  v.b_element = [s](const ir::Tensor& b, Expr g, Expr column, const std::vector<Expr>& r) {
    return b({g * Expr(s.oc / s.group) + column, r[0], Expr(0), Expr(0)});
  };
  v.a_row_stride = w.anchor == 0 ? s.stride_w * s.c : ic;
  v.prepare = [s, ic, x_arg](WorkloadProgram& program, ir::ProgramBuilder&,
                             std::vector<std::string>*) -> GemmView::AElement {
    ir::Tensor x = program.value(x_arg);
    return [s, ic, x](Expr g, Expr row, const std::vector<Expr>& r) {
      Expr pixel = row % Expr(s.oh * s.ow);
      return x({row / Expr(s.oh * s.ow), g * Expr(ic) + r[0], pixel / Expr(s.ow) * Expr(s.stride_h),
                pixel % Expr(s.ow) * Expr(s.stride_w)});
    };
  };
  v.out_dims = {{GemmAxis::kRow, v.rows, 1}};
  if (s.group > 1) v.out_dims.push_back({GemmAxis::kBatch, s.group, 1});
  v.out_dims.push_back({GemmAxis::kColumn, v.columns, 1});
  v.out_index = [s](Expr g, Expr row, Expr column) {
    Expr pixel = row % Expr(s.oh * s.ow);
    return std::vector<Expr>{row / Expr(s.oh * s.ow), g * Expr(s.oc / s.group) + column, pixel / Expr(s.ow),
                             pixel % Expr(s.ow)};
  };
  return v;
}

}  // namespace

TemplateDef Conv2dDirect() {
  return {"conv2d.direct",
          3,
          [](const Workload& w) {
            if (!IsChannelsLastConv2d(w, true)) return false;
            const Conv2dShape s(w);
            return !s.depthwise() && s.pointwise() && (w.anchor == 0 || s.group == 1);
          },
          [](const Workload& w, const Target& t) { return GemmSpace(w, ViewOf(w), t); },
          [](const Workload& w, const Config& c, const Target& t) { return BuildGemm(w, ViewOf(w), c, t); },
          [](const Workload& w, const Config& c, const Target& t) { return GemmFootprint(w, ViewOf(w), c, t); }};
}

}  // namespace temper
