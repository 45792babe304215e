#include "tuner_server/dispatch/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/server/dispatcher_fixture.h"

namespace temper {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Judgement = Dispatcher::Judgement;

TEST_F(DispatcherTest, GrantsWorkOfItsKeyTargetAndCodegenOnly) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1, 1, "another key"), Now());
  Work other_target = Batch(1, 2);
  other_target.target = "t2";
  dispatcher_.Add(other_target, Now());
  Work other_codegen = Batch(1, 3);
  other_codegen.codegen_id = "c2";
  dispatcher_.Add(other_codegen, Now());
  EXPECT_THAT(Take(session, 5), IsEmpty());
  dispatcher_.Add(Batch(2, 4), Now());
  const auto grants = Take(session, 5);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_EQ(grants[0].work->job, 4);
  EXPECT_THAT(Attempts(grants[0]), ElementsAre(1, 1));
}

TEST_F(DispatcherTest, GrantsNoMoreThanThereAreSlots) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  for (int i = 0; i < 3; ++i) dispatcher_.Add(Batch(1), Now());
  EXPECT_THAT(Take(session, 0), IsEmpty());
  const auto grants = Take(session, 2);
  EXPECT_THAT(grants, SizeIs(2));
  EXPECT_THAT(Take(session, 2, {grants[0].lease, grants[1].lease}), SizeIs(1));
}

TEST_F(DispatcherTest, ALeaseThatIsRestatedLives) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(session).at(0);
  for (int i = 0; i < 30; ++i) {
    Pass(absl::Seconds(10));
    const auto outcome = dispatcher_.Sync(session, {grant.lease}, 1, Now());
    EXPECT_TRUE(outcome.empty());
  }
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kFirst);
}

TEST_F(DispatcherTest, ALeaseThatIsNotRenewedGoesToAnotherWorkerItemByItem) {
  const std::string frozen = dispatcher_.Register(Worker("frozen"), Now());
  dispatcher_.Add(Batch(3), Now());
  const auto first = Take(frozen).at(0);
  dispatcher_.Commit(Ok(first, 1), Now());
  const std::string other = dispatcher_.Register(Worker("other"), Now());
  Pass(absl::Seconds(50));
  EXPECT_THAT(Take(other, 9), IsEmpty());
  Pass(absl::Seconds(20));
  const auto again = Take(other, 9);
  ASSERT_THAT(again, SizeIs(2));
  for (const auto& grant : again) {
    ASSERT_THAT(grant.work->items, SizeIs(1));
    EXPECT_THAT(Attempts(grant), ElementsAre(2));
    EXPECT_NE(grant.work->items[0].id, first.work->items[1].id);
  }
}

TEST_F(DispatcherTest, AResultThatComesLateSettlesOnceAndIsStoredOnce) {
  const std::string frozen = dispatcher_.Register(Worker("frozen"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto first = Take(frozen).at(0);
  Pass(absl::Seconds(70));
  const std::string other = dispatcher_.Register(Worker("other"), Now());
  const auto second = Take(other).at(0);
  // The frozen one wakes up and hands in first.
  EXPECT_EQ(dispatcher_.Judge(Ok(first, 0)).judgement, Judgement::kFirst);
  dispatcher_.Commit(Ok(first, 0), Now());
  EXPECT_EQ(dispatcher_.Judge(Ok(second, 0)).judgement, Judgement::kLate);
  dispatcher_.Commit(Ok(second, 0), Now());
  EXPECT_EQ(dispatcher_.Judge(Ok(first, 0)).judgement, Judgement::kDuplicate);
  EXPECT_EQ(dispatcher_.Judge(Ok(second, 0)).judgement, Judgement::kDuplicate);
}

TEST_F(DispatcherTest, ALateResultSparesTheRepetitionThatStillWaits) {
  const std::string frozen = dispatcher_.Register(Worker("frozen"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto first = Take(frozen).at(0);
  Pass(absl::Seconds(70));
  dispatcher_.Commit(Ok(first, 0), Now());
  const std::string other = dispatcher_.Register(Worker("other"), Now());
  EXPECT_THAT(Take(other), IsEmpty());
}

TEST_F(DispatcherTest, TheSameResultTwiceIsADuplicateAndAnotherOneAConflict) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(2), Now());
  const auto grant = Take(session).at(0);
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kFirst);
  dispatcher_.Commit(Ok(grant, 0), Now());
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kDuplicate);
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0, 2e-3)).judgement, Judgement::kConflict);
}

