#include "tuner_server/operations/retention.h"

#include <gtest/gtest.h>

#include "storage/access.h"

namespace temper {
namespace {

constexpr absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

class RetentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(store_->CreateJob({.model = "m", .state = "done"}).ok());
      const absl::Time time = kNow - absl::Hours(24) * (2 - i);
      ASSERT_TRUE(store_->access().AppendAudit({.time_unix_ms = absl::ToUnixMillis(time), .call = "c"}).ok());
    }
  }
  size_t Jobs() { return store_->Jobs({})->size(); }
  size_t AuditLines() { return store_->access().Audit(0, 100)->size(); }

  std::unique_ptr<Store> store_ = *OpenStore("memory:");
};

TEST_F(RetentionTest, WithoutLimitsAllIsKept) {
  EXPECT_TRUE(RetentionOptions().KeepsAll());
  ASSERT_TRUE(DropOld(*store_, {}, kNow).ok());
  EXPECT_EQ(Jobs(), 3u);
  EXPECT_EQ(AuditLines(), 3u);
}

TEST_F(RetentionTest, EachLimitDropsItsOwn) {
  EXPECT_FALSE(RetentionOptions{.keep_jobs = 1}.KeepsAll());
  ASSERT_TRUE(DropOld(*store_, {.keep_jobs = 1}, kNow).ok());
  EXPECT_EQ(Jobs(), 1u);
  EXPECT_EQ(AuditLines(), 3u);
  ASSERT_TRUE(DropOld(*store_, {.keep_audit = absl::Hours(36)}, kNow).ok());
  EXPECT_EQ(AuditLines(), 2u);
}

}  // namespace
}  // namespace temper
