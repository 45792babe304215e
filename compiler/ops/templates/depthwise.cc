// conv2d.depthwise: each channel by itself, in one pass over the input as it lies: vectors along the channels, a tile
// of output rows and columns in registers. The reduction runs over the tile's window of the input, so each pixel is
// loaded once for all the taps that see it; a row outside the image costs one branch, and the tiles at the ends of an
// output row are code of their own, where every column is known to be inside or not.
#include <algorithm>
#include <cmath>

#include "compiler/ops/templates/conv2d_shape.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kMostTaps = 800;      // multiply-adds of one tile: past it, code is fetched slower than it runs
constexpr double kStreams = 8;          // rows of the image read side by side before prefetchers lose some
constexpr int64_t kFewRowTiles = 16;    // so few that threads share out channels too
constexpr int64_t kUnrolledTaps = 256;  // up to which a tile of one row is unrolled along the filter's rows

// One spatial dimension: its output in tiles of `tile`, and the window of input that a tile sees.
struct Axis {
  int64_t out, in, taps, stride, dilation, before, tile;
  int64_t tiles() const { return CeilDiv(out, tile); }
  // A tile of one output takes its taps as they come; a wider one takes every input in its window.
  int64_t step() const { return tile == 1 ? dilation : 1; }
  int64_t window() const { return tile == 1 ? taps : (tile - 1) * stride + (taps - 1) * dilation + 1; }
  int64_t reach() const { return (window() - 1) * step(); }  // from the window's first input to its last
  // Tiles [first_inside, end_inside) are whole and see no input outside the image.
  int64_t first_inside() const { return std::min(CeilDiv(before, tile * stride), tiles()); }
  int64_t end_inside() const {
    const int64_t room = in - 1 + before - reach();
    const int64_t inside = room < 0 ? 0 : room / (tile * stride) + 1;
    return std::max(first_inside(), std::min(out / tile, inside));
  }
  Expr Input(const Expr& block, const Expr& at) const {
    return block * Expr(tile * stride) + at * Expr(step()) - Expr(before);
  }
  // Conditions under which there is such an input, as far as they do not always hold.
  void AddInside(const Expr& block, const Expr& at, std::vector<Expr>* conditions) const {
    const Expr input = Input(block, at);
    if (before > 0) conditions->push_back(Expr(0) <= input);
    if ((tiles() - 1) * tile * stride + reach() - before >= in) conditions->push_back(input < Expr(in));
  }
  // The tap through which output `i` of the tile sees position `at` of the window, and when it does.
  Expr Tap(const Expr& at, const Expr& i, std::vector<Expr>* conditions) const {
    if (tile == 1) return at;
    const Expr distance = at - i * Expr(stride);
    conditions->push_back(Expr(0) <= distance);
    conditions->push_back(distance < Expr((taps - 1) * dilation + 1));
    if (dilation > 1) conditions->push_back(Eq(distance % Expr(dilation), Expr(0)));
    return distance / Expr(dilation);
  }
};

// What a config means: the numbers that program, schedule and footprint speak of.
struct Tile {
  Axis rows, columns;
  int64_t vectors, lanes;
  Tile(const Conv2dShape& s, const Config& c, const Target& t)
      : rows{s.oh, s.h, s.kh, s.stride_h, s.dilation_h, s.top, c["th"]},
        columns{s.ow, s.w, s.kw, s.stride_w, s.dilation_w, s.left, c["tw"]},
        vectors(c["cv"]),
        lanes(t.lanes()) {}
  int64_t width() const { return vectors * lanes; }
  int64_t outputs() const { return rows.tile * columns.tile * vectors; }
  // Whether tiles of channels are handed to threads as well: a last, partial one stays inside, to be peeled.
  bool parallel_channels(const Conv2dShape& s) const { return s.n * rows.tiles() < kFewRowTiles && s.c % width() == 0; }
  bool unroll_rows(const Conv2dShape& s) const { return rows.tile > 1 || s.kh * s.kw * outputs() <= kUnrolledTaps; }
};

std::vector<int64_t> UpTo(int64_t limit, const std::vector<int64_t>& values) {
  std::vector<int64_t> result;
  for (int64_t v : values) {
    if (v <= limit) result.push_back(v);
  }
  return result;
}

ConfigSpace Space(const Workload& w, const Target& t) {
  const Conv2dShape s(w);
  ConfigSpace space;
  std::vector<int64_t> vectors;
  for (int64_t cv : {1, 2, 3, 4}) {
    if (cv == 1 || (cv - 1) * t.lanes() < s.c) vectors.push_back(cv);
  }
  space.Add("th", UpTo(s.oh, {1, 2, 3, 4, 5, 6, 7}));
  space.Add("tw", UpTo(s.ow, {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}));
  space.Add("cv", vectors);
  // Beside the accumulators, the input's vector and the taps that several outputs of a row share stay in registers.
  space.Require("the register tile does not fit the registers",
                [registers = t.vector_registers, kw = s.kw](const Config& c) {
                  return c["th"] * c["tw"] * c["cv"] + 1 + std::min(kw, c["tw"]) <= registers;
                });
  space.Require("the unrolled tile is too long", [taps = s.kh * s.kw](const Config& c) {
    return c["th"] == 1 || taps * c["th"] * c["tw"] * c["cv"] <= kMostTaps;
  });
  return space;
}

