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

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/ops/templates/gpu_contraction.h"
#include "compiler/ops/templates/gpu_tensor.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kSide = ir::kMatrixSide, kTeamRows = ir::kTeamRows, kTeamWarps = ir::kTeamWarps;
constexpr int64_t kFragment = ir::kFragmentLength, kDepth = ir::kTeamSteps;
constexpr int64_t kBytes = 2, kRun = ir::kTileSide, kRunBytes = kRun * kBytes;
constexpr int64_t kBankRuns = 8;       // that all banks hold
constexpr int64_t kLeastColumns = 64;  // of a tile: of fewer a team has nothing for some threads to copy
constexpr int64_t kMostAtOnce = 16;    // copies of a thread through registers
constexpr DType kTypes[] = {DType::kF16, DType::kBF16};

// What a config means for the view.
struct Tile {
  DType type;
  int64_t wm, wn, tm, tn, bk, stages;
  int64_t bm, bn, teams, threads, length, row_tiles, column_tiles, steps;
  Tile(DType type, const GemmView& v, const Config& c)
      : type(type),
        wm(c["wm"]),
        wn(c["wn"]),
        tm(c["tm"]),
        tn(c["tn"]),
        bk(c["bk"]),
        stages(c["stages"]),
        bm(wm * tm * kTeamRows),
        bn(wn * tn * kSide),
        teams(wm * wn),
        threads(teams * ir::kTeamThreads),
        length(ReductionLength(v)),
        row_tiles(CeilDiv(v.rows, bm)),
        column_tiles(CeilDiv(v.columns, bn)),
        steps(CeilDiv(length, bk)) {}
};

// An operand's way to shared memory.
struct Staged {
  std::string name;
  Run run;
  int64_t size;          // rows of A or columns of B in a tile
  int64_t lanes;         // elements of a copy
  bool at_once;          // through a register, since it is too little for an asynchronous copy
  int64_t copies;        // of a step
  int64_t runs, rows;    // of 16 bytes, of a row; rows of a run
  int64_t apart;         // from a run to the next, in rows
  int64_t shared_bytes;  // of all stages

  Staged(std::string name, const Run& run, int64_t size, const Tile& tile)
      : name(std::move(name)),
        run(run),
        size(size),
        lanes(CopiedAtOnce(tile.type, run)),
        at_once(lanes * kBytes < kLeastAsyncCopy),
        copies(size * tile.bk / lanes),
        runs((run.along_reduction ? tile.bk : size) / kRun),
        rows(run.along_reduction ? size : tile.bk),
        apart(rows + (runs == 1 ? 0 : kBankRuns / std::min(runs, kBankRuns))),
        shared_bytes(CeilDiv(tile.stages * length() * kRunBytes, ir::kSharedAlignment) * ir::kSharedAlignment) {}
  int64_t length() const { return (runs - 1) * apart + rows; }  // of a stage, in rows of runs
  bool spreads() const { return runs % kBankRuns == 0 || kBankRuns % runs == 0; }
  int64_t copies_at_once(const Tile& tile) const { return at_once ? copies / tile.threads : 0; }
  PaddedOperand padded(const Tile& tile, int64_t tiles) const {
    return {run, lanes, tiles * size, tile.steps * tile.bk};
  }
};

struct Plan {
  Tile tile;
  Staged a, b;

  Plan(const Workload& w, const GemmView& v, const Config& c)
      : Plan(Tile(ElementOf(w), v, c), RunOfA(w, v), RunOfB(w, v)) {}
  Plan(const Tile& tile, const Run& of_a, const Run& of_b)
      : tile(tile), a("a", of_a, tile.bm, tile), b("b", of_b, tile.bn, tile) {}
  std::vector<Shape> packed(const Workload& w, const GemmView& v) const {
    return PackedShapes(w, v, tile.steps * tile.bk, tile.column_tiles * tile.bn);
  }
  int64_t shared_bytes() const { return a.shared_bytes + b.shared_bytes; }
  int64_t copies() const { return (a.copies + b.copies) / tile.threads; }  // of a thread, in a step
  int64_t copies_at_once() const { return a.copies_at_once(tile) + b.copies_at_once(tile); }
  int64_t sums() const { return kFragment * tile.tm * tile.tn; }
  // Registers that a thread has use for, fitted to what ptxas said of some dozen configs.
  double registers() const {
    double wanted = 26 + 1.1 * static_cast<double>(sums()) + 0.5 * static_cast<double>(copies());
    if (tile.steps > 1) wanted += 3.5 * static_cast<double>(copies_at_once());
    return wanted;
  }
  // ptxas leaves out a few where that makes room for one group more, and gives more where that keeps none away.
  double given_registers() const {
    constexpr double kLeast = 0.88;
    int64_t groups = 1;
    while (static_cast<double>(MostRegisters((groups + 1) * tile.threads)) >= kLeast * registers()) ++groups;
    return std::min(static_cast<double>(MostRegisters(groups * tile.threads)),
                    std::round(registers() + 0.5 * static_cast<double>(sums())));
  }
  bool fits() const {
    constexpr double kSpare = 6;  // with fewer, some configs spill
    return registers() + kSpare <= static_cast<double>(MostRegisters(tile.threads));
  }
};

