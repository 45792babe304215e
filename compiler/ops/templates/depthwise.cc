// conv2d.depthwise: each channel by itself, in one pass over the input as it lies: vectors along the channels, a tile
// of output rows and columns in registers. The reduction runs over the tile's window of the input, so each pixel is
// loaded once for all the taps that see it; a row outside the image costs one branch, and the tiles at the ends of an
// output row are code of their own, where every column is known to be inside or not.
#include "compiler/ops/templates/depthwise.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"

namespace temper {

using ir::Expr;

namespace depthwise {
namespace {

constexpr int64_t kMostTaps = 800;      // multiply-adds of one tile: past it, code is fetched slower than it runs
constexpr int64_t kUnrolledTaps = 256;  // up to which a tile of one row is unrolled along the filter's rows

std::vector<int64_t> UpTo(int64_t limit, const std::vector<int64_t>& values) {
  std::vector<int64_t> result;
  for (int64_t v : values) {
    if (v <= limit) result.push_back(v);
  }
  return result;
}

}  // namespace

Expr Axis::Input(const Expr& block, const Expr& at) const {
  return block * Expr(tile * stride) + at * Expr(step()) - Expr(before);
}

void Axis::AddInside(const Expr& block, const Expr& at, std::vector<Expr>* conditions) const {
  const Expr input = Input(block, at);
  if (before > 0) conditions->push_back(Expr(0) <= input);
  if ((tiles() - 1) * tile * stride + reach() - before >= in) conditions->push_back(input < Expr(in));
}

Expr Axis::Tap(const Expr& at, const Expr& i, std::vector<Expr>* conditions) const {
  if (tile == 1) return at;
  const Expr distance = at - i * Expr(stride);
  conditions->push_back(Expr(0) <= distance);
  conditions->push_back(distance < Expr((taps - 1) * dilation + 1));
  if (dilation > 1) conditions->push_back(Eq(distance % Expr(dilation), Expr(0)));
  return distance / Expr(dilation);
}

Tile::Tile(const Conv2dShape& s, const Config& c, const CpuTarget& t)
    : rows{{s.oh, s.h, s.kh, s.stride_h, s.dilation_h, s.top, c["th"]}},
      columns{{s.ow, s.w, s.kw, s.stride_w, s.dilation_w, s.left, c["tw"]}},
      vectors(c["cv"]),
      lanes(t.lanes()) {}

bool Tile::unroll_rows(const Conv2dShape& s) const { return rows.tile > 1 || s.kh * s.kw * outputs() <= kUnrolledTaps; }

void AddTileKnobs(ConfigSpace& space, const Conv2dShape& s, const std::vector<int64_t>& heights, const CpuTarget& t) {
  std::vector<int64_t> vectors;
  for (int64_t cv : {1, 2, 3, 4}) {
    if (cv == 1 || (cv - 1) * t.lanes() < s.c) vectors.push_back(cv);
  }
  space.Add("th", UpTo(s.oh, heights));
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
}

ir::Buffer Accumulate(const std::string& name, const Conv2dShape& s, const Tile& tile, const WorkloadProgram& program,
                      int x, int f, bool packed, ir::ProgramBuilder& b) {
  const Axis &rows = tile.rows, &columns = tile.columns;
  const int64_t channels = CeilDiv(s.c, tile.width()) * tile.width();
  return b.Reduce(
      name, kElement, {s.n, rows.tiles(), rows.tile, columns.tiles(), columns.tile, channels},
      {rows.window(), columns.window()}, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        std::vector<Expr> seen;
        rows.AddInside(i[1], r[0], &seen);
        columns.AddInside(i[3], r[1], &seen);
        const Expr kh = rows.Tap(r[0], i[2], &seen), kw = columns.Tap(r[1], i[4], &seen);
        if (channels != s.c) seen.push_back(i[5] < Expr(s.c));
        Expr pixel = program.value(x)({i[0], i[5], rows.Input(i[1], r[0]), columns.Input(i[3], r[1])});
        Expr tap = packed ? ir::Load(program.buffer(f), {kh, kw, i[5]}) : program.value(f)({i[5], Expr(0), kh, kw});
        return ValueWhere(seen, pixel * tap);
      });
}

Expr At(const ir::Buffer& acc, const Tile& tile, const std::vector<Expr>& i) {
  return ir::Load(acc, {i[0], i[1] / Expr(tile.rows.tile), i[1] % Expr(tile.rows.tile), i[2] / Expr(tile.columns.tile),
                        i[2] % Expr(tile.columns.tile), i[3]});
}

// Each input of the window once. The taps that follow each other along a row of it are loaded once for each row of
// outputs, as far as there are registers for those that several outputs see, and otherwise for each multiply-add.
double LoadsPerFma(const Conv2dShape& s, const Tile& tile, const CpuTarget& t) {
  const double taps = static_cast<double>(s.kh * s.kw), outputs = static_cast<double>(tile.outputs());
  const double vectors = static_cast<double>(tile.vectors), fmas = outputs * taps;
  const double used = static_cast<double>(tile.rows.tile * std::min(s.kw, tile.columns.tile));
  const double held = std::clamp((static_cast<double>(t.vector_registers) - outputs - 1) / used, 0.0, 1.0);
  return vectors * static_cast<double>(tile.rows.window() * tile.columns.window()) / fmas +
         held * vectors * static_cast<double>(tile.rows.tile) * taps / fmas + (1 - held);
}

absl::StatusOr<ir::Func> PackFilter(const Workload::Operand& filter, const Conv2dShape& s, const CpuTarget& t) {
  auto element = [](const ir::Tensor& f, const std::vector<Expr>& i) { return f({i[2], Expr(0), i[0], i[1]}); };
  return BuildPack("pack", filter, {s.kh, s.kw, s.c}, element, t);
}

Pair::Pair(const Workload& w, bool depthwise_first)
    : depthwise(w, depthwise_first ? 0 : w.anchor),
      pointwise(w, depthwise_first ? w.anchor : 0),
      x(w.calls[0].args[0]),
      depthwise_filter(w.calls[depthwise_first ? 0 : w.anchor].args[1]),
      pointwise_filter(w.calls[depthwise_first ? w.anchor : 0].args[1]) {}

absl::StatusOr<Kernel> KernelOf(ir::Func scheduled, const Workload& w, const Pair& p, int64_t nr, const CpuTarget& t) {
  const Conv2dShape& s = p.pointwise;
  const auto panels = [&](const ir::Tensor& f, const std::vector<Expr>& i) {
    const Expr column = i[0] * Expr(nr) + i[2];
    const Expr value = f({column, i[1], Expr(0), Expr(0)});
    return s.oc % nr == 0 ? value : ir::Select(column < Expr(s.oc), value, ir::Float(0));
  };
  Kernel kernel{.scheduled = std::move(scheduled)};
  kernel.packs.resize(w.inputs.size());
  TEMPER_ASSIGN_OR_RETURN(kernel.packs[p.depthwise_filter], PackFilter(w.inputs[p.depthwise_filter], p.depthwise, t));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs[p.pointwise_filter],
                          BuildPack("pack", w.inputs[p.pointwise_filter], {CeilDiv(s.oc, nr), s.c, nr}, panels, t));
  return kernel;
}

