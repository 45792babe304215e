// attention.rows: a few queries of a head at a time. Their scores, what softmax makes of these and the sums of values
// follow one another through scratch that stays in a core's cache, where three kernels take scores of all queries
// through memory. Keys and values are packed into panels first: once for all queries, or where a head's queries are one
// chunk, for that.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ops/templates/attention.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"
#include "compiler/ops/templates/vectors.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kVectors = 4;  // of a row of scores that softmax has at once

// Whether softmax's result is multiplied as it is: then the sums of values are divided, and not each share.
bool DividesLate(const Workload& w, const Attention& a) {
  return w.calls[w.anchor].args[0] == static_cast<int>(w.inputs.size()) + a.softmax;
}

// A product's operand in panels of columns.
struct Panels {
  int64_t vectors, nr, count;
  Panels(const GemmView& v, int64_t vectors, const CpuTarget& t)
      : vectors(vectors), nr(vectors * t.lanes()), count(CeilDiv(v.columns, nr)) {}
  int64_t columns() const { return count * nr; }
};

// Steps of a product between turns of its loop.
constexpr int64_t kUnroll = 4;
int64_t UnrolledSteps(int64_t steps) { return steps % kUnroll == 0 ? kUnroll : 1; }

// What a config means.
struct Tiles {
  bool whole_heads;  // a chunk is a head
  int64_t mr, rows;
  Panels keys, values;
  int64_t padded_keys;  // zeros behind the last one's share make whole turns
  Tiles(const Workload& w, const Attention& a, const Config& c, const CpuTarget& t)
      : whole_heads(c["tiles"] == 0),
        mr(c["mr"]),
        rows(whole_heads ? a.rows() : mr * c["tiles"]),
        keys(a.scores, c["nv"], t),
        values(a.shares, c["vv"], t),
        padded_keys(DividesLate(w, a) ? CeilDiv(a.keys(), kUnroll) * kUnroll : a.keys()) {}
  int64_t chunks(const Attention& a) const { return a.batch() * CeilDiv(a.rows(), rows); }
};

// For each row of a chunk: scores, their powers and, where these are no factors themselves, factors.
int64_t ScratchBytes(const Workload& w, const Attention& a) {
  return (DividesLate(w, a) ? 2 : 3) * kElementBytes * a.keys();
}

bool Matches(const Workload& w) {
  const std::optional<Attention> a = Attention::Of(w);
  return a && IsOfElement(w, w.calls[0]) && IsOfElement(w, w.calls[w.anchor]) && a->score == kElement &&
         a->share == kElement;
}

ConfigSpace Space(const Workload& w, const CpuTarget& t) {
  const Attention a = *Attention::Of(w);
  ConfigSpace space;
  std::vector<int64_t> rows, tiles;
  for (int64_t mr : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14}) {
    if (mr <= a.rows() && mr + 2 <= t.vector_registers) rows.push_back(mr);
  }
  if (a.rows() * ScratchBytes(w, a) <= t.l2_bytes) tiles.push_back(0);
  for (int64_t n : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20}) {
    if (n == 1 || n < a.rows()) tiles.push_back(n);
  }
  space.Add("mr", rows);
  space.Add("nv", TileVectors(a.keys(), t.lanes()));
  space.Add("vv", TileVectors(a.shares.columns, t.lanes()));
  space.Add("tiles", tiles);
  RequireRegisters(space, t);
  space.Require("the values' tile does not fit the registers", [registers = t.vector_registers](const Config& c) {
    return TileRegisters(c["mr"], c["vv"]) <= registers;
  });
  space.Require("a chunk has tiles past the last row",
                [rows = a.rows()](const Config& c) { return c["tiles"] <= 1 || (c["tiles"] - 1) * c["mr"] < rows; });
  space.Require("a chunk's scores do not stay in cache", [row = ScratchBytes(w, a), l2 = t.l2_bytes](const Config& c) {
    return c["tiles"] <= 1 || c["tiles"] * c["mr"] * row <= l2;
  });
  return space;
}

// The operand B of a product in panels, zero past its columns and its reduction's `length`.
ir::Buffer Pack(ir::ProgramBuilder& b, const std::string& name, const GemmView& v, const Panels& panels, int64_t length,
                const ir::Tensor& operand) {
  return b.Compute(name, kElement, {v.batch, panels.count, length, panels.nr}, [&](const std::vector<Expr>& i) {
    const Expr column = i[1] * Expr(panels.nr) + i[3];
    std::vector<Expr> conditions;
    if (panels.columns() != v.columns) conditions.push_back(column < Expr(v.columns));
    if (length != ReductionLength(v)) conditions.push_back(i[2] < Expr(ReductionLength(v)));
    return ValueWhere(conditions, v.b_element(operand, i[0], column, {i[2]}));
  });
}

