#include "compiler/ops/templates/gemm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

using ir::Expr;

double Bytes(const TensorType& t) { return static_cast<double>(BytesOf(t.dtype, NumElements(t.shape))); }
// Accumulators and operands; one vector folds its broadcast or its load into the multiply-add.
int64_t TileRegisters(int64_t rows, int64_t vectors) { return rows * vectors + (vectors == 1 ? 1 : vectors + 1); }
int64_t ReductionLength(const GemmView& v) { return NumElements(v.reduction); }

constexpr int64_t kEnoughAccumulators = 5;  // a multiply-add's cycles
constexpr int64_t kPrefetchBytes = 4096;    // how far ahead of its use B's panel is fetched where one tile uses it
constexpr int64_t kPrefetchingRows = 4;     // tiles of fewer rows live off loads, and have none to spare
constexpr int64_t kMostChunk = 12;          // row tiles that share a panel: more save little
constexpr int64_t kFewVectors = 16;         // of output for each thread: the most that a reduction is parted for
constexpr int64_t kLeastPart = 128;         // steps of a reduction that are worth a thread's start

}  // namespace

int64_t LanesOf(const Config& c, const CpuTarget& t) { return c.Has("vl") ? c["vl"] : t.lanes(); }

std::vector<int64_t> LanesOf(int64_t columns, const CpuTarget& t) {
  const int64_t whole = t.lanes(), half = whole / 2;
  const int64_t saved = (CeilDiv(columns, whole) * whole) - (CeilDiv(columns, half) * half);
  if (whole < 16 || 20 * saved < columns) return {whole};
  return {whole, half};
}

