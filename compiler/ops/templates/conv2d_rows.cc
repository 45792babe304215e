// conv2d.rows: filters of several pixels, as an implicit GEMM over the input as it lies: columns are output channels,
// the reduction is (kh, kw, c). A register tile is part of one row of the output, so what padding it meets is known: a
// row of the filter outside the image costs one branch, and the tiles at the ends of an output row are code of their
// own, in which taps outside the image are left out one by one.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "compiler/ops/families/infer_util.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/register_tile.h"
#include "compiler/ops/templates/element.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kMostEdgeCode = 4096;  // multiply-adds that the tiles at the ends of a row are unrolled to
constexpr int64_t kMostBlocks = 256;

// One spatial dimension, and where a tap sees the input.
struct Axis : TiledAxis {
  Expr Input(const Expr& position, const Expr& tap) const {
    return position * Expr(stride) + tap * Expr(dilation) - Expr(before);
  }
  // Conditions under which there is such an output and such an input, as far as they do not always hold.
  void AddInside(const Expr& position, const Expr& tap, std::vector<Expr>* conditions) const {
    if (out % tile != 0) conditions->push_back(position < Expr(out));
    if (before > 0) conditions->push_back(Expr(0) <= Input(position, tap));
    if ((out - 1) * stride + (taps - 1) * dilation - before >= in)
      conditions->push_back(Input(position, tap) < Expr(in));
  }
  // Pairs of an output and a tap that sees the image.
  int64_t SeenTaps() const { return ops::TapsInside(out, taps, stride, dilation, before, in); }
};

// A vector holds the filters of several groups, where a group has as many of them as channels: an aligned vector of a
// pixel is all that they see. Alone, so small a group would leave most lanes idle.
bool MergesGroups(const Conv2dShape& s, const CpuTarget& t) {
  constexpr int64_t kSmallGroup = 4;  // each multiply-add costs a shuffle, which larger groups are not worth
  const int64_t filters = s.oc / s.group;
  return s.group > 1 && s.c == s.oc && filters <= kSmallGroup && 2 * filters <= t.lanes() && t.lanes() % filters == 0 &&
         s.oc % t.lanes() == 0;
}
int64_t FiltersOf(const Conv2dShape& s, const CpuTarget& t) { return MergesGroups(s, t) ? s.oc : s.oc / s.group; }

// What a config means: the numbers that program, schedule and footprint speak of.
struct Tile {
  Axis rows, columns;
  bool merged;       // groups share vectors, and are one with respect to all that follows
  int64_t group;     // of them or of merged ones
  int64_t channels;  // that a filter sees of a pixel, in all planes
  int64_t run;       // and in one: channels that lie together
  int64_t filters;   // of a group
  int64_t lanes, vectors, nr, panels, blocks, unroll;
  int64_t parts;                           // of the filter's rows, whose sums are added up at the end
  bool planes;                             // the input's, a channel each, which the kernel reads as they lie
  bool constant;                           // the filters are packed by the package, not by the kernel
  bool fetch_ahead;                        // the next block's filters are fetched during a block
  std::optional<ops::PlaneWindow> volume;  // the input's planes, several of which a filter sees
  Tile(const Workload& w, const Conv2dShape& s, const Config& c, const CpuTarget& t)
      : rows{{s.oh, s.h, s.kh, s.stride_h, s.dilation_h, s.top, 1}},
        columns{{s.ow, s.w, s.kw, s.stride_w, s.dilation_w, s.left, c["mr"]}},
        merged(MergesGroups(s, t)),
        group(merged ? 1 : s.group),
        channels(s.c / s.group),
        filters(s.oc / group),
        lanes(LanesOf(c, t)),
        vectors(c["nv"]),
        nr(vectors * lanes),
        panels(CeilDiv(filters, nr)),
        blocks(c["blocks"]),
        unroll(c["ku"]),
        parts(c.Has("parts") ? c["parts"] : 1),
        planes(ReadsPlanes(w)),
        constant(w.inputs[1].constant),
        fetch_ahead(StreamsFilters(s, t)),
        volume(UnfoldedPlanes(w)) {
    run = volume.has_value() ? volume->channels : channels;
  }
  // Whether threads go from block to block of filters that L2 does not hold, and over each more than once.
  bool StreamsFilters(const Conv2dShape& s, const CpuTarget& t) const {
    return constant && group * blocks * parts > t.threads && s.n * s.oh * columns.tiles() > 1 &&
           kElementBytes * NumElements(packed_shape(s)) > t.l2_bytes / 2;
  }
  Shape packed_shape(const Conv2dShape& s) const { return {group, panels, s.kh, s.kw * channels, nr}; }
  // Along a row of the filter, neighbouring (kw, c) are neighbours in memory too: one longer loop instead of two.
  bool one_loop(const Conv2dShape& s) const { return s.group == 1 && s.dilation_w == 1 && !planes && run == channels; }
  // Along a row of the filter: taps, each with all planes' runs of channels.
  int64_t runs_of_row(const Conv2dShape& s) const { return s.kw * (channels / run); }
  bool has_middle() const { return columns.end_inside() > columns.first_inside(); }
  // The knob is about most of the work: beside it, the tiles at the ends have copies enough.
  int64_t edge_unroll() const { return has_middle() && !merged ? 1 : unroll; }
  int64_t unroll_of(bool edge) const { return edge ? edge_unroll() : unroll; }
  bool unroll_edges(const Conv2dShape& s) const {
    return columns.edges() * columns.tile * vectors * runs_of_row(s) * edge_unroll() <= kMostEdgeCode;
  }
};

