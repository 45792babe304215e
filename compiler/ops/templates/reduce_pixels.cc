// reduce.pixels: the sum or mean of each channel over a large image with channels last. Threads share the pixels, as
// the kernel before them did, and each run of pixels leaves its sums, whose vectors stay in registers, to be added up.
#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/ops/physical_axis.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kFewestPixels = 512;  // over fewer, threads share the channels at less cost
constexpr int64_t kRuns = 16;

// What a workload and a config mean.
struct Runs {
  int64_t n, c, w, pixels, length;  // of a run; the last may be shorter
  int64_t vectors = 1, lanes = 1, panels = 1;
  bool mean;
  explicit Runs(const Workload& workload) : mean(workload.calls[0].op == "reduce_mean") {
    const Shape& x = workload.TypeOf(workload.calls[0].args[0]).shape;
    n = x[0], c = x[1], w = x[3], pixels = x[2] * x[3];
    length = CeilDiv(pixels, kRuns);
  }
  Runs(const Workload& workload, const Config& config, const CpuTarget& t) : Runs(workload) {
    vectors = config["nv"], lanes = t.lanes(), panels = CeilDiv(c, vectors * lanes);
  }
  int64_t padded_channels() const { return panels * vectors * lanes; }
};

bool Matches(const Workload& w) { return SumsPixels(w, std::array{kElement}, kFewestPixels); }

ConfigSpace Space(const Workload& w, const CpuTarget& t) {
  const int64_t all = CeilDiv(Runs(w).c, t.lanes());
  std::vector<int64_t> vectors;  // of panels that are as wide as each other, or nearly so
  for (int64_t nv = std::min<int64_t>(all, t.vector_registers / 2); nv >= 1; --nv) {
    if (CeilDiv(all, CeilDiv(all, nv)) == nv) vectors.push_back(nv);
  }
  ConfigSpace space;
  space.Add("nv", vectors);
  return space;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Runs& runs) {
  ir::ProgramBuilder b("reduce_pixels");
  WorkloadProgram program(w, b);
  const ir::Tensor& x = program.value(w.calls[0].args[0]);
  const Shape partial = {runs.n, kRuns, runs.padded_channels()};
  const ir::Buffer acc =
      b.Reduce("acc", kElement, partial, {runs.length}, ir::Combiner::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 const Expr pixel = i[1] * Expr(runs.length) + r[0];
                 std::vector<Expr> inside;
                 if (runs.padded_channels() != runs.c) inside.push_back(i[2] < Expr(runs.c));
                 if (runs.pixels % kRuns != 0) inside.push_back(pixel < Expr(runs.pixels));
                 return ValueWhere(inside, x({i[0], i[2], pixel / Expr(runs.w), pixel % Expr(runs.w)}));
               });
  const ir::Buffer sums =
      b.Compute("sums", kElement, partial, [&](const std::vector<Expr>& i) { return ir::Load(acc, i); });
  const ir::Buffer total = b.Reduce("total", kElement, {runs.n, runs.padded_channels()}, {kRuns}, ir::Combiner::kSum,
                                    [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                      return ir::Load(sums, {i[0], r[0], i[1]});
                                    });
  program.SetResult(0, ir::Tensor(kElement, w.calls[0].type.shape, [&](const std::vector<Expr>& i) {
                      const Expr sum = ir::Load(total, {i[0], i[1]});
                      return runs.mean ? sum * ir::Float(1.0 / static_cast<double>(runs.pixels)) : sum;
                    }));
  TEMPER_RETURN_IF_ERROR(program.Compute(1, static_cast<int>(w.calls.size())));
  program.MarkOut();
  return b.Finish();
}

absl::StatusOr<ir::Func> ScheduleRuns(ir::Func func, const Workload& w, const Runs& runs) {
  Schedule s(std::move(func));
  const std::vector<Loop> sums = s.Loops("sums");  // image, run, channel
  auto [panel, column] = s.Split(sums[2], runs.vectors * runs.lanes);
  auto [vector, lane] = s.Split(column, runs.lanes);
  TileAccumulators(s, "acc", panel, 1, runs.lanes, 1);
  s.Vectorize(lane);
  s.Unroll(vector);
  s.Parallel(s.Fuse(sums[0], sums[1]));

  // What is left is little: one thread adds it up.
  std::vector<Loop> out = s.Loops("out");
  const auto channel = out.begin() + static_cast<std::ptrdiff_t>(PhysicalAxis(w.output(), 1));
  std::rotate(channel, channel + 1, out.end());
  s.Reorder(out);
  auto [rest, one] = s.Split(out.back(), runs.lanes);
  s.ComputeAt("total", rest);
  s.SetScope("total", ir::Scope::kRegister);
  const std::vector<Loop> total = s.Loops("total");
  if (!s.status().ok()) return s.status();
  const Loop run = total.back(), sum = total[total.size() - 2];
  s.Reorder({run, sum});
  const std::string zero = s.DecomposeReduction("total", run);
  s.Vectorize(one);
  s.Vectorize(sum);
  const std::vector<Loop> zeros = s.Loops(zero);
  if (s.status().ok()) s.Vectorize(zeros.back());
  return Finished(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Runs runs(w, c, t);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, runs));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleRuns(std::move(func), w, runs));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Runs runs(w, c, t);
  const double images = static_cast<double>(runs.n), channels = static_cast<double>(runs.padded_channels());
  CpuFootprint f;
  DescribeTile(f, 1, runs.vectors, runs.lanes);
  f.loads_per_fma = 1;
  f.flops = std::max(1.0, Flops(w));
  f.padded_flops = 2 * images * static_cast<double>(kRuns * runs.length) * channels;
  f.reduction = static_cast<double>(runs.length);
  // Prefetchers follow whole pixels better than a part of each.
  const double parts = static_cast<double>(runs.panels);
  f.compulsory_bytes = f.memory_traffic = CompulsoryBytes(w);
  f.l2_traffic = f.compulsory_bytes * (1 + 0.1 * (parts - 1));
  f.parallel_chunks = images * kRuns;
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  f.copies_bytes = kElementBytes * images * kRuns * channels;
  return f;
}

}  // namespace

CpuTemplate ReducePixels() { return {"reduce.pixels", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
