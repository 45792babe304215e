#include "compiler/ops/templates/register_tile.h"

#include <numeric>

#include "base/division.h"
#include "compiler/ops/templates/element.h"

namespace temper {

int64_t TileRegisters(int64_t rows, int64_t vectors) { return rows * vectors + (vectors == 1 ? 1 : vectors + 1); }

int64_t LanesOf(const Config& c, const CpuTarget& t) { return c.Has("vl") ? c["vl"] : t.lanes(); }

std::vector<int64_t> LanesOf(int64_t columns, const CpuTarget& t) {
  const int64_t whole = t.lanes(), half = whole / 2;
  const int64_t saved = (CeilDiv(columns, whole) * whole) - (CeilDiv(columns, half) * half);
  if (whole < 16 || 20 * saved < columns) return {whole};
  return {whole, half};
}

void UnrollTile(Schedule& s, const std::string& block) {
  const std::vector<Loop> around = s.Loops(block);
  if (!s.status().ok()) return;
  s.Vectorize(around[around.size() - 1]);
  s.Unroll(around[around.size() - 2]);
  s.Unroll(around[around.size() - 3]);
}

void TileAccumulators(Schedule& s, const std::string& acc, const Loop& under, size_t reductions, int64_t lanes,
                      int64_t unroll) {
  s.ComputeAt(acc, under);
  s.SetScope(acc, ir::Scope::kRegister);
  TileReduction(s, acc, reductions, lanes, unroll);
}

void TileReduction(Schedule& s, const std::string& acc, size_t reductions, int64_t lanes, int64_t unroll) {
  const std::vector<Loop> loops = s.Loops(acc);
  if (!s.status().ok()) return;
  const size_t first = loops.size() - reductions;
  std::vector<Loop> order(loops.begin() + static_cast<std::ptrdiff_t>(first), loops.end());
  auto [vector, lane] = s.Split(loops[first - 1], lanes);
  if (unroll > 1) {
    auto [rest, unrolled] = s.Split(order.back(), unroll);
    order.back() = rest;
    order.push_back(unrolled);
    s.Unroll(unrolled);
  }
  order.insert(order.end(), {loops[first - 2], vector, lane});
  s.Reorder(order);
  const std::string init = s.DecomposeReduction(acc, order.front());
  UnrollTile(s, acc);
  UnrollTile(s, init);
}

void FetchForStore(Schedule& s, const std::string& out, const Loop& loop, const Loop& row, const Loop& vector,
                   int64_t columns) {
  // About as many as a core waits for at a time: more would keep it from the operands that the tile begins with. Larger
  // tiles, which AVX-512 has, were not measured with it.
  constexpr int64_t kMostLines = 16;
  const bool several = columns * SizeOf(s.func().params.back()->dtype) > kLineBytes;
  if (!s.status().ok() || s.Extent(row) * (several ? s.Extent(vector) : 1) > kMostLines) return;
  std::vector<Loop> each = {row};
  if (several) each.push_back(vector);
  s.PrefetchAt(out, "out", loop, {}, each);
}

// The sets of an x86 CPU's L1 span 4 KiB (their index does not depend on the translation), so rows whose distance has a
// large power of two in it crowd into few of them; one way is left to B's panel, which streams through all.
bool RowsCrowdOut(int64_t rows, int64_t stride_bytes, int64_t l1_bytes) {
  constexpr int64_t kLine = 64;
  if (stride_bytes < kLine) return false;
  const int64_t places = std::min(kL1Span / std::gcd(stride_bytes, kL1Span), kL1Span / kLine);
  return CeilDiv(rows, places) + 1 > std::max<int64_t>(l1_bytes / kL1Span, 2);
}

std::vector<int64_t> TileVectors(int64_t columns, int64_t lanes) {
  std::vector<int64_t> vectors;
  // Five, which leave room for few rows, only where fewer would leave the last panel narrower.
  const int64_t all = CeilDiv(columns, lanes);
  for (int64_t nv : {1, 2, 3, 4, 5, 6, 8}) {
    if (nv == 5 && (all % 5 != 0 || all % 2 == 0 || all % 3 == 0)) continue;
    if (nv == 1 || (nv - 1) * lanes < columns) vectors.push_back(nv);
  }
  return vectors;
}

void RequireRegisters(ConfigSpace& space, const CpuTarget& t) {
  space.Require("the register tile does not fit the registers", [registers = t.vector_registers](const Config& c) {
    return TileRegisters(c["mr"], c["nv"]) <= registers;
  });
}

void RequireTile(ConfigSpace& space, int64_t columns, const CpuTarget& t) {
  RequireRegisters(space, t);
  space.Require("column blocks do not divide the panels",
                [columns, t](const Config& c) { return CeilDiv(columns, c["nv"] * LanesOf(c, t)) % c["blocks"] == 0; });
}

void DescribeTile(CpuFootprint& f, int64_t rows, int64_t vectors, int64_t lanes) {
  f.vector_lanes = static_cast<double>(lanes);
  f.tile_rows = static_cast<double>(rows);
  f.tile_columns = static_cast<double>(vectors * lanes);
  f.tile_registers = static_cast<double>(TileRegisters(rows, vectors));
  f.loads_per_fma = static_cast<double>(rows + vectors) / static_cast<double>(rows * vectors);
}

}  // namespace temper
