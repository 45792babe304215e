#include "tuner_server/service/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace temper {
namespace {

// One thread, which waits until it is let go.
class WorkPoolTest : public ::testing::Test {
 protected:
  void Hold(WorkPool& pool) {
    std::promise<void> begun;
    ASSERT_TRUE(pool.Run("", 0,
                         [&] {
                           begun.set_value();
                           open_.wait();
                         })
                    .ok());
    begun.get_future().wait();
  }
  void LetGo() { gate_.set_value(); }

  std::atomic<int> ran_ = 0;

 private:
  std::promise<void> gate_;
  std::shared_future<void> open_ = gate_.get_future().share();
};

TEST_F(WorkPoolTest, RefusesWhatIsTooMuchAndRunsTheRest) {
  {
    WorkPool pool({.threads = 1, .waiting = 2, .bytes = 100});
    Hold(pool);
    EXPECT_TRUE(pool.Run("", 0, [&] { ++ran_; }).ok());
    EXPECT_TRUE(pool.Run("", 0, [&] { ++ran_; }).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(pool.Run("", 0, [&] { ran_ += 100; })));
    LetGo();
  }
  EXPECT_EQ(ran_, 2);
}

TEST_F(WorkPoolTest, WhatWaitsHoldsALimitedNumberOfBytes) {
  WorkPool pool({.threads = 1, .waiting = 10, .bytes = 100});
  Hold(pool);
  EXPECT_TRUE(pool.Run("", 60, [&] { ++ran_; }).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pool.Run("", 60, [] {})));
  EXPECT_TRUE(pool.Run("", 40, [&] { ++ran_; }).ok());
  LetGo();
}

TEST_F(WorkPoolTest, CallersTakeTurnsAndLeaveRoomForOthers) {
  std::string order;
  {
    WorkPool pool({.threads = 1, .waiting = 8, .bytes = 100});
    Hold(pool);
    const auto call = [&](const std::string& who, size_t bytes) {
      return pool.Run(who, bytes, [&order, who] { order += who; }).ok();
    };
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(call("a", 10));
    EXPECT_FALSE(call("a", 0)) << "it has half of the calls";
    EXPECT_TRUE(call("b", 20));
    EXPECT_FALSE(call("b", 30)) << "it would have more bytes than it leaves";
    EXPECT_TRUE(call("b", 0));
    EXPECT_TRUE(call("c", 0));
    LetGo();
  }
  EXPECT_EQ(order, "abcabaa");
}

TEST_F(WorkPoolTest, ThreadsWorkSideBySide) {
  WorkPool pool({.threads = 2, .waiting = 10, .bytes = 100});
  Hold(pool);
  std::promise<void> done;
  EXPECT_TRUE(pool.Run("", 0, [&] { done.set_value(); }).ok());
  done.get_future().wait();
  LetGo();
}

}  // namespace
}  // namespace temper
