#include "tuner_server/tuning/job_loop.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

// The share of a job's trials that go to the first look at every task.
constexpr int kFirstLookDivisor = 2;
constexpr int kFirstLookByBudget = 8;
// Below this share of the model a task's first look is as small as can be.
constexpr double kSmallShare = 0.005;
constexpr double kSmoothing = 0.3;
constexpr double kAgainAtLeast = 16;
constexpr double kLongKernelS = 1e-3;
// Contenders of a task in the finals, beside the default, by its share of the model's time. Each more is a package
// more, whatever the number of tasks: of a model that takes long, fewer.
constexpr double kLargeShare = 0.02;
constexpr int kMostContenders = 3, kLeastContenders = 2, kContendersOfSmall = 1;
constexpr double kRunsOfAPackage = 4;  // at least: the first, and three rounds
// Of the rounds of tuned and untuned, on who is faster.
constexpr double kAgreement = 0.8;
// Of the model's time: less to gain is not worth a contest, and the default is used.
constexpr double kNegligibleGain = 1e-4;

constexpr size_t kRecordsOfATask = 64;  // that others learn from

// The fastest, and as many as others may learn from, spread over the rest: searches crowd around their best.
std::vector<Observation> Some(std::vector<Observation> all) {
  if (all.size() <= kRecordsOfATask) return all;
  std::stable_sort(all.begin(), all.end(), [](const Observation& a, const Observation& b) {
    return a.ok != b.ok ? a.ok : a.ok && a.cost_s < b.cost_s;
  });
  std::vector<Observation> some;
  for (size_t i = 0; i < kRecordsOfATask; ++i) some.push_back(all[i * all.size() / kRecordsOfATask]);
  return some;
}

bool IsTrial(const std::string& outcome) { return outcome == "ok" || outcome == "raced_out"; }

}  // namespace

absl::StatusOr<std::unique_ptr<JobLoop>> JobLoop::Create(JobSpec spec, std::string target_text, std::vector<Task> tasks,
                                                         JobLoopOptions options, absl::Duration started) {
  TEMPER_ASSIGN_OR_RETURN(Target target, ParseTarget(target_text));
  return std::unique_ptr<JobLoop>(new JobLoop(std::move(spec), std::move(target_text), std::move(target),
                                              std::move(tasks), std::move(options), started));
}

JobLoop::JobLoop(JobSpec spec, std::string target_text, Target target, std::vector<Task> tasks, JobLoopOptions options,
                 absl::Duration started)
    : spec_(std::move(spec)),
      target_text_(std::move(target_text)),
      target_(std::move(target)),
      options_(std::move(options)),
      started_(started),
      rng_(spec_.seed),
      experience_(std::make_shared<Experience>(target_, std::vector<Booster>())) {
  for (Task& task : tasks) {
    tasks_.emplace_back(std::move(task), target_, spec_.seed);
    changed_.insert(tasks_.size() - 1);
  }
}

absl::Status JobLoop::Warm(std::vector<Booster> shipped, std::span<const Record> records) {
  experience_ = std::make_shared<Experience>(target_, std::move(shipped));
  std::map<std::string, std::vector<Observation>> by_workload;
  std::vector<std::string> order;  // of first appearance
  for (const Record& record : records) {
    const TemplateDef* def = FindTemplate(record.template_name);
    absl::StatusOr<Config> config = ParseConfig(record.config);
    if (def == nullptr || def->version != record.template_version || !config.ok()) continue;
    if (record.outcome == Outcome::kInfrastructure) continue;
    std::vector<Observation>& observations = by_workload[record.workload];
    if (observations.empty()) order.push_back(record.workload);
    observations.push_back({{record.template_name, *std::move(config)}, record.ok(), MedianCost(record)});
  }
  // What comes last is remembered longest.
  for (auto text = order.rbegin(); text != order.rend(); ++text) {
    const absl::StatusOr<Workload> workload = ParseWorkload(*text);
    if (workload.ok()) experience_->Add(*workload, Some(by_workload[*text]));
  }
  return experience_->Refit();
}

