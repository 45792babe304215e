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

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/ops/templates/gpu_contraction.h"
#include "compiler/ops/templates/gpu_tensor.h"
#include "compiler/ops/templates/stages.h"
#include "compiler/ops/tf32.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

constexpr int64_t kSide = ir::kMatrixSide, kWarp = ir::kTensorWarp, kFragment = ir::kFragmentLength;
constexpr int64_t kMatrixWords = 4;  // a lane's, of an operand's matrix
constexpr int64_t kMostAtOnce = 16;  // copies of a thread through registers; of more ptxas spills
constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32};

// What a config means for the view of a product of that type.
struct Tile {
  DType type;
  int64_t wm, wn, tm, tn, bk, stages;
  int64_t bm, bn, warps, threads, length, row_tiles, column_tiles, steps;
  int64_t used_tm, used_tn;  // of a warp's matrices, those that are not all outside
  Tile(DType type, const GemmView& v, const Config& c)
      : type(type),
        wm(c["wm"]),
        wn(c["wn"]),
        tm(c["tm"]),
        tn(c["tn"]),
        bk(c["bk"]),
        stages(c["stages"]),
        bm(wm * tm * kSide),
        bn(wn * tn * kSide),
        warps(wm * wn),
        threads(warps * kWarp),
        length(ReductionLength(v)),
        row_tiles(CeilDiv(v.rows, bm)),
        column_tiles(CeilDiv(v.columns, bn)),
        steps(CeilDiv(length, bk)),
        used_tm(std::min(tm, CeilDiv(v.rows, kSide))),
        used_tn(std::min(tn, CeilDiv(v.columns, kSide))) {}

  int64_t bytes() const { return SizeOf(type); }  // of an element
  int64_t run() const { return ir::QuarterColumns(type); }
  int64_t depth() const { return ir::MatrixColumns(type); }  // of the reduction, in an instruction
  int64_t shared_bytes() const { return stages * (bm + bn) * bk * bytes(); }
};

// An operand's way to shared memory.
struct Staged {
  std::string name;
  Run run;
  int64_t size;         // rows of A or columns of B in a tile
  int64_t lanes;        // elements of a copy
  bool at_once;         // through a register, since it is too little for an asynchronous copy
  int64_t runs;         // of 16 bytes, of a row
  int64_t rows, width;  // that a load takes at once, and how many runs of each

  Staged(std::string name, const Run& run, int64_t size, const Tile& tile)
      : name(std::move(name)),
        run(run),
        size(size),
        lanes(CopiedAtOnce(tile.type, run)),
        at_once(lanes * tile.bytes() < kLeastAsyncCopy),
        runs((run.along_reduction ? tile.bk : size) / tile.run()),
        rows(run.along_reduction || tile.bytes() == 2 ? 8 : 4),
        width(8 / rows) {}
  int64_t slow(int64_t bk) const { return run.along_reduction ? size : bk; }
  int64_t copies(int64_t bk) const { return size * bk / lanes; }
  PaddedOperand padded(const Tile& tile, int64_t tiles) const {
    return {run, lanes, tiles * size, tile.steps * tile.bk};
  }
  int64_t copies_at_once(const Tile& tile) const { return at_once ? copies(tile.bk) / tile.threads : 0; }
  // How far the runs of the row are turned.
  Expr Turn(const Expr& row) const {
    const int64_t apart = std::min(runs / width, rows);  // rows that lie in the same banks
    return row % Expr(rows) / Expr(rows / apart) * Expr(width);
  }
};

// Registers of a thread, fitted to what ptxas said of hundreds of configs.
struct Registers {
  double wanted;     // for its sums, fragments, places of rows that it loads, and what it copies meanwhile
  double with_more;  // to load all fragments of a step ahead

  Registers(const Tile& tile, const Staged& a, const Staged& b) {
    const int64_t sums = kFragment * tile.used_tm * tile.used_tn, steps = tile.bk / tile.depth();
    const int64_t fragments = kMatrixWords * (tile.used_tm + tile.used_tn);
    const int64_t rows =
        (a.run.along_reduction ? steps : tile.used_tm) + (b.run.along_reduction ? steps : tile.used_tn);
    const int64_t copies = tile.stages > 1 ? (a.copies(tile.bk) + b.copies(tile.bk)) / tile.threads : 0;
    wanted = static_cast<double>(20 + sums) + 0.5 * static_cast<double>(fragments + rows + copies);
    // Where each is from is kept for the next step.
    if (tile.steps > 1) wanted += 3.5 * static_cast<double>(a.copies_at_once(tile) + b.copies_at_once(tile));
    with_more = wanted + static_cast<double>(fragments * steps);
  }
  bool fit(const Tile& tile) const { return wanted <= static_cast<double>(MostRegisters(tile.threads)); }
  // ptxas leaves out a few where that makes room for one group more, and gives more where that keeps none away.
  double given(const Tile& tile, const GpuTarget& t) const {
    constexpr double kLeast = 0.85;
    const auto each = [&](int64_t groups) { return static_cast<double>(MostRegisters(groups * tile.threads)); };
    const int64_t most_groups = std::clamp<int64_t>(t.unit_threads / tile.threads, 1, t.unit_groups);
    double given = std::min(wanted, each(1));
    for (int64_t groups = 2; groups <= most_groups; ++groups) {
      if (each(groups) > given) continue;
      if (each(groups) >= kLeast * given) given = each(groups);
      break;
    }
    return std::round(std::max(given, std::min(with_more, each(most_groups))));
  }
};

