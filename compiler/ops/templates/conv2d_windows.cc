// Convolutions whose rows are copied: what a chunk of rows sees of the image, side by side.
// conv2d.integer: filters of any size, of i16 or of u8 by i8, summed in i32.
// conv2d.tiles: the same of u8 by i8, by matrix tiles.
// conv2d.bf16, conv2d.tiles_bf16: of f32 that may be rounded to bf16, the latter by matrix tiles.
#include <functional>
#include <numeric>

#include "compiler/ops/rounded_products.h"
#include "compiler/ops/templates/conv2d_pixels.h"

namespace temper {
namespace {

using ir::Expr;

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
// Rows of the filter, whose pixels lie whole beside one another.
FilterOrder RowsOfFilter(const Conv2dShape& s) {
  return {{s.kh, s.kw * s.c}, [ic = s.c](const std::vector<Expr>& r) {
            return FilterPlace{r[1] % Expr(ic), r[0], r[1] / Expr(ic)};
          }};
}

FilterOrder OrderOf(const Workload& w) {
  const Conv2dShape s(w);
  const int64_t ic = s.c / s.group;
  if (!TakesRuns(w)) {
    return {{s.kh, s.kw, ic}, [](const std::vector<Expr>& r) { return FilterPlace{r[2], r[0], r[1]}; }};
  }
  if (ReadsPlanes(w)) {
    return {{ic, s.kh, s.kw}, [](const std::vector<Expr>& r) { return FilterPlace{r[0], r[1], r[2]}; }};
  }
  return RowsOfFilter(s);
}

bool IsIntegerConv2d(const Workload& w) {
  if (WaysOf(w, w.calls[w.anchor]) == 1) return false;
  if (ReadsPlanes(w)) return TakesRuns(w);
  return IsConv2dOfPixels(w, true) &&
         (w.TypeOf(w.calls[w.anchor].args[1]).shape[1] >= kLeastIntegerChannels || TakesRuns(w));
}

// The image with zeros around it, wherever it lies.
ir::Tensor WithBorders(const Conv2dShape& s, const ir::Tensor& x) {
  const Shape shape = {s.n, s.c, s.h + s.top + s.bottom, s.w + s.left + s.right};
  return ir::Tensor(x.dtype(), shape, [s, x](const std::vector<Expr>& i) {
    const Expr y = i[2] - Expr(s.top), z = i[3] - Expr(s.left);
    std::vector<Expr> inside;
    if (s.top > 0) inside.push_back(Expr(0) <= y);
    if (s.bottom > 0) inside.push_back(y < Expr(s.h));
    if (s.left > 0) inside.push_back(Expr(0) <= z);
    if (s.right > 0) inside.push_back(z < Expr(s.w));
    return ValueWhere(inside, x({i[0], i[1], y, z}));
  });
}

// What is made of the image with borders before windows of it are copied.
using Prepare = std::function<ir::Tensor(const ir::Tensor& x, ir::ProgramBuilder& b, std::vector<std::string>* stages)>;

// The window of each row, element by element.
GemmView WindowViewOf(const Workload& w, const FilterOrder& order, const Prepare& prepare = nullptr) {
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
  v.prepare = [s, ic, order, prepare, x_arg = args[0]](WorkloadProgram& program, ir::ProgramBuilder& b,
                                                       std::vector<std::string>* stages) -> GemmView::AElement {
    ir::Tensor x = WithBorders(s, program.value(x_arg));
    if (prepare) x = prepare(x, b, stages);
    return [s, ic, order, x](Expr g, Expr row, const std::vector<Expr>& r) {
      const FilterPlace at = order.at(r);
      const Expr pixel = row % Expr(s.oh * s.ow);
      const Expr y = pixel / Expr(s.ow) * Expr(s.stride_h) + at.kh * Expr(s.dilation_h);
      const Expr z = pixel % Expr(s.ow) * Expr(s.stride_w) + at.kw * Expr(s.dilation_w);
      return x({row / Expr(s.oh * s.ow), g * Expr(ic) + at.c, y, z});
    };
  };
  return v;
}

GemmView IntegerViewOf(const Workload& w) {
  return OfIntegers(w, WindowViewOf(w, OrderOf(w)), Conv2dShape(w).pointwise());
}

// The view of matrix tiles: `factors` makes factors of a window's elements. Where the places of a filter have no whole
// steps of a product, they may make some together, with places of zeros at their end.
using Windows = std::function<GemmView(const FilterOrder& order)>;
GemmView InSteps(const FilterOrder& order, const Windows& factors) {
  GemmView v = factors(order);
  const int64_t step = kMatrixStep * v.ways, run = order.reduction.back(), places = NumElements(order.reduction) / run;
  const int64_t made = RoundUp(places, step / std::gcd(run, step));
  if (made * run >= places * RoundUp(run, step)) return OfMatrixTiles(std::move(v));
  const Shape axes(order.reduction.begin(), order.reduction.end() - 1);
  v = factors({{made, run}, [axes, at = order.at](const std::vector<Expr>& r) {
                 std::vector<Expr> place = Unflatten(r[0], axes);
                 place.push_back(r[1]);
                 return at(place);
               }});
  const auto or_zero = [places](const Expr& place, const Expr& e) {
    return ir::Select(place < Expr(places), e, ir::Const(0, e->dtype));
  };
  v.prologue = true;
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

bool WindowsOverlap(const Conv2dShape& s) { return s.kh * s.kw > s.stride_h * s.stride_w; }

// In an image of pixels that has its borders, a row of the filter sees neighbours.
bool SeesRows(const Workload& w) {
  const Conv2dShape s(w);
  return WindowsOverlap(s) && s.group == 1 && s.dilation_w == 1 && !TakesRuns(w);
}

// The image with its borders as a stage of its own, of the type.
Prepare AsStage(DType type) {
  return [type](const ir::Tensor& x, ir::ProgramBuilder& b, std::vector<std::string>* stages) {
    stages->push_back("image");
    const ir::Tensor image(type, x.shape(), [x, type](const std::vector<Expr>& i) {
      return type == DType::kBF16 ? RoundedToBf16(x(i)) : x(i);
    });
    return b.Materialize(stages->back(), image, kChannelsLast);
  };
}

// Where a row of the filter is whole steps, tiles may read such an image where it lies.
GemmView InPlace(const Conv2dShape& s, GemmView v) {
  if (!v.copied.empty() || v.ways * v.reduction.back() != v.depth) return v;
  v.prologue = false;
  v.even_rows = s.ow;
  v.overlap = static_cast<double>(s.kh * s.kw) / static_cast<double>(s.stride_h * s.stride_w);
  return v;
}

// A tile's rows are all as far apart.
GemmView BytesViewOf(const Workload& w) {
  const Conv2dShape s(w);
  if (SeesRows(w) && s.kw * s.c % (kMatrixStep * 4) == 0) {
    const Prepare image = AsStage(w.TypeOf(w.calls[w.anchor].args[0]).dtype);
    return InPlace(s, OfMatrixTiles(OfIntegers(w, WindowViewOf(w, RowsOfFilter(s), image), false)));
  }
  const bool in_place = s.pointwise() && s.stride_h == 1 && s.stride_w == 1;
  return InSteps(OrderOf(w), [&](const FilterOrder& order) { return OfIntegers(w, WindowViewOf(w, order), in_place); });
}

// Windows that overlap are of an image that was rounded as a whole.
FilterOrder RoundedOrderOf(const Workload& w) { return SeesRows(w) ? RowsOfFilter(Conv2dShape(w)) : OrderOf(w); }
GemmView RoundedViewOf(const Workload& w, const FilterOrder& order) {
  return OfBf16(WindowViewOf(w, order, WindowsOverlap(Conv2dShape(w)) ? AsStage(DType::kBF16) : nullptr));
}
GemmView RoundedViewOf(const Workload& w) { return RoundedViewOf(w, RoundedOrderOf(w)); }
GemmView RoundedTilesViewOf(const Workload& w) {
  GemmView v = InSteps(RoundedOrderOf(w), [&](const FilterOrder& order) { return RoundedViewOf(w, order); });
  return SeesRows(w) ? InPlace(Conv2dShape(w), std::move(v)) : v;
}

bool IsRoundedConv2d(const Workload& w) {
  const Workload::Call& conv = w.calls[w.anchor];
  if (!AllowsBf16(conv.attrs) || !IsOfElement(w, conv)) return false;
  const Conv2dShape s(w);
  return s.group == 1 ? ReadsPlanes(w) || IsConv2dOfPixels(w, true)
                      : IsConv2dOfPixels(w, true) && s.c / s.group >= kLeastIntegerChannels;
}

}  // namespace

CpuTemplate Conv2dInteger() { return GemmTemplate("conv2d.integer", 3, IsIntegerConv2d, IntegerViewOf); }
CpuTemplate Conv2dTiles() { return MatrixTilesTemplate("conv2d.tiles", IsIntegerConv2d, BytesViewOf, "amx-int8"); }
CpuTemplate Conv2dBf16() { return GemmTemplate("conv2d.bf16", 1, IsRoundedConv2d, RoundedViewOf, "avx512bf16"); }
CpuTemplate Conv2dTilesBf16() {
  return MatrixTilesTemplate("conv2d.tiles_bf16", IsRoundedConv2d, RoundedTilesViewOf, "amx-bf16");
}

}  // namespace temper
