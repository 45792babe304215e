#include "tuner_server/tuning/job_closing.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "tuner_server/tuning/job_limits.h"

namespace temper {
namespace {

// Contenders of a task in the finals, beside the default, by its share of the model's time. Each more is a package
// more, whatever the number of tasks: of a model that takes long, fewer.
constexpr double kLargeShare = 0.02;
constexpr int kMostContenders = 3, kLeastContenders = 2, kContendersOfSmall = 1;
constexpr double kRunsOfAPackage = 4;  // at least: the first, and three rounds
// Of the rounds of tuned and untuned, on who is faster.
constexpr double kAgreement = 0.8;
// By more than this the model's own rounds are believed, whoever won the kernels' finals.
constexpr double kSlowerAnyway = 1.02;

}  // namespace

int JobClosing::MostContenders() const {
  const double packages = absl::ToDoubleSeconds(options_.rounds_allowance) / (kRunsOfAPackage * KernelSeconds(tasks_));
  return static_cast<int>(std::clamp<double>(packages - 1, kLeastContenders, kMostContenders));
}

int JobClosing::ContendersOf(size_t i) const {
  const double kernels_s = KernelSeconds(tasks_);
  if (tasks_[i].EstimatedSeconds() >= kLargeShare * kernels_s) return MostContenders();
  const TaskView& view = tasks_[i].view();
  const bool may_gain = view.best_s > 0 && view.default_s == 0;
  return may_gain || tasks_[i].Gain() >= kNegligibleGain * kernels_s ? kContendersOfSmall : 0;
}

std::vector<WorkItem> JobClosing::Finalists() const {
  std::vector<WorkItem> items;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskSearch& task = tasks_[i];
    std::vector<Candidate> finalists =
        spec_.revalidate ? task.ToRevalidate(MostContenders()) : task.Finalists(ContendersOf(i));
    for (Candidate& finalist : finalists)
      items.push_back({std::move(finalist), false, task.view().workload, task.anchor()});
  }
  return items;
}

ModelWork JobClosing::Model(const std::string& target, int rounds) const {
  ModelWork model{.graph_json = spec_.graph_json, .target = target, .seed = spec_.seed, .rounds = rounds};
  model.budget_ms = absl::ToInt64Milliseconds(options_.rounds_allowance);
  for (const TaskSearch& task : tasks_) {
    if (std::optional<KernelPick> pick = task.Pick()) model.picks.push_back(*std::move(pick));
  }
  return model;
}

ModelWork JobClosing::CheckedModel(const std::string& target) {
  picks_ = static_cast<size_t>(
      std::count_if(tasks_.begin(), tasks_.end(), [](const TaskSearch& t) { return !t.KeepsDefault(); }));
  return Model(target, options_.model_rounds);
}

std::vector<size_t> JobClosing::DecideFinals(std::span<const std::pair<WorkItem, TrialResult>> finals) {
  std::map<std::string, size_t> task_of;
  for (size_t i = 0; i < tasks_.size(); ++i) task_of.emplace(tasks_[i].view().workload, i);
  std::vector<size_t> decided;
  std::map<size_t, int> finalists, measured;  // by task
  std::string failure;
  for (const auto& [item, result] : finals) {
    const size_t task = task_of.at(item.workload);
    decided.push_back(task);
    tasks_[task].ObserveFinal(item, result);
    ++finalists[task];
    measured[task] += result.outcome == Outcome::kOk;
    if (result.outcome != Outcome::kOk && failure.empty()) failure = Explained(result.outcome, result.error);
  }
  // The default and one that may be faster: a contest.
  finals_held_ =
      std::ranges::all_of(finalists, [&](const auto& of) { return measured[of.first] >= std::min(of.second, 2); });
  if (!failure.empty()) warnings_.push_back(absl::StrCat("not all finalists were measured: ", failure));
  return decided;
}

void JobClosing::Settle() {
  for (TaskSearch& task : tasks_) task.Settle();
}

void JobClosing::DecideModel(const ModelResult& result) {
  if (result.outcome != Outcome::kOk || result.tuned_s.empty() || result.untuned_s.empty()) {
    // What was measured wrong must not be used; what could not be measured is only not known.
    const bool unknown = result.outcome == Outcome::kInfrastructure || result.outcome == Outcome::kUnfit;
    kept_default_ = picks_ > 0 && !unknown;
    warnings_.push_back(
        absl::StrCat("the model was not measured end to end: ", Explained(result.outcome, result.error)));
    return;
  }
  // The two take turns, so that a round's ratio is free of what slows both; the rounds' medians are not.
  std::vector<double> ratios;
  std::vector<bool> slower;
  for (size_t i = 0; i < std::min(result.tuned_s.size(), result.untuned_s.size()); ++i) {
    ratios.push_back(result.tuned_s[i] / result.untuned_s[i]);
    slower.push_back(ratios.back() > 1);
  }
  untuned_s_ = Median(result.untuned_s);
  const double ratio = Median(std::move(ratios));
  tuned_s_ = untuned_s_ * ratio;
  // What is said to be slower is not used. Where finals chose every kernel in the model, they have a say too: rounds
  // that contradict one another do not overrule them.
  const auto rounds = static_cast<double>(slower.size());
  const bool agreed = static_cast<double>(std::count(slower.begin(), slower.end(), true)) >= kAgreement * rounds;
  kept_default_ = picks_ > 0 && ratio > 1 && (agreed || !finals_held_ || ratio > kSlowerAnyway);
}

}  // namespace temper
