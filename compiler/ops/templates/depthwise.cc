// conv2d.depthwise: each channel by itself, in one pass: vectors along the channels, a few output columns at a time so
// that neighbouring windows share their loads, all taps unrolled over accumulators in registers.
#include <algorithm>
#include <cmath>

#include "compiler/ops/templates/conv2d_shape.h"

namespace temper {
namespace {

using ir::Expr;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

ConfigSpace Space(const Workload& w, const Target& t) {
  const Conv2dShape s(w);
  ConfigSpace space;
  std::vector<int64_t> columns, vectors;
  for (int64_t tw : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}) {
    if (tw <= s.ow) columns.push_back(tw);
  }
  for (int64_t cv : {1, 2, 3, 4}) {
    if (cv == 1 || (cv - 1) * t.lanes() < s.c) vectors.push_back(cv);
  }
  space.Add("tw", columns);
  space.Add("cv", vectors);
  space.Require("the register tile does not fit the registers", [registers = t.vector_registers](const Config& c) {
    return c["tw"] * c["cv"] + c["cv"] + 1 <= registers;
  });
  return space;
}

// Accumulators come in whole vectors (`channels`, a multiple of the tile's); those past the last channel stay zero.
absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Conv2dShape& s, int64_t channels,
                                      std::vector<std::string>* copies) {
  ir::ProgramBuilder b("depthwise");
  const bool packed = w.inputs[1].constant;
  std::vector<Shape> shapes(w.inputs.size());
  if (packed) shapes[1] = {s.kh, s.kw, s.c};
  WorkloadProgram program(w, b, shapes);
  const ir::Tensor x = PaddedInput(s, program, b, copies);
  ir::Buffer acc = b.Reduce("acc", DType::kF32, {s.n, s.oh, s.ow, channels}, {s.kh, s.kw}, ir::Combiner::kSum,
                            [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              Expr h = i[1] * Expr(s.stride_h) + r[0] * Expr(s.dilation_h);
                              Expr column = i[2] * Expr(s.stride_w) + r[1] * Expr(s.dilation_w);
                              Expr tap = packed ? ir::Load(program.buffer(1), {r[0], r[1], i[3]})
                                                : program.value(1)({i[3], Expr(0), r[0], r[1]});
                              Expr product = x({i[0], i[3], h, column}) * tap;
                              return channels == s.c ? product : ir::Select(i[3] < Expr(s.c), product, ir::Float(0));
                            });
  Expr current;
  program.SetResult(w.anchor, ir::Tensor(DType::kF32, w.calls[w.anchor].type.shape,
                                         [&](const std::vector<Expr>&) { return current; }));
  TEMPER_RETURN_IF_ERROR(program.Compute(w.anchor + 1, static_cast<int>(w.calls.size())));
  ir::Buffer out = b.Compute("out", w.output().dtype, {s.n, s.oh, s.ow, s.c}, [&](const std::vector<Expr>& i) {
    current = ir::Load(acc, i);
    return program.result()({i[0], i[3], i[1], i[2]});
  });
  b.MarkOutput(out);
  return b.Finish();
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const Target& t) {
  const Conv2dShape shape(w);
  const int64_t lanes = t.lanes();
  std::vector<std::string> copies;
  TEMPER_ASSIGN_OR_RETURN(ir::Func func,
                          BuildProgram(w, shape, CeilDiv(shape.c, c["cv"] * lanes) * c["cv"] * lanes, &copies));
  Schedule s(std::move(func));
  for (const std::string& stage : copies) ScheduleElementwise(s, stage, t);

  std::vector<Loop> loops = s.Loops("out");
  if (loops.size() != 4) return absl::InternalError("depthwise: four output loops expected");
  auto [column_tile, column] = s.Split(loops[2], c["tw"]);
  auto [channel_tile, channel] = s.Split(loops[3], c["cv"] * lanes);
  auto [vector, lane] = s.Split(channel, lanes);
  s.Reorder({loops[0], loops[1], column_tile, channel_tile, column, vector, lane});
  s.ComputeAt("acc", channel_tile);
  s.SetScope("acc", ir::Scope::kRegister);
  std::vector<Loop> acc = s.Loops("acc");
  if (!s.status().ok()) return s.status();
  const size_t n = acc.size();  // ..., column, channel, kh, kw
  auto [acc_vector, acc_lane] = s.Split(acc[n - 3], lanes);
  s.Reorder({acc[n - 2], acc[n - 1], acc[n - 4], acc_vector, acc_lane});
  const std::string init = s.DecomposeReduction("acc", acc[n - 2]);
  s.Unroll(acc[n - 1]);
  if (shape.kh * shape.kw * c["tw"] * c["cv"] <= 256) s.Unroll(acc[n - 2]);
  for (const std::string& name : {std::string("acc"), init, std::string("out")}) {
    std::vector<Loop> around = s.Loops(name);
    if (!s.status().ok()) return s.status();
    s.Vectorize(around[around.size() - 1]);
    s.Unroll(around[around.size() - 2]);
    s.Unroll(around[around.size() - 3]);
  }
  s.Parallel(s.Fuse(loops[0], loops[1]));
  s.Partition(channel_tile);

  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  kernel.packs.resize(w.inputs.size());
  if (w.inputs[1].constant) {
    auto element = [](const ir::Tensor& f, const std::vector<Expr>& i) { return f({i[2], Expr(0), i[0], i[1]}); };
    TEMPER_ASSIGN_OR_RETURN(kernel.packs[1], BuildPack("pack", w.inputs[1], {shape.kh, shape.kw, shape.c}, element, t));
  }
  return kernel;
}

