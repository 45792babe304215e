#include "measure_worker/models/model_finals.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compiler/graph/alternatives.h"
#include "measure_worker/memory.h"
#include "measure_worker/models/model_runner.h"

namespace temper::worker {
namespace {

constexpr int64_t kShareOfMemory = 3;  // all packages together may take one part in so many
constexpr int64_t kPackedBytes = 2;    // a byte of weights, with copies for kernels that want them otherwise

std::string KeyOf(const PackageStep& step) {
  return absl::StrCat(step.workload, "\n", step.template_name, "\n", step.config);
}

class Finals {
 public:
  Finals(const FinalsWork& work, const std::function<bool()>& as_usual)
      : work_(work), pace_(as_usual), results_(work.Candidates().size()) {}

  std::vector<TrialResult> Run(const std::function<void(Phase)>& begin, std::optional<KeptModel>* kept) {
    begin(Phase::kModelBuild);
    const absl::Status prepared = Prepare();
    absl::Status status = prepared;
    if (status.ok()) status = BuildAll();
    begin(Phase::kModelRun);
    if (status.ok()) status = TimeInTurns();
    for (const Finalist& f : finalists_) {
      const auto found = samples_.find(KeyOf(f.step));
      if (status.ok() && found != samples_.end()) results_[f.index] = {Outcome::kOk, "", found->second};
    }
    for (TrialResult& result : results_) {
      const bool silent = result.outcome == Outcome::kInfrastructure && result.error.empty();
      if (!silent) continue;
      result.error = status.ok() ? differs_ : std::string(status.message());
      if (absl::IsResourceExhausted(prepared)) result.outcome = Outcome::kUnfit;
    }
    if (kept != nullptr && status.ok()) {
      const ModelWork& model = work_.model;
      *kept = KeptModel{model.graph_json, model.target, model.seed, std::move(graph_), std::move(runners_.front()),
                        std::move(cache_)};
    }
    return std::move(results_);
  }

 private:
  struct Finalist {
    size_t index;  // of its result
    PackageStep step;
    KernelChoice choice;
  };

  absl::Status Prepare() {
    TEMPER_ASSIGN_OR_RETURN(target_, ParseTarget(work_.model.target));
    size_t index = 0;
    for (const FinalsTask& task : work_.tasks) {
      TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(task.workload));
      for (const Candidate& candidate : task.candidates) Admit(workload, candidate, index++);
    }
    for (const KernelPick& pick : work_.model.picks) {
      TEMPER_ASSIGN_OR_RETURN(Config config, ParseConfig(pick.config));
      picks_[pick.workload] = KernelChoice{pick.template_name, std::move(config)};
    }
    TEMPER_ASSIGN_OR_RETURN(Graph graph, ModelGraph(work_.model, target_));
    const int64_t package_bytes = kPackedBytes * ConstantBytes(graph);
    if (!graph.alternatives.empty()) {
      Graph other = graph;
      other.groups = WithAlternatives(graph.groups, graph.alternatives);
      other.alternatives.clear();
      graphs_.push_back(std::move(other));
    }
    graphs_.insert(graphs_.begin(), std::move(graph));
    const int64_t room = MemoryLimit() / kShareOfMemory / std::max<int64_t>(1, package_bytes) / std::ssize(graphs_);
    variants_ = std::clamp<size_t>(static_cast<size_t>(room), 2, std::max<size_t>(2, variants_));
    for (const auto& [text, finalists] : of_workload_) {
      for (size_t i = variants_; i < finalists.size(); ++i)
        results_[finalists_[finalists[i]].index].error = "too little memory for one more package";
    }
    return absl::OkStatus();
  }

  // What can not be built is no finalist.
  void Admit(const Workload& workload, const Candidate& candidate, size_t index) {
    absl::StatusOr<Config> config = ParseConfig(candidate.config);
    absl::Status status = config.status();
    if (status.ok()) status = BuildKernel(workload, candidate.template_name, *config, target_).status();
    if (!status.ok()) {
      results_[index] = {Outcome::kIllegalConfig, std::string(status.message())};
      return;
    }
    const std::string text = Text(workload);
    std::vector<size_t>& of_workload = of_workload_[text];
    of_workload.push_back(finalists_.size());
    variants_ = std::max(variants_, of_workload.size());
    finalists_.push_back({index,
                          {text, candidate.template_name, Text(*config)},
                          KernelChoice{candidate.template_name, *std::move(config)}});
  }

