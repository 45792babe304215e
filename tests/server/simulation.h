// A job loop driven by a worker that measures by formula.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/store.h"
#include "tests/server/toys.h"
#include "tuner_server/tuning/job_loop.h"

namespace temper {

using Phase = JobLoop::Phase;

inline constexpr char kKey[] = "toy-device";

inline ItemResult ModelAnswer(const Work& work, std::vector<double> untuned_s, std::vector<double> tuned_s) {
  return {
      .item = work.items[0].id,
      .model = ModelResult{.outcome = Outcome::kOk, .untuned_s = std::move(untuned_s), .tuned_s = std::move(tuned_s)}};
}

// A worker that measures by formula, and a store that keeps what it says.
class Simulation : public WorkPort {
 public:
  explicit Simulation(std::vector<Task> tasks) : tasks_(std::move(tasks)), store_(*OpenStore("memory:")) {
    for (const Task& task : tasks_) workloads_[Text(task.workload)] = task.workload;
    spec_.id = 1;
    spec_.device_key = kKey;
    spec_.tuner = "random";
    spec_.graph_json = std::make_shared<const std::string>("{}");
    options_.make_tuner = FindTuner("random")->make;
  }

  std::vector<int64_t> Submit(Work work) override {
    std::vector<int64_t> ids;
    for (WorkItem& item : work.items) ids.push_back(item.id = next_id_++);
    queue_.push_back(std::move(work));
    granted_at_ = clock_.Monotonic();
    return ids;
  }
  void Withdraw(const std::vector<int64_t>& items) override {
    withdrawn_ += static_cast<int>(items.size());
    queue_.clear();
  }

  absl::Duration GrantedAt(const std::vector<int64_t>&) override { return granted_at_; }

  // Starts a job; what earlier jobs of this simulation left in the store is known to it.
  void Begin() {
    auto loop = JobLoop::Create(spec_, {kKey, target_, "c1"}, tasks_, options_, clock_.Monotonic());
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    ASSERT_TRUE(loop_->Warm({}, others_).ok());
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const KnownRecords known = [&](const auto& visit) {
        EXPECT_TRUE(store_->Scan({.workload = Text(tasks_[i].workload)}, visit).ok());
      };
      ASSERT_TRUE(loop_->PrepareTask(i, known).ok());
    }
  }

  // Plays the job to its end. False: it did not come to one.
  bool Run(int slots = 1, bool ahead = false) {
    for (int step = 0; step < 10000; ++step) {
      loop_->Advance(clock_.Monotonic(), *this);
      if (loop_->phase() == Phase::kOver) return true;
      if (loop_->NeedsSearch(slots, ahead)) {
        const absl::Status searched = loop_->Search(clock_.Monotonic(), *this, slots);
        if (!searched.ok()) return false;
      } else if (!queue_.empty()) {
        MeasureNext();
      } else {
        clock_.Advance(loop_->NextDeadline() - clock_.Monotonic());  // nobody answers
      }
    }
    return false;
  }

  // Plays until the phase begins; its work waits in the queue then.
  bool RunUntil(Phase phase) {
    for (int step = 0; step < 10000 && loop_->phase() != phase; ++step) {
      if (loop_->NeedsSearch(1, false) && !loop_->Search(clock_.Monotonic(), *this).ok()) return false;
      if (!queue_.empty()) MeasureNext();
      loop_->Advance(clock_.Monotonic(), *this);
    }
    return loop_->phase() == phase;
  }

  void MeasureNext() {
    const Work work = queue_.front();
    queue_.pop_front();
    works_.push_back(work);
    for (const WorkItem& item : work.items) {
      clock_.Advance(per_item_);
      const ItemResult result = work.kind == WorkKind::kModel ? model_(work) : Measure(work, item);
      if (work.kind != WorkKind::kModel) Keep(work, item, result);
      loop_->OnResult(result, clock_.Monotonic());
    }
  }

