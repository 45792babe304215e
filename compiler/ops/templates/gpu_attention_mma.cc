// gpu.attention_mma: attention of f16 and bf16 by NVIDIA's tensor cores, sums in f32. Of a tile of each product each
// warp has tm x tn matrices of 16 x 16, as in gpu.mma: operands lie in shared memory in runs of 16 bytes, turned by the
// number of their row. Copies of keys, queries and values are asynchronous, `stages` - 1 steps ahead.
#include <algorithm>
#include <cmath>

#include "compiler/ir/launch.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/gpu_attention.h"
#include "compiler/ops/templates/gpu_tensor.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

constexpr int64_t kSide = ir::kMatrixSide, kWarp = ir::kTensorWarp, kFragment = ir::kFragmentLength;
constexpr int64_t kMadeAtOnce = 2;   // neighbours that a thread makes of scores: a word
constexpr int64_t kLeastCopy = 2;    // elements, asynchronously
constexpr int64_t kMostAtOnce = 16;  // copies of a thread through registers; of more ptxas spills
const int64_t kBytes = SizeOf(DType::kF16);
const int64_t kRun = ir::QuarterColumns(DType::kF16);   // elements side by side
const int64_t kDepth = ir::MatrixColumns(DType::kF16);  // of the reduction, in an instruction

// An operand in shared memory.
struct Staged {
  std::string name;
  Run run;
  int64_t slow, runs;  // rows or steps, and of each so many runs
  bool made;

  // How far the runs of the row are turned: what a load takes at once, a run of each of eight rows, is in different
  // banks.
  Expr Turn(const Expr& row) const {
    const int64_t apart = std::min(runs, kLaneRows);  // rows that lie in the same banks
    return row % Expr(kLaneRows) / Expr(kLaneRows / apart);
  }
};

class WarpProduct : public GroupProduct {
 public:
  explicit WarpProduct(DType type, const Config& c)
      : type_(type), wm_(c["wm"]), wn_(c["wn"]), tm_(c["tm"]), tn_(c["tn"]), bk_(c["bk"]), stages_(c["stages"]) {}

  int64_t bm() const override { return wm_ * tm_ * kSide; }
  int64_t bn() const override { return wn_ * tn_ * kSide; }
  int64_t bk() const override { return bk_; }
  int64_t lanes() const override { return kLaneColumns; }
  int64_t threads() const override { return wm_ * wn_ * kWarp; }
  int64_t run() const override { return 2; }
  int64_t spared() const override { return kRun; }
  int64_t CopyLanes(const Run& run) const override { return CopiedAtOnce(type_, run); }
  int64_t StagedBytes(const TiledHeads& p) const override {
    return kBytes * bk_ * StagesOf(p) * (bn() + bm()) - (p.made ? kBytes * bk_ * (StagesOf(p) - 1) * bm() : 0);
  }

  int64_t wn() const { return wn_; }
  int64_t tm() const { return tm_; }
  int64_t tn() const { return tn_; }
  // Places in shared memory for the steps of a product.
  int64_t StagesOf(const TiledHeads& p) const { return std::min(stages_, CeilDiv(ReductionLength(p.view), bk_)); }
  // In which a thread makes what it brings of scores in a step, words of them.
  int64_t MadeTurns() const { return bm() * bk_ / (kMadeAtOnce * threads()); }
  // Copies of all threads in a step.
  int64_t CopiesOfA(const TiledHeads& p) const { return p.made ? 0 : bm() * bk_ / CopyLanes(p.run_a); }
  int64_t CopiesOfB(const TiledHeads& p) const { return bn() * bk_ / CopyLanes(p.run_b); }

