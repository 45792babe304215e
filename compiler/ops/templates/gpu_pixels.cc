// gpu.pixels: the sum or mean of each channel over an image with channels last. Neighbouring threads of a group have
// neighbouring runs of channels, and the others share the group's pixels: each adds up its own in registers, and what
// they have is added up by way of shared memory. Where a large image is cut into parts, each is a group's, and a second
// launch adds up the parts.
#include <algorithm>
#include <cmath>

#include "compiler/ir/launch.h"
#include "compiler/ops/physical_axis.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/gpu_template.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;
using ir::ForKind;

constexpr int64_t kFewestPixels = 8;   // one thread adds up fewer
constexpr int64_t kWidestAccess = 16;  // bytes
constexpr int64_t kPartThreads = 64;   // of a group that adds up the parts
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

DType TypeOf(const Workload& w) { return w.calls[0].type.dtype; }

// What a workload and a config mean.
struct Tile {
  DType type, sum;
  bool mean;
  int64_t n, c, width, pixels;
  int64_t tx, ty, vec, parts;
  int64_t blocks;  // groups beside one another along the channels
  int64_t steps;   // of a thread: every ty-th of its part's pixels
  Tile(const Workload& w, const Config& config)
      : type(TypeOf(w)),
        sum(Info(type).accumulator),
        mean(w.calls[0].op == "reduce_mean"),
        tx(config["tx"]),
        ty(config["ty"]),
        vec(config["vec"]),
        parts(config["parts"]) {
    const Shape& x = w.TypeOf(w.calls[0].args[0]).shape;
    n = x[0], c = x[1], width = x[3], pixels = x[2] * x[3];
    blocks = CeilDiv(c, tx * vec);
    steps = CeilDiv(CeilDiv(pixels, parts), ty);
  }
  int64_t threads() const { return tx * ty; }
  int64_t part_pixels() const { return steps * ty; }
  int64_t channels() const { return blocks * tx * vec; }  // with those that are none
  int64_t shared_bytes() const { return ir::SharedAligned(threads() * vec * SizeOf(sum)); }
};

bool Matches(const Workload& w) { return SumsPixels(w, kTypes, kFewestPixels); }

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Tile& t) {
  ir::ProgramBuilder b("pixels");
  WorkloadProgram program(w, b);
  const ir::Tensor& x = program.value(w.calls[0].args[0]);
  const Shape lanes = {t.n, t.parts, t.blocks, t.ty, t.tx, t.vec};
  const ir::Buffer acc = b.Reduce(
      "acc", t.sum, lanes, {t.steps}, ir::Combiner::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr run = i[2] * Expr(t.tx) + i[4];
        const Expr pixel = (i[1] * Expr(t.steps) + r[0]) * Expr(t.ty) + i[3];
        std::vector<Expr> inside;
        if (t.channels() != t.c) inside.push_back(run < Expr(t.c / t.vec));
        if (t.parts * t.part_pixels() != t.pixels) inside.push_back(pixel < Expr(t.pixels));
        const Expr at = x({i[0], run * Expr(t.vec) + i[5], pixel / Expr(t.width), pixel % Expr(t.width)});
        return ir::Cast(ValueWhere(inside, at), t.sum);
      });
  const ir::Buffer of_threads =
      b.Compute("of_threads", t.sum, lanes, [&](const std::vector<Expr>& i) { return ir::Load(acc, i); });
  const ir::Buffer of_part = b.Reduce(
      "of_part", t.sum, {t.n, t.parts, t.c}, {t.ty}, ir::Combiner::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr run = i[2] / Expr(t.vec);
        return ir::Load(of_threads, {i[0], i[1], run / Expr(t.tx), r[0], run % Expr(t.tx), i[2] % Expr(t.vec)});
      });
  ir::Buffer total;
  if (t.parts > 1) {
    const ir::Buffer partial = b.Compute("partial", t.sum, {t.n, t.parts, t.c},
                                         [&](const std::vector<Expr>& i) { return ir::Load(of_part, i); });
    total = b.Reduce("total", t.sum, {t.n, t.c}, {t.parts}, ir::Combiner::kSum,
                     [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                       return ir::Load(partial, {i[0], r[0], i[1]});
                     });
  }
  program.SetResult(
      0, ir::Tensor(t.type, w.calls[0].type.shape, [&](const std::vector<Expr>& i) {
        const Expr sum = total != nullptr ? ir::Load(total, {i[0], i[1]}) : ir::Load(of_part, {i[0], Expr(0), i[1]});
        return ir::Cast(t.mean ? sum * ir::Float(1.0 / static_cast<double>(t.pixels)) : sum, t.type);
      }));
  TEMPER_RETURN_IF_ERROR(program.Compute(1, static_cast<int>(w.calls.size())));
  program.MarkOut();
  return b.Finish();
}