void JobLoop::Teach(size_t task, const WorkItem& item, const ItemResult& result) {
  absl::StatusOr<Config> config = ParseConfig(item.config);
  if (!config.ok() || result.outcome == "infrastructure") return;
  const bool measured = IsTrial(result.outcome) && !result.costs_s.empty();
  const Observation observation{
      {item.template_name, *std::move(config)}, measured, measured ? Median(result.costs_s) : 0};
  experience_->Add(tasks_[task].workload(), {&observation, 1});
}

absl::Status JobLoop::PrepareTask(size_t task, std::span<const Record> known) {
  changed_.insert(task);
  const TunerFactory make_tuner = [this](TunerContext context) {
    context.experience = experience_;
    return options_.make_tuner(context);
  };
  const absl::Status prepared =
      spec_.revalidate ? tasks_[task].PrepareToRevalidate(known) : tasks_[task].Prepare(make_tuner, known);
  if (prepared.ok()) return absl::OkStatus();
  // One workload that cannot be searched does not take the model's others along: it runs its default.
  warnings_.push_back(absl::StrCat("not tuned: ", tasks_[task].view().workload, ": ", prepared.message()));
  tasks_[task].End("failures");
  return absl::OkStatus();
}

// --- search ---

bool JobLoop::MayGetBatch(size_t i) const {
  const TaskSearch& task = tasks_[i];
  // A tuner that has not seen its last batch's results yet proposes half blind.
  return !task.view().done && task.prepared() && task.outstanding == 0;
}

bool JobLoop::NeedsSearch(int slots, bool ahead) const {
  if (phase_ != Phase::kSearch || !TrialsLeft()) return false;
  const size_t wanted = static_cast<size_t>(std::max(1, slots)) * (ahead ? 2 : 1);
  if (pending_.size() >= wanted) return false;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (MayGetBatch(i)) return true;
  }
  return false;
}

int JobLoop::BatchSize(size_t i, absl::Duration now) const {
  const TaskSearch& task = tasks_[i];
  int size = options_.largest_batch;
  if (!task.seen()) {
    const int tasks = static_cast<int>(tasks_.size());
    size = spec_.trials > 0 ? spec_.trials / (kFirstLookDivisor * tasks) : kFirstLookByBudget;
    size = std::clamp(size, options_.smallest_batch, options_.largest_batch);
    if (task.EstimatedSeconds() < kSmallShare * KernelSeconds()) size = options_.smallest_batch;
  }
  if (spec_.trials > 0) size = std::min(size, spec_.trials - trials_ - outstanding_items_);
  if (spec_.trials_per_task > 0) size = std::min(size, spec_.trials_per_task - task.view().trials);
  if (spec_.time_budget > absl::ZeroDuration() && seconds_per_item_ > 0) {
    // What is under way runs first; the last batch should end with the budget.
    const double left_s = absl::ToDoubleSeconds(spec_.time_budget - (now - started_));
    const double fit = left_s / seconds_per_item_ - outstanding_items_;
    size = std::min(size, static_cast<int>(std::max(1.0, fit)));
  }
  return std::max(1, size);
}

absl::Status JobLoop::Search(absl::Duration now, WorkPort& port) {
  std::vector<TaskStanding> standings;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskSearch& task = tasks_[i];
    standings.push_back({static_cast<double>(task.view().weight), task.view().best_s, task.course(), task.seen(),
                         MayGetBatch(i), task.EstimatedSeconds()});
  }
  const std::optional<size_t> next = NextTask(standings, rng_, options_.allocator);
  if (!next) return absl::OkStatus();
  TaskSearch& task = tasks_[*next];
  TEMPER_RETURN_IF_ERROR(experience_->Refit());
  TEMPER_ASSIGN_OR_RETURN(std::vector<WorkItem> items, task.Propose(BatchSize(*next, now)));
  if (items.empty()) {
    task.End("exhausted");
    changed_.insert(*next);
    return absl::OkStatus();
  }
  Work work = NewWork(WorkKind::kBatch, *next);
  work.incumbent_s = task.incumbent_s();
  if (task.incumbent_s() >= kLongKernelS) work.plan.race_factor = options_.long_race_factor;
  work.items = std::move(items);
  Submit(std::move(work), *next, now, port);
  return absl::OkStatus();
}