struct Plan {
  Tile tile;
  Staged a, b;
  std::vector<Shape> packed;
};

Plan PlanOf(const Workload& w, const GemmView& v, const Config& c) {
  const Tile tile(ElementOf(w), v, c);
  return {tile,
          {"a", RunOfA(w, v), tile.bm, tile},
          {"b", RunOfB(w, v), tile.bn, tile},
          PackedShapes(w, v, tile.steps * tile.bk, tile.column_tiles * tile.bn)};
}

// The stage NAME_shared, by step, row and run of its neighbours.
ir::Buffer Stage(ir::ProgramBuilder& b, const Staged& s, const Tile& tile, int64_t batch, int64_t tiles,
                 const OperandElement& element) {
  return b.Compute(s.name + "_shared", tile.type, {batch, tiles, tile.steps, s.slow(tile.bk), s.runs, tile.run()},
                   [&](const std::vector<Expr>& i) {
                     const Expr run = (i[4] + Expr(s.runs) - s.Turn(i[3])) % Expr(s.runs);
                     const Expr fast = run * Expr(tile.run()) + i[5];
                     return UnderOneCondition(element(i[0], i[1] * Expr(s.size) + (s.run.along_reduction ? i[3] : fast),
                                                      i[2] * Expr(tile.bk) + (s.run.along_reduction ? fast : i[3])));
                   });
}

// Its element for the tile's row or column `outer` and the step's k.
Expr SharedElement(const ir::Buffer& shared, const Staged& s, const Expr& batch, const Expr& tile, const Expr& step,
                   const Expr& outer, const Expr& k) {
  const Expr &slow = s.run.along_reduction ? outer : k, &fast = s.run.along_reduction ? k : outer;
  const Expr run(shared->shape.back());
  return ir::Load(shared, {batch, tile, step, slow, (fast / run + s.Turn(slow)) % Expr(s.runs), fast % run});
}

// As the instruction takes it.
Expr Factor(const Expr& element) {
  return element->dtype == DType::kF32 ? ir::Tf32(element) : ir::Cast(element, DType::kF32);
}

ir::Buffer Sums(ir::ProgramBuilder& b, const GemmView& v, const Plan& p, const ir::Buffer& a,
                const ir::Buffer& b_shared) {
  const Tile& tile = p.tile;
  return b.Reduce(
      "acc", DType::kF32,
      {v.batch, tile.row_tiles, tile.column_tiles, tile.warps, kLaneRows, kLaneColumns, tile.tm, tile.tn, kFragment},
      {tile.steps, tile.bk / tile.depth(), tile.depth()}, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr &warp = i[3], &e = i[8];
        const Expr row =
            (warp / Expr(tile.wn) * Expr(tile.tm) + i[6]) * Expr(kSide) + i[4] + e / Expr(2) % Expr(2) * Expr(8);
        const Expr column = (warp % Expr(tile.wn) * Expr(tile.tn) + i[7]) * Expr(kSide) + i[5] * Expr(2) + e % Expr(2) +
                            e / Expr(4) * Expr(8);
        const Expr k = r[1] * Expr(tile.depth()) + r[2];
        const Expr from_a = SharedElement(a, p.a, i[0], i[1], r[0], row, k);
        const Expr from_b = SharedElement(b_shared, p.b, v.b_batched ? i[0] : Expr(0), i[2], r[0], column, k);
        return Factor(from_a) * Factor(from_b);
      });
}

