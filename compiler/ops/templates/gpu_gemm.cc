#include "compiler/ops/templates/gpu_gemm.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/launch.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/gpu_contraction.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

constexpr int64_t kFewestThreads = 32;
constexpr int64_t kLanes = 4;  // floats of the widest access
constexpr int64_t kShortestStep = 4;
constexpr int64_t kMostSplits = 16;
constexpr int64_t kGroupsOfUnit = 8;  // beside one another; with so many a unit, nothing is gained by more
constexpr int64_t kSumThreads = 64;   // of a group that adds up

int64_t Lanes(int64_t count) { return count % kLanes == 0 ? kLanes : count % 2 == 0 ? 2 : 1; }

// What a config means for the view.
struct Tile {
  int64_t ty, tx, tm, tn, bk, vec, stages, split;
  int64_t fm, fn;  // of a thread's rows and columns, those that are neighbours
  int64_t bm, bn, threads, row_tiles, column_tiles;
  int64_t steps;   // of one of the parts that the reduction is split into
  int64_t slices;  // of the result: parts of each product of the batch
  bool windows;    // rows of A overlap
  explicit Tile(const GemmView& v, const Config& c)
      : ty(c["ty"]),
        tx(c["tx"]),
        tm(c["tm"]),
        tn(c["tn"]),
        bk(c["bk"]),
        vec(c["vec"]),
        stages(c["stages"]),
        split(c["split"]),
        fm(Lanes(tm)),
        fn(Lanes(tn)),
        bm(ty * tm),
        bn(tx * tn),
        threads(ty * tx),
        row_tiles(CeilDiv(v.rows, bm)),
        column_tiles(CeilDiv(v.columns, bn)),
        steps(CeilDiv(CeilDiv(ReductionLength(v), bk), split)),
        slices(v.batch * split),
        windows(v.reduction.size() > 1) {}

  int64_t groups() const { return slices * row_tiles * column_tiles; }
  int64_t padded_length() const { return split * steps * bk; }

  int64_t shared_bytes() const {
    return ir::SharedAligned(stages * bm * bk * kElementBytes) + ir::SharedAligned(stages * bn * bk * kElementBytes);
  }
  // Elements that a thread brings in a step.
  int64_t fetched() const { return CeilDiv(bm * bk, threads) + CeilDiv(bn * bk, threads); }
  // That a thread can not do without: its results, what it multiplies, and what comes meanwhile for the next step.
  // Where rows of A are windows, it has to find more of its way. With a few less than that ptxas spills in most cases;
  // with as many, in fewer than half of them, which are few among all configs.
  int64_t held() const { return tm * tn + tm + tn + (stages - 1) * fetched() + (windows ? 14 : 11); }
  // Fitted to what ptxas said of hundreds of configs: it loads ahead where it can.
  double registers(const GpuTarget& t) const {
    const double next = static_cast<double>((stages - 1) * fetched());
    const double ahead = windows ? 0.4 * static_cast<double>(fetched()) + 1.2 * next : 0.5 * next;
    return GivenRegisters(26 + 1.2 * static_cast<double>(tm * tn) + 0.3 * static_cast<double>(tm + tn) + ahead, threads,
                          t);
  }
};

// An operand's way to the threads that multiply it.
struct Staged {
  DType type;  // on the way to shared memory, where all is f32
  Run run;
  int64_t size;   // rows or columns of a tile
  int64_t lanes;  // of a fetch
  std::string name;

  PaddedOperand padded(const Tile& tile, int64_t tiles) const {
    return {run, lanes, tiles * size, tile.padded_length()};
  }
};

int64_t FetchLanes(const Run& run, int64_t size, const Tile& tile) {
  const int64_t along = run.along_reduction ? tile.bk : size;
  return run.length % tile.vec == 0 && along % tile.vec == 0 ? tile.vec : 1;
}

