// gpu.depthwise: each channel by itself. A thread has th x tw outputs of a few neighbouring channels in its registers;
// neighbouring threads have neighbouring channels, so what they ask of the image comes together, and the caches keep
// what several of them see. What the outputs of a row see by a row of taps is read once, to registers. A constant
// filter is packed with the channels last.
#include <algorithm>
#include <cmath>

#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/gpu_template.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;

// Multiply-adds of a thread's unrolled code; with an access to the image for each, ptxas takes seconds for more.
constexpr int64_t kMostTaps = 1024, kMostAccesses = 512;
constexpr int64_t kUnrolledTaps = 49;
constexpr int64_t kBesideOutputs = 36;  // registers
constexpr int64_t kWidestAccess = 16;   // bytes
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// What a workload and a config mean.
struct Tile {
  TiledAxis rows, columns;
  int64_t lanes, threads;
  Tile(const Conv2dShape& s, const Config& c)
      : rows{s.oh, s.h, s.kh, s.stride_h, s.dilation_h, s.top, c["th"]},
        columns{s.ow, s.w, s.kw, s.stride_w, s.dilation_w, s.left, c["tw"]},
        lanes(c["lanes"]),
        threads(c["threads"]) {}
  int64_t outputs() const { return rows.tile * columns.tile * lanes; }
  bool unrolled() const { return rows.taps * columns.taps <= kUnrolledTaps; }
  // Elements of the image that a row of outputs sees by a row of taps, one beside another.
  int64_t window() const { return columns.reach() + 1; }
  // Whether some of them are seen more than once; registers have constant indices alone.
  bool reads_once() const { return unrolled() && window() < columns.tile * columns.taps; }
  // Units of a thread.
  int64_t units(const Conv2dShape& s) const { return s.n * rows.tiles() * columns.tiles() * (s.c / lanes); }
};

bool Matches(const Workload& w) {
  const auto convolves = [&](DType type) { return IsChannelsLastConv2d(w, false, type); };
  return std::ranges::any_of(kTypes, convolves) && Conv2dShape(w).depthwise();
}

DType TypeOf(const Workload& w) { return w.calls[w.anchor].type.dtype; }
int FilterOf(const Workload& w) { return w.calls[w.anchor].args[1]; }
Shape PackedShape(const Conv2dShape& s) { return {s.kh, s.kw, s.c}; }

