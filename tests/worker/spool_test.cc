// What waits to be handed in, through ends of all kinds.
#include "measure_worker/service/spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_directory.h"

namespace temper::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;

v1::SubmitResultsRequest ResultsOf(int64_t lease, size_t error_bytes = 10) {
  v1::SubmitResultsRequest request;
  v1::CandidateResult& result = *request.add_results();
  result.set_lease(lease);
  result.set_candidate(lease * 10);
  result.set_error(std::string(error_bytes, 'x'));
  return request;
}

std::vector<int64_t> Leases(const Spool& spool) {
  std::vector<int64_t> leases;
  for (const SpoolEntry& entry : spool.entries()) leases.push_back(entry.lease);
  return leases;
}

class SpoolTest : public testing::Test {
 protected:
  std::unique_ptr<Spool> Open(int64_t most_bytes = Spool::kMostBytes) const {
    auto spool = Spool::Open(folder_, most_bytes);
    EXPECT_TRUE(spool.ok()) << spool.status();
    return *std::move(spool);
  }
  std::string File() const { return folder_ + "/results"; }

  const TemporaryDirectory directory_ = TemporaryDirectory::Make().value();
  const std::string folder_ = directory_.path() + "/a/spool";
};

TEST_F(SpoolTest, KeepsWhatWasNotRemovedAndItsName) {
  std::string instance;
  {
    const auto spool = Open();
    instance = spool->instance();
    spool->Add(1, ResultsOf(1));
    const int64_t second = spool->Add(2, ResultsOf(2));
    spool->Add(3, ResultsOf(3));
    spool->Remove(second);
    spool->Sync(1);
  }
  EXPECT_EQ(instance.size(), 32u);
  const auto spool = Open();
  EXPECT_EQ(spool->instance(), instance);
  EXPECT_THAT(Leases(*spool), ElementsAre(1, 3));
  EXPECT_EQ(spool->entries()[1].results.results(0).candidate(), 30);
  EXPECT_GT(spool->Add(4, ResultsOf(4)), spool->entries()[1].number);
  while (!spool->entries().empty()) spool->Remove(spool->entries().front().number);
  EXPECT_EQ(fs::file_size(File()), 0u) << "what was handed in takes no room";
  EXPECT_NE(Spool::InMemory()->instance(), instance);
}

TEST_F(SpoolTest, ATornEndIsCutOffWhereverItIs) {
  size_t size = 0, first = 0;
  {
    const auto spool = Open();
    spool->Add(1, ResultsOf(1));
    first = fs::file_size(File());
    spool->Add(2, ResultsOf(2));
    size = fs::file_size(File());
  }
  const std::string copy = directory_.path() + "/copy";
  fs::copy_file(File(), copy);
  for (size_t cut = 0; cut <= size; ++cut) {
    fs::copy_file(copy, File(), fs::copy_options::overwrite_existing);
    fs::resize_file(File(), cut);
    const auto spool = Open();
    EXPECT_EQ(spool->entries().size(), cut < first ? 0u : cut < size ? 1u : 2u) << cut;
    spool->Add(3, ResultsOf(3));
    EXPECT_EQ(Leases(*spool).back(), 3);
  }
  EXPECT_THAT(Leases(*Open()), ElementsAre(1, 2, 3));
}

TEST_F(SpoolTest, AByteThatChangedEndsWhatIsBelieved) {
  {
    const auto spool = Open();
    spool->Add(1, ResultsOf(1));
    spool->Add(2, ResultsOf(2));
  }
  std::fstream file(File(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(File()) - 3));
  file.put('y');
  file.close();
  EXPECT_THAT(Leases(*Open()), ElementsAre(1));
}

TEST_F(SpoolTest, StaysWithinItsBounds) {
  const auto spool = Open(10'000);
  for (int64_t lease = 1; lease <= 20; ++lease) spool->Add(lease, ResultsOf(lease, 1000));
  EXPECT_EQ(Leases(*spool).back(), 20);
  EXPECT_LT(Leases(*spool).size(), 10u) << "the oldest go";
  for (int64_t lease = 21; lease <= 5000; ++lease) {
    spool->Remove(spool->entries().front().number);
    spool->Add(lease, ResultsOf(lease, 1000));
  }
  EXPECT_LT(fs::file_size(File()), size_t{2} << 20);
  EXPECT_FALSE(spool->entries().empty());
}

TEST_F(SpoolTest, IsOneWorkersAlone) {
  const auto spool = Open();
  const auto second = Spool::Open(folder_);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another worker keeps its results in"));
}

TEST_F(SpoolTest, IsInMemoryWhereNothingCanBeWritten) {
  std::ofstream(directory_.path() + "/a") << "a file where the folder would be";
  const auto spool = Open();
  spool->Add(1, ResultsOf(1));
  spool->Sync(1);
  EXPECT_THAT(Leases(*spool), ElementsAre(1));
  spool->Remove(spool->entries().front().number);
  EXPECT_TRUE(spool->entries().empty());
}

TEST_F(SpoolTest, ByDefaultEachWorkerOfAKeyHasItsOwn) {
  setenv("XDG_STATE_HOME", directory_.path().c_str(), 1);
  EXPECT_EQ(SpoolFolder("a b/../c"), directory_.path() + "/temper/spool-a_b_.._c");
  const auto first = OpenDefaultSpool("key"), second = OpenDefaultSpool("key");
  EXPECT_NE(first->instance(), second->instance());
  EXPECT_TRUE(fs::exists(directory_.path() + "/temper/spool-key-2/instance"));
  unsetenv("XDG_STATE_HOME");
}

}  // namespace
}  // namespace temper::worker
