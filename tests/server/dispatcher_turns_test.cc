// Who goes next: finals, priorities, owners and jobs in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/dispatcher_fixture.h"

namespace temper {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(DispatcherTest, FinalsGoFirstThenPrioritiesThenOwnersInTurn) {
  WorkerInfo info = Worker("a");
  info.slots = 64;
  const std::string session = dispatcher_.Register(info, Now());
  const auto add = [&](int64_t job, const std::string& owner, int priority, WorkKind kind = WorkKind::kBatch) {
    Work work = Batch(16, job);
    work.owner = owner;
    work.priority = priority;
    work.kind = kind;
    dispatcher_.Add(work, Now());
  };
  for (int i = 0; i < 4; ++i) {
    add(1, "alice", 0);
    add(2, "alice", 0);
    add(3, "bob", 0);
  }
  add(4, "carol", 5);
  add(5, "dora", -5, WorkKind::kFinals);
  std::vector<int64_t> order;
  for (const auto& grant : Take(session, 64)) order.push_back(grant.work->job);
  ASSERT_THAT(order, SizeIs(14));
  EXPECT_EQ(order[0], 5);
  EXPECT_EQ(order[1], 4);
  // While both want, alice's two jobs together get as much as bob's one.
  const std::vector<int64_t> shared(order.begin() + 2, order.begin() + 10);
  EXPECT_EQ(std::count(shared.begin(), shared.end(), 3), 4);
  EXPECT_EQ(std::count(shared.begin(), shared.end(), 1), 2);
  EXPECT_EQ(std::count(shared.begin(), shared.end(), 2), 2);
}

TEST_F(DispatcherTest, APriorityMayBeChangedWhileTheJobWaits) {
  dispatcher_.Add(Batch(1, 1), Now());
  dispatcher_.Add(Batch(1, 2), Now());
  dispatcher_.SetPriority(2, 1);
  EXPECT_EQ(Take(dispatcher_.Register(Worker("a"), Now())).at(0).work->job, 2);
}

TEST_F(DispatcherTest, TurnsGoOnWhereTheyWereWhoeverGoesBeforeThemMeanwhile) {
  WorkerInfo info = Worker("a");
  info.slots = 64;
  const std::string session = dispatcher_.Register(info, Now());
  for (int i = 0; i < 8; ++i) {
    dispatcher_.Add(Batch(16, 1), Now());
    dispatcher_.Add(Batch(16, 3), Now());
  }
  std::map<int64_t, int> grants;
  for (int i = 0; i < 8; ++i) {
    Work urgent = Batch(16, 2);
    urgent.priority = 5;
    dispatcher_.Add(urgent, Now());
    for (const auto& grant : Take(session, 2)) ++grants[grant.work->job];
  }
  EXPECT_EQ(grants, (std::map<int64_t, int>{{1, 4}, {2, 8}, {3, 4}}));
}

// A job that is at its finals may have batches that nobody waits for any more, tried again and before them.
TEST_F(DispatcherTest, AJobsFinalsGoBeforeItsOwnBatchesToo) {
  Work finals = Batch(1, 1), other = Batch(1, 2);
  finals.kind = WorkKind::kFinals;
  other.priority = 5;
  dispatcher_.Add(Batch(1, 1), Now());
  dispatcher_.Add(finals, Now());
  dispatcher_.Add(other, Now());
  WorkerInfo info = Worker("a");
  info.slots = 3;
  std::vector<std::pair<int64_t, WorkKind>> order;
  for (const auto& grant : Take(dispatcher_.Register(info, Now()), 3))
    order.emplace_back(grant.work->job, grant.work->kind);
  EXPECT_THAT(order, ElementsAre(std::pair(int64_t{1}, WorkKind::kFinals), std::pair(int64_t{2}, WorkKind::kBatch),
                                 std::pair(int64_t{1}, WorkKind::kBatch)));
}

TEST_F(DispatcherTest, ALeaseFromBeforeARestartIsForAWorkerOfItsKeyAlone) {
  Work work = Batch(1, 1);
  work.items[0].id = 7;
  work.items[0].attempt = 1;
  WorkerInfo holder = Worker("a");
  holder.instance = "an instance";
  WorkerInfo other = holder;
  other.device_key = "another key";
  dispatcher_.Restore(70, work, holder, Now());
  EXPECT_THAT(dispatcher_.Sync(dispatcher_.Register(other, Now()), {70}, 0, Now()).cancels, ElementsAre(70));
  EXPECT_THAT(dispatcher_.Sync(dispatcher_.Register(holder, Now()), {70}, 0, Now()).cancels, IsEmpty());
}

// Of attempts before a restart only the number is known: none of them takes a result or waits for one.
TEST_F(DispatcherTest, ARestoredItemTakesTheResultOfItsLeaseAloneAndIsDoneWithIt) {
  Work work = Batch(1, 1);
  work.items[0].id = 7;
  work.items[0].attempt = 3;
  WorkerInfo holder = Worker("a");
  holder.instance = "an instance";
  clock_.Advance(absl::Seconds(1));
  dispatcher_.Restore(70, work, holder, Now());
  EXPECT_EQ(dispatcher_.GrantedAt({7}), Now());
  ItemResult result{.item = 7, .attempt = 1, .trial = {.outcome = Outcome::kOk, .costs_s = {1e-3}}};
  EXPECT_EQ(dispatcher_.Judge(result).judgement, Dispatcher::Judgement::kUnknown) << "of no lease and no instance";
  result.lease = 70;
  result.instance = "an instance";
  EXPECT_EQ(dispatcher_.Judge(result).judgement, Dispatcher::Judgement::kUnknown) << "of an attempt before it";
  result.attempt = 3;
  EXPECT_EQ(dispatcher_.Judge(result).judgement, Dispatcher::Judgement::kFirst);
  dispatcher_.Commit(result, Now());
  EXPECT_EQ(dispatcher_.sizes().remembered, 1u);
  EXPECT_EQ(dispatcher_.Judge(result).judgement, Dispatcher::Judgement::kDuplicate);
}

TEST_F(DispatcherTest, AttemptsAreCountedOnAfterARestart) {
  WorkerInfo gone = Worker("a");
  gone.instance = "an instance";
  for (const int64_t id : {1, 2}) {
    Work work = Batch(1, 1);
    work.items[0].id = id;
    work.items[0].attempt = static_cast<int>(id) + 1;  // of three
    dispatcher_.Restore(id, work, gone, Now());
  }
  clock_.Advance(absl::Minutes(2));
  dispatcher_.Tick(Now());
  const std::vector<Dispatcher::GivenUp> given_up = dispatcher_.TakeGivenUp();
  ASSERT_THAT(given_up, SizeIs(1));
  EXPECT_EQ(given_up[0].item.id, 2);
  EXPECT_EQ(given_up[0].item.attempt, 3);
  const auto grants = Take(dispatcher_.Register(Worker("b"), Now()));
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_EQ(grants[0].work->items[0].id, 1);
  EXPECT_THAT(Attempts(grants[0]), ElementsAre(3));
  EXPECT_EQ(dispatcher_.Judge(Ok(grants[0], 0)).judgement, Dispatcher::Judgement::kFirst);
}

// What was tried at the old priority once kept all that came after it there.
TEST_F(DispatcherTest, WhatIsTriedAgainHasThePriorityThatItsJobHasNow) {
  const std::string dying = dispatcher_.Register(Worker("dying"), Now());
  dispatcher_.Add(Batch(1, 1), Now());
  ASSERT_THAT(Take(dying), SizeIs(1));
  dispatcher_.SetPriority(1, 1);
  dispatcher_.Add(Batch(1, 2), Now());
  Pass(absl::Seconds(100));  // the lease ends, and the item is queued again
  dispatcher_.Add(Batch(1, 1), Now());
  const std::string other = dispatcher_.Register(Worker("other"), Now());
  std::vector<int64_t> order;
  for (const auto& grant : Take(other, 9)) order.push_back(grant.work->job);
  EXPECT_THAT(order, ElementsAre(1, 1, 2));
}

}  // namespace
}  // namespace temper
