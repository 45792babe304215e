#include "measure_worker/backends/cpu/model_check.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/package/package.h"
#include "compiler/runtime/timing.h"
#include "measure_worker/backends/cpu/compare.h"
#include "measure_worker/backends/cpu/inputs.h"
#include "measure_worker/sampling.h"

namespace temper::worker {
namespace {

namespace fs = std::filesystem;

constexpr int kLeastRounds = 3;
constexpr int64_t kSampleUs = 2000;
constexpr double kLongCallS = 0.01;
constexpr double kSampleByItselfS = 0.05;  // even if the first call, which was cold, took many times as long
constexpr int64_t kMostOfACloseCall = 3;   // times as many rounds, while it is one

class TemporaryDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryDirectory>> Make() {
    std::error_code error;
    std::string path = absl::StrCat(fs::temp_directory_path(error).string(), "/temper-model-", getpid(), "-XXXXXX");
    if (error || mkdtemp(path.data()) == nullptr)
      return absl::ResourceExhaustedError("cannot make a temporary directory");
    return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(path));
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The defaults met while the untuned package is written, and what was picked instead.
class Choices {
 public:
  explicit Choices(const std::vector<KernelPick>& picks) {
    for (const KernelPick& p : picks) picks_.emplace(p.workload, &p);
  }
  absl::StatusOr<KernelChoice> Default(const Workload& w, const Target& t) {
    auto [it, is_new] = defaults_.try_emplace(Text(w));
    if (is_new) {
      TEMPER_ASSIGN_OR_RETURN(it->second, ChooseDefault(w, t));
    }
    return it->second;
  }
  absl::StatusOr<KernelChoice> Picked(const Workload& w, const Target& t) {
    const auto it = picks_.find(Text(w));
    if (it == picks_.end()) return Default(w, t);
    KernelChoice choice;
    choice.template_name = it->second->template_name;
    choice.level = "exact";
    TEMPER_ASSIGN_OR_RETURN(choice.config, ParseConfig(it->second->config));
    return choice;
  }
  // As the picks say; others are not known.
  std::optional<double> Seconds(const Workload& w) const {
    const auto it = picks_.find(Text(w));
    return it == picks_.end() || it->second->seconds <= 0 ? std::nullopt : std::optional(it->second->seconds);
  }
  // Whether some pick differs from the default of a workload that the model has.
  bool Differ() const {
    for (const auto& [workload, choice] : defaults_) {
      const auto it = picks_.find(workload);
      if (it == picks_.end()) continue;
      if (it->second->template_name != choice.template_name || it->second->config != Text(choice.config)) return true;
    }
    return false;
  }

 private:
  std::map<std::string, const KernelPick*> picks_;
  std::map<std::string, KernelChoice> defaults_;
};

// A loaded package with buffers of its own.
class Runner {
 public:
  static absl::StatusOr<Runner> Load(const std::string& dir, int threads, uint64_t seed) {
    Runner r;
    TEMPER_ASSIGN_OR_RETURN(r.package_, LoadPackage(dir, threads));
    for (const auto& io : r.package_->inputs()) r.inputs_.push_back(MakeModelInput(io.dtype, io.shape, seed++));
    for (const auto& io : r.package_->outputs()) r.outputs_.emplace_back(io.dtype, io.shape);
    return r;
  }
  absl::Status Run() {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const NDArray& a : inputs_) inputs.push_back(a.data());
    for (NDArray& a : outputs_) outputs.push_back(a.MutableData());
    return package_->Run(inputs.data(), outputs.data());
  }
  // After the other package's turn a first call warms the threads and the caches and is not counted; where a call is
  // long, that would cost as much as it measures and change next to nothing.
  double Time(int64_t calls) {
    if (call_s_ < kLongCallS) Run().IgnoreError();
    const int64_t start = MonotonicNs();
    for (int64_t i = 0; i < calls; ++i) Run().IgnoreError();
    const double seconds = static_cast<double>(MonotonicNs() - start) * 1e-9;
    call_s_ = seconds / static_cast<double>(calls);
    return seconds;
  }
  absl::Status RunFirst() {
    const int64_t start = MonotonicNs();
    TEMPER_RETURN_IF_ERROR(Run());
    call_s_ = static_cast<double>(MonotonicNs() - start) * 1e-9;
    return absl::OkStatus();
  }
  int64_t CallsASample() {
    return call_s_ > kSampleByItselfS ? 1 : FindCalls([this](int64_t n) { return Time(n); }, kSampleUs);
  }
  const std::vector<NDArray>& outputs() const { return outputs_; }

