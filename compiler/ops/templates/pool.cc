// pool.separable: the rows of each window first, for a line of the image at a time, then its columns. A window of k x k
// takes 2k steps instead of k * k; and where columns lie beside each other in memory, all of a line is read in vectors
// before the windows' strides and edges matter.
#include <algorithm>
#include <cmath>

#include "compiler/ops/families/pool.h"
#include "compiler/ops/templates/conv2d_shape.h"
#include "compiler/ops/templates/element.h"
#include "compiler/ops/templates/register_tile.h"
#include "compiler/ops/templates/vectors.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kLinesBytes = 8192;  // of lines made at a time, which stay in L1 beside what they are made of

// What a workload means.
struct Pool {
  bool average, channels_last;
  TensorType x, y;
  ops::Window window;
  explicit Pool(const Workload& w)
      : average(w.calls[0].op == "avg_pool2d"),
        x(w.TypeOf(w.calls[0].args[0])),
        y(w.calls[0].type),
        window(*ops::PoolWindow(w.calls[0].attrs)) {
    channels_last = !x.perm.empty();
  }
  int64_t along() const { return channels_last ? x.shape[1] : y.shape[3]; }  // what is beside each other in memory
};

bool Matches(const Workload& w) {
  const Workload::Call& call = w.calls[0];
  if (w.anchor != 0 || (call.op != "max_pool2d" && call.op != "avg_pool2d")) return false;
  if (!IsOfElement(w, call) || call.args[0] >= static_cast<int>(w.inputs.size())) return false;
  const Pool p(w);
  if (p.x.perm != p.y.perm || (p.channels_last && p.x.perm != kChannelsLast)) return false;
  // Where channels lie beside each other, all taps at once are as quick until they are twice the steps.
  const int64_t rows = p.window.kernel[0], columns = p.window.kernel[1];
  const int64_t together = rows * columns, apart = rows + columns;
  if (p.channels_last ? together < 2 * apart : together <= apart) return false;
  // The same image in all that follows, so that a vector of windows is one of the result.
  return std::all_of(w.calls.begin() + 1, w.calls.end(), [&](const Workload::Call& after) {
    return FindOp(after.op)->pattern == OpPattern::kElementwise && after.type.shape == p.y.shape &&
           after.type.perm == p.y.perm;
  });
}

ConfigSpace Space(const Workload&, const CpuTarget&) {
  ConfigSpace space;
  space.Add("vectors", {1, 2, 4});
  return space;
}

absl::StatusOr<ir::Func> BuildProgram(const Workload& w, const Pool& p) {
  ir::ProgramBuilder b("pool");
  WorkloadProgram program(w, b);
  const ir::Combiner combiner = p.average ? ir::Combiner::kSum : ir::Combiner::kMax;
  TensorType line = p.y;
  line.shape[3] = p.x.shape[3];
  const ir::Tensor rows = ops::PoolStage(b, "rows", program.value(w.calls[0].args[0]), p.window, {0}, line, combiner);
  const ir::Tensor lines = b.Materialize("lines", rows, line.perm);
  const ir::Tensor pooled = ops::PoolStage(b, "pooled", lines, p.window, {1}, p.y, combiner);
  program.SetResult(0, p.average ? ops::MeanOfWindows(pooled, w.calls[0].attrs, p.window, p.x.shape, p.y) : pooled);
  TEMPER_RETURN_IF_ERROR(program.Compute(1, static_cast<int>(w.calls.size())));
  program.MarkOut();
  return b.Finish();
}

// Of the vectors along a line of results, those at its ends that see beyond the image.
std::pair<int64_t, int64_t> Edges(const Pool& p, int64_t length) {
  const int64_t vectors = CeilDiv(p.y.shape[3], length), step = length * p.window.stride[1];
  const int64_t first = std::min(vectors, CeilDiv(p.window.pad_begin[1], step));
  int64_t last = 0;
  const auto beyond = [&](int64_t v) {
    const int64_t end = std::min(p.y.shape[3], (v + 1) * length);
    return (v + 1) * length > p.y.shape[3] ||
           (end - 1) * p.window.stride[1] + p.window.Span(1) - p.window.pad_begin[1] > p.x.shape[3];
  };
  while (first + last < vectors && beyond(vectors - 1 - last)) ++last;
  return {first, last};
}