// How far behind the first element that its tile sees the output `i` sees one by its tap `r`.
Expr Offset(const TiledAxis& a, const Expr& i, const Expr& r) { return i * Expr(a.stride) + r * Expr(a.dilation); }
// Where that is in the image, and whether it is inside.
Expr InputAt(const TiledAxis& a, const Expr& tile, const Expr& offset, std::vector<Expr>& inside) {
  const Expr at = tile * Expr(a.tile * a.stride) + offset - Expr(a.before);
  if (a.before > 0) inside.push_back(Expr(0) <= at);
  if ((a.tiles() - 1) * a.tile * a.stride + a.reach() - a.before >= a.in) inside.push_back(at < Expr(a.in));
  return at;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Conv2dShape& s, const Tile& tile) {
  ir::ProgramBuilder b("depthwise");
  const int filter = FilterOf(w);
  const bool packed = w.inputs[filter].constant;
  std::vector<Shape> shapes(w.inputs.size());
  if (packed) shapes[filter] = PackedShape(s);
  WorkloadProgram program(w, b, shapes);
  const ir::Tensor& x = program.value(w.calls[w.anchor].args[0]);
  const DType sum = Info(TypeOf(w)).accumulator;
  const Shape tiles = {
      s.n, tile.rows.tiles(), tile.columns.tiles(), s.c / tile.lanes, tile.rows.tile, tile.columns.tile, tile.lanes};
  // Of the image at those tiles: the lane's element, so far from the first one down and across.
  const auto seen = [&](const std::vector<Expr>& i, const Expr& lane, const Expr& down, const Expr& right) {
    std::vector<Expr> inside;
    const Expr y = InputAt(tile.rows, i[1], down, inside), across = InputAt(tile.columns, i[2], right, inside);
    return ir::Cast(ValueWhere(inside, x({i[0], i[3] * Expr(tile.lanes) + lane, y, across})), sum);
  };
  ir::Buffer window;
  if (tile.reads_once()) {
    window = b.Compute("window", sum,
                       {tiles[0], tiles[1], tiles[2], tiles[3], s.kh, tile.rows.tile, tile.window(), tile.lanes},
                       [&](const std::vector<Expr>& i) { return seen(i, i[7], Offset(tile.rows, i[5], i[4]), i[6]); });
  }
  const ir::Buffer acc = b.Reduce(
      "acc", sum, tiles, {s.kh, s.kw}, ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr channel = i[3] * Expr(tile.lanes) + i[6], right = Offset(tile.columns, i[5], r[1]);
        const Expr tap = packed ? ir::Load(program.buffer(filter), {r[0], r[1], channel})
                                : program.value(filter)({channel, Expr(0), r[0], r[1]});
        const Expr element = window != nullptr ? ir::Load(window, {i[0], i[1], i[2], i[3], r[0], i[4], right, i[6]})
                                               : seen(i, i[6], Offset(tile.rows, i[4], r[0]), right);
        return element * ir::Cast(tap, sum);
      });
  Expr current;
  program.SetResult(
      w.anchor, ir::Tensor(TypeOf(w), w.calls[w.anchor].type.shape, [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  b.MarkOutput(b.Compute("out", w.output().dtype, w.output().PhysicalShape(), [&](const std::vector<Expr>& i) {
    const Expr th(tile.rows.tile), tw(tile.columns.tile), lanes(tile.lanes);
    const Expr total = ir::Load(acc, {i[0], i[1] / th, i[2] / tw, i[3] / lanes, i[1] % th, i[2] % tw, i[3] % lanes});
    current = ir::Cast(total, TypeOf(w));
    return program.result()({i[0], i[3], i[1], i[2]});
  }));
  return b.Finish();
}

absl::StatusOr<ir::Func> ScheduleTiles(ir::Func func, const Tile& tile) {
  Schedule s(std::move(func));
  const bool wide = s.status().ok() && RunsAlongMemory(BlockNamed(s.func(), "out"));
  const std::vector<Loop> out = s.Loops("out");
  if (!s.status().ok()) return s.status();
  auto [row_tile, row] = s.Split(out[1], tile.rows.tile);
  auto [column_tile, column] = s.Split(out[2], tile.columns.tile);
  auto [run, lane] = s.Split(out[3], tile.lanes);
  s.Reorder({out[0], row_tile, column_tile, run, row, column, lane});
  const Dealt dealt = Deal(s, FuseAll(s, {out[0], row_tile, column_tile, run}), tile.threads, 1);
  s.SetScope("acc", ir::Scope::kRegister);
  s.ComputeAt("acc", dealt.thread);
  if (!s.status().ok()) return s.status();
  const std::vector<Loop> acc = Innermost(s.Loops("acc"), 5);  // row, column, lane, taps
  s.Reorder({acc[3], acc[0], acc[4], acc[1], acc[2]});
  if (tile.reads_once()) {
    s.SetScope("window", ir::Scope::kRegister);
    s.ComputeAt("window", acc[0]);
    const std::vector<Loop> window = Innermost(s.Loops("window"), 2);
    s.Unroll(window[0]);
    s.Vectorize(window[1]);
  }
  for (const Loop& loop : {acc[0], acc[1], row, column}) s.Unroll(loop);
  s.Vectorize(acc[2]);
  s.DecomposeReduction("acc", acc[3]);
  if (tile.unrolled()) {
    s.Unroll(acc[3]);
    s.Unroll(acc[4]);
  }
  if (wide) {
    s.Vectorize(lane);
  } else {
    s.Unroll(lane);
  }
  return LowerSchedule(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  const Conv2dShape s(w);
  const Tile tile(s, c);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, s, tile));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, ScheduleTiles(std::move(func), tile));
  kernel.packs.resize(w.inputs.size());
  const int filter = FilterOf(w);
  if (w.inputs[filter].constant) {
    TEMPER_ASSIGN_OR_RETURN(kernel.packs[filter], BuildPack(
                                                      "pack", w.inputs[filter], PackedShape(s),
                                                      [](const ir::Tensor& f, const std::vector<Expr>& i) {
                                                        return f({i[2], Expr(0), i[0], i[1]});
                                                      },
                                                      *HostTarget().cpu()));
  }
  return kernel;
}

