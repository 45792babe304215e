#include "compiler/ops/templates/gpu_tensor.h"

#include <algorithm>

#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

constexpr int64_t kSide = ir::kMatrixSide;

}  // namespace

TensorTile::TensorTile(DType type, int64_t warps, const Config& c)
    : type(type),
      warps(warps),
      wm(c["wm"]),
      wn(c["wn"]),
      tm(c["tm"]),
      tn(c["tn"]),
      bk(c["bk"]),
      stages(c["stages"]),
      split(c.Has("split") ? c["split"] : 1) {}

TensorTiles::TensorTiles(const GemmView& v, const TensorTile& tile)
    : slices(v.batch * tile.split),
      rows(CeilDiv(v.rows, tile.bm())),
      columns(CeilDiv(v.columns, tile.bn())),
      steps(CeilDiv(CeilDiv(ReductionLength(v), tile.bk), tile.split)) {}

int64_t CopiedAtOnce(DType type, const Run& run) {
  int64_t lanes = ir::QuarterColumns(type);
  while (run.length % lanes != 0) lanes /= 2;
  return lanes;
}

TensorOperand::TensorOperand(std::string stage, const Run& run, int64_t size, const TensorTile& tile)
    : stage(std::move(stage)), type(tile.type), run(run), size(size), bk(tile.bk), split(tile.split) {
  if (tile.warps > 1) return;
  // A load takes eight rows; of f32, where the rows are steps of the reduction, two runs of each of four.
  loaded_rows = run.along_reduction || tile.bytes() == 2 ? kLaneRows : kLaneRows / 2;
  loaded_runs = kLaneRows / loaded_rows;
}

Expr TensorOperand::Turn(const Expr& row) const {
  const int64_t apart = std::min(runs() / loaded_runs, loaded_rows);  // rows that lie in the same banks
  return row % Expr(loaded_rows) / Expr(loaded_rows / apart) * Expr(loaded_runs);
}

ir::Buffer TensorOperand::Stage(ir::ProgramBuilder& b, int64_t batch, int64_t tiles, int64_t steps,
                                const OperandElement& element) const {
  return b.Compute(stage, type, {batch * split, tiles, steps, rows(), runs(), run_length()}, [&](const auto& i) {
    const Expr step = i[0] % Expr(split) * Expr(steps) + i[2];
    const Expr at = loaded_rows == 0 ? i[4] : (i[4] + Expr(runs()) - Turn(i[3])) % Expr(runs());
    const Expr fast = at * Expr(run_length()) + i[5];
    return UnderOneCondition(element(i[0] / Expr(split), i[1] * Expr(size) + (run.along_reduction ? i[3] : fast),
                                     step * Expr(bk) + (run.along_reduction ? fast : i[3])));
  });
}

Expr TensorOperand::Element(const ir::Buffer& shared, std::vector<Expr> at, const Expr& outer, const Expr& k) const {
  const Expr &slow = run.along_reduction ? outer : k, &fast = run.along_reduction ? k : outer;
  const Expr of_row = fast / Expr(run_length());
  at.insert(at.end(),
            {slow, loaded_rows == 0 ? of_row : (of_row + Turn(slow)) % Expr(runs()), fast % Expr(run_length())});
  return ir::Load(shared, at);
}

Expr UnderOneCondition(Expr value) {
  std::vector<Expr> conditions;
  for (; value->kind == ir::ExprKind::kSelect; value = value->args[1]) {
    if (!ir::StructurallyEqual(value, ValueWhere({value->args[0]}, value->args[1]))) break;
    conditions.push_back(value->args[0]);
  }
  return ValueWhere(conditions, value);
}

ir::Buffer TensorSums(ir::ProgramBuilder& b, const std::string& name, const TensorTile& tile, const TensorTiles& tiles,
                      const FactorsAt& factors) {
  // As the instruction takes it.
  const auto factor = [](const Expr& element) {
    return element->dtype == DType::kF32 ? ir::Tf32(element) : ir::Cast(element, DType::kF32);
  };
  return b.Reduce(
      name, DType::kF32,
      {tiles.slices, tiles.rows, tiles.columns, tile.wm * tile.wn * tile.warps, kLaneRows, kLaneColumns, tile.tm,
       tile.tn, ir::kFragmentLength},
      {tiles.steps, tile.bk / tile.depth(), tile.depth()}, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr team = i[3] / Expr(tile.warps), warp = i[3] % Expr(tile.warps), &e = i[8];
        const Expr row = (team / Expr(tile.wn) * Expr(tile.tm) + i[6]) * Expr(tile.matrix_rows()) + warp * Expr(kSide) +
                         i[4] + e / Expr(2) % Expr(2) * Expr(kLaneRows);
        const Expr column = (team % Expr(tile.wn) * Expr(tile.tn) + i[7]) * Expr(kSide) + i[5] * Expr(2) + e % Expr(2) +
                            e / Expr(4) * Expr(kLaneRows);
        const auto [a, of_b] = factors({i[0], i[1], i[2]}, r[0], row, column, r[1] * Expr(tile.depth()) + r[2]);
        return factor(a) * factor(of_b);
      });
}

