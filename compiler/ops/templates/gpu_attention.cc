// One launch of attention, whoever multiplies.
#include "compiler/ops/templates/gpu_attention.h"

#include <algorithm>

#include "compiler/ir/launch.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/schedule/nest.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

// Scores of a row that there is room for: of whole tiles, and whole steps of the second product.
int64_t RowLength(const Attention& a, const GroupProduct& g) {
  return std::max(CeilDiv(a.keys(), g.bn()) * g.bn(), CeilDiv(a.keys(), g.bk()) * g.bk());
}

PaddedOperand Padded(const GroupProduct& g, const Run& run, int64_t size, int64_t outers, int64_t length) {
  return {run, g.CopyLanes(run), CeilDiv(outers, size) * size, CeilDiv(length, g.bk()) * g.bk()};
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const AttentionPlan& p, const GroupProduct& g) {
  const Attention& a = p.attention;
  const int64_t depth = ReductionLength(a.scores), rows = CeilDiv(a.rows(), g.bm()) * g.bm();
  const int64_t width = CeilDiv(a.keys(), g.bn()) * g.bn();
  ir::ProgramBuilder b("attention");
  WorkloadProgram program(w, b);
  const ProductElement product =
      g.Add(b, p.scores, PaddedA(program, b, a.scores, Padded(g, p.scores.run_a, g.bm(), a.rows(), depth)),
            PaddedB(w, program, a.scores, Padded(g, p.scores.run_b, g.bn(), a.keys(), depth)));
  TEMPER_ASSIGN_OR_RETURN(const ScoreElement score_of, ScoresOf(w, a, program));
  const auto inside = [&](const Expr& row, const Expr& key, int64_t most_keys) {
    std::vector<Expr> conditions;
    if (rows != a.rows()) conditions.push_back(row < Expr(a.rows()));
    if (most_keys != a.keys()) conditions.push_back(key < Expr(a.keys()));
    return conditions;
  };
  const ir::Buffer scores = b.Compute("scores", a.score, {a.batch(), rows, width}, [&](const std::vector<Expr>& i) {
    const Expr element = ir::Cast(product(i[0], i[1], i[2]), w.calls[0].type.dtype);
    const Expr all = nest::Conjoin(inside(i[1], i[2], width)), value = score_of(element, i[0], i[1], i[2]);
    return all ? ir::Select(all, value, ir::Identity(ir::Combiner::kMax, a.score)) : value;
  });
  const auto score = [&](const Expr& batch, const Expr& row, const Expr& key) {
    return ir::Cast(ir::Load(scores, {batch, row, key}), DType::kF32);
  };
  const Shape by_row = {a.batch(), rows};
  const ir::Buffer most =
      b.Reduce("most", DType::kF32, by_row, {width}, ir::Combiner::kMax,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) { return score(i[0], i[1], r[0]); });
  const auto power = [&](const Expr& batch, const Expr& row, const Expr& key) {
    return ir::Exp(score(batch, row, key) - ir::Load(most, {batch, row}));
  };
  const ir::Buffer sum =
      b.Reduce("sum", DType::kF32, by_row, {width}, ir::Combiner::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) { return power(i[0], i[1], r[0]); });
  const ir::Buffer share = b.Compute("share", DType::kF32, by_row,
                                     [&](const std::vector<Expr>& i) { return ir::Float(1) / ir::Load(sum, i); });
  TEMPER_ASSIGN_OR_RETURN(const ScoreElement share_of, SharesOf(w, a, program));
  const int64_t padded_keys = CeilDiv(a.keys(), g.bk()) * g.bk();
  const auto factor = [&](const Expr& batch, const Expr& row, const Expr& key) {
    const Expr element = ir::Cast(power(batch, row, key) * ir::Load(share, {batch, row}), a.share);
    return ValueWhere(inside(row, key, padded_keys), share_of(element, batch, row, key));
  };
  const ProductElement result =
      g.Add(b, p.shares, factor,
            PaddedB(w, program, a.shares, Padded(g, p.shares.run_b, g.bn(), a.shares.columns, a.keys())));
  TEMPER_RETURN_IF_ERROR(MarkOut(w, a.shares, program, b, [&](const Expr& batch, const Expr& row, const Expr& column) {
    return ir::Cast(result(batch, row, column), w.calls[w.anchor].type.dtype);
  }));
  return b.Finish();
}