TileLoops SplitTile(Schedule& s, const Tile& tile, const Loop& row, const Loop& column, const Loop& channel) {
  auto [column_tile, column_in] = s.Split(column, tile.columns.tile);
  auto [channel_tile, channel_in] = s.Split(channel, tile.width());
  auto [vector, lane] = s.Split(channel_in, tile.lanes);
  return {column_tile, channel_tile, row, column_in, vector, lane};
}

void ScheduleAccumulators(Schedule& s, const std::string& acc, const std::string& reader, const Loop& under,
                          const Conv2dShape& shape, const Tile& tile) {
  s.ComputeAt(acc, under);
  s.SetScope(acc, ir::Scope::kRegister);
  std::vector<Loop> loops = s.Loops(acc);
  if (!s.status().ok()) return;
  const size_t n = loops.size();  // ..., row tile, row, column tile, column, channel, window row, window column
  auto [vector, lane] = s.Split(loops[n - 3], tile.lanes);
  // Vectors outside, so that the taps of one alone are in use at a time.
  s.Reorder({loops[n - 2], vector, loops[n - 1], loops[n - 6], loops[n - 4], lane});
  const std::string init = s.DecomposeReduction(acc, loops[n - 2]);
  if (tile.unroll_rows(shape)) s.Unroll(loops[n - 2]);
  if (shape.kw * tile.outputs() <= kMostTaps) s.Unroll(loops[n - 1]);
  for (const std::string& name : {acc, init, reader}) {
    std::vector<Loop> around = s.Loops(name);
    if (!s.status().ok()) return;
    // Of the loops below the window's, all but the lanes are unrolled: rows, columns and vectors of the tile.
    s.Vectorize(around.back());
    for (size_t i = around.size() - (name == acc ? 5 : 4); i + 1 < around.size(); ++i) {
      if (around[i] != loops[n - 1]) s.Unroll(around[i]);
    }
  }
}

