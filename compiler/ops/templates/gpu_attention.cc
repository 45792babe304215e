// gpu.attention: attention of any float type, where each thread multiplies and adds. Of a tile of each product a thread
// has tm x tn sums in its registers, as in gpu.gemm. Sums are f32; scores lie in shared memory in their own type.
#include "compiler/ops/templates/gpu_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

constexpr int64_t kLanes = 4;  // floats of the widest access
constexpr int64_t kWarp = ir::kTensorWarp;
constexpr int64_t kShortestStep = 8;
constexpr double kMostFetched = 16;  // elements of a thread in a step; of more ptxas spills

int64_t Lanes(int64_t count) { return count % kLanes == 0 ? kLanes : count % 2 == 0 ? 2 : 1; }

// What every thread of a group does, in turn: neighbouring threads neighbouring iterations.
void Spread(Schedule& s, const GroupProduct& g, const Loop& loop) {
  auto [turn, thread] = s.Split(loop, g.threads());
  auto [rows, x] = s.Split(thread, g.lanes());
  s.Reorder({rows, x, turn});
  g.BindRows(s, rows);
  s.Bind(x, ForKind::kThreadX);
}

class ThreadProduct : public GroupProduct {
 public:
  ThreadProduct(int64_t ty, int64_t tx, int64_t tm, int64_t tn, int64_t bk)
      : ty_(ty), tx_(tx), tm_(tm), tn_(tn), bk_(bk), fm_(Lanes(tm)), fn_(Lanes(tn)) {}
  explicit ThreadProduct(const Config& c) : ThreadProduct(c["ty"], c["tx"], c["tm"], c["tn"], c["bk"]) {}

  int64_t bm() const override { return ty_ * tm_; }
  int64_t bn() const override { return tx_ * tn_; }
  int64_t bk() const override { return bk_; }
  int64_t lanes() const override { return tx_; }
  int64_t threads() const override { return ty_ * tx_; }
  int64_t CopyLanes(const Run&, int64_t) const override { return 1; }
  int64_t run() const override { return fn_; }
  // That a thread can not do without: its sums and what it multiplies.
  int64_t held() const { return tm_ * tn_ + tm_ + tn_ + 16; }
  // Fitted to what ptxas said of some hundred configs.
  double registers(const GpuTarget& t) const {
    return GivenRegisters(31 + 1.2 * static_cast<double>(tm_ * tn_) + 0.3 * static_cast<double>(tm_ + tn_), threads(),
                          t);
  }
  double sums() const { return static_cast<double>(tm_ * tn_); }
  // Of a thread for a step of a tile, beside multiply-adds; and of its warp, turns of the banks.
  double step_instructions() const {
    constexpr double kOfStep = 8, kOfFetch = 3;
    const double parts =
        static_cast<double>(tm_) / static_cast<double>(fm_) + static_cast<double>(tn_) / static_cast<double>(fn_);
    return kOfStep + static_cast<double>(bk_) * parts + kOfFetch * fetched();
  }
  double step_turns() const {
    const double fm = static_cast<double>(fm_), fn = static_cast<double>(fn_);
    const double along_x = std::min(static_cast<double>(tx_), 32.0);
    return static_cast<double>(bk_) * (static_cast<double>(tm_) / fm * BankTurns(fm, 32 / along_x, fm) +
                                       static_cast<double>(tn_) / fn * BankTurns(fn, along_x, fn)) +
           2 * fetched();
  }
  // Elements that a thread brings in a step.
  double fetched() const {
    return static_cast<double>(CeilDiv(bm() * bk_, threads()) + CeilDiv(bn() * bk_, threads()));
  }
  int64_t StagedBytes() const override {
    const auto aligned = [](int64_t bytes) { return CeilDiv(bytes, ir::kSharedAlignment) * ir::kSharedAlignment; };
    return aligned(bm() * bk_ * kElementBytes) + aligned(bn() * bk_ * kElementBytes);
  }

