// "gpu.default": whatever has no template of its own: elementwise chains, data movement, pooling, and reductions that
// each thread makes alone. A thread has a few elements of the result; stages that are read at the very element that is
// written are made beside it in registers, and others get a launch of their own.
#include <algorithm>

#include "compiler/ir/walk.h"
#include "compiler/ops/templates/gpu_template.h"
#include "compiler/ops/templates/stages.h"

namespace temper {
namespace {

using ir::Expr;

constexpr int64_t kSmallWindow = 16;  // steps of a reduction that are unrolled
constexpr int64_t kVectorBytes = 16;  // the most of one access

bool ReadsWhereItWrites(const ir::Stmt& reader, const ir::Buffer& buffer) {
  bool same = reader->buffer->shape == buffer->shape;
  ir::Visit(reader->value, [&](const Expr& e) {
    if (e->kind != ir::ExprKind::kLoad || e->buffer != buffer) return;
    for (size_t d = 0; d < e->args.size() && same; ++d) {
      same = buffer->shape[d] == 1 || ir::StructurallyEqual(e->args[d], reader->indices[d]);
    }
  });
  return same;
}

// Stages that one launch makes, in their order; the last one writes to memory.
using Together = std::vector<std::string>;

std::vector<Together> ShareLaunches(const ir::Func& func, const std::vector<std::string>& stages) {
  std::vector<Together> launches;
  std::vector<size_t> launch_of(stages.size());
  for (size_t i = stages.size(); i-- > 0;) {
    const ir::Buffer made = BlockNamed(func, stages[i])->buffer;
    std::optional<size_t> joined;
    bool joins = true;
    for (size_t r = i + 1; r < stages.size(); ++r) {
      const ir::Stmt reader = BlockNamed(func, stages[r]);
      if (!ir::LoadsFrom(reader->value, made)) continue;
      joins = joins && ReadsWhereItWrites(reader, made) && joined.value_or(launch_of[r]) == launch_of[r];
      joined = launch_of[r];
    }
    if (!joins || !joined.has_value()) {
      joined = launches.size();
      launches.emplace_back();
    }
    launch_of[i] = *joined;
    launches[*joined].insert(launches[*joined].begin(), stages[i]);
  }
  return launches;
}

// The stage is in its place, at one point of all loops but the lanes, which are innermost of those that do not reduce.
void ScheduleInRegisters(Schedule& s, const std::string& stage, bool lanes, bool vector) {
  const ir::Stmt block = BlockNamed(s.func(), stage);
  const size_t reduce = static_cast<size_t>(
      std::ranges::count_if(block->block.iters, [](const ir::IterVar& iter) { return iter.reduce; }));
  const std::vector<Loop> loops = s.Loops(stage);
  if (!s.status().ok()) return;
  std::vector<std::string> blocks = {stage};
  const std::vector<Loop> steps = Innermost(loops, reduce);
  if (reduce > 0) {
    if (lanes) {
      std::vector<Loop> order = steps;
      order.push_back(loops[loops.size() - reduce - 1]);
      s.Reorder(order);
    }
    blocks.push_back(s.DecomposeReduction(stage, steps.front()));
    int64_t window = 1;
    for (const Loop& step : steps) window *= s.Extent(step);
    for (const Loop& step : steps) {
      if (window <= kSmallWindow) s.Unroll(step);
    }
  }
  if (!lanes || !s.status().ok()) return;
  for (const std::string& name : blocks) {
    const Loop lane = s.Loops(name).back();
    if (vector) {
      s.Vectorize(lane);
    } else {
      s.Unroll(lane);
    }
  }
}

// A reduction's result goes to memory once, when all is added up.
Together WithRegisters(Schedule& s, const Together& stages) {
  if (!BlockNamed(s.func(), stages.back())->block.init) return stages;
  Together result = stages;
  result.push_back(s.CacheWrite(stages.back(), ir::Scope::kRegister));
  return result;
}

}  // namespace

void ScheduleElements(Schedule& s, const Together& launch, const Share& share) {
  const Together stages = WithRegisters(s, launch);
  if (!s.status().ok()) return;
  const std::string& last = stages.back();
  const ir::Stmt block = BlockNamed(s.func(), last);
  std::vector<Loop> loops = s.Loops(last);
  const bool one = loops.empty();  // element, for one thread
  if (one) loops.push_back(s.AddLoop(last));

  const int64_t lanes =
      block->buffer->shape.empty() || block->buffer->shape.back() % share.vector != 0 ? 1 : share.vector;
  Loop lane;
  bool vector = lanes > 1;
  if (lanes > 1) {
    std::tie(loops.back(), lane) = s.Split(loops.back(), lanes);
    for (const std::string& stage : stages) vector = vector && RunsAlongMemory(BlockNamed(s.func(), stage));
  }
  const Dealt dealt = Deal(s, FuseAll(s, loops), one ? 1 : share.threads, one ? 1 : share.each);
  for (size_t i = stages.size() - 1; i-- > 0;) {
    s.SetScope(stages[i], ir::Scope::kRegister);
    s.ComputeAt(stages[i], dealt.innermost());
  }
  if (lane != nullptr && vector) s.Vectorize(lane);
  if (lane != nullptr && !vector) s.Unroll(lane);
  for (size_t i = 0; i + 1 < stages.size() && s.status().ok(); ++i) {
    ScheduleInRegisters(s, stages[i], lane != nullptr, vector);
  }
}

namespace {

absl::StatusOr<Kernel> Build(const Workload& w, const Config& c, const GpuTarget&) {
  TEMPER_ASSIGN_OR_RETURN(ir::Func func, BuildStages(w));
  Schedule s(std::move(func));
  for (const Together& launch : ShareLaunches(s.func(), s.Blocks())) {
    ScheduleElements(s, launch, {c["threads"], c["each"], c["vector"]});
  }
  Kernel kernel;
  TEMPER_ASSIGN_OR_RETURN(kernel.main, LowerSchedule(s));
  kernel.packs.resize(w.inputs.size());
  return kernel;
}

ConfigSpace Space(const Workload& w, const GpuTarget& t) {
  const Shape out = w.output().PhysicalShape();
  const int64_t innermost = out.empty() ? 1 : out.back(), bytes = SizeOf(w.output().dtype);
  ConfigSpace space;
  space.Add("threads", GroupThreads(t));
  space.Add("each", {1, 2, 4, 8});
  std::vector<int64_t> vectors = {1};
  for (int64_t lanes : {2, 4, 8}) {
    if (innermost % lanes == 0 && lanes * bytes <= kVectorBytes) vectors.push_back(lanes);
  }
  space.Add("vector", vectors);
  space.Require("a group has more work than there is", [elements = NumElements(out),
                                                        least = GroupThreads(t).front()](const Config& c) {
    return (c["threads"] == least && c["each"] == 1) || c["threads"] * c["each"] * c["vector"] < 2 * elements;
  });
  return space;
}

GpuFootprint FootprintOf(const Workload& w, const Config& c, const GpuTarget&) {
  const double elements = static_cast<double>(NumElements(w.output().shape)), each = static_cast<double>(c["each"]);
  GpuFootprint f;
  f.vector_lanes = static_cast<double>(c["vector"]);
  f.group_threads = static_cast<double>(c["threads"]);
  f.groups = std::max(1.0, std::ceil(elements / (f.group_threads * each * f.vector_lanes)));
  f.flops = std::max(1.0, Flops(w));
  f.padded_flops = f.flops * f.groups * f.group_threads * each * f.vector_lanes / elements;
  f.compulsory_bytes = f.memory_traffic = CompulsoryBytes(w);
  constexpr double kThreadInstructions = 10, kAccessInstructions = 2;  // each with finding its way
  f.instructions = f.groups * f.group_threads *
                   (kThreadInstructions + kAccessInstructions * each * static_cast<double>(w.inputs.size() + 1));
  f.accumulators = f.vector_lanes;
  f.reduction = f.flops / elements;
  f.registers = 12 + 1.25 * f.vector_lanes + 0.25 * each;  // fitted to what ptxas said
  f.in_flight_bytes = f.vector_lanes * static_cast<double>(SizeOf(w.output().dtype));
  return f;
}

}  // namespace

// Neighbouring elements of packed types share a byte, and would not be one thread's.
GpuTemplate GpuDefault() {
  return {
      "gpu.default", 1,     [](const Workload& w) { return HasTensorExpressions(w) && !IsPacked(w.output().dtype); },
      Space,         Build, FootprintOf};
}

}  // namespace temper