// The stages that bring an operand: NAME_fetch in registers, by thread; NAME_shared, by step of the reduction and row
// or column; NAME_part, what a thread multiplies, by thread and run. `element` takes the batch, row or column and step.
// The slices are those of a batch of `batch`.
ir::Buffer Stage(ir::ProgramBuilder& b, const Staged& s, const Tile& tile, int64_t batch, int64_t tiles,
                 int64_t threads, int64_t each, const OperandElement& element) {
  const int64_t slices = batch * tile.split;
  const int64_t of_step = tile.threads * s.lanes, along = s.run.along_reduction ? tile.bk : s.size;
  const Shape by_thread = {slices, tiles, tile.steps, CeilDiv(s.size * tile.bk, of_step), tile.threads, s.lanes};
  const ir::Buffer fetch = b.Compute(s.name + "_fetch", s.type, by_thread, [&](const std::vector<Expr>& i) {
    const Expr flat = (i[3] * Expr(tile.threads) + i[4]) * Expr(s.lanes) + i[5];
    const Expr slow = flat / Expr(along), fast = flat % Expr(along);
    const Expr step = i[0] % Expr(tile.split) * Expr(tile.steps) + i[2];
    return element(i[0] / Expr(tile.split), i[1] * Expr(s.size) + (s.run.along_reduction ? slow : fast),
                   step * Expr(tile.bk) + (s.run.along_reduction ? fast : slow));
  });
  const ir::Buffer shared = b.Compute(
      s.name + "_shared", kElement, {slices, tiles, tile.steps, tile.bk, s.size}, [&](const std::vector<Expr>& i) {
        const Expr flat = s.run.along_reduction ? i[4] * Expr(tile.bk) + i[3] : i[3] * Expr(s.size) + i[4];
        return ir::Cast(ir::Load(fetch, {i[0], i[1], i[2], flat / Expr(of_step),
                                         flat / Expr(s.lanes) % Expr(tile.threads), flat % Expr(s.lanes)}),
                        kElement);
      });
  const int64_t lanes = Lanes(each);
  return b.Compute(
      s.name + "_part", kElement, {slices, tiles, tile.steps, tile.bk, each / lanes, threads, lanes},
      [&](const std::vector<Expr>& i) {
        return ir::Load(shared, {i[0], i[1], i[2], i[3], (i[4] * Expr(threads) + i[5]) * Expr(lanes) + i[6]});
      });
}

struct Plan {
  Tile tile;
  Staged a, b;
  std::vector<Shape> packed;
};

Plan PlanOf(const Workload& w, const GemmView& v, const Config& c) {
  const Tile tile(v, c);
  const DType type = ElementOf(w);
  const Run run_a = RunOfA(w, v), run_b = RunOfB(w, v);
  return {tile,
          {type, run_a, tile.bm, FetchLanes(run_a, tile.bm, tile), "a"},
          {type, run_b, tile.bn, FetchLanes(run_b, tile.bn, tile), "b"},
          PackedShapes(w, v, tile.padded_length(), tile.column_tiles * tile.bn)};
}

// The accumulator that stands for an element of a slice of the result.
Expr AccumulatorOf(const ir::Buffer& acc, const Tile& tile, const Expr& slice, const Expr& row, const Expr& column) {
  const auto digits = [](const Expr& at, int64_t block, int64_t threads, int64_t run) {
    const Expr in = at % Expr(block);
    return std::vector<Expr>{at / Expr(block), in / Expr(threads * run), in / Expr(run) % Expr(threads),
                             in % Expr(run)};
  };
  const std::vector<Expr> r = digits(row, tile.bm, tile.ty, tile.fm), c = digits(column, tile.bn, tile.tx, tile.fn);
  return ir::Load(acc, {slice, r[0], c[0], r[1], r[2], r[3], c[1], c[2], c[3]});
}

// The slices in memory.
ir::Buffer Slices(ir::ProgramBuilder& b, const GemmView& v, const Tile& tile, const ir::Buffer& acc) {
  return b.Compute("partial", kElement, {tile.slices, v.rows, v.columns},
                   [&](const std::vector<Expr>& i) { return AccumulatorOf(acc, tile, i[0], i[1], i[2]); });
}