// Rows of the group that the threads beside those along x have at once.
int64_t RowsAtOnce(const GroupProduct& g) { return std::min(g.bm(), g.threads() / g.lanes()); }

// Rows of the group, and `of_row`, which threads along x have. `inside`: loops that each goes through.
void SpreadRows(Schedule& s, const GroupProduct& g, const Loop& row, const Loop& of_row,
                const std::vector<Loop>& inside) {
  auto [turn, at_once] = s.Split(row, RowsAtOnce(g));
  std::vector<Loop> order = {at_once, of_row, turn};
  order.insert(order.end(), inside.begin(), inside.end());
  s.Reorder(order);
  g.BindRows(s, at_once);
  s.Bind(of_row, ForKind::kThreadX);
  s.Unroll(turn);  // each has a register of its own
}

// One thread has a row, in whole: of those along x as many as there are rows enough for.
void SpreadWholeRows(Schedule& s, const GroupProduct& g, const Loop& row, const std::vector<Loop>& inside) {
  const int64_t each = g.bm() / RowsAtOnce(g);
  auto [at_once, mine] = s.Split(row, each);
  auto [turn, x] = s.Split(mine, std::min(each, g.lanes()));
  std::vector<Loop> order = {at_once, x, turn};
  order.insert(order.end(), inside.begin(), inside.end());
  s.Reorder(order);
  g.BindRows(s, at_once);
  s.Bind(x, ForKind::kThreadX);
}

// What each row of the group is reduced to: the threads along x each reduce a share of it, and leave them in shared
// memory, where another one reduces the shares.
void ScheduleRows(Schedule& s, const GroupProduct& g, const std::string& stage) {
  const std::vector<Loop> loops = s.Loops(stage);
  if (!s.status().ok()) return;
  auto [turn, lane] = s.Split(loops.back(), g.lanes());
  const Loop row = loops[loops.size() - 2];
  s.Reorder({turn, lane, row});  // so that the shares have rows of their own
  const std::string share = s.Rfactor(stage, lane).first;
  s.SetScope(share, ir::Scope::kRegister);
  SpreadRows(s, g, row, lane, {turn});
  s.DecomposeReduction(share, turn);
  if (!s.status().ok()) return;
  const std::string seen = s.CacheRead(stage, BlockNamed(s.func(), share)->buffer->name, ir::Scope::kShared);
  const std::vector<Loop> copy = s.Loops(seen), all = s.Loops(stage);
  if (!s.status().ok()) return;
  SpreadRows(s, g, copy[copy.size() - 2], copy.back(), {});
  SpreadWholeRows(s, g, all[all.size() - 2], {all.back()});
}

// Rows of scores lie one behind another, with some elements between them.
void SpareBanks(Schedule& s, const Attention& a, const GroupProduct& g) {
  if (!s.status().ok()) return;
  const int64_t apart = RowLength(a, g) + g.spared();
  const Shape shape = BlockNamed(s.func(), "scores")->buffer->shape;
  s.TransformLayout("scores", {shape[0], shape[1] * apart}, [&](const std::vector<Expr>& i) {
    return std::vector<Expr>{i[0], i[1] * Expr(apart) + i[2]};
  });
}

absl::StatusOr<ir::Func> ScheduleAttention(ir::Func func, const AttentionPlan& p, const GroupProduct& g) {
  Schedule s(std::move(func));
  const GemmView& shares = p.attention.shares;
  const std::vector<GemmAxis> axes = OutAxes(shares);
  const bool vectors = StoresRuns(s, "out", axes, shares.columns, g.run());
  const auto [batches, row, column] = LoopsByAxis(s.Loops("out"), axes);
  std::vector<Loop> order = batches;
  order.insert(order.end(), {row, column});
  s.Reorder(order);
  const auto [group, tile] = g.ScheduleResult(s, row, column, vectors);
  if (!batches.empty()) s.Bind(FuseAll(s, batches), ForKind::kGroupY);
  s.Bind(group, ForKind::kGroupX);
  g.ScheduleSums(s, p.shares, tile);
  for (const char* stage : {"share", "sum", "most", "scores"}) {
    s.SetScope(stage, ir::Scope::kShared);
    s.ComputeAt(stage, group);
  }
  const std::vector<Loop> share = s.Loops("share"), scores = s.Loops("scores");
  if (!s.status().ok()) return s.status();
  SpreadWholeRows(s, g, share.back(), {});
  for (const char* stage : {"sum", "most"}) ScheduleRows(s, g, stage);
  const Loop keys = g.ScheduleResult(s, scores[scores.size() - 2], scores.back(), false).column;
  g.ScheduleSums(s, p.scores, keys);
  SpareBanks(s, p.attention, g);
  return LowerSchedule(s);
}

}  // namespace

