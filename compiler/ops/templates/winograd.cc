// conv2d.winograd: F(m x m, 3 x 3) for stride 1, as alternative to direct convolution. Per output tile of m x m, an
// input tile of t x t (t = m + 2) is transformed; t * t matrix products over the channels take the place of the
// convolution, with 9 m^2 / t^2 times fewer multiplications; their results are transformed back into the epilogue.
// All three steps run block by block of tiles, so that what lies between them stays in cache.
//
// Rounding errors grow with m: kWinogradErrorBound. m = 6 would save little more and err by ten times as much.
#include "compiler/ops/templates/winograd.h"

#include <algorithm>
#include <cmath>

#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"

namespace temper {
namespace {

using ir::Expr;

// What a config means for this shape.
struct Plan {
  int64_t m, t;                         // output and input tile
  int64_t tiles_h, tiles_w, tiles;      // of one image; of all
  int64_t lanes, mr, nr, panels;        // register tile of the products
  int64_t channels;                     // of the input in whole vectors, zeros in those past the last
  int64_t blocks, block_tiles, unroll;  // column blocks; tiles that go through all steps together
  bool tile_in_registers;               // a tile's values, while it is transformed
  Plan(const Conv2dShape& s, const Config& c, const CpuTarget& target)
      : m(c["m"]),
        t(m + 2),
        tiles_h(CeilDiv(s.oh, m)),
        tiles_w(CeilDiv(s.ow, m)),
        tiles(s.n * tiles_h * tiles_w),
        lanes(target.lanes()),
        mr(c["mr"]),
        nr(c["nv"] * lanes),
        panels(CeilDiv(s.oc, nr)),
        channels(CeilDiv(s.c, lanes) * lanes),
        blocks(c["blocks"]),
        block_tiles(std::min(c["mt"] * mr, tiles)),
        unroll(c["ku"]),
        tile_in_registers(t * t <= target.vector_registers) {}
  Shape PackedShape() const { return {t, t, panels, channels, nr}; }
};

std::vector<Expr> Column(int64_t n, const std::function<Expr(Expr)>& element) {
  std::vector<Expr> result;
  for (int64_t i = 0; i < n; ++i) result.push_back(element(Expr(i)));
  return result;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Conv2dShape& s, const Plan& p) {
  const WinogradMatrices matrices = MakeWinograd(p.m);
  ir::ProgramBuilder b("winograd");
  std::vector<Shape> packed(w.inputs.size());
  packed[1] = p.PackedShape();
  WorkloadProgram program(w, b, packed);
  const ir::Tensor x = program.value(0);

  // Tile `tile` of the input at (i, j) is element (m * row + i - top, m * column + j - left) of its image.
  ir::Buffer patch = b.Compute("patch", kElement, {p.tiles, p.t, p.t, p.channels}, [&](const std::vector<Expr>& i) {
    const Expr in_image = i[0] % Expr(p.tiles_h * p.tiles_w);
    const Expr h = in_image / Expr(p.tiles_w) * Expr(p.m) + i[1] - Expr(s.top);
    const Expr column = in_image % Expr(p.tiles_w) * Expr(p.m) + i[2] - Expr(s.left);
    Expr inside = And(And(Expr(0) <= h, h < Expr(s.h)), And(Expr(0) <= column, column < Expr(s.w)));
    if (p.channels > s.c) inside = And(inside, i[3] < Expr(s.c));
    return ir::Select(inside, x({i[0] / Expr(p.tiles_h * p.tiles_w), i[3], h, column}), ir::Float(0));
  });
  ir::Buffer lines = b.Compute("lines", kElement, {p.tiles, p.t, p.t, p.channels}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(matrices.input, i[1],
                       Column(p.t,
                              [&](Expr k) {
                                return ir::Load(patch, {i[0], k, i[2], i[3]});
                              }),
                       Sharing::kEvenOdd);
  });
  // What a transform writes or reads at once lies together: rows of the products are strided, but no two of them share
  // a set of the cache by a power of two.
  ir::Buffer input =
      b.Compute("input", kElement, {p.channels / p.lanes, p.tiles, p.t, p.t, p.lanes}, [&](const std::vector<Expr>& i) {
        const Expr channel = i[0] * Expr(p.lanes) + i[4];
        return MatrixTimes(matrices.input, i[3],
                           Column(p.t,
                                  [&](Expr k) {
                                    return ir::Load(lines, {i[1], i[2], k, channel});
                                  }),
                           Sharing::kEvenOdd);
      });
  ir::Buffer acc =
      b.Reduce("acc", kElement, {p.t, p.t, p.tiles, p.panels * p.nr}, {p.channels / p.lanes, p.lanes},
               ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 const Expr channel = r[0] * Expr(p.lanes) + r[1];
                 return ir::Load(input, {r[0], i[2], i[0], i[1], r[1]}) *
                        ir::Load(program.buffer(1), {i[0], i[1], i[3] / Expr(p.nr), channel, i[3] % Expr(p.nr)});
               });
  ir::Buffer product =
      b.Compute("product", kElement, {p.panels, p.tiles, p.t, p.t, p.nr}, [&](const std::vector<Expr>& i) {
        return ir::Load(acc, {i[2], i[3], i[1], i[0] * Expr(p.nr) + i[4]});
      });
  ir::Buffer half = b.Compute("half", kElement, {p.panels, p.tiles, p.m, p.t, p.nr}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(matrices.output, i[2],
                       Column(p.t,
                              [&](Expr k) {
                                return ir::Load(product, {i[0], i[1], k, i[3], i[4]});
                              }),
                       Sharing::kPairs);
  });
  ir::Buffer result =
      b.Compute("result", kElement, {p.panels, p.tiles, p.m, p.m, p.nr}, [&](const std::vector<Expr>& i) {
        return MatrixTimes(matrices.output, i[3],
                           Column(p.t,
                                  [&](Expr k) {
                                    return ir::Load(half, {i[0], i[1], i[2], k, i[4]});
                                  }),
                           Sharing::kPairs);
      });

  Expr current;
  program.SetResult(
      w.anchor, ir::Tensor(kElement, w.calls[w.anchor].type.shape, [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  ir::Buffer out = b.Compute("out", w.output().dtype, {s.n, s.oh, s.ow, s.oc}, [&](const std::vector<Expr>& i) {
    const Expr tile = (i[0] * Expr(p.tiles_h) + i[1] / Expr(p.m)) * Expr(p.tiles_w) + i[2] / Expr(p.m);
    current = ir::Load(result, {i[3] / Expr(p.nr), tile, i[1] % Expr(p.m), i[2] % Expr(p.m), i[3] % Expr(p.nr)});
    return program.result()({i[0], i[3], i[1], i[2]});
  });
  b.MarkOutput(out);
  return b.Finish();
}

// Only the innermost of a step's two loops over a tile, and its vectors.
void UnrollLine(Schedule& s, const std::string& step) {
  const std::vector<Loop> loops = s.Loops(step);
  if (!s.status().ok()) return;
  s.Vectorize(loops[loops.size() - 1]);
  s.Unroll(loops[loops.size() - 2]);
}

// A transform's first step where a tile does not fit registers, under `loop`: column by column, which is what it sums
// over, into memory. Unrolled as a whole it would spill most of the tile, and take LLVM twice as long. Returns the loop
// over columns.
Loop ByColumns(Schedule& s, const std::string& step, const Loop& loop) {
  s.ComputeAt(step, loop);
  const std::vector<Loop> loops = s.Loops(step);
  if (!s.status().ok()) return nullptr;
  const Loop row = loops[loops.size() - 3], column = loops[loops.size() - 2];
  s.Reorder({column, row});
  UnrollLine(s, step);
  return column;
}

// What lies between the two steps of a transform: `steps` under `loop`.
void InRegisters(Schedule& s, const std::vector<std::string>& steps, const Loop& loop) {
  for (const std::string& step : steps) {
    s.ComputeAt(step, loop);
    s.SetScope(step, ir::Scope::kRegister);
  }
}

absl::StatusOr<ir::Func> ScheduleWinograd(ir::Func func, const Plan& p) {
  Schedule s(std::move(func));
  // The epilogue and what it reads: tiles, column blocks, vectors of columns, and the m x m outputs of each.
  std::vector<Loop> loops = s.Loops("out");
  auto [tile_h, i] = s.Split(loops[1], p.m);
  auto [tile_w, j] = s.Split(loops[2], p.m);
  auto [panel, column] = s.Split(loops[3], p.nr);
  auto [block, panel_in] = s.Split(panel, p.panels / p.blocks);
  auto [vector, lane] = s.Split(column, p.lanes);
  s.Reorder({loops[0], tile_h, tile_w, block, panel_in, vector, i, j, lane});
  const Loop tile = s.Fuse(s.Fuse(loops[0], tile_h), tile_w);
  auto [tile_block, tile_in] = s.Split(tile, p.block_tiles);
  s.Reorder({tile_block, block, tile_in, panel_in, vector});
  if (p.tile_in_registers) {
    InRegisters(s, {"result", "half"}, vector);
    UnrollTile(s, "out");
    UnrollTile(s, "half");
  } else {
    InRegisters(s, {"result"}, i);
    UnrollLine(s, "out");
    ByColumns(s, "half", vector);
  }
  UnrollTile(s, "result");

  // The products of a block: t * t of them, each as panels by row tiles.
  s.ComputeAt("product", block);
  loops = s.Loops("product");
  if (!s.status().ok()) return s.status();
  const size_t first = loops.size() - 5;  // panel, tile, i, j, column
  auto [row_tile, row] = s.Split(loops[first + 1], p.mr);
  auto [product_vector, product_lane] = s.Split(loops[first + 4], p.lanes);
  s.Reorder({loops[first + 2], loops[first + 3], loops[first], row_tile, row, product_vector, product_lane});
  TileAccumulators(s, "acc", row_tile, 2, p.lanes, p.unroll);
  UnrollTile(s, "product");

  // The block's input, transformed channel vector by channel vector.
  s.ComputeAt("input", block);
  loops = s.Loops("input");
  if (!s.status().ok()) return s.status();
  const size_t at = loops.size() - 5;  // channel vector, tile, i, j, lane
  s.Reorder({loops[at + 1], loops[at]});
  if (p.tile_in_registers) {
    InRegisters(s, {"lines", "patch"}, loops[at]);
    UnrollTile(s, "input");
    UnrollTile(s, "lines");
  } else {
    InRegisters(s, {"patch"}, ByColumns(s, "lines", loops[at]));
    UnrollLine(s, "input");
  }
  UnrollTile(s, "patch");

  s.Parallel(s.Fuse(tile_block, block));
  s.Partition(row_tile);
  return LowerSchedule(s);
}

// The filter's transform: U[i][j] = G g G^T for each channel and output channel.
absl::StatusOr<ir::Func> BuildFilterPack(const Workload& w, const Conv2dShape& shape, const Plan& p) {
  const WinogradMatrices matrices = MakeWinograd(p.m);
  ir::ProgramBuilder b("pack");
  const Workload::Operand& operand = w.inputs[1];
  const ir::Tensor filter =
      ir::Tensor::OfBuffer(b.Input("in", operand.type.dtype, operand.type.PhysicalShape()), operand.type.perm);
  ir::Buffer taps = b.Compute("taps", kElement, {p.panels, p.channels, 3, 3, p.nr}, [&](const std::vector<Expr>& i) {
    const Expr column = i[0] * Expr(p.nr) + i[4];
    const Expr exists = And(column < Expr(shape.oc), i[1] < Expr(shape.c));
    return ir::Select(exists, filter({column, i[1], i[2], i[3]}), ir::Float(0));
  });
  ir::Buffer half = b.Compute("half", kElement, {p.panels, p.channels, p.t, 3, p.nr}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(matrices.filter, i[2],
                       Column(3,
                              [&](Expr k) {
                                return ir::Load(taps, {i[0], i[1], k, i[3], i[4]});
                              }),
                       Sharing::kEvenOdd);
  });
  ir::Buffer out = b.Compute("packed", kElement, p.PackedShape(), [&](const std::vector<Expr>& i) {
    return MatrixTimes(matrices.filter, i[1],
                       Column(3,
                              [&](Expr k) {
                                return ir::Load(half, {i[2], i[3], i[0], k, i[4]});
                              }),
                       Sharing::kEvenOdd);
  });
  b.MarkOutput(out);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, b.Finish());
  Schedule s(std::move(func));
  std::vector<Loop> loops = s.Loops("packed");
  auto [vector, lane] = s.Split(loops[4], p.lanes);
  s.Reorder({loops[2], loops[3], vector, loops[0], loops[1], lane});
  InRegisters(s, {"half", "taps"}, vector);
  for (const char* step : {"packed", "half", "taps"}) UnrollTile(s, step);
  s.Parallel(s.Fuse(loops[2], loops[3]));
  return LowerSchedule(s);
}