// The stage NAME_shared, by step, row and run of its neighbours.
ir::Buffer Stage(ir::ProgramBuilder& b, const Staged& s, const Tile& tile, int64_t batch, int64_t tiles,
                 const OperandElement& element) {
  return b.Compute(s.name + "_shared", tile.type, {batch, tiles, tile.steps, s.rows, s.runs, kRun},
                   [&](const std::vector<Expr>& i) {
                     const Expr fast = i[4] * Expr(kRun) + i[5];
                     return UnderOneCondition(element(i[0], i[1] * Expr(s.size) + (s.run.along_reduction ? i[3] : fast),
                                                      i[2] * Expr(tile.bk) + (s.run.along_reduction ? fast : i[3])));
                   });
}

// Its element for the tile's row or column `outer` and the step's k.
Expr SharedElement(const ir::Buffer& shared, const Staged& s, const Expr& batch, const Expr& tile, const Expr& step,
                   const Expr& outer, const Expr& k) {
  const Expr &slow = s.run.along_reduction ? outer : k, &fast = s.run.along_reduction ? k : outer;
  return ir::Load(shared, {batch, tile, step, slow, fast / Expr(kRun), fast % Expr(kRun)});
}

ir::Buffer Sums(ir::ProgramBuilder& b, const GemmView& v, const Plan& p, const ir::Buffer& a,
                const ir::Buffer& b_shared) {
  const Tile& tile = p.tile;
  return b.Reduce("acc", DType::kF32,
                  {v.batch, tile.row_tiles, tile.column_tiles, tile.teams * kTeamWarps, kLaneRows, kLaneColumns,
                   tile.tm, tile.tn, kFragment},
                  {tile.steps, tile.bk / kDepth, kDepth}, ir::Combiner::kSum,
                  [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                    const Expr team = i[3] / Expr(kTeamWarps), warp = i[3] % Expr(kTeamWarps);
                    const Expr& e = i[8];
                    const Expr row = (team / Expr(tile.wn) * Expr(tile.tm) + i[6]) * Expr(kTeamRows) +
                                     warp * Expr(kSide) + i[4] + e / Expr(2) % Expr(2) * Expr(8);
                    const Expr column = (team % Expr(tile.wn) * Expr(tile.tn) + i[7]) * Expr(kSide) + i[5] * Expr(2) +
                                        e % Expr(2) + e / Expr(4) * Expr(8);
                    const Expr k = r[1] * Expr(kDepth) + r[2];
                    const Expr from_a = SharedElement(a, p.a, i[0], i[1], r[0], row, k);
                    const Expr from_b =
                        SharedElement(b_shared, p.b, v.b_batched ? i[0] : Expr(0), i[2], r[0], column, k);
                    return ir::Cast(from_a, DType::kF32) * ir::Cast(from_b, DType::kF32);
                  });
}

// The sum of that row and column.
Expr SumAt(const ir::Buffer& acc, const Tile& tile, const Expr& batch, const Expr& row, const Expr& column) {
  const Expr team =
      row / Expr(tile.tm * kTeamRows) % Expr(tile.wm) * Expr(tile.wn) + column / Expr(tile.tn * kSide) % Expr(tile.wn);
  const Expr warp = row / Expr(kSide) % Expr(kTeamWarps);
  const Expr e = column % Expr(2) + row / Expr(8) % Expr(2) * Expr(2) + column / Expr(8) % Expr(2) * Expr(4);
  return ir::Load(acc, {batch, row / Expr(tile.bm), column / Expr(tile.bn), team * Expr(kTeamWarps) + warp,
                        row % Expr(8), column / Expr(2) % Expr(4), row / Expr(kTeamRows) % Expr(tile.tm),
                        column / Expr(kSide) % Expr(tile.tn), e});
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const GemmView& v, const Plan& p) {
  const Tile& tile = p.tile;
  ir::ProgramBuilder b("wgmma");
  WorkloadProgram program(w, b, p.packed(w, v));
  const ir::Buffer a =
      Stage(b, p.a, tile, v.batch, tile.row_tiles, PaddedA(program, b, v, p.a.padded(tile, tile.row_tiles)));
  const ir::Buffer b_shared = Stage(b, p.b, tile, v.b_batched ? v.batch : 1, tile.column_tiles,
                                    PaddedB(w, program, v, p.b.padded(tile, tile.column_tiles)));
  const ir::Buffer acc = Sums(b, v, p, a, b_shared);
  TEMPER_RETURN_IF_ERROR(MarkOut(w, v, program, b, [&](const Expr& batch, const Expr& row, const Expr& column) {
    return ir::Cast(SumAt(acc, tile, batch, row, column), tile.type);
  }));
  return b.Finish();
}

