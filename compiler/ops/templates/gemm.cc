#include "compiler/ops/templates/gemm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/ops/templates/gemm_tile.h"
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

Shape PackedShape(const GemmView& v, const GemmTile& tile) {
  Shape shape = {v.b_batched ? v.batch : 1, tile.panels};
  shape.insert(shape.end(), v.reduction.begin(), v.reduction.end());
  shape.push_back(v.widens_b ? v.ways * tile.nr : tile.nr);
  return shape;
}

DType PackedType(const GemmView& v) { return v.widens_b ? DType::kI8 : FactorType(v); }

DType CopiedType(const GemmView& v) {
  if (v.ways < 4) return v.ways == 1 ? kElement : DType::kI16;
  return v.numbers ? DType::kI8 : DType::kU8;
}

// The operand's element at a place along the reduction's last axis: zero past its end.
using Operand = std::function<Expr(const std::vector<Expr>& r)>;
Operand OrZero(const GemmView& v, Operand element) {
  if (v.ways == 1 || v.depth % v.ways == 0) return element;
  return [depth = v.depth, element = std::move(element)](const std::vector<Expr>& r) {
    const Expr e = element(r);
    return ir::Select(r.back() < Expr(depth), e, ir::Const(0, e->dtype));
  };
}

// The operand's factor at a step of the reduction: an element, or several.
Expr Factor(const GemmView& v, const std::vector<Expr>& r, const Operand& element) {
  if (v.ways == 1) return element(r);
  const auto at = [&](int64_t i) {
    std::vector<Expr> place = r;
    place.back() = r.back() * Expr(v.ways) + Expr(i);
    return element(place);
  };
  if (v.ways == 2) return ir::Pair(at(0), at(1));
  return ir::Pair(ir::Pair(at(0), at(1)), ir::Pair(at(2), at(3)));
}

Expr Product(const GemmView& v, const Expr& a, const Expr& b) {
  return v.ways == 1 ? a * b : v.ways == 2 ? ir::Dot16(a, b) : ir::Dot8(a, b);
}

// What packed B has at `index` of PackedShape, a factor or a part of one: zero in the columns past the last.
Expr PackedElement(const GemmView& v, const GemmTile& tile, const ir::Tensor& b, const std::vector<Expr>& index) {
  std::vector<Expr> r(index.begin() + 2, index.end() - 1);
  const Expr width(v.widens_b ? v.ways : 1), column = index[1] * Expr(tile.nr) + index.back() / width;
  const Operand element = OrZero(v, [&](const auto& at) { return v.b_element(b, index[0], column, at); });
  Expr packed;
  if (v.widens_b) {
    r.back() = r.back() * width + index.back() % width;
    packed = element(r);
  } else {
    packed =
        Factor(v, r, [&](const auto& at) { return v.ways == 2 ? ir::Cast(element(at), DType::kI16) : element(at); });
  }
  if (tile.panels * tile.nr == v.columns) return packed;
  return ir::Select(column < Expr(v.columns), packed, ir::Const(0, PackedType(v)));
}

struct Program {
  ir::Func func;
  std::vector<std::string> copies;  // stages that run before the main loop
  std::string tiled = "out";        // what the tiles are stored to; "sums": of the parts, which the output adds up
};

// A from the stage "a", which is made of `element`.
GemmView::AElement CopiedA(const GemmView& v, ir::ProgramBuilder& b, const GemmView::AElement& element) {
  Shape made = {v.batch, v.rows};
  made.insert(made.end(), v.reduction.begin(), v.reduction.end());
  made.back() *= v.ways;
  const ir::Buffer a = b.Compute("a", CopiedType(v), made, [&](const std::vector<Expr>& i) {
    return OrZero(v, [&](const auto& r) { return element(i[0], i[1], r); })({i.begin() + 2, i.end()});
  });
  return [a](const Expr& batch, const Expr& row, const std::vector<Expr>& r) {
    std::vector<Expr> index = {batch, row};
    index.insert(index.end(), r.begin(), r.end());
    return ir::Load(a, index);
  };
}

