#include "tuner_server/search/experience.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ops/legal_configs.h"
#include "compiler/ops/shape_distance.h"

namespace temper {
namespace {

constexpr size_t kMostSamples = 1000;  // of a template
constexpr size_t kFewestSamples = 48;  // in all; trees of fewer say nothing
constexpr size_t kFewestOfTemplate = 24;
constexpr int kDoubtfulTasks = 12;  // what so many tasks have in common is believed by half
constexpr size_t kMostSeeds = 8;
// Fewer and flatter trees than a task's own model has: what holds for many shapes is coarse.
constexpr TrainOptions kTraining{.rounds = 40, .depth = 5, .eta = 0.2, .least_weight = 2};

std::vector<Booster> Fitting(const Target& target, std::vector<Booster> boosters) {
  std::erase_if(boosters, [&](const Booster& b) {
    return !IsOfThisBuild(b.template_name, b.template_version) || b.isa != IsaFamily(target);
  });
  return boosters;
}

}  // namespace

Experience::Experience(Target target, std::vector<Booster> shipped)
    : shipped_(Fitting(target, std::move(shipped))),
      trainer_(std::move(target), shipped_),
      boosters_(std::make_shared<const std::vector<Booster>>(shipped_)) {}

void Experience::Add(const Workload& w, std::span<const Observation> observations) {
  const auto [found, fresh] = tasks_.try_emplace(Text(w));
  Known& task = found->second;
  if (fresh) task = {w, static_cast<int>(tasks_.size()), {}, std::numeric_limits<double>::infinity()};
  for (const Observation& o : observations) {
    const double cost_s = o.ok ? o.cost_s : std::numeric_limits<double>::infinity();
    if (!trainer_.Add(w, task.group, o.proposal.template_name, o.proposal.config, cost_s).ok()) continue;
    if (trainer_.samples(o.proposal.template_name) > 2 * kMostSamples) trainer_.Forget(kMostSamples);
    ++samples_;
    if (cost_s < task.best_s) {
      task.best = o.proposal;
      task.best_s = cost_s;
    }
  }
}

absl::Status Experience::Refit() {
  if (samples_ < kFewestSamples || samples_ < 2 * trained_on_) return absl::OkStatus();
  trained_on_ = samples_;
  trainer_.Forget(kMostSamples);
  TEMPER_ASSIGN_OR_RETURN(std::vector<Booster> trained, trainer_.Train(kTraining, kFewestOfTemplate));
  for (Booster& b : trained) b.forest.Scale(static_cast<float>(b.tasks) / static_cast<float>(b.tasks + kDoubtfulTasks));
  trained.insert(trained.end(), shipped_.begin(), shipped_.end());
  boosters_ = std::make_shared<const std::vector<Booster>>(std::move(trained));
  return absl::OkStatus();
}

std::vector<Proposal> Experience::Seeds(const Workload& w) const {
  const std::string own = Text(w);
  std::vector<std::pair<double, const Known*>> near;
  for (const auto& [text, task] : tasks_) {
    const double distance = ShapeDistance(w, task.workload);
    if (text != own && std::isfinite(distance) && std::isfinite(task.best_s)) near.emplace_back(distance, &task);
  }
  std::sort(near.begin(), near.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second->group < b.second->group;
  });
  std::vector<Proposal> seeds;
  for (const auto& [distance, task] : near) {
    if (seeds.size() == kMostSeeds) break;
    if (std::find(seeds.begin(), seeds.end(), task->best) == seeds.end()) seeds.push_back(task->best);
  }
  return seeds;
}

Correction::Correction(const TaskSpace& task, Boosters boosters)
    : boosters_(std::move(boosters)), space_column_(task.space_column()), by_space_(static_cast<size_t>(task.count())) {
  if (boosters_ == nullptr) return;
  for (int space = 0; space < task.count(); ++space) {
    for (const Booster& b : *boosters_) {
      if (b.template_name != task.TemplateName(space)) continue;
      by_space_[static_cast<size_t>(space)].push_back({&b, ColumnsOf(b, task.knob_names(), task.first_knob_column())});
      empty_ = false;
    }
  }
}

void Correction::Apply(Rows& rows, size_t first) const {
  if (empty_) return;
  std::vector<size_t> members;
  std::vector<float> features, margins;
  for (size_t space = 0; space < by_space_.size(); ++space) {
    if (by_space_[space].empty()) continue;
    members.clear();
    features.clear();
    for (size_t i = first; i < rows.size(); ++i) {
      const auto row = rows.features.begin() + static_cast<std::ptrdiff_t>(i * rows.width);
      if (static_cast<size_t>(row[static_cast<std::ptrdiff_t>(space_column_)]) != space) continue;
      members.push_back(i);
      features.insert(features.end(), row, row + static_cast<std::ptrdiff_t>(rows.width));
    }
    margins.assign(members.size(), 0);
    for (const Part& part : by_space_[space]) AddMargins(*part.booster, features, rows.width, part.columns, margins);
    for (size_t k = 0; k < members.size(); ++k) rows.draft_s[members[k]] *= std::exp(-margins[k]);
  }
}

double Correction::Seconds(const TaskSpace& task, const Point& p) const {
  Rows row = task.NewRows();
  task.AppendRow(p, row);
  Apply(row, 0);
  return row.draft_s[0];
}

}  // namespace temper