namespace {

int64_t PartsOf(const Config& c) { return c.Has("parts") ? c["parts"] : 1; }

// Threads share the reduction where the output is too small to be shared.
std::vector<int64_t> Parts(const GemmView& v, const CpuTarget& t) {
  std::vector<int64_t> parts = {1};
  if (v.batch * v.rows * CeilDiv(v.columns, t.lanes()) > kFewVectors * t.threads) return parts;
  for (int64_t p : {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
    if (p <= t.threads && v.reduction.back() % p == 0 && ReductionLength(v) >= p * kLeastPart) parts.push_back(p);
  }
  return parts;
}

// The sums of a reduction's parts: each part is a batch of its own.
GemmView PartSums(const GemmView& v, int64_t parts) {
  if (parts == 1) return v;
  GemmView sums = v;
  sums.batch = parts * v.batch;
  sums.reduction.back() /= parts;
  sums.out_dims = {{GemmAxis::kBatch, sums.batch, 1}, {GemmAxis::kRow, v.rows, 1}, {GemmAxis::kColumn, v.columns, 1}};
  return sums;
}

// What a config means for this view: the numbers that program, schedule and footprint all speak of.
struct Tile {
  int64_t lanes, mr, vectors, nr, panels, blocks, unroll;
  bool pack;            // B is packed, by the package or by the kernel
  bool sums_apart;      // unrolled steps of the reduction do not wait for each other
  int64_t row_tiles;    // of all rows
  bool blocks_outside;  // all rows pass by a block before the next one comes, rather than all blocks by a chunk of rows
  int64_t chunk;        // so many row tiles pass by a panel before the next one comes
  int64_t line;         // steps of the reduction between fetches of what comes next; 0: there are none
  bool prefetch_a, prefetch_b;
  Tile(const Workload& w, const GemmView& v, const Config& c, const CpuTarget& t)
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
        row_tiles(CeilDiv(v.rows, mr)),
        blocks_outside(v.columns > v.rows),
        chunk(Chunk(v, t)),
        line(LineStep(v)),
        prefetch_a(line > 0 && v.a_input >= 0 && v.reduction.size() == 1 &&
                   kElementBytes * v.batch * v.rows * v.reduction.back() > t.l2_bytes / 2),
        prefetch_b(StreamsB(w, v, t)) {}

  int64_t chunks() const { return CeilDiv(row_tiles, chunk); }
  int64_t units(const GemmView& v) const { return v.batch * chunks() * blocks; }  // of work, for the threads
  // Row tiles, each with a block, that the thread with most to do gets.
  int64_t MostOfAThread(const GemmView& v, const CpuTarget& t) const { return MostOfAThread(v, t, chunk); }

 private:
  // The first thread has at least as many units as any other; some of them may be of a last, smaller chunk.
  int64_t MostOfAThread(const GemmView& v, const CpuTarget& t, int64_t size) const {
    const int64_t count = CeilDiv(row_tiles, size), of_batch = count * blocks;
    const int64_t first = CeilDiv(v.batch * of_batch, t.threads), rest = first % of_batch;
    const int64_t smaller =
        first / of_batch * blocks + (blocks_outside ? rest / count : std::max<int64_t>(rest - of_batch + blocks, 0));
    return std::max(first * size - smaller * (count * size - row_tiles),
                    CeilDiv(v.batch * row_tiles * blocks, t.threads));
  }
  // As many as stay in L1, if those are some, or in L2 beside two panels, and as let threads share the work.
  int64_t Chunk(const GemmView& v, const CpuTarget& t) const {
    const int64_t k_bytes = kElementBytes * ReductionLength(v), l2 = t.l2_bytes;
    if (k_bytes * nr * (panels / blocks) <= t.l1_bytes / 2) return 1;  // B stays in L1 anyway
    const int64_t in_l1 = t.l1_bytes / 2 / (k_bytes * mr);
    const int64_t in_l2 = std::min(l2 / 2, l2 - 2 * k_bytes * nr) / (k_bytes * mr);
    const int64_t fit = in_l1 >= kMostChunk / 2 ? in_l1 : std::max<int64_t>(in_l2, 1);
    const int64_t most = std::min({fit, row_tiles, kMostChunk});
    int64_t least = MostOfAThread(v, t, 1);
    for (int64_t size = 2; size <= most; ++size) least = std::min(least, MostOfAThread(v, t, size));
    int64_t best = most;
    while (50 * MostOfAThread(v, t, best) > 51 * least) --best;
    return best;
  }
  // Whether B comes from beyond L2, and often enough used to be worth instructions.
  bool StreamsB(const Workload& w, const GemmView& v, const CpuTarget& t) const {
    const bool in_place = (w.inputs[v.b_input].constant || !pack) && !v.b_scale;
    const int64_t k = ReductionLength(v);
    if (!in_place || mr < kPrefetchingRows) return false;
    return chunk > 1 ? line > 0 && kElementBytes * k * panels * nr > t.l2_bytes / 2
                     : kElementBytes * k * nr > t.l1_bytes / 2;
  }
  // At most a line's elements of a row of A: what the loop over the reduction is cut into.
  int64_t LineStep(const GemmView& v) const {
    for (int64_t step = kLineElements; step >= kLineElements / 2; --step) {
      if (v.reduction.back() % step == 0 && step % unroll == 0) return step;
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
  std::string tiled = "out";        // what the tiles are stored to; "sums": of the parts, which the output adds up
};

absl::StatusOr<Program> BuildProgram(const Workload& w, const GemmView& v, const GemmView& sums, const Tile& tile) {
  const int64_t parts = sums.batch / v.batch;
  ir::ProgramBuilder b("gemm");
  Program result;
  const bool constant_b = w.inputs[v.b_input].constant;
  std::vector<Shape> packed(w.inputs.size());
  if (constant_b) packed[v.b_input] = PackedShape(v, tile);
  WorkloadProgram program(w, b, packed);
  TEMPER_RETURN_IF_ERROR(program.Compute(0, w.anchor));
  GemmView::AElement a_element = v.prepare(program, b, &result.copies);
  if (v.prologue) {
    Shape made = {v.batch, v.rows};
    made.insert(made.end(), v.reduction.begin(), v.reduction.end());
    const ir::Buffer a = b.Compute("a", kElement, made, [&](const std::vector<Expr>& i) {
      return a_element(i[0], i[1], {i.begin() + 2, i.end()});
    });
    a_element = [a](const Expr& batch, const Expr& row, const std::vector<Expr>& r) {
      std::vector<Expr> index = {batch, row};
      index.insert(index.end(), r.begin(), r.end());
      return ir::Load(a, index);
    };
  }

  ir::Buffer packed_b;
  if (constant_b) {
    packed_b = program.buffer(v.b_input);
  } else if (tile.pack) {
    packed_b = b.Compute("pack_b", kElement, PackedShape(v, tile), [&](const std::vector<Expr>& index) {
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
  auto b_element = [&](const Expr& batch, const Expr& column, const std::vector<Expr>& r) {
    if (!tile.pack) return v.b_element(program.value(v.b_input), batch, column, r);
    std::vector<Expr> index = {v.b_batched ? batch : Expr(0), column / Expr(tile.nr)};
    index.insert(index.end(), r.begin(), r.end());
    index.push_back(column % Expr(tile.nr));
    return ir::Load(packed_b, index);
  };
  const Shape acc_shape = {sums.batch, v.rows, tile.panels * tile.nr};
  ir::Buffer acc = b.Reduce("acc", kElement, acc_shape, sums.reduction, ir::Combiner::kSum,
                            [&](const std::vector<Expr>& i, std::vector<Expr> r) {
                              if (parts == 1) return a_element(i[0], i[1], r) * b_element(i[0], i[2], r);
                              r.back() = i[0] / Expr(v.batch) * Expr(sums.reduction.back()) + r.back();
                              const Expr batch = i[0] % Expr(v.batch);
                              return a_element(batch, i[1], r) * b_element(batch, i[2], r);
                            });
  ir::Buffer stored = acc;
  if (parts > 1) {
    result.tiled = "sums";
    stored = b.Compute("sums", kElement, acc_shape, [&](const std::vector<Expr>& i) { return ir::Load(acc, i); });
  }

  // The epilogue reads the anchor at the very element that is being written, so the accumulator stands for it.
  Expr current;
  program.SetResult(
      w.anchor, ir::Tensor(kElement, w.calls[w.anchor].type.shape, [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  Shape out_shape;
  for (const GemmView::Dim& dim : v.out_dims) out_shape.push_back(dim.extent);
  ir::Buffer out = b.Compute("out", w.output().dtype, out_shape, [&](const std::vector<Expr>& index) {
    Expr batch(0), row(0), column(0);
    for (size_t d = 0; d < index.size(); ++d) {
      Expr& axis = v.out_dims[d].axis == GemmAxis::kBatch ? batch : v.out_dims[d].axis == GemmAxis::kRow ? row : column;
      axis = axis + index[d] * Expr(v.out_dims[d].stride);
    }
    current = ir::Load(stored, {batch, row, column});
    for (int64_t p = 1; p < parts; ++p) {
      current = current + ir::Load(stored, {Expr(p * v.batch) + batch, row, column});
    }
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
void SchedulePackAcross(Schedule& s, const GemmView& v, const Tile& tile, const CpuTarget& t) {
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

// The loops around the tiles.
struct TileLoops {
  Loop chunk, panel, row_tile;
};

// Fetches what comes next while a tile computes. Of the next panel each tile of the chunk brings a share to L2, and of
// the next chunk's rows each panel brings some, a line of them at a time.
void PrefetchOperands(Schedule& s, const GemmView& v, const Tile& tile, const TileLoops& around) {
  const std::vector<Loop> loops = s.Loops("acc");
  if (!s.status().ok() || (!tile.prefetch_a && !tile.prefetch_b)) return;
  const size_t row = loops.size() - 3, vector = loops.size() - 2;
  const bool unrolled = tile.unroll > 1;
  const Loop k = loops[row - (unrolled ? 2 : 1)], step = unrolled ? loops[row - 1] : k;
  const std::string a = absl::StrCat("in", v.a_input), b = absl::StrCat("in", v.b_input);
  std::vector<Loop> lines;
  if (tile.nr > kLineElements) lines.push_back(loops[vector]);
  if (tile.prefetch_b && tile.chunk == 1) {
    std::vector<Loop> each = lines;
    if (unrolled) each.insert(each.begin(), step);
    s.Prefetch("acc", b, k, std::max<int64_t>(kPrefetchBytes / (kElementBytes * tile.nr * tile.unroll), 1), k, each);
  }
  if (!tile.prefetch_a && tile.chunk == 1) return;
  auto [line, inner] = s.Split(k, tile.line / tile.unroll);
  if (tile.prefetch_a) {
    const int64_t rows = CeilDiv(tile.mr, tile.panels / tile.blocks);
    for (int64_t r = 0; r < rows; ++r) {
      s.PrefetchAt("acc", a, line,
                   {{around.chunk, Expr(around.chunk) + Expr(1)},
                    {inner, Expr(0)},
                    {loops[row], Expr(around.panel) * Expr(rows) + Expr(r)}},
                   {}, 2);
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
      s.PrefetchAt("acc", b, line, place, lines, 2);
    }
  }
}

// What a chunk's tiles read of A is made before the first of them, and lies row by row in cache.
void SchedulePrologue(Schedule& s, const Loop& under, const CpuTarget& t) {
  s.ComputeAt("a", under);
  const std::vector<Loop> loops = s.Loops("a");
  if (!s.status().ok() || s.Extent(loops.back()) < t.lanes()) return;
  auto [rest, lane] = s.Split(loops.back(), VectorLength(s.Extent(loops.back()), t.lanes(), 4));
  s.Vectorize(lane);
  s.Partition(rest);
}

absl::StatusOr<ir::Func> ScheduleGemm(const Program& program, const GemmView& v, const Tile& tile, const CpuTarget& t) {
  Schedule s(program.func);
  for (const std::string& stage : program.copies) {
    if (stage == "pack_b" && !v.b_contiguous) {
      SchedulePackAcross(s, v, tile, t);
    } else {
      ScheduleElementwise(s, stage, t);
    }
  }

  if (program.tiled != "out") ScheduleElementwise(s, "out", t);
  std::vector<Loop> loops = s.Loops(program.tiled), outer;
  Loop row, column;
  for (size_t d = 0; d < v.out_dims.size() && d < loops.size(); ++d) {
    GemmAxis axis = v.out_dims[d].axis;
    if (axis == GemmAxis::kBatch) outer.push_back(loops[d]);
    if (axis == GemmAxis::kRow) row = loops[d];
    if (axis == GemmAxis::kColumn) column = loops[d];
  }
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

  if (tile.sums_apart) {
    SumApart(s, v, tile, row_tile);
  } else {
    TileAccumulators(s, "acc", row_tile, v.reduction.size(), tile.lanes, tile.unroll);
  }
  UnrollTile(s, program.tiled);
  if (v.prologue) SchedulePrologue(s, outer.back(), t);
  if (!s.status().ok()) return s.status();
  if (!tile.sums_apart) PrefetchOperands(s, v, tile, {chunk, panel_in, row_tile});
  Loop parallel = outer.front();
  for (size_t i = 1; i < outer.size(); ++i) parallel = s.Fuse(parallel, outer[i]);
  s.Parallel(parallel);
  s.Partition(row_tile);
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

namespace {

// Vector instructions for each vector that the calls before the anchor make.
double PrologueOps(const Workload& w) {
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
  space.Add("ku", {1, 2, 4});
  const bool constant_b = w.inputs[v.b_input].constant;
  space.Add("pack", constant_b || !v.b_contiguous ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1});
  RequireTile(space, v.columns, t);
  space.Require("the unrolling does not divide the reduction",
                [k = v.reduction.back()](const Config& c) { return k % (PartsOf(c) * c["ku"]) == 0; });
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
  const Tile tile(w, sums, c, t);
  TEMPER_ASSIGN_OR_RETURN(Program program, BuildProgram(w, v, sums, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleGemm(program, sums, tile, t));
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

CpuFootprint GemmFootprint(const Workload& w, const GemmView& whole, const Config& c, const CpuTarget& t) {
  const GemmView v = PartSums(whole, PartsOf(c));
  const Tile tile(w, v, c, t);
  const double k = static_cast<double>(ReductionLength(v)), batch = static_cast<double>(v.batch);
  const double rows = static_cast<double>(v.rows), columns = static_cast<double>(v.columns);
  const double padded_columns = static_cast<double>(tile.panels * tile.nr);
  const double row_tiles = static_cast<double>(tile.row_tiles), chunks = static_cast<double>(tile.chunks());
  const double panel_bytes = kElementBytes * k * static_cast<double>(tile.nr),
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
  if (v.prologue) {
    // Every block makes A anew, from elsewhere to where tiles read it.
    const double made = batch * blocks * rows * k;
    if (chunk_bytes > l1 / 2) f.l2_traffic += 2 * kElementBytes * made;
    f.prologue_ops = made / t.lanes() * PrologueOps(w);
  }
  // Past L2 and L3 what the outer of the two loops goes through comes once, and what the inner one does comes anew for
  // each of its steps if it does not fit beside.
  const double a_bytes = std::min(kElementBytes * batch * rows * k, Bytes(w.TypeOf(w.calls[w.anchor].args[0])));
  const double b_bytes = blocks * block_bytes, out_bytes = kElementBytes * batch * rows * columns;
  const auto traffic = [&](double cache) {
    const double kept_b = tile.blocks_outside ? block_bytes : b_bytes, kept_a = a_bytes / batch;
    const double a = !tile.blocks_outside || kept_a + block_bytes <= cache ? 1 : blocks;
    const double b = kept_b + chunk_bytes <= cache ? 1 : panel_bytes + chunk_bytes <= cache ? chunks : row_tiles;
    return a * a_bytes + b * batch * b_bytes + out_bytes;
  };
  f.l3_traffic = traffic(l2);
  f.memory_traffic = traffic(std::max(l2, l3));
  f.compulsory_bytes = CompulsoryBytes(w);
  f.parallel_chunks = static_cast<double>(tile.units(v));
  f.chunk_imbalance = static_cast<double>(tile.MostOfAThread(v, t) * t.threads) / (batch * blocks * row_tiles);
  // Columns that lie across memory are read a line of each at a time, and many crowd each other out of L1.
  const double across = v.b_contiguous ? 1 : 1 + static_cast<double>(tile.nr) / kLineElements;
  const bool packs = tile.pack && !w.inputs[v.b_input].constant;
  f.copies_bytes = packs       ? kElementBytes * batch * padded_columns * k * across
                   : v.b_scale ? kElementBytes * padded_columns * k
                               : 0;
  if (PartsOf(c) > 1) f.copies_bytes += 2 * kElementBytes * batch * rows * padded_columns;
  const bool row_edge = v.rows % tile.mr != 0, column_edge = v.columns % tile.nr != 0;
  f.code_ops = static_cast<double>(tile.mr * tile.vectors * tile.unroll * (row_edge ? 2 : 1) * (column_edge ? 2 : 1));
  return f;
}

}  // namespace temper
