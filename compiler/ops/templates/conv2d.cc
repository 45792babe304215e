// conv2d.direct: filters of one pixel, which are a GEMM. Rows are the flattened (n, oh, ow), so tiles cross image rows;
// columns are output channels, and the reduction is over the input's.
// conv2d.integer: filters of any size, of i16 or of u8 by i8, summed in i32. What a chunk of rows sees of the image is
// copied side by side.
// conv2d.tiles: the same of u8 by i8, by matrix tiles.
#include <functional>
#include <numeric>
#include <optional>

#include "compiler/ops/templates/conv2d_shape.h"
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

// Rows are the output's pixels, columns its channels, those of each group a batch of their own.
GemmView PixelsByFilters(const Conv2dShape& s) {
  GemmView v;
  v.batch = s.group;
  v.b_batched = s.group > 1;
  v.rows = s.n * s.oh * s.ow;
  v.columns = s.oc / s.group;
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

// A group needs channels enough to fill vectors of their copies.
constexpr int64_t kLeastIntegerChannels = 8;

// Of an image of few channels so many neighbours are factors of one product: those along a row of a plane; or where
// pixels lie whole, also those of their channels. The graph has padded such images and filters.
bool TakesRuns(const Workload& w) {
  const Conv2dShape s(w);
  constexpr int64_t kBytes = 4;
  return s.c <= kFewChannels && s.group == 1 && WaysOf(w, w.calls[w.anchor]) == kBytes && s.kw % kBytes == 0 &&
         s.dilation_w == 1 && s.left + s.right == 0;
}

// Where the view's reduction goes over the filter: the channel, the row and the column of a place.
struct FilterPlace {
  Expr c, kh, kw;
};
struct FilterOrder {
  Shape reduction;
  std::function<FilterPlace(const std::vector<Expr>& r)> at;
};
FilterOrder OrderOf(const Workload& w) {
  const Conv2dShape s(w);
  const int64_t ic = s.c / s.group;
  if (!TakesRuns(w)) {
    return {{s.kh, s.kw, ic}, [](const std::vector<Expr>& r) { return FilterPlace{r[2], r[0], r[1]}; }};
  }
  if (ReadsPlanes(w)) {
    return {{ic, s.kh, s.kw}, [](const std::vector<Expr>& r) { return FilterPlace{r[0], r[1], r[2]}; }};
  }
  return {{s.kh, s.kw * ic}, [ic](const std::vector<Expr>& r) {
            return FilterPlace{r[1] % Expr(ic), r[0], r[1] / Expr(ic)};
          }};
}

bool IsIntegerConv2d(const Workload& w) {
  if (WaysOf(w, w.calls[w.anchor]) == 1) return false;
  if (ReadsPlanes(w)) return TakesRuns(w);
  return IsConv2dOfPixels(w, true) &&
         (w.TypeOf(w.calls[w.anchor].args[1]).shape[1] >= kLeastIntegerChannels || TakesRuns(w));
}

GemmView IntegerViewOf(const Workload& w, const FilterOrder& order, bool in_place) {
  const Conv2dShape s(w);
  const std::vector<int>& args = w.calls[w.anchor].args;
  GemmView v = PixelsByFilters(s);
  v.prologue = args[0] >= static_cast<int>(w.inputs.size());
  v.b_input = args[1];
  const int64_t ic = s.c / s.group;
  v.reduction = order.reduction;
  v.b_element = [s, order](const ir::Tensor& b, Expr g, Expr column, const std::vector<Expr>& r) {
    const FilterPlace at = order.at(r);
    return b({g * Expr(s.oc / s.group) + column, at.c, at.kh, at.kw});
  };
  v.prepare = [s, ic, order, x_arg = args[0]](WorkloadProgram& program, ir::ProgramBuilder&,
                                              std::vector<std::string>*) -> GemmView::AElement {
    ir::Tensor x = program.value(x_arg);
    return [s, ic, order, x](Expr g, Expr row, const std::vector<Expr>& r) {
      const FilterPlace at = order.at(r);
      const Expr pixel = row % Expr(s.oh * s.ow);
      const Expr y = pixel / Expr(s.ow) * Expr(s.stride_h) + at.kh * Expr(s.dilation_h) - Expr(s.top);
      const Expr z = pixel % Expr(s.ow) * Expr(s.stride_w) + at.kw * Expr(s.dilation_w) - Expr(s.left);
      std::vector<Expr> inside;
      if (s.top > 0) inside.push_back(Expr(0) <= y);
      if (s.bottom > 0) inside.push_back(y < Expr(s.h));
      if (s.left > 0) inside.push_back(Expr(0) <= z);
      if (s.right > 0) inside.push_back(z < Expr(s.w));
      return ValueWhere(inside, x({row / Expr(s.oh * s.ow), g * Expr(ic) + at.c, y, z}));
    };
  };
  return OfIntegers(w, std::move(v), in_place);
}
GemmView IntegerViewOf(const Workload& w) { return IntegerViewOf(w, OrderOf(w), Conv2dShape(w).pointwise()); }

// A tile's rows are all as far apart. Where the places of a filter have no whole steps of a product, they make some
// together, with places of zeros at their end.
GemmView MatrixTilesViewOf(const Workload& w) {
  const Conv2dShape s(w);
  FilterOrder order = OrderOf(w);
  const int64_t run = order.reduction.back(), places = NumElements(order.reduction) / run;
  if (places == 1 || run % kMatrixStepBytes == 0)
    return OfMatrixTiles(IntegerViewOf(w, order, s.pointwise() && s.stride_h == 1 && s.stride_w == 1));
  const Shape axes(order.reduction.begin(), order.reduction.end() - 1);
  const int64_t made = RoundUp(places, kMatrixStepBytes / std::gcd(run, kMatrixStepBytes));
  const FilterOrder flat = {{made, run}, [axes, at = order.at](const std::vector<Expr>& r) {
                              std::vector<Expr> place = Unflatten(r[0], axes);
                              place.push_back(r[1]);
                              return at(place);
                            }};
  GemmView v = IntegerViewOf(w, flat, false);
  const auto or_zero = [places](const Expr& place, const Expr& e) {
    return ir::Select(place < Expr(places), e, ir::Const(0, e->dtype));
  };
  v.copied = {made, run};
  v.reduction = {made * run / v.ways};
  v.depth = made * run;
  v.b_element = [element = v.b_element, copied = v.copied, or_zero](const ir::Tensor& b, const Expr& g,
                                                                    const Expr& column, const std::vector<Expr>& r) {
    const std::vector<Expr> place = Unflatten(r[0], copied);
    return or_zero(place[0], element(b, g, column, place));
  };
  v.prepare = [prepare = v.prepare, or_zero](WorkloadProgram& program, ir::ProgramBuilder& b,
                                             std::vector<std::string>* stages) -> GemmView::AElement {
    return
        [element = prepare(program, b, stages), or_zero](const Expr& g, const Expr& row, const std::vector<Expr>& r) {
          return or_zero(r[0], element(g, row, r));
        };
  };
  return v;
}

}  // namespace

