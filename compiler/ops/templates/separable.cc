// conv2d.separable: a depthwise convolution and the pointwise one that alone reads it, as one kernel. Each thread takes
// strips of output rows: the depthwise part of a strip goes to scratch that stays in cache, and register tiles of the
// pointwise part read it from there.
#include <algorithm>
#include <cmath>

#include "compiler/ops/templates/depthwise.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"

namespace temper {
namespace {

using depthwise::Pair;
using ir::Expr;

// What a config means.
struct Tiles {
  depthwise::Tile depthwise;
  int64_t mr, vectors, nr, panels;
  Tiles(const Pair& p, const Config& c, const CpuTarget& t)
      : depthwise(p.depthwise, c, t),
        mr(c["mr"]),
        vectors(c["nv"]),
        nr(vectors * t.lanes()),
        panels(CeilDiv(p.pointwise.oc, nr)) {}
};

bool Matches(const Workload& w) {
  if (!AreConvolutionsInARow(w)) return false;
  const Pair p(w, /*depthwise_first=*/true);
  return p.depthwise.depthwise() && p.pointwise.dense_pointwise();
}

ConfigSpace Space(const Workload& w, const CpuTarget& t) {
  const Pair p(w, /*depthwise_first=*/true);
  ConfigSpace space;
  // Strips that divide the image: what a thread does needs no other code at its end.
  std::vector<int64_t> heights;
  for (int64_t th : {1, 2, 3, 4, 5, 7}) {
    if (p.depthwise.oh % th == 0) heights.push_back(th);
  }
  depthwise::AddTileKnobs(space, p.depthwise, heights, t);
  std::vector<int64_t> rows;
  for (int64_t mr : {1, 2, 4, 6, 7, 8, 10, 12, 14, 16, 20, 28}) {
    if (mr == 1 || (mr <= p.depthwise.ow * heights.back() && mr + 2 <= t.vector_registers)) rows.push_back(mr);
  }
  space.Add("mr", rows);
  space.Add("nv", TileVectors(p.pointwise.oc, t.lanes()));
  RequireRegisters(space, t);
  space.Require("the strip is lower than the tile",
                [ow = p.depthwise.ow](const Config& c) { return c["mr"] <= c["th"] * ow; });
  return space;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Pair& p, const Tiles& tiles) {
  const Conv2dShape &d = p.depthwise, &s = p.pointwise;
  ir::ProgramBuilder b("separable");
  std::vector<Shape> packed(w.inputs.size());
  packed[p.depthwise_filter] = {d.kh, d.kw, d.c};
  packed[p.pointwise_filter] = {tiles.panels, s.c, tiles.nr};
  WorkloadProgram program(w, b, packed);

  ir::Buffer depthwise_acc =
      depthwise::Accumulate("depthwise_acc", d, tiles.depthwise, program, p.x, p.depthwise_filter, true, b);
  Expr current;
  const auto at_hand = [&current](const std::vector<Expr>&) { return current; };
  program.SetResult(0, ir::Tensor(kElement, w.calls[0].type.shape, at_hand));
  TEMPER_RETURN_IF_ERROR(program.Compute(1, w.anchor));
  const int strip = static_cast<int>(w.inputs.size()) + w.anchor - 1;
  ir::Buffer depthwise = b.Compute("depthwise", kElement, {s.n, s.oh, s.ow, s.c}, [&](const std::vector<Expr>& i) {
    current = depthwise::At(depthwise_acc, tiles.depthwise, i);
    return program.value(strip)({i[0], i[3], i[1], i[2]});
  });

  // The output is (n, strip, pixel of the strip, channel), the same bytes: register tiles cross the strip's rows.
  const int64_t height = tiles.depthwise.rows.tile, strips = s.oh / height;
  const auto row = [&](const std::vector<Expr>& i) { return i[1] * Expr(height) + i[2] / Expr(s.ow); };
  const auto column = [&](const std::vector<Expr>& i) { return i[2] % Expr(s.ow); };
  ir::Buffer acc = b.Reduce("acc", kElement, {s.n, strips, height * s.ow, tiles.panels * tiles.nr}, {s.c},
                            ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              return ir::Load(depthwise, {i[0], row(i), column(i), r[0]}) *
                                     ir::Load(program.buffer(p.pointwise_filter),
                                              {i[3] / Expr(tiles.nr), r[0], i[3] % Expr(tiles.nr)});
                            });
  program.SetResult(w.anchor, ir::Tensor(kElement, w.calls[w.anchor].type.shape, at_hand));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  ir::Buffer out =
      b.Compute("out", w.output().dtype, {s.n, strips, height * s.ow, s.oc}, [&](const std::vector<Expr>& i) {
        current = ir::Load(acc, i);
        return program.result()({i[0], i[3], row(i), column(i)});
      });
  b.MarkOutput(out);
  return b.Finish();
}

absl::StatusOr<ir::Func> ScheduleStrips(ir::Func func, const Pair& p, const Tiles& tiles, const CpuTarget& t) {
  Schedule s(std::move(func));
  std::vector<Loop> out = s.Loops("out");
  if (out.size() != 4) return absl::InternalError("separable: four output loops expected");
  const Loop image = out[0], strip = out[1];
  // The strip is laid down before its pixels come in tiles: the last of those may be partial, the strip never is.
  s.ComputeAt("acc", strip);
  s.ComputeAt("depthwise", strip);
  auto [row_tile, row] = s.Split(out[2], tiles.mr);
  auto [panel, column] = s.Split(out[3], tiles.nr);
  auto [vector, lane] = s.Split(column, t.lanes());
  s.Reorder({row_tile, panel, row, vector, lane});
  TileAccumulators(s, "acc", panel, 1, t.lanes(), 1);
  FetchForStore(s, "out", panel, row, vector, tiles.nr);
  UnrollTile(s, "out");

  const std::vector<Loop> inside = s.Loops("depthwise");
  if (!s.status().ok()) return s.status();
  const size_t n = inside.size();  // ..., row, column, channel
  const depthwise::TileLoops loops =
      depthwise::SplitTile(s, tiles.depthwise, inside[n - 3], inside[n - 2], inside[n - 1]);
  s.Reorder({loops.column_tile, loops.channel_tile, loops.row, loops.column, loops.vector, loops.lane});
  depthwise::ScheduleAccumulators(s, "depthwise_acc", "depthwise", loops.channel_tile, p.depthwise, tiles.depthwise);
  depthwise::PeelEdges(s, p.depthwise, tiles.depthwise, loops);
  s.Parallel(s.Fuse(image, strip));
  s.Partition(panel);
  return Finished(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Pair p(w, /*depthwise_first=*/true);
  const Tiles tiles(p, c, t);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, p, tiles));
  TEMPER_ASSIGN_OR_RETURN(ir::Func scheduled, ScheduleStrips(std::move(func), p, tiles, t));
  return depthwise::KernelOf(std::move(scheduled), w, p, tiles.nr, t);
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Pair p(w, /*depthwise_first=*/true);
  const Tiles tiles(p, c, t);
  const Conv2dShape &d = p.depthwise, &s = p.pointwise;
  const double pixels = static_cast<double>(s.n * s.oh * s.ow), channels = static_cast<double>(s.c);
  const double columns = static_cast<double>(s.oc), padded_columns = static_cast<double>(tiles.panels * tiles.nr);
  const double taps = static_cast<double>(d.kh * d.kw),
               strips = static_cast<double>(s.n * tiles.depthwise.rows.tiles());
  const double strip_rows = static_cast<double>(tiles.depthwise.rows.tile * s.ow);
  const double row_tiles = strips * std::ceil(strip_rows / static_cast<double>(tiles.mr));
  const double input = kElementBytes * static_cast<double>(d.n * d.h * d.w * d.c);
  const double filter = kElementBytes * channels * padded_columns,
               panel = kElementBytes * channels * static_cast<double>(tiles.nr);
  const double strip = kElementBytes * strip_rows * channels,
               window = static_cast<double>(tiles.depthwise.rows.window());
  CpuFootprint f;
  f.flops = 2 * pixels * channels * (taps + columns);
  f.padded_flops = 2 * pixels * channels * (taps + padded_columns);
  DescribeTile(f, tiles.mr, tiles.vectors, t.lanes());
  f.reduction = channels;
  // The depthwise part's loads and stores; its multiply-adds are counted among the others.
  const double made = pixels * std::ceil(channels / static_cast<double>(t.lanes()));
  f.prologue_ops = made * (1 + taps * depthwise::LoadsPerFma(d, tiles.depthwise, t));
  f.l1_bytes = panel + kElementBytes * channels * static_cast<double>(tiles.mr);
  f.l2_bytes = strip + filter + kElementBytes * window * static_cast<double>(d.w) * channels;
  const double again = window / static_cast<double>(tiles.depthwise.rows.tile * d.stride_h);
  f.l2_traffic = input * std::max(1.0, again) + 2 * kElementBytes * pixels * channels + row_tiles * filter +
                 kElementBytes * pixels * columns;
  f.compulsory_bytes = CompulsoryBytes(w);
  f.memory_traffic = input + filter + kElementBytes * pixels * columns;
  f.l3_traffic = f.memory_traffic + (f.l2_bytes <= 0.75 * static_cast<double>(t.l2_bytes) ? 0 : strips * filter);
  f.parallel_chunks = strips;
  f.chunk_imbalance = std::ceil(strips / t.threads) * t.threads / strips;
  f.code_ops =
      static_cast<double>(2 * tiles.mr * tiles.vectors) + 3 * taps * static_cast<double>(tiles.depthwise.outputs());
  return f;
}

}  // namespace

CpuTemplate SeparableConv2d() { return {"conv2d.separable", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
