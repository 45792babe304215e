// The worker's conversation with its server, faults included: nothing is lost, nothing is measured twice.
#include "measure_worker/service/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>

#include "base/temporary_directory.h"
#include "proto/convert.h"
#include "tests/worker/fake_server.h"
#include "tests/worker/wire_service.h"

namespace temper::worker {
namespace {

using testing::ElementsAre;

// Says what it is asked to measure, and waits where a test wants it to.
class FakeMeasurer : public Measurer {
 public:
  absl::Status Run(const BatchWork& work, const CancelToken& token,
                   const std::function<void(int, TrialResult)>& on_trial) override {
    if (absl::Status broken = broken_; !broken.ok()) return broken;
    for (size_t i = 0; i < work.candidates.size(); ++i) {
      if (work.candidates[i].config == "block") {
        blocked_ = true;
        blocked_.notify_all();
        while (!token.cancelled()) std::this_thread::yield();
        return absl::CancelledError("cancelled");
      }
      ++measured_;
      const size_t samples = work.candidates[i].config == "large" ? 1000 : 2;
      std::vector<double> costs(samples, 2e-3);
      costs[0] = 1e-3;
      on_trial(static_cast<int>(i), {Outcome::kOk, "", std::move(costs), 4, 5});
    }
    return absl::OkStatus();
  }
  absl::Status Run(const FinalsWork& work, const CancelToken&,
                   const std::function<void(int, TrialResult)>& on_trial) override {
    for (size_t i = 0; i < work.Candidates().size(); ++i)
      on_trial(static_cast<int>(i), {Outcome::kOk, "", std::vector<double>(work.model.rounds, 3e-3)});
    return absl::OkStatus();
  }
  absl::StatusOr<ModelResult> Run(const ModelWork& work, const CancelToken&) override {
    return ModelResult{Outcome::kOk, "", {2e-3}, std::vector<double>(work.rounds, 1e-3), 1e-6};
  }

  std::atomic<int> measured_{0};
  std::atomic<bool> blocked_{false};
  absl::Status broken_;
};

AgentOptions Options(int slots) {
  AgentOptions options;
  options.registration.set_device_key("a");
  options.registration.set_slots(slots);
  options.idle_wait = absl::Seconds(5);
  options.back_off_least = absl::Milliseconds(1);
  options.back_off_most = absl::Milliseconds(4);
  return options;
}

v1::Lease BatchLease(int64_t id, const std::vector<std::string>& configs) {
  v1::Lease lease;
  lease.set_lease(id);
  lease.mutable_batch()->set_workload("w");
  for (const std::string& config : configs) {
    v1::CandidateSpec& c = *lease.mutable_batch()->add_candidates();
    c.set_candidate(id * 10 + lease.batch().candidates_size() - 1);
    c.set_attempt(1);
    c.set_config(config);
  }
  return lease;
}

// Lets waiting calls run out until the worker says that it holds nothing. What it waits for may take some time, such as
// a call that it makes again later.
bool AwaitNothingHeld(FakeServer& server) {
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (absl::Now() < end) {
    size_t before = 0;
    bool held = true;
    const bool answered = server.Await([&](auto& s) {
      before = s.syncs_.size();
      held = s.syncs_.empty() || !s.syncs_.back().leases().empty();
      return true;
    });
    if (!answered || !held) return answered;
    server.Expire();
    if (!server.Await([&](auto& s) { return s.syncs_.size() > before; })) return false;
  }
  return false;
}

class AgentTest : public testing::Test {
 protected:
  void Begin(int slots = 2) {
    agent_ = std::make_unique<Agent>(link_, measurer_, *spool_, Options(slots));
    agent_->Start();
  }
  FakeServer server_;
  FakeLink link_{server_};
  FakeMeasurer measurer_;
  std::unique_ptr<Spool> spool_ = Spool::InMemory();
  std::atomic<int64_t> now_ns_ = 1;  // an agent may ask until it is gone
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, MeasuresAndHandsIn) {
  server_.Grant(BatchLease(1, {"x", "y"}));
  server_.Grant(BatchLease(2, {"z"}));
  Begin();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 3; }));
  EXPECT_EQ(server_.results_[11].lease(), 1);
  EXPECT_EQ(server_.results_[11].attempt(), 1);
  EXPECT_EQ(server_.results_[20].outcome(), "ok");
  EXPECT_THAT(server_.results_[20].costs_s(), ElementsAre(1e-3, 2e-3));
  ASSERT_TRUE(AwaitNothingHeld(server_));
  agent_->Stop("the test is over");
  EXPECT_EQ(server_.registrations_.size(), 1u);
  EXPECT_EQ(server_.registrations_[0].device_key(), "a");
}