// The sum of that row and column.
Expr SumAt(const ir::Buffer& acc, const Tile& tile, const Expr& batch, const Expr& row, const Expr& column) {
  const Expr warp =
      row / Expr(tile.tm * kSide) % Expr(tile.wm) * Expr(tile.wn) + column / Expr(tile.tn * kSide) % Expr(tile.wn);
  const Expr e = column % Expr(2) + row / Expr(8) % Expr(2) * Expr(2) + column / Expr(8) % Expr(2) * Expr(4);
  return ir::Load(acc,
                  {batch, row / Expr(tile.bm), column / Expr(tile.bn), warp, row % Expr(8), column / Expr(2) % Expr(4),
                   row / Expr(kSide) % Expr(tile.tm), column / Expr(kSide) % Expr(tile.tn), e});
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const GemmView& v, const Plan& p) {
  const Tile& tile = p.tile;
  ir::ProgramBuilder b("mma");
  WorkloadProgram program(w, b, p.packed);
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

// The loops of the result: groups, then threads, then what each thread stores. Returns the innermost group loop.
Loop ScheduleOut(Schedule& s, const GemmView& v, const Tile& tile) {
  const std::vector<GemmAxis> axes = OutAxes(v);
  const bool wide_store = StoresRuns(s, "out", axes, v.columns, 2);
  const auto [batches, row, column] = LoopsByAxis(s.Loops("out"), axes);
  const std::vector<Loop> r = Cut(s, row, {kLaneRows, 2, tile.tm, tile.wm});
  const std::vector<Loop> c = Cut(s, column, {2, kLaneColumns, 2, tile.tn, tile.wn});
  std::vector<Loop> order = batches;
  order.insert(order.end(), {c[0], r[0], r[1], c[1], r[4], c[4], r[2], c[2], r[3], c[3], c[5]});
  s.Reorder(order);
  BindGroups(s, batches, r[0], c[0]);
  BindWarps(s, s.Fuse(r[1], c[1]), r[4], c[4]);
  for (const Loop& loop : {r[2], c[2], r[3], c[3]}) s.Unroll(loop);
  if (wide_store) {
    s.Vectorize(c[5]);
  } else {
    s.Unroll(c[5]);
  }
  return r[0];
}

absl::StatusOr<ir::Func> ScheduleMma(ir::Func func, const GemmView& v, const Plan& p) {
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
  for (const Staged& staged : {p.a, p.b}) ScheduleCopies(s, staged.name + "_shared", tile.threads, staged.lanes);
  if (tile.stages > 1) s.Pipeline({"a_shared", "b_shared"}, step, static_cast<int>(tile.stages));
  s.Tensorize(row);
  return LowerSchedule(s);
}

bool Matches(const Workload& w) { return IsTensorProduct(w, kTypes); }

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const GemmView v = TensorView(w);
  const DType type = ElementOf(w);
  const int64_t depth = ir::MatrixColumns(type);
  ConfigSpace space;
  space.Add("wm", {1, 2, 4, 8});
  space.Add("wn", {1, 2, 4, 8});
  space.Add("tm", {1, 2, 4, 8});
  space.Add("tn", {1, 2, 4, 8});
  space.Add("bk", {depth, 2 * depth, 4 * depth, 8 * depth});
  space.Add("stages", {1, 2, 3, 4});
  space.Require("threads of a group",
                [most = t.group_threads](const Config& c) { return c["wm"] * c["wn"] * kWarp <= most; });
  space.Require("the tile is much larger than the result", [rows = v.rows, columns = v.columns](const Config& c) {
    const int64_t tm = c["wm"] * c["tm"], tn = c["wn"] * c["tn"];
    return (tm == 1 || tm * kSide < 2 * rows) && (tn == 1 || tn * kSide < 2 * columns);
  });
  space.Require("a step is much longer than the reduction",
                [depth, k = ReductionLength(v)](const Config& c) { return c["bk"] == depth || c["bk"] < 2 * k; });
  space.Require("too many groups along an axis",
                [type, v](const Config& c) { return Tile(type, v, c).column_tiles <= kMostOfAxis; });
  const auto staged = [a = RunOfA(w, v), b = RunOfB(w, v)](const Tile& tile) {
    return std::pair(Staged("a", a, tile.bm, tile), Staged("b", b, tile.bn, tile));
  };
  // Of copies at once none is ahead.
  space.Require("a stage for each of a few steps, and one stage for one alone", [type, v, staged](const Config& c) {
    const Tile tile(type, v, c);
    const auto [a, b] = staged(tile);
    return tile.stages <= tile.steps && (tile.stages == 1) == (tile.steps == 1 || a.at_once || b.at_once);
  });
  space.Require("a thread copies much at once", [type, v, staged](const Config& c) {
    const Tile tile(type, v, c);
    const auto [a, b] = staged(tile);
    return a.copies_at_once(tile) + b.copies_at_once(tile) <= kMostAtOnce;
  });
  space.Require("a step is no whole round of the threads", [type, v, staged](const Config& c) {
    const Tile tile(type, v, c);
    const auto [a, b] = staged(tile);
    return a.copies(tile.bk) % tile.threads == 0 && b.copies(tile.bk) % tile.threads == 0;
  });
  space.Require("shared memory",
                [type, v, most = t.shared_bytes](const Config& c) { return Tile(type, v, c).shared_bytes() <= most; });
  space.Require("registers", [type, v, staged](const Config& c) {
    const Tile tile(type, v, c);
    const auto [a, b] = staged(tile);
    return Registers(tile, a, b).fit(tile);
  });
  return space;
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  const GemmView v = TensorView(w);
  const Plan p = PlanOf(w, v, c);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, v, p));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleMma(std::move(func), v, p));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs, PackB(w, v, p.packed));
  if (p.tile.type == DType::kF32) kernel.tolerance = kTf32Tolerance;
  return kernel;
}