  // Variant 0 has the first finalist of each workload; workloads with fewer finalists than there are variants repeat
  // their last.
  absl::StatusOr<KernelChoice> Choose(const Workload& w, const Target& t, size_t variant) {
    const std::string text = Text(w);
    if (const auto found = of_workload_.find(text); found != of_workload_.end())
      return finalists_[found->second[std::min(variant, found->second.size() - 1)]].choice;
    std::lock_guard lock(mutex_);  // packages are written beside one another
    const auto [pick, is_new] = picks_.try_emplace(text);
    if (is_new) {
      TEMPER_ASSIGN_OR_RETURN(pick->second, ChooseDefault(w, t));
    }
    return pick->second;
  }

  absl::Status BuildAll() {
    runners_.resize(graphs_.size() * variants_);
    std::vector<absl::Status> built(runners_.size());
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i; (i = next.fetch_add(1)) < runners_.size();) {
        const auto choose = [&](const Workload& w, const Target& t) { return Choose(w, t, i / graphs_.size()); };
        auto runner = ModelRunner::Make(graphs_[i % graphs_.size()], target_, choose, work_.model.seed, *cache_);
        built[i] = runner.status();
        if (runner.ok()) runners_[i] = *std::move(runner);
      }
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < target_.threads(); ++i) helpers.emplace_back(work);
    work();
    for (std::thread& t : helpers) t.join();
    graph_ = std::move(graphs_.front());
    graphs_.clear();  // the weights are in the packages now
    for (const absl::Status& status : built) TEMPER_RETURN_IF_ERROR(status);
    for (ModelRunner& r : runners_) TEMPER_RETURN_IF_ERROR(r.RunFirst());
    // A package whose answer differs from the default's is not worth its time.
    double worst = 0;
    std::erase_if(runners_, [&](const ModelRunner& r) {
      const absl::Status status = CompareOutputs(r, runners_.front(), worst);
      if (!status.ok()) differs_ = absl::StrCat("no package with it could be run: ", std::string(status.message()));
      return !status.ok();
    });
    return absl::OkStatus();
  }

  absl::Status TimeInTurns() {
    const int rounds = std::max(work_.model.rounds, kLeastRounds);
    std::vector<Turn> turns(runners_.size());
    return HoldRounds(runners_, std::move(pace_),
                      {.budget_ms = work_.model.budget_ms,
                       .another = [&](int held) { return held < rounds; },
                       .time =
                           [&](size_t i, int64_t calls) {
                             turns[i].calls = calls;
                             return runners_[i].TimeSteps(calls, turns[i].step_ns);
                           },
                       .keep = [&] { Keep(turns); }});
  }

  struct Turn {
    int64_t calls = 0;
    std::vector<int64_t> step_ns;  // of all of them
  };
  // A round's sample of each kernel: its mean over all packages and layers that have it.
  void Keep(const std::vector<Turn>& turns) {
    struct Sum {
      double seconds = 0;
      int64_t count = 0;
    };
    std::map<std::string, Sum> sums;
    for (size_t i = 0; i < turns.size(); ++i) {
      for (size_t s = 0; s < turns[i].step_ns.size(); ++s) {
        Sum& sum = sums[KeyOf(runners_[i].steps()[s])];
        sum.seconds += static_cast<double>(turns[i].step_ns[s]) * 1e-9;
        sum.count += turns[i].calls;
      }
    }
    for (const auto& [key, sum] : sums) samples_[key].push_back(sum.seconds / static_cast<double>(sum.count));
  }

  const FinalsWork& work_;
  UsualPace pace_;
  Target target_;
  std::vector<TrialResult> results_;
  std::vector<Finalist> finalists_;
  std::map<std::string, std::vector<size_t>> of_workload_;  // into finalists_
  size_t variants_ = 1;
  std::mutex mutex_;
  std::string differs_ = "no package with it could be run";  // the last one that was left out says why
  std::map<std::string, KernelChoice> picks_;                // of workloads without finalists; defaults as they are met
  std::vector<Graph> graphs_;                                // until the packages are there
  Graph graph_;                                              // the first of them
  std::unique_ptr<CompileCache> cache_ = std::make_unique<CompileCache>();
  std::vector<ModelRunner> runners_;                    // by variant, then by graph
  std::map<std::string, std::vector<double>> samples_;  // one a round
};

}  // namespace

std::vector<TrialResult> MeasureFinals(const FinalsWork& work, const std::function<void(Phase)>& begin,
                                       std::optional<KeptModel>* kept, const std::function<bool()>& as_usual) {
  return Finals(work, as_usual).Run(begin, kept);
}

}  // namespace temper::worker