Footprint FootprintOf(const Workload& w, const Config& c, const Target& t) {
  const Conv2dShape s(w);
  const double tw = static_cast<double>(c["tw"]), cv = static_cast<double>(c["cv"]), lanes = t.lanes();
  const double taps = static_cast<double>(s.kh * s.kw), pixels = static_cast<double>(s.n * s.oh * s.ow);
  const double window = (tw - 1) * static_cast<double>(s.stride_w) + static_cast<double>((s.kw - 1) * s.dilation_w + 1);
  Footprint f;
  f.flops = 2 * pixels * static_cast<double>(s.c) * taps;
  f.padded_flops = 2 * pixels * static_cast<double>(CeilDiv(s.c, t.lanes()) * t.lanes()) * taps;
  f.vector_lanes = lanes;
  f.tile_rows = tw;
  f.tile_columns = cv * lanes;
  f.tile_registers = tw * cv + cv + 1;
  f.reduction = taps;
  // Per filter row and vector: the window's loads, and one per tap for the weights.
  f.loads_per_fma = (window + static_cast<double>(s.kw)) / (tw * static_cast<double>(s.kw));
  f.l1_bytes = 4 * cv * lanes * (static_cast<double>(s.kh) * window + taps);
  f.l2_bytes = 4.0 * static_cast<double>(s.kh * s.padded_w() * s.c);
  const double input = 4.0 * static_cast<double>(s.n * s.padded_h() * s.padded_w() * s.c);
  f.l2_traffic = input * static_cast<double>(s.kh) + 4 * pixels * static_cast<double>(s.c);
  f.compulsory_bytes = CompulsoryBytes(w);
  f.memory_traffic = input + 4 * pixels * static_cast<double>(s.c);
  f.parallel_chunks = static_cast<double>(s.n * s.oh);
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  f.copies_bytes = s.padded() ? input : 0;
  const bool edges = s.ow % c["tw"] != 0, channels = s.c % (c["cv"] * t.lanes()) != 0;
  f.code_ops = taps * tw * cv * (edges ? 2 : 1) * (channels ? 2 : 1);
  return f;
}

}  // namespace

TemplateDef DepthwiseConv2d() {
  return {"conv2d.depthwise",
          1,
          [](const Workload& w) { return IsChannelsLastConv2d(w) && Conv2dShape(w).depthwise(); },
          Space,
          Build,
          FootprintOf};
}

}  // namespace temper