TEST_F(AgentTest, ChecksModelsAndFinals) {
  v1::Lease model;
  model.set_lease(7);
  model.mutable_model()->set_rounds(3);
  v1::Lease finals;
  finals.set_lease(8);
  finals.mutable_finals()->mutable_model()->set_rounds(2);
  *finals.mutable_finals()->add_tasks() = BatchLease(8, {"x", "y"}).batch();
  *finals.mutable_finals()->add_tasks() = BatchLease(9, {"z"}).batch();
  Begin();
  server_.Grant(model);
  server_.Grant(finals);
  ASSERT_TRUE(server_.Await([](auto& s) { return s.models_.size() == 1 && s.results_.size() == 3; }));
  EXPECT_EQ(server_.results_[90].lease(), 8);
  EXPECT_THAT(server_.results_[81].costs_s(), ElementsAre(3e-3, 3e-3));
  EXPECT_EQ(server_.models_[7].tuned_s_size(), 3);
}

TEST_F(AgentTest, KeepsTryingUntilTheServerIsThere) {
  server_.FailNext(5, 5, 5);
  server_.Grant(BatchLease(1, {"x", "y"}));
  Begin();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 2; }));
  EXPECT_EQ(measurer_.measured_, 2) << "results are kept, not measured again";
  EXPECT_EQ(server_.submissions_.size(), 6u);
}

TEST_F(AgentTest, HoldsALeaseUntilItsResultsAreAcknowledged) {
  server_.FailNext(0, 0, 8);
  server_.Grant(BatchLease(1, {"x"}));
  Begin(1);
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; }));
  ASSERT_TRUE(AwaitNothingHeld(server_));
  agent_->Stop("the test is over");
  // From the first Sync that restates it on, each did, until the results were in.
  bool held = false, let_go = false;
  for (const auto& sync : server_.syncs_) {
    if (!sync.leases().empty()) {
      EXPECT_FALSE(let_go);
      held = true;
    } else if (held) {
      let_go = true;
    }
  }
  EXPECT_TRUE(held);
  EXPECT_TRUE(let_go);
}

TEST_F(AgentTest, ASlotThatBecomesFreeIsTold) {
  Begin(1);
  server_.Grant(BatchLease(1, {"x"}));
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; }));
  server_.Grant(BatchLease(2, {"y"}));
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 2; }));
  agent_->Stop("the test is over");
  for (const auto& sync : server_.syncs_) EXPECT_LE(sync.free_slots(), 1);
}

TEST_F(AgentTest, RegistersAgainAfterTheServerForgotIt) {
  Begin();
  ASSERT_TRUE(server_.Await([](auto& s) { return !s.syncs_.empty(); }));
  server_.ForgetSession();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.registrations_.size() == 2; }));
  server_.Grant(BatchLease(3, {"x"}));
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; }));
}

// Keeps the first call that asks for nothing, and answers it when told to.
class LateLink : public FakeLink {
 public:
  using FakeLink::FakeLink;
  void StartSync(const v1::SyncRequest& request, SyncDone done) override {
    if (request.free_slots() == 0 && !keeps_) {
      late_ = std::move(done);
      keeps_ = true;
    } else {
      FakeLink::StartSync(request, std::move(done));
    }
  }
  std::atomic<bool> keeps_{false};
  SyncDone late_;
};

