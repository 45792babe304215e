// Products of bytes, or of bf16, by a CPU's matrix tiles (AMX): tiles of sums of "tr" rows by 16 columns, "mt" of them
// below one another and "nv" side by side. A step of the loop over the reduction takes 16 factors of four bytes each.
#include <algorithm>
#include <limits>

#include "compiler/ops/rounded_products.h"
#include "compiler/ops/templates/gemm.h"
#include "compiler/ops/templates/gemm_program.h"
#include "compiler/ops/templates/register_tile.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

constexpr int64_t kMostRows = 16, kColumns = 16, kSteps = kMatrixStep;
constexpr int64_t kLeastRows = 4;
constexpr int64_t kMostTiles = 4;  // of sums: the other four hold operands

// Heights that leave fewer rows without use than any greater one, and the greatest that a run of rows has whole.
std::vector<int64_t> RowsOfTile(const GemmView& v) {
  std::vector<int64_t> heights;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  bool has_whole = false;
  for (int64_t rows = std::min(kMostRows, v.rows); rows >= kLeastRows; --rows) {
    const int64_t made = RoundUp(v.rows, rows);
    const bool first_whole = v.even_rows % rows == 0 && v.even_rows > 0 && !has_whole;
    if (!heights.empty() && made >= fewest && !first_whole) continue;
    heights.push_back(rows);
    fewest = std::min(fewest, made);
    has_whole = has_whole || first_whole;
  }
  return heights;
}

// The loops of a block of sums: over tiles, and over what a tile has.
struct TileLoops {
  Loop row_tile, column_tile, row, column;
};

TileLoops SplitTile(Schedule& s, const Loop& rows, const Loop& columns, int64_t matrix_rows) {
  auto [row_tile, row] = s.Split(rows, matrix_rows);
  auto [column_tile, column] = s.Split(columns, kColumns);
  return {row_tile, column_tile, row, column};
}

void MakeInstructions(Schedule& s, const TileLoops& loops) {
  s.Unroll(loops.row_tile);
  s.Unroll(loops.column_tile);
  s.TensorizeForTiles(loops.row);
}

// The sums are made in matrix tiles and leave them for memory.
void ScheduleSums(Schedule& s, const GemmView& v, const GemmTile& tile, const Loop& under) {
  s.ComputeAt("sums", under);
  s.ComputeAt("acc", under);
  s.SetScope("acc", ir::Scope::kTile);
  std::vector<Loop> loops = s.Loops("sums");
  if (!s.status().ok()) return;
  const TileLoops out = SplitTile(s, loops[loops.size() - 2], loops.back(), tile.matrix_rows);
  s.Reorder({out.row_tile, out.column_tile, out.row, out.column});
  MakeInstructions(s, out);

  loops = s.Loops("acc");
  if (!s.status().ok()) return;
  const size_t first = loops.size() - v.reduction.size();
  const TileLoops sums = SplitTile(s, loops[first - 2], loops[first - 1], tile.matrix_rows);
  std::vector<Loop> order(loops.begin() + static_cast<std::ptrdiff_t>(first), loops.end());
  auto [rest, step] = s.Split(order.back(), kSteps);
  order.back() = rest;
  order.insert(order.end(), {sums.row_tile, sums.column_tile, sums.row, sums.column, step});
  s.Reorder(order);
  const std::string init = s.DecomposeReduction("acc", order.front());
  MakeInstructions(s, sums);
  loops = s.Loops(init);
  if (!s.status().ok()) return;
  const size_t last = loops.size();
  MakeInstructions(s, {loops[last - 4], loops[last - 3], loops[last - 2], loops[last - 1]});
}

absl::StatusOr<ir::Func> ScheduleProducts(const GemmProgram& program, const GemmView& v, const GemmTile& tile,
                                          const CpuTarget& t) {
  Schedule s(program.func);
  ScheduleCopies(s, program, v, tile, t);
  const OutputLoops loops = TileOutput(s, "out", v, tile);
  ScheduleSums(s, v, tile, loops.row_tile);
  s.Vectorize(loops.lane);
  s.Unroll(loops.vector);
  if (tile.copy_a) ScheduleRows(s, v, loops.outer.back(), t);
  s.Parallel(FuseAll(s, loops.outer));
  s.Partition(loops.row);
  return Finished(s);
}

// Else vectors are as good.
bool FillsMatrixTiles(const GemmView& v) { return (v.ways == 4 || v.rounds) && v.rows >= kLeastRows && !v.numbers; }

