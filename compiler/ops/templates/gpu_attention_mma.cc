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
constexpr int64_t kMadeAtOnce = 2;  // neighbours that a thread makes of scores: a word
constexpr int64_t kLeastCopy = 2;   // elements, asynchronously
const int64_t kBytes = SizeOf(DType::kF16);
const int64_t kRun = ir::QuarterColumns(DType::kF16);   // elements side by side
const int64_t kDepth = ir::MatrixColumns(DType::kF16);  // of the reduction, in an instruction

class WarpProduct : public GroupProduct {
 public:
  WarpProduct(DType type, const Config& c) : tile_(type, 1, c) {}

  int64_t bm() const override { return tile_.bm(); }
  int64_t bn() const override { return tile_.bn(); }
  int64_t bk() const override { return tile_.bk; }
  int64_t lanes() const override { return kLaneColumns; }
  int64_t threads() const override { return tile_.threads(); }
  int64_t run() const override { return 2; }
  int64_t spared() const override { return kRun; }
  int64_t CopyLanes(const Run& run) const override { return CopiedAtOnce(tile_.type, run); }
  int64_t StagedBytes(const TiledHeads& p) const override {
    return kBytes * bk() * StagesOf(p) * (bn() + bm()) - (p.made ? kBytes * bk() * (StagesOf(p) - 1) * bm() : 0);
  }

  const TensorTile& tile() const { return tile_; }
  // Places in shared memory for the steps of a product.
  int64_t StagesOf(const TiledHeads& p) const { return std::min(tile_.stages, CeilDiv(ReductionLength(p.view), bk())); }
  // In which a thread makes what it brings of scores in a step, words of them.
  int64_t MadeTurns() const { return bm() * bk() / (kMadeAtOnce * threads()); }
  // Copies of all threads in a step.
  int64_t CopiesOfA(const TiledHeads& p) const { return p.made ? 0 : OperandA(p).copies(); }
  int64_t CopiesOfB(const TiledHeads& p) const { return OperandB(p).copies(); }

  ProductElement Add(ir::ProgramBuilder& b, const TiledHeads& p, const OperandElement& a,
                     const OperandElement& b_element) const override {
    const TensorTiles tiles(p.view, tile_);
    const TensorOperand of_a = OperandA(p), of_b = OperandB(p);
    const ir::Buffer shared_a = of_a.Stage(b, tiles.slices, tiles.rows, tiles.steps, a);
    const ir::Buffer shared_b = of_b.Stage(b, tiles.slices, tiles.columns, tiles.steps, b_element);
    const ir::Buffer acc = TensorSums(
        b, p.name + "_acc", tile_, tiles,
        [&](const std::vector<Expr>& i, const Expr& step, const Expr& row, const Expr& column, const Expr& k) {
          return std::pair(of_a.Element(shared_a, {i[0], i[1], step}, row, k),
                           of_b.Element(shared_b, {i[0], i[2], step}, column, k));
        });
    return [acc, this](const Expr& batch, const Expr& row, const Expr& column) {
      return TensorSumAt(acc, tile_, batch, row, column);
    };
  }

  TileLoops ScheduleResult(Schedule& s, const Loop& row, const Loop& column, bool vectors) const override {
    return ScheduleTakers(s, tile_, row, column, vectors);
  }

  void ScheduleSums(Schedule& s, const TiledHeads& p, const Loop& tile) const override {
    const TensorOperand a = OperandA(p), b = OperandB(p);
    const SumLoops loops = ScheduleTensorSums(s, p.name + "_acc", a.stage, b.stage, tile);
    std::vector<std::string> copied = {b.stage};
    if (p.made) {  // neighbouring threads make neighbouring runs
      s.Unroll(DealRuns(s, a.stage, threads(), kMadeAtOnce).lane);
    } else {
      ScheduleCopies(s, a.stage, threads(), a.lanes());
      copied.insert(copied.begin(), a.stage);
    }
    ScheduleCopies(s, b.stage, threads(), b.lanes());
    if (StagesOf(p) > 1) s.Pipeline(copied, loops.step, static_cast<int>(StagesOf(p)));
    s.Tensorize(loops.row);
  }

  void BindRows(Schedule& s, const Loop& loop) const override {
    auto [warp, y] = s.Split(loop, kLaneRows);
    s.Bind(warp, ForKind::kThreadZ);
    s.Bind(y, ForKind::kThreadY);
  }

 private:
  TensorOperand OperandA(const TiledHeads& p) const { return {p.name + "_a", p.run_a, bm(), tile_}; }
  TensorOperand OperandB(const TiledHeads& p) const { return {p.name + "_b", p.run_b, bn(), tile_}; }

  TensorTile tile_;
};

WarpProduct ProductOf(const AttentionPlan& p, const Config& c) { return WarpProduct(p.attention.operand, c); }

// Registers of a thread, fitted to what ptxas said of some hundred configs.
double Registers(const WarpProduct& g, const Attention& a) {
  // Those of a warp's matrices that are not all outside.
  const int64_t tm = std::min(g.tile().tm, CeilDiv(a.rows(), kSide));
  const int64_t tn = std::min(g.tile().tn, CeilDiv(std::max(a.keys(), a.shares.columns), kSide));
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
  const double loads = count(g.bk() / kDepth * (g.tile().tm + g.tile().tn));
  f.tensor_fmas = t.unit_tensor_fmas;
  f.lane_fmas = count(kSide * kSide / 2 * kDepth / kWarp);
  f.accumulators = count(g.tile().sums());
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
                      (count(g.bm() + g.bn()) + count(g.threads() / kWarp * (g.tile().tm + g.tile().tn) * kSide));
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
  GpuTemplate t = {"gpu.attention_mma", 2, Matches, Space, Build, FootprintOf};
  t.runs_on = [](const GpuTarget& target) { return target.tensor_cores; };
  t.fits = Fits;
  return t;
}

}  // namespace temper
