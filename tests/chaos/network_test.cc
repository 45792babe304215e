// Rows 7 to 10 of the fault matrix: what networks do, in a namespace of the test's own with a cable to it.
#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/chaos/fleet_fixture.h"
#include "tests/chaos/network.h"
#include "tests/chaos/relay.h"

namespace temper {
namespace {

class NetworkTest : public FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    absl::StatusOr<Network> network = Network::Make();
    if (!network.ok()) GTEST_SKIP() << "no network of our own: " << network.status();
    network_ = *std::move(network);
    options_.network_namespace = network_.name();
    options_.listen = network_.address() + ":0";
  }
  void Start(int hurry) {
    hurry_ = Soaking() ? 1 : hurry;
    options_.arguments = {"--insecure", "--hurry", absl::StrCat(hurry_)};
    ASSERT_NO_FATAL_FAILURE(StartServer());
  }
  void Lose(Network::Direction direction, int percent) { ASSERT_TRUE(network_.Lose(direction, percent).ok()); }

  Network network_;
  int hurry_ = 1;
};

TEST_F(NetworkTest, Row7APartitionInEitherDirectionEndsAndNothingIsLost) {
  ASSERT_NO_FATAL_FAILURE(Start(20));
  auto fake = Worker("fake", absl::Milliseconds(20));
  WorkerProcess real;
  ASSERT_TRUE(real.Start(options_.listen, "real-device", Path("real")).ok());
  for (const Network::Direction direction : {Network::Direction::kToServer, Network::Direction::kFromServer}) {
    v1::SubmitJobRequest of_real = OperatorsJob(1, 300);
    of_real.set_device_key("real-device");
    const int64_t jobs[] = {Submit(OperatorsJob(2, 100)), Submit(of_real)};
    const int64_t acknowledged = ledger_->Size();
    ASSERT_TRUE(Eventually([&] { return ledger_->Size() > acknowledged; })) << Situation();
    ASSERT_NO_FATAL_FAILURE(Lose(direction, 100));
    absl::SleepFor(absl::Seconds(90) / hurry_);  // the fault itself, longer than a lease
    ASSERT_TRUE(network_.Heal().ok());
    for (const int64_t job : jobs) EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  }
  fake.reset();
  server_.Signal(SIGTERM);
  server_.Wait();
  ExpectPromises();
}

TEST_F(NetworkTest, Row8LossAndLatencyKillNobody) {
  ASSERT_NO_FATAL_FAILURE(Start(1));
  Relay relay(options_.listen, absl::Milliseconds(500));
  auto far = std::make_unique<FakeWorker>(
      FakeWorkerOptions{.address = relay.address(), .key = kKey, .name = "far", .ledger = ledger_.get()});
  ASSERT_TRUE(Eventually([&] { return far->registrations() == 1; }));
  for (const Network::Direction direction : {Network::Direction::kToServer, Network::Direction::kFromServer}) {
    ASSERT_NO_FATAL_FAILURE(Lose(direction, 20));
  }
  EXPECT_EQ(AwaitEnd(Submit(OperatorsJob(1, Soaking() ? 300 : 24))), "done") << Situation();
  EXPECT_EQ(ledger_->highest_attempt(), 1);
  EXPECT_EQ(far->registrations(), 1);  // it was never given up
  ASSERT_TRUE(network_.Heal().ok());
  far.reset();
  server_.Signal(SIGTERM);
  server_.Wait();
  ExpectPromises();
}

TEST_F(NetworkTest, Row9AConnectionThatIsHalfOpenIsSeenAndItsDescriptorsComeBack) {
  ASSERT_NO_FATAL_FAILURE(Start(20));
  auto worker = Worker("w");
  ASSERT_TRUE(Eventually([&] { return worker->registrations() == 1; }));
  // What the start left open is closed once the number stands still.
  size_t connected = 0;
  int unchanged = 0;
  ASSERT_TRUE(Eventually([&] {
    const size_t now = server_.Descriptors();
    unchanged = now == connected ? unchanged + 1 : 0;
    connected = now;
    return unchanged == 50;
  }));
  for (const Network::Direction direction : {Network::Direction::kToServer, Network::Direction::kFromServer}) {
    ASSERT_NO_FATAL_FAILURE(Lose(direction, 100));
  }
  EXPECT_TRUE(Eventually([&] { return server_.Descriptors() < connected; }));  // the promise: within 40 s
  ASSERT_TRUE(network_.Heal().ok());
}

TEST_F(FleetTest, Row10AReplyIsLostAndTheSecondTryGetsTheSameAnswer) {
  options_.listen = "127.0.0.1:0";
  ASSERT_NO_FATAL_FAILURE(StartServer());
  Relay relay(options_.listen, absl::ZeroDuration());
  auto worker = std::make_unique<FakeWorker>(
      FakeWorkerOptions{.address = relay.address(), .key = kKey, .name = "w", .ledger = ledger_.get()});
  worker->Pause(true);
  const int64_t job = Submit(OperatorsJob(2, 40));
  ASSERT_TRUE(Eventually([&] { return worker->holds_lease(); })) << Situation();
  relay.EatReplies();
  worker->Pause(false);
  ASSERT_TRUE(Eventually([&] { return relay.has_eaten() && !ledger_->measured().empty(); }));
  EXPECT_EQ(ledger_->Size(), 0);
  // They are stored, and the worker does not know.
  ASSERT_TRUE(Eventually([&] { return Client()->ListJobs()->at(0).trials() > 0; })) << Situation();
  relay.Cut();
  EXPECT_EQ(AwaitEnd(job), "done") << Situation();
  EXPECT_TRUE(Eventually([&] { return ledger_->Size() == static_cast<int64_t>(ledger_->measured().size()); }));
  EXPECT_EQ(ledger_->highest_attempt(), 1);
  worker.reset();
  server_.Signal(SIGTERM);
  server_.Wait();
  ExpectPromises();
}

}  // namespace
}  // namespace temper