Work JobLoop::NewWork(WorkKind kind, size_t task) const {
  Work work;
  work.job = spec_.id;
  work.kind = kind;
  work.device_key = spec_.device_key;
  work.target = target_text_;
  work.codegen_id = spec_.codegen_id;
  work.tuner = spec_.tuner;
  if (kind != WorkKind::kBatch) return work;
  work.workload = tasks_[task].view().workload;
  work.anchor = tasks_[task].anchor();
  return work;
}

void JobLoop::Submit(Work work, size_t task, absl::Duration now, WorkPort& port) {
  Pending pending;
  pending.task = task;
  pending.kind = work.kind;
  pending.submitted = now;
  pending.size = work.items.size();
  const std::vector<WorkItem> items = work.items;
  const std::vector<int64_t> ids = port.Submit(std::move(work));
  for (size_t i = 0; i < ids.size(); ++i) {
    pending.open[ids[i]] = items[i];
    pending_of_item_[ids[i]] = next_pending_;
  }
  if (pending.kind == WorkKind::kBatch) {
    outstanding_items_ += static_cast<int>(ids.size());
    ++tasks_[task].outstanding;
  }
  pending_[next_pending_++] = std::move(pending);
}

// --- events ---

void JobLoop::OnResult(const ItemResult& result, absl::Duration now) {
  const auto owner = pending_of_item_.find(result.item);
  if (owner == pending_of_item_.end()) return;  // withdrawn meanwhile
  const int64_t pending_id = owner->second;
  pending_of_item_.erase(owner);
  Pending& pending = pending_.at(pending_id);
  const WorkItem item = pending.open.at(result.item);
  pending.open.erase(result.item);
  if (!IsTrial(result.outcome)) last_error_ = absl::StrCat(result.outcome, ": ", result.error);
  switch (pending.kind) {
    case WorkKind::kBatch:
      --outstanding_items_;
      ObserveTrial(pending.task, item, result);
      break;
    case WorkKind::kFinals:
      pending.finals.emplace_back(item, result);
      break;
    case WorkKind::kModel:
      FinishModel(result);
      break;
  }
  if (!pending.open.empty()) return;
  CloseBatch(pending, now);
  pending_.erase(pending_id);
}

void JobLoop::ObserveTrial(size_t task, const WorkItem& item, const ItemResult& result) {
  changed_.insert(task);
  if (MeasuredInNoise(WorkKind::kBatch, item, result) && tasks_[task].WorthAgain(result) &&
      again_ <= kAgainAtLeast + options_.most_again * trials_) {
    ++again_;
    tasks_[task].MeasureAgain(item);
    return;
  }
  ++outcomes_[result.outcome];
  if (IsTrial(result.outcome)) {
    ++trials_;
    ++since_better_;
  }
  tasks_[task].Observe(item, result);
  Teach(task, item, result);
}

void JobLoop::CloseBatch(const Pending& pending, absl::Duration now) {
  if (pending.kind == WorkKind::kModel) return;
  if (pending.kind == WorkKind::kFinals) return DecideFinals(pending);
  TaskSearch& task = tasks_[pending.task];
  changed_.insert(pending.task);
  --task.outstanding;
  task.EndRound();
  const bool first_looks = std::any_of(tasks_.begin(), tasks_.end(), [](const TaskSearch& t) { return !t.seen(); });
  const double kernels_s = KernelSeconds();
  if (first_looks || kernels_s < better_kernels_s_ * (1 - kNegligibleGain)) {
    since_better_ = 0;
    better_kernels_s_ = first_looks ? std::numeric_limits<double>::infinity() : kernels_s;
  }
  const double each = absl::ToDoubleSeconds(now - pending.submitted) / static_cast<double>(pending.size);
  seconds_per_item_ = seconds_per_item_ == 0 ? each : seconds_per_item_ + kSmoothing * (each - seconds_per_item_);
}

