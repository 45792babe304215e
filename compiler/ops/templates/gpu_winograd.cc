// gpu.winograd: F(m x m, 3 x 3) for stride 1, in three launches with the device's memory between them. In the first one
// each thread transforms an input tile of t x t pixels (t = m + 2), of one channel; the second makes
// t * t products of matrices, tiles by output channels, by the one tiled contraction; in the third each thread
// transforms a tile's products back to m x m pixels of an output channel, and runs the epilogue on them. The
// package has the transformed filters.
//
// There are 9 m^2 / t^2 times fewer multiplications than in gpu.conv, and what is transformed goes through memory.
// Rounding errors are those of the CPU's template: kWinogradErrorBound.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/gpu_contraction.h"
#include "compiler/ops/templates/gpu_gemm.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/ops/templates/winograd.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kTransformThreads = 128;            // of a group that transforms
constexpr int64_t kMostWorkspace = int64_t{1} << 30;  // bytes between the launches
constexpr int64_t kSizes[] = {2, 4};                  // of m

// What m means for the shape.
struct Tiles {
  int64_t m, t, rows, columns, count;  // tiles of an image along rows and columns; of all images
  Tiles(const Conv2dShape& s, int64_t size)
      : m(size), t(m + 2), rows(CeilDiv(s.oh, m)), columns(CeilDiv(s.ow, m)), count(s.n * rows * columns) {}
  int64_t points() const { return t * t; }
};

// Elements between the first launch and the second, and between the second and the third.
double Transformed(const Tiles& p, int64_t channels) {
  return static_cast<double>(p.points()) * static_cast<double>(p.count) * static_cast<double>(channels);
}

std::vector<int64_t> SizesFor(const Conv2dShape& s) {
  std::vector<int64_t> sizes;
  for (const int64_t m : kSizes) {
    const bool fits = kElementBytes * Transformed(Tiles(s, m), s.c + s.oc) <= kMostWorkspace;
    if (fits && m <= std::max<int64_t>(2, std::min(s.oh, s.ow))) sizes.push_back(m);
  }
  return sizes;
}

// "input", the transformed input: points, tiles and channels. Tile number i begins `top` rows above row m * (its row)
// of its image, and `left` columns before.
ir::Buffer TransformInput(ir::ProgramBuilder& b, const ir::Tensor& x, const Conv2dShape& s, const Tiles& p) {
  const Matrix matrix = MakeWinograd(p.m).input;
  const ir::Buffer patch = b.Compute("patch", kElement, {p.count, p.t, p.t, s.c}, [&](const std::vector<Expr>& i) {
    const Expr in_image = i[0] % Expr(p.rows * p.columns);
    const Expr y = in_image / Expr(p.columns) * Expr(p.m) + i[1] - Expr(s.top);
    const Expr across = in_image % Expr(p.columns) * Expr(p.m) + i[2] - Expr(s.left);
    return ValueWhere({Expr(0) <= y, y < Expr(s.h), Expr(0) <= across, across < Expr(s.w)},
                      x({i[0] / Expr(p.rows * p.columns), i[3], y, across}));
  });
  const ir::Buffer lines = b.Compute("lines", kElement, {p.count, p.t, p.t, s.c}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(
        matrix, i[1],
        [&](const Expr& k) {
          return ir::Load(patch, {i[0], k, i[2], i[3]});
        },
        Sharing::kEvenOdd);
  });
  return b.Compute("input", kElement, {p.points(), p.count, s.c}, [&](const std::vector<Expr>& i) {
    const Expr row = i[0] / Expr(p.t), column = i[0] % Expr(p.t);
    return MatrixTimes(
        matrix, column,
        [&](const Expr& k) {
          return ir::Load(lines, {i[1], row, k, i[2]});
        },
        Sharing::kEvenOdd);
  });
}

// "result", the pixels of tiles: tile, row and column in it, and output channel.
ir::Buffer TransformProducts(ir::ProgramBuilder& b, const ir::Buffer& products, const Conv2dShape& s, const Tiles& p) {
  const Matrix matrix = MakeWinograd(p.m).output;
  const ir::Buffer half = b.Compute("half", kElement, {p.count, p.m, p.t, s.oc}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(
        matrix, i[1],
        [&](const Expr& k) {
          return ir::Load(products, {k * Expr(p.t) + i[2], i[0], i[3]});
        },
        Sharing::kPairs);
  });
  return b.Compute("result", kElement, {p.count, p.m, p.m, s.oc}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(
        matrix, i[2],
        [&](const Expr& k) {
          return ir::Load(half, {i[0], i[1], k, i[3]});
        },
        Sharing::kPairs);
  });
}

