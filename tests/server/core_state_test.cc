// The server's core by itself: what is taken in, what is stored, and what is given back.
#include "tuner_server/service/core_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "storage/check.h"
#include "tests/base/captured_log.h"
#include "tests/server/thread_seconds.h"
#include "tests/server/toys.h"
#include "tuner_server/service/core.h"
#include "tuner_server/service/stored_lease.h"

namespace temper {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FakeJob : public JobPort {
 public:
  explicit FakeJob(int64_t id, const std::string& key = "k") {
    spec_.id = id;
    spec_.device_key = key;
    feed_ = std::make_shared<JobFeed>(clock_, absl::ZeroDuration(), JobView(), JobRow());
  }
  void Deliver(const ItemResult& result) override { delivered.push_back(result); }
  void Wake() override { ++woken; }
  void Stop(const std::string& state, const std::string&) override { stopped = state; }
  void SetPriority(int) override {}
  const JobSpec& spec() const override { return spec_; }
  const std::shared_ptr<JobFeed>& feed() const override { return feed_; }

  std::vector<ItemResult> delivered;
  int woken = 0;
  std::string stopped;

 private:
  FakeClock clock_;
  JobSpec spec_;
  std::shared_ptr<JobFeed> feed_;
};

WorkerInfo WorkerOf(const std::string& name) {
  return {.device_key = "k",
          .fingerprint = "f",
          .target = ToyTarget(),
          .codegen_id = "c",
          .name = name,
          .instance = absl::StrCat("instance of ", name)};
}

Work BatchOf(int64_t job, int items) {
  Work work;
  work.job = job;
  work.device_key = "k";
  work.target = ToyTarget();
  work.codegen_id = "c";
  work.workload = absl::StrCat("w", job);
  for (int i = 0; i < items; ++i) {
    WorkItem item;
    item.template_name = "t";
    item.template_version = 1;
    item.config = absl::StrCat("x=", i);
    work.items.push_back(item);
  }
  return work;
}

ItemResult Ok(const Dispatcher::Grant& grant, size_t i, const std::string& name) {
  const WorkItem& item = grant.work->items[i];
  return {.lease = grant.lease,
          .instance = WorkerOf(name).instance,
          .item = item.id,
          .attempt = item.attempt,
          .trial = {.outcome = Outcome::kOk, .costs_s = {1e-3, 1e-3, 1e-3}}};
}

class CoreStateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_.emplace(options_);
    state_->Open();
  }
  absl::Duration Now() const { return clock_.Monotonic(); }

  std::shared_ptr<FakeJob> AddJob(int64_t id) {
    auto job = std::make_shared<FakeJob>(id);
    EXPECT_TRUE(state_->ReservePlace("", 1).ok());
    EXPECT_TRUE(state_->AddJob(id, 1, job));
    return job;
  }
  std::string Register(const std::string& name) { return *state_->Register(WorkerOf(name), Now()); }
  void Queue(Work work) {
    Actions actions;
    state_->AddWork(std::move(work), Now(), actions);
  }
  // What the session is granted now, holding nothing else.
  Dispatcher::Grant Take(const std::string& session, const std::string& holder = "") {
    Actions actions;
    Dispatcher::Grant grant;
    state_->Sync(
        {.ticket = state_->NewTicket(), .session = session, .holder = holder, .free_slots = 1},
        [&](const absl::StatusOr<Dispatcher::SyncOutcome>& outcome) {
          if (outcome.ok() && !outcome->grants.empty()) grant = outcome->grants[0];
        },
        Now(), actions);
    for (auto& action : actions) action();
    if (state_->CommitWaits()) Finish(state_->JudgeGroup(absl::UnixEpoch()));  // the lease is stored first
    return grant;
  }
  void Submit(std::vector<ItemResult> results) {
    Actions actions;
    acks_.reset();
    state_->Submit(
        std::move(results), [this](const auto& acks) { acks_ = acks; }, actions);
    for (auto& action : actions) action();
  }
  void Finish(CoreState::CommitPlan plan, const absl::Status& stored = absl::OkStatus()) {
    Actions actions;
    state_->FinishGroup(std::move(plan), stored, Now(), actions);
    for (auto& action : actions) action();
  }
  // Time passes as it does in a live server.
  void Pass(absl::Duration d) {
    for (; d > absl::ZeroDuration(); d -= absl::Seconds(1)) {
      clock_.Advance(absl::Seconds(1));
      Actions actions;
      state_->Tick(Now(), actions);
    }
  }

  CoreOptions options_;
  FakeClock clock_;
  std::optional<CoreState> state_;
  std::optional<absl::StatusOr<std::vector<bool>>> acks_;
};