  ItemResult Measure(const Work& work, const WorkItem& item) {
    ItemResult result{.item = item.id, .attempt = 1, .trial = {.outcome = outcome_(item)}};
    TrialResult& trial = result.trial;
    double cost = cost_(workloads_.at(WorkloadOf(work, item)), item.config);
    if (work.kind == WorkKind::kFinals) cost *= in_the_model_;
    const size_t samples = work.kind == WorkKind::kBatch ? samples_ : 3;
    if (trial.outcome == Outcome::kOk) trial.costs_s.assign(samples, cost);
    if (trial.outcome == Outcome::kRacedOut) trial.costs_s = {cost};
    if (work.kind == WorkKind::kBatch) trial.drift = drift_(item);
    if (trial.drift > 1)
      std::for_each(trial.costs_s.begin(), trial.costs_s.end(), [&](double& s) { s *= trial.drift; });
    return result;
  }

  static std::string WorkloadOf(const Work& work, const WorkItem& item) {
    return work.kind == WorkKind::kFinals ? item.workload : work.workload;
  }

  void Keep(const Work& work, const WorkItem& item, const ItemResult& result) {
    Record record;
    record.job = work.job;
    record.workload = WorkloadOf(work, item);
    record.target = work.target;
    record.device_key = kKey;
    record.template_name = item.template_name;
    record.template_version = item.template_version;
    record.config = item.config;
    record.purpose = work.kind != WorkKind::kFinals ? "search" : work.revalidate ? "revalidate" : "final";
    if (MeasuredInNoise(work.kind, item, result.trial)) record.purpose = "canary";
    record.outcome = result.trial.outcome;
    record.costs_s = result.trial.costs_s;
    ASSERT_TRUE(store_->Append(std::vector<Record>{record}).ok());
    if (work.kind == WorkKind::kBatch) measured_.push_back(work.workload + item.template_name + item.config);
  }

  std::vector<Record> Records(const RecordFilter& filter = {}) const {
    std::vector<Record> records;
    EXPECT_TRUE(store_->Scan(filter, [&](const Record& r) { records.push_back(r); }).ok());
    return records;
  }
  // As if nothing else had ever been known or measured.
  void KnowOnly(const std::vector<Record>& records) {
    store_ = *OpenStore("memory:");
    EXPECT_TRUE(store_->Append(records).ok());
    works_.clear();
    measured_.clear();
  }

  int Measured(const std::string& workload) const {
    return static_cast<int>(std::count_if(measured_.begin(), measured_.end(),
                                          [&](const std::string& key) { return key.starts_with(workload); }));
  }
  // The configs in the finals, by workload.
  std::map<std::string, std::vector<std::string>> Finalists() const {
    std::map<std::string, std::vector<std::string>> configs;
    for (const Work& work : WorksOf(WorkKind::kFinals)) {
      for (const WorkItem& item : work.items) configs[item.workload].push_back(item.config);
    }
    return configs;
  }
  std::vector<Work> WorksOf(WorkKind kind) const {
    std::vector<Work> works;
    for (const Work& work : works_) {
      if (work.kind == kind) works.push_back(work);
    }
    return works;
  }
  bool AllDistinct() const { return std::set(measured_.begin(), measured_.end()).size() == measured_.size(); }

  std::vector<Task> tasks_;
  std::map<std::string, Workload> workloads_;
  JobSpec spec_;
  std::string target_ = ToyTarget();
  JobLoopOptions options_;
  FakeClock clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<JobLoop> loop_;
  absl::Duration per_item_ = absl::Milliseconds(100);
  std::function<double(const Workload&, const std::string&)> cost_ = ToyCost;
  std::function<Outcome(const WorkItem&)> outcome_ = [](const WorkItem&) { return Outcome::kOk; };
  size_t samples_ = 3;       // of a trial
  double in_the_model_ = 1;  // times of the finals are so many times as long
  std::function<double(const WorkItem&)> drift_ = [](const WorkItem&) { return 1.0; };
  std::function<ItemResult(const Work&)> model_ = [](const Work& work) {
    return ModelAnswer(work, {2, 2, 2}, {1, 1, 1});
  };
  std::deque<Work> queue_;
  std::vector<Work> works_;
  std::vector<Record> others_;  // what is known of other tasks
  std::vector<std::string> measured_;
  int64_t next_id_ = 1;
  int withdrawn_ = 0;
  absl::Duration granted_at_ = absl::InfiniteDuration();
};

inline std::vector<Task> ThreeTasks() {
  return {{ToyWorkload("a", 400), 1}, {ToyWorkload("b", 400, 5e-3), 2}, {ToyWorkload("c", 20, 1e-4), 1}};
}

}  // namespace temper