// Run after run, with room between.
void LayOut(Schedule& s, const Staged& staged, const GemmView& v, const Tile& tile) {
  const bool of_a = staged.name == "a";
  const int64_t batch = of_a || v.b_batched ? v.batch : 1, tiles = of_a ? tile.row_tiles : tile.column_tiles;
  s.TransformLayout(staged.name + "_shared", {batch, tiles, tile.steps, staged.length(), kRun},
                    [apart = staged.apart](const std::vector<Expr>& i) {
                      return std::vector<Expr>{i[0], i[1], i[2], i[4] * Expr(apart) + i[3], i[5]};
                    });
}

// The loops of the result: groups, then threads, then what each thread stores. Returns the innermost group loop.
Loop ScheduleOut(Schedule& s, const GemmView& v, const Tile& tile) {
  const std::vector<GemmAxis> axes = OutAxes(v);
  const bool wide_store = StoresRuns(s, "out", axes, v.columns, 2);
  const auto [batches, row, column] = LoopsByAxis(s.Loops("out"), axes);
  // Of rows: groups, teams, matrices of a team, warps, halves, lanes. Of columns: groups, teams, fragments, halves,
  // lanes, neighbours.
  const std::vector<Loop> r = Cut(s, row, {kLaneRows, 2, kTeamWarps, tile.tm, tile.wm});
  const std::vector<Loop> c = Cut(s, column, {2, kLaneColumns, 2, tile.tn, tile.wn});
  std::vector<Loop> order = batches;
  order.insert(order.end(), {c[0], r[0], r[1], c[1], r[3], r[5], c[4], r[2], c[2], r[4], c[3], c[5]});
  s.Reorder(order);
  BindGroups(s, batches, r[0], c[0]);
  BindWarps(s, FuseAll(s, {r[1], c[1], r[3]}), r[5], c[4]);
  for (const Loop& loop : {r[2], c[2], r[4], c[3]}) s.Unroll(loop);
  if (wide_store) {
    s.Vectorize(c[5]);
  } else {
    s.Unroll(c[5]);
  }
  return r[0];
}

absl::StatusOr<ir::Func> ScheduleProducts(ir::Func func, const GemmView& v, const Plan& p) {
  const Tile& tile = p.tile;
  Schedule s(std::move(func));
  const Loop group = ScheduleOut(s, v, tile);
  s.SetScope("acc", ir::Scope::kRegister);
  for (const char* stage : {"a_shared", "b_shared"}) s.SetScope(stage, ir::Scope::kShared);
  s.ComputeAt("acc", group);
  if (!s.status().ok()) return s.status();
  const std::vector<Loop> acc = Innermost(s.Loops("acc"), 9);
  const Loop warp = acc[0], y = acc[1], x = acc[2], row = acc[3], column = acc[4], element = acc[5];
  const Loop step = acc[6], depth = acc[7], k = acc[8];
  s.Reorder({step, warp, y, x, depth, row, column, element, k});
  for (const char* stage : {"b_shared", "a_shared"}) s.ComputeAt(stage, step);
  for (const Loop& loop : {depth, row, column, element}) s.Unroll(loop);
  BindWarps(s, warp, y, x);
  s.DecomposeReduction("acc", step);
  for (const Staged& staged : {p.a, p.b}) {
    ScheduleCopies(s, staged.name + "_shared", tile.threads, staged.lanes);
    LayOut(s, staged, v, tile);
  }
  if (tile.stages > 1) s.Pipeline({"a_shared", "b_shared"}, step, static_cast<int>(tile.stages));
  s.TensorizeForTeams(depth);
  return LowerSchedule(s);
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
  const auto plan = [type = ElementOf(w), v, a = RunOfA(w, v), b = RunOfB(w, v)](const Config& c) {
    return Plan(Tile(type, v, c), a, b);
  };
  space.Require("threads of a group",
                [most = t.group_threads](const Config& c) { return c["wm"] * c["wn"] * ir::kTeamThreads <= most; });
  space.Require("the tile is much larger than the result", [rows = v.rows, columns = v.columns](const Config& c) {
    const int64_t tm = c["wm"] * c["tm"], tn = c["wn"] * c["tn"];
    return (tm == 1 || tm * kTeamRows < 2 * rows) && (tn <= kLeastColumns / kSide || tn * kSide < 2 * columns);
  });
  space.Require("a step is much longer than the reduction",
                [k = ReductionLength(v)](const Config& c) { return c["bk"] == kDepth || c["bk"] < 2 * k; });
  space.Require("too many groups along an axis",
                [plan](const Config& c) { return plan(c).tile.column_tiles <= kMostOfAxis; });
  // Of copies at once none is ahead.
  space.Require("a stage for each of a few steps, and one stage for one alone", [plan](const Config& c) {
    const Plan p = plan(c);
    return p.tile.stages <= p.tile.steps && (p.tile.stages == 1) == (p.tile.steps == 1 || p.a.at_once || p.b.at_once);
  });
  space.Require("a thread copies much at once",
                [plan](const Config& c) { return plan(c).copies_at_once() <= kMostAtOnce; });
  space.Require("a step is no whole round of the threads", [plan](const Config& c) {
    const Plan p = plan(c);
    return p.a.copies % p.tile.threads == 0 && p.b.copies % p.tile.threads == 0;
  });
  space.Require("runs of a row share banks", [plan](const Config& c) {
    const Plan p = plan(c);
    return p.a.spreads() && p.b.spreads();
  });
  space.Require("shared memory",
                [plan, most = t.shared_bytes](const Config& c) { return plan(c).shared_bytes() <= most; });
  space.Require("registers", [plan](const Config& c) { return plan(c).fits(); });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  const GemmView v = TensorView(w);
  const Plan p(w, v, c);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, v, p));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleProducts(std::move(func), v, p));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs, PackB(w, v, p.packed(w, v)));
  return kernel;
}

