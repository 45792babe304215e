#include "compiler/ops/templates/gemm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

using ir::Expr;

double Bytes(const TensorType& t) { return static_cast<double>(NumElements(t.shape) * SizeOf(t.dtype)); }
// Accumulators and operands; one vector folds its broadcast or its load into the multiply-add.
int64_t TileRegisters(int64_t rows, int64_t vectors) { return rows * vectors + (vectors == 1 ? 1 : vectors + 1); }
int64_t ReductionLength(const GemmView& v) { return NumElements(v.reduction); }

constexpr int64_t kEnoughAccumulators = 5;  // a multiply-add's cycles
constexpr int64_t kPrefetchBytes = 4096;    // how far ahead of its use B's panel is fetched
constexpr int64_t kPrefetchingRows = 4;     // tiles of fewer rows live off loads, and have none to spare

// Vectors of fewer lanes than the target's leave fewer of them idle past the last column.
int64_t LanesOf(const Config& c, const Target& t) { return c.Has("vl") ? c["vl"] : t.lanes(); }

// The lanes that are worth trying: half a vector where that cuts at least a twentieth of the columns computed.
std::vector<int64_t> LanesOf(int64_t columns, const Target& t) {
  const int64_t whole = t.lanes(), half = whole / 2;
  const int64_t saved = (CeilDiv(columns, whole) * whole) - (CeilDiv(columns, half) * half);
  if (whole < 16 || 20 * saved < columns) return {whole};
  return {whole, half};
}

// What a config means for this view: the numbers that program, schedule and footprint all speak of.
struct Tile {
  int64_t lanes, mr, vectors, nr, panels, blocks, unroll;
  bool pack;           // B is packed, by the package or by the kernel
  bool sums_apart;     // unrolled steps of the reduction do not wait for each other
  bool prefetch_b;     // B's panel is fetched ahead
  int64_t prefetch_a;  // so are the next tile's rows, at every so many elements; 0: they are not
  Tile(const Workload& w, const GemmView& v, const Config& c, const Target& t)
      : lanes(LanesOf(c, t)),
        mr(c["mr"]),
        vectors(c["nv"]),
        nr(vectors * lanes),
        panels(CeilDiv(v.columns, nr)),
        blocks(c["blocks"]),
        unroll(c["ku"]),
        pack(w.inputs[v.b_input].constant || c["pack"] != 0),
        sums_apart(unroll > 1 && mr * vectors < kEnoughAccumulators &&
                   mr * vectors * (unroll - 1) + TileRegisters(mr, vectors) <= t.vector_registers),
        prefetch_b(StreamsB(w, v, t)),
        prefetch_a(LineStep(v, t)) {}

  // Whether B comes from beyond L1 for every row tile, and often enough used there to be worth an instruction each.
  bool StreamsB(const Workload& w, const GemmView& v, const Target& t) const {
    const bool in_place = w.inputs[v.b_input].constant || !pack;
    return in_place && mr >= kPrefetchingRows && 4 * ReductionLength(v) * nr > t.l1_bytes / 2;
  }
  // Elements between the fetches along a row of A, at most a line's: what the loops are cut into. 0 where the rows are
  // not read one after another from beyond L2.
  int64_t LineStep(const GemmView& v, const Target& t) const {
    const int64_t k = v.reduction.back();
    if (v.a_input < 0 || k != ReductionLength(v) || 4 * v.batch * v.rows * k <= t.l2_bytes / 2) return 0;
    for (int64_t step = kLineElements; step >= kLineElements / 2; --step) {
      if (k % step == 0 && step % unroll == 0) return step;
    }
    return 0;
  }
};

Shape PackedShape(const GemmView& v, const Tile& tile) {
  Shape shape = {v.b_batched ? v.batch : 1, tile.panels};
  shape.insert(shape.end(), v.reduction.begin(), v.reduction.end());
  shape.push_back(tile.nr);
  return shape;
}