// The threads of a group, and the lanes of each, of a stage that has an element for every one.
void BindThreads(Schedule& s, const Loop& y, const Loop& x, const Loop& lane) {
  s.Bind(y, ForKind::kThreadY);
  s.Bind(x, ForKind::kThreadX);
  s.Vectorize(lane);
}

// The launch that adds up pixels, whose result is `block`: its loop over channels is `channel`, and the others' points
// are groups.
void SchedulePixels(Schedule& s, std::vector<Loop> loops, const Loop& channel, const Tile& t) {
  std::erase(loops, channel);
  auto [run, lane] = s.Split(channel, t.vec);
  auto [block, x] = s.Split(run, t.tx);
  loops.push_back(block);
  std::vector<Loop> order = loops;
  order.insert(order.end(), {x, lane});
  s.Reorder(order);
  const Loop group = FuseAll(s, loops);
  s.Bind(group, ForKind::kGroupX);
  s.Bind(x, ForKind::kThreadX);
  s.Vectorize(lane);

  s.SetScope("of_part", ir::Scope::kRegister);
  s.ComputeAt("of_part", x);
  for (const char* stage : {"of_threads", "acc"}) {
    s.SetScope(stage, stage == std::string("acc") ? ir::Scope::kRegister : ir::Scope::kShared);
    s.ComputeAt(stage, group);
  }
  const std::vector<Loop> part = s.Loops("of_part"), all = s.Loops("of_threads"), acc = s.Loops("acc");
  if (!s.status().ok()) return;
  const Loop each = part.back(), sum = part[part.size() - 2];  // threads, channels
  s.Reorder({each, sum});
  s.Unroll(each);
  const std::string zero = s.DecomposeReduction("of_part", each);
  s.Vectorize(sum);
  const std::vector<Loop> zeros = s.Loops(zero);
  if (!s.status().ok()) return;
  s.Vectorize(zeros.back());

  const std::vector<Loop> threads = Innermost(all, 3), a = Innermost(acc, 4);
  BindThreads(s, threads[0], threads[1], threads[2]);
  s.Reorder({a[0], a[1], a[3], a[2]});
  const std::string start = s.DecomposeReduction("acc", a[3]);
  BindThreads(s, a[0], a[1], a[2]);
  const std::vector<Loop> starts = s.Loops(start);
  if (s.status().ok()) s.Vectorize(starts.back());
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget& target) {
  const Tile t(w, c);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, t));
  Schedule s(std::move(func));
  if (t.parts > 1) {
    const bool runs = w.output().PhysicalShape().back() % t.vec == 0;
    ScheduleElements(s, {"total", "out"},
                     {.threads = std::min<int64_t>(kPartThreads, target.group_threads), .vector = runs ? t.vec : 1});
    const std::vector<Loop> partial = s.Loops("partial");
    if (s.status().ok()) SchedulePixels(s, partial, partial.back(), t);
  } else {
    const std::vector<Loop> out = s.Loops("out");
    if (s.status().ok()) SchedulePixels(s, out, out[PhysicalAxis(w.output(), 1)], t);
  }
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