// Elements of the product. Where the reduction is split, the first launch makes the slices; who asks for an element in
// the second one adds up its slices, "total".
ProductElement Product(ir::ProgramBuilder& b, const GemmView& v, const Tile& tile, const ir::Buffer& acc) {
  if (tile.split == 1) {
    return [&tile, acc](const Expr& batch, const Expr& row, const Expr& column) {
      return AccumulatorOf(acc, tile, batch, row, column);
    };
  }
  return SumOfSlices(b, v, tile.split, Slices(b, v, tile, acc));
}

// Up to the accumulators of each thread.
ir::Buffer Accumulators(const Workload& w, const GemmView& v, const Plan& p, WorkloadProgram& program,
                        ir::ProgramBuilder& b) {
  const Tile& tile = p.tile;
  const ir::Buffer a = Stage(b, p.a, tile, v.batch, tile.row_tiles, tile.ty, tile.tm,
                             PaddedA(program, b, v, p.a.padded(tile, tile.row_tiles)));
  const ir::Buffer part_b = Stage(b, p.b, tile, v.b_batched ? v.batch : 1, tile.column_tiles, tile.tx, tile.tn,
                                  PaddedB(w, program, v, p.b.padded(tile, tile.column_tiles)));

  return b.Reduce("acc", kElement,
                  {tile.slices, tile.row_tiles, tile.column_tiles, tile.tm / tile.fm, tile.ty, tile.fm,
                   tile.tn / tile.fn, tile.tx, tile.fn},
                  {tile.steps, tile.bk}, ir::Combiner::kSum,
                  [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                    const Expr slice_b = v.b_batched ? i[0] : i[0] % Expr(tile.split);
                    return ir::Load(a, {i[0], i[1], r[0], r[1], i[3], i[4], i[5]}) *
                           ir::Load(part_b, {slice_b, i[2], r[0], r[1], i[6], i[7], i[8]});
                  });
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const GemmView& v, const Plan& p) {
  ir::ProgramBuilder b("gemm");
  WorkloadProgram program(w, b, p.packed);
  const ir::Buffer acc = Accumulators(w, v, p, program, b);
  const ProductElement product = Product(b, v, p.tile, acc);
  TEMPER_RETURN_IF_ERROR(MarkOut(w, v, program, b, [&](const Expr& batch, const Expr& row, const Expr& column) {
    return ir::Cast(product(batch, row, column), ElementOf(w));
  }));
  return b.Finish();
}

// What all threads of a group bring: run by run, neighbouring threads neighbouring runs.
void ScheduleFetch(Schedule& s, const Staged& staged, const Tile& tile) {
  const std::vector<Loop> fetch = s.Loops(staged.name + "_fetch");
  if (!s.status().ok()) return;
  const size_t n = fetch.size();
  auto [y, x] = s.Split(fetch[n - 2], tile.tx);
  s.Reorder({y, x, fetch[n - 3], fetch[n - 1]});
  s.Bind(y, ForKind::kThreadY);
  s.Bind(x, ForKind::kThreadX);
  s.Unroll(fetch[n - 3]);
  s.Vectorize(fetch[n - 1]);

  const std::vector<Loop> shared = s.Loops(staged.name + "_shared");
  if (!s.status().ok()) return;
  Loop slow = shared[shared.size() - 2], fast = shared.back();
  if (staged.run.along_reduction) {
    std::swap(slow, fast);
    s.Reorder({slow, fast});
  }
  auto [runs, lane] = s.Split(s.Fuse(slow, fast), staged.lanes);
  auto [step, thread] = s.Split(runs, tile.threads);
  auto [ty, tx] = s.Split(thread, tile.tx);
  s.Reorder({ty, tx, step, lane});
  s.Bind(ty, ForKind::kThreadY);
  s.Bind(tx, ForKind::kThreadX);
  s.Unroll(step);
  if (staged.run.along_reduction) {
    s.Unroll(lane);
  } else {
    s.Vectorize(lane);
  }
}