TEST_F(DispatcherTest, OnlyTheLatestOfWhatIsDoneIsRemembered) {
  Dispatcher dispatcher{DispatchOptions{.remembered = 2}};
  const std::string session = dispatcher.Register(Worker("a"), Now());
  dispatcher.Add(Batch(4), Now());
  const auto grant = dispatcher.Sync(session, {}, 1, Now()).grants.at(0);
  for (size_t i = 0; i < 3; ++i) dispatcher.Commit(Ok(grant, i), Now());
  EXPECT_EQ(dispatcher.Judge(Ok(grant, 0)).judgement, Judgement::kUnknown);
  EXPECT_EQ(dispatcher.Judge(Ok(grant, 1)).judgement, Judgement::kDuplicate);
  EXPECT_EQ(dispatcher.Judge(Ok(grant, 2, 5)).judgement, Judgement::kConflict);
  EXPECT_EQ(dispatcher.Judge(Ok(grant, 3)).judgement, Judgement::kFirst) << "its lease lives on";
  dispatcher.ForgetJob(1);
  EXPECT_EQ(dispatcher.Judge(Ok(grant, 3)).judgement, Judgement::kUnknown);
}

TEST_F(DispatcherTest, ResultsOfUnknownLeasesItemsAndAttemptsAreNotTaken) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(session).at(0);
  ItemResult forged = Ok(grant, 0);
  forged.lease += 1000;
  EXPECT_EQ(dispatcher_.Judge(forged).judgement, Judgement::kUnknown);
  forged = Ok(grant, 0);
  forged.attempt = 2;
  EXPECT_EQ(dispatcher_.Judge(forged).judgement, Judgement::kUnknown);
  forged.attempt = 0;
  EXPECT_EQ(dispatcher_.Judge(forged).judgement, Judgement::kUnknown);
  forged = Ok(grant, 0);
  forged.item += 1000;
  EXPECT_EQ(dispatcher_.Judge(forged).judgement, Judgement::kUnknown);
  dispatcher_.Commit(forged, Now());
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kFirst);
}

TEST_F(DispatcherTest, APoisonCandidateIsGivenUpAfterThreeAttemptsAndItsNeighboursLive) {
  const std::vector<int64_t> ids = dispatcher_.Add(Batch(4), Now());
  const int64_t poison = ids[2];
  std::set<int64_t> settled;
  for (int life = 0; life < 8; ++life) {
    const std::string session = dispatcher_.Register(Worker("w" + std::to_string(life)), Now());
    for (bool alive = true; alive;) {
      const auto grants = Take(session);
      if (grants.empty()) break;
      for (size_t i = 0; i < grants[0].work->items.size(); ++i) {
        if (grants[0].work->items[i].id == poison) {
          alive = false;  // it takes its worker along
          break;
        }
        dispatcher_.Commit(Ok(grants[0], i), Now());
        settled.insert(grants[0].work->items[i].id);
      }
    }
    Pass(absl::Seconds(100));
  }
  EXPECT_EQ(settled, (std::set<int64_t>{ids[0], ids[1], ids[3]}));
  const auto given_up = dispatcher_.TakeGivenUp();
  ASSERT_THAT(given_up, SizeIs(1));
  EXPECT_EQ(given_up[0].item.id, poison);
  EXPECT_EQ(given_up[0].item.attempt, 3);
  EXPECT_EQ(given_up[0].outcome, Outcome::kQuarantined);
  EXPECT_THAT(given_up[0].error, HasSubstr("after 3 attempts"));
  EXPECT_THAT(dispatcher_.TakeGivenUp(), IsEmpty());
  const std::string last = dispatcher_.Register(Worker("last"), Now());
  EXPECT_THAT(Take(last, 9), IsEmpty());
}

TEST_F(DispatcherTest, AWorkersOwnFailureIsTriedAgainAndThenFinal) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1), Now());
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto grants = Take(session);
    ASSERT_THAT(grants, SizeIs(1));
    EXPECT_THAT(Attempts(grants[0]), ElementsAre(attempt));
    EXPECT_EQ(dispatcher_.Judge(Broken(grants[0], 0)).judgement, attempt < 3 ? Judgement::kRequeue : Judgement::kFirst);
    dispatcher_.Commit(Broken(grants[0], 0), Now());
  }
  EXPECT_THAT(Take(session), IsEmpty());
}

TEST_F(DispatcherTest, ThreeWorkloadsInARowThatAWorkerCannotMeasureDrainIt) {
  const std::string bad = dispatcher_.Register(Worker("bad"), Now());
  for (const char* workload : {"w1", "w2", "w3"}) {
    Work work = Batch(1);
    work.workload = workload;
    dispatcher_.Add(work, Now());
  }
  const auto grants = Take(bad, 3);
  ASSERT_THAT(grants, SizeIs(3));
  for (const auto& grant : grants) dispatcher_.Commit(Broken(grant, 0), Now());
  const auto outcome = dispatcher_.Sync(bad, {}, 9, Now());
  EXPECT_THAT(outcome.grants, IsEmpty());
  EXPECT_THAT(outcome.draining, HasSubstr("3 workloads in a row: no memory")) << "the worker is told";
  EXPECT_EQ(dispatcher_.Sessions().views.at(0).state, "drained");
  EXPECT_EQ(dispatcher_.FindWorker({"k", "", "c"}), std::nullopt);
  EXPECT_THAT(dispatcher_.WhyNoWorker({"k", "", "c"}), HasSubstr("drained"));
  EXPECT_THAT(Take(dispatcher_.Register(Worker("good"), Now()), 9), SizeIs(3));
  EXPECT_EQ(dispatcher_.Undrain("k", ""), 1);
  EXPECT_EQ(dispatcher_.Sync(bad, {}, 9, Now()).draining, "");
}

