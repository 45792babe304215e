// conv2d.direct: filters of one pixel, which are a GEMM. Rows are the flattened (n, oh, ow), so tiles cross image rows;
// columns are output channels, and the reduction is over the input's.
#include <optional>

#include "compiler/ops/templates/conv2d_pixels.h"
#include "compiler/ops/templates/gemm.h"

namespace temper {
namespace {

using ir::Expr;

// The last call before the anchor, where that multiplies `x` by a factor for each channel, whatever the pixel.
struct ChannelScale {
  int x, factor;
};
std::optional<ChannelScale> ChannelScaleOf(const Workload& w) {
  if (w.anchor == 0 || w.calls[w.anchor - 1].op != "mul") return std::nullopt;
  const Workload::Call& call = w.calls[w.anchor - 1];
  const int64_t channels = call.type.shape[1];
  for (const ChannelScale& scale : {ChannelScale{call.args[0], call.args[1]}, {call.args[1], call.args[0]}}) {
    const Shape& factors = w.TypeOf(scale.factor).shape;
    const bool each_channel = factors.size() >= 3 && factors[factors.size() - 3] == channels;
    if (each_channel && NumElements(factors) == channels && w.TypeOf(scale.x).shape == call.type.shape) return scale;
  }
  return std::nullopt;
}

// Scaling the filters instead of the pixels takes a pass of its own over them, so they have to be clearly fewer.
bool FiltersAreFew(const GemmView& v) { return 2 * v.columns <= v.rows; }

GemmView ViewOf(const Workload& w) {
  const Conv2dShape s(w);
  const std::vector<int>& args = w.calls[w.anchor].args;
  int x_arg = args[0];
  GemmView v = PixelsByFilters(s);
  const std::optional<ChannelScale> scale = ChannelScaleOf(w);
  if (scale.has_value() && FiltersAreFew(v)) {
    x_arg = scale->x;
    v.b_scale = [factor = scale->factor, rank = w.TypeOf(scale->factor).shape.size()](const WorkloadProgram& program,
                                                                                      const std::vector<Expr>& r) {
      std::vector<Expr> index(rank, Expr(0));
      index[rank - 3] = r[0];
      return program.value(factor)(index);
    };
  }
  v.prologue = x_arg >= static_cast<int>(w.inputs.size());
  v.a_input = v.prologue ? -1 : x_arg;
  v.b_input = args[1];
  const int64_t ic = s.c / s.group;
  v.reduction = {ic};
  v.b_element = [s](const ir::Tensor& b, Expr g, Expr column, const std::vector<Expr>& r) {
    return b({g * Expr(s.oc / s.group) + column, r[0], Expr(0), Expr(0)});
  };
  v.a_row_stride = v.prologue ? ic : s.stride_w * s.c;
  v.prepare = [s, ic, x_arg](WorkloadProgram& program, ir::ProgramBuilder&,
                             std::vector<std::string>*) -> GemmView::AElement {
    ir::Tensor x = program.value(x_arg);
    return [s, ic, x](Expr g, Expr row, const std::vector<Expr>& r) {
      Expr pixel = row % Expr(s.oh * s.ow);
      return x({row / Expr(s.oh * s.ow), g * Expr(ic) + r[0], pixel / Expr(s.ow) * Expr(s.stride_h),
                pixel % Expr(s.ow) * Expr(s.stride_w)});
    };
  };
  return v;
}

bool IsPointwiseConv2d(const Workload& w) {
  if (!IsChannelsLastConv2d(w, true)) return false;
  const Conv2dShape s(w);
  return !s.depthwise() && s.pointwise() && (w.anchor == 0 || s.group == 1);
}

}  // namespace

CpuTemplate Conv2dDirect() { return GemmTemplate("conv2d.direct", 5, IsPointwiseConv2d, ViewOf); }

}  // namespace temper