  ProductElement Add(ir::ProgramBuilder& b, const TiledHeads& p, const OperandElement& a,
                     const OperandElement& b_element) const override {
    const int64_t batch = p.view.batch, steps = CeilDiv(ReductionLength(p.view), bk_);
    const int64_t row_tiles = CeilDiv(p.view.rows, bm()), column_tiles = CeilDiv(p.view.columns, bn());
    const ir::Buffer part_a = Stage(b, p.name + "_a", {batch, row_tiles, steps}, bm(), ty_, fm_, a);
    const ir::Buffer part_b = Stage(b, p.name + "_b", {batch, column_tiles, steps}, bn(), tx_, fn_, b_element);
    const ir::Buffer acc =
        b.Reduce(p.name + "_acc", kElement, {batch, row_tiles, column_tiles, tm_ / fm_, ty_, fm_, tn_ / fn_, tx_, fn_},
                 {steps, bk_}, ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                   return ir::Load(part_a, {i[0], i[1], r[0], r[1], i[3], i[4], i[5]}) *
                          ir::Load(part_b, {i[0], i[2], r[0], r[1], i[6], i[7], i[8]});
                 });
    return [acc, this](const Expr& batch, const Expr& row, const Expr& column) {
      const std::vector<Expr> r = Digits(row, bm(), ty_, fm_), c = Digits(column, bn(), tx_, fn_);
      return ir::Load(acc, {batch, r[0], c[0], r[1], r[2], r[3], c[1], c[2], c[3]});
    };
  }

  TileLoops ScheduleResult(Schedule& s, const Loop& row, const Loop& column, bool vectors) const override {
    const std::vector<Loop> r = Cut(s, row, {fm_, ty_, tm_ / fm_});  // tile, turn, thread, lane
    const std::vector<Loop> c = Cut(s, column, {fn_, tx_, tn_ / fn_});
    s.Reorder({r[0], c[0], r[2], c[2], r[1], r[3], c[1], c[3]});
    s.Bind(r[2], ForKind::kThreadY);
    s.Bind(c[2], ForKind::kThreadX);
    for (const Loop& loop : {r[1], r[3], c[1]}) s.Unroll(loop);
    if (vectors) {
      s.Vectorize(c[3]);
    } else {
      s.Unroll(c[3]);
    }
    return {r[0], c[0]};
  }

  void ScheduleSums(Schedule& s, const TiledHeads& p, const Loop& tile, bool) const override {
    const std::string acc = p.name + "_acc";
    for (const char* stage : {"_a_part", "_b_part", "_acc"}) s.SetScope(p.name + stage, ir::Scope::kRegister);
    for (const char* stage : {"_a", "_b"}) s.SetScope(p.name + stage, ir::Scope::kShared);
    s.ComputeAt(acc, tile);
    if (!s.status().ok()) return;
    const std::vector<Loop> loops = Innermost(s.Loops(acc), 8);
    const Loop turn_y = loops[0], ty = loops[1], run_y = loops[2], turn_x = loops[3], tx = loops[4], run_x = loops[5];
    const Loop step = loops[6], k = loops[7];
    s.Reorder({step, ty, tx, k, turn_y, run_y, turn_x, run_x});
    SchedulePart(s, p.name + "_a_part", k);
    SchedulePart(s, p.name + "_b_part", k);
    for (const char* stage : {"_b", "_a"}) s.ComputeAt(p.name + stage, step);
    for (const Loop& loop : {turn_y, run_y, turn_x}) s.Unroll(loop);
    s.Vectorize(run_x);
    s.Bind(ty, ForKind::kThreadY);
    s.Bind(tx, ForKind::kThreadX);
    s.DecomposeReduction(acc, step);
    ScheduleStage(s, p.name + "_a", p.run_a);
    ScheduleStage(s, p.name + "_b", p.run_b);
  }

  void BindRows(Schedule& s, const Loop& loop) const override { s.Bind(loop, ForKind::kThreadY); }

 private:
  static std::vector<Expr> Digits(const Expr& at, int64_t block, int64_t threads, int64_t run) {
    const Expr in = at % Expr(block);
    return {at / Expr(block), in / Expr(threads * run), in / Expr(run) % Expr(threads), in % Expr(run)};
  }

  // `name`, by step of the reduction and row or column, and NAME_part, what a thread multiplies.
  ir::Buffer Stage(ir::ProgramBuilder& b, const std::string& name, const Shape& tiles, int64_t size, int64_t threads,
                   int64_t run, const OperandElement& element) const {
    Shape shape = tiles;
    shape.insert(shape.end(), {bk_, size});
    const ir::Buffer shared = b.Compute(name, kElement, shape, [&](const std::vector<Expr>& i) {
      return ir::Cast(element(i[0], i[1] * Expr(size) + i[4], i[2] * Expr(bk_) + i[3]), kElement);
    });
    Shape parts = tiles;
    parts.insert(parts.end(), {bk_, size / (threads * run), threads, run});
    return b.Compute(name + "_part", kElement, parts, [&](const std::vector<Expr>& i) {
      return ir::Load(shared, {i[0], i[1], i[2], i[3], (i[4] * Expr(threads) + i[5]) * Expr(run) + i[6]});
    });
  }

  // Neighbouring threads bring what are neighbours in memory.
  void ScheduleStage(Schedule& s, const std::string& name, const Run& run) const {
    const std::vector<Loop> loops = s.Loops(name);
    if (!s.status().ok()) return;
    const std::vector<Loop> inner = Innermost(loops, 2);
    if (run.along_reduction) s.Reorder({inner[1], inner[0]});
    Spread(s, *this, run.along_reduction ? s.Fuse(inner[1], inner[0]) : s.Fuse(inner[0], inner[1]));
  }

  static void SchedulePart(Schedule& s, const std::string& name, const Loop& under) {
    s.ComputeAt(name, under);
    const std::vector<Loop> part = s.Loops(name);
    if (!s.status().ok()) return;
    s.Unroll(part[part.size() - 3]);
    s.Vectorize(part.back());
  }

  int64_t ty_, tx_, tm_, tn_, bk_, fm_, fn_;
};