TEST_F(DispatcherTest, OneWorkloadThatNobodyCanMeasureDrainsNobody) {
  const std::string a = dispatcher_.Register(Worker("a"), Now());
  const std::string b = dispatcher_.Register(Worker("b"), Now());
  dispatcher_.Add(Batch(16), Now());
  for (int round = 0; round < 100; ++round) {
    for (const std::string& session : {a, b}) {
      for (const auto& grant : Take(session)) {
        for (size_t i = 0; i < grant.work->items.size(); ++i) dispatcher_.Commit(Broken(grant, i), Now());
      }
    }
  }
  dispatcher_.Add(Batch(1, 2), Now());
  EXPECT_THAT(Take(a), SizeIs(1));
  EXPECT_EQ(dispatcher_.Sync(b, {}, 1, Now()).draining, "");
}

TEST_F(DispatcherTest, AWorkloadThatDoesNotFitIsFinalAndNobodysFault) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  for (int i = 0; i < 5; ++i) {
    Work work = Batch(1);
    work.workload = "huge " + std::to_string(i);
    dispatcher_.Add(work, Now());
    ItemResult unfit = Ok(Take(session).at(0), 0);
    unfit.trial = {.outcome = Outcome::kUnfit, .error = "needs 256 GiB"};
    EXPECT_EQ(dispatcher_.Judge(unfit).judgement, Judgement::kFirst);
    dispatcher_.Commit(unfit, Now());
  }
  EXPECT_EQ(dispatcher_.Sync(session, {}, 1, Now()).draining, "");
}

TEST_F(DispatcherTest, AWorkerThatLosesOneLeaseAfterAnotherIsDrainedAlsoUnderNewNames) {
  dispatcher_.Add(Batch(30), Now());
  std::string draining;
  int lives = 0;
  for (; lives < 20 && draining.empty(); ++lives) {
    const std::string session = dispatcher_.Register(Worker("host:" + std::to_string(lives)), Now());
    draining = dispatcher_.Sync(session, {}, 1, Now()).draining;
    Pass(absl::Seconds(100));
  }
  EXPECT_EQ(lives, 5) << "four leases were lost";
  EXPECT_THAT(draining, HasSubstr("lost 4 leases in a row"));
  // Not for ever.
  Pass(absl::Minutes(10));
  EXPECT_EQ(dispatcher_.Sync(dispatcher_.Register(Worker("host:99"), Now()), {}, 1, Now()).draining, "");
}

TEST_F(DispatcherTest, AGrantThatWasLostOnItsWayComesAgain) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(2), Now());
  const auto lost = Take(session).at(0);
  EXPECT_THAT(Take(session), IsEmpty());  // says that it holds nothing
  Pass(absl::Seconds(6));
  const auto again = Take(session, 9);
  EXPECT_THAT(again, SizeIs(2));
  EXPECT_THAT(dispatcher_.Sync(session, {lost.lease}, 0, Now()).cancels, ElementsAre(lost.lease));
}

TEST_F(DispatcherTest, AWorkerThatBreaksOffIsLostSoonUnlessItComesBack) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(session).at(0);
  dispatcher_.ConnectionBroke(session, Now());
  Pass(absl::Seconds(3));
  EXPECT_FALSE(dispatcher_.Sync(session, {grant.lease}, 0, Now()).unknown_session);
  Pass(absl::Seconds(30));
  EXPECT_TRUE(dispatcher_.Live(session));
  dispatcher_.ConnectionBroke(session, Now());
  Pass(absl::Seconds(6));
  EXPECT_FALSE(dispatcher_.Live(session));
  EXPECT_TRUE(dispatcher_.Sync(session, {grant.lease}, 0, Now()).unknown_session);
  EXPECT_EQ(dispatcher_.Sessions().views.at(0).state, "lost");
  const std::string again = dispatcher_.Register(Worker("a"), Now());
  EXPECT_THAT(dispatcher_.Sessions().views, SizeIs(1));  // the same device, not a second one
  EXPECT_THAT(Take(again), SizeIs(1));
}

TEST_F(DispatcherTest, AnUnknownSessionIsToldToRegister) {
  EXPECT_TRUE(dispatcher_.Sync("s0", {}, 1, Now()).unknown_session);
}