// How many lines of results are made at a time: a line that was just stored is not read soon after, at places that no
// store began at.
int64_t LinesAtATime(const Pool& p, const CpuTarget& t) {
  const int64_t images = p.y.shape[0] * (p.channels_last ? 1 : p.y.shape[1]), height = p.y.shape[2];
  const int64_t bytes = kElementBytes * p.x.shape[3] * (p.channels_last ? p.x.shape[1] : 1);
  int64_t lines = 1;
  for (int64_t n = 2; n <= height && n * bytes <= kLinesBytes; ++n) {
    if (height % n == 0 && images * (height / n) >= kChunksEach * t.threads) lines = n;
  }
  return lines;
}

// Taps one after another, into vectors that stay in registers.
void VectorsOfTaps(Schedule& s, const std::string& name, const Loop& under) {
  InRegisters(s, {name}, under);
  VectorizeAcross(s, name, {.reduce = 1}, true);
}

absl::StatusOr<ir::Func> ScheduleLines(ir::Func func, const Pool& p, int64_t most, const CpuTarget& t) {
  Schedule s(std::move(func));
  std::vector<Loop> out = s.Loops("out");
  const int64_t length = VectorLength(p.along(), t.lanes(), most);
  auto [rest, lane] = s.Split(out.back(), length);
  auto [block, row] = s.Split(out[p.channels_last ? 1 : 2], LinesAtATime(p, t));
  std::vector<Loop> outer(out.begin(), out.begin() + (p.channels_last ? 1 : 2));
  outer.push_back(block);
  // Few images leave threads their lines to share.
  const size_t shared = LoopsToShare(s, outer, t);
  const Loop parallel = FuseAll(s, {outer.begin(), outer.begin() + static_cast<std::ptrdiff_t>(shared)});
  VectorsOfTaps(s, "pooled", rest);
  s.ComputeAt("lines", shared == outer.size() ? parallel : block);
  s.Parallel(parallel);
  s.Vectorize(lane);

  const std::vector<Loop> lines = s.Loops("lines");
  if (!s.status().ok()) return s.status();
  auto [run, inside] = s.Split(lines.back(), VectorLength(s.Extent(lines.back()), t.lanes(), most));
  VectorsOfTaps(s, "rows", run);
  s.Vectorize(inside);
  s.Partition(run);
  if (p.channels_last) {
    s.Partition(rest);
    return Finished(s);
  }
  const auto [first, last] = Edges(p, length);
  if (first + last > 0) {
    const std::array<Loop, 3> parts = s.Peel(rest, first, last);
    for (size_t i : {0, 2}) {
      if (parts[i] != nullptr) s.Unroll(parts[i]);
    }
  }
  return Finished(s);
}

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const CpuTarget& t) {
  const Pool p(w);
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildProgram(w, p));
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.scheduled, ScheduleLines(std::move(func), p, c["vectors"], t));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

CpuFootprint FootprintOf(const Workload& w, const Config& c, const CpuTarget& t) {
  const Pool p(w);
  const double lines = static_cast<double>(NumElements(p.y.shape) / std::max<int64_t>(1, p.y.shape[3]));
  CpuFootprint f;
  f.flops = std::max(1.0, Flops(w));
  f.padded_flops = lines * static_cast<double>(p.window.kernel[0] * p.x.shape[3] + p.window.kernel[1] * p.y.shape[3]);
  DescribeTile(f, 1, c["vectors"], t.lanes());
  f.loads_per_fma = 1;
  f.compulsory_bytes = f.memory_traffic = CompulsoryBytes(w);
  f.l2_traffic = f.compulsory_bytes;
  f.parallel_chunks = std::max(1.0, lines);
  f.chunk_imbalance = std::ceil(f.parallel_chunks / t.threads) * t.threads / f.parallel_chunks;
  return f;
}

}  // namespace

CpuTemplate SeparablePool() { return {"pool.separable", 1, Matches, Space, Build, FootprintOf}; }

}  // namespace temper
