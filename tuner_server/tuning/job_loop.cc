#include "tuner_server/tuning/job_loop.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

std::vector<TaskSearch> Searches(std::vector<Task> tasks, const Target& target, uint64_t seed) {
  std::vector<TaskSearch> searches;
  for (Task& task : tasks) searches.emplace_back(std::move(task), target, seed);
  return searches;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobLoop>> JobLoop::Create(JobSpec spec, DeviceKind kind, std::vector<Task> tasks,
                                                         JobLoopOptions options, absl::Duration started) {
  TEMPER_ASSIGN_OR_RETURN(const Target target, ParseTarget(kind.target));
  return std::unique_ptr<JobLoop>(
      new JobLoop(std::move(spec), std::move(kind), target, std::move(tasks), std::move(options), started));
}

JobLoop::JobLoop(JobSpec spec, DeviceKind kind, const Target& target, std::vector<Task> tasks, JobLoopOptions options,
                 absl::Duration started)
    : spec_(std::move(spec)),
      kind_(std::move(kind)),
      target_(target),
      options_(std::move(options)),
      started_(started),
      constant_bytes_(spec_.workloads.empty() ? ConstantBytes(tasks) : 0),
      tasks_(Searches(std::move(tasks), target, spec_.seed)),
      limits_(spec_, options_, started, tasks_),
      search_(spec_, options_, limits_, target, tasks_),
      closing_(spec_, options_, tasks_) {
  for (size_t i = 0; i < tasks_.size(); ++i) changed_.insert(i);
}

absl::Status JobLoop::Warm(std::vector<Booster> shipped, std::span<const Record> records) {
  return search_.Warm(target_, std::move(shipped), records);
}

absl::Status JobLoop::PrepareTask(size_t task, const KnownRecords& known) {
  changed_.insert(task);
  const absl::Status prepared = search_.PrepareTask(task, known);
  if (prepared.ok()) return absl::OkStatus();
  // One workload that cannot be searched does not take the model's others along: it runs its default.
  last_error_ = std::string(prepared.message());
  warnings_.push_back(absl::StrCat("not tuned: ", tasks_[task].view().workload, ": ", last_error_));
  tasks_[task].End("failures");
  return absl::OkStatus();
}

// --- search ---

bool JobLoop::NeedsSearch(int slots, bool ahead) const {
  const size_t wanted = static_cast<size_t>(std::max(1, slots)) * (ahead ? 2 : 1);
  return phase_ == Phase::kSearch && pending_.size() < wanted && search_.CanPropose(slots);
}

absl::Status JobLoop::Search(absl::Duration now, WorkPort& port, int slots) {
  TEMPER_ASSIGN_OR_RETURN(const std::optional<JobSearch::Batch> batch, search_.Propose(now, slots));
  if (!batch) return absl::OkStatus();
  if (batch->items.empty()) {
    changed_.insert(batch->task);
    return absl::OkStatus();
  }
  Work work = NewWork(WorkKind::kBatch);
  work.workload = tasks_[batch->task].view().workload;
  work.anchor = tasks_[batch->task].anchor();
  work.incumbent_s = batch->incumbent_s;
  work.plan.race_factor = batch->race_factor;
  work.plan.constant_bytes = constant_bytes_;
  work.items = batch->items;
  search_.OnSent(*batch);
  Submit(std::move(work), batch->task, now, port);
  return absl::OkStatus();
}

Work JobLoop::NewWork(WorkKind kind) const {
  Work work;
  work.job = spec_.id;
  work.kind = kind;
  work.device_key = kind_.key;
  work.target = kind_.target;
  work.codegen_id = kind_.codegen_id;
  work.tuner = spec_.tuner;
  work.owner = spec_.owner;
  work.priority = spec_.priority;
  work.revalidate = kind != WorkKind::kBatch && spec_.revalidate;
  return work;
}

void JobLoop::Submit(Work work, size_t task, absl::Duration now, WorkPort& port) {
  Pending pending{.task = task, .kind = work.kind, .submitted = now};
  std::vector<WorkItem> items = work.items;
  const std::vector<int64_t> ids = port.Submit(std::move(work));
  for (size_t i = 0; i < ids.size(); ++i) items[i].id = ids[i];
  Await(std::move(pending), items);
}

void JobLoop::Await(Pending pending, const std::vector<WorkItem>& items) {
  pending.size = items.size();
  for (const WorkItem& item : items) {
    pending.open[item.id] = item;
    pending_of_item_[item.id] = next_pending_;
  }
  pending_[next_pending_++] = std::move(pending);
}

void JobLoop::Adopt(const std::vector<WorkItem>& items, absl::Duration now) {
  for (size_t task = 0; task < tasks_.size(); ++task) {
    JobSearch::Batch batch{.task = task};
    std::ranges::copy_if(items, std::back_inserter(batch.items),
                         [&](const WorkItem& item) { return item.workload == tasks_[task].view().workload; });
    if (tasks_[task].view().done) continue;
    search_.Adopt(batch);
    if (batch.items.empty()) continue;
    Await({.task = task, .kind = WorkKind::kBatch, .submitted = now}, batch.items);
  }
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
  if (!IsMeasured(result.outcome())) last_error_ = Explained(result.outcome(), result.error());
  switch (pending.kind) {
    case WorkKind::kBatch:
      changed_.insert(pending.task);
      search_.OnResult(pending.task, item, result.trial);
      break;
    case WorkKind::kFinals:
      pending.finals.emplace_back(item, result.trial);
      break;
    case WorkKind::kModel:
      closing_.DecideModel(result.model.value_or(ModelResult{.error = result.error()}));
      break;
  }
  if (!pending.open.empty()) return;
  Close(pending, now);
  pending_.erase(pending_id);
}

void JobLoop::Close(const Pending& pending, absl::Duration now) {
  if (pending.kind == WorkKind::kBatch) {
    changed_.insert(pending.task);
    const auto under_way =
        std::ranges::count_if(pending_, [](const auto& p) { return p.second.kind == WorkKind::kBatch; });
    search_.OnBatchOver(pending.task, {pending.submitted, now, pending.size, static_cast<size_t>(under_way)});
  }
  if (pending.kind == WorkKind::kFinals) {
    for (const size_t task : closing_.DecideFinals(pending.finals)) changed_.insert(task);
  }
  TakeClosingWarnings();
}

void JobLoop::TakeClosingWarnings() {
  for (std::string& warning : closing_.TakeWarnings()) warnings_.push_back(std::move(warning));
}

void JobLoop::WithdrawAll(WorkPort& port) {
  std::vector<int64_t> items;
  for (const auto& [item, pending] : pending_of_item_) items.push_back(item);
  if (!items.empty()) port.Withdraw(items);
  pending_.clear();
  pending_of_item_.clear();
  search_.ForgetOutstanding();
}

// --- phases ---

bool JobLoop::EndSearch(absl::Duration now, WorkPort& port) {
  for (const size_t task : search_.EndFinishedTasks()) changed_.insert(task);
  const std::string why = limits_.WhyOver(search_.counts(pending_.empty()), now);
  if (why.empty()) return false;
  WithdrawAll(port);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].view().done) continue;
    tasks_[i].End(why);
    changed_.insert(i);
  }
  return true;
}