TEST_F(DispatcherTest, AnInstanceThatRegistersAgainKeepsItsLeases) {
  WorkerInfo info = Worker("a");
  info.instance = "i1";
  const std::string before = dispatcher_.Register(info, Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(before).at(0);
  const std::string after = dispatcher_.Register(info, Now());
  EXPECT_TRUE(dispatcher_.Sync(before, {grant.lease}, 1, Now()).unknown_session);
  EXPECT_TRUE(dispatcher_.Sync(after, {grant.lease}, 1, Now()).empty());
  ItemResult result = Ok(grant, 0);
  result.instance = "i1";
  EXPECT_EQ(dispatcher_.Judge(result).judgement, Judgement::kFirst);
}

TEST_F(DispatcherTest, TwoWorkersOfOneNameLiveSideBySide) {
  WorkerInfo one = Worker("host:1"), two = Worker("host:1");
  one.instance = "i1";
  two.instance = "i2";
  const std::string first = dispatcher_.Register(one, Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(first).at(0);
  dispatcher_.Register(two, Now());
  EXPECT_TRUE(dispatcher_.Sync(first, {grant.lease}, 0, Now()).empty());
  EXPECT_THAT(dispatcher_.Sessions().views, SizeIs(2));
}

TEST_F(DispatcherTest, OnlyTheInstanceThatHasTheLeaseHandsInForIt) {
  WorkerInfo info = Worker("a");
  info.instance = "i1";
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(dispatcher_.Register(info, Now())).at(0);
  ItemResult forged = Ok(grant, 0, 1e-12);
  for (const char* instance : {"", "i2"}) {
    forged.instance = instance;
    EXPECT_EQ(dispatcher_.Judge(forged).judgement, Judgement::kConflict);
    dispatcher_.Commit(forged, Now());
  }
  forged = Ok(grant, 0);
  forged.instance = "i1";
  EXPECT_EQ(dispatcher_.Judge(forged).judgement, Judgement::kFirst);
}

// Whoever reads a log or a spool knows a worker's instance, but not its key.
TEST_F(DispatcherTest, OnlyWhoProvesWhatTheWorkerProvedHandsInForIt) {
  WorkerInfo info = Worker("a");
  info.instance = "i1";
  info.holder = "key 1";
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(dispatcher_.Register(info, Now())).at(0);
  ItemResult result = Ok(grant, 0, 1e-12);
  result.instance = "i1";
  for (const char* holder : {"", "key 2"}) {
    result.holder = holder;
    EXPECT_EQ(dispatcher_.Judge(result).judgement, Judgement::kConflict);
  }
  result.holder = "key 1";
  EXPECT_EQ(dispatcher_.Judge(result).judgement, Judgement::kFirst);
}

TEST_F(DispatcherTest, SessionsAndLeasesCanNotBeGuessed) {
  std::set<int64_t> leases;
  WorkerInfo info = Worker("a");
  info.slots = 3;
  const std::string session = dispatcher_.Register(info, Now());
  EXPECT_THAT(session, SizeIs(32));
  for (int i = 0; i < 3; ++i) dispatcher_.Add(Batch(1), Now());
  for (const auto& grant : Take(session, 3)) leases.insert(grant.lease);
  ASSERT_THAT(leases, SizeIs(3));
  EXPECT_GT(*leases.rbegin() - *leases.begin(), 1'000'000) << "of 63 random bits";
}

TEST_F(DispatcherTest, AWorkerGetsNoMoreThanTheSlotsItRegistered) {
  WorkerInfo info = Worker("a");
  info.slots = 2;
  const std::string session = dispatcher_.Register(info, Now());
  for (int i = 0; i < 5; ++i) dispatcher_.Add(Batch(1), Now());
  EXPECT_THAT(Take(session, 100), SizeIs(2));
  EXPECT_THAT(Take(session, 100), IsEmpty());
}

TEST_F(DispatcherTest, WhatFailedAtOneWorkerGoesToAnotherWhereThereIsOne) {
  WorkerInfo a = Worker("a"), b = Worker("b");
  a.instance = "ia";
  b.instance = "ib";
  const std::string first = dispatcher_.Register(a, Now());
  dispatcher_.Add(Batch(1), Now());
  ItemResult broken = Broken(Take(first).at(0), 0);
  broken.instance = "ia";
  const std::string second = dispatcher_.Register(b, Now());
  dispatcher_.Commit(broken, Now());
  EXPECT_THAT(Take(first), IsEmpty());
  Pass(absl::Seconds(59));
  EXPECT_THAT(Take(first), IsEmpty());
  broken = Broken(Take(second).at(0), 0);
  broken.instance = "ib";
  dispatcher_.Commit(broken, Now());
  EXPECT_THAT(Take(second), SizeIs(1)) << "both failed: either may try a last time";
}

TEST_F(DispatcherTest, WhatWaitsLongForAnotherWorkerIsTakenByTheSame) {
  WorkerInfo a = Worker("a"), b = Worker("b");
  a.instance = "ia";
  b.instance = "ib";
  const std::string first = dispatcher_.Register(a, Now());
  const std::string second = dispatcher_.Register(b, Now());
  dispatcher_.Add(Batch(1), Now());
  ItemResult broken = Broken(Take(first).at(0), 0);
  broken.instance = "ia";
  dispatcher_.Commit(broken, Now());
  for (int i = 0; i < 6; ++i) {
    Pass(absl::Seconds(10));
    dispatcher_.Sync(first, {}, 0, Now());
    dispatcher_.Sync(second, {}, 0, Now());
  }
  EXPECT_THAT(Take(first), SizeIs(1));
}

TEST_F(DispatcherTest, ALeaseDoesNotLiveForEverHoweverOftenItIsRenewed) {
  const std::string session = dispatcher_.Register(Worker("stuck"), Now());
  dispatcher_.Add(Batch(4), Now());
  const auto grant = Take(session).at(0);
  int renewals = 0;
  for (; renewals < 1000; ++renewals) {
    Pass(absl::Seconds(10));
    if (!dispatcher_.Sync(session, {grant.lease}, 0, Now()).empty()) break;
  }
  EXPECT_LT(renewals, 60) << "four candidates of 20 s, and a reserve of 5 min";
  EXPECT_GE(renewals, 30);
  EXPECT_THAT(Take(dispatcher_.Register(Worker("other"), Now()), 9), SizeIs(4));
}

TEST_F(DispatcherTest, AnItemIsNeverQueuedTwice) {
  const std::string slow = dispatcher_.Register(Worker("slow"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto first = Take(slow).at(0);
  Pass(absl::Seconds(70));  // queued again
  const std::string other = dispatcher_.Register(Worker("other"), Now());
  dispatcher_.Commit(Broken(first, 0), Now());  // late, and of an older attempt or not: it waits already
  const auto second = Take(other);
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_THAT(Take(dispatcher_.Register(Worker("third"), Now()), 9), IsEmpty());
  EXPECT_EQ(dispatcher_.sizes().queued, 0u);
}

TEST_F(DispatcherTest, AWorkerThatLeavesHandsBackAndNobodyIsBlamed) {
  dispatcher_.Add(Batch(1), Now());
  for (int life = 0; life < 10; ++life) {
    const std::string session = dispatcher_.Register(Worker("host:" + std::to_string(life)), Now());
    ASSERT_THAT(Take(session), SizeIs(1)) << "life " << life;
    dispatcher_.Leave(session, "SIGTERM", Now());
    EXPECT_FALSE(dispatcher_.Live(session));
  }
  EXPECT_THAT(dispatcher_.TakeGivenUp(), IsEmpty());
}

TEST_F(DispatcherTest, FinalsWhoseWorkerDiedGoOnTogether) {
  const std::string dying = dispatcher_.Register(Worker("dying"), Now());
  Work finals = Batch(3);
  finals.kind = WorkKind::kFinals;
  dispatcher_.Add(finals, Now());
  ASSERT_THAT(Take(dying), SizeIs(1));
  Pass(absl::Seconds(100));
  const auto again = Take(dispatcher_.Register(Worker("other"), Now()), 9);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_THAT(Attempts(again[0]), ElementsAre(2, 2, 2));
}

TEST_F(DispatcherTest, ADrainedWorkerFinishesWhatItHoldsAndIsTold) {
  WorkerInfo info = Worker("a");
  info.slots = 2;
  const std::string session = dispatcher_.Register(info, Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(session).at(0);
  dispatcher_.Add(Batch(1), Now());
  EXPECT_EQ(dispatcher_.Drain("", "a", "new driver"), 1);
  const auto outcome = dispatcher_.Sync(session, {grant.lease}, 1, Now());
  EXPECT_TRUE(outcome.empty());
  EXPECT_THAT(outcome.draining, HasSubstr("new driver"));
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kFirst);
  EXPECT_EQ(dispatcher_.Undrain("", "a"), 1);
  EXPECT_THAT(dispatcher_.Sync(session, {grant.lease}, 1, Now()).grants, SizeIs(1));
}

TEST_F(DispatcherTest, TheLatestReadingsOfACanaryAreKept) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  const auto measured = [&](double drift) {
    dispatcher_.Add(Batch(1), Now());
    ItemResult result = Ok(Take(session).at(0), 0);
    result.trial.drift = drift;
    dispatcher_.Commit(result, Now());
    Pass(absl::Seconds(1));
  };
  measured(1);
  measured(1);  // the same reading again, as all trials of a batch have it
  measured(0);  // not known
  measured(1.5);
  const auto canary = dispatcher_.Sessions().views.at(0).canary;
  ASSERT_THAT(canary, SizeIs(2));
  EXPECT_EQ(canary[1].drift, 1.5);
  EXPECT_GT(canary[1].at, canary[0].at);
  for (size_t i = 0; i < CanaryHistory::kMost; ++i) measured(2 + static_cast<double>(i));
  EXPECT_THAT(dispatcher_.Sessions().views.at(0).canary, SizeIs(CanaryHistory::kMost));
  EXPECT_EQ(dispatcher_.Sessions().views.at(0).canary.front().drift, 2);
}

TEST_F(DispatcherTest, AWorkerOfAnotherTargetSaysSo) {
  WorkerInfo other = Worker("other");
  other.target = "t2";
  dispatcher_.Register(other, Now());
  dispatcher_.Add(Batch(1), Now());
  EXPECT_EQ(dispatcher_.Sessions().views.at(0).state, "target_mismatch");
  EXPECT_THAT(dispatcher_.Sessions().views.at(0).reason, HasSubstr("'t'"));
}

TEST_F(DispatcherTest, CancellingAJobDropsItsQueueAndItsLeasesButNotAnothersJob) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1, 1), Now());
  const auto grant = Take(session).at(0);
  dispatcher_.Add(Batch(1, 1), Now());
  dispatcher_.Add(Batch(1, 2), Now());
  dispatcher_.CancelJob(1);
  const auto outcome = dispatcher_.Sync(session, {grant.lease}, 5, Now());
  EXPECT_THAT(outcome.cancels, ElementsAre(grant.lease));
  ASSERT_THAT(outcome.grants, SizeIs(1));
  EXPECT_EQ(outcome.grants[0].work->job, 2);
  // What it had measured already is kept, and drives nothing.
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kLate);
  dispatcher_.ForgetJob(1);
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kUnknown);
}