// Instructions of a thread beside those that multiply.
double Instructions(const Plan& p) {
  constexpr double kOfStep = 12, kOfCopy = 4.5, kOfProduct = 6, kOfResult = 2;  // with their addresses
  const auto products = static_cast<double>(p.tile.bk / kDepth * p.tile.tm);
  return static_cast<double>(p.tile.steps) *
             (kOfStep + kOfCopy * static_cast<double>(p.copies()) + kOfProduct * products) +
         kOfResult * static_cast<double>(p.sums());
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
  constexpr double kDrainCycles = 40;  // until a step's sums are there, when their products are made
  const GemmView v = TensorView(w);
  const Plan p(w, v, c);
  const Tile& tile = p.tile;
  const double groups = static_cast<double>(v.batch * tile.row_tiles * tile.column_tiles);
  const double k = static_cast<double>(tile.steps * tile.bk);
  GpuFootprint f;
  f.tensor_fmas = t.unit_team_fmas;
  f.lane_fmas = static_cast<double>(kTeamRows * tile.tn * kSide * kDepth / ir::kTeamThreads);
  f.flops = 2 * static_cast<double>(v.batch * v.rows * v.columns * tile.length);
  f.padded_flops = 2 * groups * static_cast<double>(tile.bm * tile.bn) * k;
  f.compulsory_bytes = CompulsoryBytes(w);
  f.vector_lanes = static_cast<double>(std::min(p.a.lanes, p.b.lanes));
  f.group_threads = static_cast<double>(tile.threads);
  f.groups = groups;
  f.accumulators = static_cast<double>(p.sums());
  f.reduction = k;
  f.registers = p.given_registers();
  f.shared_bytes = static_cast<double>(p.shared_bytes());
  // A step's elements are written once; each product of a team reads its rows of A and its columns of B.
  const int64_t written = tile.bm + tile.bn, read = tile.teams * tile.tm * (kTeamRows + tile.tn * kSide);
  f.shared_traffic = groups * k * static_cast<double>(kBytes * (written + read));
  f.barriers = static_cast<double>(tile.steps) * (tile.stages > 1 || tile.steps == 1 ? 1 : 2);
  f.wait_cycles = kDrainCycles * static_cast<double>(tile.steps);
  f.round_trips = static_cast<double>(tile.steps);
  f.trips_ahead = static_cast<double>(tile.stages - 1);
  const int64_t steps_asked = std::max<int64_t>(tile.stages - 1, 1);
  f.in_flight_bytes = static_cast<double>(kBytes * (tile.bm + tile.bn) * tile.bk * steps_asked) / f.group_threads;
  f.instructions = f.groups * f.group_threads * Instructions(p);
  const double results = static_cast<double>(kBytes * v.batch * v.rows * v.columns);
  AddOperandTraffic(f, v, {v.batch, tile.row_tiles, tile.column_tiles, tile.bm, tile.bn, kBytes},
                    f.compulsory_bytes - results, t);
  f.memory_traffic = std::max(f.memory_traffic + results, f.compulsory_bytes);
  f.cache_traffic += results;
  return f;
}

}  // namespace

GpuTemplate GpuWgmma() {
  return {"gpu.wgmma", 1, Matches, Space, Build, FootprintOf, [](const GpuTarget& t) { return t.unit_team_fmas > 0; }};
}

}  // namespace temper
