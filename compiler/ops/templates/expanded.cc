// conv2d.expanded: a pointwise convolution and the depthwise one that alone reads it, as one kernel: the first half of
// an inverted residual. Each thread takes strips of output rows, a panel of channels at a time: register tiles make the
// rows of the panel that the strip sees, in scratch that stays in cache, and the depthwise part reads them there. Rows
// that two strips see are made twice.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ops/templates/depthwise.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"

namespace temper {
namespace {

using depthwise::Pair;
using ir::Expr;

constexpr int64_t kMostLanes = 16;  // of any target

// What a config means.
struct Tiles {
  depthwise::Tile depthwise;
  int64_t strip;  // output rows
  int64_t mr, vectors, nr, panels;
  bool fetch_ahead;  // the filters of the next panel
  Tiles(const Pair& p, const Config& c, const CpuTarget& t)
      : depthwise(p.depthwise, c, t),
        strip(c["sh"]),
        mr(c["mr"]),
        vectors(c["nv"]),
        nr(vectors * t.lanes()),
        panels(p.depthwise.c / nr),
        fetch_ahead(kElementBytes * p.pointwise.c * p.pointwise.oc > t.l1_bytes) {}
};

// Input rows that a strip of so many output rows sees.
int64_t Window(const Conv2dShape& d, int64_t strip) {
  return std::min(d.h, TiledAxis{d.oh, d.h, d.kh, d.stride_h, d.dilation_h, d.top, strip}.reach() + 1);
}

bool Matches(const Workload& w) {
  if (!AreConvolutionsInARow(w)) return false;
  const Pair p(w, /*depthwise_first=*/false);
  return p.pointwise.dense_pointwise() && p.depthwise.depthwise() && p.depthwise.c % kMostLanes == 0;
}

std::vector<int64_t> DivisorsAmong(int64_t n, const std::vector<int64_t>& values) {
  std::vector<int64_t> result;
  for (const int64_t v : values) {
    if (n % v == 0) result.push_back(v);
  }
  return result;
}

// Everything divides: no tile, strip or panel needs other code at its end.
ConfigSpace Space(const Workload& w, const CpuTarget& t) {
  const Pair p(w, /*depthwise_first=*/false);
  ConfigSpace space;
  space.Add("sh", DivisorsAmong(p.depthwise.oh, {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 28}));
  depthwise::AddTileKnobs(space, p.depthwise, DivisorsAmong(p.depthwise.oh, {1, 2, 3, 4, 5, 7}), t);
  space.Add("mr", DivisorsAmong(p.pointwise.w, {1, 2, 4, 5, 6, 7, 8, 10, 12, 13, 14, 16, 20, 28}));
  space.Add("nv", DivisorsAmong(p.depthwise.c / t.lanes(), {1, 2, 3, 4, 5, 6, 8}));
  RequireRegisters(space, t);
  space.Require("the depthwise tile does not divide the strip", [](const Config& c) { return c["sh"] % c["th"] == 0; });
  space.Require("the depthwise tile does not divide the panel", [](const Config& c) { return c["nv"] % c["cv"] == 0; });
  space.Require("what the strip sees does not stay in L2", [d = p.depthwise, t](const Config& c) {
    return c["sh"] == 1 || kElementBytes * Window(d, c["sh"]) * d.w * c["nv"] * t.lanes() <= t.l2_bytes;
  });
  return space;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Pair& p, const Tiles& tiles) {
  const Conv2dShape &s = p.pointwise, &d = p.depthwise;
  ir::ProgramBuilder b("expanded");
  std::vector<Shape> packed(w.inputs.size());
  packed[p.pointwise_filter] = {tiles.panels, s.c, tiles.nr};
  packed[p.depthwise_filter] = {d.kh, d.kw, d.c};
  WorkloadProgram program(w, b, packed);

  ir::Buffer acc = b.Reduce("acc", kElement, {s.n, s.oh, s.ow, s.oc}, {s.c}, ir::Combiner::kSum,
                            [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              return program.value(p.x)({i[0], r[0], i[1], i[2]}) *
                                     ir::Load(program.buffer(p.pointwise_filter),
                                              {i[3] / Expr(tiles.nr), r[0], i[3] % Expr(tiles.nr)});
                            });
  Expr current;
  const auto at_hand = [&current](const std::vector<Expr>&) { return current; };
  program.SetResult(0, ir::Tensor(kElement, w.calls[0].type.shape, at_hand));
  TEMPER_RETURN_IF_ERROR(program.Compute(1, w.anchor));
  const int made = static_cast<int>(w.inputs.size()) + w.anchor - 1;
  ir::Buffer expanded = b.Compute("expanded", kElement, {s.n, s.oh, s.ow, s.oc}, [&](const std::vector<Expr>& i) {
    current = ir::Load(acc, i);
    return program.value(made)({i[0], i[3], i[1], i[2]});
  });

  program.SetResult(w.anchor - 1, ir::Tensor::OfBuffer(expanded, kChannelsLast));
  ir::Buffer depthwise_acc =
      depthwise::Accumulate("depthwise_acc", d, tiles.depthwise, program, made, p.depthwise_filter, true, b);
  program.SetResult(w.anchor, ir::Tensor(kElement, w.calls[w.anchor].type.shape, at_hand));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  ir::Buffer out = b.Compute("out", w.output().dtype, {d.n, d.oh, d.ow, d.c}, [&](const std::vector<Expr>& i) {
    current = depthwise::At(depthwise_acc, tiles.depthwise, i);
    return program.result()({i[0], i[3], i[1], i[2]});
  });
  b.MarkOutput(out);
  return b.Finish();
}

// While a panel's tiles are computed, the filters of the next one are fetched, a share by each tile.
void PrefetchNextPanel(Schedule& s, const Pair& p, const Tiles& tiles, const Loop& chunk) {
  const std::vector<Loop> loops = s.Loops("acc");
  if (!s.status().ok()) return;
  const size_t k = loops.size() - 4;  // ..., row, column tile, k, column, vector, lane
  const int64_t column_tiles = s.Extent(loops[k - 1]), turns = s.Extent(loops[k - 2]) * column_tiles;
  int64_t share = CeilDiv(p.pointwise.c, turns);
  while (p.pointwise.c % share != 0) ++share;
  const auto [fetch, step] = s.Split(loops[k], p.pointwise.c / share);
  const Expr turn = Expr(loops[k - 2]) * Expr(column_tiles) + Expr(loops[k - 1]);
  std::vector<Loop> each;
  if (tiles.nr > kLineElements) each.push_back(loops[k + 2]);
  s.PrefetchAt("acc", absl::StrCat("in", p.pointwise_filter), fetch,
               {{chunk, Expr(chunk) + Expr(1)}, {fetch, Expr(0)}, {step, turn * Expr(share) + Expr(fetch)}}, each);
}

absl::StatusOr<ir::Func> ScheduleStrips(ir::Func func, const Pair& p, const Tiles& tiles, const CpuTarget& t) {
  Schedule s(std::move(func));
  const std::vector<Loop> out = s.Loops("out");
  if (out.size() != 4) return absl::InternalError("expanded: four output loops expected");
  auto [strip, in_strip] = s.Split(out[1], tiles.strip);
  auto [row_tile, row] = s.Split(in_strip, tiles.depthwise.rows.tile);
  auto [panel, in_panel] = s.Split(out[3], tiles.nr);
  const depthwise::TileLoops loops = depthwise::SplitTile(s, tiles.depthwise, row, out[2], in_panel);
  s.Reorder({out[0], strip, panel, row_tile, loops.column_tile, loops.channel_tile, loops.row, loops.column,
             loops.vector, loops.lane});
  depthwise::ScheduleAccumulators(s, "depthwise_acc", "out", loops.channel_tile, p.depthwise, tiles.depthwise);

  s.ComputeAt("expanded", panel);
  const std::vector<Loop> made = s.Loops("expanded");
  if (!s.status().ok()) return s.status();
  const size_t n = made.size();  // ..., row, column, channel
  auto [column_tile, column] = s.Split(made[n - 2], tiles.mr);
  s.Split(made[n - 1], t.lanes());
  TileAccumulators(s, "acc", column_tile, 1, t.lanes(), 1);
  UnrollTile(s, "expanded");

  depthwise::PeelEdges(s, p.depthwise, tiles.depthwise, loops);
  const Loop chunk = s.Fuse(s.Fuse(out[0], strip), panel);
  if (tiles.fetch_ahead) PrefetchNextPanel(s, p, tiles, chunk);
  s.Parallel(chunk);
  return Finished(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Pair p(w, /*depthwise_first=*/false);
  const Tiles tiles(p, c, t);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, p, tiles));
  TEMPER_ASSIGN_OR_RETURN(ir::Func scheduled, ScheduleStrips(std::move(func), p, tiles, t));
  return depthwise::KernelOf(std::move(scheduled), w, p, tiles.nr, t);
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Pair p(w, /*depthwise_first=*/false);
  const Tiles tiles(p, c, t);
  const Conv2dShape &s = p.pointwise, &d = p.depthwise;
  const double strips = static_cast<double>(d.n * (d.oh / tiles.strip)), panels = static_cast<double>(tiles.panels);
  const double made = strips * static_cast<double>(Window(d, tiles.strip) * s.w);  // pixels, rows of two strips twice
  const double in = static_cast<double>(s.c), channels = static_cast<double>(d.c);
  const double once = static_cast<double>(s.n * s.h * s.w), pixels = static_cast<double>(d.n * d.oh * d.ow);
  const double taps = static_cast<double>(d.kh * d.kw), nr = static_cast<double>(tiles.nr);
  CpuFootprint f;
  f.flops = 2 * channels * (once * in + pixels * taps);
  f.padded_flops = 2 * channels * (made * in + pixels * taps);
  DescribeTile(f, tiles.mr, tiles.vectors, t.lanes());
  f.reduction = in;
  // The depthwise part's loads and stores; its multiply-adds are counted among the others.
  f.prologue_ops =
      pixels * channels / static_cast<double>(t.lanes()) * (1 + taps * depthwise::LoadsPerFma(d, tiles.depthwise, t));
  const double panel = kElementBytes * in * nr, scratch = kElementBytes * made / strips * nr;
  const double strip_input = kElementBytes * made / strips * in;
  f.l1_bytes = panel + kElementBytes * in * static_cast<double>(tiles.mr);
  f.l2_bytes = scratch + strip_input + panel;
  f.l2_traffic = panels * (kElementBytes * made * in + made / static_cast<double>(tiles.mr) * panel) +
                 2 * kElementBytes * made * channels + kElementBytes * pixels * channels;
  f.compulsory_bytes = CompulsoryBytes(w);
  f.memory_traffic = kElementBytes * (once * in + pixels * channels) + panels * panel;
  f.l3_traffic = f.memory_traffic;
  if (f.l2_bytes > 0.75 * static_cast<double>(t.l2_bytes))
    f.l3_traffic += panels * kElementBytes * made * in + 2 * kElementBytes * made * channels;
  f.parallel_chunks = strips * panels;
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  f.code_ops =
      static_cast<double>(2 * tiles.mr * tiles.vectors) + 3 * taps * static_cast<double>(tiles.depthwise.outputs());
  return f;
}

}  // namespace

CpuTemplate ExpandedConv2d() { return {"conv2d.expanded", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
