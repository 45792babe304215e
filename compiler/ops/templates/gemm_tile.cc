#include "compiler/ops/templates/gemm_tile.h"

#include <algorithm>

#include "compiler/ops/templates/register_tile.h"

namespace temper {
namespace {

constexpr int64_t kEnoughAccumulators = 5;  // a multiply-add's cycles
constexpr int64_t kPrefetchingRows = 4;     // tiles of fewer rows live off loads, and have none to spare
constexpr int64_t kMostChunk = 12;          // row tiles that share a panel: more save little
constexpr int64_t kHandedOver = 16;         // rows that are enough for a panel to come from L2 for them
constexpr int64_t kMostOfMade = 24;         // that share one which is made for them

// Threads share out the order of the loops over chunks of rows and blocks of columns. The kernels around this one
// have their parts of the activations by rows, so threads that go through columns read and write each other's: all
// of A, and twice a share of the results, which the next kernel's threads have to fetch. Threads that go through
// rows all bring all of B, and use it chunk by chunk from L2.
bool BlocksOutside(const Workload& w, const GemmView& v, const CpuTarget& t) {
  if (v.columns <= v.rows) return false;
  if (t.threads == 1 || v.batch > 1 || v.numbers || !w.inputs[v.b_input].constant) return true;
  const int64_t k = ReductionLength(v), b = k * v.columns;
  return 2 * FactorBytesOfB(v) * b > t.l2_bytes || b > k * v.rows + 2 * v.rows * v.columns / t.threads;
}

}  // namespace

int64_t PartsOf(const Config& c) { return c.Has("parts") ? c["parts"] : 1; }

bool RowsCollide(const GemmView& v, const CpuTarget& t) {
  return t.vector_registers <= 16 && v.a_row_stride > 0 && kElementBytes * v.a_row_stride % kL1Span == 0;
}

GemmView PartSums(const GemmView& v, int64_t parts) {
  if (parts == 1) return v;
  GemmView sums = v;
  sums.batch = parts * v.batch;
  sums.reduction.back() /= parts;
  sums.out_dims = {{GemmAxis::kBatch, sums.batch, 1}, {GemmAxis::kRow, v.rows, 1}, {GemmAxis::kColumn, v.columns, 1}};
  return sums;
}

GemmTile::GemmTile(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t)
    : matrix_rows(c.Has("tr") ? c["tr"] : 0),
      lanes(LanesOf(c, t)),
      mr(matrix_rows > 0 ? c["mt"] * matrix_rows : c["mr"]),
      vectors(c["nv"]),
      nr(vectors * lanes),
      panels(CeilDiv(v.columns, nr)),
      blocks(c["blocks"]),
      unroll(matrix_rows > 0 ? 1 : c["ku"]),
      copy_a(v.prologue || (c.Has("ca") ? c["ca"] != 0 : matrix_rows > 0 && v.rows % mr != 0)),
      pack(matrix_rows > 0 || w.inputs[v.b_input].constant || c["pack"] != 0),
      sums_apart(unroll > 1 && !v.MakesB() && mr * vectors < kEnoughAccumulators &&
                 mr * vectors * (unroll - 1) + TileRegisters(mr, vectors) <= t.vector_registers),
      row_tiles(CeilDiv(v.rows, mr)),
      blocks_outside(BlocksOutside(w, v, t)),
      chunk(Chunk(v, t)),
      line(LineStep(v)),
      prefetch_a(line > 0 && !copy_a && v.a_input >= 0 && v.reduction.size() == 1 &&
                 kElementBytes * v.batch * v.rows * v.reduction.back() > t.l2_bytes / 2),
      prefetch_b(StreamsB(w, v, t)) {}

int64_t GemmTile::RowsBefore(const GemmView& v, int64_t unit, int64_t size) const {
  const int64_t count = CeilDiv(row_tiles, size), of_batch = count * blocks, in_batch = unit % of_batch;
  const auto rows_before = [&](int64_t chunk) { return std::min(chunk * size * mr, RowsOfTiles(v)); };
  const int64_t whole = unit / of_batch * blocks * RowsOfTiles(v);
  if (blocks_outside) return whole + in_batch / count * RowsOfTiles(v) + rows_before(in_batch % count);
  const int64_t c = in_batch / blocks;
  return whole + rows_before(c) * blocks + in_batch % blocks * (rows_before(c + 1) - rows_before(c));
}

int64_t GemmTile::MostOfAThread(const GemmView& v, const CpuTarget& t, int64_t size) const {
  constexpr int64_t kAsked = 4;  // of many threads, the first have as many units as any
  const int64_t units = v.batch * CeilDiv(row_tiles, size) * blocks, each = units / t.threads, more = units % t.threads;
  int64_t most = 0;
  for (int64_t thread = 0, end = 0, before = 0; thread < std::min<int64_t>(t.threads, kAsked); ++thread) {
    end += each + (thread < more ? 1 : 0);
    const int64_t rows = RowsBefore(v, end, size);
    most = std::max(most, rows - before);
    before = rows;
  }
  return most;
}

// As many as stay in L1, if those are some, or in L2 beside two panels, and as let threads share the work.
int64_t GemmTile::Chunk(const GemmView& v, const CpuTarget& t) const {
  const double shared = copy_a ? 1 : v.overlap;
  const auto k_bytes = static_cast<int64_t>(static_cast<double>(kElementBytes * ReductionLength(v)) / shared);
  const int64_t l2 = t.l2_bytes;
  const int64_t column_bytes = FactorBytesOfB(v) * ReductionLength(v), panels_bytes = column_bytes * panels * nr;
  const int64_t in_l1 = t.l1_bytes / 2 / (k_bytes * mr);
  const int64_t in_l2 = std::min(l2 / 2, l2 - 2 * column_bytes * nr) / (k_bytes * mr);
  const int64_t fit = in_l1 >= kMostChunk / 2 ? in_l1 : std::max<int64_t>(in_l2, 1);
  int64_t most = std::min({fit, row_tiles, kMostChunk});
  if (v.CachesB()) {
    most = std::min(row_tiles, kMostOfMade);
  } else if (column_bytes * nr * (panels / blocks) <= t.l1_bytes / 2) {
    return 1;  // B stays in L1 anyway
  }
  int64_t least = MostOfAThread(v, t, 1);
  for (int64_t size = 2; size <= most; ++size) least = std::min(least, MostOfAThread(v, t, size));
  const auto balanced = [&](int64_t size) { return 50 * MostOfAThread(v, t, size) <= 51 * least; };
  int64_t best = most;
  while (!balanced(best)) --best;
  // Where panels come from L2 anyway, a thread that is late has more to hand over.
  for (int64_t size = 2; t.threads > 1 && !v.MakesB() && panels_bytes <= l2 / 2 && size < best; ++size) {
    if (size * mr >= kHandedOver && balanced(size)) return size;
  }
  return best;
}

// Whether B comes from beyond L2, and often enough used to be worth instructions.
bool GemmTile::StreamsB(const Workload& w, const GemmView& v, const CpuTarget& t) const {
  const bool in_place = (w.inputs[v.b_input].constant || !pack) && !v.b_scale && !v.numbers;
  const int64_t panel = FactorBytesOfB(v) * ReductionLength(v) * nr;
  if (!in_place || mr < kPrefetchingRows) return false;
  return chunk > 1 ? line > 0 && panel * panels > t.l2_bytes / 2 : panel > t.l1_bytes / 2;
}

// At most a line's elements of a row of A: what the loop over the reduction is cut into.
int64_t GemmTile::LineStep(const GemmView& v) const {
  for (int64_t step = kLineElements; step >= kLineElements / 2; --step) {
    if (v.reduction.back() % step == 0 && step % unroll == 0) return step;
  }
  return 0;
}

}  // namespace temper