// The sums of a product, of `panels` of B.
ir::Buffer Product(ir::ProgramBuilder& b, const std::string& name, const GemmView& v, const Panels& panels,
                   const ir::Buffer& packed, const GemmView::AElement& a_element) {
  return b.Reduce(name, kElement, {v.batch, v.rows, panels.columns()}, {packed->shape[2]}, ir::Combiner::kSum,
                  [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                    return a_element(i[0], i[1], r) *
                           ir::Load(packed, {i[0], i[2] / Expr(panels.nr), r[0], i[2] % Expr(panels.nr)});
                  });
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Attention& a, const Tiles& tiles) {
  ir::ProgramBuilder b("attention");
  WorkloadProgram program(w, b);
  const ir::Buffer keys =
      Pack(b, "keys", a.scores, tiles.keys, ReductionLength(a.scores), program.value(a.scores.b_input));
  const ir::Buffer values =
      Pack(b, "values", a.shares, tiles.values, tiles.padded_keys, program.value(a.shares.b_input));
  const ir::Buffer product = Product(b, "product", a.scores, tiles.keys, keys, a.scores.prepare(program, b, nullptr));
  TEMPER_ASSIGN_OR_RETURN(const ScoreElement score_of, ScoresOf(w, a, program));
  const Shape by_row = {a.batch(), a.rows()};
  const int64_t padded = tiles.padded_keys;
  const ir::Buffer scores =
      b.Compute("scores", kElement, {a.batch(), a.rows(), a.keys()},
                [&](const std::vector<Expr>& i) { return score_of(ir::Load(product, i), i[0], i[1], i[2]); });
  const auto of_row = [](const std::vector<Expr>& i, const std::vector<Expr>& r) {
    return std::vector<Expr>{i[0], i[1], r[0]};
  };
  const ir::Buffer most =
      b.Reduce("most", kElement, by_row, {a.keys()}, ir::Combiner::kMax,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) { return ir::Load(scores, of_row(i, r)); });
  const ir::Buffer powers =
      b.Compute("powers", kElement, {a.batch(), a.rows(), padded}, [&](const std::vector<Expr>& i) {
        const Expr power = ir::Exp(ir::Load(scores, i) - ir::Load(most, {i[0], i[1]}));
        return padded == a.keys() ? power : ValueWhere({i[2] < Expr(a.keys())}, power);
      });
  const ir::Buffer sum =
      b.Reduce("sum", kElement, by_row, {padded}, ir::Combiner::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) { return ir::Load(powers, of_row(i, r)); });
  const ir::Buffer share =
      b.Compute("share", kElement, by_row, [&](const std::vector<Expr>& i) { return ir::Float(1) / ir::Load(sum, i); });
  const bool divides_late = DividesLate(w, a);
  ir::Buffer factors = powers;
  if (!divides_late) {
    TEMPER_ASSIGN_OR_RETURN(const ScoreElement share_of, SharesOf(w, a, program));
    factors = b.Compute("factors", kElement, {a.batch(), a.rows(), a.keys()}, [&](const std::vector<Expr>& i) {
      return share_of(ir::Load(powers, i) * ir::Load(share, {i[0], i[1]}), i[0], i[1], i[2]);
    });
  }
  const ir::Buffer acc = Product(b, "acc", a.shares, tiles.values, values,
                                 [&](const Expr& batch, const Expr& row, const std::vector<Expr>& r) {
                                   return ir::Load(factors, {batch, row, r[0]});
                                 });
  TEMPER_RETURN_IF_ERROR(MarkOut(w, a.shares, program, b, [&](const Expr& batch, const Expr& row, const Expr& column) {
    const Expr element = ir::Load(acc, {batch, row, column});
    return divides_late ? element * ir::Load(share, {batch, row}) : element;
  }));
  return b.Finish();
}

// The loops of a stage over rows and columns become tiles, and so do the sums that it takes. Returns the loop of tiles.
Loop TileProduct(Schedule& s, const std::string& sums, const std::string& stage, const Loop& row, const Loop& column,
                 int64_t mr, const Panels& panels, int64_t steps, const CpuTarget& t) {
  auto [row_tile, row_in] = s.Split(row, mr);
  auto [panel, column_in] = s.Split(column, panels.nr);
  auto [vector, lane] = s.Split(column_in, t.lanes());
  s.Reorder({panel, row_tile, row_in, vector, lane});
  TileAccumulators(s, sums, row_tile, 1, t.lanes(), UnrolledSteps(steps));
  if (stage == "out") FetchForStore(s, stage, row_tile, row_in, vector, panels.nr);
  UnrollTile(s, stage);
  return row_tile;
}

