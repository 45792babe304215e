#include "measure_worker/models/model_runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "compiler/graph/extract.h"
#include "compiler/graph/fill_constants.h"
#include "compiler/graph/graph_json.h"
#include "compiler/ops/rounded_products.h"
#include "compiler/timing/timing.h"
#include "measure_worker/compare.h"
#include "measure_worker/inputs.h"
#include "measure_worker/memory.h"
#include "measure_worker/sampling.h"

namespace temper::worker {
namespace {

constexpr int64_t kWorthSharing = 1 << 20;
constexpr int64_t kLeastConstants = 64 << 20, kTimesTheCache = 4;  // before any are shared
constexpr int64_t kSampleUs = 2000;
constexpr double kLongCallS = 0.01;
constexpr double kSampleByItselfS = 0.05;  // even if the first call, which was cold, took many times as long

}  // namespace

absl::Status ShareConstants(Graph& g, int64_t most_bytes) {
  std::map<std::string, std::vector<ValueId>> own;  // by type, those that are not shared
  std::map<std::string, size_t> shared;
  std::map<ValueId, ValueId> instead;
  int64_t bytes = 0;
  for (ValueId id = 0; id < std::ssize(g.values); ++id) {
    const Value& v = g.values[static_cast<size_t>(id)];
    if (!v.is_constant) continue;
    const int64_t size = BytesOf(v.type.dtype, NumElements(v.type.shape));
    const std::string type = Text(v.type);
    if (size >= kWorthSharing && bytes + size > most_bytes && own.contains(type)) {
      instead[id] = own[type][shared[type]++ % own[type].size()];
    } else {
      own[type].push_back(id);
      bytes += size;
    }
  }
  if (instead.empty()) return absl::OkStatus();
  Graph sharing = g;
  for (Node& node : sharing.nodes) {
    for (ValueId& input : node.inputs) {
      if (const auto found = instead.find(input); found != instead.end()) input = found->second;
    }
  }
  sharing.Compact();
  // A kernel of two weights must not become one that has the same twice.
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> before, ExtractTasks(g));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> after, ExtractTasks(sharing));
  if (ModelHash(before) == ModelHash(after)) g = std::move(sharing);
  return absl::OkStatus();
}

// Of a quantised model, whose steps add up on the way: two right packages were 2 to 8 % apart.
constexpr double kQuantisedTolerance = 0.2;

// Of a model in narrow floats: each step rounds what it hands on, and the roundings of two right packages add up as a
// random walk does. 0 where none is narrow. Of very many steps no more is allowed, or a wrong package would pass.
double NarrowTolerance(const Graph& g, size_t steps) {
  constexpr size_t kMostSteps = 256;
  double of_type = 0;
  size_t narrow = 0;
  for (const Node& node : g.nodes) {
    const DType dtype = g.values[node.output].type.dtype;
    if (!IsFloat(dtype) || Info(dtype).bits != 16) continue;
    of_type = std::max(of_type, ErrorBound(dtype));
    ++narrow;
  }
  return of_type * std::sqrt(static_cast<double>(std::min({steps, narrow, kMostSteps})));
}

absl::StatusOr<Graph> ModelGraph(const ModelWork& work, const Target& target) {
  TEMPER_ASSIGN_OR_RETURN(Graph graph, GraphFromJson(*work.graph_json));
  const int64_t cache_bytes = target.cpu() != nullptr ? target.cpu()->l3_bytes : 0;
  TEMPER_RETURN_IF_ERROR(ShareConstants(graph, std::max(kLeastConstants, kTimesTheCache * cache_bytes)));
  TEMPER_RETURN_IF_ERROR(CheckFits(graph));
  FillConstants(graph, work.seed);
  return graph;
}

absl::StatusOr<ModelRunner> ModelRunner::Make(const Graph& g, const Target& target, const ChooseFn& choose,
                                              uint64_t seed, CompileCache& cache) {
  TEMPER_ASSIGN_OR_RETURN(const TemporaryDirectory directory, TemporaryDirectory::Make());
  const std::string path = directory.path() + "/package";
  TEMPER_ASSIGN_OR_RETURN(PackageReport report, WritePackage(g, target, choose, path, {.cache = &cache}));
  ModelRunner r;
  r.steps_ = std::move(report.steps);
  TEMPER_ASSIGN_OR_RETURN(r.package_, LoadPackage(path, target.threads()));
  for (const auto& io : r.package_->inputs()) r.inputs_.push_back(MakeModelInput(io.dtype, io.shape, seed++));
  for (const auto& io : r.package_->outputs()) r.outputs_.emplace_back(io.dtype, io.shape);
  r.tolerance_ = NarrowTolerance(g, r.steps_.size());
  for (const Node& node : g.nodes) r.tolerance_ = std::max(r.tolerance_, RoundedTolerance(node.attrs));
  const bool quantises = std::ranges::any_of(g.nodes, [&](const Node& node) {
    return !node.inputs.empty() && node.inputs[0] != kNoValue &&
           IsQuantisation(node.op, g.values[node.inputs[0]].type, g.values[node.output].type);
  });
  r.quantises_ = quantises;
  if (quantises) r.tolerance_ = kQuantisedTolerance;
  return r;
}