void JobLoop::DecideFinals(const Pending& pending) {
  std::map<std::string, size_t> task_of;
  for (size_t i = 0; i < tasks_.size(); ++i) task_of.emplace(tasks_[i].view().workload, i);
  std::string failure;
  for (const auto& [item, result] : pending.finals) {
    const size_t task = task_of.at(item.workload);
    changed_.insert(task);
    tasks_[task].ObserveFinal(item, result);
    if (result.outcome != "ok" && failure.empty()) failure = absl::StrCat(result.outcome, ": ", result.error);
  }
  finals_held_ = failure.empty();
  if (!failure.empty()) warnings_.push_back(absl::StrCat("not all finalists were measured: ", failure));
}

void JobLoop::EndAllTasks(const std::string& why) {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].view().done) continue;
    tasks_[i].End(why);
    changed_.insert(i);
  }
}

void JobLoop::WithdrawAll(WorkPort& port) {
  std::vector<int64_t> items;
  for (const auto& [item, pending] : pending_of_item_) items.push_back(item);
  if (!items.empty()) port.Withdraw(items);
  for (auto& [id, pending] : pending_) {
    if (pending.kind == WorkKind::kBatch) --tasks_[pending.task].outstanding;
  }
  pending_.clear();
  pending_of_item_.clear();
  outstanding_items_ = 0;
}

void JobLoop::Advance(absl::Duration now, WorkPort& port) {
  if (phase_ == Phase::kSearch) {
    EndFinishedTasks();
    const std::string why = WhySearchIsOver(now);
    if (why.empty()) return;
    WithdrawAll(port);
    EndAllTasks(why);
    if (!spec_.workloads.empty()) {
      phase_ = Phase::kOver;
      return;
    }
    BeginFinals(now, port);
  }
  if (phase_ == Phase::kFinals) {
    if (!pending_.empty() && now < finals_deadline_) return;
    if (!pending_.empty()) {
      warnings_.push_back(
          "time ran out for the finals: what is best is provisional, or the default where that is close");
      WithdrawAll(port);
    }
    for (size_t i = 0; i < tasks_.size(); ++i) {
      tasks_[i].Settle();
      changed_.insert(i);
    }
    BeginModelCheck(now, port);
  }
  if (phase_ == Phase::kModelCheck) {
    if (!pending_.empty() && now < model_deadline_) return;
    if (!pending_.empty()) {
      warnings_.push_back("the model was not measured end to end: no answer in time");
      WithdrawAll(port);
    }
    phase_ = Phase::kOver;
  }
}

Work JobLoop::ModelWork(WorkKind kind, int rounds) const {
  Work work = NewWork(kind, 0);
  work.revalidate = spec_.revalidate;
  work.graph_json = spec_.graph_json;
  work.seed = spec_.seed;
  work.rounds = rounds;
  work.budget_ms = static_cast<int>(absl::ToInt64Milliseconds(options_.rounds_allowance));
  for (const TaskSearch& task : tasks_) {
    if (std::optional<KernelPick> pick = task.Pick()) work.picks.push_back(*std::move(pick));
  }
  return work;
}

int JobLoop::MostContenders() const {
  const double packages = absl::ToDoubleSeconds(options_.rounds_allowance) / (kRunsOfAPackage * KernelSeconds());
  return static_cast<int>(std::clamp<double>(packages - 1, kLeastContenders, kMostContenders));
}

