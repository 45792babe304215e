// A fleet that is left alone: workers of all roles on four device keys, jobs all the time, one fault after another. The
// soak's weekend is an hour; TEMPER_SOAK_MINUTES makes it shorter.
#include <csignal>
#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "client/admin_client.h"
#include "tests/chaos/fleet_fixture.h"

namespace temper {
namespace {

constexpr int kKeys = 4, kFakesAKey = 4, kReal = 4;
constexpr char kRealKey[] = "null-device";
constexpr int64_t kMostGrowth = 128 << 20;  // what is kept of a store that has grown

struct Figures {
  absl::Duration length = absl::Seconds(15);
  int jobs = 10, operators = 2, trials_each = 40;
  double hurry = 30;  // of the server's lease, session and so on
};

Figures FiguresOfThisRun() {
  if (!Soaking()) return {};
  int minutes = 60;
  if (const char* text = std::getenv("TEMPER_SOAK_MINUTES"); text != nullptr) (void)absl::SimpleAtoi(text, &minutes);
  return {.length = absl::Minutes(minutes), .jobs = 50, .operators = 6, .trials_each = 300, .hurry = 1};
}

class WeekendTest : public FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    options_.arguments = {"--hurry", absl::StrCat(figures_.hurry)};
    StartServer();
    for (size_t i = 0; i < fakes_.size(); ++i) Hire(i);
    for (size_t i = 0; i < real_.size(); ++i) HireReal(i);
  }
  void TearDown() override {
    over_ = true;
    if (submitting_.joinable()) submitting_.join();
  }

  static std::string KeyOf(size_t fake) { return absl::StrCat("device-", fake % kKeys); }

  // Fast ones, slow ones and very slow ones; another process than whoever had the place before.
  void Hire(size_t i) {
    constexpr int kTrialMs[] = {1, 5, 20, 100};
    fakes_[i].reset();
    fakes_[i] = std::make_unique<FakeWorker>(FakeWorkerOptions{.address = options_.listen,
                                                               .key = KeyOf(i),
                                                               .name = absl::StrCat("fake-", i),
                                                               .trial = absl::Milliseconds(kTrialMs[i / kKeys]),
                                                               .ledger = ledger_.get()});
  }
  void HireReal(size_t i) {
    const absl::Status started = real_[i].Start(options_.listen, kRealKey, Path(absl::StrCat("worker-", i)));
    EXPECT_TRUE(started.ok()) << started;
  }

  v1::SubmitJobRequest NextJob(int i) {
    v1::SubmitJobRequest job = OperatorsJob(figures_.operators, figures_.trials_each);
    const int key = i % (kKeys + 1);
    job.set_device_key(key == kKeys ? kRealKey : KeyOf(static_cast<size_t>(key)));
    job.set_priority(i % 3 - 1);
    return job;
  }
  // One after another over the whole time; some are cancelled again.
  void SubmitAll() {
    const auto client = Client(absl::Seconds(2));
    for (int i = 0; i < figures_.jobs && !over_;) {
      const auto job = client->SubmitJob(NextJob(i));
      if (job.ok()) ++i;  // else the server is away, and it is asked again
      Rest(figures_.length / (2 * figures_.jobs));
      if (job.ok() && i % 10 == 9) (void)client->CancelJob(*job);
      Rest(figures_.length / (2 * figures_.jobs));
    }
    submitted_all_ = true;
  }
  void Rest(absl::Duration time) {
    for (const absl::Time end = absl::Now() + time; absl::Now() < end && !over_;) {
      absl::SleepFor(std::min(absl::Milliseconds(50), end - absl::Now()));
    }
  }