CpuTemplate Conv2dDirect() {
  return {"conv2d.direct",
          5,
          [](const Workload& w) {
            if (!IsChannelsLastConv2d(w, true)) return false;
            const Conv2dShape s(w);
            return !s.depthwise() && s.pointwise() && (w.anchor == 0 || s.group == 1);
          },
          [](const Workload& w, const CpuTarget& t) { return GemmSpace(w, ViewOf(w), t); },
          [](const Workload& w, const Config& c, const CpuTarget& t) { return BuildGemm(w, ViewOf(w), c, t); },
          [](const Workload& w, const Config& c, const CpuTarget& t) { return GemmFootprint(w, ViewOf(w), c, t); }};
}

CpuTemplate Conv2dInteger() {
  return {
      "conv2d.integer",
      3,
      IsIntegerConv2d,
      [](const Workload& w, const CpuTarget& t) { return GemmSpace(w, IntegerViewOf(w), t); },
      [](const Workload& w, const Config& c, const CpuTarget& t) { return BuildGemm(w, IntegerViewOf(w), c, t); },
      [](const Workload& w, const Config& c, const CpuTarget& t) { return GemmFootprint(w, IntegerViewOf(w), c, t); }};
}

CpuTemplate Conv2dMatrixTiles() {
  return {"conv2d.tiles",
          1,
          [](const Workload& w) { return IsIntegerConv2d(w) && FillsMatrixTiles(IntegerViewOf(w)); },
          [](const Workload& w, const CpuTarget& t) { return MatrixTilesSpace(MatrixTilesViewOf(w), t); },
          [](const Workload& w, const Config& c, const CpuTarget& t) {
            return BuildMatrixTiles(w, MatrixTilesViewOf(w), c, t);
          },
          [](const Workload& w, const Config& c, const CpuTarget& t) {
            return MatrixTilesFootprint(w, MatrixTilesViewOf(w), c, t);
          },
          "amx-int8"};
}

}  // namespace temper