// Instructions of a thread beside those that multiply, fitted to the machine code of some hundred configs.
double Instructions(const Plan& p) {
  constexpr double kOfStep = 8, kOfCopy = 2.3, kOfLoad = 1.2, kOfRounding = 2, kOfResult = 2;  // with their addresses
  const Tile& tile = p.tile;
  const bool f32 = tile.type == DType::kF32;
  // One instruction loads a matrix, where its rows lie as it takes them; it turns f16, but no f32.
  const auto loads = [&](const Staged& s) { return f32 && !s.run.along_reduction ? kMatrixWords : 1; };
  const int64_t matrices = tile.bk / tile.depth() * (tile.tm + tile.tn);
  const double loaded = static_cast<double>(tile.bk / tile.depth() * (tile.tm * loads(p.a) + tile.tn * loads(p.b)));
  const double copies = static_cast<double>((p.a.copies(tile.bk) + p.b.copies(tile.bk)) / tile.threads);
  const double rounded = f32 ? static_cast<double>(kMatrixWords * matrices) : 0;
  return static_cast<double>(tile.steps) * (kOfStep + kOfCopy * copies + kOfLoad * loaded + kOfRounding * rounded) +
         kOfResult * static_cast<double>(kFragment * tile.tm * tile.tn);
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
  const GemmView v = TensorView(w);
  const Plan p = PlanOf(w, v, c);
  const Tile& tile = p.tile;
  const double groups = static_cast<double>(v.batch * tile.row_tiles * tile.column_tiles);
  const double k = static_cast<double>(tile.steps * tile.bk);
  GpuFootprint f;
  // Of f32 half as many in a cycle, and in an instruction.
  f.tensor_fmas = t.unit_tensor_fmas * static_cast<double>(SizeOf(DType::kF16)) / static_cast<double>(tile.bytes());
  f.lane_fmas = static_cast<double>(kSide * kSide / 2 * tile.depth() / kWarp);
  f.flops = 2 * static_cast<double>(v.batch * v.rows * v.columns * tile.length);
  f.padded_flops = 2 * groups * static_cast<double>(tile.bm * tile.bn) * k;
  f.compulsory_bytes = CompulsoryBytes(w);
  const double asked = groups * k * static_cast<double>(tile.bytes() * (tile.bm + tile.bn));
  f.vector_lanes = static_cast<double>(std::min(p.a.lanes, p.b.lanes));
  f.group_threads = static_cast<double>(tile.threads);
  f.groups = groups;
  f.accumulators = static_cast<double>(kFragment * tile.tm * tile.tn);
  f.reduction = k;
  f.registers = Registers(tile, p.a, p.b).given(tile, t);
  f.shared_bytes = static_cast<double>(tile.shared_bytes());
  // Each warp reads its rows of A and columns of B, and all is written once.
  f.shared_traffic = asked + groups * k * static_cast<double>(tile.bytes() * tile.warps * (tile.tm + tile.tn) * kSide);
  f.barriers = static_cast<double>(tile.steps) * (tile.stages > 1 || tile.steps == 1 ? 1 : 2);
  f.round_trips = static_cast<double>(tile.steps);
  f.trips_ahead = static_cast<double>(tile.stages - 1);
  const int64_t steps_asked = std::max<int64_t>(tile.stages - 1, 1);
  f.in_flight_bytes = static_cast<double>(tile.bytes() * (tile.bm + tile.bn) * tile.bk * steps_asked) / f.group_threads;
  f.instructions = f.groups * f.group_threads * Instructions(p);
  const double results = static_cast<double>(tile.bytes() * v.batch * v.rows * v.columns);
  AddOperandTraffic(f, v, {v.batch, tile.row_tiles, tile.column_tiles, tile.bm, tile.bn, tile.bytes()},
                    f.compulsory_bytes - results, t);
  f.memory_traffic = std::max(f.memory_traffic + results, f.compulsory_bytes);
  f.cache_traffic += results;
  return f;
}

}  // namespace

GpuTemplate GpuMma() {
  return {"gpu.mma", 1, Matches, Space, Build, FootprintOf, [](const GpuTarget& t) { return t.tensor_cores; }};
}

}  // namespace temper