TEST_F(DispatcherTest, ACancelledLeaseThatIsNotRestatedIsOverAtOnce) {
  WorkerInfo info = Worker("a");
  info.shares_server_cores = true;
  const std::string session = dispatcher_.Register(info, Now());
  dispatcher_.Add(Batch(1, 1), Now());
  const auto grant = Take(session).at(0);
  dispatcher_.CancelJob(1);
  EXPECT_TRUE(dispatcher_.SharedCoresBusy());  // it is still being measured
  dispatcher_.Sync(session, {}, 1, Now());
  EXPECT_FALSE(dispatcher_.SharedCoresBusy());
}

TEST_F(DispatcherTest, WithdrawnItemsAreGrantedNoMoreAndTheirLeasesCancelled) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  const auto first = dispatcher_.Add(Batch(2, 1), Now());
  const auto grant = Take(session).at(0);
  const auto second = dispatcher_.Add(Batch(1, 1), Now());
  dispatcher_.Withdraw({first[0], second[0]});
  EXPECT_TRUE(dispatcher_.Sync(session, {grant.lease}, 5, Now()).empty());  // one item is still wanted
  dispatcher_.Withdraw({first[1]});
  EXPECT_THAT(dispatcher_.Sync(session, {grant.lease}, 5, Now()).cancels, ElementsAre(grant.lease));
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kLate);
}