// Where rows of the output use a panel of filters in turn that is too large to stay in L2 beside the next one, it comes
// a row of the filter at a time.
bool FiltersComeInParts(const Workload& w, const Conv2dShape& s, const CpuTarget& t) {
  const int64_t panel =
      kElementBytes * (s.c / s.group) * s.kh * s.kw * std::min<int64_t>(s.oc / s.group, 2 * t.lanes());
  return w.inputs[1].constant && s.kh > 1 && s.n * s.oh > 1 && !MergesGroups(s, t) && 2 * panel > t.l2_bytes;
}

// The element of the packed filters at `index` of packed_shape: zero past the last filter.
Expr PackedElement(const Tile& tile, const ir::Tensor& f, const std::vector<Expr>& index) {
  const Expr filter = index[1] * Expr(tile.nr) + index[4];
  const Expr kw = index[3] / Expr(tile.channels), c = index[3] % Expr(tile.channels);
  const Expr element = f({index[0] * Expr(tile.filters) + filter, c, index[2], kw});
  return tile.panels * tile.nr == tile.filters ? element
                                               : ir::Select(filter < Expr(tile.filters), element, ir::Float(0));
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Conv2dShape& s, const Tile& tile) {
  ir::ProgramBuilder b("conv2d");
  std::vector<Shape> shapes(w.inputs.size());
  if (tile.constant) shapes[1] = tile.packed_shape(s);
  WorkloadProgram program(w, b, shapes);
  const ir::Buffer filters =
      tile.constant ? program.buffer(1)
                    : b.Compute("pack", kElement, tile.packed_shape(s), [&](const std::vector<Expr>& index) {
                        return PackedElement(tile, program.value(1), index);
                      });
  const Axis& columns = tile.columns;
  ir::Buffer acc = b.Reduce(
      "acc", kElement, {tile.parts * s.n, s.oh, columns.tiles(), tile.group, columns.tile, tile.panels * tile.nr},
      {s.kh / tile.parts, s.kw * tile.channels}, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr ow = i[2] * Expr(columns.tile) + i[4];
        const Expr kh = tile.parts == 1 ? r[0] : i[0] / Expr(s.n) * Expr(s.kh / tile.parts) + r[0];
        const Expr kw = r[1] / Expr(tile.channels), c = r[1] % Expr(tile.channels);
        std::vector<Expr> inside;
        tile.rows.AddInside(i[1], kh, &inside);
        columns.AddInside(ow, kw, &inside);
        const Expr group = tile.merged ? i[5] / Expr(tile.channels) : i[3];
        Expr image = tile.parts == 1 ? i[0] : i[0] % Expr(s.n), channel = group * Expr(tile.channels) + c;
        if (tile.volume.has_value()) {
          const Expr plane = c / Expr(tile.run);
          tile.volume->AddInside(image, plane, &inside);
          image = tile.volume->Plane(image, plane);
          channel = group * Expr(tile.run) + c % Expr(tile.run);
        }
        const Expr x = program.value(0)({image, channel, tile.rows.Input(i[1], kh), columns.Input(ow, kw)});
        return ValueWhere(inside, x * ir::Load(filters, {i[3], i[5] / Expr(tile.nr), kh, r[1], i[5] % Expr(tile.nr)}));
      });
  const auto sum = [&](const std::vector<Expr>& i) {
    return ir::Load(acc, {i[0], i[1], i[2] / Expr(columns.tile), i[3], i[2] % Expr(columns.tile), i[4]});
  };
  ir::Buffer sums;
  if (tile.parts > 1) sums = b.Compute("sums", kElement, {tile.parts * s.n, s.oh, s.ow, tile.group, tile.filters}, sum);
  Expr current;
  program.SetResult(
      w.anchor, ir::Tensor(kElement, w.calls[w.anchor].type.shape, [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  ir::Buffer out =
      b.Compute("out", w.output().dtype, {s.n, s.oh, s.ow, tile.group, tile.filters}, [&](const std::vector<Expr>& i) {
        current = tile.parts == 1 ? sum(i) : ir::Load(sums, i);
        for (int64_t p = 1; p < tile.parts; ++p)
          current = current + ir::Load(sums, {Expr(p * s.n) + i[0], i[1], i[2], i[3], i[4]});
        return program.result()({i[0], i[3] * Expr(tile.filters) + i[4], i[1], i[2]});
      });
  b.MarkOutput(out);
  return b.Finish();
}

// Part of each row of the output: tiles that meet padding or are a last, narrower one, or those between them.
struct Part {
  std::string acc, out;  // its blocks
  Loop chunk, tiles;     // the loops over chunks, and over its tiles
  int64_t first;         // of its tiles
  bool edge;
};

// While a block's filters are in use, those of the next one are fetched: each pass over them, a tile's, fetches a
// share, evenly as it goes.
void PrefetchNextBlock(Schedule& s, const Part& part, const Conv2dShape& shape, const Tile& tile) {
  const std::vector<Loop> loops = s.Loops(part.acc);
  if (!s.status().ok()) return;
  const size_t row = loops.size() - 3;
  const int64_t unroll = tile.unroll_of(part.edge), runs = tile.runs_of_row(shape), channels = tile.run / unroll;
  const size_t k = row - (unroll > 1 ? 2 : 1);
  std::vector<Loop> each;
  if (unroll > 1) each.push_back(loops[k + 1]);
  if (tile.nr > kLineElements) each.push_back(loops[row + 1]);

  const int64_t rows = shape.n * shape.oh, tiles = tile.columns.tiles();
  int64_t steps = std::min(rows * tiles, channels);
  while (channels % steps != 0) --steps;
  const bool runs_apart = s.Extent(loops[k]) == channels && runs > 1;
  const auto [fetch, step] = s.Split(loops[k], steps);
  const Expr pass = Expr(part.chunk) % Expr(rows) * Expr(tiles) + Expr(part.first) + Expr(part.tiles);
  Expr position = pass * Expr(CeilDiv(runs * channels, rows * tiles)) + Expr(fetch);
  std::vector<ir::VarBinding> at = {{part.chunk, Expr(part.chunk) + Expr(rows)}, {fetch, Expr(0)}};
  if (runs_apart) {
    position = position + Expr(loops[k - 1]) * Expr(channels / steps);
    at.push_back({loops[k - 1], Expr(0)});
  }
  at.push_back({step, position});
  s.PrefetchAt(part.acc, "in1", fetch, at, each);
}

// While a tile is computed, what the one two rows below it will see of the image comes: lines of several rows of each
// plane, which prefetchers do not follow well.
void PrefetchPlanes(Schedule& s, const Part& part, const Tile& tile) {
  const std::vector<Loop> loops = s.Loops(part.acc);
  if (!s.status().ok()) return;
  const bool unrolled = tile.unroll_of(part.edge) > 1;
  const size_t kh = loops.size() - 3 - (unrolled ? 4 : 3);  // kh, kw, channel, row, vector, lane
  std::vector<Loop> each = {loops[kh], loops[kh + 2]};
  if (unrolled) each.push_back(loops[kh + 3]);
  s.PrefetchAt(part.acc, "in0", part.tiles, {{part.chunk, Expr(part.chunk) + Expr(2)}}, each);
}

void SchedulePart(Schedule& s, const Part& part, const Conv2dShape& shape, const Tile& tile) {
  size_t reductions = 2;
  Loop run = nullptr;
  if (part.edge || !tile.one_loop(shape)) {
    const std::vector<Loop> loops = s.Loops(part.acc);
    if (!s.status().ok()) return;
    run = s.Split(loops.back(), tile.run).first;
    reductions = 3;
  }
  TileReduction(s, part.acc, reductions, tile.lanes, tile.unroll_of(part.edge));
  if (tile.fetch_ahead) PrefetchNextBlock(s, part, shape, tile);
  if (tile.planes && !part.edge) PrefetchPlanes(s, part, tile);
  if (run != nullptr && part.edge && tile.unroll_edges(shape)) s.Unroll(run);
  const std::vector<Loop> loops = s.Loops(part.out);
  if (s.status().ok() && tile.parts == 1) {
    const size_t column = loops.size() - 3;
    FetchForStore(s, part.out, loops[column - 1], loops[column], loops[column + 1], tile.nr);
  }
  UnrollTile(s, part.out);
}

absl::StatusOr<ir::Func> ScheduleRows(ir::Func func, const Conv2dShape& shape, const Tile& tile, const CpuTarget& t) {
  Schedule s(std::move(func));
  if (!tile.constant) ScheduleElementwise(s, "pack", t);
  if (tile.parts > 1) ScheduleElementwise(s, "out", t);
  const std::vector<Loop> loops = s.Loops(tile.parts > 1 ? "sums" : "out");
  if (loops.size() != 5) return absl::InternalError("conv2d.rows: five output loops expected");
  auto [column_tile, column] = s.Split(loops[2], tile.columns.tile);
  auto [panel, filter] = s.Split(loops[4], tile.nr);
  auto [vector, lane] = s.Split(filter, tile.lanes);
  auto [block, panel_in] = s.Split(panel, tile.panels / tile.blocks);
  s.Reorder({loops[3], block, loops[0], loops[1], column_tile, panel_in, column, vector, lane});
  s.ComputeAt("acc", panel_in);
  s.SetScope("acc", ir::Scope::kRegister);
  const Loop chunk = s.Fuse(s.Fuse(s.Fuse(loops[3], block), loops[0]), loops[1]);
  s.Parallel(chunk);

  const int64_t first = tile.columns.first_inside(), last = tile.columns.tiles() - tile.columns.end_inside();
  std::array<Loop, 3> parts = {nullptr, column_tile, nullptr};
  if (first + last > 0) parts = s.Peel(column_tile, first, last);
  // The last blocks are, of each part, the accumulators' and then the output's; or the sums', and then the output.
  const auto made = std::count_if(parts.begin(), parts.end(), [](const Loop& part) { return part != nullptr; });
  std::vector<std::string> blocks = s.Blocks();
  if (tile.parts > 1) std::erase_if(blocks, [](const std::string& b) { return b.starts_with("out"); });
  if (s.status().ok()) blocks.erase(blocks.begin(), blocks.end() - 2 * made);
  const std::array<int64_t, 3> firsts = {0, first, tile.columns.tiles() - last};
  for (size_t i = 0, block_of = 0; i < parts.size() && s.status().ok(); ++i) {
    if (parts[i] == nullptr) continue;
    if (i != 1) s.Unroll(parts[i]);
    SchedulePart(s, {blocks[block_of], blocks[block_of + 1], chunk, parts[i], firsts[i], i != 1}, shape, tile);
    block_of += 2;
  }
  s.Partition(panel_in);
  return Finished(s);
}

ConfigSpace Space(const Workload& w, const CpuTarget& t) {
  const Conv2dShape s(w);
  ConfigSpace space;
  // Rows in so many tiles, all but the last of one width.
  std::vector<int64_t> widths;
  for (int64_t most : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28, 30}) {
    const int64_t width = CeilDiv(s.ow, CeilDiv(s.ow, most));
    if (width + 2 <= t.vector_registers && (widths.empty() || widths.back() != width)) widths.push_back(width);
  }
  space.Add("mr", widths);
  const int64_t filters = FiltersOf(s, t), channels = s.c / s.group;
  const std::optional<ops::PlaneWindow> volume = UnfoldedPlanes(w);
  const std::vector<int64_t> lanes = LanesOf(filters, t), vectors = TileVectors(filters, lanes.back());
  space.Add("nv", vectors);
  if (lanes.size() > 1) space.Add("vl", lanes);
  // Also each panel alone, however many there are.
  std::set<int64_t> blocks = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32};
  for (const int64_t nv : vectors) {
    for (const int64_t vl : lanes) blocks.insert(std::min(CeilDiv(filters, nv * vl), kMostBlocks));
  }
  space.Add("blocks", std::vector<int64_t>(blocks.begin(), blocks.end()));
  if (FiltersComeInParts(w, s, t)) space.Add("parts", {1, s.kh});
  std::vector<int64_t> unrolled = {1, 2, 4};
  if (MergesGroups(s, t)) unrolled = {channels};
  if (ReadsPlanes(w) && channels == 3) unrolled = {1, 3};
  space.Add("ku", unrolled);
  RequireTile(space, filters, t);
  space.Require("the unrolling does not divide the channels",
                [run = volume.has_value() ? volume->channels : channels](const Config& config) {
                  return run % config["ku"] == 0;
                });
  space.Require("the tile has vectors past the last filter", [filters, t](const Config& config) {
    return config["nv"] == 1 || (config["nv"] - 1) * LanesOf(config, t) < filters;
  });
  if (MergesGroups(s, t)) {
    space.Require("merged groups need whole panels",
                  [filters, lanes = t.lanes()](const Config& config) { return filters % (config["nv"] * lanes) == 0; });
  }
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape shape(w);
  const Tile tile(w, shape, c, t);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, shape, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleRows(std::move(func), shape, tile, t));
  kernel.packs.resize(w.inputs.size());
  if (tile.constant) {
    auto element = [&](const ir::Tensor& f, const std::vector<Expr>& i) { return PackedElement(tile, f, i); };
    TEMPER_ASSIGN_OR_RETURN(kernel.packs[1], BuildPack("pack", w.inputs[1], tile.packed_shape(shape), element, t));
  }
  return kernel;
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape s(w);
  const Tile tile(w, s, c, t);
  const Axis& columns = tile.columns;
  const double taps = static_cast<double>(s.kh * s.kw * tile.channels), group = static_cast<double>(tile.group);
  const double filters = static_cast<double>(tile.filters), padded_filters = static_cast<double>(tile.panels * tile.nr);
  const double image_rows = static_cast<double>(s.n * s.oh), tiles = static_cast<double>(columns.tiles());
  const double pixels = image_rows * static_cast<double>(s.ow), row_tiles = image_rows * tiles;
  const double blocks = static_cast<double>(tile.blocks);
  const double block_panels = static_cast<double>(tile.panels / tile.blocks);
  const double parts = static_cast<double>(tile.parts);
  const double panel_bytes = kElementBytes * taps * static_cast<double>(tile.nr) / parts,
               block_bytes = panel_bytes * block_panels;
  // What a block's filters see of a pixel, a tile of the image, and a row of the output.
  const double block_channels = static_cast<double>(tile.merged ? s.c / tile.blocks : tile.channels);
  const double line_bytes = kElementBytes * static_cast<double>(s.kh) * block_channels;
  const double window_bytes = line_bytes * static_cast<double>(std::min(columns.reach() + 1, s.w));
  const double strip_bytes = line_bytes * static_cast<double>(s.w);
  // Planes that several outputs' windows see come once from where a volume lies, and so often from a nearer cache.
  const double planes_read =
      tile.volume.has_value() ? static_cast<double>(w.inputs[0].type.shape[0]) : static_cast<double>(s.n);
  const double seen = static_cast<double>(s.n * tile.rows.SeenTaps() * columns.SeenTaps() * tile.channels);

  CpuFootprint f;
  f.flops = 2 * group * filters * seen;
  f.padded_flops = 2 * group * padded_filters * seen;
  DescribeTile(f, columns.tile, tile.vectors, tile.lanes);
  f.tile_rows = static_cast<double>(s.ow) / tiles;  // the last tile of a row may be narrower
  if (tile.merged) f.loads_per_fma = 1 + 1 / static_cast<double>(columns.tile);  // each has a shuffle of its own
  f.reduction = taps;
  f.turns = 1 / static_cast<double>(tile.unroll);
  f.l1_bytes = panel_bytes + window_bytes;
  f.l2_bytes = block_bytes + strip_bytes;
  const double l1 = static_cast<double>(t.l1_bytes), l2 = static_cast<double>(t.l2_bytes);
  const double window_fetches = RowsCrowdOut(columns.tile, kElementBytes * s.stride_w * s.c, t.l1_bytes)
                                    ? static_cast<double>(kLineElements) * block_panels
                                : window_bytes <= l1 / 2 ? 1
                                                         : block_panels;
  const double sums = tile.parts == 1 ? 0 : 2 * parts * kElementBytes * pixels * group * filters;  // written and read
  f.l2_traffic =
      group * blocks *
          (row_tiles * window_bytes * window_fetches + parts * block_bytes * (block_bytes <= l1 / 2 ? 1 : row_tiles)) +
      sums;
  // Rows of the image come past L2 once if the strip of them that an output row sees stays there beside the filters.
  const double input = kElementBytes * planes_read * static_cast<double>(s.h * s.w) * block_channels *
                       static_cast<double>(tile.run) / static_cast<double>(tile.channels);
  const double again =
      f.l2_bytes <= 0.75 * l2 ? 1 : std::max(1.0, static_cast<double>(s.kh) / static_cast<double>(s.stride_h));
  // Of a block that is about as large as L2 a part stays there from one tile to the next.
  const double stays = std::clamp(2.5 - 2 * block_bytes / l2, 0.0, 1.0);
  const double block_streams = group * (stays * std::min<double>(t.threads, image_rows) + (1 - stays) * row_tiles);
  const double out_bytes = kElementBytes * pixels * group * filters, l3 = 0.75 * static_cast<double>(t.l3_bytes);
  f.l3_traffic = group * blocks * input * again + blocks * parts * block_bytes * block_streams + out_bytes + sums;
  // Of filters that are a good part of L3 some are gone when their turn comes again: others use it too.
  const double in_l3 = std::clamp(1.25 - f.l2_bytes / std::max(1.0, static_cast<double>(t.l3_bytes)), 0.0, 1.0);
  // Lines that are written a part of a pixel at a time come when they are asked for, not ahead of it.
  const bool scattered = tile.panels > 1 && out_bytes > l2;
  f.memory_traffic = group * (input + block_bytes <= l3 ? 1 : blocks) * input + (scattered ? 2 : 1) * out_bytes +
                     blocks * parts * block_bytes * (in_l3 * group + (1 - in_l3) * block_streams);
  f.compulsory_bytes = CompulsoryBytes(w);
  f.parallel_chunks = group * blocks * image_rows;
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  f.copies_bytes = tile.constant ? 0 : kElementBytes * group * padded_filters * taps;
  const int64_t loops = columns.edges() * (tile.unroll_edges(s) ? tile.runs_of_row(s) : 1) * tile.edge_unroll() +
                        (tile.has_middle() ? tile.unroll : 0);
  f.code_ops = static_cast<double>(columns.tile * tile.vectors * loops * (tile.filters % tile.nr != 0 ? 2 : 1));
  return f;
}

}  // namespace

CpuTemplate Conv2dRows() {
  return {"conv2d.rows",
          4,
          [](const Workload& w) {
            if (UnfoldedPlanes(w).has_value()) return true;
            const bool planes = ReadsPlanes(w) && IsOfElement(w, w.calls[w.anchor]);
            return (IsChannelsLastConv2d(w) || planes) && !Conv2dShape(w).depthwise() && !Conv2dShape(w).pointwise();
          },
          Space,
          Build,
          FootprintOf};
}

}  // namespace temper
