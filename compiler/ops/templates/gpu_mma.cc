// gpu.mma: dense and batched matmul and convolutions of f16 and bf16 by NVIDIA's tensor cores, sums in f32, from sm_80
// on; of f32 where the operator allows it to be rounded to TF32. Each group has a tile of rows and columns, of which
// each warp has tm x tn matrices of 16 x 16. Step by step, bk of the reduction at a time, all threads copy their
// group's rows of A and columns of B asynchronously to shared memory, `stages` - 1 steps ahead, zeros where there are
// none; from there warps load matrices, round f32 and multiply.
//
// An operand lies in shared memory in runs of 16 bytes along the axis that has its neighbours in memory. The runs of
// each row are turned by the row's number: so what a load takes at once is in different banks. That is a run of each of
// eight rows; of f32, where the rows are steps of the reduction, two runs of each of four.
#include <algorithm>
#include <cmath>

#include "compiler/ops/templates/gpu_gemm.h"
#include "compiler/ops/templates/gpu_tensor_plan.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/ops/rounded_products.h"

namespace temper {
namespace {

constexpr int64_t kSide = ir::kMatrixSide, kWarp = ir::kTensorWarp;
constexpr int64_t kMatrixWords = 4;  // a lane's, of an operand's matrix
constexpr int64_t kLeastSteps = 8;   // of a part that a reduction is split into, of an instruction each
constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32};

int64_t SharedBytes(const TensorTile& tile) { return tile.stages * (tile.bm() + tile.bn()) * tile.bk * tile.bytes(); }

// Registers of a thread, fitted to what ptxas said of hundreds of configs.
struct Registers {
  double wanted;     // for its sums, fragments, places of rows that it loads, and what it copies meanwhile
  double with_more;  // to load all fragments of a step ahead
  int64_t threads;   // of its group

  Registers(const TensorPlan& p, const GemmView& v) : threads(p.tile.threads()) {
    // Of a warp's matrices those that are not all outside.
    const int64_t tm = std::min(p.tile.tm, CeilDiv(v.rows, kSide)), tn = std::min(p.tile.tn, CeilDiv(v.columns, kSide));
    const int64_t sums = ir::kFragmentLength * tm * tn, steps = p.tile.bk / p.tile.depth();
    const int64_t fragments = kMatrixWords * (tm + tn);
    const int64_t rows = (p.a.run.along_reduction ? steps : tm) + (p.b.run.along_reduction ? steps : tn);
    const int64_t copies = p.tile.stages > 1 ? p.copies() : 0;
    wanted = static_cast<double>(20 + sums) + 0.5 * static_cast<double>(fragments + rows + copies);
    // Where each is from is kept for the next step.
    if (p.tiles.steps > 1) wanted += 3.5 * static_cast<double>(p.copies_at_once());
    with_more = wanted + static_cast<double>(fragments * steps);
  }
  bool fit() const { return wanted <= static_cast<double>(MostRegisters(threads)); }
  // ptxas leaves out a few where that makes room for one group more, and gives more where that keeps none away.
  double given(const GpuTarget& t) const {
    constexpr double kLeast = 0.85;
    const auto each = [&](int64_t groups) { return static_cast<double>(MostRegisters(groups * threads)); };
    const int64_t most_groups = std::clamp<int64_t>(t.unit_threads / threads, 1, t.unit_groups);
    double given = std::min(wanted, each(1));
    for (int64_t groups = 2; groups <= most_groups; ++groups) {
      if (each(groups) > given) continue;
      if (each(groups) >= kLeast * given) given = each(groups);
      break;
    }
    return std::round(std::max(given, std::min(with_more, each(most_groups))));
  }
};

bool Matches(const Workload& w) { return IsTensorProduct(w, kTypes); }

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const GemmView v = TensorView(w);
  const int64_t depth = ir::MatrixColumns(ElementOf(w));
  const TensorPlans plan = PlansOf(w, v, 1);
  ConfigSpace space;
  space.Add("wm", {1, 2, 4, 8});
  space.Add("wn", {1, 2, 4, 8});
  space.Add("tm", {1, 2, 4, 8});
  space.Add("tn", {1, 2, 4, 8});
  space.Add("bk", {depth, 2 * depth, 4 * depth, 8 * depth});
  space.Add("stages", {1, 2, 3, 4});
  const std::vector<int64_t> splits = SplitsOf(v, kLeastSteps * depth, t);
  if (splits.size() > 1) space.Add("split", splits);
  RequireTensorTiles(space, v, plan, t, 1);
  space.Require("shared memory",
                [plan, most = t.shared_bytes](const Config& c) { return SharedBytes(plan(c).tile) <= most; });
  space.Require("registers", [plan, v](const Config& c) { return Registers(plan(c), v).fit(); });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  const GemmView v = TensorView(w);
  const TensorPlan p = PlansOf(w, v, 1)(c);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, TensorProgram("mma", w, v, p));
  Schedule s(std::move(func));
  s.Tensorize(ScheduleTensorProgram(s, v, p, [](const TensorOperand&) {}).row);
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs, TensorPacks(w, v, p));
  if (p.tile.type == DType::kF32) kernel.tolerance = kTf32Tolerance;
  return kernel;
}

// Instructions of a thread beside those that multiply, fitted to the machine code of some hundred configs.
double Instructions(const TensorPlan& p) {
  constexpr double kOfStep = 8, kOfCopy = 2.3, kOfLoad = 1.2, kOfRounding = 2, kOfResult = 2;  // with their addresses
  const TensorTile& tile = p.tile;
  const bool f32 = tile.type == DType::kF32;
  // One instruction loads a matrix, where its rows lie as it takes them; it turns f16, but no f32.
  const auto loads = [&](const TensorOperand& o) { return f32 && !o.run.along_reduction ? kMatrixWords : 1; };
  const int64_t products = tile.bk / tile.depth(), matrices = products * (tile.tm + tile.tn);
  const double loaded = static_cast<double>(products * (tile.tm * loads(p.a) + tile.tn * loads(p.b)));
  const double rounded = f32 ? static_cast<double>(kMatrixWords * matrices) : 0;
  return static_cast<double>(p.tiles.steps) *
             (kOfStep + kOfCopy * static_cast<double>(p.copies()) + kOfLoad * loaded + kOfRounding * rounded) +
         kOfResult * static_cast<double>(tile.sums());
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
  const GemmView v = TensorView(w);
  const TensorPlan p = PlansOf(w, v, 1)(c);
  const TensorTile& tile = p.tile;
  GpuFootprint f = TensorFootprint(w, v, p, Registers(p, v).given(t), static_cast<double>(SharedBytes(tile)), t);
  // Of f32 half as many in a cycle, and in an instruction.
  f.tensor_fmas = t.unit_tensor_fmas * static_cast<double>(SizeOf(DType::kF16)) / static_cast<double>(tile.bytes());
  f.lane_fmas = static_cast<double>(kSide * kSide / 2 * tile.depth() / kWarp);
  f.instructions = f.groups * f.group_threads * Instructions(p);
  // Each warp reads its rows of A and columns of B.
  f.shared_traffic +=
      f.groups * f.reduction * static_cast<double>(tile.bytes() * tile.wm * tile.wn * (tile.tm + tile.tn) * kSide);
  return f;
}

}  // namespace

GpuTemplate GpuMma() {
  return {"gpu.mma", 2, Matches, Space, Build, FootprintOf, [](const GpuTarget& t) { return t.tensor_cores; }};
}

}  // namespace temper
