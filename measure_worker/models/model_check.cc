#include "measure_worker/models/model_check.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compiler/graph/alternatives.h"
#include "compiler/graph/extract.h"
#include "measure_worker/models/model_runner.h"
#include "measure_worker/sampling.h"

namespace temper::worker {
namespace {

constexpr int64_t kMostOfACloseCall = 3;  // times as many rounds, while it is one

// The defaults met while the untuned package is written, and what was picked instead.
class Choices {
 public:
  explicit Choices(const std::vector<KernelPick>& picks) {
    for (const KernelPick& p : picks) picks_.emplace(p.workload, &p);
  }
  absl::StatusOr<KernelChoice> Default(const Workload& w, const Target& t) {
    std::lock_guard lock(mutex_);  // two packages are written at once
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
  absl::StatusOr<bool> AreDefaults(const std::vector<PackageStep>& steps, const Target& t) {
    for (const PackageStep& step : steps) {
      if (step.workload.empty()) continue;
      TEMPER_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(step.workload));
      TEMPER_ASSIGN_OR_RETURN(const KernelChoice choice, Default(workload, t));
      if (step.template_name != choice.template_name || step.config != Text(choice.config)) return false;
    }
    return true;
  }
  // Whether some pick differs from the default of a workload that the model has.
  absl::StatusOr<bool> Differ(const Graph& g, const Target& t) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Task> tasks, ExtractTasks(g));
    for (const Task& task : tasks) {
      const auto it = picks_.find(Text(task.workload));
      if (it == picks_.end()) continue;
      TEMPER_ASSIGN_OR_RETURN(const KernelChoice choice, Default(task.workload, t));
      if (it->second->template_name != choice.template_name || it->second->config != Text(choice.config)) return true;
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, const KernelPick*> picks_;
  std::map<std::string, KernelChoice> defaults_;
};

absl::Status TimeInTurns(const ModelWork& work, UsualPace pace, std::vector<ModelRunner>& runners,
                         std::vector<std::vector<double>>& samples) {
  const int rounds = std::max(work.rounds, kLeastRounds);
  const auto undecided = [&](int held) {
    return runners.size() == 2 && held < kMostOfACloseCall * rounds && IsCloseCall(samples[0], samples[1]);
  };
  const auto decided = [&] {
    return std::all_of(runners.begin(), runners.end(), [](const ModelRunner& r) { return r.steady(); }) &&
           IsDecided(samples.front(), samples.back());
  };
  std::vector<double> round_s(runners.size());
  return HoldRounds(runners, std::move(pace),
                    {.budget_ms = work.budget_ms,
                     .another = [&](int held) { return (held < rounds || undecided(held)) && !decided(); },
                     .time =
                         [&](size_t i, int64_t calls) {
                           round_s[i] = runners[i].Time(calls) / static_cast<double>(calls);
                           return absl::OkStatus();
                         },
                     .keep =
                         [&] {
                           for (size_t i = 0; i < runners.size(); ++i) samples[i].push_back(round_s[i]);
                         }});
}

// `f` for the untuned package and, where they differ, for the tuned one.
absl::Status ForEachPackage(bool differ, bool at_once, const std::function<absl::Status(bool tuned)>& f) {
  absl::Status tuned;
  std::thread beside;
  if (differ && at_once) beside = std::thread([&] { tuned = f(true); });
  absl::Status untuned = f(false);
  if (beside.joinable()) {
    beside.join();
  } else if (differ && untuned.ok()) {
    tuned = f(true);
  }
  return untuned.ok() ? tuned : untuned;
}

absl::Status Check(const ModelWork& work, const std::function<void(Phase)>& begin, std::optional<KeptModel> kept,
                   const std::function<bool()>& as_usual, ModelResult& result) {
  begin(Phase::kModelBuild);
  result.outcome = Outcome::kBuildFailed;
  TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(work.target));
  Choices choices(work.picks);
  Graph graph;
  std::optional<ModelRunner> known;
  auto cache = std::make_unique<CompileCache>();
  if (kept.has_value() && kept->IsOf(work)) {
    graph = std::move(kept->graph);
    cache = std::move(kept->cache);
    TEMPER_ASSIGN_OR_RETURN(const bool untuned, choices.AreDefaults(kept->untuned.steps(), target));
    if (untuned) known = std::move(kept->untuned);
  } else {
    absl::StatusOr<Graph> made = ModelGraph(work, target);
    if (absl::IsResourceExhausted(made.status())) result.outcome = Outcome::kUnfit;
    TEMPER_ASSIGN_OR_RETURN(graph, std::move(made));
  }
  kept.reset();
  const auto defaults = [&](const Workload& w, const Target& t) { return choices.Default(w, t); };
  const auto picked = [&](const Workload& w, const Target& t) { return choices.Picked(w, t); };
  const std::vector<Group> untuned_groups = graph.groups;
  TEMPER_ASSIGN_OR_RETURN(const int instead,
                          ChooseAlternatives(graph, [&](const Workload& w) { return choices.Seconds(w); }));
  // Of its own, weights and all, so that both packages can be written at once.
  std::optional<Graph> untuned;
  if (instead > 0) {
    untuned = graph;
    untuned->groups = untuned_groups;
  }
  TEMPER_ASSIGN_OR_RETURN(bool differ, choices.Differ(graph, target));
  differ = differ || instead > 0;
  const bool at_once = target.threads() > 1;
  std::vector<ModelRunner> runners(differ ? 2 : 1);
  if (known.has_value()) runners[0] = *std::move(known);
  TEMPER_RETURN_IF_ERROR(ForEachPackage(differ, at_once, [&](bool tuned) -> absl::Status {
    if (!runners[tuned].steps().empty()) return absl::OkStatus();
    const Graph& g = !tuned && untuned.has_value() ? *untuned : graph;
    const ChooseFn choose = tuned ? ChooseFn(picked) : ChooseFn(defaults);
    TEMPER_ASSIGN_OR_RETURN(runners[tuned], ModelRunner::Make(g, target, choose, work.seed, *cache));
    return absl::OkStatus();
  }));
  graph = Graph();  // the weights are in the packages now
  untuned.reset();
  begin(Phase::kModelRun);
  result.outcome = Outcome::kRunCrashed;
  for (ModelRunner& r : runners) TEMPER_RETURN_IF_ERROR(r.RunFirst());
  if (differ) {
    result.outcome = Outcome::kWrongAnswer;
    TEMPER_RETURN_IF_ERROR(CompareOutputs(runners[1], runners[0], result.relative_error));
  }
  std::vector<std::vector<double>> samples(runners.size());
  result.outcome = Outcome::kRunCrashed;
  TEMPER_RETURN_IF_ERROR(TimeInTurns(work, UsualPace(as_usual), runners, samples));
  result.untuned_s = samples.front();
  result.tuned_s = samples.back();
  result.outcome = Outcome::kOk;
  return absl::OkStatus();
}

}  // namespace

ModelResult CheckModel(const ModelWork& work, const std::function<void(Phase)>& begin, std::optional<KeptModel> kept,
                       const std::function<bool()>& as_usual) {
  ModelResult result;
  if (absl::Status status = Check(work, begin, std::move(kept), as_usual, result); !status.ok()) {
    result.error = std::string(status.message());
    // No file can be written: whatever is built here, it is not to blame.
    if (absl::IsUnavailable(status)) result.outcome = Outcome::kInfrastructure;
  }
  return result;
}

}  // namespace temper::worker
