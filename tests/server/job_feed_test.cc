// What is told of a job to those who watch it.
#include "tuner_server/service/job_feed.h"

#include <gtest/gtest.h>

#include <limits>

namespace temper {
namespace {

class JobFeedTest : public ::testing::Test {
 protected:
  // A feed that has told so many changes of one task.
  std::unique_ptr<JobFeed> Feed(int changes) {
    auto feed = std::make_unique<JobFeed>(clock_, absl::ZeroDuration(), JobView(), JobRow());
    for (int i = 0; i < changes; ++i) feed->Publish({.state = "running"}, {}, {{0, TaskView{.trials = i}}});
    return feed;
  }
  FakeClock clock_;
};

TEST_F(JobFeedTest, TellsWhatChangedSinceACursorOfItsOwn) {
  const auto feed = Feed(3);
  const auto all = feed->Since(0);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->tasks.size(), 1u);
  EXPECT_FALSE(feed->Since(all->cursor).has_value());
  EXPECT_EQ(feed->BytesSince(all->cursor), 0u);
  EXPECT_FALSE(feed->StateChangedSince(all->cursor));
  feed->Publish({.state = "done"}, {}, {});
  const auto end = feed->Since(all->cursor);
  ASSERT_TRUE(end.has_value());
  EXPECT_GT(end->cursor, all->cursor);
  EXPECT_TRUE(end->tasks.empty());
  EXPECT_TRUE(feed->StateChangedSince(all->cursor));
}

// The next server's feed of the job once said that nothing was new, until it had told as much as the last had.
TEST_F(JobFeedTest, TellsAllOfItAfterACursorOfAnotherServer) {
  for (const int changes : {1, 100}) {
    const auto last = Feed(50), next = Feed(changes);
    const int64_t cursor = last->Since(0)->cursor;
    const auto news = next->Since(cursor);
    ASSERT_TRUE(news.has_value()) << changes;
    EXPECT_EQ(news->tasks.size(), 1u);
    EXPECT_GT(next->BytesSince(cursor), 0u);
    EXPECT_TRUE(next->StateChangedSince(cursor));
    EXPECT_FALSE(next->Since(news->cursor).has_value());
  }
}

TEST_F(JobFeedTest, TellsAllOfItAfterACursorThatItNeverGave) {
  const auto feed = Feed(2);
  const int64_t last = feed->Since(0)->cursor;
  for (const int64_t cursor : {int64_t{1}, int64_t{-1}, last + 1, std::numeric_limits<int64_t>::max()})
    EXPECT_TRUE(feed->Since(cursor).has_value()) << cursor;
}

}  // namespace
}  // namespace temper