// The element of packed B at `index` of PackedShape: zero in the columns past the last.
Expr PackedElement(const GemmView& v, const Tile& tile, const ir::Tensor& b, const std::vector<Expr>& index) {
  std::vector<Expr> r(index.begin() + 2, index.end() - 1);
  Expr column = index[1] * Expr(tile.nr) + index.back();
  Expr element = v.b_element(b, index[0], column, r);
  if (tile.panels * tile.nr == v.columns) return element;
  return ir::Select(column < Expr(v.columns), element, ir::Float(0));
}

struct Program {
  ir::Func func;
  std::vector<std::string> copies;  // stages that run before the main loop
};

absl::StatusOr<Program> BuildProgram(const Workload& w, const GemmView& v, const Tile& tile) {
  ir::ProgramBuilder b("gemm");
  Program result;
  const bool constant_b = w.inputs[v.b_input].constant;
  std::vector<Shape> packed(w.inputs.size());
  if (constant_b) packed[v.b_input] = PackedShape(v, tile);
  WorkloadProgram program(w, b, packed);
  GemmView::AElement a_element = v.prepare(program, b, &result.copies);

  ir::Buffer packed_b;
  if (constant_b) {
    packed_b = program.buffer(v.b_input);
  } else if (tile.pack) {
    packed_b = b.Compute("pack_b", DType::kF32, PackedShape(v, tile), [&](const std::vector<Expr>& index) {
      return PackedElement(v, tile, program.value(v.b_input), index);
    });
    result.copies.push_back("pack_b");
  }
  auto b_element = [&](const Expr& batch, const Expr& column, const std::vector<Expr>& r) {
    if (!tile.pack) return v.b_element(program.value(v.b_input), batch, column, r);
    std::vector<Expr> index = {v.b_batched ? batch : Expr(0), column / Expr(tile.nr)};
    index.insert(index.end(), r.begin(), r.end());
    index.push_back(column % Expr(tile.nr));
    return ir::Load(packed_b, index);
  };
  ir::Buffer acc = b.Reduce("acc", DType::kF32, {v.batch, v.rows, tile.panels * tile.nr}, v.reduction,
                            ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              return a_element(i[0], i[1], r) * b_element(i[0], i[2], r);
                            });

  // The epilogue reads the anchor at the very element that is being written, so the accumulator stands for it.
  Expr current;
  program.SetResult(w.anchor, ir::Tensor(DType::kF32, w.calls[w.anchor].type.shape,
                                         [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  Shape out_shape;
  for (const GemmView::Dim& dim : v.out_dims) out_shape.push_back(dim.extent);
  ir::Buffer out = b.Compute("out", w.output().dtype, out_shape, [&](const std::vector<Expr>& index) {
    Expr batch(0), row(0), column(0);
    for (size_t d = 0; d < index.size(); ++d) {
      Expr& axis = v.out_dims[d].axis == GemmAxis::kBatch ? batch : v.out_dims[d].axis == GemmAxis::kRow ? row : column;
      axis = axis + index[d] * Expr(v.out_dims[d].stride);
    }
    current = ir::Load(acc, {batch, row, column});
    return program.result()(v.out_index(batch, row, column));
  });
  b.MarkOutput(out);
  TEMPER_ASSIGN_OR_RETURN(result.func, b.Finish());
  return result;
}

// The largest divisor of `extent` that is at most a line's elements.
int64_t LineDivisor(int64_t extent) {
  int64_t step = kLineElements;
  while (extent % step != 0) --step;
  return step;
}

// A tile of few accumulators waits for each multiply-add's end: every unrolled step of the reduction gets a sum of its
// own, and they are added up at the tile's end.
void SumApart(Schedule& s, const GemmView& v, const Tile& tile, const Loop& under) {
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

// B's columns lie across memory. Only in the last panel may columns be missing; the others ask for no masks. Where the
// batch does not give threads enough to do, they share the lines along the columns.
void SchedulePackAcross(Schedule& s, const GemmView& v, const Tile& tile, const Target& t) {
  std::vector<Loop> order = s.Loops("pack_b");  // batch, panel, reduction..., column
  if (!s.status().ok()) return;
  const Loop panel = order[1], column = order.back();
  const int64_t k = v.reduction.back();
  auto [lines, step] = s.Split(order[order.size() - 2], v.batch >= 4 * t.threads ? k : LineDivisor(k));
  order.erase(order.begin() + 1);
  order.resize(order.size() - 2);
  order.push_back(lines);
  auto [vector, lane] = s.Split(column, tile.lanes);
  std::vector<Loop> inside = order;
  inside.insert(inside.end(), {panel, step, vector, lane});
  s.Reorder(inside);
  s.Vectorize(lane);
  s.Unroll(vector);
  if (v.columns % tile.nr != 0) s.Peel(panel, 0, 1);
  Loop parallel = order.front();
  for (size_t i = 1; i < order.size(); ++i) parallel = s.Fuse(parallel, order[i]);
  s.Parallel(parallel);
}

// Fetches what comes next while a tile computes: B's next steps into L1; the rows of the next row tile, a line of each
// at a time, into L2.
void PrefetchOperands(Schedule& s, const GemmView& v, const Tile& tile, const Loop& row_tile) {
  const std::vector<Loop> loops = s.Loops("acc");
  if (!s.status().ok()) return;
  const size_t row = loops.size() - 3, vector = loops.size() - 2;
  const bool unrolled = tile.unroll > 1;
  const Loop k = loops[row - (unrolled ? 2 : 1)];
  if (tile.prefetch_b) {
    std::vector<Loop> each;
    if (unrolled) each.push_back(loops[row - 1]);
    if (tile.nr > kLineElements) each.push_back(loops[vector]);
    const int64_t steps = std::max<int64_t>(kPrefetchBytes / (4 * tile.nr * tile.unroll), 1);
    s.Prefetch("acc", absl::StrCat("in", v.b_input), k, steps, k, each);
  }
  if (tile.prefetch_a > 0) {
    const Loop line = s.Split(k, tile.prefetch_a / tile.unroll).first;
    s.Prefetch("acc", absl::StrCat("in", v.a_input), line, 1, row_tile, {loops[row]}, 2);
  }
}

absl::StatusOr<ir::Func> ScheduleGemm(const Program& program, const GemmView& v, const Tile& tile, const Target& t) {
  Schedule s(program.func);
  for (const std::string& stage : program.copies) {
    if (stage == "pack_b" && !v.b_contiguous) {
      SchedulePackAcross(s, v, tile, t);
    } else {
      ScheduleElementwise(s, stage, t);
    }
  }

  std::vector<Loop> loops = s.Loops("out"), outer;
  Loop row, column;
  for (size_t d = 0; d < v.out_dims.size() && d < loops.size(); ++d) {
    GemmAxis axis = v.out_dims[d].axis;
    if (axis == GemmAxis::kBatch) outer.push_back(loops[d]);
    if (axis == GemmAxis::kRow) row = loops[d];
    if (axis == GemmAxis::kColumn) column = loops[d];
  }
  auto [row_tile, row_in] = s.Split(row, tile.mr);
  auto [panel, column_in] = s.Split(column, tile.nr);
  auto [vector, lane] = s.Split(column_in, tile.lanes);
  auto [block, panel_in] = s.Split(panel, tile.panels / tile.blocks);
  outer.insert(outer.end(), {block, row_tile});
  std::vector<Loop> order = outer;
  order.insert(order.end(), {panel_in, row_in, vector, lane});
  s.Reorder(order);

  if (tile.sums_apart) {
    SumApart(s, v, tile, panel_in);
  } else {
    TileAccumulators(s, "acc", panel_in, v.reduction.size(), tile.lanes, tile.unroll);
  }
  UnrollTile(s, "out");
  if (!s.status().ok()) return s.status();
  if (!tile.sums_apart) PrefetchOperands(s, v, tile, row_tile);
  Loop parallel = outer.front();
  for (size_t i = 1; i < outer.size(); ++i) parallel = s.Fuse(parallel, outer[i]);
  s.Parallel(parallel);
  s.Partition(panel_in);
  return LowerSchedule(s);
}

}  // namespace

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

// The sets of an x86 CPU's L1 span 4 KiB (their index does not depend on the translation), so rows whose distance has a
// large power of two in it crowd into few of them; one way is left to B's panel, which streams through all.
bool RowsCrowdOut(int64_t rows, int64_t stride_bytes, int64_t l1_bytes) {
  constexpr int64_t kSpan = 4096, kLine = 64;
  if (stride_bytes < kLine) return false;
  const int64_t places = std::min(kSpan / std::gcd(stride_bytes, kSpan), kSpan / kLine);
  return CeilDiv(rows, places) + 1 > std::max<int64_t>(l1_bytes / kSpan, 2);
}

std::vector<int64_t> TileVectors(int64_t columns, int64_t lanes) {
  std::vector<int64_t> vectors;
  for (int64_t nv : {1, 2, 3, 4, 6, 8}) {
    if (nv == 1 || (nv - 1) * lanes < columns) vectors.push_back(nv);
  }
  return vectors;
}

void RequireRegisters(ConfigSpace& space, const Target& t) {
  space.Require("the register tile does not fit the registers", [registers = t.vector_registers](const Config& c) {
    return TileRegisters(c["mr"], c["nv"]) <= registers;
  });
}

void RequireTile(ConfigSpace& space, int64_t columns, const Target& t) {
  RequireRegisters(space, t);
  space.Require("column blocks do not divide the panels",
                [columns, t](const Config& c) { return CeilDiv(columns, c["nv"] * LanesOf(c, t)) % c["blocks"] == 0; });
}

void DescribeTile(Footprint& f, int64_t rows, int64_t vectors, int64_t lanes) {
  f.vector_lanes = static_cast<double>(lanes);
  f.tile_rows = static_cast<double>(rows);
  f.tile_columns = static_cast<double>(vectors * lanes);
  f.tile_registers = static_cast<double>(TileRegisters(rows, vectors));
  f.loads_per_fma = static_cast<double>(rows + vectors) / static_cast<double>(rows * vectors);
}

ConfigSpace GemmSpace(const Workload& w, const GemmView& v, const Target& t) {
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
  space.Add("ku", {1, 2, 4});
  const bool constant_b = w.inputs[v.b_input].constant;
  space.Add("pack", constant_b || !v.b_contiguous ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1});
  RequireTile(space, v.columns, t);
  space.Require("the unrolling does not divide the reduction",
                [k = v.reduction.back()](const Config& c) { return k % c["ku"] == 0; });
  space.Require("columns in place need whole panels", [columns = v.columns, t](const Config& c) {
    return c["pack"] != 0 || columns % (c["nv"] * LanesOf(c, t)) == 0;
  });
  space.Require("the tile has vectors past the last column", [columns = v.columns, t](const Config& c) {
    return c["nv"] == 1 || (c["nv"] - 1) * LanesOf(c, t) < columns;
  });
  return space;
}

absl::StatusOr<Kernel> BuildGemm(const Workload& w, const GemmView& v, const Config& c, const Target& t) {
  const Tile tile(w, v, c, t);
  TEMPER_ASSIGN_OR_RETURN(Program program, BuildProgram(w, v, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleGemm(program, v, tile, t));
  kernel.packs.resize(w.inputs.size());
  if (w.inputs[v.b_input].constant) {
    TEMPER_ASSIGN_OR_RETURN(
        kernel.packs[v.b_input],
        BuildPack(
            "pack", w.inputs[v.b_input], PackedShape(v, tile),
            [&](const ir::Tensor& b, const std::vector<Expr>& index) { return PackedElement(v, tile, b, index); }, t));
  }
  return kernel;
}

Footprint GemmFootprint(const Workload& w, const GemmView& v, const Config& c, const Target& t) {
  const Tile tile(w, v, c, t);
  const double k = static_cast<double>(ReductionLength(v)), batch = static_cast<double>(v.batch);
  const double rows = static_cast<double>(v.rows), columns = static_cast<double>(v.columns);
  const double padded_columns = static_cast<double>(tile.panels * tile.nr);
  const double row_tiles = static_cast<double>(CeilDiv(v.rows, tile.mr));
  const double panel_bytes = 4 * k * static_cast<double>(tile.nr), rows_bytes = 4 * k * static_cast<double>(tile.mr);
  const double block_bytes = panel_bytes * static_cast<double>(tile.panels / tile.blocks);
  const double blocks = static_cast<double>(tile.blocks);

  Footprint f;
  f.flops = 2 * batch * rows * columns * k;
  // A last panel with vectors to spare computes none of them, but is a worse tile for it.
  const double whole_vectors = static_cast<double>(CeilDiv(v.columns, tile.lanes) * tile.lanes);
  f.padded_flops = 2 * batch * rows * (padded_columns + whole_vectors) / 2 * k;
  DescribeTile(f, tile.mr, tile.vectors, tile.lanes);
  f.reduction = k;
  f.sums = tile.sums_apart ? static_cast<double>(tile.unroll) : 1;
  f.l1_bytes = panel_bytes + rows_bytes;
  f.l2_bytes = block_bytes + rows_bytes;
  const double l1 = static_cast<double>(t.l1_bytes), l2 = static_cast<double>(t.l2_bytes);
  // Every row tile streams the block's panels; its own rows come once if they stay in L1 beside a panel's lines.
  const double block_panels = static_cast<double>(tile.panels / tile.blocks);
  // Lines pushed out of it are fetched whole for one element, again and again.
  const double a_fetches = RowsCrowdOut(tile.mr, 4 * v.a_row_stride, t.l1_bytes)
                               ? static_cast<double>(kLineElements) * block_panels
                           : rows_bytes <= l1 / 2 ? 1
                                                  : block_panels;
  const double b_streams = block_bytes <= l1 / 2 ? 1 : row_tiles;
  f.l2_traffic = batch * blocks * (row_tiles * rows_bytes * a_fetches + block_bytes * b_streams);
  // Past L2 and past L3 each block comes anew for every row tile if it does not fit, and A for every block.
  const double block_streams = batch * (block_bytes <= 0.75 * l2 ? std::min<double>(t.threads, row_tiles) : row_tiles);
  const double a_bytes = std::min(4 * batch * rows * k, Bytes(w.TypeOf(w.calls[w.anchor].args[0])));
  const double out_bytes = 4 * batch * rows * columns;
  const double l3 = 0.4 * static_cast<double>(t.l3_bytes);  // others use it too
  f.l3_traffic = blocks * a_bytes + blocks * block_bytes * block_streams + out_bytes;
  f.memory_traffic = (a_bytes + block_bytes <= l3 ? 1 : blocks) * a_bytes + out_bytes +
                     blocks * block_bytes * (block_bytes + rows_bytes <= l3 ? batch : block_streams);
  f.compulsory_bytes = CompulsoryBytes(w);
  f.parallel_chunks = batch * blocks * row_tiles;
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  // Columns that lie across memory are read a line of each at a time, and many crowd each other out of L1.
  const double across = v.b_contiguous ? 1 : 1 + static_cast<double>(tile.nr) / kLineElements;
  const bool packs = tile.pack && !w.inputs[v.b_input].constant;
  f.copies_bytes = packs ? 4 * batch * padded_columns * k * across : 0;
  const bool row_edge = v.rows % tile.mr != 0, column_edge = v.columns % tile.nr != 0;
  f.code_ops = static_cast<double>(tile.mr * tile.vectors * tile.unroll * (row_edge ? 2 : 1) * (column_edge ? 2 : 1));
  return f;
}

}  // namespace temper