// A thread's part of an operand at one step of the reduction.
void SchedulePart(Schedule& s, const std::string& name, const Loop& under) {
  s.ComputeAt(name, under);
  const std::vector<Loop> part = s.Loops(name);
  if (!s.status().ok()) return;
  s.Unroll(part[part.size() - 3]);
  s.Vectorize(part.back());
}

// A block that takes the accumulators: groups, then threads, then what each thread stores. Returns the innermost loop
// of groups.
Loop ScheduleStore(Schedule& s, const std::string& block, const std::vector<GemmAxis>& axes, int64_t columns,
                   const Tile& tile) {
  const std::vector<Loop> loops = s.Loops(block);
  if (!s.status().ok()) return nullptr;
  const bool wide = StoresRuns(s, block, axes, columns, tile.fn);
  const auto [batches, row, column] = LoopsByAxis(loops, axes);
  const std::vector<Loop> r = Cut(s, row, {tile.fm, tile.ty, tile.tm / tile.fm});  // group, turn, thread, lane
  const std::vector<Loop> c = Cut(s, column, {tile.fn, tile.tx, tile.tn / tile.fn});
  std::vector<Loop> order = batches;
  order.insert(order.end(), {c[0], r[0], r[2], c[2], r[1], r[3], c[1], c[3]});
  s.Reorder(order);
  BindGroups(s, batches, r[0], c[0]);
  s.Bind(r[2], ForKind::kThreadY);
  s.Bind(c[2], ForKind::kThreadX);
  for (const Loop& loop : {r[1], r[3], c[1]}) s.Unroll(loop);
  if (wide) {
    s.Vectorize(c[3]);
  } else {
    s.Unroll(c[3]);
  }
  return r[0];
}

// The launch whose groups each have a tile of `block`, which takes the accumulators.
void ScheduleTiles(Schedule& s, const std::string& block, const std::vector<GemmAxis>& axes, const GemmView& v,
                   const Plan& p) {
  const Tile& tile = p.tile;
  const Loop group = ScheduleStore(s, block, axes, v.columns, tile);
  for (const char* stage : {"a_fetch", "a_part", "b_fetch", "b_part", "acc"}) s.SetScope(stage, ir::Scope::kRegister);
  for (const char* stage : {"a_shared", "b_shared"}) s.SetScope(stage, ir::Scope::kShared);
  s.ComputeAt("acc", group);
  if (!s.status().ok()) return;
  const std::vector<Loop> acc = Innermost(s.Loops("acc"), 8);
  const Loop turn_y = acc[0], ty = acc[1], run_y = acc[2], turn_x = acc[3], tx = acc[4], run_x = acc[5];
  const Loop step = acc[6], k = acc[7];
  s.Reorder({step, ty, tx, k, turn_y, run_y, turn_x, run_x});
  SchedulePart(s, "a_part", k);
  SchedulePart(s, "b_part", k);
  for (const char* stage : {"b_shared", "b_fetch", "a_shared", "a_fetch"}) s.ComputeAt(stage, step);
  for (const Loop& loop : {turn_y, run_y, turn_x}) s.Unroll(loop);
  s.Vectorize(run_x);
  s.Bind(ty, ForKind::kThreadY);
  s.Bind(tx, ForKind::kThreadX);
  s.DecomposeReduction("acc", step);
  ScheduleFetch(s, p.a, tile);
  ScheduleFetch(s, p.b, tile);
  if (tile.stages > 1) {
    s.DoubleBuffer("b_shared", step);
    s.DoubleBuffer("a_shared", step);
  }
}

void ScheduleSlices(Schedule& s, const GemmView& v, const Plan& p) {
  ScheduleTiles(s, "partial", {GemmAxis::kBatch, GemmAxis::kRow, GemmAxis::kColumn}, v, p);
}

