#include "tuner_server/operations/snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_directory.h"
#include "storage/store.h"

namespace temper {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::SizeIs;

class SnapshotsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = *TemporaryDirectory::Make();
    database_ = directory_.path() + "/records.db";
    kept_ = directory_.path() + "/snapshots";
    fs::create_directory(kept_);
    store_ = *OpenStore(database_);
  }
  Snapshots Open(int keep) {
    absl::StatusOr<Snapshots> snapshots = Snapshots::Open(database_, {.directory = kept_, .keep = keep}, clock_);
    EXPECT_TRUE(snapshots.ok()) << snapshots.status();
    return *std::move(snapshots);
  }
  void AddJob() { ASSERT_TRUE(store_->CreateJob({.model = "m"}).ok()); }
  size_t JobsIn(const std::string& path) {
    const auto copy = OpenStore(path, OpenMode::kReadOnly);
    EXPECT_TRUE(copy.ok()) << copy.status();
    return copy.ok() ? (*copy)->Jobs({})->size() : 0;
  }
  void Touch(const std::string& name) { std::ofstream(kept_ + "/" + name) << "x"; }

  TemporaryDirectory directory_;
  std::string database_, kept_;
  FakeClock clock_;
  std::unique_ptr<Store> store_;
};

TEST_F(SnapshotsTest, EachHoldsWhatTheDatabaseHeldThen) {
  const Snapshots snapshots = Open(3);
  EXPECT_EQ(snapshots.Age(), std::nullopt);
  for (int i = 0; i < 2; ++i) {
    AddJob();
    ASSERT_TRUE(Open(3).Take().ok());
    clock_.Advance(absl::Hours(6));
  }
  AddJob();
  ASSERT_THAT(snapshots.Files(),
              ElementsAre(kept_ + "/records-19700101T000000Z.db", kept_ + "/records-19700101T060000Z.db"));
  EXPECT_EQ(JobsIn(snapshots.Files()[0]), 1u);
  EXPECT_EQ(JobsIn(snapshots.Files()[1]), 2u);
  EXPECT_EQ(snapshots.Age(), absl::Hours(6));
}

TEST_F(SnapshotsTest, TheOldestGoesAndOtherFilesStay) {
  Touch("notes.txt");
  Touch("records-before.db");
  Touch("other-19700101T000000Z.db");
  Snapshots snapshots = Open(2);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(snapshots.Take().ok());
    clock_.Advance(absl::Hours(6));
  }
  EXPECT_THAT(snapshots.Files(),
              ElementsAre(kept_ + "/records-19700101T180000Z.db", kept_ + "/records-19700102T000000Z.db"));
  for (const char* other : {"notes.txt", "records-before.db", "other-19700101T000000Z.db"}) {
    EXPECT_TRUE(fs::exists(kept_ + "/" + other)) << other;
  }
}

// Who opens a snapshot for writing leaves a lock there and, where the schema is older, a copy that is his to remove.
TEST_F(SnapshotsTest, WhatLiesBesideASnapshotStaysAndWhatABrokenOneLeftGoes) {
  const std::string name = "records-19690101T000000Z.db";
  for (const char* end : {".lock", ".before-6", ".before-restore", ".temper-partial", ".temper-partial-journal"})
    Touch(name + end);
  Snapshots snapshots = Open(2);
  ASSERT_TRUE(snapshots.Take().ok());
  for (const char* end : {".lock", ".before-6", ".before-restore"}) EXPECT_TRUE(fs::exists(kept_ + "/" + name + end));
  for (const char* end : {".temper-partial", ".temper-partial-journal"})
    EXPECT_FALSE(fs::exists(kept_ + "/" + name + end)) << end;
}

TEST_F(SnapshotsTest, AFailureDropsNothing) {
  Snapshots snapshots = Open(1);
  ASSERT_TRUE(snapshots.Take().ok());
  EXPECT_TRUE(absl::IsAlreadyExists(snapshots.Take()));  // the same second
  EXPECT_THAT(snapshots.Files(), SizeIs(1));
  fs::remove_all(kept_);
  clock_.Advance(absl::Hours(6));
  EXPECT_FALSE(snapshots.Take().ok());
}

TEST_F(SnapshotsTest, AClockThatRanAheadForAWhileHidesNoSnapshot) {
  clock_.Advance(absl::Hours(24));
  ASSERT_TRUE(Open(1).Take().ok());
  clock_.Advance(-absl::Hours(23));
  EXPECT_EQ(Open(1).Age(), std::nullopt) << "one is due";
  AddJob();
  ASSERT_TRUE(Open(1).Take().ok());
  ASSERT_THAT(Open(1).Files(), SizeIs(1));
  EXPECT_EQ(JobsIn(Open(1).Files()[0]), 1u) << "the one that was taken stays";
  EXPECT_EQ(Open(1).Age(), absl::ZeroDuration());
}

TEST_F(SnapshotsTest, OptionsAreChecked) {
  EXPECT_TRUE(absl::IsInvalidArgument(Snapshots::Open("memory:", {.directory = kept_}, clock_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Snapshots::Open(database_, {.directory = kept_ + "/none"}, clock_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Snapshots::Open(database_, {.directory = kept_, .keep = 0}, clock_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Snapshots::Open(database_, {.directory = kept_, .every = absl::ZeroDuration()}, clock_).status()));
}

}  // namespace
}  // namespace temper
