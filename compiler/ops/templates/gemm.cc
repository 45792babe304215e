#include "compiler/ops/templates/gemm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ops/rounded_products.h"
#include "compiler/ops/templates/gemm_program.h"
#include "compiler/ops/templates/matmul_nbits.h"
#include "compiler/ops/templates/register_tile.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kPrefetchBytes = 4096;  // how far ahead of its use B's panel is fetched where one tile uses it
constexpr int64_t kFewVectors = 16;       // of output for each thread: the most that a reduction is parted for
constexpr int64_t kLeastPart = 128;       // steps of a reduction that are worth a thread's start
// Of a reduction whose panels of B do not stay in L2: its least length, and that of its parts, whose panels do. So few
// rows use a panel once or twice anyway.
constexpr int64_t kLongReduction = 4096, kShortestPart = 256, kLongestPart = 2048, kFewRows = 8;

// Where rows use a panel of B in turn that is too long to stay for them, it comes in parts that are not.
bool PanelsComeInParts(const GemmView& v) {
  return !v.numbers && !v.prologue && v.ways == 1 && v.reduction.size() == 1 && v.rows > kFewRows &&
         ReductionLength(v) >= kLongReduction;
}

// Threads share the reduction where the output is too small to be shared.
std::vector<int64_t> Parts(const GemmView& v, const CpuTarget& t) {
  std::vector<int64_t> parts = {1};
  if (v.numbers) return parts;
  if (v.batch * v.rows * CeilDiv(v.columns, t.lanes()) > kFewVectors * t.threads) {
    for (int64_t p : {4, 8, 16, 32}) {
      const int64_t length = ReductionLength(v) / p;
      // What they make is a quarter of B at most.
      const bool few = 4 * p * v.batch * v.rows <= ReductionLength(v);
      if (few && PanelsComeInParts(v) && v.reduction.back() % p == 0 && kShortestPart <= length &&
          length <= kLongestPart)
        parts.push_back(p);
    }
    return parts;
  }
  for (int64_t p : {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
    if (p <= t.threads && v.reduction.back() % p == 0 && ReductionLength(v) >= p * kLeastPart) parts.push_back(p);
  }
  return parts;
}

// A tile of few accumulators waits for each multiply-add's end: every unrolled step of the reduction gets a sum of its
// own, and they are added up at the tile's end.
void SumApart(Schedule& s, const GemmView& v, const GemmTile& tile, const Loop& under) {
  s.ComputeAt("acc", under);
  s.SetScope("acc", ir::Scope::kRegister);
  const std::vector<Loop> loops = s.Loops("acc");
  if (!s.status().ok()) return;
  const size_t first = loops.size() - v.reduction.size();
  std::vector<Loop> order(loops.begin() + static_cast<std::ptrdiff_t>(first), loops.end());
  auto [vector, lane] = s.Split(loops[first - 1], tile.lanes);
  auto [steps, step] = s.Split(order.back(), tile.unroll);
  order.back() = steps;
  order.insert(order.end(), {step, loops[first - 2], vector, lane});
  s.Reorder(order);
  auto [apart, sum] = s.Rfactor("acc", step);
  s.SetScope(apart, ir::Scope::kRegister);
  s.TransformLayout(apart, {tile.unroll, v.batch, v.rows, tile.panels * tile.nr}, [](const std::vector<Expr>& i) {
    return std::vector<Expr>{i[3], i[0], i[1], i[2]};
  });
  const std::string init = s.DecomposeReduction(apart, order.front());
  std::vector<Loop> last = s.Loops(sum);
  if (!s.status().ok()) return;
  const size_t row = last.size() - 4;  // row, vector, lane, step
  s.Reorder({last[row + 3], last[row], last[row + 1], last[row + 2]});
  const std::string zero = s.DecomposeReduction(sum, last[row + 3]);
  s.Unroll(last[row + 3]);
  s.Unroll(step);
  for (const std::string& block : {apart, init, sum, zero}) UnrollTile(s, block);
  const std::vector<Loop> filled = s.Loops(init);
  if (s.status().ok()) s.Unroll(filled[filled.size() - 4]);
}

// Fetches what comes next while a tile computes. Of the next panel each tile of the chunk fetches a share, and of
// the next chunk's rows each panel brings some, a line of them at a time.
void PrefetchOperands(Schedule& s, const GemmView& v, const GemmTile& tile, const OutputLoops& around) {
  const std::vector<Loop> loops = s.Loops("acc");
  if (!s.status().ok() || (!tile.prefetch_a && !tile.prefetch_b)) return;
  const size_t row = loops.size() - 3, vector = loops.size() - 2;
  const bool unrolled = tile.unroll > 1;
  const Loop k = loops[row - (unrolled ? 2 : 1)], step = unrolled ? loops[row - 1] : k;
  const std::string a = absl::StrCat("in", v.a_input), b = absl::StrCat("in", v.b_input);
  std::vector<Loop> lines;
  const int64_t row_of_b = FactorBytesOfB(v) * tile.nr;
  if (row_of_b > kLineBytes) lines.push_back(loops[vector]);
  if (tile.prefetch_b && tile.chunk == 1) {
    std::vector<Loop> each = lines;
    if (unrolled && row_of_b * tile.unroll > kLineBytes) each.insert(each.begin(), step);
    s.Prefetch("acc", b, k, std::max<int64_t>(kPrefetchBytes / (row_of_b * tile.unroll), 1), k, each);
  }
  if (!tile.prefetch_a && tile.chunk == 1) return;
  auto [line, inner] = s.Split(k, tile.line / tile.unroll);
  if (tile.prefetch_a) {
    const int64_t rows = CeilDiv(tile.mr, tile.panels / tile.blocks);
    for (int64_t r = 0; r < rows; ++r) {
      s.PrefetchAt("acc", a, line,
                   {{around.chunk, Expr(around.chunk) + Expr(1)},
                    {inner, Expr(0)},
                    {loops[row], Expr(around.panel) * Expr(rows) + Expr(r)}});
    }
  }
  if (tile.prefetch_b && tile.chunk > 1) {
    const int64_t share = CeilDiv(tile.line, tile.chunk), turns = v.reduction.back() / tile.line;
    for (int64_t i = 0; i < share; ++i) {
      const Expr at = (Expr(around.row_tile) * Expr(turns) + Expr(line)) * Expr(share) + Expr(i);
      std::vector<ir::VarBinding> place = {
          {around.panel, Expr(around.panel) + Expr(1)}, {line, Expr(0)}, {inner, Expr(0)}};
      if (unrolled) {
        place.push_back({step, at});
      } else {
        place.back().value = at;
      }
      s.PrefetchAt("acc", b, line, place, lines);
    }
  }
}

// `whole` is the view before the reduction's parts became batches of their own, in `v`.
absl::StatusOr<ir::Func> ScheduleGemm(const GemmProgram& program, const GemmView& whole, const GemmView& v,
                                      const GemmTile& tile, const CpuTarget& t) {
  Schedule s(program.func);
  ScheduleCopies(s, program, v, tile, t);
  if (program.tiled != "out") ScheduleElementwise(s, "out", t);
  const OutputLoops loops = TileOutput(s, program.tiled, v, tile);

  if (v.MakesB()) {
    nbits::ScheduleBlocks(s, v, tile, loops.outer.back(), loops.row_tile);
  } else if (tile.sums_apart) {
    SumApart(s, v, tile, loops.row_tile);
  } else {
    TileAccumulators(s, "acc", loops.row_tile, v.reduction.size(), tile.lanes, tile.unroll);
  }
  UnrollTile(s, program.tiled);
  if (v.CachesB()) nbits::ScheduleToCache(s, "floats_b", loops.panel, v, tile);
  if (tile.copy_a) ScheduleRows(s, whole, loops.outer.back(), t);
  if (!s.status().ok()) return s.status();
  if (!tile.sums_apart && !v.MakesB()) PrefetchOperands(s, v, tile, loops);
  if (program.tiled == "out") FetchForStore(s, "out", loops.row_tile, loops.row, loops.vector, tile.nr);
  s.Parallel(FuseAll(s, loops.outer));
  s.Partition(loops.row_tile);
  return Finished(s);
}

}  // namespace

