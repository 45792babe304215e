#include "tuner_server/tuning/course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace temper {
namespace {

// A search whose distance to `limit` falls as 1/n.
Course Falling(int trials, double limit, double distance) {
  Course course;
  for (int n = 1; n <= trials; ++n) course.Add(limit + distance / n);
  return course;
}

TEST(Course, WhatFallsAsItIsTakenToIsToldExactly) {
  for (const int trials : {8, 32, 64, 256, 1024}) {
    const Course course = Falling(trials, 1, 5);
    EXPECT_NEAR(course.GainLeft(), 5.0 / trials, 1e-12) << trials;
    const double next = 5.0 / trials - 5.0 / (3 * trials);  // what twice as many again bring
    EXPECT_NEAR(course.GainLeft() * course.ShareWithin(2 * trials), next, 1e-12) << trials;
  }
}

TEST(Course, TooFewTrialsSayNothing) {
  EXPECT_TRUE(std::isinf(Falling(7, 1, 5).GainLeft()));
  Course only_failures;
  for (int i = 0; i < 100; ++i) only_failures.Add(0);
  EXPECT_TRUE(std::isinf(only_failures.GainLeft()));
}

TEST(Course, AStandstillIsBelievedOnlyOnceItIsLong) {
  Course course = Falling(64, 1, 5);
  double before = course.GainLeft();
  for (int doubling = 0; doubling < 5; ++doubling) {
    for (int more = course.trials(); more > 0; --more) course.Add(2);
    EXPECT_LT(course.GainLeft(), before);
    before = course.GainLeft();
  }
  EXPECT_NEAR(course.GainLeft() * course.trials(), 5, 0.1) << "all that was gained, over the trials";

  Course never_better;
  for (int n = 0; n < 64; ++n) never_better.Add(1);
  EXPECT_EQ(never_better.GainLeft(), 0);
}

TEST(Course, WhatIsHigherThanBeforeIsNoStepBack) {
  Course steady, wavering;
  for (int n = 1; n <= 64; ++n) {
    steady.Add(1 + 1.0 / n);
    wavering.Add(n % 2 == 1 ? 1 + 1.0 / n : 3);
  }
  EXPECT_EQ(wavering.trials(), 64);
  EXPECT_NEAR(wavering.GainLeft(), steady.GainLeft(), 0.2 * steady.GainLeft());
}

TEST(Course, NoLimitBringsAllAndNoTrialNothing) {
  const Course course = Falling(64, 1, 5);
  EXPECT_EQ(course.ShareWithin(0), 0);
  EXPECT_EQ(course.ShareWithin(64), 0.5);
  EXPECT_NEAR(course.ShareWithin(1e12), 1, 1e-6);
}

// Uniform draws of one knob: on average the best of n is 1/(n + 1) above the limit.
TEST(Course, OfRandomSearchesIsNotTooLittleOnAverageNorFarTooMuch) {
  constexpr int kSearches = 2000, kTrials = 64;
  double expected = 0, gained = 0;
  for (int seed = 0; seed < kSearches; ++seed) {
    Rng rng(static_cast<uint64_t>(seed));
    Course course;
    double best = 2;
    for (int n = 0; n < kTrials; ++n) course.Add(best = std::min(best, 1 + rng.Uniform()));
    expected += course.GainLeft() * course.ShareWithin(kTrials);
    const double before = best;
    for (int n = 0; n < kTrials; ++n) best = std::min(best, 1 + rng.Uniform());
    gained += before - best;
  }
  EXPECT_GT(expected / gained, 0.95);
  EXPECT_LT(expected / gained, 2);
}

}  // namespace
}  // namespace temper
