// Rows 4, 5, 6 and 40 of the fault matrix: processes that are killed, frozen or showered with signals. Leases are short
// by --hurry, so that what takes minutes in earnest takes seconds here; TEMPER_SOAK takes the minutes.
#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/chaos/fleet_fixture.h"

namespace temper {
namespace {

class FreezeTest : public FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    if (!Soaking()) options_.arguments = {"--hurry", absl::StrCat(kHurry)};
    ASSERT_NO_FATAL_FAILURE(StartServer());
  }

  static constexpr int kHurry = 20;
  // Longer than a lease.
  static absl::Duration Freeze() { return absl::Seconds(90) / (Soaking() ? 1 : kHurry); }

  // For real workers, which are fast.
  v1::SubmitJobRequest RealJob() { return OperatorsJob(2, 400); }
  // Some worker is in this state; the empty text: there is a worker.
  bool SomeDeviceIs(const std::string& state) {
    const auto devices = Client()->ListDevices();
    return devices.ok() && std::any_of(devices->begin(), devices->end(), [&](const v1::Device& device) {
             return state.empty() || device.state() == state;
           });
  }
  int64_t Trials(int64_t job) {
    const auto jobs = Client()->ListJobs();
    for (const v1::JobSummary& row : *jobs) {
      if (row.job() == job) return row.trials();
    }
    return 0;
  }
};

TEST_F(FreezeTest, Row4AWorkerIsKilledItsWorkIsDoneByAnotherAndNoChildStays) {
  WorkerProcess killed;
  ASSERT_TRUE(killed.Start(options_.listen, kKey, Path("killed")).ok());
  const int64_t job = Submit(RealJob());
  ASSERT_TRUE(Eventually([&] { return Trials(job) > 0; })) << Situation();
  const std::vector<pid_t> children = killed.Children();
  ASSERT_FALSE(children.empty());
  killed.KillAndWait();
  for (const pid_t child : children) EXPECT_TRUE(Eventually([&] { return !IsAlive(child); }));
  WorkerProcess successor;
  ASSERT_TRUE(successor.Start(options_.listen, kKey, Path("successor")).ok());
  EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  server_.Signal(SIGTERM);
  server_.Wait();
  ExpectPromises();
}

TEST_F(FreezeTest, Row5AFrozenWorkersLeaseIsReassignedAndItsLateResultsAreHarmless) {
  auto frozen = Worker("frozen");
  frozen->Pause(true);  // as if stopped while it measures
  frozen->Freeze(true);
  const int64_t job = Submit(OperatorsJob(2, 40));
  ASSERT_TRUE(Eventually([&] { return frozen->holds_lease(); })) << Situation();
  auto successor = Worker("successor");
  EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  EXPECT_GT(ledger_->highest_attempt(), 1);
  frozen->Freeze(false);
  frozen->Pause(false);
  EXPECT_TRUE(Eventually([&] { return !frozen->holds_lease(); }));
  // And it works again.
  successor.reset();
  EXPECT_EQ(AwaitEnd(Submit(OperatorsJob(1, 40))), "done") << Situation();
  server_.Signal(SIGTERM);
  server_.Wait();
  ExpectPromises();
}

TEST_F(FreezeTest, Row5AWorkerProcessIsStoppedAndGoesOn) {
  WorkerProcess stopped, successor;
  ASSERT_TRUE(stopped.Start(options_.listen, kKey, Path("stopped")).ok());
  const int64_t job = Submit(RealJob());
  ASSERT_TRUE(Eventually([&] { return Trials(job) > 0; })) << Situation();
  stopped.Signal(SIGSTOP);
  ASSERT_TRUE(successor.Start(options_.listen, kKey, Path("successor")).ok());
  EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  EXPECT_TRUE(Eventually([&] { return SomeDeviceIs("lost"); }, Freeze() + kPatience)) << Situation();
  successor.KillAndWait();
  stopped.Signal(SIGCONT);
  EXPECT_EQ(AwaitEnd(Submit(RealJob())), "done") << Situation();
  server_.Signal(SIGTERM);
  server_.Wait();
  ExpectPromises();
}

TEST_F(FreezeTest, Row6AServerThatStoodStillTakesNobodysLeases) {
  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(Worker(absl::StrCat("w", i)));
  for (const auto& worker : workers) worker->Pause(true);
  const int64_t job = Submit(OperatorsJob(4, 60));
  const auto all_hold = [&] {
    return std::all_of(workers.begin(), workers.end(), [](const auto& worker) { return worker->holds_lease(); });
  };
  ASSERT_TRUE(Eventually(all_hold)) << Situation();
  server_.Signal(SIGSTOP);
  absl::SleepFor(Freeze());  // the fault itself
  server_.Signal(SIGCONT);
  for (const auto& worker : workers) worker->Pause(false);
  EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  EXPECT_EQ(ledger_->highest_attempt(), 1) << server_.Errors();  // nothing was queued again
  server_.Signal(SIGTERM);
  server_.Wait();
  ExpectPromises();
}

TEST_F(FreezeTest, Row40AStormOfSignalsEndsTheServerOnceAndInOrder) {
  auto worker = Worker("w");
  const int64_t job = Submit(OperatorsJob(4, 60));
  ASSERT_TRUE(Eventually([&] { return ledger_->Size() > 0; })) << Situation();
  for (int i = 0; i < 1000; ++i) server_.Signal(i % 2 == 0 ? SIGTERM : SIGINT);
  EXPECT_EQ(server_.Wait(), 0);
  // An abort is a crash: the next server goes on with what is there.
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const int64_t second = Submit(OperatorsJob(4, 60));
  const int64_t before = ledger_->Size();
  ASSERT_TRUE(Eventually([&] { return ledger_->Size() > before; })) << Situation();
  server_.Signal(SIGABRT);
  EXPECT_TRUE(WIFSIGNALED(server_.Wait()));
  ASSERT_NO_FATAL_FAILURE(StartServer());
  for (const int64_t left : {job, second}) EXPECT_EQ(AwaitEnd(left), "done") << Situation();
  EXPECT_EQ(AwaitEnd(Submit(OperatorsJob(1, 20))), "done");
  worker.reset();
  server_.Signal(SIGTERM);
  EXPECT_EQ(server_.Wait(), 0);
  ExpectPromises();
}

TEST_F(FreezeTest, Row40AStormOfSignalsEndsAWorkerAndItsChild) {
  WorkerProcess worker;
  ASSERT_TRUE(worker.Start(options_.listen, kKey, Path("worker")).ok());
  const int64_t job = Submit(RealJob());
  ASSERT_TRUE(Eventually([&] { return Trials(job) > 0; })) << Situation();
  const std::vector<pid_t> children = worker.Children();
  for (int i = 0; i < 1000; ++i) worker.Signal(i % 2 == 0 ? SIGTERM : SIGINT);
  EXPECT_EQ(worker.Wait(), 0);
  for (const pid_t child : children) EXPECT_TRUE(Eventually([&] { return !IsAlive(child); }));
}

}  // namespace
}  // namespace temper
