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
  int64_t spared() const override { return 1; }
  int64_t CopyLanes(const Run&) const override { return 1; }
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
  int64_t StagedBytes(const TiledHeads&) const override {
    return ir::SharedAligned(bm() * bk_ * kElementBytes) + ir::SharedAligned(bn() * bk_ * kElementBytes);
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

  void ScheduleSums(Schedule& s, const TiledHeads& p, const Loop& tile) const override {
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
    // What is made of scores comes to its place row by row, as it lies there.
    ScheduleStage(s, p.name + "_a", !p.made && p.run_a.along_reduction);
    ScheduleStage(s, p.name + "_b", p.run_b.along_reduction);
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
  void ScheduleStage(Schedule& s, const std::string& name, bool along_reduction) const {
    const std::vector<Loop> loops = s.Loops(name);
    if (!s.status().ok()) return;
    const std::vector<Loop> inner = Innermost(loops, 2);
    if (along_reduction) s.Reorder({inner[1], inner[0]});
    SpreadOverThreads(s, *this, along_reduction ? s.Fuse(inner[1], inner[0]) : s.Fuse(inner[0], inner[1]));
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

// A power of two.
int64_t FewestThreads(const GpuTarget& t) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(t.group_threads, 1, kWarp))));
}

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const AttentionPlan p(w);
  const Attention& a = p.attention;
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
                [p, most = t.shared_bytes](const Config& c) { return SharedBytes(p, ThreadProduct(c)) <= most; });
  space.Require("a thread brings much at once",
                [](const Config& c) { return ThreadProduct(c).fetched() <= kMostFetched; });
  space.Require("registers", [](const Config& c) {
    const ThreadProduct g(c);
    return g.held() <= MostRegisters(g.threads());
  });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  return BuildAttention(w, AttentionPlan(w), ThreadProduct(c));
}

GpuFootprint ThreadFootprint(const Workload& w, const Config& c, const GpuTarget& t) {
  constexpr double kTurnBytes = 128, kOfSum = 1.5;
  const AttentionPlan p(w);
  const Attention& a = p.attention;
  const ThreadProduct g(c);
  GpuFootprint f = AttentionFootprint(w, p, g);
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
  return SharedBytes(AttentionPlan(w), ThreadProduct(1, FewestThreads(t), 1, 1, kShortestStep)) <= t.shared_bytes;
}

}  // namespace

GpuTemplate GpuAttention() {
  GpuTemplate t = {"gpu.attention", 2, Matches, Space, Build, ThreadFootprint};
  t.fits = Fits;
  return t;
}

}  // namespace temper
