#include "security/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/security/memory_access_store.h"

namespace temper {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class AuditTest : public ::testing::Test {
 protected:
  std::vector<AuditRow> Rows() { return *store_.Audit(0, 1'000'000); }
  void Done(const Principal& principal, Call call, std::string_view subject, std::string_view detail) {
    audit_.Keep(audit_.Done(principal, call, subject, detail));
  }
  void Refused(std::string_view principal, Call call, std::string_view subject, std::string_view reason) {
    if (const auto row = audit_.Refused(principal, call, subject, reason)) audit_.Keep(*row);
  }
  MemoryAccessStore store_;
  FakeClock clock_;
  Audit audit_{store_, clock_};
};

TEST_F(AuditTest, WhatIsDoneIsKeptWithWhoWhatAndWhen) {
  clock_.Advance(absl::Seconds(5));
  Principal alice;
  alice.kind = Principal::Kind::kToken;
  alice.id = "1a";
  alice.owner = "alice";
  Done(alice, Call::kCancelJob, "job 7", "asked to");
  const AuditRow row = Rows().at(0);
  EXPECT_EQ(row.time_unix_ms, 5000);
  EXPECT_EQ(row.principal, "token 1a (alice)");
  EXPECT_EQ(row.call, "CancelJob");
  EXPECT_EQ(row.subject, "job 7");
  EXPECT_EQ(row.verdict, "allowed");
  EXPECT_EQ(row.detail, "asked to");
}

TEST_F(AuditTest, RefusalsAreKeptAtABoundedRateAndCounted) {
  for (int i = 0; i < 10'000; ++i) Refused("nobody", Call::kCancelJob, "job 7", "no");
  EXPECT_EQ(Rows().size(), static_cast<size_t>(Audit::kRefusalsAtOnce));
  clock_.Advance(Audit::kRefusalEvery);
  Refused("nobody", Call::kCancelJob, "job 7", "no");
  Refused("nobody", Call::kCancelJob, "job 7", "no");
  ASSERT_EQ(Rows().size(), static_cast<size_t>(Audit::kRefusalsAtOnce) + 1);
  EXPECT_THAT(Rows().at(0).detail, HasSubstr("9980 refusals before this one were not kept"));
  clock_.Advance(1000 * Audit::kRefusalEvery);
  for (int i = 0; i < 10'000; ++i) Refused("nobody", Call::kCancelJob, "job 7", "no");
  EXPECT_EQ(Rows().size(), 2u * Audit::kRefusalsAtOnce + 1) << "patience does not add up beyond its bound";
}

TEST_F(AuditTest, WhatIsDoneIsNeverLeftOut) {
  for (int i = 0; i < 100; ++i) Refused("nobody", Call::kCancelJob, "", "no");
  for (int i = 0; i < 100; ++i) Done(Principal(), Call::kJoin, "", "");
  EXPECT_EQ(Rows().size(), 100u + Audit::kRefusalsAtOnce);
}

TEST_F(AuditTest, LongTextsAreCutBetweenCharacters) {
  std::string text = "x";
  for (int i = 0; i < 500; ++i) text += "\xc3\xa4";
  Refused(text, Call::kCancelJob, text, text);
  const AuditRow row = Rows().at(0);
  for (const std::string& kept : {row.principal, row.subject, row.detail}) {
    EXPECT_EQ(kept.size(), 255u);
    EXPECT_THAT(kept, EndsWith("\xc3\xa4"));
  }
}

TEST_F(AuditTest, AStoreThatFailsEndsNothing) {
  store_.failure = absl::UnavailableError("disk full");
  Done(Principal(), Call::kJoin, "", "");
  EXPECT_TRUE(Rows().empty());
}

}  // namespace
}  // namespace temper