absl::StatusOr<ir::Func> ScheduleGemm(ir::Func func, const GemmView& v, const Plan& p, const GpuTarget& t) {
  Schedule s(std::move(func));
  const std::vector<GemmAxis> axes = OutAxes(v);
  if (p.tile.split == 1) {
    ScheduleTiles(s, "out", axes, v, p);
    return LowerSchedule(s);
  }
  ScheduleSlices(s, v, p);
  ScheduleSumOfSlices(s, v, t.group_threads);
  return LowerSchedule(s);
}

}  // namespace

ProductElement SumOfSlices(ir::ProgramBuilder& b, const GemmView& v, int64_t split, const ir::Buffer& slices) {
  const ir::Buffer total = b.Reduce("total", kElement, {v.batch, v.rows, v.columns}, {split}, ir::Combiner::kSum,
                                    [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                      return ir::Load(slices, {i[0] * Expr(split) + r[0], i[1], i[2]});
                                    });
  return [total](const Expr& batch, const Expr& row, const Expr& column) {
    return ir::Load(total, {batch, row, column});
  };
}

void ScheduleSumOfSlices(Schedule& s, const GemmView& v, int64_t most_threads) {
  const bool lanes = OutAxes(v).back() == GemmAxis::kColumn && v.columns % kLanes == 0;
  ScheduleElements(s, {"total", "out"}, {.threads = std::min(kSumThreads, most_threads), .vector = lanes ? kLanes : 1});
}

int64_t MostSplitGroups(const GpuTarget& t) { return kGroupsOfUnit * NominalUnits(t); }

std::vector<int64_t> SplitsOf(const GemmView& v, int64_t shortest, const GpuTarget& t) {
  constexpr int64_t kLargeTile = 128;
  const int64_t tiles = v.batch * CeilDiv(v.rows, kLargeTile) * CeilDiv(v.columns, kLargeTile);
  const int64_t most = std::min({kMostSplits, CeilDiv(ReductionLength(v), shortest), MostSplitGroups(t) / tiles});
  std::vector<int64_t> splits = {1};
  for (int64_t n = 2; n <= most; n *= 2) splits.push_back(n);
  return splits;
}

bool GpuGemmFits(const GemmView& v) { return v.batch <= kMostOfAxis; }

void AddGpuGemmKnobs(ConfigSpace& space, const Workload& w, const std::vector<int64_t>& splits, const GpuTarget& t,
                     const ViewOfConfig& view) {
  const std::vector<int64_t> threads = GroupThreads(t);
  const int64_t fewest = std::min(kFewestThreads, threads.back());
  space.Add("ty", {1, 2, 4, 8, 16, 32});
  space.Add("tx",
            fewest == kFewestThreads ? std::vector<int64_t>{4, 8, 16, 32, 64} : std::vector<int64_t>{1, 2, 4, 8, 16});
  space.Add("tm", {1, 2, 4, 8});
  space.Add("tn", {1, 2, 4, 8});
  space.Add("bk", {kShortestStep, 8, 16, 32});
  space.Add("vec", {1, 2, 4});
  space.Add("stages", {1, 2});
  space.Add("split", splits);
  space.Require("threads of a group", [fewest, most = t.group_threads](const Config& c) {
    const int64_t n = c["ty"] * c["tx"];
    return fewest <= n && n <= most;
  });
  space.Require("the tile is much larger than the result", [fewest, view](const Config& c) {
    const GemmView& v = view(c);
    const bool least = c["ty"] * c["tx"] == fewest && c["tm"] == 1 && c["tn"] == 1;
    return least || (c["ty"] * c["tm"] < 2 * v.rows && c["tx"] * c["tn"] < 2 * v.columns);
  });
  space.Require("a step is much longer than the reduction",
                [view](const Config& c) { return c["bk"] == kShortestStep || c["bk"] < 2 * ReductionLength(view(c)); });
  const auto tile_of = [view](const Config& c) { return Tile(view(c), c); };
  space.Require("one step has no next one",
                [tile_of](const Config& c) { return c["stages"] == 1 || tile_of(c).steps > 1; });
  space.Require("too many groups along an axis", [tile_of](const Config& c) {
    const Tile tile = tile_of(c);
    return tile.column_tiles <= kMostOfAxis && tile.slices <= kMostOfAxis;
  });
  space.Require("a part of the reduction has no step", [view](const Config& c) {
    const Tile tile(view(c), c);
    return (tile.split - 1) * tile.steps * tile.bk < ReductionLength(view(c));
  });
  space.Require(
      "there are groups enough without more parts of the reduction",
      [tile_of, most = MostSplitGroups(t)](const Config& c) { return c["split"] == 1 || tile_of(c).groups() <= most; });
  const GemmView& any = view(space.At(0));
  space.Require("no operand has vectors as wide", [a = RunOfA(w, any), b = RunOfB(w, any), tile_of](const Config& c) {
    const Tile tile = tile_of(c);
    return tile.vec == 1 || FetchLanes(a, tile.bm, tile) > 1 || FetchLanes(b, tile.bn, tile) > 1;
  });
  space.Require("shared memory",
                [tile_of, most = t.shared_bytes](const Config& c) { return tile_of(c).shared_bytes() <= most; });
  space.Require("registers", [tile_of](const Config& c) {
    const Tile tile = tile_of(c);
    return tile.held() <= MostRegisters(tile.threads);
  });
}

