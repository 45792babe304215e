#include "tuner_server/tuning/allocator.h"

#include <gtest/gtest.h>

#include <cmath>

namespace temper {
namespace {

constexpr AllocatorOptions kNoChance{.epsilon = 0};

TaskStanding Standing(double weight, std::vector<double> best_after, std::string kind = "conv2d", double flops = 1e6) {
  return {weight, flops, std::move(kind), std::move(best_after), true};
}

TEST(Allocator, ATaskWithoutARoundComesFirst) {
  const std::vector<TaskStanding> tasks{Standing(100, {1}), Standing(1, {}), Standing(1, {})};
  Rng rng(1);
  EXPECT_EQ(NextTask(tasks, rng), 1u);
}

TEST(Allocator, OfThoseWithoutARoundTheLongestComesFirst) {
  std::vector<TaskStanding> tasks{Standing(1, {}), Standing(1, {}), Standing(1, {}), Standing(100, {1})};
  tasks[0].estimate_s = 1e-3;
  tasks[1].estimate_s = 3e-3;
  tasks[2].estimate_s = 2e-3;
  Rng rng(1);
  EXPECT_EQ(NextTask(tasks, rng), 1u);
  tasks[1].open = false;
  EXPECT_EQ(NextTask(tasks, rng), 2u);
}

TEST(Allocator, WeightDecidesBetweenEqualTasks) {
  const std::vector<TaskStanding> tasks{Standing(1, {1e-3}), Standing(3, {1e-3}), Standing(2, {1e-3})};
  Rng rng(1);
  EXPECT_EQ(NextTask(tasks, rng, kNoChance), 1u);
}

TEST(Allocator, ATaskThatStillImprovesIsPreferredToOneThatDoesNot) {
  const std::vector<TaskStanding> tasks{Standing(1, {4e-3, 4e-3, 4e-3, 4e-3, 4e-3}, "a"),
                                        Standing(1, {40e-3, 20e-3, 10e-3, 6e-3, 4e-3}, "b")};
  EXPECT_GT(ExpectedGain(tasks, 1), ExpectedGain(tasks, 0));
}

TEST(Allocator, ATaskFarBehindTheRateOfItsKindIsExpectedToGain) {
  // After many rounds; alike but for the rate: the second reaches a tenth of it.
  const std::vector<double> many(20, 1e-3);
  const std::vector<TaskStanding> tasks{Standing(1, many, "conv2d", 1e9), Standing(1, many, "conv2d", 1e8),
                                        Standing(1, many, "matmul", 1e8)};
  EXPECT_GT(ExpectedGain(tasks, 1), 5 * ExpectedGain(tasks, 0));
  EXPECT_NEAR(ExpectedGain(tasks, 2), ExpectedGain(tasks, 0), 1e-12);  // another kind says nothing
}

TEST(Allocator, ExpectationFallsWithRoundsWithoutGain) {
  double before = INFINITY;
  for (int rounds = 1; rounds < 10; ++rounds) {
    const std::vector<TaskStanding> tasks{Standing(1, std::vector<double>(rounds, 1e-3))};
    const double gain = ExpectedGain(tasks, 0);
    EXPECT_LT(gain, before);
    EXPECT_GT(gain, 0);
    before = gain;
  }
}

TEST(Allocator, OnlyOpenTasksAreChosenAndNoneWhenAllAreClosed) {
  std::vector<TaskStanding> tasks{Standing(9, {1}), Standing(1, {1e-3}), Standing(9, {})};
  tasks[0].open = tasks[2].open = false;
  Rng rng(3);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(NextTask(tasks, rng, {.epsilon = 0.5}), 1u);
  tasks[1].open = false;
  EXPECT_EQ(NextTask(tasks, rng), std::nullopt);
}

TEST(Allocator, ChanceGivesEveryTaskABatchNowAndThen) {
  const std::vector<TaskStanding> tasks{Standing(1000, {1}), Standing(1, {1e-6}), Standing(1, {1e-6})};
  Rng rng(5);
  int others = 0;
  for (int i = 0; i < 1000; ++i) others += *NextTask(tasks, rng, {.epsilon = 0.3}) != 0;
  EXPECT_GT(others, 130);  // 200 expected
  EXPECT_LT(others, 270);
}

}  // namespace
}  // namespace temper