Expr TensorSumAt(const ir::Buffer& sums, const TensorTile& tile, const Expr& slice, const Expr& row,
                 const Expr& column) {
  const Expr team = row / Expr(tile.tm * tile.matrix_rows()) % Expr(tile.wm) * Expr(tile.wn) +
                    column / Expr(tile.tn * kSide) % Expr(tile.wn);
  const Expr warp = team * Expr(tile.warps) + row / Expr(kSide) % Expr(tile.warps);
  const Expr e =
      column % Expr(2) + row / Expr(kLaneRows) % Expr(2) * Expr(2) + column / Expr(kLaneRows) % Expr(2) * Expr(4);
  return ir::Load(sums, {slice, row / Expr(tile.bm()), column / Expr(tile.bn()), warp, row % Expr(kLaneRows),
                         column / Expr(2) % Expr(kLaneColumns), row / Expr(tile.matrix_rows()) % Expr(tile.tm),
                         column / Expr(kSide) % Expr(tile.tn), e});
}

void BindWarps(Schedule& s, const Loop& warp, const Loop& y, const Loop& x) {
  s.Bind(warp, ForKind::kThreadZ);
  s.Bind(y, ForKind::kThreadY);
  s.Bind(x, ForKind::kThreadX);
}

DealtRuns DealRuns(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes) {
  const std::vector<Loop> loops = s.Loops(stage);
  if (!s.status().ok()) return {};
  const std::vector<Loop> inner = Innermost(loops, 3);
  auto [parts, lane] = s.Split(inner[2], lanes);
  auto [turn, thread] = s.Split(FuseAll(s, {inner[0], inner[1], parts}), threads);
  auto [rows, x] = s.Split(thread, kLaneColumns);
  auto [warp, y] = s.Split(rows, kLaneRows);
  s.Reorder({warp, y, x, turn, lane});
  BindWarps(s, warp, y, x);
  return {turn, lane};
}

void ScheduleCopies(Schedule& s, const std::string& stage, int64_t threads, int64_t lanes) {
  const auto [turn, lane] = DealRuns(s, stage, threads, lanes);
  s.Unroll(turn);
  s.Vectorize(lane);
}

TileLoops ScheduleTakers(Schedule& s, const TensorTile& tile, const Loop& row, const Loop& column, bool vectors) {
  // Of rows: tiles, teams, a team's matrices, its warps, halves, lanes. Of columns: tiles, teams, matrices, halves,
  // lanes, neighbours.
  std::vector<int64_t> row_factors = {kLaneRows, 2, tile.tm, tile.wm};
  if (tile.warps > 1) row_factors.insert(row_factors.begin() + 2, tile.warps);
  std::vector<Loop> r = Cut(s, row, row_factors);
  const std::vector<Loop> c = Cut(s, column, {2, kLaneColumns, 2, tile.tn, tile.wn});
  std::vector<Loop> warp = {r[1], c[1]};
  if (tile.warps > 1) {
    warp.push_back(r[3]);
    r.erase(r.begin() + 3);
  }
  std::vector<Loop> order = {r[0], c[0]};
  order.insert(order.end(), warp.begin(), warp.end());
  order.insert(order.end(), {r[4], c[4], r[2], c[2], r[3], c[3], c[5]});
  s.Reorder(order);
  BindWarps(s, FuseAll(s, warp), r[4], c[4]);
  for (const Loop& loop : {r[2], c[2], r[3], c[3]}) s.Unroll(loop);
  if (vectors) {
    s.Vectorize(c[5]);
  } else {
    s.Unroll(c[5]);
  }
  return {r[0], c[0]};
}

SumLoops ScheduleTensorSums(Schedule& s, const std::string& sums, const std::string& a, const std::string& b,
                            const Loop& under) {
  s.SetScope(sums, ir::Scope::kRegister);
  for (const std::string& stage : {a, b}) s.SetScope(stage, ir::Scope::kShared);
  s.ComputeAt(sums, under);
  if (!s.status().ok()) return {};
  const std::vector<Loop> loops = Innermost(s.Loops(sums), 9);
  const Loop warp = loops[0], y = loops[1], x = loops[2], row = loops[3], column = loops[4], element = loops[5];
  const Loop step = loops[6], depth = loops[7], k = loops[8];
  s.Reorder({step, warp, y, x, depth, row, column, element, k});
  for (const std::string& stage : {b, a}) s.ComputeAt(stage, step);
  for (const Loop& loop : {depth, row, column, element}) s.Unroll(loop);
  BindWarps(s, warp, y, x);
  s.DecomposeReduction(sums, step);
  return {step, depth, row};
}

}  // namespace temper