bool Matches(const Workload& w) {
  if (!IsChannelsLastConv2d(w) || !w.inputs[1].constant) return false;
  if (w.calls[w.anchor].attrs.Int("winograd", 1) == 0) return false;
  const Conv2dShape s(w);
  return s.group == 1 && s.kh == 3 && s.kw == 3 && s.stride_h == 1 && s.stride_w == 1 && s.dilation_h == 1 &&
         s.dilation_w == 1 && s.c >= 8 && s.oc >= 8;
}

ConfigSpace Space(const Workload& w, const CpuTarget& t) {
  const Conv2dShape s(w);
  const int64_t lanes = t.lanes();
  ConfigSpace space;
  std::vector<int64_t> tiles;
  for (int64_t m : {2, 4}) {
    if (m <= std::max<int64_t>(2, std::min(s.oh, s.ow))) tiles.push_back(m);
  }
  space.Add("m", tiles);
  space.Add("mr", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28});
  space.Add("nv", TileVectors(s.oc, t.lanes()));
  space.Add("mt", {1, 2, 3, 4, 6, 8, 12, 16, 24, 32});
  space.Add("blocks", {1, 2, 3, 4, 6, 8, 12, 16});
  space.Add("ku", {1, 2, 4});
  RequireTile(space, s.oc, t);
  space.Require("the unrolling does not divide the reduction",
                [channels = s.c](const Config& c) { return channels % c["ku"] == 0; });
  auto all_tiles = [s](const Config& c) { return s.n * CeilDiv(s.oh, c["m"]) * CeilDiv(s.ow, c["m"]); };
  space.Require("the register tile has more rows than there are tiles",
                [all_tiles](const Config& c) { return c["mr"] <= all_tiles(c); });
  space.Require("a smaller block of tiles holds all of them",
                [all_tiles](const Config& c) { return c["mt"] == 1 || (c["mt"] - 1) * c["mr"] < all_tiles(c); });
  space.Require("a block's transformed data do not fit the cache", [s, lanes, l2 = t.l2_bytes](const Config& c) {
    const int64_t columns = CeilDiv(s.oc, c["nv"] * lanes) / c["blocks"] * c["nv"] * lanes;
    const int64_t points = (c["m"] + 2) * (c["m"] + 2);
    return c["mt"] == 1 || kElementBytes * points * c["mt"] * c["mr"] * (s.c + columns) <= 4 * l2;
  });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape s(w);
  const Plan plan(s, c, t);
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, s, plan));
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleWinograd(std::move(func), plan));
  kernel.packs.resize(w.inputs.size());
  TEMPER_ASSIGN_OR_RETURN(kernel.packs[1], BuildFilterPack(w, s, plan));
  return kernel;
}