int JobLoop::ContendersOf(size_t i) const {
  if (tasks_[i].EstimatedSeconds() >= kLargeShare * KernelSeconds()) return MostContenders();
  return tasks_[i].Gain() < kNegligibleGain * KernelSeconds() ? 0 : kContendersOfSmall;
}

void JobLoop::BeginFinals(absl::Duration now, WorkPort& port) {
  phase_ = Phase::kFinals;
  finals_deadline_ = now + options_.model_patience;
  Work work = ModelWork(WorkKind::kFinals, options_.final_rounds);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskSearch& task = tasks_[i];
    for (WorkItem& item : spec_.revalidate ? task.ToRevalidate(MostContenders()) : task.Finalists(ContendersOf(i))) {
      item.workload = task.view().workload;
      item.anchor = task.anchor();
      work.items.push_back(std::move(item));
    }
  }
  if (!work.items.empty()) {
    Submit(std::move(work), 0, now, port);
  } else if (spec_.revalidate) {
    verdict_ =
        absl::FailedPreconditionError("nothing to measure again: no record of this model's operators on the device");
    phase_ = Phase::kOver;
  }
}

void JobLoop::BeginModelCheck(absl::Duration now, WorkPort& port) {
  phase_ = Phase::kModelCheck;
  const bool any = std::any_of(tasks_.begin(), tasks_.end(), [](const TaskSearch& t) { return t.view().best_s > 0; });
  if (!tasks_.empty() && !any) {
    verdict_ =
        absl::FailedPreconditionError(absl::StrCat("no candidate of any task could be measured; the last failure was ",
                                                   last_error_.empty() ? "none: nothing was tried" : last_error_));
    phase_ = Phase::kOver;
    return;
  }
  Work work = ModelWork(WorkKind::kModel, options_.model_rounds);
  picks_ = static_cast<size_t>(
      std::count_if(tasks_.begin(), tasks_.end(), [](const TaskSearch& t) { return !t.KeepsDefault(); }));
  work.items.emplace_back();
  model_deadline_ = now + options_.model_patience;
  Submit(std::move(work), 0, now, port);
}

void JobLoop::FinishModel(const ItemResult& result) {
  if (result.outcome != "ok" || result.costs_s.empty() || result.untuned_s.empty()) {
    // What was measured wrong must not be used; what could not be measured is only not known.
    kept_default_ = picks_ > 0 && result.outcome != "infrastructure";
    warnings_.push_back(absl::StrCat("the model was not measured end to end: ", result.outcome, ": ", result.error));
    return;
  }
  // The two take turns, so that a round's ratio is free of what slows both; the rounds' medians are not.
  std::vector<double> ratios;
  std::vector<bool> slower;
  for (size_t i = 0; i < std::min(result.costs_s.size(), result.untuned_s.size()); ++i) {
    ratios.push_back(result.costs_s[i] / result.untuned_s[i]);
    slower.push_back(ratios.back() > 1);
  }
  untuned_s_ = Median(result.untuned_s);
  const double ratio = Median(std::move(ratios));
  tuned_s_ = untuned_s_ * ratio;
  // What is said to be slower is not used. Where finals chose every kernel in the model, they have a say too: rounds
  // that contradict one another do not overrule them.
  const auto rounds = static_cast<double>(slower.size());
  const bool agreed = static_cast<double>(std::count(slower.begin(), slower.end(), true)) >= kAgreement * rounds;
  kept_default_ = picks_ > 0 && ratio > 1 && (agreed || !finals_held_);
}

absl::Duration JobLoop::NextDeadline() const {
  switch (phase_) {
    case Phase::kSearch:
      return spec_.time_budget > absl::ZeroDuration() ? started_ + spec_.time_budget : absl::InfiniteDuration();
    case Phase::kFinals:
      return finals_deadline_;
    case Phase::kModelCheck:
      return model_deadline_;
    case Phase::kOver:
      break;
  }
  return absl::InfiniteDuration();
}

}  // namespace temper