absl::Status ModelRunner::Run(std::vector<temper_step_time>* times) {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const NDArray& a : inputs_) inputs.push_back(a.data());
  for (NDArray& a : outputs_) outputs.push_back(a.MutableData());
  if (times != nullptr) return package_->RunTimed(inputs.data(), outputs.data(), 0, times);
  return package_->Run(inputs.data(), outputs.data());
}

absl::Status ModelRunner::RunFirst() {
  const int64_t start = MonotonicNs();
  TEMPER_RETURN_IF_ERROR(Run());
  call_s_ = static_cast<double>(MonotonicNs() - start) * 1e-9;
  return absl::OkStatus();
}

void ModelRunner::WarmUp() {
  if (call_s_ < kLongCallS) Run().IgnoreError();
}

double ModelRunner::Time(int64_t calls) {
  WarmUp();
  const int64_t start = MonotonicNs();
  for (int64_t i = 0; i < calls; ++i) Run().IgnoreError();
  const double seconds = static_cast<double>(MonotonicNs() - start) * 1e-9;
  call_s_ = seconds / static_cast<double>(calls);
  return seconds;
}

absl::Status ModelRunner::TimeSteps(int64_t calls, std::vector<int64_t>& step_ns) {
  WarmUp();
  step_ns.assign(steps_.size(), 0);
  std::vector<temper_step_time> once;
  for (int64_t i = 0; i < calls; ++i) {
    TEMPER_RETURN_IF_ERROR(Run(&once));
    for (size_t s = 0; s < step_ns.size(); ++s) step_ns[s] += once.at(s).ns;
  }
  return absl::OkStatus();
}

int64_t ModelRunner::CallsASample() {
  return call_s_ > kSampleByItselfS ? 1 : FindCalls([this](int64_t n) { return Time(n); }, kSampleUs);
}

bool ModelRunner::steady() const { return call_s_ >= kLongCallS; }

absl::Status UsualPace::Run(const std::function<absl::Status()>& measure) {
  constexpr std::chrono::milliseconds kLookAgain{20};
  constexpr int64_t kMostNs = 5'000'000'000, kTimesAsLong = 2;
  const auto is_patient = [&] { return waited_ns_ < std::min(patience_ns_, kMostNs); };
  bool again = false;
  for (;;) {
    const int64_t start = MonotonicNs();
    if (as_usual_() || !is_patient()) {
      TEMPER_RETURN_IF_ERROR(measure());
      if (std::exchange(again, true)) return absl::OkStatus();
      patience_ns_ += kTimesAsLong * (MonotonicNs() - start);
      if (!is_patient() || as_usual_()) return absl::OkStatus();
    } else {
      std::this_thread::sleep_for(kLookAgain);
    }
    waited_ns_ += MonotonicNs() - start;
  }
}

absl::Status HoldRounds(std::vector<ModelRunner>& runners, UsualPace pace, const Rounds& rounds) {
  const int contenders = static_cast<int>(runners.size());
  std::vector<int64_t> calls;
  for (ModelRunner& r : runners) calls.push_back(r.CallsASample());
  int64_t timed_ns = 0;
  for (int round = 0; rounds.another(round); ++round) {
    const bool late = rounds.budget_ms > 0 && timed_ns > rounds.budget_ms * 1'000'000;
    int64_t round_ns = 0;
    if (round >= kLeastRounds && late) break;
    TEMPER_RETURN_IF_ERROR(pace.Run([&]() -> absl::Status {
      const int64_t start = MonotonicNs();
      for (int turn = 0; turn < contenders; ++turn) {
        const auto i = static_cast<size_t>(InterleavedIndex(round, turn, contenders));
        TEMPER_RETURN_IF_ERROR(rounds.time(i, calls[i]));
      }
      round_ns = MonotonicNs() - start;
      return absl::OkStatus();
    }));
    timed_ns += round_ns;
    rounds.keep();
  }
  return absl::OkStatus();
}

absl::Status CompareOutputs(const ModelRunner& runner, const ModelRunner& reference, double& worst) {
  for (size_t i = 0; i < reference.outputs().size(); ++i) {
    const NDArray& want = reference.outputs()[i];
    if (IsFloat(want.dtype())) worst = std::max(worst, OutputError(runner.outputs()[i].data(), want));
    const absl::Status status =
        CheckModelOutput(runner.outputs()[i].data(), want, reference.tolerance(), reference.quantises());
    if (!status.ok()) {
      return absl::DataLossError(absl::StrCat("output ", i, " of the tuned model: ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace temper::worker
