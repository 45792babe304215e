// conv2d.direct: implicit GEMM. Rows are the flattened (n, oh, ow), so tiles cross image rows; columns are output
// channels; the reduction is (kh, kw, c). For input without padding: conv2d.rows reads padded input as it lies.
#include <array>

#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/gemm.h"

namespace temper {
namespace {

using ir::Expr;

GemmView ViewOf(const Workload& w) {
  const Conv2dShape s(w);
  GemmView v;
  v.batch = s.group;
  v.rows = s.n * s.oh * s.ow;
  v.columns = s.oc / s.group;
  v.b_batched = s.group > 1;
  if (s.kh * s.kw == 1 && !s.padded()) v.a_input = 0;
  // Along a row of the filter, neighbouring (kw, c) are neighbours in memory too: one longer loop instead of two.
  const bool fused = s.dilation_w == 1 && s.group == 1;
  const int64_t ic = s.c / s.group;
  v.reduction = fused ? std::vector<int64_t>{s.kh, s.kw * ic} : std::vector<int64_t>{s.kh, s.kw, ic};
  auto taps = [fused, ic](const std::vector<Expr>& r) {
    return fused ? std::array<Expr, 3>{r[0], r[1] / Expr(ic), r[1] % Expr(ic)} : std::array<Expr, 3>{r[0], r[1], r[2]};
  };
  v.b_element = [s, taps](const ir::Tensor& b, Expr g, Expr column, const std::vector<Expr>& r) {
    auto [kh, kw, c] = taps(r);
    return b({g * Expr(s.oc / s.group) + column, c, kh, kw});
  };
  v.a_row_stride = s.stride_w * s.c;
  v.prepare = [s, taps, ic](WorkloadProgram& program, ir::ProgramBuilder&,
                            std::vector<std::string>*) -> GemmView::AElement {
    ir::Tensor x = program.value(0);
    return [s, taps, ic, x](Expr g, Expr row, const std::vector<Expr>& r) {
      auto [kh, kw, c] = taps(r);
      Expr n = row / Expr(s.oh * s.ow), pixel = row % Expr(s.oh * s.ow);
      Expr h = pixel / Expr(s.ow) * Expr(s.stride_h) + kh * Expr(s.dilation_h);
      Expr x_w = pixel % Expr(s.ow) * Expr(s.stride_w) + kw * Expr(s.dilation_w);
      return x({n, g * Expr(ic) + c, h, x_w});
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
          2,
          [](const Workload& w) {
            const bool fits = IsChannelsLastConv2d(w);
            return fits && !Conv2dShape(w).depthwise() && !Conv2dShape(w).padded();
          },
          [](const Workload& w, const Target& t) { return GemmSpace(w, ViewOf(w), t); },
          [](const Workload& w, const Config& c, const Target& t) { return BuildGemm(w, ViewOf(w), c, t); },
          [](const Workload& w, const Config& c, const Target& t) { return GemmFootprint(w, ViewOf(w), c, t); }};
}

}  // namespace temper