TEST_F(AgentTest, ALateWordOfAnEarlierSessionIsNoNews) {
  LateLink link(server_);
  Agent agent(link, measurer_, *spool_, Options(1));
  agent.Start();
  for (size_t i = 1; !link.keeps_; ++i) {
    server_.Grant(BatchLease(static_cast<int64_t>(i), {"x"}));
    ASSERT_TRUE(server_.Await([&](auto& s) { return s.results_.size() == i; }));
  }
  server_.ForgetSession();
  ASSERT_TRUE(server_.Await([](auto& s) { return !s.syncs_.empty() && s.syncs_.back().session() == "s2"; }));
  v1::SyncReply unknown;
  unknown.set_unknown_session(true);
  link.late_(unknown);
  agent.Stop("the test is over");
  ASSERT_EQ(server_.farewells_.size(), 1u);
  EXPECT_EQ(server_.farewells_[0].session(), "s2");
}

TEST_F(AgentTest, CancelledLeasesAreDroppedRunningOrWaiting) {
  server_.Grant(BatchLease(1, {"x", "block"}));
  server_.Grant(BatchLease(2, {"y"}));
  Begin();
  measurer_.blocked_.wait(false);
  ASSERT_TRUE(server_.Await([](auto& s) { return s.syncs_.back().leases_size() == 2; }));
  server_.Cancel(2);
  ASSERT_TRUE(server_.Await([](auto& s) { return s.syncs_.back().leases_size() == 1; }));
  server_.Cancel(1);
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; })) << "what was measured before is handed in";
  ASSERT_TRUE(AwaitNothingHeld(server_));
  EXPECT_TRUE(server_.results_.contains(10));
  EXPECT_EQ(measurer_.measured_, 1);
}

// A measurement that does not end though it is cancelled: the worker's service manager is to know.
TEST_F(AgentTest, AMeasurementThatCanNotBeEndedIsNoLife) {
  AgentOptions options = Options(1);
  options.now_ns = [&] { return now_ns_.load(); };
  agent_ = std::make_unique<Agent>(link_, measurer_, *spool_, options);
  agent_->Start();
  EXPECT_TRUE(agent_->Lives());
  server_.Grant(BatchLease(1, {"block"}));
  measurer_.blocked_.wait(false);
  EXPECT_TRUE(agent_->Lives());
  now_ns_ = absl::ToInt64Nanoseconds(absl::Hours(12));  // far beyond what a lease of one candidate may take
  EXPECT_FALSE(agent_->Lives());
  agent_->Stop("the test is over");  // cancels it
  EXPECT_TRUE(agent_->Lives());
}

TEST_F(AgentTest, AGrantThatComesTwiceIsMeasuredOnce) {
  server_.FailNext(0, 0, 3);
  Begin();
  server_.Grant(BatchLease(1, {"x"}));
  server_.Grant(BatchLease(1, {"x"}));
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; }));
}

TEST_F(AgentTest, ASandboxThatCanNotBeHadIsInfrastructure) {
  measurer_.broken_ = absl::ResourceExhaustedError("cannot start a child");
  server_.Grant(BatchLease(1, {"x", "y"}));
  Begin();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 2; }));
  EXPECT_EQ(server_.results_[10].outcome(), "infrastructure");
  EXPECT_EQ(server_.results_[11].error(), "cannot start a child");
}

TEST_F(AgentTest, StoppingEndsTheMeasurementAndHandsInWhatThereIs) {
  server_.Grant(BatchLease(1, {"x", "block", "z"}));
  Begin();
  measurer_.blocked_.wait(false);
  agent_->Stop("the test is over");
  EXPECT_EQ(server_.results_.size(), 1u);
  EXPECT_EQ(measurer_.measured_, 1);
}

TEST_F(AgentTest, TellsWhoItIsAndSaysWhyItLeaves) {
  server_.Grant(BatchLease(1, {"x"}));
  Begin();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 1; }));
  agent_->Stop("told to");
  ASSERT_EQ(server_.registrations_.size(), 1u);
  EXPECT_EQ(server_.registrations_[0].instance(), spool_->instance());
  EXPECT_EQ(spool_->instance().size(), 32u);
  EXPECT_EQ(server_.registrations_[0].wire_version(), kWireVersion);
  EXPECT_EQ(server_.submissions_[0].instance(), spool_->instance());
  ASSERT_EQ(server_.farewells_.size(), 1u);
  EXPECT_EQ(server_.farewells_[0].session(), "s1");
  EXPECT_EQ(server_.farewells_[0].reason(), "told to");
}

