// gpu.wgmma: what gpu.mma multiplies of f16 and bf16, by the instructions of teams of four warps that only sm_90 has
// (ir/launch.h). Each group has a tile of rows and columns, of which each team has tm times 64 rows and 16 tn columns.
// Step by step, bk of the reduction at a time, all threads copy their group's rows of A and columns of B asynchronously
// to shared memory, `stages` - 1 steps ahead, zeros where there are none; from there teams multiply. Nobody loads
// matrices.
//
// An operand lies in shared memory in runs of 16 bytes along the axis that has its neighbours in memory: all rows of a
// run one behind the other, so that eight are a tile, then those of the next run. Between runs is room, as much as
// brings neighbouring runs of a row, which neighbouring threads copy, to different banks.
#include <algorithm>
#include <cmath>

#include "compiler/ops/templates/gpu_tensor_plan.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kSide = ir::kMatrixSide, kTeamRows = ir::kTeamRows, kDepth = ir::kTeamSteps;
constexpr int64_t kBytes = 2, kRun = ir::kTileSide, kRunBytes = kRun * kBytes;
constexpr int64_t kBankRuns = 8;       // that all banks hold
constexpr int64_t kLeastColumns = 64;  // of a tile: of fewer a team has nothing for some threads to copy
constexpr DType kTypes[] = {DType::kF16, DType::kBF16};

// From a run to the next, in rows; and the length of a stage, in rows of runs.
int64_t Apart(const TensorOperand& o) {
  return o.rows() + (o.runs() == 1 ? 0 : kBankRuns / std::min(o.runs(), kBankRuns));
}
int64_t LengthOf(const TensorOperand& o) { return (o.runs() - 1) * Apart(o) + o.rows(); }
bool Spreads(const TensorOperand& o) { return o.runs() % kBankRuns == 0 || kBankRuns % o.runs() == 0; }

int64_t SharedBytes(const TensorPlan& p) {
  int64_t bytes = 0;
  for (const TensorOperand* o : {&p.a, &p.b}) bytes += ir::SharedAligned(p.tile.stages * LengthOf(*o) * kRunBytes);
  return bytes;
}

// Registers that a thread has use for, fitted to what ptxas said of some dozen configs.
double Registers(const TensorPlan& p) {
  double wanted = 26 + 1.1 * static_cast<double>(p.tile.sums()) + 0.5 * static_cast<double>(p.copies());
  if (p.tiles.steps > 1) wanted += 3.5 * static_cast<double>(p.copies_at_once());
  return wanted;
}
// ptxas leaves out a few where that makes room for one group more, and gives more where that keeps none away.
double Given(const TensorPlan& p) {
  constexpr double kLeast = 0.88;
  const int64_t threads = p.tile.threads();
  int64_t groups = 1;
  while (static_cast<double>(MostRegisters((groups + 1) * threads)) >= kLeast * Registers(p)) ++groups;
  return std::min(static_cast<double>(MostRegisters(groups * threads)),
                  std::round(Registers(p) + 0.5 * static_cast<double>(p.tile.sums())));
}
bool Fits(const TensorPlan& p) {
  constexpr double kSpare = 6;  // with fewer, some configs spill
  return Registers(p) + kSpare <= static_cast<double>(MostRegisters(p.tile.threads()));
}

// Run after run, with room between.
void LayOut(Schedule& s, const TensorOperand& o) {
  const Shape shape = BlockNamed(s.func(), o.stage)->buffer->shape;
  s.TransformLayout(o.stage, {shape[0], shape[1], shape[2], LengthOf(o), kRun},
                    [apart = Apart(o)](const std::vector<Expr>& i) {
                      return std::vector<Expr>{i[0], i[1], i[2], i[4] * Expr(apart) + i[3], i[5]};
                    });
}

bool Matches(const Workload& w) { return IsTensorProduct(w, kTypes); }

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const GemmView v = TensorView(w);
  ConfigSpace space;
  space.Add("wm", {1, 2, 4});
  space.Add("wn", {1, 2, 4});
  space.Add("tm", {1, 2});
  space.Add("tn", {1, 2, 4, 8, 12, 16});
  space.Add("bk", {kDepth, 2 * kDepth, 4 * kDepth, 8 * kDepth});
  space.Add("stages", {1, 2, 3, 4, 6});
  const TensorPlans plan = PlansOf(w, v, ir::kTeamWarps);
  RequireTensorTiles(space, v, plan, t, kLeastColumns / kSide);
  space.Require("runs of a row share banks", [plan](const Config& c) {
    const TensorPlan p = plan(c);
    return Spreads(p.a) && Spreads(p.b);
  });
  space.Require("shared memory",
                [plan, most = t.shared_bytes](const Config& c) { return SharedBytes(plan(c)) <= most; });
  space.Require("registers", [plan](const Config& c) { return Fits(plan(c)); });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  const GemmView v = TensorView(w);
  const TensorPlan p = PlansOf(w, v, ir::kTeamWarps)(c);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, TensorProgram("wgmma", w, v, p));
  Schedule s(std::move(func));
  s.TensorizeForTeams(ScheduleTensorProgram(s, v, p, [&s](const TensorOperand& o) { LayOut(s, o); }).depth);
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs, TensorPacks(w, v, p));
  return kernel;
}

// Instructions of a thread beside those that multiply.
double Instructions(const TensorPlan& p) {
  constexpr double kOfStep = 12, kOfCopy = 4.5, kOfProduct = 6, kOfResult = 2;  // with their addresses
  const auto products = static_cast<double>(p.tile.bk / kDepth * p.tile.tm);
  return static_cast<double>(p.tiles.steps) *
             (kOfStep + kOfCopy * static_cast<double>(p.copies()) + kOfProduct * products) +
         kOfResult * static_cast<double>(p.tile.sums());
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
  constexpr double kDrainCycles = 400;  // until a step's sums are there, by times of an H100
  const GemmView v = TensorView(w);
  const TensorPlan p = PlansOf(w, v, ir::kTeamWarps)(c);
  const TensorTile& tile = p.tile;
  GpuFootprint f = TensorFootprint(w, v, p, Given(p), static_cast<double>(SharedBytes(p)), t);
  f.tensor_fmas = t.unit_team_fmas;
  f.lane_fmas = static_cast<double>(kTeamRows * tile.tn * kSide * kDepth / ir::kTeamThreads);
  f.instructions = f.groups * f.group_threads * Instructions(p);
  // Each product of a team reads its rows of A and its columns of B.
  const int64_t read = tile.wm * tile.wn * tile.tm * (kTeamRows + tile.tn * kSide);
  f.shared_traffic += f.groups * f.reduction * static_cast<double>(kBytes * read);
  f.wait_cycles = kDrainCycles * static_cast<double>(p.tiles.steps);
  return f;
}

}  // namespace

GpuTemplate GpuWgmma() {
  return {"gpu.wgmma", 1, Matches, Space, Build, FootprintOf, [](const GpuTarget& t) { return t.unit_team_fmas > 0; }};
}

}  // namespace temper