ConfigSpace MatrixTilesSpace(const GemmView& v, const CpuTarget& t) {
  ConfigSpace space;
  space.Add("tr", RowsOfTile(v));
  space.Add("mt", {1, 2, 3, 4});
  space.Add("nv", {1, 2, 3, 4});
  space.Add("blocks", {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32});
  if (v.even_rows > 0) {
    space.Add("ca", {0, 1});
    space.Require("rows in place are whole tiles, and a tile's lie evenly",
                  [rows = v.rows, run = v.even_rows](const Config& c) {
                    return c["ca"] != 0 || (run % c["tr"] == 0 && rows % (c["mt"] * c["tr"]) == 0);
                  });
  }
  space.Require("there are no tiles for so many sums", [](const Config& c) { return c["mt"] * c["nv"] <= kMostTiles; });
  space.Require("the tile has more rows than there are",
                [rows = v.rows](const Config& c) { return c["mt"] == 1 || (c["mt"] - 1) * c["tr"] < rows; });
  space.Require("the tile has vectors past the last column",
                [columns = v.columns](const Config& c) { return c["nv"] == 1 || (c["nv"] - 1) * kColumns < columns; });
  space.Require("column blocks do not divide the panels", [columns = v.columns](const Config& c) {
    return CeilDiv(columns, c["nv"] * kColumns) % c["blocks"] == 0;
  });
  space.Require("vectors are not a tile's rows", [lanes = t.lanes()](const Config&) { return lanes == kColumns; });
  return space;
}

absl::StatusOr<Kernel> BuildMatrixTiles(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t) {
  const GemmTile tile(w, v, c, t);
  TEMPER_ASSIGN_OR_RETURN(GemmProgram program, BuildGemmProgram(w, v, v, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleProducts(program, v, tile, t));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs, GemmPacks(w, v, tile, t));
  if (v.rounds) kernel.tolerance = kBf16Tolerance;
  return kernel;
}

// Cycles were measured on a Sapphire Rapids.
CpuFootprint MatrixTilesFootprint(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t) {
  constexpr double kLinesPerCycle = 1.6;               // that tiles are loaded with, from L1
  constexpr double kLeast = 8;                         // cycles of a product, however few its rows
  constexpr double kStart = 60;                        // of the first product of a tile, and to its end
  constexpr double kVector = 4;                        // to store a vector of sums and load it again
  constexpr double kPlace = 30, kUnrolledPlace = 1.5;  // instructions for a place of a filter, beside its vectors
  const GemmTile tile(w, v, c, t);
  CpuFootprint f = GemmFootprint(w, v, c, t);
  const double rows = static_cast<double>(tile.matrix_rows), mt = static_cast<double>(c["mt"]);
  const double nv = static_cast<double>(tile.vectors), steps = static_cast<double>(ReductionLength(v) / kSteps);
  const double products = mt * nv * std::max(kLeast, 1.1 * rows);
  const double loads = (mt * rows + nv * static_cast<double>(kSteps)) / kLinesPerCycle;
  const double each = steps * std::max(products, loads) + kStart + kVector * mt * nv * rows;
  f.matrix_cycles = each * static_cast<double>(v.batch * tile.row_tiles * tile.panels);
  if (tile.copy_a) {
    const Shape& along = v.copied.empty() ? v.reduction : v.copied;
    const bool unrolled = !v.copied.empty() && v.copied.back() < t.lanes();
    const double places = static_cast<double>(NumElements(along) / along.back()) * (unrolled ? kUnrolledPlace : kPlace);
    f.prologue_ops = 2 * f.prologue_ops + places * static_cast<double>(v.batch * tile.blocks * v.rows);
  }
  return f;
}

}  // namespace

GemmView OfMatrixTiles(GemmView v) {
  v.reduction.back() = RoundUp(v.reduction.back(), kSteps);
  v.prologue |= v.ways * v.reduction.back() != v.depth;
  return v;
}

CpuTemplate MatrixTilesTemplate(std::string_view name, bool (*matches)(const Workload& w),
                                GemmView (*view)(const Workload& w), std::string_view feature) {
  return {
      name,
      1,
      [=](const Workload& w) { return matches(w) && FillsMatrixTiles(view(w)); },
      [=](const Workload& w, const CpuTarget& t) { return MatrixTilesSpace(view(w), t); },
      [=](const Workload& w, const Config& c, const CpuTarget& t) { return BuildMatrixTiles(w, view(w), c, t); },
      [=](const Workload& w, const Config& c, const CpuTarget& t) { return MatrixTilesFootprint(w, view(w), c, t); },
      feature};
}

}  // namespace temper