// Row tiles, each with a column block, of all threads if each had as many as the one with most of them. Threads take
// chunks in order, so the first has whole blocks of tiles; what the last block lacks is another's gain.
double MostOfAThread(const Plan& p, const CpuTarget& t) {
  const int64_t of_block = CeilDiv(p.block_tiles, p.mr);
  const int64_t all = (p.tiles / p.block_tiles * of_block + CeilDiv(p.tiles % p.block_tiles, p.mr)) * p.blocks;
  const int64_t chunks = CeilDiv(p.tiles, p.block_tiles) * p.blocks;
  return static_cast<double>(std::min(CeilDiv(chunks, t.threads) * of_block, all) * t.threads) /
         static_cast<double>(all);
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape s(w);
  const Plan p(s, c, t);
  const double points = static_cast<double>(p.t * p.t), k = static_cast<double>(s.c);
  const double tiles = static_cast<double>(p.tiles), columns = static_cast<double>(s.oc);
  const double padded_columns = static_cast<double>(p.panels * p.nr);
  const double tile_blocks = static_cast<double>(CeilDiv(p.tiles, p.block_tiles));
  const double blocks = static_cast<double>(p.blocks);
  const double row_tiles = static_cast<double>(p.tiles / p.block_tiles * CeilDiv(p.block_tiles, p.mr) +
                                               CeilDiv(p.tiles % p.block_tiles, p.mr));
  CpuFootprint f;
  f.flops = 2 * points * tiles * columns * k;
  f.padded_flops = 2 * points * std::max(tiles, row_tiles * static_cast<double>(p.mr)) * padded_columns * k;
  DescribeTile(f, p.mr, c["nv"], p.lanes);
  f.reduction = k;
  const double block_input = kElementBytes * points * static_cast<double>(p.block_tiles) * k;
  const double block_product = kElementBytes * points * static_cast<double>(p.block_tiles) * padded_columns / blocks;
  const double filter = kElementBytes * points * padded_columns * k,
               panel = kElementBytes * k * static_cast<double>(p.nr);
  const double l1 = static_cast<double>(t.l1_bytes), l2 = static_cast<double>(t.l2_bytes),
               l3 = 0.75 * static_cast<double>(t.l3_bytes);
  f.l1_bytes = kElementBytes * k * (f.tile_rows + f.tile_columns);
  f.l2_bytes = block_input + block_product + filter / points / blocks;
  // A panel of filters comes for each block of tiles, or for each of its row tiles if L1 does not keep it; what is
  // transformed goes through L2 and back, and comes again for each panel where L1 does not keep a point's share of it:
  // lines far apart, which no prefetcher follows.
  constexpr double kScattered = 8;
  const bool input_kept = block_input / points <= l1 / 2;
  const double input_reads = input_kept ? 0 : kScattered * static_cast<double>(p.panels / p.blocks);
  f.l2_traffic = (panel <= l1 / 2 ? tile_blocks : row_tiles) * filter +
                 tile_blocks * blocks * ((2 + input_reads) * block_input + 2 * block_product);
  // A thread's blocks of tiles read all filters anew, unless L2 keeps them beside a block.
  const bool spills = f.l2_bytes > l2;
  const double streams =
      filter + block_input + block_product <= 0.75 * l2 ? std::min<double>(t.threads, tile_blocks) : tile_blocks;
  f.l3_traffic = streams * filter + (spills ? 2 * tile_blocks * blocks * (block_input + block_product) : 0);
  f.compulsory_bytes = CompulsoryBytes(w);
  const double given =
      static_cast<double>(9 * kElementBytes * s.oc * s.c);  // the filters that transformed ones replace
  f.panel_traffic = filter * (filter <= l3 ? 1 : tile_blocks);
  f.panel_turns = row_tiles / tile_blocks;
  f.memory_traffic = f.compulsory_bytes - given + f.panel_traffic;
  f.parallel_chunks = tile_blocks * blocks;
  f.chunk_imbalance = MostOfAThread(p, t);
  f.copies_bytes = kElementBytes * points * tiles * (blocks * k + columns);
  f.code_ops = static_cast<double>(p.mr * c["nv"] * p.unroll) + 8 * points;
  return f;
}

}  // namespace

CpuTemplate Conv2dWinograd() { return {"conv2d.winograd", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