AttentionPlan::AttentionPlan(const Workload& w)
    : attention(*Attention::Of(w)),
      scores{"qk", attention.scores, RunOfA(w, attention.scores), RunOfB(w, attention.scores)},
      shares{"pv", attention.shares, {true, 0}, RunOfB(w, attention.shares), true} {}

// What every thread of a group does, in turn: neighbouring threads neighbouring iterations.
void SpreadOverThreads(Schedule& s, const GroupProduct& g, const Loop& loop) {
  auto [turn, thread] = s.Split(loop, g.threads());
  auto [rows, x] = s.Split(thread, g.lanes());
  s.Reorder({rows, x, turn});
  g.BindRows(s, rows);
  s.Bind(x, ForKind::kThreadX);
}

absl::StatusOr<Kernel> BuildAttention(const Workload& w, const AttentionPlan& p, const GroupProduct& g) {
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, p, g));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleAttention(std::move(func), p, g));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

// The scores, what rows are reduced to, and what is staged for both products.
int64_t SharedBytes(const AttentionPlan& p, const GroupProduct& g) {
  const Attention& a = p.attention;
  const int64_t width = RowLength(a, g);
  const int64_t word = SizeOf(DType::kF32), scores = (g.bm() - 1) * (width + g.spared()) + width;
  return ir::SharedAligned(scores * SizeOf(a.score)) + 3 * ir::SharedAligned(g.bm() * word) +
         2 * ir::SharedAligned(g.bm() * g.lanes() * word) + g.StagedBytes(p.scores) + g.StagedBytes(p.shares);
}

// Steps of all tiles of a group's rows.
static double StepsOf(const GemmView& v, const GroupProduct& g) {
  return static_cast<double>(CeilDiv(v.columns, g.bn()) * CeilDiv(ReductionLength(v), g.bk()));
}

GpuFootprint AttentionFootprint(const Workload& w, const AttentionPlan& p, const GroupProduct& g) {
  const Attention& a = p.attention;
  constexpr double kOfScore = 24;  // instructions: two exponentials, with what they are made of, and two reductions
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  const double scores = count(g.bm() * CeilDiv(a.keys(), g.bn()) * g.bn()),
               groups = count(a.batch() * CeilDiv(a.rows(), g.bm()));
  const double tile = count(g.bm() * g.bn() * g.bk()), steps = StepsOf(a.scores, g) + StepsOf(a.shares, g);
  GpuFootprint f;
  f.group_threads = count(g.threads());
  f.groups = groups;
  f.flops = Flops(w);
  f.padded_flops = 2 * groups * tile * steps;
  f.instructions = kOfScore * groups * scores;
  f.compulsory_bytes = f.memory_traffic = CompulsoryBytes(w);
  // Each group of a head asks for all of its keys and values.
  const double operand_bytes = count(SizeOf(a.operand)), depth = count(ReductionLength(a.scores));
  const double keys = count(a.keys()) * (depth + count(a.shares.columns));
  f.cache_traffic = std::max(f.memory_traffic, groups * operand_bytes * (keys + count(g.bm()) * depth) +
                                                   operand_bytes * count(a.batch() * a.rows() * a.shares.columns));
  f.reduction = count(CeilDiv(ReductionLength(a.scores), g.bk()) * g.bk());
  f.shared_bytes = count(SharedBytes(p, g));
  f.shared_traffic = 4 * count(SizeOf(a.score)) * groups * scores;
  f.barriers = 2 * steps + 7;
  f.round_trips = steps;
  return f;
}

}  // namespace temper