TEST_F(CoreStateTest, NothingIsTakenBeforeTheServerIsOpen) {
  state_.emplace(options_);
  EXPECT_TRUE(absl::IsUnavailable(state_->Register(WorkerOf("w"), Now()).status()));
  EXPECT_TRUE(absl::IsUnavailable(state_->ReservePlace("", 1)));
  Submit({});
  EXPECT_TRUE(absl::IsUnavailable(acks_->status()));
  state_->Open();
  EXPECT_TRUE(state_->Register(WorkerOf("w"), Now()).ok());
  EXPECT_TRUE(state_->ReservePlace("", 1).ok());
}

TEST_F(CoreStateTest, AnInstanceIsForWhoeverHoldsItsKeyAsLongAsItIsThere) {
  AddJob(1);
  WorkerInfo owner = WorkerOf("w"), thief = owner;
  owner.holder = "key 1";
  thief.holder = "key 2";
  ASSERT_TRUE(state_->Register(owner, Now()).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(state_->Register(thief, Now()).status())) << "which may pass";
  const std::string session = *state_->Register(owner, Now());  // it goes on
  Actions actions;
  ASSERT_TRUE(state_->Leave(session, "key 1", "done", Now(), actions).ok());
  EXPECT_TRUE(state_->Register(thief, Now()).ok()) << "it joined again, and has another key";
}

TEST_F(CoreStateTest, AKeyIsAwaitedForAsLongAsAClientSaysSo) {
  const auto awaited = [&] {
    clock_.Advance(absl::Seconds(20));
    Actions actions;
    state_->Tick(Now(), actions);
    return state_->Status().keys["k"].awaited;
  };
  EXPECT_FALSE(awaited());
  state_->NoteAwaited("alice", "k", Now());
  EXPECT_TRUE(awaited());
  EXPECT_FALSE(awaited());
}

TEST_F(CoreStateTest, WhoAwaitsManyKeysLeavesRoomForThoseOfOthers) {
  for (int i = 0; i < 2000; ++i) state_->NoteAwaited("alice", absl::StrCat("of alice ", i), Now());
  const size_t alices = state_->Status().keys.size();
  EXPECT_LT(alices, 2000u);
  state_->NoteAwaited("bob", "k", Now());
  EXPECT_EQ(state_->Status().keys.size(), alices + 1);
}

TEST_F(CoreStateTest, AWorkerWhoseTrialsNoStoreWouldTakeIsRefused) {
  for (const int threads : {0, -1, 1 << 20}) {
    WorkerInfo info = WorkerOf("w");
    info.threads = threads;
    EXPECT_TRUE(absl::IsInvalidArgument(state_->Register(info, Now()).status())) << threads;
  }
  for (const int slots : {0, 65}) {
    WorkerInfo info = WorkerOf("w");
    info.slots = slots;
    EXPECT_TRUE(absl::IsInvalidArgument(state_->Register(info, Now()).status())) << slots;
  }
  WorkerInfo odd = WorkerOf("w");
  odd.fingerprint = std::string(1 << 20, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(state_->Register(odd, Now()).status()));
  odd.fingerprint = "\xff\xfe";
  EXPECT_TRUE(absl::IsInvalidArgument(state_->Register(odd, Now()).status()));
}

TEST_F(CoreStateTest, AResultThatNoStoreTakesCostsNobodyElseAnything) {
  const auto job = AddJob(1);
  const std::string liar = Register("liar"), honest = Register("honest");
  Queue(BatchOf(1, 2));
  Queue(BatchOf(1, 1));
  const Dispatcher::Grant first = Take(liar), second = Take(honest);
  ItemResult endless = Ok(first, 0, "liar");
  endless.trial.costs_s.assign(2 * kMaxSamples, 1e-3);
  Submit({endless, Ok(first, 1, "liar")});
  Submit({Ok(second, 0, "honest")});
  CoreState::CommitPlan plan = state_->JudgeGroup(absl::UnixEpoch());
  EXPECT_THAT(plan.records, SizeIs(2));
  for (const Record& record : plan.records) EXPECT_TRUE(CheckRecord(record).ok());
  Finish(std::move(plan));
  EXPECT_THAT(job->delivered, SizeIs(2));
  EXPECT_EQ(Take(honest).work->items[0].id, first.work->items[0].id) << "it is tried again elsewhere";
}

