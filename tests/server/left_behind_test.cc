// What a server finds in the store of one before it.
#include "tuner_server/service/left_behind.h"

#include <gtest/gtest.h>

#include "tests/storage/testing.h"

namespace temper {
namespace {

// Imports once hid them, and after the wall clock was set back ids were given anew.
TEST(LeftBehind, TheHighestItemIsFoundBehindImportsAndWhatWasGivenUp) {
  const std::unique_ptr<Store> store = *OpenStore("memory:");
  Record record = GoodRecord();
  record.candidate = int64_t{1} << 50;
  record.attempt = 1;
  ASSERT_TRUE(store->Append({&record, 1}).ok());
  ASSERT_TRUE(store->Append(std::vector<Record>(100, GoodRecord())).ok());
  const absl::StatusOr<LeftBehind> left = ReadLeftBehind(*store, {}, absl::UnixEpoch());
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->highest_item, record.candidate);
}

}  // namespace
}  // namespace temper
