#include "base/chores.h"

#include <gtest/gtest.h>

#include <future>

namespace temper {
namespace {

TEST(ChoresTest, EachComesRoundByItsOwnTime) {
  FakeClock clock;
  int hourly = 0, daily = 0;
  ChoreList list({{"hourly", absl::Hours(1),
                   [&] {
                     ++hourly;
                     return absl::OkStatus();
                   }},
                  {"daily", absl::Hours(24),
                   [&] {
                     ++daily;
                     return absl::OkStatus();
                   },
                   absl::Hours(2)}},
                 clock.Monotonic());
  EXPECT_EQ(list.Next(), absl::ZeroDuration());
  for (int minute = 0; minute <= 48 * 60; ++minute) {
    list.RunDue(clock);
    clock.Advance(absl::Minutes(1));
  }
  EXPECT_EQ(hourly, 49);
  EXPECT_EQ(daily, 2);  // after 2 and 26 hours
}

TEST(ChoresTest, TimeIsCountedFromWhenAChoreEnded) {
  FakeClock clock;
  int runs = 0;
  ChoreList list({{"slow", absl::Hours(1),
                   [&] {
                     ++runs;
                     clock.Advance(absl::Hours(5));
                     return absl::OkStatus();
                   }}},
                 clock.Monotonic());
  list.RunDue(clock);
  EXPECT_EQ(list.Next(), absl::Hours(6));
  list.RunDue(clock);
  EXPECT_EQ(runs, 1);
}

TEST(ChoresTest, AFailureKeepsNothingFromComingRound) {
  FakeClock clock;
  int failed = 0, other = 0;
  ChoreList list({{"broken", absl::Hours(1),
                   [&] {
                     ++failed;
                     return absl::UnavailableError("the disk is full");
                   }},
                  {"other", absl::Hours(1),
                   [&] {
                     ++other;
                     return absl::OkStatus();
                   }}},
                 clock.Monotonic());
  for (int i = 0; i < 3; ++i) {
    list.RunDue(clock);
    clock.Advance(absl::Hours(1));
  }
  EXPECT_EQ(failed, 3);
  EXPECT_EQ(other, 3);
}

TEST(ChoresTest, AThreadDoesThemAndEndsWhenAsked) {
  std::promise<void> done;
  bool told = false;
  {
    const ChoreThread thread({{"first", absl::Hours(1),
                               [&] {
                                 if (!std::exchange(told, true)) done.set_value();
                                 return absl::OkStatus();
                               }}},
                             Clock::System());
    done.get_future().wait();
  }
  const ChoreThread idle({}, Clock::System());  // nothing to do: waits, and ends at once
}

}  // namespace
}  // namespace temper