TEST_F(CoreStateTest, AnItemWhoseLastResultIsBeingStoredIsNotGivenUpMeanwhile) {
  options_.dispatch.max_attempts = 1;
  SetUp();
  const auto job = AddJob(1);
  const std::string worker = Register("w");
  Queue(BatchOf(1, 1));
  const Dispatcher::Grant grant = Take(worker);
  Submit({Ok(grant, 0, "w")});
  CoreState::CommitPlan plan = state_->JudgeGroup(absl::UnixEpoch());
  Pass(absl::Seconds(100));  // the disk is slow, and the lease runs out
  EXPECT_FALSE(state_->CommitWaits()) << "nothing else is to be stored about it";
  Finish(std::move(plan));
  EXPECT_THAT(job->delivered, SizeIs(1));
  EXPECT_FALSE(state_->CommitWaits());
}

TEST_F(CoreStateTest, AnItemWhoseResultCouldNotBeStoredAndWhoseLeaseIsGoneIsTriedAgain) {
  AddJob(1);
  const std::string worker = Register("w");
  Queue(BatchOf(1, 1));
  const Dispatcher::Grant grant = Take(worker);
  Submit({Ok(grant, 0, "w")});
  CoreState::CommitPlan plan = state_->JudgeGroup(absl::UnixEpoch());
  Pass(absl::Seconds(100));
  Finish(std::move(plan), absl::ResourceExhaustedError("the disk is full"));
  EXPECT_TRUE(absl::IsUnavailable(acks_->status()));
  EXPECT_EQ(Take(Register("another")).work->items[0].id, grant.work->items[0].id);
}

TEST_F(CoreStateTest, TwoResultsOfOneAttemptInOneGroupAreComparedWithOneAnother) {
  AddJob(1);
  const std::string worker = Register("w");
  Queue(BatchOf(1, 1));
  const Dispatcher::Grant grant = Take(worker);
  ItemResult altered = Ok(grant, 0, "w");
  altered.trial.costs_s = {1e-9};
  Submit({Ok(grant, 0, "w"), Ok(grant, 0, "w"), altered});
  CoreState::CommitPlan plan = state_->JudgeGroup(absl::UnixEpoch());
  EXPECT_THAT(plan.records, SizeIs(1));
  Finish(std::move(plan));
  EXPECT_THAT(**acks_, ElementsAre(true, true, false));
}

TEST_F(CoreStateTest, WhatIsRefusedOfASubmissionIsOneLine) {
  AddJob(1);
  const std::string worker = Register("w");
  Queue(BatchOf(1, 3));
  const Dispatcher::Grant grant = Take(worker);
  const auto all = [&](const std::string& name) {
    return std::vector<ItemResult>{Ok(grant, 0, name), Ok(grant, 1, name), Ok(grant, 2, name)};
  };
  const CapturedLog log(LogFormat::kText);
  Submit(all("another"));
  Finish(state_->JudgeGroup(absl::UnixEpoch()));
  EXPECT_THAT(**acks_, ElementsAre(false, false, false));
  EXPECT_THAT(log.text(), HasSubstr("3 results of 3 are refused"));
  EXPECT_THAT(log.text(), HasSubstr(" worker=w"));
  EXPECT_EQ(std::ranges::count(log.text(), '\n'), 1);
}

// Asks the core for something with every line.
class AskingSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit AskingSink(ServerCore& core) : core_(core) {}
  int answered = 0;

 private:
  void sink_it_(const spdlog::details::log_msg&) override {
    asked_.push_back(std::async(std::launch::async, [this] { core_.Sessions(0, 1); }));
    answered += asked_.back().wait_for(std::chrono::seconds(10)) == std::future_status::ready ? 1 : 0;
  }
  void flush_() override {}

  ServerCore& core_;
  std::vector<std::future<void>> asked_;
};

