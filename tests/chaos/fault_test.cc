// Rows 25, 26 and 37 of the fault matrix: jobs cancelled in each phase, a disk that is full for a while, a fleet that
// comes back all at once.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/chaos/fleet_fixture.h"

namespace temper {
namespace {

using FaultTest = FleetTest;

// --- row 25 ---

constexpr absl::Duration kSyncAndFiveSeconds = absl::Seconds(15);

TEST_F(FaultTest, Row25AJobThatWaitsForADeviceIsCancelled) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const int64_t job = Submit(OperatorsJob(1, 20));
  ASSERT_TRUE(Client()->CancelJob(job).ok());
  EXPECT_EQ(AwaitEnd(job), "cancelled");
}

TEST_F(FaultTest, Row25AJobIsCancelledWhileItsWorkerHoldsALeaseOfEachKind) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  for (const auto kind : {v1::Lease::kBatch, v1::Lease::kFinals, v1::Lease::kModel}) {
    auto worker = Worker(absl::StrCat("w", static_cast<int>(kind)));
    worker->PauseAt(kind);
    const int64_t job = Submit(ModelJob(40));
    ASSERT_TRUE(Eventually([&] { return worker->holds_lease() && worker->lease_kind() == kind; })) << Situation();
    const absl::Time asked = absl::Now();
    ASSERT_TRUE(Client()->CancelJob(job).ok());
    EXPECT_EQ(AwaitEnd(job), "cancelled") << Situation();
    EXPECT_TRUE(Eventually([&] { return worker->was_cancelled(); })) << "kind " << kind;
    EXPECT_LT(absl::Now() - asked, kSyncAndFiveSeconds);
  }
}

// --- row 26 ---

class DiskTest : public FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    disk_ = Path("disk");
    std::filesystem::create_directory(disk_);
    if (mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "no file system of our own";
    mounted_ = true;
    options_.db = disk_ + "/records.db";
  }
  void TearDown() override {
    if (server_.running()) server_.KillAndWait();
    if (mounted_) umount2(disk_.c_str(), MNT_DETACH);
  }
  void Fill() const {
    const Descriptor file(open(Ballast().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (const std::string& piece : {std::string(4096, 'x'), std::string(1, 'x')}) {
      while (write(file.get(), piece.data(), piece.size()) > 0) {
      }
    }
  }
  void Free() const { std::filesystem::remove(Ballast()); }
  std::string Ballast() const { return disk_ + "/ballast"; }

  std::string disk_;
  bool mounted_ = false;
};

TEST_F(DiskTest, Row26AFullDiskAcknowledgesNothingAndOnceFreedTheJobGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto worker = Worker("w", absl::Milliseconds(5));
  const int64_t job = Submit(OperatorsJob(4, 60));
  ASSERT_TRUE(Eventually([&] { return ledger_->Size() > 0; })) << Situation();
  Fill();
  ASSERT_TRUE(Eventually([&] { return worker->refusals() > 3; })) << Situation();
  Free();
  EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  worker.reset();
  server_.KillAndWait();
  ExpectPromises();
}

TEST_F(DiskTest, Row26AFullDiskThatStaysFullEndsTheJobAndItsEndIsStoredOnceThereIsRoom) {
  options_.arguments = {"--hurry", "20"};
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto worker = Worker("w", absl::Milliseconds(5));
  const int64_t job = Submit(OperatorsJob(4, 60));
  ASSERT_TRUE(Eventually([&] { return ledger_->Size() > 0; })) << Situation();
  Fill();
  ASSERT_TRUE(Eventually([&] { return IsFinalJobState(Client()->ListJobs()->at(0).state()); })) << Situation();
  Free();
  EXPECT_EQ(AwaitEnd(job), "failed") << Situation();
  worker.reset();
  const auto stored = [&] {
    const auto store = OpenStore(options_.db, OpenMode::kReadOnly);
    return store.ok() && (*store)->GetJob(job)->state == "failed";
  };
  EXPECT_TRUE(Eventually(stored));
  server_.KillAndWait();
  ExpectPromises();
}

// --- row 37 ---

TEST_F(FaultTest, Row37AFleetThatLostItsServerIsBackWithin30Seconds) {
  options_.listen = "127.0.0.1:0";
  ASSERT_NO_FATAL_FAILURE(StartServer());
  std::vector<std::unique_ptr<FakeWorker>> fleet;
  for (int i = 0; i < (Soaking() ? 1000 : 100); ++i) fleet.push_back(Worker(absl::StrCat("w", i)));
  const auto all_registered = [&](int times) {
    return std::all_of(fleet.begin(), fleet.end(), [&](const auto& w) { return w->registrations() >= times; });
  };
  ASSERT_TRUE(Eventually([&] { return all_registered(1); }));
  server_.KillAndWait();
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const absl::Time back = absl::Now();
  EXPECT_TRUE(Eventually([&] { return all_registered(2); }));
  EXPECT_LT(absl::Now() - back, absl::Seconds(30));
  EXPECT_EQ(AwaitEnd(Submit(OperatorsJob(2, 60))), "done") << Situation();
}

}  // namespace
}  // namespace temper
