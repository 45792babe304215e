// A job's steps without their thread.
#include "tuner_server/service/job_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <new>

#include "tests/base/captured_log.h"
#include "tests/server/fallible_store.h"
#include "tests/server/toys.h"

namespace temper {
namespace {

// A server without workers.
class LonelyHost : public JobHost {
 public:
  const Clock& clock() const override { return clock_; }
  Store& store() override { return store_; }
  std::vector<int64_t> Submit(Work) override { return {}; }
  void Withdraw(const std::vector<int64_t>&) override {}
  absl::Duration GrantedAt(const std::vector<int64_t>&) override { return absl::InfiniteDuration(); }
  std::optional<WorkerInfo> FindWorker(const DeviceKind&) override { return std::nullopt; }
  int Slots(const DeviceKind&) override { return 0; }
  std::string WhyNoWorker(const DeviceKind&) override { return "nobody is there"; }
  std::vector<WorkItem> Unsettled(int64_t) override { return {}; }
  bool TryBeginJob(int64_t) override { return has_place_; }
  void LeavePlace(int64_t) override { ++left_; }
  bool TryBeginSearch(int64_t) override { return true; }
  void EndSearch(int64_t) override {}
  void JobOver(int64_t) override {}

  FakeClock clock_;
  FallibleStore store_;
  bool has_place_ = true;
  int left_ = 0;
};

// One whose workers are of the kinds that are there.
class MixedHost : public LonelyHost {
 public:
  std::optional<WorkerInfo> FindWorker(const DeviceKind& kind) override {
    for (const WorkerInfo& worker : workers_) {
      const bool any = kind.target.empty() && kind.codegen_id.empty();
      if (any || (kind.target == worker.target && kind.codegen_id == worker.codegen_id)) return worker;
    }
    return std::nullopt;
  }
  int Slots(const DeviceKind&) override { return 1; }