TEST(ServerCoreTest, NobodyWaitsForTheLogUnderTheLock) {
  const std::unique_ptr<Store> store = *OpenStore("memory:");
  ServerCore core(*store, Clock::System(), {});
  ASSERT_TRUE(core.Start().ok());
  const auto sink = std::make_shared<AskingSink>(core);
  const std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("asking", sink));
  EXPECT_TRUE(core.Register(WorkerOf("w")).ok());
  spdlog::set_default_logger(before);
  EXPECT_EQ(sink->answered, 1);
}

TEST_F(CoreStateTest, AJobsStateAndOwnerAreToldWithoutItsRow) {
  const auto job = AddJob(1);
  JobView view;
  view.state = "running";
  job->feed()->Publish(view, JobRow{.owner = "alice", .state = "queued"}, {});
  EXPECT_EQ(job->feed()->state(), "running") << "the finer one";
  EXPECT_EQ(job->feed()->owner(), "alice");
  EXPECT_EQ(state_->Status().jobs, (std::map<std::string, int64_t>{{"running", 1}}));
}

TEST_F(CoreStateTest, AStoreThatFailsNowAndThenEndsNoJobAndOneThatKeepsFailingEndsAll) {
  const auto job = AddJob(1);
  const std::string worker = Register("w");
  Queue(BatchOf(1, 1));
  const Dispatcher::Grant grant = Take(worker);
  const auto fail = [&] {
    Submit({Ok(grant, 0, "w")});
    Finish(state_->JudgeGroup(absl::UnixEpoch()), absl::ResourceExhaustedError("the disk is full"));
  };
  fail();
  clock_.Advance(absl::Minutes(1));
  fail();
  EXPECT_EQ(job->stopped, "");
  fail();
  EXPECT_EQ(job->stopped, "failed");
}

TEST_F(CoreStateTest, APlaceIsTakenBeforeTheJobIsMade) {
  options_.most_jobs = 1;
  options_.most_waiting = 1;
  SetUp();
  EXPECT_TRUE(state_->ReservePlace("", 1).ok());
  EXPECT_TRUE(state_->ReservePlace("", 1).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(state_->ReservePlace("", 1)));
  state_->GiveBackPlace("", 1);
  EXPECT_TRUE(state_->ReservePlace("", 1).ok());
  options_.most_request_bytes = 10;
  SetUp();
  EXPECT_TRUE(state_->ReservePlace("", 8).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(state_->ReservePlace("", 8)));
}