ConfigSpace GpuGemmSpace(const Workload& w, const GemmView& v, const GpuTarget& t) {
  ConfigSpace space;
  AddGpuGemmKnobs(space, w, SplitsOf(v, kShortestStep, t), t, [v](const Config&) -> const GemmView& { return v; });
  return space;
}

absl::StatusOr<Kernel> BuildGpuGemm(const Workload& w, const GemmView& v, const Config& c, const GpuTarget& t) {
  const Plan p = PlanOf(w, v, c);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, v, p));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleGemm(std::move(func), v, p, t));
  TEMPER_ASSIGN_OR_RETURN(kernel.packs, PackB(w, v, p.packed));
  return kernel;
}

std::vector<Shape> GpuGemmPacked(const Workload& w, const GemmView& v, const Config& c) {
  return PlanOf(w, v, c).packed;
}

ir::Buffer AddGpuGemm(const Workload& w, const GemmView& v, const Config& c, WorkloadProgram& program,
                      ir::ProgramBuilder& b) {
  const Plan p = PlanOf(w, v, c);
  return Slices(b, v, p.tile, Accumulators(w, v, p, program, b));
}

void ScheduleGpuGemm(Schedule& s, const Workload& w, const GemmView& v, const Config& c) {
  ScheduleSlices(s, v, PlanOf(w, v, c));
}

namespace {

// How operands lie in memory as far as the view tells it, without a nest: a footprint is taken of a great many configs.
Run LikelyRunOfA(const GemmView& v) { return {true, v.reduction.back()}; }
Run LikelyRunOfB(const Workload& w, const GemmView& v) {
  if (HasConstantB(w, v)) return {false, 0};
  return v.b_contiguous ? Run{false, v.columns} : Run{true, v.reduction.back()};
}

// Of all threads: instructions beside multiply-adds, and what they take of shared memory.
void AddStaging(GpuFootprint& f, const Tile& tile, const Run& run_a, const Run& run_b) {
  constexpr double kTurnBytes = 128, kStepInstructions = 8, kResultInstructions = 1.5;
  const double steps = static_cast<double>(tile.steps);
  const double tx = static_cast<double>(tile.tx), tm = static_cast<double>(tile.tm), tn = static_cast<double>(tile.tn);
  const double fm = static_cast<double>(tile.fm), fn = static_cast<double>(tile.fn);
  const double along_x = std::min(tx, 32.0), warps = f.groups * std::ceil(f.group_threads / 32);
  f.instructions = f.reduction * (tm / fm + tn / fn) + kStepInstructions * steps + kResultInstructions * tm * tn;
  double turns = f.reduction * (tm / fm * BankTurns(fm, 32 / along_x, fm) + tn / fn * BankTurns(fn, along_x, fn));
  for (const auto& [run, size] : {std::pair(run_a, tile.bm), std::pair(run_b, tile.bn)}) {
    const int64_t of_fetch = FetchLanes(run, size, tile);
    const double lanes = static_cast<double>(of_fetch);
    const double fetches = static_cast<double>(CeilDiv(size * tile.bk, tile.threads * of_fetch));
    // What comes along the reduction is stored across it, element by element.
    const double of_row = std::min(32.0, static_cast<double>(tile.bk) / lanes);
    f.instructions += steps * fetches * (2 + (run.along_reduction ? lanes : 1));
    turns +=
        steps * fetches *
        (run.along_reduction ? lanes * BankTurns(1, of_row, static_cast<double>(size)) : BankTurns(lanes, 32, lanes));
  }
  f.instructions *= f.groups * f.group_threads;
  f.shared_traffic = kTurnBytes * warps * turns;
}

}  // namespace