void PeelEdges(Schedule& s, const Conv2dShape& shape, const Tile& tile, const TileLoops& loops) {
  if (shape.c % tile.width() != 0) s.Peel(loops.channel_tile, 0, 1);
  const int64_t first = tile.columns.first_inside(), last = tile.columns.tiles() - tile.columns.end_inside();
  if (first + last == 0) return;
  const std::array<Loop, 3> parts = s.Peel(loops.column_tile, first, last);
  for (size_t i : {0, 2}) {
    if (parts[i] != nullptr) s.Unroll(parts[i]);
  }
}

}  // namespace depthwise

namespace {

using depthwise::Axis;
using depthwise::Tile;

constexpr double kStreams = 8;        // rows of the image read side by side before prefetchers lose some
constexpr int64_t kFewRowTiles = 16;  // so few that threads share out channels too
constexpr double kPushedOut = 2.5;    // of L2's time, where L1 does not hold what a tile sees

// How the tiles follow each other.
enum class Order {
  kRows,            // of a row, all: what they see of the image is one piece, which prefetchers follow
  kRowsOfChannels,  // likewise, but threads share out the channels too
  kChannels,        // of a few channels, all: the rows that several see stay in L1
};

Order OrderOf(const Conv2dShape& s, const Tile& tile, const Config& c) {
  if (c.Has("co") && c["co"] != 0) return Order::kChannels;
  // A last, partial tile of channels stays inside, to be peeled.
  const bool few = s.n * tile.rows.tiles() < kFewRowTiles && s.c % tile.width() == 0;
  return few ? Order::kRowsOfChannels : Order::kRows;
}

int64_t BytesOfRows(const Conv2dShape& s, int64_t rows) { return kElementBytes * rows * s.w * s.c; }

ConfigSpace Space(const Workload& w, const CpuTarget& t) {
  const Conv2dShape s(w);
  ConfigSpace space;
  depthwise::AddTileKnobs(space, s, {1, 2, 3, 4, 5, 6, 7}, t);
  if (s.kh > 1 && s.c % t.lanes() == 0 && BytesOfRows(s, s.kh) > 2 * t.l1_bytes) {
    space.Add("co", {0, 1});
    space.Require("tiles of channels that come first do not divide them",
                  [channels = s.c, lanes = t.lanes()](const Config& c) {
                    return c["co"] == 0 || channels % (c["cv"] * lanes) == 0;
                  });
  }
  return space;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Conv2dShape& s, const Tile& tile) {
  ir::ProgramBuilder b("depthwise");
  const bool packed = w.inputs[1].constant;
  std::vector<Shape> shapes(w.inputs.size());
  if (packed) shapes[1] = {s.kh, s.kw, s.c};
  WorkloadProgram program(w, b, shapes);
  ir::Buffer acc = depthwise::Accumulate("acc", s, tile, program, 0, 1, packed, b);
  Expr current;
  program.SetResult(
      w.anchor, ir::Tensor(kElement, w.calls[w.anchor].type.shape, [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  ir::Buffer out = b.Compute("out", w.output().dtype, {s.n, s.oh, s.ow, s.c}, [&](const std::vector<Expr>& i) {
    current = depthwise::At(acc, tile, i);
    return program.result()({i[0], i[3], i[1], i[2]});
  });
  b.MarkOutput(out);
  return b.Finish();
}

absl::StatusOr<ir::Func> ScheduleTiles(ir::Func func, const Conv2dShape& shape, const Tile& tile, Order order) {
  Schedule s(std::move(func));
  std::vector<Loop> loops = s.Loops("out");
  if (loops.size() != 4) return absl::InternalError("depthwise: four output loops expected");
  auto [row_tile, row] = s.Split(loops[1], tile.rows.tile);
  const depthwise::TileLoops t = depthwise::SplitTile(s, tile, row, loops[2], loops[3]);
  std::vector<Loop> outside;
  switch (order) {
    case Order::kRows:
      outside = {loops[0], row_tile, t.column_tile, t.channel_tile};
      break;
    case Order::kRowsOfChannels:
      outside = {loops[0], row_tile, t.channel_tile, t.column_tile};
      break;
    case Order::kChannels:
      outside = {loops[0], t.channel_tile, row_tile, t.column_tile};
      break;
  }
  std::vector<Loop> all = outside;
  all.insert(all.end(), {t.row, t.column, t.vector, t.lane});
  s.Reorder(all);
  depthwise::ScheduleAccumulators(s, "acc", "out", outside.back(), shape, tile);
  Loop chunk = s.Fuse(outside[0], outside[1]);
  if (order == Order::kRowsOfChannels) chunk = s.Fuse(chunk, outside[2]);
  s.Parallel(chunk);
  depthwise::PeelEdges(s, shape, tile, t);
  return Finished(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape shape(w);
  const Tile tile(shape, c, t);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, shape, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleTiles(std::move(func), shape, tile, OrderOf(shape, tile, c)));
  kernel.packs.resize(w.inputs.size());
  if (w.inputs[1].constant) {
    TEMPER_ASSIGN_OR_RETURN(kernel.packs[1], depthwise::PackFilter(w.inputs[1], shape, t));
  }
  return kernel;
}

// How often the image comes past each cache.
struct Reads {
  int64_t l2_bytes;  // what has to stay in L2 for once past it to be enough
  double past_l1, past_l2;
};

// Pixels of which L1 holds a line each. Those whose distance divides what L1 spans share few sets.
int64_t LinesInL1(const Conv2dShape& s, const CpuTarget& t) {
  const int64_t shared = std::gcd(kElementBytes * s.c, kL1Span);
  return t.l1_bytes / std::max(shared, kLineBytes);
}

Reads ReadsOf(const Conv2dShape& s, const Tile& tile, Order order, const CpuTarget& t) {
  const Axis &rows = tile.rows, &columns = tile.columns;
  const auto overlap = [](const Axis& axis) {
    return std::max(1.0, static_cast<double>(axis.window()) / static_cast<double>(axis.tile * axis.stride));
  };
  const int64_t window = rows.window() * columns.window(), window_rows = rows.window() * s.w;
  const int64_t lines = LinesInL1(s, t), taken = kElementBytes * tile.width(), piece = std::max(taken, kLineBytes);
  const int64_t lines_of_piece = CeilDiv(taken, kLineBytes);
  const auto fits = [&](int64_t pixels) { return 3 * pixels * lines_of_piece <= 2 * lines; };  // taps and results too
  // A line that a tile takes a part of comes again for the next, unless that one follows at once.
  const double parts = static_cast<double>(piece) / static_cast<double>(taken);
  // Prefetchers follow a few rows at once; a window of many has some that they do not.
  const double streams = std::max(1.0, static_cast<double>(rows.window()) / kStreams);
  Reads r;
  switch (order) {
    case Order::kRows:
      r.past_l1 = overlap(rows) * overlap(columns) * (fits(window) ? 1 : kPushedOut * parts);
      if (kElementBytes * window_rows * s.c <= t.l1_bytes / 2) r.past_l1 = 1;
      break;
    case Order::kRowsOfChannels:
      r.past_l1 = parts * overlap(rows) * (fits(window) ? 1 : kPushedOut * overlap(columns));
      break;
    case Order::kChannels:
      r.past_l1 = parts * (fits(window_rows) ? 1 : overlap(rows) * (fits(window) ? 1 : kPushedOut * overlap(columns)));
      break;
  }
  r.past_l1 *= streams;
  r.l2_bytes = order == Order::kChannels ? s.h * s.w * piece : BytesOfRows(s, rows.window());
  r.past_l2 = static_cast<double>(r.l2_bytes) <= 0.75 * static_cast<double>(t.l2_bytes) ? 1 : overlap(rows) * streams;
  // Of what comes from behind L2, lines apart come with others that nobody asked for.
  if (order == Order::kChannels && kElementBytes * s.n * s.h * s.w * s.c > t.l2_bytes * t.threads) r.past_l2 *= 2;
  return r;
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape s(w);
  const Tile tile(s, c, t);
  const Axis &rows = tile.rows, &columns = tile.columns;
  const double lanes = static_cast<double>(tile.lanes), taps = static_cast<double>(s.kh * s.kw);
  const double outputs = static_cast<double>(tile.outputs()), channels = static_cast<double>(s.c);
  const double pixels = static_cast<double>(s.n * s.oh * s.ow),
               input = 4.0 * static_cast<double>(s.n * s.h * s.w) * channels;
  const double window_rows = static_cast<double>(rows.window()), window_columns = static_cast<double>(columns.window());
  const int64_t tiled_pixels = s.n * rows.tiles() * rows.tile * columns.tiles() * columns.tile;
  CpuFootprint f;
  f.flops = 2 * pixels * channels * taps;
  f.padded_flops = 2 * static_cast<double>(tiled_pixels * CeilDiv(s.c, tile.lanes) * tile.lanes) * taps;
  f.vector_lanes = lanes;
  f.tile_rows = static_cast<double>(rows.tile * columns.tile);
  f.tile_columns = static_cast<double>(tile.width());
  f.tile_registers = outputs + 1 + static_cast<double>(std::min(s.kw, columns.tile));
  f.reduction = taps;
  f.loads_per_fma = depthwise::LoadsPerFma(s, tile, t);
  f.l1_bytes = kElementBytes * static_cast<double>(tile.width()) * (window_rows * window_columns + taps);
  const Order order = OrderOf(s, tile, c);
  const double results = kElementBytes * pixels * channels;
  const Reads reads = ReadsOf(s, tile, order, t);
  f.l2_bytes = static_cast<double>(reads.l2_bytes);
  f.l2_traffic = input * reads.past_l1 + results;
  f.l3_traffic = input * reads.past_l2 + results;
  f.memory_traffic = input + results;
  f.kept = f.memory_traffic <= 0.25 * static_cast<double>(t.l3_bytes) ? f.memory_traffic : 0;
  f.compulsory_bytes = CompulsoryBytes(w);
  const double panels = order == Order::kRows ? 1 : static_cast<double>(s.c / tile.width());
  f.parallel_chunks =
      static_cast<double>(s.n) * panels * (order == Order::kChannels ? 1 : static_cast<double>(rows.tiles()));
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  const int64_t copies = columns.edges() + (columns.end_inside() > columns.first_inside() ? 1 : 0);
  const double unrolled = tile.unroll_rows(s) ? taps : static_cast<double>(s.kw);
  f.code_ops = unrolled * outputs * static_cast<double>(copies) * (s.c % tile.width() != 0 ? 2 : 1);
  return f;
}

}  // namespace

CpuTemplate DepthwiseConv2d() {
  return {"conv2d.depthwise",
          2,
          [](const Workload& w) { return IsChannelsLastConv2d(w) && Conv2dShape(w).depthwise(); },
          Space,
          Build,
          FootprintOf};
}

}  // namespace temper