TEST_F(AgentTest, WhenItIsDrainedItFinishesWhatItHoldsAndTakesNothing) {
  server_.Grant(BatchLease(1, {"block"}));
  Begin();
  measurer_.blocked_.wait(false);
  server_.Drain("the machine is needed");
  ASSERT_TRUE(server_.Await([](auto& s) { return s.syncs_.back().free_slots() == 0; }));
  server_.Cancel(1);  // its lease ends
  ASSERT_TRUE(AwaitNothingHeld(server_));
  EXPECT_EQ(server_.syncs_.back().free_slots(), 0);
  server_.Drain("");
  EXPECT_TRUE(server_.Await([](auto& s) { return s.syncs_.back().free_slots() == 2; }));
}

TEST_F(AgentTest, WhatIsTooLargeForOneCallTravelsInSeveralAndWhatIsNotTakenAtAllIsDropped) {
  constexpr size_t kCandidates = 200;  // of eight KiB each
  server_.Grant(BatchLease(1, std::vector<std::string>(kCandidates, "large")));
  server_.RefuseResult(12);
  Begin();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == kCandidates - 1; }));
  ASSERT_TRUE(AwaitNothingHeld(server_)) << "it is not tried for ever";
  EXPECT_FALSE(server_.results_.contains(12));
  EXPECT_TRUE(spool_->entries().empty());
}

TEST_F(AgentTest, AServerThatHasNoRoomNowGetsTheResultsLater) {
  server_.BeBusy(5);
  server_.Grant(BatchLease(1, {"x", "y"}));
  Begin();
  EXPECT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 2; }));
}

// What would come at once, had it not to wait for days, has come after so many turns of other threads.
void LetOthersRun() {
  for (int i = 0; i < 10'000; ++i) std::this_thread::yield();
}

TEST_F(AgentTest, WhoseSessionsEndAtOnceRegistersEverMoreSeldom) {
  AgentOptions options = Options(1);
  options.now_ns = [&] { return now_ns_.load(); };
  options.back_off_least = options.back_off_most = absl::Hours(1000);
  agent_ = std::make_unique<Agent>(link_, measurer_, *spool_, options);
  agent_->Start();
  ASSERT_TRUE(server_.Await([](auto& s) { return !s.syncs_.empty(); }));
  now_ns_ = absl::ToInt64Nanoseconds(absl::Hours(2000));
  server_.ForgetEachSession();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.syncs_.size() == 2; })) << "the first session was no short one";
  LetOthersRun();
  agent_->Stop("the test is over");
  EXPECT_EQ(server_.registrations_.size(), 2u);
}

TEST_F(AgentTest, WhoIsAnsweredWithNothingAsksEverMoreSeldom) {
  server_.AnswerAtOnceWithNothing();
  AgentOptions options = Options(1);
  options.back_off_least = options.back_off_most = absl::Hours(1000);
  agent_ = std::make_unique<Agent>(link_, measurer_, *spool_, options);
  agent_->Start();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.syncs_.size() == 2; }));
  LetOthersRun();
  agent_->Stop("the test is over");
  EXPECT_EQ(server_.syncs_.size(), 2u);
}

TEST_F(AgentTest, ResultsOfALifeThatEndedAreHandedInByTheNext) {
  const TemporaryDirectory folder = TemporaryDirectory::Make().value();
  std::string instance;
  {
    spool_ = Spool::Open(folder.path()).value();
    instance = spool_->instance();
    server_.FailNext(0, 0, 1'000'000);
    server_.Grant(BatchLease(1, {"x", "y"}));
    Begin();
    ASSERT_TRUE(server_.Await([](auto& s) { return s.submissions_.size() >= 3; }));
    agent_.reset();
    EXPECT_TRUE(server_.results_.empty());
    spool_.reset();
  }
  server_.FailNext(0, 0, 0);
  FakeLink link(server_);
  spool_ = Spool::Open(folder.path()).value();
  Agent next(link, measurer_, *spool_, Options(1));
  next.Start();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.results_.size() == 2; }));
  EXPECT_EQ(server_.results_[11].lease(), 1);
  EXPECT_EQ(server_.submissions_.back().instance(), instance);
  EXPECT_EQ(server_.registrations_.back().instance(), instance);
  EXPECT_EQ(measurer_.measured_, 2) << "nothing was measured again";
  next.Stop("the test is over");
}

