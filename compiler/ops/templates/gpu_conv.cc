// gpu.conv: convolutions as products of matrices.
#include <algorithm>

#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/gpu_gemm.h"

namespace temper {

using ir::Expr;

GemmView GpuConvView(const Workload& w) {
  const Conv2dShape s(w);
  const std::vector<int>& args = w.calls[w.anchor].args;
  const int64_t ic = s.c / s.group, oc = s.oc / s.group;
  GemmView v;
  v.batch = s.group;
  v.rows = s.n * s.oh * s.ow;
  v.columns = oc;
  v.reduction = {s.kh, s.kw, ic};
  v.b_input = args[1];
  v.b_batched = s.group > 1;
  v.b_element = [oc](const ir::Tensor& b, const Expr& g, const Expr& column, const std::vector<Expr>& r) {
    return b({g * Expr(oc) + column, r[2], r[0], r[1]});
  };
  v.prepare = [s, ic, x_arg = args[0]](WorkloadProgram& program, ir::ProgramBuilder&,
                                       std::vector<std::string>*) -> GemmView::AElement {
    return [s, ic, x = program.value(x_arg)](const Expr& g, const Expr& row, const std::vector<Expr>& r) {
      const Expr pixel = row % Expr(s.oh * s.ow);
      const Expr y = pixel / Expr(s.ow) * Expr(s.stride_h) + r[0] * Expr(s.dilation_h) - Expr(s.top);
      const Expr across = pixel % Expr(s.ow) * Expr(s.stride_w) + r[1] * Expr(s.dilation_w) - Expr(s.left);
      std::vector<Expr> inside;
      const auto within = [&](const Expr& at, int64_t before, int64_t last, int64_t size) {
        if (before > 0) inside.push_back(Expr(0) <= at);
        if (last - before >= size) inside.push_back(at < Expr(size));
      };
      within(y, s.top, (s.oh - 1) * s.stride_h + (s.kh - 1) * s.dilation_h, s.h);
      within(across, s.left, (s.ow - 1) * s.stride_w + (s.kw - 1) * s.dilation_w, s.w);
      return ValueWhere(inside, x({row / Expr(s.oh * s.ow), g * Expr(ic) + r[2], y, across}));
    };
  };
  v.out_dims = {{GemmAxis::kRow, v.rows, 1}};
  if (s.group > 1) v.out_dims.push_back({GemmAxis::kBatch, s.group, 1});
  v.out_dims.push_back({GemmAxis::kColumn, oc, 1});
  v.out_index = [s, oc](const Expr& g, const Expr& row, const Expr& column) {
    const Expr pixel = row % Expr(s.oh * s.ow);
    return std::vector<Expr>{row / Expr(s.oh * s.ow), g * Expr(oc) + column, pixel / Expr(s.ow), pixel % Expr(s.ow)};
  };
  return v;
}

bool IsGpuConv(const Workload& w, DType element) {
  return IsChannelsLastConv2d(w, false, element) && !Conv2dShape(w).depthwise();
}

GpuTemplate GpuConv() {
  return {
      "gpu.conv",
      2,
      [](const Workload& w) {
        const auto convolves = [&](DType type) { return IsGpuConv(w, type); };
        return std::ranges::any_of(kGpuGemmTypes, convolves) && GpuGemmFits(GpuConvView(w));
      },
      [](const Workload& w, const GpuTarget& t) { return GpuGemmSpace(w, GpuConvView(w), t); },
      [](const Workload& w, const Config& c, const GpuTarget& t) { return BuildGpuGemm(w, GpuConvView(w), c, t); },
      [](const Workload& w, const Config& c, const GpuTarget& t) { return GpuGemmFootprint(w, GpuConvView(w), c, t); }};
}

}  // namespace temper