TEST_F(CoreStateTest, OneOwnersJobsLeavePlacesForOthers) {
  options_.most_jobs_of_owner = 2;
  SetUp();
  EXPECT_TRUE(state_->ReservePlace("alice", 1).ok());
  EXPECT_TRUE(state_->ReservePlace("alice", 1).ok());
  EXPECT_EQ(state_->ReservePlace("alice", 1).message(),
            "2 jobs of alice are running or waiting already, and others need places too");
  EXPECT_TRUE(state_->ReservePlace("bob", 1).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(state_->ReservePlace("", 1).ok());
  state_->GiveBackPlace("alice", 1);
  EXPECT_TRUE(state_->ReservePlace("alice", 1).ok());
}

TEST_F(CoreStateTest, OneOwnersRequestsLeaveMemoryForOthers) {
  options_.most_request_bytes = 64;
  SetUp();
  EXPECT_TRUE(state_->ReservePlace("alice", 16).ok());
  EXPECT_TRUE(state_->ReservePlace("alice", 16).ok());
  EXPECT_EQ(state_->ReservePlace("alice", 1).message(),
            "the requests of alice's jobs that are running or waiting are too large together");
  EXPECT_TRUE(state_->ReservePlace("bob", 16).ok());
  EXPECT_FALSE(state_->ReservePlace("bob", 1).ok());
  EXPECT_TRUE(state_->ReservePlace("", 16).ok()) << "who has no name is not held to it";
  EXPECT_EQ(state_->ReservePlace("", 1).message(),
            "the requests of the jobs that are running or waiting are too large together");
}

TEST_F(CoreStateTest, AWorkerThatRegistersWakesTheJobsOfItsKey) {
  const auto its = AddJob(1), others = std::make_shared<FakeJob>(2, "another");
  EXPECT_TRUE(state_->AddJob(2, 1, others));
  const int before = its->woken;
  Register("a");
  EXPECT_GT(its->woken, before);
  EXPECT_EQ(others->woken, 0);
}

TEST_F(CoreStateTest, OneHoldersWorkersLeavePlacesForOthersAndLostOnesGiveWay) {
  options_.dispatch.most_sessions_of_holder = 2;
  options_.dispatch.most_sessions = 4;
  SetUp();
  const auto enter = [&](const std::string& holder, const std::string& name) {
    WorkerInfo worker = WorkerOf(name);
    worker.holder = holder;
    return state_->Register(worker, Now());
  };
  const auto leave = [&](const std::string& holder, const std::string& session) {
    Actions actions;
    EXPECT_TRUE(state_->Leave(session, holder, "enough", Now(), actions).ok());
    clock_.Advance(absl::Seconds(1));
  };
  const std::string one = *enter("key 1", "a");
  ASSERT_TRUE(enter("key 1", "b").ok());
  EXPECT_EQ(enter("key 1", "c").status().message(),
            "there are 2 workers with this certificate or token already; one that is not heard of makes room");
  EXPECT_TRUE(enter("key 1", "b").ok()) << "it comes back";
  EXPECT_TRUE(enter("", "d").ok());
  EXPECT_TRUE(enter("", "e").ok()) << "who proved nothing is not held to a holder's number";
  EXPECT_TRUE(absl::IsResourceExhausted(enter("key 2", "f").status()));
  leave("key 1", one);
  EXPECT_EQ(state_->Sessions(0, 0).total, 4u) << "lost ones are shown";
  EXPECT_TRUE(enter("key 2", "f").ok()) << "and give way";
  EXPECT_EQ(state_->Sessions(0, 0).total, 4u);
  EXPECT_TRUE(absl::IsResourceExhausted(enter("key 1", "a").status()));
}

TEST_F(CoreStateTest, WorkersThatWaitForOtherWorkMakeNoTrialDearer) {
  const auto cost = [&](int drained, int others) {
    SetUp();
    AddJob(1);
    const std::string session = Register("w");
    for (int i = 0; i < drained + others; ++i) {
      WorkerInfo info = WorkerOf(absl::StrCat("o", i));
      if (i >= drained) info.codegen_id = "c2";
      const std::string waits = *state_->Register(info, Now());
      if (i < drained) state_->HoldBack(waits, "pending");
      Actions actions;
      state_->Sync(
          {.ticket = state_->NewTicket(), .session = waits, .free_slots = 1, .wait = absl::Seconds(10)},
          [](const auto&) {}, Now(), actions);
    }
    const double begun = ThreadSeconds();
    for (int i = 0; i < 300; ++i) {
      Queue(BatchOf(1, 1));
      const Dispatcher::Grant grant = Take(session);
      EXPECT_NE(grant.lease, 0);
      Submit({Ok(grant, 0, "w")});
      Finish(state_->JudgeGroup(absl::UnixEpoch()));
    }
    const double spent = ThreadSeconds() - begun;
    EXPECT_EQ(state_->Status().parked_calls, drained + others);
    return spent;
  };
  double few = cost(1, 1), many = cost(1000, 3000);
  for (int i = 0; i < 2; ++i) few = std::min(few, cost(1, 1)), many = std::min(many, cost(1000, 3000));
  EXPECT_LT(many, 5 * few) << "looking at each would take dozens of times as long";
}

TEST_F(CoreStateTest, AWaitingWorkerGetsWorkOnceItMayHaveIt) {
  AddJob(1);
  const std::string session = Register("w");
  state_->HoldBack(session, "pending");
  int granted = 0;
  Actions actions;
  state_->Sync(
      {.ticket = state_->NewTicket(), .session = session, .free_slots = 1, .wait = absl::Seconds(10)},
      [&](const auto& outcome) { granted += static_cast<int>(outcome->grants.size()); }, Now(), actions);
  const auto settle = [&] {
    for (auto& action : std::exchange(actions, {})) action();
    if (state_->CommitWaits()) Finish(state_->JudgeGroup(absl::UnixEpoch()));
  };
  state_->AddWork(BatchOf(1, 1), Now(), actions);
  settle();
  EXPECT_EQ(granted, 0);
  state_->AdmitDevice("k", "f", Now(), actions);
  settle();
  EXPECT_EQ(granted, 1);
}

TEST_F(CoreStateTest, WhoTakesAnothersNameFailsUnderHisOwn) {
  options_.dispatch.suspects.most_failures = 1;
  SetUp();
  WorkerInfo liar = WorkerOf("good:1"), good = WorkerOf("good:2");
  liar.holder = "key 1";
  good.holder = "key 2";
  AddJob(1);
  const std::string session = *state_->Register(liar, Now());
  Queue(BatchOf(1, 1));
  ItemResult failed = Ok(Take(session, "key 1"), 0, "good:1");
  failed.holder = "key 1";
  failed.trial = {.outcome = Outcome::kInfrastructure, .error = "so it says"};
  Submit({failed});
  Finish(state_->JudgeGroup(absl::UnixEpoch()), absl::OkStatus());
  const auto state_of = [&](const std::string& name) {
    for (const Dispatcher::SessionView& view : state_->Sessions(0, 9).views) {
      if (view.info.name == name) return view.state;
    }
    return std::string();
  };
  EXPECT_EQ(state_of("good:1"), "drained");
  ASSERT_TRUE(state_->Register(good, Now()).ok());
  EXPECT_EQ(state_of("good:2"), "idle");
}

TEST_F(CoreStateTest, AStoredLeaseTellsWhatItsWorkerProvedToHave) {
  WorkerInfo worker = WorkerOf("a");
  worker.holder = "key 1";
  Work work = BatchOf(1, 1);
  work.items[0].id = work.items[0].attempt = 1;
  const auto row = ToRow({.lease = 5, .work = std::make_shared<const Work>(work)}, worker, absl::UnixEpoch());
  ASSERT_TRUE(row.has_value());
  const auto restored = FromRow(*row);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->worker.holder, "key 1");
}