ConfigSpace Space(const Workload& w, const GpuTarget& target) {
  const Shape& x = w.TypeOf(w.calls[0].args[0]).shape;
  const int64_t channels = x[1], pixels = x[2] * x[3];
  ConfigSpace space;
  space.Add("tx", {1, 2, 4, 8, 16, 32, 64});
  space.Add("ty", {2, 4, 8, 16, 32, 64});
  std::vector<int64_t> vectors;
  for (const int64_t n : {1, 2, 4, 8}) {
    if (channels % n == 0 && n * SizeOf(TypeOf(w)) <= kWidestAccess) vectors.push_back(n);
  }
  space.Add("vec", vectors);
  space.Add("parts", {1, 2, 4, 8, 16, 32, 64});
  const int64_t least = GroupThreads(target).front();
  space.Require("threads of a group", [least, most = target.group_threads](const Config& c) {
    const int64_t threads = c["tx"] * c["ty"];
    return threads <= most && (threads >= least || c["tx"] * c["ty"] == 2);
  });
  space.Require("a group has more channels than there are",
                [channels](const Config& c) { return c["tx"] == 1 || c["tx"] * c["vec"] < 2 * channels; });
  space.Require("threads have no pixels", [pixels](const Config& c) {
    return c["parts"] * c["ty"] <= pixels || (c["parts"] == 1 && c["ty"] == 2);
  });
  space.Require("shared memory",
                [w, most = target.shared_bytes](const Config& c) { return Tile(w, c).shared_bytes() <= most; });
  return space;
}

// Of the launch that asks for more, fitted to what ptxas said: of a part's few pixels it has few ahead, of many
// threads' sums as many as of pixels.
double RegistersOf(const Tile& t) {
  constexpr double kMost = 23, kOfThreads = 25;
  constexpr int64_t kManyThreads = 16;
  const double of_pixels = t.parts == 1 ? kMost : std::min(kMost, 14 + 0.6 * static_cast<double>(t.steps));
  const double of_threads = t.ty >= kManyThreads ? kOfThreads : 0;
  return std::round(std::max(of_pixels, of_threads) + 5 * std::log2(static_cast<double>(t.vec)));
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget&) {
  constexpr double kSharedCycles = 28, kStepCycles = 5;  // to what another thread has, and to each further one
  constexpr double kStepInstructions = 6, kThreadInstructions = 24, kMostAhead = 4;
  const Tile t(w, c);
  const double ty = static_cast<double>(t.ty), vec = static_cast<double>(t.vec), steps = static_cast<double>(t.steps);
  const double element = static_cast<double>(SizeOf(t.type)), sum = static_cast<double>(SizeOf(t.sum));
  GpuFootprint f;
  f.group_threads = static_cast<double>(t.threads());
  f.groups = static_cast<double>(t.n * t.parts * t.blocks);
  f.flops = std::max(1.0, Flops(w));
  f.padded_flops = f.groups * f.group_threads * vec * steps;
  f.compulsory_bytes = CompulsoryBytes(w);
  const double partial = t.parts > 1 ? 2 * sum * static_cast<double>(t.n * t.parts * t.c) : 0;
  f.memory_traffic = f.compulsory_bytes + partial;
  f.launches = t.parts > 1 ? 2 : 1;
  // Few channels of a pixel leave most of what comes with them to other groups.
  f.coalescing = std::min(1.0, static_cast<double>(std::min(t.c, t.tx * t.vec)) * element / 32);
  f.vector_lanes = vec;
  f.accumulators = vec;
  f.reduction = steps;
  f.instructions = f.groups * f.group_threads * (kThreadInstructions + steps * (kStepInstructions + vec) + ty);
  f.registers = RegistersOf(t);
  f.shared_bytes = static_cast<double>(t.shared_bytes());
  f.shared_traffic = 2 * sum * f.groups * f.group_threads * vec;
  f.barriers = 1;
  f.in_flight_bytes = std::min(steps, kMostAhead) * vec * element;
  f.round_trips = std::ceil(steps / kMostAhead);
  f.wait_cycles = kSharedCycles + kStepCycles * (ty + static_cast<double>(t.parts > 1 ? t.parts : 0));
  return f;
}

}  // namespace

GpuTemplate GpuPixels() { return {"gpu.pixels", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
