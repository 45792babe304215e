#include "tuner_server/tuning/job_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/statistics.h"
#include "compiler/ops/legal_configs.h"

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
constexpr int kManySlots = 8;
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

}  // namespace

JobSearch::JobSearch(const JobSpec& spec, const JobLoopOptions& options, const JobLimits& limits, const Target& target,
                     std::vector<TaskSearch>& tasks)
    : spec_(spec),
      options_(options),
      limits_(limits),
      tasks_(tasks),
      rng_(spec.seed),
      experience_(std::make_shared<Experience>(target, std::vector<Booster>())) {}

absl::Status JobSearch::Warm(const Target& target, std::vector<Booster> shipped, std::span<const Record> records) {
  experience_ = std::make_shared<Experience>(target, std::move(shipped));
  std::map<std::string, std::vector<Observation>> by_workload;
  std::vector<std::string> order;  // of first appearance
  for (const Record& record : records) {
    absl::StatusOr<Config> config = ParseConfig(record.config);
    if (!IsOfThisBuild(record.template_name, record.template_version) || !config.ok()) continue;
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

absl::Status JobSearch::PrepareTask(size_t task, const KnownRecords& known) {
  const TunerFactory make_tuner = [this](TunerContext context) {
    context.experience = experience_;
    return options_.make_tuner(context);
  };
  if (spec_.revalidate) return tasks_[task].PrepareToRevalidate(known);
  const KnownRecords counted = [&](const std::function<void(const Record&)>& visit) {
    known([&](const Record& record) {
      if (record.job == spec_.id && record.purpose == "search" && !IsMeasured(record.outcome))
        ++outcomes_[record.outcome];
      visit(record);
    });
  };
  TEMPER_RETURN_IF_ERROR(tasks_[task].Prepare(make_tuner, counted, spec_.id));
  if (const int earlier = tasks_[task].view().trials; earlier > 0) {
    outcomes_[Outcome::kOk] += earlier;
    trials_ += earlier;
  }
  return absl::OkStatus();
}

// A tuner that has not seen its last batch's results yet proposes half blind. So there is one batch a task, unless more
// workers wait than there are tasks; a worker has two slots, one of them in reserve.
int JobSearch::MostBatchesATask(int slots) const {
  const auto open = std::ranges::count_if(
      tasks_, [](const TaskSearch& t) { return !t.view().done && t.prepared() && !t.has_nothing_new; });
  const int shared_by = 2 * std::max(1, static_cast<int>(open));
  return std::max(1, (slots + shared_by - 1) / shared_by);
}

// A task that has reached a limit ends when all of it is back.
bool JobSearch::MayGetBatch(size_t i, int most, double kernels_s) const {
  const TaskSearch& task = tasks_[i];
  if (task.view().done || !task.prepared() || task.outstanding >= most) return false;
  if (task.outstanding == 0) return true;
  const bool all_sent =
      spec_.trials_per_task > 0 && task.view().trials + task.outstanding_items >= spec_.trials_per_task;
  return !task.has_nothing_new && !all_sent && limits_.WhyFinished(i, kernels_s).empty();
}

int JobSearch::OutstandingItems() const {
  return std::accumulate(tasks_.begin(), tasks_.end(), 0,
                         [](int sum, const TaskSearch& t) { return sum + t.outstanding_items; });
}

bool JobSearch::CanPropose(int slots) const {
  if (spec_.trials > 0 && trials_ + OutstandingItems() >= spec_.trials) return false;
  const int most = MostBatchesATask(slots);
  const double kernels_s = KernelSeconds(tasks_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (MayGetBatch(i, most, kernels_s)) return true;
  }
  return false;
}

int JobSearch::BatchSize(size_t i, absl::Duration now, int slots) const {
  const TaskSearch& task = tasks_[i];
  int size = options_.largest_batch;
  if (!task.seen()) {
    const int tasks = static_cast<int>(tasks_.size());
    size = spec_.trials > 0 ? spec_.trials / (kFirstLookDivisor * tasks) : kFirstLookByBudget;
    size = std::clamp(size, options_.smallest_batch, options_.largest_batch);
    if (task.EstimatedSeconds() < kSmallShare * KernelSeconds(tasks_)) size = options_.smallest_batch;
  }
  if (spec_.trials > 0) {
    const int left = spec_.trials - trials_ - OutstandingItems();
    // Many workers share what is left, so that none of them ends long after the others.
    const int share = slots < kManySlots ? left : (left + slots - 1) / slots;
    size = std::min({size, left, std::max(1, share)});
  }
  if (spec_.trials_per_task > 0) {
    size = std::min(size, spec_.trials_per_task - task.view().trials - task.outstanding_items);
  }
  if (spec_.time_budget > absl::ZeroDuration() && seconds_per_item_ > 0) {
    // What is under way runs first; the last batch should end with the budget, and one worker measures it.
    const double fit = limits_.SecondsLeft(now) / seconds_per_item_;
    const double of_one = fit / std::max(1, slots / 2);
    size = std::min(size, static_cast<int>(std::max(1.0, std::min(fit - OutstandingItems(), of_one))));
  }
  return std::max(1, size);
}

absl::StatusOr<std::optional<JobSearch::Batch>> JobSearch::Propose(absl::Duration now, int slots) {
  const int most = MostBatchesATask(slots);
  const double kernels_s = KernelSeconds(tasks_);
  std::vector<TaskStanding> standings;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskSearch& task = tasks_[i];
    standings.push_back({static_cast<double>(task.view().weight), task.view().best_s, task.course(), task.seen(),
                         MayGetBatch(i, most, kernels_s), task.EstimatedSeconds()});
  }
  const std::optional<size_t> next = NextTask(standings, rng_, options_.allocator);
  if (!next) return std::nullopt;
  TaskSearch& task = tasks_[*next];
  TEMPER_RETURN_IF_ERROR(experience_->Refit());
  Batch batch{.task = *next, .incumbent_s = task.incumbent_s(), .race_factor = SamplingPlan().race_factor};
  if (task.incumbent_s() >= kLongKernelS) batch.race_factor = options_.long_race_factor;
  TEMPER_ASSIGN_OR_RETURN(batch.items, task.Propose(BatchSize(*next, now, slots)));
  task.has_nothing_new = batch.items.empty();
  if (batch.items.empty() && task.outstanding == 0) task.End("exhausted");
  // What all are compared with is measured to the end.
  if (!batch.items.empty() && task.IsDefault(batch.items.front())) batch.incumbent_s = 0;
  return batch;
}

void JobSearch::OnSent(const Batch& batch) {
  tasks_[batch.task].outstanding_items += static_cast<int>(batch.items.size());
  ++tasks_[batch.task].outstanding;
}

void JobSearch::Adopt(Batch& batch) {
  std::erase_if(batch.items, [&](const WorkItem& item) { return !tasks_[batch.task].TakeOver(item); });
  if (!batch.items.empty()) OnSent(batch);
}

void JobSearch::OnResult(size_t task, const WorkItem& item, const TrialResult& result) {
  --tasks_[task].outstanding_items;
  if (MeasuredInNoise(WorkKind::kBatch, item, result) && !tasks_[task].view().done && tasks_[task].WorthAgain(result) &&
      again_ <= kAgainAtLeast + options_.most_again * trials_) {
    ++again_;
    tasks_[task].MeasureAgain(item);
    return;
  }
  const bool counts = tasks_[task].Observe(item, result);
  if (counts || !IsMeasured(result.outcome)) ++outcomes_[result.outcome];
  if (counts) {
    ++trials_;
    ++since_better_;
  }
  Teach(task, item, result);
  // No other config helps, and each try is as long as the first.
  if (result.outcome == Outcome::kUnfit && !tasks_[task].view().done) tasks_[task].End("unfit");
}

void JobSearch::Teach(size_t task, const Candidate& item, const TrialResult& result) {
  absl::StatusOr<Config> config = ParseConfig(item.config);
  if (!config.ok() || result.outcome == Outcome::kInfrastructure) return;
  const double seconds = UsualSeconds(result);
  const Observation observation{{item.template_name, *std::move(config)}, seconds > 0, seconds};
  experience_->Add(tasks_[task].workload(), {&observation, 1});
}

// Workers measure beside one another, and batches wait behind others: what comes back while all that are under way do
// tells how long an item takes.
void JobSearch::Clock(const BatchTime& batch) {
  if (window_.batches == 0) window_.began = std::max(window_.began, batch.submitted);
  ++window_.batches;
  window_.items += batch.items;
  if (seconds_per_item_ > 0 && window_.batches < batch.under_way) return;
  const double seconds = absl::ToDoubleSeconds(batch.over - window_.began) / static_cast<double>(window_.items);
  seconds_per_item_ = seconds_per_item_ == 0 ? seconds : seconds_per_item_ + kSmoothing * (seconds - seconds_per_item_);
  window_ = {.began = batch.over};
}

void JobSearch::OnBatchOver(size_t task, const BatchTime& batch) {
  Clock(batch);
  --tasks_[task].outstanding;
  tasks_[task].has_nothing_new = false;
  tasks_[task].EndRound();
  const bool first_looks = std::any_of(tasks_.begin(), tasks_.end(), [](const TaskSearch& t) { return !t.seen(); });
  const double kernels_s = KernelSeconds(tasks_);
  if (first_looks || kernels_s < better_kernels_s_ * (1 - kNegligibleGain)) {
    since_better_ = 0;
    better_kernels_s_ = first_looks ? std::numeric_limits<double>::infinity() : kernels_s;
  }
}

void JobSearch::ForgetOutstanding() {
  for (TaskSearch& task : tasks_) task.outstanding = task.outstanding_items = 0;
}

std::vector<size_t> JobSearch::EndFinishedTasks() {
  std::vector<size_t> ended;
  const double kernels_s = KernelSeconds(tasks_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    TaskSearch& task = tasks_[i];
    if (task.view().done || !task.prepared() || task.outstanding > 0) continue;
    std::string why = limits_.WhyFinished(i, kernels_s);
    if (why.empty()) continue;
    task.End(std::move(why));
    ended.push_back(i);
  }
  return ended;
}

SearchCounts JobSearch::counts(bool idle) const {
  int attempts = 0;
  for (const auto& [outcome, count] : outcomes_) attempts += count;
  return {trials_, attempts, since_better_, seconds_per_item_, idle};
}

}  // namespace temper