 private:
  std::unique_ptr<LoadedPackage> package_;
  std::vector<NDArray> inputs_, outputs_;
  double call_s_ = 0;  // of the last sample, or the first call
};

absl::Status Compare(const Runner& tuned, const Runner& untuned, double& worst) {
  for (size_t i = 0; i < untuned.outputs().size(); ++i) {
    const NDArray& want = untuned.outputs()[i];
    worst = std::max(worst, OutputError(tuned.outputs()[i].data(), want));
    if (absl::Status status = CheckOutput(tuned.outputs()[i].data(), want); !status.ok()) {
      return absl::DataLossError(absl::StrCat("output ", i, " of the tuned model: ", status.message()));
    }
  }
  return absl::OkStatus();
}

void TimeInTurns(const ModelWork& work, std::vector<Runner>& runners, std::vector<std::vector<double>>& samples) {
  const int contenders = static_cast<int>(runners.size());
  std::vector<int64_t> calls;
  for (Runner& r : runners) calls.push_back(r.CallsASample());
  const int64_t start = MonotonicNs();
  const int rounds = std::max(work.rounds, kLeastRounds);
  const auto undecided = [&](int round) {
    return contenders == 2 && round < kMostOfACloseCall * rounds && IsCloseCall(samples[0], samples[1]);
  };
  for (int round = 0; round < rounds || undecided(round); ++round) {
    if (round >= kLeastRounds && work.budget_ms > 0 && MonotonicNs() - start > work.budget_ms * 1'000'000) break;
    for (int turn = 0; turn < contenders; ++turn) {
      const int i = InterleavedIndex(round, turn, contenders);
      samples[i].push_back(runners[i].Time(calls[i]) / static_cast<double>(calls[i]));
    }
  }
}

absl::Status Check(const ModelWork& work, const std::function<void(Phase)>& begin, ModelResult& result) {
  begin(Phase::kModelBuild);
  result.outcome = kBuildFailed;
  TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(work.target));
  TEMPER_RETURN_IF_ERROR(CheckRunsHere(target));
  TEMPER_ASSIGN_OR_RETURN(Graph graph, GraphFromJson(work.graph_json));
  FillConstants(graph, work.seed);
  TEMPER_ASSIGN_OR_RETURN(auto directory, TemporaryDirectory::Make());
  Choices choices(work.picks);
  const auto defaults = [&](const Workload& w, const Target& t) { return choices.Default(w, t); };
  const auto picked = [&](const Workload& w, const Target& t) { return choices.Picked(w, t); };
  TEMPER_RETURN_IF_ERROR(WritePackage(graph, target, defaults, directory->Path("untuned")).status());
  TEMPER_ASSIGN_OR_RETURN(const int instead,
                          ChooseAlternatives(graph, [&](const Workload& w) { return choices.Seconds(w); }));
  const bool differ = instead > 0 || choices.Differ();
  if (differ) TEMPER_RETURN_IF_ERROR(WritePackage(graph, target, picked, directory->Path("tuned")).status());
  graph = Graph();  // the weights are in the packages now

  std::vector<Runner> runners;
  TEMPER_ASSIGN_OR_RETURN(runners.emplace_back(), Runner::Load(directory->Path("untuned"), target.threads, work.seed));
  if (differ) {
    TEMPER_ASSIGN_OR_RETURN(runners.emplace_back(), Runner::Load(directory->Path("tuned"), target.threads, work.seed));
  }
  directory.reset();  // loaded; and a crash from here on leaves nothing behind
  begin(Phase::kModelRun);
  result.outcome = kRunCrashed;
  for (Runner& r : runners) TEMPER_RETURN_IF_ERROR(r.RunFirst());
  if (differ) {
    result.outcome = kWrongAnswer;
    TEMPER_RETURN_IF_ERROR(Compare(runners[1], runners[0], result.relative_error));
  }
  std::vector<std::vector<double>> samples(runners.size());
  TimeInTurns(work, runners, samples);
  result.untuned_s = samples.front();
  result.tuned_s = samples.back();
  result.outcome = kOk;
  return absl::OkStatus();
}

}  // namespace

ModelResult CheckModel(const ModelWork& work, const std::function<void(Phase)>& begin) {
  ModelResult result;
  if (absl::Status status = Check(work, begin, result); !status.ok()) result.error = std::string(status.message());
  return result;
}

}  // namespace temper::worker