struct Plan {
  Attention attention;
  TiledHeads scores, shares;
};

Plan PlanOf(const Workload& w) {
  Attention a = *Attention::Of(w);
  const TiledHeads scores = {"qk", a.scores, RunOfA(w, a.scores), RunOfB(w, a.scores)};
  const TiledHeads shares = {"pv", a.shares, {false, 0}, RunOfB(w, a.shares)};
  return {std::move(a), scores, shares};
}

PaddedOperand Padded(const GroupProduct& g, const Run& run, int64_t size, int64_t outers, int64_t length) {
  return {run, g.CopyLanes(run, size), CeilDiv(outers, size) * size, CeilDiv(length, g.bk()) * g.bk()};
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Plan& p, const GroupProduct& g) {
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
    return ValueWhere(inside(i[1], i[2], width), score_of(element, i[0], i[1], i[2]));
  });
  const auto score = [&](const Expr& batch, const Expr& row, const Expr& key) {
    return ir::Cast(ir::Load(scores, {batch, row, key}), DType::kF32);
  };
  const Shape by_row = {a.batch(), rows};
  const ir::Buffer most =
      b.Reduce("most", DType::kF32, by_row, {a.keys()}, ir::Combiner::kMax,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) { return score(i[0], i[1], r[0]); });
  const auto power = [&](const Expr& batch, const Expr& row, const Expr& key) {
    return ir::Exp(score(batch, row, key) - ir::Load(most, {batch, row}));
  };
  const ir::Buffer sum =
      b.Reduce("sum", DType::kF32, by_row, {a.keys()}, ir::Combiner::kSum,
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

absl::StatusOr<ir::Func> ScheduleAttention(ir::Func func, const Plan& p, const GroupProduct& g) {
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
  g.ScheduleSums(s, p.shares, tile, true);
  for (const char* stage : {"share", "sum", "most", "scores"}) {
    s.SetScope(stage, ir::Scope::kShared);
    s.ComputeAt(stage, group);
  }
  const std::vector<Loop> share = s.Loops("share"), scores = s.Loops("scores");
  if (!s.status().ok()) return s.status();
  SpreadWholeRows(s, g, share.back(), {});
  for (const char* stage : {"sum", "most"}) ScheduleRows(s, g, stage);
  const Loop keys = g.ScheduleResult(s, scores[scores.size() - 2], scores.back(), false).column;
  g.ScheduleSums(s, p.scores, keys, false);
  return LowerSchedule(s);
}

absl::StatusOr<Kernel> BuildAttention(const Workload& w, const GroupProduct& g) {
  const Plan p = PlanOf(w);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, p, g));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleAttention(std::move(func), p, g));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

// Of shared memory: the scores, what rows are reduced to, and what is staged for both products.
int64_t SharedBytes(const Attention& a, const GroupProduct& g) {
  const auto aligned = [](int64_t bytes) { return CeilDiv(bytes, ir::kSharedAlignment) * ir::kSharedAlignment; };
  const int64_t width = CeilDiv(a.keys(), g.bn()) * g.bn(), word = SizeOf(DType::kF32);
  return aligned(g.bm() * width * SizeOf(a.score)) + 3 * aligned(g.bm() * word) +
         2 * aligned(g.bm() * g.lanes() * word) + 2 * g.StagedBytes();
}

