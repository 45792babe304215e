// Rows 25, 26, 27, 34 and 37 of the fault matrix: jobs cancelled in each phase, a disk that is full for a while, one
// that breaks, a watcher that does not read, a fleet that comes back all at once.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/chaos/fleet_fixture.h"
#include "tests/chaos/raw_http2.h"

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
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(server_.Errors(), "can not be stored yet"); })) << Situation();
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

// --- row 27 ---

TEST_F(FaultTest, Row27ADiskThatFailsEndsTheServerWithALineAndTheNextGoesOn) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's library has to be loaded first";
#endif
  const std::string sign = Path("the-disk-is-broken");
  ASSERT_NO_FATAL_FAILURE(StartServer({"LD_PRELOAD=" TEMPER_FAILING_SYNC, "TEMPER_TEST_FAILING_SYNC=" + sign}));
  auto worker = Worker("w", absl::Milliseconds(5));
  const int64_t job = Submit(OperatorsJob(4, 60));
  ASSERT_TRUE(Eventually([&] { return ledger_->Size() > 0; })) << Situation();
  std::ofstream(sign) << "\n";
  const int status = server_.Wait();
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(absl::StrContains(server_.Errors(), options_.db)) << server_.Errors();
  std::filesystem::remove(sign);
  ASSERT_NO_FATAL_FAILURE(StartServer());
  EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  worker.reset();
  server_.KillAndWait();
  ExpectPromises();
}

// --- row 34 ---

// Whether the peer resets stream 1 or closes. Answers what has to be answered, so that only this is why it may.
bool ResetsTheStream(int socket) {
  constexpr size_t kHead = 9;
  std::string bytes;
  char buffer[4096];
  for (pollfd waits{socket, POLLIN, 0}; poll(&waits, 1, 60'000) == 1;) {
    const ssize_t n = recv(socket, buffer, sizeof(buffer), 0);
    if (n <= 0) return false;
    bytes.append(buffer, static_cast<size_t>(n));
    while (bytes.size() >= kHead) {
      const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
      const size_t size = kHead + (size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2));
      if (bytes.size() < size) break;
      const auto type = static_cast<Http2Frame>(byte(3));
      const bool asks = (byte(4) & 1) == 0;
      if (type == Http2Frame::kReset) return true;
      if (type == Http2Frame::kSettings && asks) SendAll(socket, Frame(type, 1, 0, ""));
      if (type == Http2Frame::kPing && asks) SendAll(socket, Frame(type, 1, 0, bytes.substr(kHead, size - kHead)));
      bytes.erase(0, size);
    }
  }
  return false;
}

TEST_F(FaultTest, Row34AWatcherThatDoesNotReadIsCutOff) {
  options_.listen = "127.0.0.1:0";
  options_.arguments = {"--hurry", Soaking() ? "1" : "20"};
  ASSERT_NO_FATAL_FAILURE(StartServer());
  ASSERT_EQ(Submit(OperatorsJob(1, 20)), 1);  // it waits for a device meanwhile
  const Descriptor watcher = ConnectTcp(options_.listen);
  const std::string no_window("\x00\x04\x00\x00\x00\x00", 6);  // SETTINGS_INITIAL_WINDOW_SIZE 0
  const std::string job_one("\x00\x00\x00\x00\x02\x08\x01", 7);
  ASSERT_TRUE(SendAll(watcher.get(),
                      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(Http2Frame::kSettings, 0, 0, no_window) +
                          Frame(Http2Frame::kHeaders, 4, 1, CallHeaders("/temper.v1.TuningService/WatchJob", true)) +
                          Frame(Http2Frame::kData, 1, 1, job_one)));
  EXPECT_TRUE(ResetsTheStream(watcher.get()));
  EXPECT_TRUE(Client()->ListJobs().ok());
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
