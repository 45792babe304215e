// What a config means for a GEMM: the numbers that its program, its schedule and its footprint all speak of.
#pragma once

#include "base/division.h"
#include "compiler/ops/templates/gemm.h"

namespace temper {

struct GemmTile {
  int64_t matrix_rows;  // of a matrix tile, where such make the sums (gemm_matrix_tiles.cc); 0: vectors do
  int64_t lanes, mr, vectors, nr, panels, blocks, unroll;
  bool copy_a;          // a chunk's rows of A come to cache, before its tiles read them
  bool pack;            // B is packed, by the package or by the kernel
  bool sums_apart;      // unrolled steps of the reduction do not wait for each other
  int64_t row_tiles;    // of all rows
  bool blocks_outside;  // all rows pass by a block before the next one comes, rather than all blocks by a chunk of rows
  int64_t chunk;        // so many row tiles pass by a panel before the next one comes
  int64_t line;         // steps of the reduction between fetches of what comes next; 0: there are none
  bool prefetch_a, prefetch_b;
  GemmTile(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t);

  // Matrix tiles have all their rows: those past the last are made of zeros.
  int64_t RowsMade(const GemmView& v) const { return matrix_rows > 0 ? row_tiles * mr : v.rows; }
  int64_t chunks() const { return CeilDiv(row_tiles, chunk); }
  int64_t units(const GemmView& v) const { return v.batch * chunks() * blocks; }  // of work, for the threads
  // What the rows' tiles take, in rows: a last tile that lacks some takes longer than those it has.
  int64_t RowsOfTiles(const GemmView& v) const { return (v.rows + row_tiles * mr) / 2; }
  // Rows, each with a block, that the thread with most to do gets.
  int64_t MostOfAThread(const GemmView& v, const CpuTarget& t) const { return MostOfAThread(v, t, chunk); }

 private:
  // With `size` row tiles in a chunk. RowsBefore: rows, each with a block, of the units before this one.
  int64_t MostOfAThread(const GemmView& v, const CpuTarget& t, int64_t size) const;
  int64_t RowsBefore(const GemmView& v, int64_t unit, int64_t size) const;
  int64_t Chunk(const GemmView& v, const CpuTarget& t) const;
  bool StreamsB(const Workload& w, const GemmView& v, const CpuTarget& t) const;
  int64_t LineStep(const GemmView& v) const;
};

// Whether neighbouring rows of A lie in the same sets of L1: those of a tile in sixteen registers fit its ways, but
// what B's panel and a neighbour on the same core bring pushes them out.
bool RowsCollide(const GemmView& v, const CpuTarget& t);
int64_t PartsOf(const Config& c);  // of the reduction, which threads share
// The sums of a reduction's parts: each part is a batch of its own.
GemmView PartSums(const GemmView& v, int64_t parts);

}  // namespace temper