TEST_F(AgentTest, ALeaseIsNotRenewedForEver) {
  AgentOptions options = Options(1);
  options.now_ns = [&] { return now_ns_.load(); };
  v1::Lease lease = BatchLease(1, {"block"});
  lease.mutable_batch()->mutable_plan()->set_run_timeout_ms(1000);
  lease.mutable_batch()->mutable_plan()->set_build_timeout_ms(1000);
  server_.Grant(lease);
  agent_ = std::make_unique<Agent>(link_, measurer_, *spool_, options);
  agent_->Start();
  measurer_.blocked_.wait(false);
  ASSERT_TRUE(server_.Await([](auto& s) { return s.syncs_.back().leases_size() == 1; }));
  now_ns_ = int64_t{3600} * 1'000'000'000;
  ASSERT_TRUE(AwaitNothingHeld(server_)) << "an hour is too long for one candidate of two seconds";
  server_.Grant(BatchLease(2, {"x"}));
  EXPECT_TRUE(server_.Await([](auto& s) { return s.results_.contains(20); })) << "and what held it up is ended";
}

TEST_F(AgentTest, StopsWhenNoServerEverAnswered) {
  server_.FailNext(1'000'000, 0, 0);
  AgentOptions options = Options(2);
  options.back_off_least = options.back_off_most = absl::Hours(1000);
  agent_ = std::make_unique<Agent>(link_, measurer_, *spool_, options);
  agent_->Start();
  ASSERT_TRUE(server_.Await([](auto& s) { return s.register_calls_ == 1; }));
  const std::future<void> stopped = std::async(std::launch::async, [&] { agent_->Stop("the test is over"); });
  if (stopped.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
    ADD_FAILURE() << "it waits for its next try";
    std::_Exit(1);  // whoever waited for its threads would wait as long
  }
  EXPECT_EQ(server_.register_calls_, 1);
  EXPECT_TRUE(server_.farewells_.empty()) << "there is nobody to take leave of";
}

TEST_F(AgentTest, WhoseRegistrationBreaksALimitAsksNoMore) {
  server_.Refuse(absl::InvalidArgumentError("RegisterRequest.device_key: too long"));
  Begin();
  while (agent_->Refused().empty()) std::this_thread::yield();
  EXPECT_EQ(agent_->Refused(), "RegisterRequest.device_key: too long");
  agent_->Stop("the test is over");
  EXPECT_EQ(server_.register_calls_, 1);
}

TEST_F(AgentTest, WhomTheServerRefusesAsksNoMore) {
  Begin();
  ASSERT_TRUE(server_.Await([](auto& s) { return !s.syncs_.empty(); }));
  EXPECT_EQ(agent_->Refused(), "");
  server_.Refuse(absl::UnauthenticatedError("the certificate was revoked"));
  server_.End(absl::UnauthenticatedError("the certificate was revoked"));
  ASSERT_TRUE(server_.Await([](auto& s) { return s.register_calls_ == 2; }));
  while (agent_->Refused().empty()) std::this_thread::yield();
  EXPECT_THAT(agent_->Refused(), ::testing::StartsWith("the certificate was revoked; "));
  agent_->Stop("the test is over");
  EXPECT_EQ(server_.register_calls_, 2);
}

TEST(AgentOverGrpc, RegistersMeasuresHandsInAndLeaves) {
  FakeServer server;
  server.FailNext(1, 1, 1);
  const std::string address = "unix:" + testing::TempDir() + "/temper_agent_test_" + std::to_string(getpid());
  FakeMeasurer measurer;
  const auto link = ConnectByGrpc(address, grpc::InsecureChannelCredentials());
  const auto spool = Spool::InMemory();
  Agent agent(*link, measurer, *spool, Options(2));
  agent.Start();  // before there is a server
  const WireServer wire(server, address);
  ASSERT_TRUE(wire.listening());
  for (int64_t id = 1; id <= 20; ++id) server.Grant(BatchLease(id, {"x", "y", "z"}));
  EXPECT_TRUE(server.Await([](auto& s) { return s.results_.size() == 60; }));
  agent.Stop("the test is over");
  EXPECT_EQ(measurer.measured_, 60);
}

}  // namespace
}  // namespace temper::worker