  ProductElement Add(ir::ProgramBuilder& b, const TiledHeads& p, const OperandElement& a,
                     const OperandElement& b_element) const override {
    const int64_t batch = p.view.batch, steps = CeilDiv(ReductionLength(p.view), bk_);
    const int64_t row_tiles = CeilDiv(p.view.rows, bm()), column_tiles = CeilDiv(p.view.columns, bn());
    const Staged staged_a = StagedA(p), staged_b = StagedB(p);
    const ir::Buffer shared_a = Stage(b, staged_a, {batch, row_tiles, steps}, bm(), a);
    const ir::Buffer shared_b = Stage(b, staged_b, {batch, column_tiles, steps}, bn(), b_element);
    const ir::Buffer acc = b.Reduce(
        p.name + "_acc", DType::kF32,
        {batch, row_tiles, column_tiles, wm_ * wn_, kLaneRows, kLaneColumns, tm_, tn_, kFragment},
        {steps, bk_ / kDepth, kDepth}, ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
          const Expr &warp = i[3], &e = i[8], k = r[1] * Expr(kDepth) + r[2];
          const Expr row =
              (warp / Expr(wn_) * Expr(tm_) + i[6]) * Expr(kSide) + i[4] + e / Expr(2) % Expr(2) * Expr(kLaneRows);
          const Expr column = (warp % Expr(wn_) * Expr(tn_) + i[7]) * Expr(kSide) + i[5] * Expr(2) + e % Expr(2) +
                              e / Expr(4) * Expr(kLaneRows);
          return ir::Cast(SharedElement(shared_a, staged_a, {i[0], i[1], r[0]}, row, k), DType::kF32) *
                 ir::Cast(SharedElement(shared_b, staged_b, {i[0], i[2], r[0]}, column, k), DType::kF32);
        });
    return [acc, this](const Expr& batch, const Expr& row, const Expr& column) {
      const Expr warp = row / Expr(tm_ * kSide) % Expr(wm_) * Expr(wn_) + column / Expr(tn_ * kSide) % Expr(wn_);
      const Expr e =
          column % Expr(2) + row / Expr(kLaneRows) % Expr(2) * Expr(2) + column / Expr(kLaneRows) % Expr(2) * Expr(4);
      return ir::Load(acc, {batch, row / Expr(bm()), column / Expr(bn()), warp, row % Expr(kLaneRows),
                            column / Expr(2) % Expr(kLaneColumns), row / Expr(kSide) % Expr(tm_),
                            column / Expr(kSide) % Expr(tn_), e});
    };
  }

  TileLoops ScheduleResult(Schedule& s, const Loop& row, const Loop& column, bool vectors) const override {
    const std::vector<Loop> r = Cut(s, row, {kLaneRows, 2, tm_, wm_});
    const std::vector<Loop> c = Cut(s, column, {2, kLaneColumns, 2, tn_, wn_});
    s.Reorder({r[0], c[0], r[1], c[1], r[4], c[4], r[2], c[2], r[3], c[3], c[5]});
    BindWarps(s, s.Fuse(r[1], c[1]), r[4], c[4]);
    for (const Loop& loop : {r[2], c[2], r[3], c[3]}) s.Unroll(loop);
    if (vectors) {
      s.Vectorize(c[5]);
    } else {
      s.Unroll(c[5]);
    }
    return {r[0], c[0]};
  }

  void ScheduleSums(Schedule& s, const TiledHeads& p, const Loop& tile) const override {
    const std::string acc = p.name + "_acc";
    const Staged a = StagedA(p), b = StagedB(p);
    s.SetScope(acc, ir::Scope::kRegister);
    for (const Staged& staged : {a, b}) s.SetScope(staged.name, ir::Scope::kShared);
    s.ComputeAt(acc, tile);
    if (!s.status().ok()) return;
    const std::vector<Loop> loops = Innermost(s.Loops(acc), 9);
    const Loop warp = loops[0], y = loops[1], x = loops[2], row = loops[3], column = loops[4], element = loops[5];
    const Loop step = loops[6], depth = loops[7], k = loops[8];
    s.Reorder({step, warp, y, x, depth, row, column, element, k});
    for (const Staged& staged : {b, a}) s.ComputeAt(staged.name, step);
    for (const Loop& loop : {depth, row, column, element}) s.Unroll(loop);
    BindWarps(s, warp, y, x);
    s.DecomposeReduction(acc, step);
    for (const Staged& staged : {a, b}) ScheduleStaged(s, staged);
    std::vector<std::string> copied = {b.name};
    if (!a.made) copied.insert(copied.begin(), a.name);
    if (StagesOf(p) > 1) s.Pipeline(copied, step, static_cast<int>(StagesOf(p)));
    s.Tensorize(row);
  }

  void BindRows(Schedule& s, const Loop& loop) const override {
    auto [warp, y] = s.Split(loop, kLaneRows);
    s.Bind(warp, ForKind::kThreadZ);
    s.Bind(y, ForKind::kThreadY);
  }

 private:
  Staged StagedA(const TiledHeads& p) const { return StagedOf(p.name + "_a", p.run_a, bm(), p.made); }
  Staged StagedB(const TiledHeads& p) const { return StagedOf(p.name + "_b", p.run_b, bn(), false); }
  Staged StagedOf(std::string name, const Run& run, int64_t size, bool made) const {
    return {std::move(name), run, run.along_reduction ? size : bk_, (run.along_reduction ? bk_ : size) / kRun, made};
  }

  // By step, row and run of its neighbours.
  ir::Buffer Stage(ir::ProgramBuilder& b, const Staged& s, Shape shape, int64_t size,
                   const OperandElement& element) const {
    shape.insert(shape.end(), {s.slow, s.runs, kRun});
    return b.Compute(s.name, type_, shape, [&](const std::vector<Expr>& i) {
      const Expr run = (i[4] + Expr(s.runs) - s.Turn(i[3])) % Expr(s.runs);
      const Expr fast = run * Expr(kRun) + i[5];
      const bool along = s.run.along_reduction;
      return UnderOneCondition(
          element(i[0], i[1] * Expr(size) + (along ? i[3] : fast), i[2] * Expr(bk_) + (along ? fast : i[3])));
    });
  }

  static Expr SharedElement(const ir::Buffer& shared, const Staged& s, std::vector<Expr> index, const Expr& outer,
                            const Expr& k) {
    const Expr &slow = s.run.along_reduction ? outer : k, &fast = s.run.along_reduction ? k : outer;
    index.insert(index.end(), {slow, (fast / Expr(kRun) + s.Turn(slow)) % Expr(s.runs), fast % Expr(kRun)});
    return ir::Load(shared, index);
  }

  // Neighbouring threads copy, or make, neighbouring runs.
  void ScheduleStaged(Schedule& s, const Staged& staged) const {
    if (!staged.made) return ScheduleCopies(s, staged.name, threads(), CopyLanes(staged.run));
    s.Unroll(DealRuns(s, staged.name, threads(), kMadeAtOnce).lane);
  }

  DType type_;
  int64_t wm_, wn_, tm_, tn_, bk_, stages_;
};