TEST_F(DispatcherTest, AServerThatStoodStillDoesNotBlameItsWorkers) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(session).at(0);
  Pass(absl::Seconds(20));
  clock_.Advance(absl::Seconds(300));  // SIGSTOP
  dispatcher_.Tick(Now());
  EXPECT_TRUE(dispatcher_.Live(session));
  EXPECT_TRUE(dispatcher_.Sync(session, {grant.lease}, 1, Now()).empty());
  EXPECT_EQ(dispatcher_.Judge(Ok(grant, 0)).judgement, Judgement::kFirst);
}

TEST_F(DispatcherTest, AFinishedLeaseThatIsRestatedIsNoNews) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  dispatcher_.Add(Batch(1), Now());
  const auto grant = Take(session).at(0);
  dispatcher_.Commit(Ok(grant, 0), Now());
  EXPECT_TRUE(dispatcher_.Sync(session, {grant.lease}, 1, Now()).empty());
}

TEST_F(DispatcherTest, SharedCoresAreGrantedNothingWhileHeld) {
  WorkerInfo info = Worker("near");
  info.shares_server_cores = true;
  const std::string near = dispatcher_.Register(info, Now());
  const std::string far = dispatcher_.Register(Worker("far"), Now());
  for (int i = 0; i < 2; ++i) dispatcher_.Add(Batch(1), Now());
  dispatcher_.HoldSharedCores(true);
  EXPECT_THAT(Take(near), IsEmpty());
  EXPECT_THAT(Take(far), SizeIs(1));
  EXPECT_FALSE(dispatcher_.SharedCoresBusy());
  dispatcher_.HoldSharedCores(false);
  const auto grant = Take(near).at(0);
  EXPECT_TRUE(dispatcher_.SharedCoresBusy());
  dispatcher_.Commit(Ok(grant, 0), Now());
  EXPECT_FALSE(dispatcher_.SharedCoresBusy());
}