// Rows of a chunk begin at cache lines, which tiles of several rows find in different sets of L1.
void AlignRows(Schedule& s, const Attention& a, const std::string& stage) {
  int64_t row = CeilDiv(a.keys(), kLineElements) * kLineElements;
  if (kElementBytes * row % (kL1Span / 4) == 0) row += kLineElements;
  if (row == a.keys()) return;
  s.TransformLayout(stage, {a.batch(), a.rows() * row}, [row](const std::vector<Expr>& i) {
    return std::vector<Expr>{i[0], i[1] * Expr(row) + i[2]};
  });
}

// Panels that a chunk makes for itself.
void PackForHead(Schedule& s, const std::string& stage, const Loop& chunk, const CpuTarget& t) {
  s.ComputeAt(stage, chunk);
  const std::vector<Loop> loops = s.Loops(stage);
  if (!s.status().ok()) return;
  auto [vector, lane] = s.Split(loops.back(), t.lanes());
  s.Vectorize(lane);
  s.Unroll(vector);
}

// While a chunk's scores are summed, the next one's queries are on their way: each panel of keys brings some lines of
// each row.
void FetchQueries(Schedule& s, const Workload& w, const Attention& a, const Loop& chunk, const Loop& tile) {
  const std::vector<Loop> loops = s.Loops("product");  // ..., panel, tile, step[, unrolled], row, vector, lane
  if (!s.status().ok()) return;
  const size_t at_tile = static_cast<size_t>(std::ranges::find(loops, tile) - loops.begin());
  const Loop panel = loops[at_tile - 1], step = loops[at_tile + 1], row = loops[loops.size() - 3];
  const int64_t lines = CeilDiv(ReductionLength(a.scores), kLineElements), each = CeilDiv(lines, s.Extent(panel));
  const int64_t steps = kLineElements / (step == loops[loops.size() - 4] ? 1 : kUnroll);
  for (int64_t i = 0; i < each; ++i) {
    const Expr line = ir::Min(Expr(panel) * Expr(each) + Expr(i), Expr(lines - 1));
    std::vector<ir::VarBinding> place = {{chunk, Expr(chunk) + Expr(1)}, {step, line * Expr(steps)}};
    if (steps < kLineElements) place.push_back({loops[at_tile + 2], Expr(0)});
    s.PrefetchAt("product", absl::StrCat("in", w.calls[0].args[0]), tile, place, {row});
  }
}

// A row of scores at a time, while it is in L1.
void ScheduleSoftmax(Schedule& s, const CpuTarget& t) {
  const Lanes lanes{t.lanes(), kVectors};
  const std::vector<Loop> loops = s.Loops("powers");
  if (!s.status().ok()) return;
  const Loop row = loops[loops.size() - 2];
  s.ComputeAt("most", row);
  s.ReverseComputeAt("sum", row);
  s.ReverseComputeAt("share", row);
  for (const auto& [stage, count] : {std::pair("most", 0), std::pair("powers", 1), std::pair("sum", 0)})
    ScheduleInside(s, stage, static_cast<size_t>(count), lanes);
}