  std::vector<WorkerInfo> workers_;
};

WorkerInfo Haswell() {
  WorkerInfo worker;
  worker.device_key = "k";
  worker.target = Text(*ParseTarget("llvm:haswell"));
  return worker;
}

JobPlan Plan(LonelyHost& host) {
  JobSpec spec;
  spec.workloads = {Text(ToyWorkload("a", 100))};
  spec.device_key = "k";
  spec.tuner = "random";
  JobPlan plan = *PlanJob(spec, {}, host.clock().Wall());
  plan.spec.id = plan.row.id = *host.store().CreateJob(plan.row);
  return plan;
}

TEST(PlanJob, CountsAndLimitsTheCallsOfWorkloads) {
  constexpr size_t kCalls = 1000;
  std::string text = "(f32[1]) relu(0) -> f32[1]";
  for (size_t i = 1; i < kCalls; ++i) absl::StrAppend(&text, "; relu(", i, ") -> f32[1]");
  JobSpec spec{.workloads = {absl::StrCat(text, "; anchor=0")}};
  spec.tuner = "random";
  EXPECT_GT(RequestBytes(spec), kCalls * sizeof(Workload::Call)) << "and not its text alone";
  EXPECT_TRUE(PlanJob(spec, {}, absl::UnixEpoch()).ok());
  spec.workloads.resize(66, spec.workloads[0]);
  const auto plan = PlanJob(spec, {}, absl::UnixEpoch());
  EXPECT_EQ(plan.status().message(), "the workloads have more than 65536 operator calls together");
}

// Results are told by their workload, so two tasks of one could not be told apart after a restart.
TEST(PlanJob, AWorkloadThatIsNamedTwiceIsOneTaskThatCountsTwice) {
  const std::string twice = Text(ToyWorkload("a", 100)), once = Text(ToyWorkload("b", 100));
  JobSpec spec{.workloads = {twice, once, twice}};
  spec.tuner = "random";
  const auto plan = PlanJob(spec, {}, absl::UnixEpoch());
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->tasks.size(), 2u);
  EXPECT_EQ(Text(plan->tasks[0].workload), twice);
  EXPECT_EQ(plan->tasks[0].count, 2);
  EXPECT_EQ(Text(plan->tasks[1].workload), once);
  EXPECT_EQ(plan->tasks[1].count, 1);
}

TEST(JobSteps, AnEndThatCanNotBeStoredIsStoredLater) {
  LonelyHost host;
  JobSteps steps(host, Plan(host));
  host.store_.full_for_jobs = true;
  const CapturedLog log(LogFormat::kText);
  absl::Duration due = host.clock_.Monotonic();
  for (int i = 0; i < 20; ++i) {
    due = steps.Step({}, host.clock_.Monotonic());
    ASSERT_FALSE(steps.over());
    ASSERT_NE(due, absl::InfiniteDuration());
    host.clock_.Advance(due - host.clock_.Monotonic());
  }
  EXPECT_EQ(steps.view().state, "queued") << "told only when it is stored";
  const std::string lines = log.text();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << "a full disk is not filled with lines: " << lines;
  host.store_.full_for_jobs = false;
  steps.Step({}, host.clock_.Monotonic());
  EXPECT_TRUE(steps.over());
  EXPECT_EQ(steps.view().state, "failed");
  EXPECT_EQ(host.store_.GetJob(steps.spec().id)->state, "failed");
}

// Results of another code generator are not compared with those that the job has.
TEST(JobSteps, AJobThatGoesOnDoesSoWithItsKindOfWorker) {
  const auto worker = [](const std::string& codegen_id) {
    WorkerInfo info;
    info.device_key = "k";
    info.target = Text(*ParseTarget("llvm:haswell"));
    info.codegen_id = codegen_id;
    return info;
  };
  MixedHost host;
  JobPlan plan = Plan(host);
  plan.spec.earlier_time = absl::Seconds(1);
  plan.row.target = Text(*ParseTarget("llvm:haswell"));
  plan.row.codegen_id = "its own";
  host.workers_ = {worker("another"), worker("its own")};
  JobSteps with_its_own(host, plan);
  with_its_own.Step({}, host.clock_.Monotonic());
  EXPECT_EQ(with_its_own.view().state, "running");
  EXPECT_EQ(host.store_.GetJob(plan.row.id)->codegen_id, "its own");

  host.workers_ = {worker("another")};
  JobSteps with_another(host, plan);
  const absl::Duration due = with_another.Step({}, host.clock_.Monotonic());
  EXPECT_EQ(with_another.view().state, "waiting_for_device") << "its own may come back";
  host.clock_.Advance(due - host.clock_.Monotonic());
  with_another.Step({}, host.clock_.Monotonic());
  EXPECT_EQ(with_another.view().state, "running");
  EXPECT_EQ(host.store_.GetJob(plan.row.id)->codegen_id, "another");
}

TEST(JobSteps, AJobWhoseDeviceIsGoneLeavesItsPlaceToOthers) {
  MixedHost host;
  const WorkerInfo worker = Haswell();
  host.workers_ = {worker};
  JobPlan plan = Plan(host);
  plan.spec.wait_for_device = absl::Hours(1);
  JobSteps steps(host, plan);
  const auto step = [&] { return steps.Step({}, host.clock_.Monotonic()); };
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(steps.view().state, "running");
  host.workers_.clear();
  step();  // it may have been about to search
  const absl::Duration restarted = step();
  EXPECT_EQ(steps.view().state, "waiting_for_device");
  EXPECT_EQ(host.left_, 0) << "the worker may only be starting again";
  host.clock_.Advance(restarted - host.clock_.Monotonic());
  step();
  EXPECT_EQ(host.left_, 1);
  host.workers_ = {worker};
  host.has_place_ = false;
  step();
  EXPECT_EQ(steps.view().state, "queued");
  host.has_place_ = true;
  step();
  EXPECT_EQ(steps.view().state, "running");
}

// Anybody who may submit may put, and a few megabytes of it can be very many records of one long workload.
TEST(JobSteps, OfWhatWasPutItReadsNoMoreThanItCanTry) {
  MixedHost host;
  host.workers_ = {Haswell()};
  int of_task = 0;
  host.store_.before_scan = [&](const RecordFilter& filter) {
    of_task += filter.workload.empty() ? 0 : 1;
    EXPECT_TRUE(filter.limit > 0 || filter.put == false) << "of workload '" << filter.workload << "'";
  };
  JobSteps steps(host, Plan(host));
  for (int i = 0; i < 5; ++i) steps.Step({}, host.clock_.Monotonic());
  EXPECT_EQ(steps.view().state, "running");
  EXPECT_GT(of_task, 0);
}

TEST(JobSteps, WhatItHasNoMemoryForFailsThatJobAlone) {
  MixedHost host;
  host.workers_ = {Haswell()};
  host.store_.before_scan = [](const RecordFilter&) { throw std::bad_alloc(); };
  JobSteps steps(host, Plan(host));
  for (int i = 0; i < 5 && !steps.over(); ++i) steps.Step({}, host.clock_.Monotonic());
  EXPECT_TRUE(steps.over());
  const JobRow row = *host.store_.GetJob(steps.spec().id);
  EXPECT_EQ(row.state, "failed");
  EXPECT_EQ(row.reason, "the server has not enough memory for this job");
}

TEST(JobSteps, AServerThatEndsDoesNotWaitForItsDisk) {
  LonelyHost host;
  JobSteps steps(host, Plan(host));
  host.store_.full_for_jobs = true;
  JobInput input;
  input.Stop("abandoned", "the server was shut down");
  steps.Step(input, host.clock_.Monotonic());
  EXPECT_TRUE(steps.over());
}

}  // namespace
}  // namespace temper