  void RestartServer(int signal) {
    server_.Signal(signal);
    const int status = server_.Wait();
    if (signal == SIGTERM) {
      EXPECT_EQ(status, 0) << server_.Errors();
    }
    ASSERT_NO_FATAL_FAILURE(StartServer());
  }
  void FreezeServer(absl::Duration time) {
    server_.Signal(SIGSTOP);
    Rest(time);
    server_.Signal(SIGCONT);
  }
  // What somebody who looks after the fleet does now and then: workers that failed too often work again.
  void LookAfter() {
    const auto admin = AdminClient::Connect(options_.listen, {.call_timeout = absl::Seconds(2)});
    v1::DrainRequest request;
    request.set_undo(true);
    for (int key = 0; key <= kKeys; ++key) {
      request.set_key(key == kKeys ? kRealKey : KeyOf(static_cast<size_t>(key)));
      (void)(*admin)->Drain(request);  // the server may be away
    }
  }

  void OneFault(Rng& rng) {
    const size_t fake = rng.Below(fakes_.size()), real = rng.Below(real_.size());
    switch (rng.Below(9)) {
      case 0:
        return RestartServer(SIGKILL);
      case 1:
        return RestartServer(SIGTERM);
      case 2:
        return FreezeServer(absl::Seconds(1));
      case 3:
        return fakes_[fake]->Freeze(true);
      case 4:
        return fakes_[fake]->Freeze(false);
      case 5:
        return fakes_[fake]->Pause(true);
      case 6:
        return fakes_[fake]->Pause(false);
      case 7:
        return Hire(fake);
      case 8:
        real_[real].Signal(rng.Below(2) == 0 ? SIGKILL : SIGTERM);
        real_[real].Wait();
        return HireReal(real);
    }
  }

  const Figures figures_ = FiguresOfThisRun();
  std::array<std::unique_ptr<FakeWorker>, kKeys * kFakesAKey> fakes_;
  std::array<WorkerProcess, kReal> real_;
  std::atomic<bool> over_ = false, submitted_all_ = false;
  std::thread submitting_;
};

TEST_F(WeekendTest, AllJobsEndNothingIsLostAndMemoryStaysFlat) {
  Rng rng(40);
  submitting_ = std::thread([this] { SubmitAll(); });
  int faults = 0;
  int64_t peaks[2] = {};  // of the first half and of the second
  const absl::Time begin = absl::Now();
  while (!submitted_all_) {
    Rest(figures_.length / 60);
    ASSERT_NO_FATAL_FAILURE(OneFault(rng));
    if (++faults % 8 == 0) LookAfter();
    int64_t& peak = peaks[absl::Now() - begin < figures_.length / 2 ? 0 : 1];
    peak = std::max(peak, server_.MemoryBytes("VmRSS"));
  }
  for (const auto& fake : fakes_) {
    fake->Freeze(false);
    fake->Pause(false);
  }
  LookAfter();
  const auto client = Client();
  EXPECT_TRUE(Eventually(
      [&] {
        const auto jobs = client->ListJobs();
        return jobs.ok() &&
               std::ranges::all_of(*jobs, [](const v1::JobSummary& job) { return IsFinalJobState(job.state()); });
      },
      std::max(kPatience, figures_.length / 4)))
      << Situation();
  int done = 0;
  const auto jobs = client->ListJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  for (const v1::JobSummary& job : *jobs) {
    if (job.state() == "done") ++done;
    if (job.state() == "failed")
      std::fprintf(stderr, "job %d failed: %s\n", static_cast<int>(job.job()), job.reason().c_str());
  }
  std::fprintf(stderr, "%d of %d jobs done, %d faults, %d results acknowledged, %d measured again, RSS %d and %d MiB\n",
               done, figures_.jobs, faults, static_cast<int>(ledger_->Size()), ledger_->measured_again(),
               static_cast<int>(peaks[0] >> 20), static_cast<int>(peaks[1] >> 20));
  EXPECT_GE(done, figures_.jobs * 3 / 4);
  EXPECT_LT(peaks[1], peaks[0] + kMostGrowth);
  for (auto& fake : fakes_) fake.reset();
  for (WorkerProcess& worker : real_) {
    worker.Signal(SIGTERM);
    worker.Wait();
  }
  server_.Signal(SIGTERM);
  EXPECT_EQ(server_.Wait(), 0);
  ExpectPromises(true);
}

}  // namespace
}  // namespace temper
