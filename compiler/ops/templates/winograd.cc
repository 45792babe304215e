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
#include "compiler/ops/templates/stages.h"
#include "compiler/schedule/nest.h"

namespace temper {
namespace {

using ir::Expr;

// Filters of so many bytes come from memory in each run of a model that has many of them; smaller ones are no trouble.
int64_t LargeFilters(const CpuTarget& t) { return std::max(t.l2_bytes / 2, t.l3_bytes / 8); }

// Filters of so many bytes are fetched ahead: between two runs of a model L2 keeps none of them.
int64_t WorthFetching(const CpuTarget& t) { return t.l2_bytes / 8; }

// What a config means for this shape.
struct Plan {
  int64_t m, t;                         // output and input tile
  int64_t tiles_h, tiles_w, tiles;      // of one image; of all
  int64_t lanes, mr, nr, panels;        // register tile of the products
  int64_t channels;                     // of the input in whole vectors, zeros in those past the last
  int64_t blocks, block_tiles, unroll;  // column blocks; tiles that go through all steps together
  bool late;                            // filters are transformed by the kernel, which reads fewer bytes for it
  int64_t chunk;                        // channels whose filters are transformed together; all, where the package does
  int64_t group;                        // and so many rows of points, in turn: pairs where all would not stay in L1
  bool tile_in_registers;               // a tile's values, while it is transformed
  bool prefetch;                        // filters are fetched while those before them are in use
  std::optional<ops::PlaneWindow> volume;  // the input's planes, several of which a filter sees
  Plan(const Workload& w, const Conv2dShape& s, const Config& c, const CpuTarget& target)
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
        late(LateChannels(c) > 0),
        chunk(late ? LateChannels(c) : channels),
        group(!PairsInL1(target) ? t : 2),
        tile_in_registers(t * t <= target.vector_registers),
        prefetch(kElementBytes * FilterRows() * panels * channels * nr > WorthFetching(target)),
        volume(UnfoldedPlanes(w)) {}

