#include <algorithm>
#include <numeric>

#include "compiler/ops/templates/gemm_tile.h"
#include "compiler/ops/templates/register_tile.h"

namespace temper {
namespace {

// Vector instructions that make a vector of floats, in registers beside the products of few rows, and in cache; and
// those that scale a vector of a block's sums.
constexpr double kOpsInRegisters = 2, kOpsInCache = 5, kOpsOfSums = 5;
constexpr int64_t kL2Ways = 8;
constexpr double kCrowdedPanel = 1.25;  // of a tile's cycles, whose panel comes from behind L2

double Bytes(const TensorType& t) { return static_cast<double>(BytesOf(t.dtype, NumElements(t.shape))); }

// Vector instructions for each vector that the calls before the anchor make.
double PrologueOps(const Workload& w) {
  if (w.anchor == 0) return 2;  // a copy
  Workload before = w;
  before.calls.resize(static_cast<size_t>(w.anchor));
  double ops = 1 + Flops(before) / static_cast<double>(NumElements(before.output().shape));
  for (const Workload::Call& call : before.calls) {
    ops += static_cast<double>(std::count_if(call.args.begin(), call.args.end(), [&](int arg) {
      return arg >= 0 && arg < static_cast<int>(w.inputs.size());
    }));
  }
  return ops;
}

// Whether a panel that is read where it lies pushes its own lines out of L2: those of rows whose distance has a large
// power of two in it share few of its sets.
bool PanelCrowdsItselfOut(const GemmView& v, const GemmTile& tile, const CpuTarget& t) {
  const int64_t row = kElementBytes * v.b_row_stride, panel = kElementBytes * tile.nr;
  if (row <= panel) return false;
  const int64_t sets = std::max<int64_t>(1, t.l2_bytes / kLineBytes / kL2Ways), distance = CeilDiv(row, kLineBytes);
  return ReductionLength(v) * CeilDiv(panel, kLineBytes) >= kL2Ways * sets / std::gcd(sets, distance);
}

// What making floats of numbers takes: registers for scales, offsets and a number, and operations. What has no register
// is loaded again and again.
void AddNumbers(CpuFootprint& f, const GemmView& v, const GemmTile& tile, const CpuTarget& t) {
  const double k = static_cast<double>(ReductionLength(v)), vectors = static_cast<double>(tile.vectors);
  const double padded_columns = static_cast<double>(tile.panels * tile.nr);
  f.tile_registers += v.CachesB() ? 0 : 2 * vectors + 1;
  const double spilt = std::max(0.0, f.tile_registers - t.vector_registers) / vectors;
  const double each = v.CachesB() ? static_cast<double>(tile.chunks()) * kOpsInCache
                                  : static_cast<double>(tile.row_tiles) * (kOpsInRegisters + spilt);
  f.prologue_ops += each * k * padded_columns / static_cast<double>(tile.lanes);
  if (v.ways <= 1) return;
  const double runs = k * static_cast<double>(v.ways) / static_cast<double>(v.numbers->run);
  f.prologue_ops += kOpsOfSums * runs * static_cast<double>(v.rows) * padded_columns / static_cast<double>(tile.lanes);
}

}  // namespace

CpuFootprint GemmFootprint(const Workload& w, const GemmView& whole, const Config& c, const CpuTarget& t) {
  const GemmView v = PartSums(whole, PartsOf(c));
  const GemmTile tile(w, v, c, t);
  const double k = static_cast<double>(ReductionLength(v)), batch = static_cast<double>(v.batch);
  const double rows = static_cast<double>(v.rows), columns = static_cast<double>(v.columns);
  const double padded_columns = static_cast<double>(tile.panels * tile.nr);
  const double row_tiles = static_cast<double>(tile.row_tiles), chunks = static_cast<double>(tile.chunks());
  const bool to_cache = v.CachesB();
  const double element_of_b =
      v.MakesB() ? v.numbers->BytesEach() * static_cast<double>(v.ways) : static_cast<double>(FactorBytesOfB(v));
  const double panel_bytes = element_of_b * k * static_cast<double>(tile.nr),
               rows_bytes = kElementBytes * k * static_cast<double>(tile.mr);
  const double block_bytes = panel_bytes * static_cast<double>(tile.panels / tile.blocks);
  const double blocks = static_cast<double>(tile.blocks), chunk_bytes = rows_bytes * static_cast<double>(tile.chunk);

  CpuFootprint f;
  f.flops = 2 * batch * rows * columns * k;
  // A last panel with vectors to spare computes none of them, but is a worse tile for it.
  const double whole_vectors = static_cast<double>(CeilDiv(v.columns, tile.lanes) * tile.lanes);
  f.padded_flops = 2 * batch * rows * (padded_columns + whole_vectors) / 2 * k;
  DescribeTile(f, tile.mr, tile.vectors, tile.lanes);
  f.last_rows = static_cast<double>(v.rows % tile.mr);
  f.last_part = f.last_rows / rows;
  f.reduction = k;
  f.of_bf16 = v.rounds;
  f.turns = 1 / static_cast<double>(tile.unroll);
  f.sums = tile.sums_apart ? static_cast<double>(tile.unroll) : 1;
  f.l1_bytes = panel_bytes + rows_bytes;
  f.l2_bytes = block_bytes + chunk_bytes;
  const double l1 = static_cast<double>(t.l1_bytes), l2 = 0.75 * static_cast<double>(t.l2_bytes);
  const double l3 = 0.4 * static_cast<double>(t.l3_bytes);  // others use it too
  // Past L1 a chunk's rows come anew for every panel if they do not stay there, and a panel for every row tile. Lines
  // pushed out of it are fetched whole for one element, again and again.
  const double block_panels = static_cast<double>(tile.panels / tile.blocks);
  const double a_fetches = RowsCrowdOut(tile.mr, kElementBytes * v.a_row_stride, t.l1_bytes)
                               ? static_cast<double>(kLineElements) * block_panels
                           : chunk_bytes <= l1 / 2 ? 1
                                                   : block_panels;
  const double b_streams = block_bytes <= l1 / 2 ? 1 : panel_bytes <= l1 / 2 ? chunks : row_tiles;
  f.l2_traffic = batch * blocks * (row_tiles * rows_bytes * a_fetches + block_bytes * b_streams);
  if (tile.copy_a) {
    // Every block makes A anew, from elsewhere to where tiles read it.
    const double made = batch * blocks * rows * k;
    if (chunk_bytes > l1 / 2) f.l2_traffic += 2 * kElementBytes * made;
    f.prologue_ops = made / t.lanes() * PrologueOps(w);
  }
  if (!tile.copy_a && RowsCollide(v, t) && tile.mr > 1) f.crowding = 1.08;
  if (!tile.pack && PanelCrowdsItselfOut(v, tile, t)) f.crowding *= kCrowdedPanel;
  // Past L2 and L3 what the outer of the two loops goes through comes once, and what the inner one does comes anew for
  // each of its steps if it does not fit beside.
  const double a_bytes = std::min(kElementBytes * batch * rows * k, Bytes(w.TypeOf(w.calls[w.anchor].args[0])));
  const double kept_as = to_cache ? v.numbers->BytesEach() / static_cast<double>(kElementBytes) : 1;
  const double b_bytes = blocks * block_bytes * kept_as, out_bytes = kElementBytes * batch * rows * columns;
  // Threads that share the cache go through blocks of their own.
  const auto traffic = [&](double cache, double threads) {
    const double block = block_bytes * std::min(threads, blocks * batch);
    const double kept_b = tile.blocks_outside ? block : b_bytes, kept_a = a_bytes / batch;
    const double a = !tile.blocks_outside || kept_a + block <= cache ? 1 : blocks;
    const double b = kept_b + chunk_bytes <= cache ? 1 : panel_bytes + chunk_bytes <= cache ? chunks : row_tiles;
    return a * a_bytes + b * batch * b_bytes + out_bytes;
  };
  f.l3_traffic = traffic(l2, 1);
  f.memory_traffic = traffic(std::max(l2, l3), t.threads);
  f.compulsory_bytes = CompulsoryBytes(w);
  f.parallel_chunks = static_cast<double>(tile.units(v));
  f.chunk_imbalance = static_cast<double>(tile.MostOfAThread(v, t) * t.threads) /
                      (batch * blocks * static_cast<double>(tile.RowsOfTiles(v)));
  // Columns that lie across memory are read a line of each at a time, and many crowd each other out of L1.
  const double across = v.b_contiguous ? 1 : 1 + static_cast<double>(tile.nr) / kLineElements;
  const bool packs = tile.pack && !w.inputs[v.b_input].constant;
  f.copies_bytes = packs       ? kElementBytes * batch * padded_columns * k * across
                   : v.b_scale ? kElementBytes * padded_columns * k
                               : 0;
  if (PartsOf(c) > 1) f.copies_bytes += 2 * kElementBytes * batch * rows * padded_columns;
  if (v.numbers) AddNumbers(f, v, tile, t);
  const bool row_edge = v.rows % tile.mr != 0, column_edge = v.columns % tile.nr != 0;
  f.code_ops = static_cast<double>(tile.mr * tile.vectors * tile.unroll * (row_edge ? 2 : 1) * (column_edge ? 2 : 1));
  return f;
}

}  // namespace temper