// Fitted to what ptxas said.
double Registers(const Tile& tile, const GpuTarget& t) {
  const double outputs = static_cast<double>(tile.outputs());
  const double window = static_cast<double>(tile.window() * tile.lanes);
  return GivenRegisters(26 + 1.6 * outputs + 0.4 * window, tile.threads, t);
}

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const Conv2dShape s(w);
  ConfigSpace space;
  space.Add("threads", GroupThreads(t));
  const auto up_to = [](int64_t most, const std::vector<int64_t>& values) {
    std::vector<int64_t> result;
    for (int64_t v : values) {
      if (v <= most) result.push_back(v);
    }
    return result;
  };
  space.Add("th", up_to(s.oh, {1, 2, 3, 4}));
  space.Add("tw", up_to(s.ow, {1, 2, 3, 4, 6, 8}));
  std::vector<int64_t> lanes;
  for (int64_t n : {1, 2, 4, 8}) {
    if (s.c % n == 0 && n * SizeOf(TypeOf(w)) <= kWidestAccess) lanes.push_back(n);
  }
  space.Add("lanes", lanes);
  space.Require("the unrolled tile is too long", [s](const Config& c) {
    const Tile tile(s, c);
    const int64_t most = !tile.unrolled() || tile.reads_once() ? kMostTaps : kMostAccesses;
    return tile.outputs() == 1 || (tile.outputs() <= 64 && tile.outputs() * s.kh * s.kw <= most);
  });
  space.Require("registers", [s](const Config& c) {
    const Tile tile(s, c);
    return tile.outputs() == 1 || tile.outputs() + kBesideOutputs <= MostRegisters(tile.threads);
  });
  space.Require("a group has more threads than there is work", [s, least = GroupThreads(t).front()](const Config& c) {
    return c["threads"] == least || c["threads"] < 2 * Tile(s, c).units(s);
  });
  return space;
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget& t) {
  const Conv2dShape s(w);
  const Tile tile(s, c);
  const double units = static_cast<double>(tile.units(s)), taps = static_cast<double>(s.kh * s.kw);
  const double window = static_cast<double>((tile.rows.reach() + 1) * (tile.columns.reach() + 1) * tile.lanes);
  const double element = static_cast<double>(SizeOf(TypeOf(w)));
  GpuFootprint f;
  f.group_threads = static_cast<double>(tile.threads);
  f.groups = std::ceil(units / f.group_threads);
  f.flops = 2 * static_cast<double>(s.n * s.c * s.oh * s.ow) * taps;
  f.padded_flops = 2 * f.groups * f.group_threads * static_cast<double>(tile.outputs()) * taps;
  f.compulsory_bytes = CompulsoryBytes(w);
  f.memory_traffic = f.compulsory_bytes;
  // A unit's own cache has most of what several threads see.
  constexpr double kSeenByGroup = 0.75;
  f.cache_traffic =
      f.compulsory_bytes + (1 - kSeenByGroup) * std::max(0.0, element * units * window - f.compulsory_bytes);
  constexpr double kAccessInstructions = 2;  // with finding its way
  f.instructions = kAccessInstructions * f.groups * f.group_threads * (window + static_cast<double>(tile.outputs())) /
                   static_cast<double>(tile.lanes);
  f.vector_lanes = static_cast<double>(tile.lanes);
  f.accumulators = static_cast<double>(tile.outputs());
  f.reduction = taps;
  f.registers = Registers(tile, t);
  f.in_flight_bytes = element * std::min(16.0, window);
  return f;
}

}  // namespace

GpuTemplate GpuDepthwise() { return {"gpu.depthwise", 2, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