void JobLoop::Advance(absl::Duration now, WorkPort& port) {
  if (phase_ == Phase::kSearch) {
    if (!EndSearch(now, port)) return;
    if (!spec_.workloads.empty()) {
      phase_ = Phase::kOver;
      return;
    }
    BeginFinals(now, port);
  }
  if (phase_ == Phase::kFinals) {
    if (!pending_.empty() && !ClosingIsLate(now, port)) return;
    if (!pending_.empty()) {
      warnings_.push_back(
          "time ran out for the finals: what is best is provisional, or the default where that is close");
      WithdrawAll(port);
    }
    closing_.Settle();
    for (size_t i = 0; i < tasks_.size(); ++i) changed_.insert(i);
    BeginModelCheck(now, port);
  }
  if (phase_ == Phase::kModelCheck) {
    if (!pending_.empty() && !ClosingIsLate(now, port)) return;
    if (!pending_.empty()) {
      warnings_.push_back("the model was not measured end to end: no answer in time");
      WithdrawAll(port);
    }
    phase_ = Phase::kOver;
  }
}

bool JobLoop::ClosingIsLate(absl::Duration now, WorkPort& port) {
  std::vector<int64_t> items;
  for (const auto& [item, pending] : pending_of_item_) items.push_back(item);
  closing_deadline_ = std::min(now, port.GrantedAt(items)) + options_.model_patience;
  return now >= closing_deadline_;
}

void JobLoop::BeginFinals(absl::Duration now, WorkPort& port) {
  phase_ = Phase::kFinals;
  Work work = NewWork(WorkKind::kFinals);
  work.items = closing_.Finalists();
  if (!work.items.empty()) {
    work.model = closing_.FinalsModel(kind_.target);
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
    verdict_ = absl::FailedPreconditionError(
        absl::StrCat("no candidate of any task could be measured; the last failure was ",
                     last_error_.empty() ? "none: there was not time enough to measure one" : last_error_));
    phase_ = Phase::kOver;
    return;
  }
  Work work = NewWork(WorkKind::kModel);
  work.model = closing_.CheckedModel(kind_.target);
  work.items.emplace_back();
  Submit(std::move(work), 0, now, port);
}

absl::Duration JobLoop::NextDeadline() const {
  switch (phase_) {
    case Phase::kSearch:
      return spec_.time_budget > absl::ZeroDuration() ? started_ + spec_.time_budget : absl::InfiniteDuration();
    case Phase::kFinals:
    case Phase::kModelCheck:
      return closing_deadline_;
    case Phase::kOver:
      break;
  }
  return absl::InfiniteDuration();
}

double JobLoop::ExpectedGainSeconds(absl::Duration now) const {
  return phase_ == Phase::kSearch ? limits_.ExpectedGainSeconds(search_.counts(pending_.empty()), now) : 0;
}

double JobLoop::EtaSeconds(absl::Duration now) const {
  return phase_ == Phase::kSearch ? limits_.EtaSeconds(search_.counts(pending_.empty()), now) : 0;
}

}  // namespace temper