absl::StatusOr<Program> BuildProgram(const Workload& w, const GemmView& v, const GemmView& sums, const GemmTile& tile) {
  const int64_t parts = sums.batch / v.batch;
  ir::ProgramBuilder b("gemm");
  Program result;
  const bool constant_b = w.inputs[v.b_input].constant;
  nbits::Packing packing{std::vector<Shape>(w.inputs.size()), std::vector<DType>(w.inputs.size(), PackedType(v))};
  if (constant_b) packing.shapes[v.b_input] = PackedShape(v, tile);
  if (v.numbers) packing = nbits::PackingOf(w, v, tile);
  WorkloadProgram program(w, b, packing.shapes, packing.types);
  TEMPER_RETURN_IF_ERROR(program.Compute(0, w.anchor));
  GemmView::AElement a_element = v.prepare(program, b, &result.copies);
  if (tile.copy_a) a_element = CopiedA(v, b, a_element);
  ir::Buffer packed_b;
  if (constant_b) {
    packed_b = program.buffer(v.b_input);
  } else if (tile.pack) {
    packed_b = b.Compute("pack_b", FactorType(v), PackedShape(v, tile), [&](const std::vector<Expr>& index) {
      return PackedElement(v, tile, program.value(v.b_input), index);
    });
    result.copies.push_back("pack_b");
  }
  if (v.b_scale) {
    packed_b = b.Compute("scaled_b", kElement, PackedShape(v, tile), [&, unscaled = packed_b](const auto& index) {
      return ir::Load(unscaled, index) * v.b_scale(program, {index.begin() + 2, index.end() - 1});
    });
    result.copies.push_back("scaled_b");
  }
  if (v.CachesB()) {
    packed_b = b.Compute("floats_b", kElement, PackedShape(v, tile),
                         [&](const auto& index) { return nbits::Element(program, v, index[1], index[2], index[3]); });
  }
  auto b_factor = [&](const Expr& batch, const Expr& column, const std::vector<Expr>& r) {
    if (!tile.pack) return v.b_element(program.value(v.b_input), batch, column, r);
    std::vector<Expr> index = {v.b_batched ? batch : Expr(0), column / Expr(tile.nr)};
    index.insert(index.end(), r.begin(), r.end());
    index.push_back(column % Expr(tile.nr));
    if (!v.widens_b) return ir::Load(packed_b, index);
    const auto half = [&, first = index.back() * Expr(v.ways)](int64_t i) {
      index.back() = first + Expr(i);
      return ir::Cast(ir::Load(packed_b, index), DType::kI16);
    };
    return ir::Pair(half(0), half(1));
  };
  const Shape acc_shape = {sums.batch, v.rows, tile.panels * tile.nr};
  ir::Buffer acc;
  if (v.MakesB()) {
    acc = nbits::SumOfBlocks(b, program, v, tile, [&](const Expr& batch, const Expr& row, const std::vector<Expr>& r) {
      return Factor(v, r, [&](const std::vector<Expr>& at) { return a_element(batch, row, at); });
    });
  } else {
    acc = b.Reduce("acc", FactorType(v), acc_shape, sums.reduction, ir::Combiner::kSum,
                   [&](const std::vector<Expr>& i, std::vector<Expr> r) {
                     const Expr batch = parts == 1 ? i[0] : i[0] % Expr(v.batch);
                     if (parts > 1) r.back() = i[0] / Expr(v.batch) * Expr(sums.reduction.back()) + r.back();
                     const Expr a =
                         Factor(v, r, [&](const std::vector<Expr>& at) { return a_element(batch, i[1], at); });
                     return Product(v, a, b_factor(batch, i[2], r));
                   });
  }
  ir::Buffer stored = acc;
  if (parts > 1) {
    result.tiled = "sums";
    stored = b.Compute("sums", FactorType(v), acc_shape, [&](const std::vector<Expr>& i) { return ir::Load(acc, i); });
  }

  TEMPER_RETURN_IF_ERROR(MarkOut(w, v, program, b, [&](const Expr& batch, const Expr& row, const Expr& column) {
    Expr sum = ir::Load(stored, {batch, row, column});
    for (int64_t p = 1; p < parts; ++p) sum = sum + ir::Load(stored, {Expr(p * v.batch) + batch, row, column});
    return sum;
  }));
  TEMPER_ASSIGN_OR_RETURN(result.func, b.Finish());
  return result;
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

// The loops around the tiles.
struct TileLoops {
  Loop chunk, panel, row_tile;
};

// Fetches what comes next while a tile computes. Of the next panel each tile of the chunk fetches a share, and of
// the next chunk's rows each panel brings some, a line of them at a time.
void PrefetchOperands(Schedule& s, const GemmView& v, const GemmTile& tile, const TileLoops& around) {
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

// What a chunk's tiles read of A is made before the first of them, and lies row by row in cache, where rows that
// collided are a line further apart.
void ScheduleCopy(Schedule& s, const GemmView& v, const Loop& under, const CpuTarget& t) {
  s.ComputeAt("a", under);
  if (RowsCollide(v, t)) {
    const int64_t row = v.reduction.back() * v.ways + kLineBytes / SizeOf(CopiedType(v));
    s.TransformLayout("a", {v.batch, v.rows * row}, [row](const std::vector<Expr>& i) {
      return std::vector<Expr>{i[0], i[1] * Expr(row) + i[2]};
    });
  }
  const std::vector<Loop> loops = s.Loops("a");
  if (!s.status().ok()) return;
  if (s.Extent(loops.back()) < t.lanes()) {
    constexpr int64_t kFewRuns = 8;
    if (v.ways == 1) return;
    s.Vectorize(loops.back());
    if (const Loop& runs = loops[loops.size() - 2]; s.Extent(runs) <= kFewRuns) s.Unroll(runs);
    return;
  }
  auto [rest, lane] = s.Split(loops.back(), VectorLength(s.Extent(loops.back()), t.lanes(), 4));
  s.Vectorize(lane);
  s.Partition(rest);
}

// `whole` is the view before the reduction's parts became batches of their own, in `v`.
absl::StatusOr<ir::Func> ScheduleGemm(const Program& program, const GemmView& whole, const GemmView& v,
                                      const GemmTile& tile, const CpuTarget& t) {
  Schedule s(program.func);
  for (const std::string& stage : program.copies) {
    if (stage == "pack_b") {
      SchedulePack(s, stage, v, tile.nr, tile.lanes, t);
    } else {
      ScheduleElementwise(s, stage, t);
    }
  }

  if (program.tiled != "out") ScheduleElementwise(s, "out", t);
  auto [outer, row, column] = LoopsByAxis(s.Loops(program.tiled), OutAxes(v));
  auto [tiles, row_in] = s.Split(row, tile.mr);
  auto [chunk, row_tile] = s.Split(tiles, tile.chunk);
  auto [panel, column_in] = s.Split(column, tile.nr);
  auto [vector, lane] = s.Split(column_in, tile.lanes);
  auto [block, panel_in] = s.Split(panel, tile.panels / tile.blocks);
  outer.push_back(tile.blocks_outside ? block : chunk);
  outer.push_back(tile.blocks_outside ? chunk : block);
  std::vector<Loop> order = outer;
  order.insert(order.end(), {panel_in, row_tile, row_in, vector, lane});
  s.Reorder(order);

  if (v.MakesB()) {
    nbits::ScheduleBlocks(s, v, tile, outer.back(), row_tile);
  } else if (tile.sums_apart) {
    SumApart(s, v, tile, row_tile);
  } else {
    TileAccumulators(s, "acc", row_tile, v.reduction.size(), tile.lanes, tile.unroll);
  }
  UnrollTile(s, program.tiled);
  if (v.CachesB()) nbits::ScheduleToCache(s, "floats_b", panel_in, v, tile);
  if (tile.copy_a) ScheduleCopy(s, whole, outer.back(), t);
  if (!s.status().ok()) return s.status();
  if (!tile.sums_apart && !v.MakesB()) PrefetchOperands(s, v, tile, {chunk, panel_in, row_tile});
  if (program.tiled == "out") FetchForStore(s, "out", row_tile, row_in, vector, tile.nr);
  s.Parallel(FuseAll(s, outer));
  s.Partition(row_tile);
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
  TEMPER_ASSIGN_OR_RETURN(Program program, BuildProgram(w, v, sums, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleGemm(program, v, sums, tile, t));
  kernel.packs.resize(w.inputs.size());
  if (v.numbers) {
    TEMPER_ASSIGN_OR_RETURN(kernel.packs, nbits::Packs(w, v, tile, t));
  } else if (w.inputs[v.b_input].constant) {
    TEMPER_ASSIGN_OR_RETURN(
        kernel.packs[v.b_input],
        BuildPack(
            "pack", w.inputs[v.b_input], PackedShape(v, tile),
            [&](const ir::Tensor& b, const std::vector<Expr>& index) { return PackedElement(v, tile, b, index); }, t));
  }
  return kernel;
}

}  // namespace temper
