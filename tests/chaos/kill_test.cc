// Rows 1 and 2 of the fault matrix: the server is killed under load, at random and at the places where it hurts.
#include <array>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "tests/chaos/fleet_fixture.h"

namespace temper {
namespace {

// Where it is killed; the first stands for any moment.
constexpr std::array<const char*, 4> kPlaces = {"", "before_commit", "after_commit", "before_ack"};

class KillTest : public FleetTest {
 protected:
  // Keeps the server busy: as soon as fewer than two jobs run, there is one more.
  void Load() {
    const auto client = Client(absl::Seconds(2));
    while (!loaded_) {
      const auto jobs = client->ListJobs();
      if (jobs.ok()) {
        const auto live = std::count_if(jobs->begin(), jobs->end(),
                                        [](const v1::JobSummary& job) { return !IsFinalJobState(job.state()); });
        if (live < 2) (void)client->SubmitJob(OperatorsJob(3, 60));
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  void EndLoad() {
    loaded_ = true;
    if (load_.joinable()) load_.join();
  }
  void TearDown() override { EndLoad(); }

  std::atomic<bool> loaded_ = false;
  std::thread load_;
};

TEST_F(KillTest, NothingAcknowledgedIsLostAndNoExecutionCountsTwice) {
  const int kills = Soaking() ? 200 : 20;
  Rng rng(20);
  std::vector<std::unique_ptr<FakeWorker>> workers;
  int64_t counted = 0;
  for (int i = 0; i <= kills; ++i) {
    const std::string place = kPlaces[static_cast<size_t>(i) % kPlaces.size()];
    std::vector<std::string> environment;
    if (!place.empty() && i < kills) {
      environment.push_back(absl::StrCat("TEMPER_FAILPOINT=", place, ":", 1 + rng.Below(30)));
    }
    ASSERT_NO_FATAL_FAILURE(StartServer(environment));
    if (i == 0) {
      for (int w = 0; w < 4; ++w) workers.push_back(Worker(absl::StrCat("w", w)));
      load_ = std::thread([this] { Load(); });
    }
    if (i == kills) break;
    if (place.empty()) {
      const int64_t until = ledger_->Size() + 1 + static_cast<int64_t>(rng.Below(300));
      EXPECT_TRUE(Eventually([&] { return ledger_->Size() >= until; }));
      server_.KillAndWait();
    } else {
      ASSERT_TRUE(server_.EndsWithin(kPatience)) << place << "\n" << Situation();
    }
    counted = ledger_->Size();
  }
  EndLoad();
  // All jobs end by their own limits, whatever servers they went through.
  const auto client = Client();
  EXPECT_TRUE(Eventually([&] {
    const auto jobs = client->ListJobs();
    return jobs.ok() && std::ranges::all_of(*jobs, [](const v1::JobSummary& job) { return job.state() == "done"; });
  })) << Situation();
  workers.clear();
  server_.Signal(SIGTERM);
  EXPECT_EQ(server_.Wait(), 0);
  EXPECT_GT(counted, kills);
  EXPECT_EQ(ledger_->measured_again(), 0);
  ExpectPromises();
}

}  // namespace
}  // namespace temper