// Accumulators come in whole tiles and vectors: those past the last row, column or channel are not stored.
absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Conv2dShape& s, const Tile& tile) {
  ir::ProgramBuilder b("depthwise");
  const bool packed = w.inputs[1].constant;
  std::vector<Shape> shapes(w.inputs.size());
  if (packed) shapes[1] = {s.kh, s.kw, s.c};
  WorkloadProgram program(w, b, shapes);
  const Axis &rows = tile.rows, &columns = tile.columns;
  const int64_t channels = CeilDiv(s.c, tile.width()) * tile.width();
  ir::Buffer acc = b.Reduce(
      "acc", DType::kF32, {s.n, rows.tiles(), rows.tile, columns.tiles(), columns.tile, channels},
      {rows.window(), columns.window()}, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        std::vector<Expr> seen;
        rows.AddInside(i[1], r[0], &seen);
        columns.AddInside(i[3], r[1], &seen);
        const Expr kh = rows.Tap(r[0], i[2], &seen), kw = columns.Tap(r[1], i[4], &seen);
        if (channels != s.c) seen.push_back(i[5] < Expr(s.c));
        Expr pixel = program.value(0)({i[0], i[5], rows.Input(i[1], r[0]), columns.Input(i[3], r[1])});
        Expr tap = packed ? ir::Load(program.buffer(1), {kh, kw, i[5]}) : program.value(1)({i[5], Expr(0), kh, kw});
        Expr product = pixel * tap;
        Expr all;
        for (const Expr& c : seen) all = all ? And(all, c) : c;
        return all ? ir::Select(all, product, ir::Float(0)) : product;
      });
  Expr current;
  program.SetResult(w.anchor, ir::Tensor(DType::kF32, w.calls[w.anchor].type.shape,
                                         [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  ir::Buffer out = b.Compute("out", w.output().dtype, {s.n, s.oh, s.ow, s.c}, [&](const std::vector<Expr>& i) {
    current = ir::Load(acc, {i[0], i[1] / Expr(rows.tile), i[1] % Expr(rows.tile), i[2] / Expr(columns.tile),
                             i[2] % Expr(columns.tile), i[3]});
    return program.result()({i[0], i[3], i[1], i[2]});
  });
  b.MarkOutput(out);
  return b.Finish();
}

absl::StatusOr<ir::Func> ScheduleTile(ir::Func func, const Conv2dShape& shape, const Tile& tile) {
  Schedule s(std::move(func));
  std::vector<Loop> loops = s.Loops("out");
  if (loops.size() != 4) return absl::InternalError("depthwise: four output loops expected");
  auto [row_tile, row] = s.Split(loops[1], tile.rows.tile);
  auto [column_tile, column] = s.Split(loops[2], tile.columns.tile);
  auto [channel_tile, channel] = s.Split(loops[3], tile.width());
  auto [vector, lane] = s.Split(channel, tile.lanes);
  const bool parallel_channels = tile.parallel_channels(shape);
  const Loop outer = parallel_channels ? channel_tile : column_tile,
             inner = parallel_channels ? column_tile : channel_tile;
  s.Reorder({loops[0], row_tile, outer, inner, row, column, vector, lane});
  s.ComputeAt("acc", inner);
  s.SetScope("acc", ir::Scope::kRegister);
  std::vector<Loop> acc = s.Loops("acc");
  if (!s.status().ok()) return s.status();
  const size_t n = acc.size();  // ..., row tile, row, column tile, column, channel, window row, window column
  auto [acc_vector, acc_lane] = s.Split(acc[n - 3], tile.lanes);
  // Vectors outside, so that the taps of one alone are in use at a time.
  s.Reorder({acc[n - 2], acc_vector, acc[n - 1], acc[n - 6], acc[n - 4], acc_lane});
  const std::string init = s.DecomposeReduction("acc", acc[n - 2]);
  if (tile.unroll_rows(shape)) s.Unroll(acc[n - 2]);
  if (shape.kw * tile.outputs() <= kMostTaps) s.Unroll(acc[n - 1]);
  for (const std::string& name : {std::string("acc"), init, std::string("out")}) {
    std::vector<Loop> around = s.Loops(name);
    if (!s.status().ok()) return s.status();
    // Of the loops below the window's, all but the lanes are unrolled: rows, columns and vectors of the tile.
    s.Vectorize(around.back());
    for (size_t i = around.size() - (name == "acc" ? 5 : 4); i + 1 < around.size(); ++i) {
      if (around[i] != acc[n - 1]) s.Unroll(around[i]);
    }
  }
  const Loop chunk = s.Fuse(loops[0], row_tile);
  s.Parallel(parallel_channels ? s.Fuse(chunk, channel_tile) : chunk);
  if (shape.c % tile.width() != 0) s.Peel(channel_tile, 0, 1);
  const int64_t first = tile.columns.first_inside(), last = tile.columns.tiles() - tile.columns.end_inside();
  if (first + last > 0) {
    const std::array<Loop, 3> parts = s.Peel(column_tile, first, last);
    for (size_t i : {0, 2}) {
      if (parts[i] != nullptr) s.Unroll(parts[i]);
    }
  }
  return LowerSchedule(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const Target& t) {
  const Conv2dShape shape(w);
  const Tile tile(shape, c, t);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, shape, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleTile(std::move(func), shape, tile));
  kernel.packs.resize(w.inputs.size());
  if (w.inputs[1].constant) {
    auto element = [](const ir::Tensor& f, const std::vector<Expr>& i) { return f({i[2], Expr(0), i[0], i[1]}); };
    TEMPER_ASSIGN_OR_RETURN(kernel.packs[1], BuildPack("pack", w.inputs[1], {shape.kh, shape.kw, shape.c}, element, t));
  }
  return kernel;
}

Footprint FootprintOf(const Workload& w, const Config& c, const Target& t) {
  const Conv2dShape s(w);
  const Tile tile(s, c, t);
  const Axis &rows = tile.rows, &columns = tile.columns;
  const double lanes = static_cast<double>(tile.lanes), taps = static_cast<double>(s.kh * s.kw);
  const double outputs = static_cast<double>(tile.outputs()), channels = static_cast<double>(s.c);
  const double pixels = static_cast<double>(s.n * s.oh * s.ow),
               input = 4.0 * static_cast<double>(s.n * s.h * s.w) * channels;
  const double window_rows = static_cast<double>(rows.window()), window_columns = static_cast<double>(columns.window());
  const int64_t tiled_pixels = s.n * rows.tiles() * rows.tile * columns.tiles() * columns.tile;
  Footprint f;
  f.flops = 2 * pixels * channels * taps;
  f.padded_flops = 2 * static_cast<double>(tiled_pixels * CeilDiv(s.c, tile.lanes) * tile.lanes) * taps;
  f.vector_lanes = lanes;
  f.tile_rows = static_cast<double>(rows.tile * columns.tile);
  f.tile_columns = static_cast<double>(tile.width());
  f.tile_registers = outputs + 1 + static_cast<double>(std::min(s.kw, columns.tile));
  f.reduction = taps;
  // Each input of the window once, and the taps once for every row of it that they meet.
  const double vectors = static_cast<double>(tile.vectors);
  f.loads_per_fma = vectors * window_rows * window_columns / (outputs * taps) +
                    vectors * static_cast<double>(rows.tile) * taps / (outputs * taps);
  f.l1_bytes = 4 * static_cast<double>(tile.width()) * (window_rows * window_columns + taps);
  f.l2_bytes = 4 * window_rows * static_cast<double>(s.w) * channels;
  // Rows that windows share come past L1 for each of them, unless a whole window row of the image stays there.
  // Prefetchers follow a few rows at once; a window of many has some that they do not.
  const double again =
      window_rows / static_cast<double>(rows.tile * s.stride_h) * std::max(1.0, window_rows / kStreams);
  const bool in_l1 = f.l2_bytes <= 0.5 * static_cast<double>(t.l1_bytes);
  f.l2_traffic = input * (in_l1 ? 1 : std::max(1.0, again)) + 4 * pixels * channels;
  f.compulsory_bytes = CompulsoryBytes(w);
  f.memory_traffic = input + 4 * pixels * channels;
  f.parallel_chunks = static_cast<double>(s.n * rows.tiles() * (tile.parallel_channels(s) ? s.c / tile.width() : 1));
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  const int64_t edges = columns.first_inside() + columns.tiles() - columns.end_inside();
  const int64_t copies = edges + (columns.end_inside() > columns.first_inside() ? 1 : 0);
  const double unrolled = tile.unroll_rows(s) ? taps : static_cast<double>(s.kw);
  f.code_ops = unrolled * outputs * static_cast<double>(copies) * (s.c % tile.width() != 0 ? 2 : 1);
  return f;
}

}  // namespace

TemplateDef DepthwiseConv2d() {
  return {"conv2d.depthwise",
          2,
          [](const Workload& w) { return IsChannelsLastConv2d(w) && Conv2dShape(w).depthwise(); },
          Space,
          Build,
          FootprintOf};
}

}  // namespace temper