// A power of two.
int64_t FewestThreads(const GpuTarget& t) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(t.group_threads, 1, kWarp))));
}

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const Attention a = *Attention::Of(w);
  ConfigSpace space;
  const int64_t fewest = FewestThreads(t);
  space.Add("ty", {1, 2, 4, 8, 16});
  space.Add("tx", fewest == kWarp ? std::vector<int64_t>{4, 8, 16, 32} : std::vector<int64_t>{1, 2, 4, 8, 16});
  space.Add("tm", {1, 2, 4, 8});
  space.Add("tn", {1, 2, 4, 8});
  space.Add("bk", {kShortestStep, 16, 32});
  space.Require("threads of a group", [fewest, most = t.group_threads](const Config& c) {
    return fewest <= c["ty"] * c["tx"] && c["ty"] * c["tx"] <= most;
  });
  const int64_t columns = std::max(a.keys(), a.shares.columns);
  const int64_t length = std::max(ReductionLength(a.scores), a.keys());
  space.Require("the tile is much larger than the result", [fewest, columns, rows = a.rows()](const Config& c) {
    const bool least = c["ty"] * c["tx"] == fewest && c["tm"] == 1 && c["tn"] == 1;
    return least || (c["ty"] * c["tm"] < 2 * rows && c["tx"] * c["tn"] < 2 * columns);
  });
  space.Require("a step is much longer than the reductions",
                [length](const Config& c) { return c["bk"] == kShortestStep || c["bk"] < 2 * length; });
  space.Require("shared memory",
                [a, most = t.shared_bytes](const Config& c) { return SharedBytes(a, ThreadProduct(c)) <= most; });
  space.Require("a thread brings much at once",
                [](const Config& c) { return ThreadProduct(c).fetched() <= kMostFetched; });
  space.Require("registers", [](const Config& c) {
    const ThreadProduct g(c);
    return g.held() <= MostRegisters(g.threads());
  });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  return BuildAttention(w, ThreadProduct(c));
}

// Steps of all tiles of a group's rows.
double StepsOf(const GemmView& v, const GroupProduct& g) {
  return static_cast<double>(CeilDiv(v.columns, g.bn()) * CeilDiv(ReductionLength(v), g.bk()));
}

// Of both products and softmax, but for how a group multiplies.
GpuFootprint FootprintOf(const Workload& w, const Attention& a, const GroupProduct& g) {
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
  f.shared_bytes = count(SharedBytes(a, g));
  f.shared_traffic = 4 * count(SizeOf(a.score)) * groups * scores;
  f.barriers = 2 * steps + 7;
  f.round_trips = steps;
  return f;
}

GpuFootprint ThreadFootprint(const Workload& w, const Config& c, const GpuTarget& t) {
  constexpr double kTurnBytes = 128, kOfSum = 1.5;
  const Attention a = *Attention::Of(w);
  const ThreadProduct g(c);
  GpuFootprint f = FootprintOf(w, a, g);
  const double steps = f.round_trips, warps = f.groups * std::ceil(f.group_threads / 32);
  const double tiles = static_cast<double>(CeilDiv(a.keys(), g.bn()) + CeilDiv(a.shares.columns, g.bn()));
  f.accumulators = g.sums();
  f.registers = g.registers(t);
  f.instructions += f.groups * f.group_threads * (steps * g.step_instructions() + kOfSum * tiles * g.sums());
  f.shared_traffic += kTurnBytes * warps * steps * g.step_turns();
  f.in_flight_bytes = static_cast<double>(SizeOf(a.operand)) * g.fetched();
  return f;
}

bool Matches(const Workload& w) {
  const std::optional<Attention> a = Attention::Of(w);
  return a.has_value() && a->batch() <= kMostOfAxis;
}

// The smallest group has a row, whose scores are as long as there are keys.
bool Fits(const Workload& w, const GpuTarget& t) {
  return SharedBytes(*Attention::Of(w), ThreadProduct(1, FewestThreads(t), 1, 1, kShortestStep)) <= t.shared_bytes;
}

}  // namespace

GpuTemplate GpuAttention() {
  GpuTemplate t = {"gpu.attention", 1, Matches, Space, Build, ThreadFootprint};
  t.fits = Fits;
  return t;
}

}  // namespace temper