TEST_F(DispatcherTest, FinalsAreTriedOnceAndFailTogether) {
  DispatchOptions options;
  options.suspects.most_failures = 2;
  dispatcher_ = Dispatcher(options);
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  Work finals = Batch(3);
  finals.kind = WorkKind::kFinals;
  dispatcher_.Add(finals, Now());
  const auto grant = Take(session).at(0);
  for (const WorkItem& item : grant.work->items) {
    const ItemResult failed{.lease = grant.lease, .item = item.id, .attempt = 1};
    EXPECT_EQ(dispatcher_.Judge(failed).judgement, Judgement::kFirst) << "some by themselves would tell nothing";
    dispatcher_.Commit(failed, Now());
  }
  dispatcher_.Add(Batch(1), Now());
  EXPECT_THAT(Take(session), SizeIs(1)) << "one lease failed, not three";
}

TEST_F(DispatcherTest, AModelsResultIsKnownByItsLease) {
  const std::string session = dispatcher_.Register(Worker("a"), Now());
  Work model = Batch(1);
  model.kind = WorkKind::kModel;
  const auto ids = dispatcher_.Add(model, Now());
  const auto grant = Take(session).at(0);
  const ItemResult result{.lease = grant.lease,
                          .model = ModelResult{.outcome = Outcome::kOk, .untuned_s = {2}, .tuned_s = {1}}};
  const auto verdict = dispatcher_.Judge(result);
  EXPECT_EQ(verdict.judgement, Judgement::kFirst);
  EXPECT_EQ(verdict.item.id, ids[0]);
  dispatcher_.Commit(result, Now());
  EXPECT_EQ(dispatcher_.Judge(result).judgement, Judgement::kDuplicate);
}

TEST_F(DispatcherTest, OfSeveralKindsAJobGetsTheOneOfMostWorkers) {
  WorkerInfo old = Worker("old"), first = Worker("first"), second = Worker("second");
  old.codegen_id = "c9";
  old.slots = 64;  // anybody may say so
  first.slots = second.slots = 2;
  dispatcher_.Register(old, Now());
  dispatcher_.Register(first, Now());
  EXPECT_EQ(dispatcher_.FindWorker({.key = "k"})->codegen_id, "c9");
  const std::string session = dispatcher_.Register(second, Now());
  EXPECT_EQ(dispatcher_.FindWorker({.key = "k"})->codegen_id, "c");
  EXPECT_EQ(dispatcher_.Slots({"k", "t", "c"}), 4);
  dispatcher_.Leave(session, "it ends", Now());
  EXPECT_EQ(dispatcher_.FindWorker({.key = "k"})->codegen_id, "c9");
  EXPECT_EQ(dispatcher_.Slots({"k", "t", "c"}), 2);
}

TEST_F(DispatcherTest, AWorkerOfAnotherVersionIdlesVisibly) {
  WorkerInfo old = Worker("old");
  old.codegen_id = "c0";
  const std::string session = dispatcher_.Register(old, Now());
  EXPECT_EQ(dispatcher_.Sessions().views.at(0).state, "idle");
  dispatcher_.Add(Batch(1), Now());
  EXPECT_THAT(Take(session), IsEmpty());
  EXPECT_EQ(dispatcher_.Sessions().views.at(0).state, "version_mismatch");
  EXPECT_EQ(dispatcher_.FindWorker({"k", "", "c"}), std::nullopt);
  EXPECT_THAT(dispatcher_.WhyNoWorker({"k", "", "c"}), HasSubstr("'c0'"));
  EXPECT_EQ(dispatcher_.WhyNoWorker({"k2", "", "c"}), "no worker serves device key 'k2'");
}

TEST_F(DispatcherTest, IdsStartAboveThoseOfAnEarlierServer) {
  Dispatcher later{DispatchOptions{.first_id = 1'000'000}};
  later.Register(Worker("a"), Now());
  EXPECT_GE(later.Add(Batch(1), Now())[0], 1'000'000);
}