WarpProduct ProductOf(const AttentionPlan& p, const Config& c) { return WarpProduct(p.attention.operand, c); }

// Registers of a thread, fitted to what ptxas said of some hundred configs.
double Registers(const WarpProduct& g, const Attention& a) {
  // Those of a warp's matrices that are not all outside.
  const int64_t tm = std::min(g.tm(), CeilDiv(a.rows(), kSide));
  const int64_t tn = std::min(g.tn(), CeilDiv(std::max(a.keys(), a.shares.columns), kSide));
  const int64_t ahead = 4 * (tm + tn) * (g.bk() / kDepth - 1);  // fragments of a step's other instructions
  return static_cast<double>(24 + kFragment * tm * tn) + 0.125 * static_cast<double>(ahead) +
         1.5 * static_cast<double>(g.MadeTurns());
}

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const AttentionPlan p(w);
  const Attention& a = p.attention;
  ConfigSpace space;
  space.Add("wm", {1, 2, 4, 8});
  space.Add("wn", {1, 2, 4});
  space.Add("tm", {1, 2, 4});
  space.Add("tn", {1, 2, 4, 8});
  space.Add("bk", {kDepth, 2 * kDepth, 4 * kDepth});
  space.Add("stages", {1, 2, 3});
  space.Require("threads of a group",
                [most = t.group_threads](const Config& c) { return c["wm"] * c["wn"] * kWarp <= most; });
  const int64_t columns = std::max(a.keys(), a.shares.columns);
  const int64_t length = std::max(ReductionLength(a.scores), a.keys());
  space.Require("the tile is much larger than the result", [columns, rows = a.rows()](const Config& c) {
    const int64_t tm = c["wm"] * c["tm"], tn = c["wn"] * c["tn"];
    return (tm == 1 || tm * kSide < 2 * rows) && (tn == 1 || tn * kSide < 2 * columns);
  });
  space.Require("a step is much longer than the reductions",
                [length](const Config& c) { return c["bk"] == kDepth || c["bk"] < 2 * length; });
  space.Require("a stage for each of a few steps, and one stage for one alone", [p, length](const Config& c) {
    const WarpProduct g = ProductOf(p, c);
    const int64_t least =
        std::min({g.CopyLanes(p.scores.run_a), g.CopyLanes(p.scores.run_b), g.CopyLanes(p.shares.run_b)});
    return c["stages"] == 1 || (least >= kLeastCopy && c["stages"] <= CeilDiv(length, c["bk"]));
  });
  space.Require("a step is no whole round of the threads", [p](const Config& c) {
    const WarpProduct g = ProductOf(p, c);
    return g.CopiesOfA(p.scores) % g.threads() == 0 && g.CopiesOfB(p.scores) % g.threads() == 0 &&
           g.CopiesOfB(p.shares) % g.threads() == 0;
  });
  space.Require("a thread makes nothing of scores in a step, or much at once", [p](const Config& c) {
    const int64_t turns = ProductOf(p, c).MadeTurns();
    return 1 <= turns && turns <= kMostAtOnce;
  });
  space.Require("a thread copies much at once", [p](const Config& c) {
    const WarpProduct g = ProductOf(p, c);
    return std::max(g.CopiesOfA(p.scores) + g.CopiesOfB(p.scores), g.CopiesOfB(p.shares)) / g.threads() <= kMostAtOnce;
  });
  space.Require("shared memory",
                [p, most = t.shared_bytes](const Config& c) { return SharedBytes(p, ProductOf(p, c)) <= most; });
  space.Require("registers", [p](const Config& c) {
    const WarpProduct g = ProductOf(p, c);
    return Registers(g, p.attention) <= static_cast<double>(MostRegisters(g.threads()));
  });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  const AttentionPlan p(w);
  return BuildAttention(w, p, ProductOf(p, c));
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
  constexpr double kOfStep = 8, kOfCopy = 2.3, kOfLoad = 1.2, kOfSum = 4, kOfMade = 12, kMostUnasked = 55;
  const AttentionPlan p(w);
  const WarpProduct g = ProductOf(p, c);
  GpuFootprint f = AttentionFootprint(w, p, g);
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  const double steps = f.round_trips, threads = f.groups * f.group_threads;
  const double tiles = count(CeilDiv(p.attention.keys(), g.bn()) + CeilDiv(p.attention.shares.columns, g.bn()));
  const double copies = count(g.CopiesOfA(p.scores) + 2 * g.CopiesOfB(p.scores)) / 2 / f.group_threads;
  const double loads = count(g.bk() / kDepth * (g.tm() + g.tn()));
  f.tensor_fmas = t.unit_tensor_fmas;
  f.lane_fmas = count(kSide * kSide / 2 * kDepth / kWarp);
  f.accumulators = count(kFragment * g.tm() * g.tn());
  // As GivenRegisters has it, but that code of this kind has less use for what is free, and without loops none.
  const bool loops = std::max(p.attention.keys(), ReductionLength(p.attention.scores)) > g.bk();
  const double unasked = loops ? std::min(FreeRegisters(g.threads(), t), kMostUnasked) : 0;
  const double wanted = std::max(Registers(g, p.attention), unasked);
  f.registers = std::min(std::round(wanted), count(MostRegisters(g.threads())));
  f.vector_lanes = count(std::min(g.CopyLanes(p.scores.run_b), g.CopyLanes(p.shares.run_b)));
  f.instructions +=
      threads * (steps * (kOfStep + kOfCopy * copies + kOfLoad * loads) + kOfSum * tiles * f.accumulators);
  f.instructions += kOfMade * f.groups * count(g.bm() * p.attention.keys());
  f.shared_traffic += f.groups * steps * count(kBytes * g.bk()) *
                      (count(g.bm() + g.bn()) + count(g.threads() / kWarp * (g.tm() + g.tn()) * kSide));
  f.in_flight_bytes = 16 * std::max(1.0, copies);
  f.trips_ahead = count(c["stages"] - 1);
  return f;
}

bool Matches(const Workload& w) {
  const std::optional<Attention> a = Attention::Of(w);
  return a.has_value() && a->batch() <= kMostOfAxis && a->factor == a->operand &&
         (a->operand == DType::kF16 || a->operand == DType::kBF16);
}

// Of the smallest groups, which have sixteen rows.
bool Fits(const Workload& w, const GpuTarget& t) {
  const AttentionPlan p(w);
  const Config least({{"wm", 1}, {"wn", 1}, {"tm", 1}, {"tn", 1}, {"bk", kDepth}, {"stages", 1}});
  return SharedBytes(p, ProductOf(p, least)) <= t.shared_bytes;
}

}  // namespace

GpuTemplate GpuAttentionMma() {
  GpuTemplate t = {"gpu.attention_mma", 1, Matches, Space, Build, FootprintOf};
  t.runs_on = [](const GpuTarget& target) { return target.tensor_cores; };
  t.fits = Fits;
  return t;
}

}  // namespace temper