GpuFootprint GpuProductFootprint(const Workload& w, const GemmView& v, const Config& c, double a_bytes,
                                 const GpuTarget& t) {
  const Tile tile(v, c);
  const double groups = static_cast<double>(tile.groups()), steps = static_cast<double>(tile.steps);
  const double k = static_cast<double>(tile.steps * tile.bk);
  GpuFootprint f;
  f.flops = 2 * static_cast<double>(v.batch * v.rows * v.columns * ReductionLength(v));
  f.padded_flops = 2 * groups * static_cast<double>(tile.bm * tile.bn) * k;
  f.vector_lanes = static_cast<double>(tile.vec);
  f.group_threads = static_cast<double>(tile.threads);
  f.groups = groups;
  f.accumulators = static_cast<double>(tile.tm * tile.tn);
  f.reduction = k;
  f.registers = tile.registers(t);
  f.shared_bytes = static_cast<double>(tile.shared_bytes());
  f.barriers = steps * (tile.stages > 1 ? 1 : 2);
  f.in_flight_bytes = static_cast<double>(SizeOf(ElementOf(w)) * tile.fetched() * tile.stages);
  f.round_trips = steps;
  f.trips_ahead = static_cast<double>(tile.stages - 1);
  AddOperandTraffic(f, v, {tile.slices, tile.row_tiles, tile.column_tiles, tile.bm, tile.bn, SizeOf(ElementOf(w))},
                    a_bytes, t);
  AddStaging(f, tile, LikelyRunOfA(v), LikelyRunOfB(w, v));
  return f;
}

GpuFootprint GpuGemmFootprint(const Workload& w, const GemmView& v, const Config& c, const GpuTarget& t) {
  const double compulsory = CompulsoryBytes(w);
  const double count = static_cast<double>(v.batch) * static_cast<double>(v.rows * v.columns);
  const double results = static_cast<double>(SizeOf(ElementOf(w))) * count;
  GpuFootprint f = GpuProductFootprint(w, v, c, compulsory - results, t);
  f.compulsory_bytes = compulsory;
  double written = results;
  if (c["split"] > 1) {
    f.launches = 2;
    written += 2 * static_cast<double>(c["split"] * kElementBytes) * count;  // slices, written and read
  }
  f.cache_traffic += written;
  f.memory_traffic = std::max(f.memory_traffic + written, f.compulsory_bytes);
  return f;
}

GpuTemplate GpuGemm() {
  return {
      "gpu.gemm",
      2,
      [](const Workload& w) {
        const auto multiplies = [&](DType type) { return IsMatmulOf(w, type); };
        return std::ranges::any_of(kGpuGemmTypes, multiplies) && GpuGemmFits(MatmulView(w));
      },
      [](const Workload& w, const GpuTarget& t) { return GpuGemmSpace(w, MatmulView(w), t); },
      [](const Workload& w, const Config& c, const GpuTarget& t) { return BuildGpuGemm(w, MatmulView(w), c, t); },
      [](const Workload& w, const Config& c, const GpuTarget& t) { return GpuGemmFootprint(w, MatmulView(w), c, t); }};
}

}  // namespace temper