// The products: a batch of points, whose rows are tiles.
GemmView ViewOf(const Workload& w, int64_t m) {
  const Conv2dShape s(w);
  const Tiles p(s, m);
  GemmView v;
  v.batch = p.points();
  v.rows = p.count;
  v.columns = s.oc;
  v.reduction = {s.c};
  v.b_input = w.calls[w.anchor].args[1];
  v.b_batched = true;
  v.prepare = [s, p, x = w.calls[w.anchor].args[0]](WorkloadProgram& program, ir::ProgramBuilder& b,
                                                    std::vector<std::string>*) -> GemmView::AElement {
    return [input = TransformInput(b, program.value(x), s, p)](const Expr& point, const Expr& tile,
                                                               const std::vector<Expr>& r) {
      return ir::Load(input, {point, tile, r[0]});
    };
  };
  return v;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const GemmView& v, const Config& c) {
  const Conv2dShape s(w);
  const Tiles p(s, c["m"]);
  ir::ProgramBuilder b("winograd");
  WorkloadProgram program(w, b, GpuGemmPacked(w, v, c));
  const ir::Buffer result = TransformProducts(b, AddGpuGemm(w, v, c, program, b), s, p);
  Expr current;
  program.SetResult(
      w.anchor, ir::Tensor(kElement, w.calls[w.anchor].type.shape, [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  b.MarkOutput(b.Compute("out", w.output().dtype, w.output().PhysicalShape(), [&](const std::vector<Expr>& i) {
    const Expr m(p.m), tile = (i[0] * Expr(p.rows) + i[1] / m) * Expr(p.columns) + i[2] / m;
    current = ir::Load(result, {tile, i[1] % m, i[2] % m, i[3]});
    return program.result()({i[0], i[3], i[1], i[2]});
  }));
  return b.Finish();
}

int64_t TransformThreads(const GpuTarget& t) { return std::min<int64_t>(kTransformThreads, t.group_threads); }

// Stages on the way to a thread's elements, the last one first.
void ScheduleSteps(Schedule& s, const std::vector<std::string>& steps, const Loop& thread) {
  InRegisters(s, steps, thread);
  for (const std::string& step : steps) {
    const std::vector<Loop> loops = s.Loops(step);
    if (!s.status().ok()) return;
    for (const Loop& loop : Innermost(loops, 4)) s.Unroll(loop);
  }
}

// Neighbouring threads have neighbouring channels, each all points of a tile.
void ScheduleInput(Schedule& s, const Tiles& p, const GpuTarget& t) {
  const std::vector<Loop> loops = s.Loops("input");
  if (!s.status().ok()) return;
  auto [i, j] = s.Split(loops[0], p.t);
  s.Reorder({loops[1], loops[2], i, j});
  const Dealt dealt = Deal(s, s.Fuse(loops[1], loops[2]), TransformThreads(t), 1);
  ScheduleSteps(s, {"lines", "patch"}, dealt.thread);
  for (const Loop& loop : {i, j}) s.Unroll(loop);
}

void ScheduleOut(Schedule& s, const Tiles& p, const GpuTarget& t) {
  const std::vector<Loop> loops = s.Loops("out");
  if (!s.status().ok()) return;
  auto [row_tile, i] = s.Split(loops[1], p.m);
  auto [column_tile, j] = s.Split(loops[2], p.m);
  s.Reorder({loops[0], row_tile, column_tile, loops[3], i, j});
  const Dealt dealt = Deal(s, FuseAll(s, {loops[0], row_tile, column_tile, loops[3]}), TransformThreads(t), 1);
  ScheduleSteps(s, {"result", "half"}, dealt.thread);
  for (const Loop& loop : {i, j}) s.Unroll(loop);
}

// The filters as the products read them: points, channels and columns, zeros past the last ones.
absl::StatusOr<ir::Func> BuildFilterPack(const Workload& w, const Tiles& p, const Shape& packed) {
  TEMPER_ASSIGN_OR_RETURN(
      ir::Func func, TransformedFilters(w, {p.m, 1, packed[1], packed[2]}, packed, [&](const std::vector<Expr>& i) {
        return FilterIndex{Expr(0), i[1], i[0] / Expr(p.t), i[0] % Expr(p.t), i[2]};
      }));
  Schedule s(std::move(func));
  const std::vector<Loop> loops = s.Loops("packed");
  auto [i, j] = s.Split(loops[0], p.t);
  ScheduleTransformedFilters(s, {loops[1]}, {i, j}, loops[2], std::gcd(HostTarget().cpu()->lanes(), packed[2]));
  return LowerSchedule(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget& t) {
  const Tiles p(Conv2dShape(w), c["m"]);
  const GemmView v = ViewOf(w, p.m);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, v, c));
  Schedule s(std::move(func));
  ScheduleInput(s, p, t);
  ScheduleGpuGemm(s, w, v, c);
  ScheduleOut(s, p, t);
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  kernel.packs.resize(w.inputs.size());
  TEMPER_ASSIGN_OR_RETURN(kernel.packs[v.b_input], BuildFilterPack(w, p, GpuGemmPacked(w, v, c)[v.b_input]));
  kernel.tolerance = kWinogradErrorBound;
  return kernel;
}

bool Matches(const Workload& w) { return MayUseWinograd(w) && !SizesFor(Conv2dShape(w)).empty(); }

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const Conv2dShape s(w);
  std::vector<GemmView> views;
  for (const int64_t m : kSizes) views.push_back(ViewOf(w, m));
  ConfigSpace space;
  space.Add("m", SizesFor(s));
  // There are products enough without parts of their reductions.
  AddGpuGemmKnobs(space, w, {1}, t, [views](const Config& c) -> const GemmView& { return views[c["m"] / 2 - 1]; });
  return space;
}

// Of the matrices of F(m, 3), coefficients that are not zero; footprints ask for every config.
struct Terms {
  double input, output;
  static const Terms& Of(int64_t m) {
    static const Terms kOfTwo = Count(2), kOfFour = Count(4);
    return m == 2 ? kOfTwo : kOfFour;
  }

 private:
  static Terms Count(int64_t m) {
    const auto count = [](const Matrix& matrix) {
      double terms = 0;
      for (const std::vector<double>& row : matrix)
        terms += static_cast<double>(std::ranges::count_if(row, [](double x) { return x != 0; }));
      return terms;
    };
    const WinogradMatrices matrices = MakeWinograd(m);
    return {count(matrices.input), count(matrices.output)};
  }
};

// Fitted to what ptxas said of the first launch, which asks for more than the last.
double TransformRegisters(const Tiles& p) { return 24 + 0.67 * static_cast<double>(p.points()); }

// What the first launch and the last one do, beside what the products read.
void AddTransforms(GpuFootprint& f, const Workload& w, const Tiles& p) {
  constexpr double kAccessInstructions = 2;  // with finding its way
  const Conv2dShape s(w);
  const double tiles = static_cast<double>(p.count), points = static_cast<double>(p.points());
  const double t = static_cast<double>(p.t), m = static_cast<double>(p.m);
  const double channels = static_cast<double>(s.c), columns = static_cast<double>(s.oc);
  const Terms& terms = Terms::Of(p.m);
  f.padded_flops += 2 * tiles * (channels * 2 * t * terms.input + columns * (t + m) * terms.output);
  f.instructions += kAccessInstructions * tiles * (2 * points * channels + (points + m * m) * columns);
  const double input = kElementBytes * Transformed(p, s.c), products = kElementBytes * Transformed(p, s.oc);
  f.compulsory_bytes = CompulsoryBytes(w);
  const double others = f.compulsory_bytes - static_cast<double>(9 * kElementBytes * s.c * s.oc);  // than filters
  f.memory_traffic += input + 2 * products + others;
  // Tiles see what their neighbours see: as many elements as they are transformed to.
  f.cache_traffic += 2 * input + 2 * products + others;
  f.launches = 3;
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
  const Conv2dShape s(w);
  const Tiles p(s, c["m"]);
  GpuFootprint f = GpuProductFootprint(w, ViewOf(w, p.m), c, kElementBytes * Transformed(p, s.c), t);
  AddTransforms(f, w, p);
  f.registers = std::max(f.registers, TransformRegisters(p));
  return f;
}

}  // namespace

GpuTemplate GpuWinograd() { return {"gpu.winograd", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