// Whatever happens to workers, replies and messages, each item settles exactly once, by a result or by being given up.
TEST_F(DispatcherTest, EachItemSettlesOnceUnderRandomFaults) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Dispatcher dispatcher{DispatchOptions{.remembered = seed % 2 == 0 ? 1024u : 3u}};
    FakeClock clock;
    Rng rng(seed);
    std::map<int64_t, int> settled;
    for (int i = 0; i < 12; ++i) {
      for (const int64_t id : dispatcher.Add(Batch(1 + static_cast<int>(rng.Below(6)), 1 + i % 3), clock.Monotonic()))
        settled[id] = 0;
    }
    struct Sim {
      std::string session;
      std::vector<Dispatcher::Grant> grants;
    };
    std::vector<Sim> workers(3);
    std::vector<ItemResult> sent;
    int lives = 0;
    const auto hand_in = [&](const ItemResult& result) {
      const auto verdict = dispatcher.Judge(result);
      if (verdict.judgement == Judgement::kFirst) ++settled[verdict.item.id];
      dispatcher.Commit(result, clock.Monotonic());
      sent.push_back(result);
    };
    const auto all_settled = [&] {
      return std::all_of(settled.begin(), settled.end(), [](const auto& s) { return s.second > 0; });
    };
    for (int step = 0; step < 5000 && !all_settled(); ++step) {
      clock.Advance(absl::Seconds(static_cast<int64_t>(rng.Below(4))));
      dispatcher.Tick(clock.Monotonic());
      for (const auto& lost : dispatcher.TakeGivenUp()) ++settled[lost.item.id];
      Sim& worker = workers[rng.Below(3)];
      const int64_t fate = rng.Below(20);
      if (worker.session.empty() || fate == 0) {  // killed, and started again
        worker = {dispatcher.Register(Worker("w" + std::to_string(lives++)), clock.Monotonic()), {}};
      } else if (fate == 1 && !sent.empty()) {  // a message comes twice
        hand_in(sent[rng.Below(static_cast<int64_t>(sent.size()))]);
      } else if (fate < 10 && !worker.grants.empty()) {
        const Dispatcher::Grant grant = worker.grants.back();
        worker.grants.pop_back();
        for (size_t i = 0; i < grant.work->items.size(); ++i)
          hand_in(rng.Below(9) == 0 ? Broken(grant, i) : Ok(grant, i));
      } else {
        std::vector<int64_t> held;
        for (const auto& grant : worker.grants) held.push_back(grant.lease);
        const auto outcome = dispatcher.Sync(worker.session, held, 1, clock.Monotonic());
        if (outcome.unknown_session) worker = {};
        if (rng.Below(10) == 0) continue;  // the reply is lost
        for (const auto& grant : outcome.grants) worker.grants.push_back(grant);
        for (const int64_t cancel : outcome.cancels) {
          std::erase_if(worker.grants, [&](const auto& grant) { return grant.lease == cancel; });
        }
      }
    }
    for (const auto& [id, times] : settled) EXPECT_EQ(times, 1) << "item " << id << ", seed " << seed;
  }
}

TEST_F(DispatcherTest, StatesAreCountedAsTheyAreShown) {
  const std::string left = dispatcher_.Register(Worker("left"), Now());
  const std::string measuring = dispatcher_.Register(Worker("measuring"), Now());
  dispatcher_.Leave(left, "the test wants it to", Now());
  dispatcher_.HoldBack(dispatcher_.Register(Worker("pending"), Now()), "it waits");
  dispatcher_.Register(Worker("drained"), Now());
  dispatcher_.Drain("", "drained", "");
  dispatcher_.Register(Worker("idle", "another key"), Now());
  dispatcher_.Add(Batch(1), Now());
  ASSERT_THAT(Take(measuring), SizeIs(1));
  dispatcher_.Add(Batch(1, 2), Now());
  WorkerInfo other = Worker("other version"), target = Worker("other target");
  other.codegen_id = "c2";
  target.target = "t2";
  dispatcher_.Register(other, Now());
  dispatcher_.Register(target, Now());
  std::map<std::string, int64_t> shown;
  for (const Dispatcher::SessionView& view : dispatcher_.Sessions().views) ++shown[view.state];
  EXPECT_THAT(shown, SizeIs(7)) << "one in each state";
  EXPECT_EQ(dispatcher_.SessionsByState(), shown);
}

TEST_F(DispatcherTest, PagesHoldEachSessionOnceAndItsPlaceStays) {
  std::vector<std::string> sessions;
  for (int i = 0; i < 9; ++i) sessions.push_back(dispatcher_.Register(Worker(absl::StrCat("w", i / 2)), Now()));
  const auto names = [&](size_t most) {
    std::vector<std::string> all;
    Dispatcher::SessionPage page;
    do {
      page = dispatcher_.SessionsAfter(page.next, most);
      EXPECT_LE(page.views.size(), most);
      for (const Dispatcher::SessionView& view : page.views) all.push_back(view.info.name);
    } while (!page.next.empty() && all.size() <= sessions.size());
    return all;
  };
  const std::vector<std::string> once = names(1000);
  EXPECT_THAT(once, testing::UnorderedElementsAre("w0", "w0", "w1", "w1", "w2", "w2", "w3", "w3", "w4"));
  for (const size_t most : {1, 2, 4, 9}) EXPECT_EQ(names(most), once);
  const std::string place = dispatcher_.SessionsAfter("", 1).next;
  EXPECT_FALSE(place.empty());
  for (const std::string& session : sessions) EXPECT_THAT(place, testing::Not(HasSubstr(session)));
  dispatcher_.Leave(sessions[3], "the test wants it to", Now());
  dispatcher_.Register(Worker("w1"), Now());
  EXPECT_EQ(names(2), once);
}

}  // namespace
}  // namespace temper