absl::StatusOr<ir::Func> ScheduleChunks(ir::Func func, const Workload& w, const Attention& a, const Tiles& tiles,
                                        const CpuTarget& t) {
  Schedule s(std::move(func));
  auto [outer, row, column] = LoopsByAxis(s.Loops("out"), OutAxes(a.shares));
  auto [chunk, row_in] = s.Split(row, tiles.rows);
  outer.push_back(chunk);
  std::vector<Loop> order = outer;
  order.insert(order.end(), {row_in, column});
  s.Reorder(order);
  const Loop out_tiles = TileProduct(s, "acc", "out", row_in, column, tiles.mr, tiles.values, tiles.padded_keys, t);
  const auto is_stage = [stages = s.Blocks()](const char* name) {
    return std::ranges::find(stages, name) != stages.end();
  };
  for (const char* stage : {"factors", "share", "sum", "powers", "most", "scores"}) {
    if (is_stage(stage)) s.ComputeAt(stage, chunk);
  }
  ScheduleSoftmax(s, t);
  const std::vector<Loop> scores = s.Loops("scores");
  if (!s.status().ok()) return s.status();
  const Loop score_tiles = TileProduct(s, "product", "scores", scores[scores.size() - 2], scores.back(), tiles.mr,
                                       tiles.keys, ReductionLength(a.scores), t);
  if (tiles.whole_heads) {
    for (const char* pack : {"keys", "values"}) PackForHead(s, pack, chunk, t);
  } else {
    SchedulePack(s, "keys", a.scores, tiles.keys.nr, t.lanes(), t);
    SchedulePack(s, "values", a.shares, tiles.values.nr, t.lanes(), t);
    FetchQueries(s, w, a, chunk, score_tiles);
  }
  for (const char* stage : {"scores", "powers", "factors"}) {
    if (is_stage(stage)) AlignRows(s, a, stage);
  }
  const Loop parallel = FuseAll(s, outer);
  s.Parallel(parallel);
  s.Partition(score_tiles);
  s.Partition(out_tiles);
  return Finished(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Attention a = *Attention::Of(w);
  const Tiles tiles(w, a, c, t);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, a, tiles));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleChunks(std::move(func), w, a, tiles, t));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  // Instructions for a vector of scores, the exponential and two reductions; and for a row, across lanes.
  constexpr double kOpsOfScore = 24, kOpsOfRow = 90;
  const Attention a = *Attention::Of(w);
  const Tiles tiles(w, a, c, t);
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  const double batch = count(a.batch()), rows = count(a.rows()), keys = count(a.keys());
  const double depth = count(ReductionLength(a.scores)), width = count(a.shares.columns);
  const double chunks = batch * std::ceil(rows / count(tiles.rows)),
               row_tiles = batch * std::ceil(rows / count(tiles.mr));
  const double bytes_of_keys = kElementBytes * depth * count(tiles.keys.columns()),
               bytes_of_values = kElementBytes * keys * count(tiles.values.columns());
  const double scratch = count(tiles.rows * ScratchBytes(w, a)), scores = batch * rows * keys;
  CpuFootprint f;
  f.flops = 2 * scores * (depth + width);
  f.padded_flops = 2 * batch * rows * (depth * count(tiles.keys.columns()) + keys * count(tiles.values.columns()));
  // Of both products: in the mean, as they take about as long.
  DescribeTile(f, tiles.mr, tiles.keys.vectors, t.lanes());
  CpuFootprint second;
  DescribeTile(second, tiles.mr, tiles.values.vectors, t.lanes());
  f.tile_columns = (f.tile_columns + second.tile_columns) / 2;
  f.tile_registers = std::max(f.tile_registers, second.tile_registers);
  f.loads_per_fma = (f.loads_per_fma + second.loads_per_fma) / 2;
  f.reduction = 2 / (1 / depth + 1 / keys);
  f.turns = 1.0 / UnrolledSteps(tiles.padded_keys);
  f.last_rows = count(a.rows() % tiles.rows % tiles.mr);
  f.last_part = f.last_rows / rows;
  f.prologue_ops = kOpsOfScore * scores / t.lanes() + kOpsOfRow * batch * rows;
  const double panel_of_values = kElementBytes * keys * count(tiles.values.nr), l1 = count(t.l1_bytes),
               l2 = 0.75 * count(t.l2_bytes);
  f.l1_bytes = kElementBytes * depth * count(tiles.keys.nr + tiles.rows);
  f.l2_bytes = scratch + panel_of_values;
  // Scores are stored and read, become powers likewise, and are read for each panel of values; these come anew for
  // each tile of rows, unless they stay in L1.
  const double of_scores = kElementBytes * scores * (4 + count(tiles.values.count));
  f.l2_traffic =
      of_scores + chunks * bytes_of_keys + (panel_of_values <= l1 / 2 ? chunks : row_tiles) * bytes_of_values;
  f.compulsory_bytes = CompulsoryBytes(w);
  f.memory_traffic = f.compulsory_bytes;
  const double of_head = bytes_of_keys + bytes_of_values;
  f.l3_traffic = f.memory_traffic + (of_head + scratch <= l2 ? 0 : chunks * of_head) +
                 (scratch + panel_of_values <= l2 ? 0 : of_scores);
  // A chunk's first tile waits for each panel of keys.
  f.prologue_ops += chunks * bytes_of_keys / count(kLineBytes);
  f.copies_bytes = tiles.whole_heads ? 0 : batch * of_head;
  if (tiles.whole_heads) f.prologue_ops += 4 * batch * of_head / kElementBytes / t.lanes();
  f.parallel_chunks = chunks;
  f.chunk_imbalance = std::ceil(chunks / t.threads) * t.threads / chunks;
  f.code_ops = count(tiles.mr * (tiles.keys.vectors + tiles.values.vectors));
  return f;
}

}  // namespace

CpuTemplate AttentionRows() { return {"attention.rows", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