TEST_F(CoreStateTest, ADamagedStoreEndsTheServerOnce) {
  int told = 0;
  options_.on_broken_store = [&](const absl::Status&) { ++told; };
  state_.emplace(options_);
  state_->EndIfBroken(absl::OkStatus());
  EXPECT_EQ(told, 0);
  for (int i = 0; i < 2; ++i) state_->EndIfBroken(absl::DataLossError("the database is damaged"));
  EXPECT_EQ(told, 1);
}

TEST_F(CoreStateTest, SoManyJobsSearchAtOnceAndOthersAreWokenForTheirTurn) {
  options_.most_searches = 1;
  SetUp();
  AddJob(1);
  const auto second = AddJob(2);
  EXPECT_TRUE(state_->TryBeginSearch(1));
  EXPECT_FALSE(state_->TryBeginSearch(2));
  EXPECT_TRUE(state_->TryBeginSearch(1)) << "it has its turn";
  const int woken = second->woken;
  Actions actions;
  state_->EndSearch(1, Now(), actions);
  EXPECT_GT(second->woken, woken);
  EXPECT_TRUE(state_->TryBeginSearch(2));
}

TEST_F(CoreStateTest, JobsThatWaitTakeNobodysPlace) {
  options_.most_jobs = 1;
  SetUp();
  AddJob(1);  // for its device, say
  const auto second = AddJob(2), third = AddJob(3);
  EXPECT_TRUE(state_->TryBeginJob(2));
  EXPECT_TRUE(state_->TryBeginJob(2));
  EXPECT_FALSE(state_->TryBeginJob(3));
  const int woken = third->woken;
  Actions actions;
  state_->JobOver(2, Now(), actions);
  EXPECT_GT(third->woken, woken);
  EXPECT_TRUE(state_->TryBeginJob(3));
}

TEST_F(CoreStateTest, OfAJobThatIsOverOnlyWhatPeopleSeeStays) {
  std::weak_ptr<FakeJob> job = AddJob(1);
  Actions actions;
  state_->JobOver(1, Now(), actions);
  state_->TakeRetired();
  EXPECT_TRUE(job.expired());
  EXPECT_EQ(state_->FindJob(1), nullptr);
  EXPECT_NE(state_->FindFeed(1), nullptr);
  Pass(absl::Minutes(11));
  EXPECT_EQ(state_->FindFeed(1), nullptr);
  EXPECT_EQ(state_->TakeCensus().sizes.over, 0u);
}

}  // namespace
}  // namespace temper
