// Which jobs run, and that nobody keeps others from what all share.
#include "tuner_server/service/job_places.h"

#include <gtest/gtest.h>

#include "tuner_server/service/fair_share.h"
#include "tuner_server/service/shared_room.h"

namespace temper {
namespace {

TEST(JobPlaces, NoOwnerTakesMoreThanItLeaves) {
  JobPlaces places(8);
  int64_t job = 0;
  const auto take = [&](const std::string& owner) {
    int taken = 0;
    while (places.Ask(++job, owner, 0)) ++taken;
    return taken;
  };
  EXPECT_EQ(take("alice"), 4);
  EXPECT_EQ(take("bob"), 2);
  EXPECT_EQ(take("carol"), 1);
  EXPECT_EQ(take("dave"), 1) << "the first is taken wherever there is room";
  EXPECT_EQ(take("erin"), 0);
}

TEST(JobPlaces, WhoHasNoNameTakesThemAll) {
  JobPlaces places(3);
  for (int job = 1; job <= 3; ++job) EXPECT_TRUE(places.Ask(job, "", 0));
  EXPECT_FALSE(places.Ask(4, "", 0));
}

TEST(JobPlaces, AFreePlaceGoesByPriorityThenToTheOwnerOfFewestThenByAge) {
  JobPlaces places(3);
  EXPECT_TRUE(places.Ask(1, "alice", 0));
  EXPECT_TRUE(places.Ask(2, "bob", 0));
  EXPECT_TRUE(places.Ask(3, "carol", 0));
  for (int job : {4, 5}) EXPECT_FALSE(places.Ask(job, "alice", 0));
  EXPECT_FALSE(places.Ask(6, "dave", 0));
  EXPECT_FALSE(places.Ask(7, "dave", 5));
  const auto next = [&](int64_t left) {
    EXPECT_TRUE(places.Leave(left));
    for (int64_t job = 4; job <= 7; ++job) {
      if (places.Ask(job, job < 6 ? "alice" : "dave", 0)) return job;
    }
    return int64_t{0};
  };
  EXPECT_EQ(next(2), 7) << "the highest priority";
  places.SetPriority(5, 1);
  places.SetPriority(6, 1);
  EXPECT_TRUE(places.Leave(1)) << "alice has none now, dave one";
  EXPECT_TRUE(places.Ask(5, "alice", 1));
  EXPECT_FALSE(places.Ask(6, "dave", 1));
  EXPECT_FALSE(places.Leave(4)) << "it waited";
  EXPECT_FALSE(places.Leave(3)) << "dave has one of three, and leaves the last to others";
  EXPECT_TRUE(places.Leave(7));
  EXPECT_TRUE(places.Ask(6, "dave", 1));
  EXPECT_FALSE(places.Leave(6));
}

TEST(LeavesEnough, IsNotFooledByWhatIsHuge) {
  EXPECT_TRUE(LeavesEnough("a", 0, 10, 0, 10));
  EXPECT_FALSE(LeavesEnough("a", 0, 11, 0, 10));
  EXPECT_FALSE(LeavesEnough("a", 0, static_cast<size_t>(-1), 5, 10));
  EXPECT_FALSE(LeavesEnough("", 0, 1, 11, 10));
  EXPECT_FALSE(LeavesEnough("a", 1, 5, 1, 10));
  EXPECT_TRUE(LeavesEnough("a", 1, 4, 1, 10));
}

TEST(SharedRoom, IsSharedAndGivenBack) {
  SharedRoom room(100);
  EXPECT_TRUE(room.Take("a", 40));
  EXPECT_FALSE(room.Take("a", 20)) << "it would have more than it leaves";
  EXPECT_TRUE(room.Take("b", 30));
  EXPECT_FALSE(room.Take("c", 40)) << "there is no room";
  room.Leave("a", 40);
  EXPECT_TRUE(room.Take("c", 40));
  EXPECT_TRUE(room.Take("", 30)) << "who has no name takes what there is";
}

}  // namespace
}  // namespace temper