  static int64_t LateChannels(const Config& c) { return c.Has("late") ? c["late"] : 0; }
  int64_t chunks() const { return channels / chunk; }
  // Of the filters of a chunk's channels, two rows of points stay in L1, beside what else passes by; all rows do not.
  bool PairsInL1(const CpuTarget& target) const {
    const int64_t row = kElementBytes * t * chunk * nr, room = target.l1_bytes * 3 / 4;
    return late && 2 * row <= room && t * row > room;
  }
  // Rows of `nr` elements that the package has for each channel and panel.
  int64_t FilterRows() const { return late ? 9 : t * t; }
  // In the order in which a unit of work uses them.
  Shape PackedShape() const {
    if (late) return {panels, channels, 3, 3, nr};
    return {blocks, t, t, panels / blocks, channels, nr};
  }
};

FilterPanels PanelsOf(const Plan& p) { return {p.m, p.panels, p.channels, p.nr}; }

// The transformed filters' element, by point, panel, channel and output channel of the panel.
using FilterElement = std::function<Expr(const std::vector<Expr>&)>;
FilterElement FiltersOf(ir::ProgramBuilder& b, const Plan& p, const ir::Buffer& packed) {
  if (!p.late) {
    return [=, of_block = Expr(p.panels / p.blocks)](const std::vector<Expr>& i) {
      return ir::Load(packed, {i[2] / of_block, i[0], i[1], i[2] % of_block, i[3], i[4]});
    };
  }
  const ir::Buffer filter = TransformFilters(
      b, PanelsOf(p), "filter", {p.t, p.panels, p.channels, p.t, p.nr},
      [=](const std::vector<Expr>& i) { return ir::Load(packed, i); },
      [](const std::vector<Expr>& i) {
        return std::vector<Expr>{i[1], i[2], i[0], i[3], i[4]};
      });
  return [=](const std::vector<Expr>& i) { return ir::Load(filter, {i[0], i[2], i[3], i[1], i[4]}); };
}

// The tiles of the input, transformed.
ir::Buffer TransformedInput(ir::ProgramBuilder& b, const ir::Tensor& x, const Conv2dShape& s, const Plan& p,
                            const Matrix& matrix) {
  // Tile `tile` of the input at (i, j) is element (m * row + i - top, m * column + j - left) of its image.
  ir::Buffer patch = b.Compute("patch", kElement, {p.tiles, p.t, p.t, p.channels}, [&](const std::vector<Expr>& i) {
    const Expr in_image = i[0] % Expr(p.tiles_h * p.tiles_w);
    Expr image = i[0] / Expr(p.tiles_h * p.tiles_w), channel = i[3];
    const Expr h = in_image / Expr(p.tiles_w) * Expr(p.m) + i[1] - Expr(s.top);
    const Expr column = in_image % Expr(p.tiles_w) * Expr(p.m) + i[2] - Expr(s.left);
    Expr inside = And(And(Expr(0) <= h, h < Expr(s.h)), And(Expr(0) <= column, column < Expr(s.w)));
    if (p.channels > s.c) inside = And(inside, i[3] < Expr(s.c));
    if (p.volume.has_value()) {
      const Expr tap = channel / Expr(p.volume->channels);
      std::vector<Expr> conditions = {inside};
      p.volume->AddInside(image, tap, &conditions);
      inside = nest::Conjoin(conditions);
      image = p.volume->Plane(image, tap);
      channel = channel % Expr(p.volume->channels);
    }
    return ir::Select(inside, x({image, channel, h, column}), ir::Float(0));
  });
  ir::Buffer lines = b.Compute("lines", kElement, {p.tiles, p.t, p.t, p.channels}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(
        matrix, i[1],
        [&](const Expr& k) {
          return ir::Load(patch, {i[0], k, i[2], i[3]});
        },
        Sharing::kEvenOdd);
  });
  // What a transform writes or reads at once lies together: rows of the products are strided, but no two of them share
  // a set of the cache by a power of two.
  return b.Compute("input", kElement, {p.channels / p.lanes, p.tiles, p.t, p.t, p.lanes},
                   [&](const std::vector<Expr>& i) {
                     const Expr channel = i[0] * Expr(p.lanes) + i[4];
                     return MatrixTimes(
                         matrix, i[3],
                         [&](const Expr& k) {
                           return ir::Load(lines, {i[1], i[2], k, channel});
                         },
                         Sharing::kEvenOdd);
                   });
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Conv2dShape& s, const Plan& p) {
  const WinogradMatrices matrices = MakeWinograd(p.m);
  ir::ProgramBuilder b("winograd");
  std::vector<Shape> packed(w.inputs.size());
  packed[1] = p.PackedShape();
  WorkloadProgram program(w, b, packed);
  const ir::Buffer input = TransformedInput(b, program.value(0), s, p, matrices.input);
  const FilterElement filter = FiltersOf(b, p, program.buffer(1));
  ir::Buffer acc =
      b.Reduce("acc", kElement, {p.chunks(), p.t, p.t, p.panels, p.tiles, p.nr}, {p.chunk / p.lanes, p.lanes},
               ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 const Expr vector = i[0] * Expr(p.chunk / p.lanes) + r[0];
                 return ir::Load(input, {vector, i[4], i[1], i[2], r[1]}) *
                        filter({i[1], i[2], i[3], vector * Expr(p.lanes) + r[1], i[5]});
               });
  const Shape products = {p.panels, p.tiles, p.t, p.t, p.nr};
  auto of_chunk = [&](const std::vector<Expr>& i, const Expr& chunk) {
    return ir::Load(acc, {chunk, i[2], i[3], i[0], i[1], i[4]});
  };
  ir::Buffer product =
      p.late ? b.Reduce("product", kElement, products, {p.chunks()}, ir::Combiner::kSum,
                        [&](const std::vector<Expr>& i, const std::vector<Expr>& r) { return of_chunk(i, r[0]); })
             : b.Compute("product", kElement, products, [&](const std::vector<Expr>& i) { return of_chunk(i, 0); });
  ir::Buffer half = b.Compute("half", kElement, {p.panels, p.tiles, p.m, p.t, p.nr}, [&](const std::vector<Expr>& i) {
    return MatrixTimes(
        matrices.output, i[2],
        [&](const Expr& k) {
          return ir::Load(product, {i[0], i[1], k, i[3], i[4]});
        },
        Sharing::kPairs);
  });
  ir::Buffer result =
      b.Compute("result", kElement, {p.panels, p.tiles, p.m, p.m, p.nr}, [&](const std::vector<Expr>& i) {
        return MatrixTimes(
            matrices.output, i[3],
            [&](const Expr& k) {
              return ir::Load(half, {i[0], i[1], i[2], k, i[4]});
            },
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

// Where a tile of the products is, in the order of the work on one panel, or on a chunk of channels of it.
struct Turn {
  Expr number;
  int64_t of;
};

// Each tile fetches its share of the filters that come next, of the next panel or the next chunk, a row of `nr`
// elements at a time, in the order in which they lie, and from here alone. Any other way these kernels now and then
// take up to a third longer, as if they depended on what prefetchers in hardware make of it.
void PrefetchFilters(Schedule& s, const Plan& p, const Turn& tile) {
  const std::string reader = p.late ? "filter_lines" : "acc";
  const std::vector<Loop> loops = s.Loops("acc"), reads = s.Loops(reader);
  if (!s.status().ok()) return;
  const size_t row = loops.size() - 3;  // row, vector, lane
  const Loop step = loops[row - (p.unroll > 1 ? 3 : 2)];
  const int64_t steps = p.chunk / p.lanes, rows = p.chunk * (p.late ? 9 : 1);
  const int64_t share = CeilDiv(rows, tile.of * steps);
  const Expr first = (tile.number * Expr(steps) + Expr(step)) * Expr(share) + Expr(rows);
  // Rows are counted by the loop that goes from one to the next: they lie one behind the other.
  const Loop next = p.late ? reads[reads.size() - 2] : loops[row - 1];
  const Loop vector = p.late ? reads[reads.size() - 6] : loops[row + 1];
  for (int64_t k = share; k-- > 0;) {  // the last one asked for comes first
    std::vector<ir::VarBinding> place = {{next, first + Expr(k)}};
    if (!p.late) place.push_back({step, Expr(0)});
    s.PrefetchAt(reader, "in1", step, place, {vector});
  }
}

// The kernel's own transform of a chunk's filters, channel by channel, for so many rows of points as `under` has.
void ScheduleFilters(Schedule& s, const Plan& p, const Loop& under) {
  s.ComputeAt("filter", under);
  const std::vector<Loop> loops = s.Loops("filter");
  if (!s.status().ok()) return;
  const size_t first = loops.size() - 5;  // i, panel, channel, j, column
  auto [vector, lane] = s.Split(loops[first + 4], p.lanes);
  s.Reorder({loops[first + 2], vector, loops[first], loops[first + 3], lane});
  InRegisters(s, {"filter_lines"}, vector);
  UnrollTile(s, "filter");
  UnrollTile(s, "filter_lines");
}

// The products of what is under `under`: t * t of them, each as panels by row tiles. Where filters are transformed
// here, all points of a chunk of channels come before the next chunk, and sums of what came before wait in cache.
// Returns the loop over row tiles.
Loop ScheduleProducts(Schedule& s, const Plan& p, const Loop& under) {
  s.ComputeAt("product", under);
  const std::vector<Loop> loops = s.Loops("product");
  if (!s.status().ok()) return nullptr;
  const size_t first = loops.size() - (p.late ? 6 : 5);  // panel, tile, i, j, column; chunk
  const Loop panel = loops[first], i = loops[first + 2], j = loops[first + 3];
  auto [row_tile, row] = s.Split(loops[first + 1], p.mr);
  auto [vector, lane] = s.Split(loops[first + 4], p.lanes);
  Turn turn{Expr(row_tile), CeilDiv(p.block_tiles, p.mr)};
  if (p.late) {
    auto [group, i_in] = s.Split(i, p.group);
    const Loop chunk = loops.back();
    s.Reorder({panel, chunk, group, i_in, j, row_tile, row, vector, lane});
    UnrollTile(s, s.DecomposeReduction("product", chunk));
    if (p.group < p.t) s.Unroll(group);  // the transform's terms depend on it
    TileAccumulators(s, "acc", row_tile, 2, p.lanes, p.unroll);
    ScheduleFilters(s, p, group);
    const Expr point = (Expr(group) * Expr(p.group) + Expr(i_in)) * Expr(p.t) + Expr(j);
    turn = {point * Expr(turn.of) + turn.number, p.t * p.t * turn.of};
  } else {
    s.Reorder({i, j, panel, row_tile, row, vector, lane});
    TileAccumulators(s, "acc", row_tile, 2, p.lanes, p.unroll);
  }
  if (p.prefetch) PrefetchFilters(s, p, turn);
  UnrollTile(s, "product");
  return row_tile;
}

// The input of what is under `under`, transformed: tile by tile, as the image lies; but where the result is large and
// its memory cold, because all tiles go through all steps together, in the order in which that lies.
void ScheduleInput(Schedule& s, const Plan& p, const Loop& under) {
  s.ComputeAt("input", under);
  const std::vector<Loop> loops = s.Loops("input");
  if (!s.status().ok()) return;
  const Loop vector = loops[loops.size() - 5], tile = loops[loops.size() - 4];  // then i, j, lane
  const Loop inner = p.late ? tile : vector;
  s.Reorder({p.late ? vector : tile, inner});
  if (p.tile_in_registers) {
    InRegisters(s, {"lines", "patch"}, inner);
    UnrollTile(s, "input");
    UnrollTile(s, "lines");
  } else {
    InRegisters(s, {"patch"}, ByColumns(s, "lines", inner));
    UnrollLine(s, "input");
  }
  UnrollTile(s, "patch");
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
  if (p.late) {
    s.Reorder({tile_block, block, panel_in, tile_in, vector});
  } else {
    s.Reorder({tile_block, block, tile_in, panel_in, vector});
  }
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

  const Loop row_tile = ScheduleProducts(s, p, p.late ? panel_in : block);
  ScheduleInput(s, p, block);
  s.Parallel(s.Fuse(tile_block, block));
  s.Partition(row_tile);
  return Finished(s);
}

absl::StatusOr<ir::Func> BuildTransformedPack(const Workload& w, const Plan& p) {
  TEMPER_ASSIGN_OR_RETURN(ir::Func func,
                          TransformedFilters(w, PanelsOf(p), p.PackedShape(), [&](const std::vector<Expr>& i) {
                            return std::vector<Expr>{i[0] * Expr(p.panels / p.blocks) + i[3], i[4], i[1], i[2], i[5]};
                          }));
  Schedule s(std::move(func));
  const std::vector<Loop> loops = s.Loops("packed");  // block, i, j, panel, channel, column
  ScheduleTransformedFilters(s, {loops[0], loops[3], loops[4]}, {loops[1], loops[2]}, loops[5], p.lanes);
  return LowerSchedule(s);
}

// The filters as the kernel reads them: transformed, or as they are.
absl::StatusOr<ir::Func> BuildFilterPack(const Workload& w, const Plan& p, const CpuTarget& t) {
  if (!p.late) return BuildTransformedPack(w, p);
  return BuildPack(
      "pack", w.inputs[1], p.PackedShape(),
      [&](const ir::Tensor& filter, const std::vector<Expr>& i) { return FilterTap(filter, w, PanelsOf(p), i); }, t);
}

// Of "late": channels whose filters the kernel transforms together, 0 where the package does. Worth it may be where the
// transformed ones come from beyond L2, for each of which there are few tiles.
std::vector<int64_t> LateChannels(const Conv2dShape& s, const CpuTarget& t) {
  constexpr int64_t kMostTiles = 64;
  const int64_t channels = CeilDiv(s.c, t.lanes()) * t.lanes();
  std::vector<int64_t> late = {0};
  if (s.n * CeilDiv(s.oh, 2) * CeilDiv(s.ow, 2) > kMostTiles || 36 * kElementBytes * s.c * s.oc <= LargeFilters(t))
    return late;
  for (int64_t n : {16, 32, 64, 128, 256}) {
    if (n % t.lanes() == 0 && channels % n == 0) late.push_back(n);
  }
  return late;
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
  const std::vector<int64_t> late = LateChannels(s, t);
  if (late.size() > 1) space.Add("late", late);
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
  if (late.size() == 1) return space;
  space.Require("filters would be transformed for each block of tiles",
                [all_tiles](const Config& c) { return c["late"] == 0 || c["mt"] * c["mr"] >= all_tiles(c); });
  space.Require("the filters that are transformed together do not fit the cache",
                [lanes, l2 = t.l2_bytes](const Config& c) {
                  const int64_t points = (c["m"] + 2) * (c["m"] + 2);
                  return 2 * kElementBytes * points * c["late"] * c["nv"] * lanes <= l2;
                });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape s(w);
  const Plan plan(w, s, c, t);
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, s, plan));
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleWinograd(std::move(func), plan));
  kernel.packs.resize(w.inputs.size());
  TEMPER_ASSIGN_OR_RETURN(kernel.packs[1], BuildFilterPack(w, plan, t));
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

// Of the filters' matrix; footprints ask for every config.
double FilterTerms(int64_t m) {
  const auto count = [](int64_t of) {
    double terms = 0;
    for (const std::vector<double>& row : MakeWinograd(of).filter)
      terms += static_cast<double>(std::ranges::count_if(row, [](double x) { return x != 0; }));
    return terms;
  };
  static const double kOfTwo = count(2), kOfFour = count(4);
  return m == 2 ? kOfTwo : kOfFour;
}

// Vector instructions that transform the taps of a channel into all points' filters. Those that leave L1 count for
// more.
double TransformOps(const Plan& p) {
  return (p.group < p.t ? 0.7 : 1) * FilterTerms(p.m) * static_cast<double>(3 + p.t);
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Conv2dShape s(w);
  const Plan p(w, s, c, t);
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
  f.reduction = static_cast<double>(p.chunk);
  f.turns = 1 / static_cast<double>(p.unroll);
  const double block_input = kElementBytes * points * static_cast<double>(p.block_tiles) * k;
  const double block_product = kElementBytes * points * static_cast<double>(p.block_tiles) * padded_columns / blocks;
  const double filter = kElementBytes * points * padded_columns * k,
               panel = kElementBytes * static_cast<double>(p.chunk * p.nr);
  const double l1 = static_cast<double>(t.l1_bytes), l2 = static_cast<double>(t.l2_bytes),
               l3 = 0.75 * static_cast<double>(t.l3_bytes);
  f.l1_bytes = kElementBytes * k * (f.tile_rows + f.tile_columns);
  f.l2_bytes = block_input + block_product + filter / points / blocks;
  // A panel of filters comes for each block of tiles, or for each of its row tiles if L1 does not keep it; what is
  // transformed goes through L2 and back, and comes again for each panel where L1 does not keep a point's share of it:
  // lines far apart, which no prefetcher follows.
  // Where the kernel transforms filters, all points of a panel come before the next panel.
  constexpr double kScattered = 4;
  const bool input_kept = !p.late && block_input / points <= l1 / 2;
  const double input_reads = input_kept ? 0 : (p.late ? 1 : kScattered) * static_cast<double>(p.panels / p.blocks);
  f.l2_traffic = (panel <= l1 / 2 ? tile_blocks : row_tiles) * filter +
                 tile_blocks * blocks * ((2 + input_reads) * block_input + 2 * block_product);
  // A thread's blocks of tiles read all filters anew, unless L2 keeps them beside a block.
  const bool spills = f.l2_bytes > l2;
  const double streams =
      filter + block_input + block_product <= 0.75 * l2 ? std::min<double>(t.threads, tile_blocks) : tile_blocks;
  // Transformed ones come from L3 three times as slowly as what the draft's rate was measured with.
  constexpr double kFiltersFromL3 = 3;
  const double given = static_cast<double>(9 * kElementBytes * s.oc * s.c);  // what transformed ones replace
  f.l3_traffic = (p.late ? given : kFiltersFromL3 * streams * filter) +
                 (spills ? 2 * tile_blocks * blocks * (block_input + block_product) : 0);
  f.compulsory_bytes = CompulsoryBytes(w);
  f.panel_traffic = filter * (filter <= l3 ? 1 : tile_blocks);
  // In ResNet-50 on Zen 5 more than half of the time that large filters take from memory is seen, although they are
  // fetched ahead: as if many tiles used a panel in turn. Of those that the kernel transforms little is seen.
  const bool large = filter > static_cast<double>(LargeFilters(t));
  f.panel_turns = p.late ? 1 : std::max(row_tiles / tile_blocks, large ? 8.0 : 1.0);
  if (p.late) {
    // What is read grows on the way into L2, from where the products read it once.
    f.prologue_ops = static_cast<double>(p.channels * p.panels * p.nr / p.lanes) * TransformOps(p);
    // Each group of rows reads the taps anew, and what L1 does not keep goes to L2 and back.
    if (p.group < p.t)
      f.l2_traffic += static_cast<double>(p.t / p.group) * given - filter;
    else
      f.l2_traffic += filter;
    f.l2_bytes =
        kElementBytes * points * static_cast<double>(p.chunk) * (f.tile_columns + static_cast<double>(p.tiles));
    f.panel_traffic = given;
  }
  f.memory_traffic = f.compulsory_bytes - given + f.panel_traffic;
  f.parallel_chunks = tile_blocks * blocks;
  f.chunk_imbalance = MostOfAThread(p, t);
  f.copies_bytes = kElementBytes * points * tiles * (blocks * k + columns);
  f.code_ops = static_cast<double>(p.mr * c["nv"] * p.unroll) + 8 * points;
  return f;
}

}  // namespace

CpuTemplate Conv2dWinograd() {
  return {"conv2d.winograd", 5, [](const Workload& w) { return MayUseWinograd(w, true); }, Space, Build, FootprintOf};
}

}  // namespace temper
