#include "tuner_server/tuning/allocator.h"

#include <gtest/gtest.h>

#include <cmath>

namespace temper {
namespace {

constexpr AllocatorOptions kNoChance{.epsilon = 0};

// A task that has seen these bests, one a trial.
TaskStanding Standing(double weight, const std::vector<double>& bests) {
  TaskStanding task{.weight = weight, .seen = !bests.empty()};
  for (const double best_s : bests) task.course.Add(task.best_s = best_s);
  return task;
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

TEST(Allocator, ATaskInWhichNothingWorkedYetComesBeforeThoseThatWork) {
  const std::vector<TaskStanding> tasks{Standing(100, {1}), Standing(1, {0, 0})};
  Rng rng(1);
  EXPECT_EQ(NextTask(tasks, rng, kNoChance), 1u);
}

TEST(Allocator, WeightDecidesBetweenEqualTasks) {
  const std::vector<TaskStanding> tasks{Standing(1, {1e-3}), Standing(3, {1e-3}), Standing(2, {1e-3})};
  Rng rng(1);
  EXPECT_EQ(NextTask(tasks, rng, kNoChance), 1u);
}

TEST(Allocator, ATaskThatStillImprovesIsPreferredToOneThatDoesNot) {
  std::vector<double> falling;
  for (int i = 0; i < 40; ++i) falling.push_back(4e-3 + 40e-3 / (i + 1));
  EXPECT_GT(ExpectedGain(Standing(1, falling)), 1.5 * ExpectedGain(Standing(1, std::vector<double>(40, 5e-3))));
}

TEST(Allocator, ExpectationFallsAtLeastAsTrialsWithoutGainDo) {
  double before = INFINITY;
  for (int trials = 1; trials < 1000; trials *= 2) {
    const double gain = ExpectedGain(Standing(1, std::vector<double>(trials, 1e-3)));
    EXPECT_LT(gain, before);
    EXPECT_GT(gain, 0);
    if (trials > 8) {
      EXPECT_LT(gain, 0.6 * before);
    }
    before = gain;
  }
}

TEST(Allocator, ALargeTaskGetsMoreTrialsButStarvesNone) {
  // None ever gets better. One takes a hundred times as long as another.
  std::vector<TaskStanding> tasks{Standing(1, {1e-3}), Standing(1, {1e-4}), Standing(1, {1e-5})};
  Rng rng(1);
  std::vector<int> batches(tasks.size());
  for (int i = 0; i < 200; ++i) {
    const size_t next = *NextTask(tasks, rng, kNoChance);
    ++batches[next];
    for (int trial = 0; trial < 16; ++trial) tasks[next].course.Add(tasks[next].best_s);
  }
  EXPECT_GT(batches[0], 2 * batches[1]);
  EXPECT_GT(batches[1], 2 * batches[2]);
  EXPECT_LT(batches[0], 5 * batches[1]);
  EXPECT_GE(batches[2], 8);
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
