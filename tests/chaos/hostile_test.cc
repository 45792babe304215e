// Strangers and a worker say nonsense in every call of every service, while an honest worker serves an honest job.
#include "tests/chaos/hostile_client.h"

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include <google/protobuf/stubs/logging.h>

#include "absl/strings/str_cat.h"
#include "tests/chaos/fleet_fixture.h"

namespace temper {
namespace {

constexpr int64_t kMostBytes = 512 << 20;

class HostileTest : public FleetTest {};

// protobuf says on stderr that a text is no UTF-8; here that is meant.
const auto kQuiet = google::protobuf::SetLogHandler(nullptr);

TEST_F(HostileTest, NonsenseInEveryCallHarmsNobody) {
  const absl::Duration length = Soaking() ? absl::Minutes(10) : absl::Seconds(5);
  StartServer();
  const std::unique_ptr<FakeWorker> honest = Worker("honest");
  // Of somebody with a name: what nobody owns, anybody may cancel.
  const auto owner = TunerClient::Connect(server_.address(), {.call_timeout = kPatience, .identity = "honest"});
  ASSERT_TRUE(owner.ok()) << owner.status();
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      HostileClient hostile(server_.address(), seed);
      if (seed % 2 == 1) hostile.Register("hostile-device");
      while (!over) hostile.Call();
    });
  }
  // Honest jobs, one after another.
  for (const absl::Time end = absl::Now() + length; absl::Now() < end;) {
    const auto job = (*owner)->SubmitJob(OperatorsJob(4, 100));
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) break;
    v1::JobEvent last;
    const auto keep = [&](const v1::JobEvent& event) {
      last = event;
      return true;
    };
    const absl::Status watched = (*owner)->WatchJob(*job, keep, kPatience);
    EXPECT_TRUE(watched.ok()) << watched << "\n" << server_.Errors();
    if (!watched.ok()) break;
    EXPECT_EQ(last.state(), "done") << last.reason();
    EXPECT_GT(last.trials(), 0) << Situation() << server_.Errors();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();

  EXPECT_TRUE(IsAlive(server_.pid())) << server_.Errors();
  EXPECT_GT(honest->acknowledged(), 0);
  const int64_t peak = server_.MemoryBytes("VmHWM");
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, kMostBytes);
  RecordProperty("peak_mib", static_cast<int>(peak >> 20));
  server_.Signal(SIGTERM);
  EXPECT_EQ(server_.Wait(), 0) << server_.Errors();
}

}  // namespace
}  // namespace temper
