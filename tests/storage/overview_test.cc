// What overview.h promises, asked of every implementation.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/storage/contract.h"

namespace temper {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Record Of(const std::string& workload, const std::string& device_key, double seconds,
          const std::string& purpose = "final") {
  Record r = GoodRecord();
  r.workload = workload;
  r.anchor = workload;
  r.device_key = device_key;
  r.costs_s = {seconds, seconds, seconds};
  r.purpose = purpose;
  return r;
}

std::vector<std::string> Texts(const BestPage& page) {
  std::vector<std::string> texts;
  for (const BestRow& row : page.rows)
    texts.push_back(absl::StrCat(row.workload, " ", row.device_key, " ", row.record));
  return texts;
}

TEST_P(StoreContract, BestsComeInPagesOfWholeWorkloads) {
  Add(Of("w1", "a", 1e-3));
  const int64_t better = Add(Of("w1", "a", 5e-4));
  const int64_t other = Add(Of("w1", "b", 2e-3));
  const int64_t second = Add(Of("w2", "a", 1e-3));
  const int64_t third = Add(Of("w3", "a", 1e-3, "search"));
  const auto page = store_->overview().Bests({.limit = 2});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(Texts(*page), ElementsAre(absl::StrCat("w3 a ", third), absl::StrCat("w2 a ", second)));
  EXPECT_FALSE(page->rows[0].confirmed);
  EXPECT_TRUE(page->rows[1].confirmed);
  EXPECT_DOUBLE_EQ(page->rows[1].median_s, 1e-3);
  EXPECT_EQ(page->rows[1].job, GoodRecord().job);
  ASSERT_NE(page->next, 0);
  const auto last = store_->overview().Bests({.before = page->next, .limit = 1});
  EXPECT_THAT(Texts(*last), ElementsAre(absl::StrCat("w1 b ", other), absl::StrCat("w1 a ", better)));
  EXPECT_EQ(last->next, 0);
}

TEST_P(StoreContract, BestsAreFoundByPartOfTheirTextAndByDevice) {
  Add(Of("conv2d", "a", 1e-3));
  const int64_t found = Add(Of("MatMul 64", "b", 1e-3));
  Add(Of("matmul 64", "a", 1e-3));
  const auto page = store_->overview().Bests({.text = "matmul", .device_key = "b"});
  EXPECT_THAT(Texts(*page), ElementsAre(absl::StrCat("MatMul 64 b ", found)));
  EXPECT_THAT(store_->overview().Bests({.text = "%"})->rows, IsEmpty());
  EXPECT_THAT(store_->overview().Bests({.device_key = "c"})->rows, IsEmpty());
}

TEST_P(StoreContract, BestsAreThoseThatABuildWouldTake) {
  Add(Of("w", "a", 1e-3));
  Add(Of("w", "a", 2e-4, "search"));  // faster, but not confirmed
  Record put = Of("w", "a", 1e-4);
  put.origin = "put";
  Add(put);
  const auto page = store_->overview().Bests({});
  ASSERT_THAT(page->rows, SizeIs(1));
  const auto best = AllBest(*store_);
  ASSERT_THAT(best, SizeIs(1));
  EXPECT_EQ(page->rows[0].record, best[0].id);
  EXPECT_EQ(page->rows[0].median_s, MedianCost(best[0]));
}

TEST_P(StoreContract, ModelsSumUpTheirJobs) {
  const auto add = [&](const std::string& model, const std::string& key, int64_t trials, double best_ms) {
    JobRow job;
    job.model = model;
    job.target = "t";
    job.device_key = key;
    job.trials = trials;
    job.best_ms = best_ms;
    return *store_->CreateJob(job);
  };
  add("resnet", "a", 100, 5);
  const int64_t best = add("resnet", "a", 50, 4);
  const int64_t latest = add("resnet", "a", 7, 0);
  const int64_t other = add("resnet", "b", 1, 0);
  const auto models = store_->overview().Models(10);
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_THAT(*models, SizeIs(2));
  EXPECT_EQ((*models)[0].device_key, "b");
  EXPECT_EQ((*models)[0].latest_job, other);
  EXPECT_EQ((*models)[0].best_job, 0);
  EXPECT_EQ((*models)[0].best_ms, 0);
  EXPECT_EQ((*models)[1].jobs, 3);
  EXPECT_EQ((*models)[1].trials, 157);
  EXPECT_EQ((*models)[1].best_ms, 4);
  EXPECT_EQ((*models)[1].best_job, best);
  EXPECT_EQ((*models)[1].latest_job, latest);
  EXPECT_THAT(*store_->overview().Models(1), SizeIs(1));
}

TEST_P(StoreContract, ACurveHasTheTrialsThatWereFasterThanAllBefore) {
  const auto add = [&](const std::string& workload, double seconds, int64_t job = 7,
                       const std::string& purpose = "search") {
    Record r = Of(workload, "a", seconds, purpose);
    r.job = job;
    Add(r);
  };
  add("w1", 3e-3);
  add("w2", 5e-3);
  add("w1", 4e-3);
  Record failed = Failure(Outcome::kRunCrashed, "SIGSEGV");
  failed.workload = "w1";
  Add(failed);
  add("w1", 1e-3, 8);            // of another job
  add("w1", 1e-3, 7, "canary");  // in noise
  add("w1", 2e-3);
  add("w1", 1e-3, 7, "final");
  const auto curve = store_->overview().Curve(7);
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_EQ(curve->trials, 5);
  std::vector<std::string> steps;
  for (const CurveStep& step : curve->steps)
    steps.push_back(absl::StrCat(step.trial, " ", step.workload, " ", step.median_s * 1e3));
  EXPECT_THAT(steps, ElementsAre("1 w1 3", "2 w2 5", "5 w1 2"));
  EXPECT_EQ(store_->overview().Curve(9)->trials, 0);
}

TEST_P(StoreContract, FailuresAreCountedByTheirWordsInTheNewestRecords) {
  Add(Failure(Outcome::kRunCrashed, "too old to be looked at"));
  Add(Failure(Outcome::kRunCrashed, "SIGSEGV"));
  Add(GoodRecord());
  Add(Failure(Outcome::kRunTimeout, "10 s"));
  Record last = Failure(Outcome::kRunCrashed, "SIGSEGV");
  last.device_key = "phone";
  last.time_unix_ms = 1800000000000;
  last.job = 8;
  const int64_t id = Add(last);
  const auto all = store_->overview().Failures(0, 4, 10);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->looked_at, 4);
  ASSERT_THAT(all->rows, SizeIs(2));
  EXPECT_EQ(all->rows[0].outcome, Outcome::kRunCrashed);
  EXPECT_EQ(all->rows[0].count, 2);
  EXPECT_EQ(all->rows[0].latest_record, id);
  EXPECT_EQ(all->rows[0].device_key, "phone");
  EXPECT_EQ(all->rows[0].time_unix_ms, 1800000000000);
  EXPECT_EQ(all->rows[1].error, "10 s");
  EXPECT_THAT(store_->overview().Failures(0, 4, 1)->rows, SizeIs(1));
  const auto of_job = store_->overview().Failures(8, 100, 10);
  EXPECT_EQ(of_job->looked_at, 1);
  ASSERT_THAT(of_job->rows, SizeIs(1));
  EXPECT_EQ(of_job->rows[0].count, 1);
}

}  // namespace
}  // namespace temper