ConfigSpace GemmSpace(const Workload& w, const GemmView& v, const CpuTarget& t) {
  const int64_t registers = t.vector_registers;
  const std::vector<int64_t> lanes = LanesOf(v.columns, t);
  ConfigSpace space;
  std::vector<int64_t> rows;
  for (int64_t mr : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28, 30}) {
    if (mr <= v.rows && mr + 2 <= registers) rows.push_back(mr);
  }
  space.Add("mr", rows);
  space.Add("nv", TileVectors(v.columns, lanes.back()));
  if (lanes.size() > 1) space.Add("vl", lanes);
  space.Add("blocks", {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32});
  const std::vector<int64_t> parts = Parts(v, t);
  if (parts.size() > 1) space.Add("parts", parts);
  // Sums of integers may be added up in any order, and LLVM adds those of several steps first: of four, in registers
  // that tiles in sixteen do not have.
  const bool few = v.ways > 1 && registers <= 16;
  std::vector<int64_t> unrolled = few ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 2, 4};
  // Halves of bytes have code of their own.
  if (v.MakesB() && v.numbers->per_byte > 1)
    unrolled = v.ways > 1 ? std::vector<int64_t>{2, 4, 8} : std::vector<int64_t>{2};
  space.Add("ku", unrolled);
  const bool copies = !v.prologue && RowsCollide(v, t) && v.rows > 1 && (parts.size() == 1 || PanelsComeInParts(v));
  if (copies) space.Add("ca", {0, 1});
  if (copies && parts.size() > 1) {
    space.Require("rows are copied whole", [](const Config& c) { return c["ca"] == 0 || PartsOf(c) == 1; });
  }
  const bool constant_b = w.inputs[v.b_input].constant;
  space.Add("pack", constant_b || !v.b_contiguous ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1});
  RequireTile(space, v.columns, t);
  // Of what the kernel itself made, LLVM keeps a vector in memory sooner than it loads it twice.
  if (v.ways > 1 || v.CachesB()) {
    space.Require("the products have no register",
                  [registers](const Config& c) { return TileRegisters(c["mr"], c["nv"]) < registers; });
  }
  space.Require("the unrolling does not divide the reduction",
                [k = v.MakesB() ? v.numbers->run / v.ways : v.reduction.back()](const Config& c) {
                  return k % (PartsOf(c) * c["ku"]) == 0;
                });
  space.Require("columns in place need whole panels", [columns = v.columns, t](const Config& c) {
    return c["pack"] != 0 || columns % (c["nv"] * LanesOf(c, t)) == 0;
  });
  space.Require("the tile has vectors past the last column", [columns = v.columns, t](const Config& c) {
    return c["nv"] == 1 || (c["nv"] - 1) * LanesOf(c, t) < columns;
  });
  return space;
}

absl::StatusOr<Kernel> BuildGemm(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t) {
  const GemmView sums = PartSums(v, PartsOf(c));
  const GemmTile tile(w, sums, c, t);
  TEMPER_ASSIGN_OR_RETURN(GemmProgram program, BuildGemmProgram(w, v, sums, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleGemm(program, v, sums, tile, t));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs, GemmPacks(w, v, tile, t));
  if (v.rounds) kernel.tolerance = kBf16Tolerance;
  return kernel;
}

CpuTemplate GemmTemplate(std::string_view name, int version, bool (*matches)(const Workload& w),
                         GemmView (*view)(const Workload& w), std::string_view feature) {
  return {name,
          version,
          matches,
          [=](const Workload& w, const CpuTarget& t) { return GemmSpace(w, view(w), t); },
          [=](const Workload& w, const Config& c, const CpuTarget& t) { return BuildGemm(w, view(w), c, t); },
          [=](const Workload& w, const Config& c, const CpuTarget& t) { return GemmFootprint(w, view(w), c, t); },
          feature};
}

}  // namespace temper
