#include "tuner_server/tuning/job_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/server/simulation.h"

namespace temper {
namespace {

TEST(JobLoop, MeasuresJustTheTrialsAskedForAndNoneTwice) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 100;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok());
  EXPECT_EQ(sim.loop_->trials(), 100);
  EXPECT_EQ(sim.measured_.size(), 100u);
  EXPECT_TRUE(sim.AllDistinct());
  EXPECT_FALSE(sim.loop_->kept_default());
  EXPECT_DOUBLE_EQ(sim.loop_->untuned_s(), 2);
  EXPECT_DOUBLE_EQ(sim.loop_->tuned_s(), 1);
}

TEST(JobLoop, MeasuresTheDefaultOfEachTaskFirst) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 60;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  std::set<std::string> seen;
  for (const Work& work : sim.WorksOf(WorkKind::kBatch)) {
    if (!seen.insert(work.workload).second) continue;
    const auto choice = DefaultChoice(sim.workloads_.at(work.workload), *ParseTarget(ToyTarget()));
    EXPECT_EQ(work.items[0].config, Text(choice->config));
    EXPECT_EQ(work.items[0].template_version, choice->def->version);
    EXPECT_EQ(work.incumbent_s, 0);
  }
  EXPECT_EQ(seen.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_GT(sim.loop_->task(i).default_s, 0);
}

TEST(JobLoop, TellsHowManyBytesTheModelsConstantsTake) {
  Workload w = ToyWorkload("a", 20);
  w.inputs[0].constant = true;  // 16 bytes
  Simulation sim({{w, 3}, {ToyWorkload("b", 20), 5}});
  sim.spec_.trials = 10;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  for (const Work& work : sim.WorksOf(WorkKind::kBatch)) EXPECT_EQ(work.plan.constant_bytes, 48);
  ASSERT_FALSE(sim.WorksOf(WorkKind::kBatch).empty());
}

TEST(JobLoop, GoesOnFromWhatIsKnownWithoutRepeatingATrial) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 80;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const double before = sim.loop_->task(1).best_s;
  sim.spec_.id = 2;
  sim.Begin();
  EXPECT_DOUBLE_EQ(sim.loop_->task(1).best_s, before);
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->trials(), 80);
  EXPECT_EQ(sim.measured_.size(), 160u);
  EXPECT_TRUE(sim.AllDistinct());
  EXPECT_LE(sim.loop_->task(1).best_s, before);
}

TEST(JobLoop, RecordsOfAnotherTemplateVersionAreNotKnown) {
  Simulation sim({{ToyWorkload("a", 20), 1}});
  sim.spec_.trials = 100;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  std::vector<Record> old;
  ASSERT_TRUE(sim.store_->Scan({}, [&](const Record& r) { old.push_back(r); }).ok());
  for (Record& record : old) record.template_version = 2;
  sim.store_ = *OpenStore("memory:");
  ASSERT_TRUE(sim.store_->Append(old).ok());
  sim.measured_.clear();
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.measured_.size(), 20u);
}

TEST(JobLoop, EndsWhenAllSpacesAreExhaustedAndFindsTheirBest) {
  Simulation sim({{ToyWorkload("a", 40), 1}, {ToyWorkload("b", 30), 1}});
  sim.spec_.trials = 1000;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->trials(), 70);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(sim.loop_->task(i).why_done, "exhausted");
    const Workload& w = sim.tasks_[i].workload;
    double best = 1;
    for (const Config& c : FindTemplate("toy.grid")->space(w, Target{}).Enumerate(1000)) {
      best = std::min(best, ToyCost(w, Text(c)));
    }
    EXPECT_DOUBLE_EQ(sim.loop_->task(i).best_s, best);
  }
}

TEST(JobLoop, ASlowerModelKeepsTheDefault) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 50;
  sim.model_ = [](const Work& work) { return ModelAnswer(work, {2, 2, 2, 2}, {3, 2.1, 2.05, 2.2}); };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->kept_default());
  EXPECT_TRUE(sim.loop_->verdict().ok());
}

TEST(JobLoop, RoundsThatDisagreeDoNotOverruleTheFinals) {
  enum Finals { kHeld, kUnanswered, kWithoutAContest };
  for (const Finals finals : {kHeld, kUnanswered, kWithoutAContest}) {
    Simulation sim(ThreeTasks());
    sim.spec_.trials = 50;
    sim.model_ = [](const Work& work) { return ModelAnswer(work, {100, 100, 100, 100, 100}, {99, 98, 101, 102, 103}); };
    sim.Begin();
    ASSERT_TRUE(sim.RunUntil(Phase::kFinals));
    if (finals == kUnanswered) sim.queue_.clear();
    int of_first = 0;
    if (finals == kWithoutAContest) {
      sim.outcome_ = [&](const WorkItem& item) {
        const bool rival = item.workload == Text(sim.tasks_[0].workload) && of_first++ > 0;
        return rival ? Outcome::kRunTimeout : Outcome::kOk;
      };
    }
    ASSERT_TRUE(sim.Run());
    EXPECT_EQ(sim.loop_->kept_default(), finals != kHeld) << finals;
    EXPECT_DOUBLE_EQ(sim.loop_->tuned_s(), 101);
  }
}

TEST(JobLoop, AClearlySlowerModelIsNotUsedHoweverItsRoundsDisagree) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 50;
  sim.model_ = [](const Work& work) { return ModelAnswer(work, {100, 100, 100, 100, 100}, {99, 98, 103, 104, 105}); };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->kept_default());
}

TEST(JobLoop, RoundsArePairedBeforeTheyAreCompared) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 50;
  // The machine slowed down to half in the middle of the third round: the medians alone would say 18 to 10.
  sim.model_ = [](const Work& work) { return ModelAnswer(work, {10, 10, 10, 20, 20}, {9, 9, 18, 18, 18}); };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_FALSE(sim.loop_->kept_default());
  EXPECT_DOUBLE_EQ(sim.loop_->untuned_s(), 10);
  EXPECT_DOUBLE_EQ(sim.loop_->tuned_s(), 9);
}

TEST(JobLoop, AWrongModelKeepsTheDefaultAndSaysSo) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 50;
  sim.model_ = [](const Work& work) {
    return ItemResult{.item = work.items[0].id,
                      .model = ModelResult{.outcome = Outcome::kWrongAnswer, .error = "differs by 0.3"}};
  };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->kept_default());
  EXPECT_THAT(sim.loop_->warnings(), ::testing::Contains(::testing::HasSubstr("differs by 0.3")));
}

TEST(JobLoop, SaysWhyNothingIsTunedForADeviceWithoutTemplates) {
  Simulation sim(ThreeTasks());
  sim.target_ = "opencl -local=32768 -wg=256 -warp=1 -units=1";
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const std::string why(sim.loop_->verdict().message());
  EXPECT_THAT(why, ::testing::HasSubstr("no template for opencl fits"));
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_TRUE(sim.works_.empty()) << "nothing was asked of the device";
}

TEST(JobLoop, SurvivesAWorldInWhichAllFails) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 100;
  sim.outcome_ = [](const WorkItem&) { return Outcome::kBuildFailed; };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_FALSE(sim.loop_->verdict().ok());
  EXPECT_THAT(std::string(sim.loop_->verdict().message()), ::testing::HasSubstr("build_failed"));
  EXPECT_EQ(sim.loop_->trials(), 0);
  EXPECT_EQ(sim.loop_->task(0).why_done, "failures");
  EXPECT_EQ(sim.loop_->task(2).why_done, "exhausted");
  EXPECT_TRUE(sim.WorksOf(WorkKind::kModel).empty());
}

TEST(JobLoop, FailuresAreNotTrials) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 60;
  int n = 0;
  sim.outcome_ = [&](const WorkItem&) {
    return ++n % 3 == 0 ? Outcome::kRunCrashed : n % 3 == 1 ? Outcome::kOk : Outcome::kRacedOut;
  };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->trials(), 60);
  const std::map<Outcome, int>& outcomes = sim.loop_->outcomes();
  EXPECT_EQ(outcomes.at(Outcome::kOk) + outcomes.at(Outcome::kRacedOut), 60);
  EXPECT_GT(outcomes.at(Outcome::kRunCrashed), 20);
  EXPECT_EQ(static_cast<int>(sim.measured_.size()), 60 + outcomes.at(Outcome::kRunCrashed));
}

TEST(JobLoop, ARacesLoserIsNeverBest) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 100;
  const auto choice = DefaultChoice(sim.tasks_[0].workload, *ParseTarget(ToyTarget()));
  const std::string default_config = Text(choice->config);
  sim.outcome_ = [&](const WorkItem& item) {
    return item.config == default_config ? Outcome::kOk : Outcome::kRacedOut;
  };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->task(0).config, default_config);
  EXPECT_EQ(sim.Finalists().begin()->second, std::vector<std::string>{default_config});
}

// As on a machine so slow that a sample takes all of a trial's time.
TEST(JobLoop, FinalsDecideWhereNoTrialHasSamplesEnough) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 10;
  sim.samples_ = 1;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok()) << sim.loop_->verdict();
  EXPECT_GT(sim.loop_->task(0).best_s, 0);
  const auto choice = DefaultChoice(sim.tasks_[0].workload, *ParseTarget(ToyTarget()));
  const std::vector<std::string> finalists = sim.Finalists().begin()->second;
  ASSERT_GT(finalists.size(), 1u);
  EXPECT_EQ(finalists[0], Text(choice->config));
  const double standard = ToyCost(sim.tasks_[0].workload, finalists[0]);
  EXPECT_LE(sim.loop_->task(0).best_s, standard);
}

TEST(JobLoop, EarlyStoppingEndsATaskAfterSoManyTrialsWithoutABetterOne) {
  Simulation sim({{ToyWorkload("a", 4000), 1}});
  sim.spec_.early_stopping = 20;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->task(0).why_done, "early_stopping");
  // Batches are judged whole.
  double best = 1;
  int since = 0;
  for (const Work& work : sim.WorksOf(WorkKind::kBatch)) {
    EXPECT_LT(since, 20);
    for (const WorkItem& item : work.items) {
      const double cost = ToyCost(sim.tasks_[0].workload, item.config);
      since = cost < best ? 0 : since + 1;
      best = std::min(best, cost);
    }
  }
  EXPECT_GE(since, 20);
}

TEST(JobLoop, EarlyStoppingOfTheModelCountsTrialsOfAllTasks) {
  Simulation sim({{ToyWorkload("a", 4000), 1}, {ToyWorkload("b", 4000), 1}});
  sim.spec_.early_stopping_model = 40;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->task(0).why_done, "early_stopping");
  EXPECT_EQ(sim.loop_->task(1).why_done, "early_stopping");
  std::map<std::string, double> best;
  double kernels_s = 0;
  int since = 0;
  for (const Work& work : sim.WorksOf(WorkKind::kBatch)) {
    EXPECT_LT(since, 40);
    for (const WorkItem& item : work.items) {
      const double cost = ToyCost(sim.workloads_.at(work.workload), item.config);
      const auto [known, first] = best.emplace(work.workload, cost);
      known->second = std::min(known->second, cost);
    }
    double now_s = 0;
    for (const auto& [workload, cost] : best) now_s += cost;
    const bool better = kernels_s == 0 || now_s < kernels_s * (1 - 1e-4);
    since = better ? 0 : since + static_cast<int>(work.items.size());
    if (better) kernels_s = best.size() < 2 ? 0 : now_s;
  }
  EXPECT_GE(since, 40);
}

// How many trials a job of three large tasks takes that ends by itself. Names draw the costs.
int TrialsUntil(double min_gain, const std::string& name) {
  Simulation sim({{ToyWorkload(name + "a", 20000), 1},
                  {ToyWorkload(name + "b", 20000, 2e-3), 3},
                  {ToyWorkload(name + "c", 20000, 1e-6), 1}});
  sim.spec_.min_gain = min_gain;
  sim.Begin();
  EXPECT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok());
  for (size_t i = 0; i < sim.loop_->size(); ++i) EXPECT_EQ(sim.loop_->task(i).why_done, "min_gain") << i;
  return sim.loop_->trials();
}

TEST(JobLoop, WithoutAnotherLimitItEndsWhereLittleIsStillToBeGained) {
  // A job whose defaults happen to be nearly the best ends at once, however little it is to gain.
  int coarse_sum = 0, fine_sum = 0;
  for (const char* name : {"", "another ", "one more ", "the last "}) {
    const int coarse = TrialsUntil(0.1, name), fine = TrialsUntil(0.01, name);
    EXPECT_GE(coarse, 32);  // the large one is not given up before it had its chance
    EXPECT_LT(fine, 10000);
    coarse_sum += coarse;
    fine_sum += fine;
  }
  EXPECT_GT(fine_sum, 2 * coarse_sum);
}

TEST(JobLoop, WhatEarlierJobsTriedCountsForWhatIsStillToBeGained) {
  Simulation sim(ThreeTasks());
  sim.spec_.min_gain = 0.02;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const int first = sim.loop_->trials();
  sim.spec_.id = 2;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_LT(sim.loop_->trials(), first / 4);
}

TEST(JobLoop, TellsWhatIsStillExpectedAndHowLongItTakes) {
  Simulation sim({{ToyWorkload("a", 20000), 1}, {ToyWorkload("b", 20000, 2e-3), 3}});
  sim.spec_.trials = 400;
  sim.Begin();
  EXPECT_TRUE(std::isinf(sim.loop_->ExpectedGainSeconds(sim.clock_.Monotonic())));
  double at_quarter = 0, eta_at_quarter = 0;
  while (sim.loop_->phase() == Phase::kSearch) {
    ASSERT_TRUE(sim.loop_->Search(sim.clock_.Monotonic(), sim).ok());
    sim.MeasureNext();
    if (sim.loop_->trials() >= 100 && at_quarter == 0) {
      at_quarter = sim.loop_->ExpectedGainSeconds(sim.clock_.Monotonic());
      eta_at_quarter = sim.loop_->EtaSeconds(sim.clock_.Monotonic());
    }
    if (sim.loop_->trials() == 400) {
      EXPECT_EQ(sim.loop_->ExpectedGainSeconds(sim.clock_.Monotonic()), 0);
    }
    sim.loop_->Advance(sim.clock_.Monotonic(), sim);
  }
  EXPECT_GT(at_quarter, 0);
  EXPECT_LT(at_quarter, sim.loop_->KernelSeconds());
  EXPECT_NEAR(eta_at_quarter, 30, 3);  // ten a second
}

TEST(JobLoop, WhatWasMeasuredOnASlowDeviceIsMeasuredAgainWhereItMayMatter) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 100;
  // Every fifth is measured while the device takes twice as long, the first time.
  std::map<std::string, int> times;
  sim.drift_ = [&](const WorkItem& item) { return ++times[item.config] == 1 && times.size() % 5 == 0 ? 2.0 : 1.0; };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->trials(), 100);
  EXPECT_GT(sim.loop_->measured_again(), 0);
  double best = 1;
  int twice = 0;
  for (const Work& work : sim.WorksOf(WorkKind::kBatch)) {
    for (const WorkItem& item : work.items) {
      twice += item.again;
      best = std::min(best, ToyCost(sim.tasks_[0].workload, item.config));
    }
  }
  EXPECT_GT(twice, 0);
  EXPECT_LT(twice, 20) << "those far behind are not";
  EXPECT_DOUBLE_EQ(sim.loop_->task(0).best_s, best);
}

TEST(JobLoop, ADeviceThatIsSlowThroughoutIsBelievedInTheEnd) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 100;
  sim.drift_ = [&](const WorkItem&) { return 2.0; };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->trials(), 100);
  EXPECT_LT(sim.measured_.size(), 150u);
}

TEST(JobLoop, AServerThatComesAfterCountsEachConfigOnceHoweverOftenItWasMeasured) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 100;
  sim.drift_ = [&](const WorkItem&) { return 2.0; };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_FALSE(sim.AllDistinct());
  std::vector<Record> records;
  ASSERT_TRUE(sim.store_->Scan({}, [&](const Record& r) { records.push_back(r); }).ok());
  for (Record& record : records) record.job = sim.spec_.id;
  sim.store_ = *OpenStore("memory:");
  ASSERT_TRUE(sim.store_->Append(records).ok());
  sim.Begin();
  const auto distinct = static_cast<int>(std::set(sim.measured_.begin(), sim.measured_.end()).size());
  EXPECT_EQ(sim.loop_->trials(), distinct);
  EXPECT_EQ(sim.loop_->task(0).trials, distinct);
}

TEST(JobLoop, TrialsPerTaskAreALimitHoweverManyWorkersThereAre) {
  for (const int slots : {1, 4, 16}) {
    Simulation sim(ThreeTasks());
    sim.spec_.trials_per_task = 30;
    sim.Begin();
    ASSERT_TRUE(sim.Run(slots));
    EXPECT_EQ(sim.Measured(Text(sim.tasks_[0].workload)), 30) << slots;
    EXPECT_EQ(sim.Measured(Text(sim.tasks_[1].workload)), 30) << slots;
    EXPECT_EQ(sim.Measured(Text(sim.tasks_[2].workload)), 20) << slots;  // all there are
  }
}

TEST(JobLoop, ATaskThatIsToEndGetsNoMoreBatchesHoweverManyWorkersThereAre) {
  for (const bool early : {false, true}) {
    Simulation sim({{ToyWorkload("a", 40000), 1}});
    sim.options_.most_failures_in_row = 1000;
    (early ? sim.spec_.early_stopping : sim.spec_.trials) = early ? 40 : 4000;
    sim.spec_.min_gain = early ? 0 : 0.05;
    sim.Begin();
    ASSERT_TRUE(sim.Run(16));
    EXPECT_EQ(sim.loop_->task(0).why_done, early ? "early_stopping" : "min_gain");
    EXPECT_LT(sim.loop_->trials(), 2000);
  }
}

TEST(JobLoop, ASpaceThatIsExhaustedIsMeasuredAgainWhereTheDeviceWasSlow) {
  for (const int slots : {1, 16}) {
    Simulation sim({{ToyWorkload("a", 20), 1}});
    sim.options_.largest_batch = 4;
    sim.spec_.trials = 1000;
    sim.drift_ = [](const WorkItem& item) { return item.again ? 1.0 : 2.0; };
    sim.Begin();
    ASSERT_TRUE(sim.Run(slots));
    EXPECT_TRUE(sim.loop_->verdict().ok()) << sim.loop_->verdict();
    EXPECT_EQ(sim.loop_->task(0).why_done, "exhausted");
    EXPECT_EQ(sim.loop_->trials(), 20) << slots;
    EXPECT_GT(sim.loop_->task(0).default_s, 0);
  }
}

TEST(JobLoop, WhatAServerBeforeThisOneTriedFirstIsTakenOver) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 40;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  std::vector<Record> put = sim.Records({.purpose = "search"});
  for (Record& r : put) r.origin = "put", r.job = 0;
  sim.KnowOnly(put);
  sim.Begin();
  ASSERT_TRUE(sim.loop_->Search(sim.clock_.Monotonic(), sim).ok());
  const Work under_way = sim.queue_.front();
  sim.queue_.clear();
  sim.Begin();  // a server that starts anew
  std::vector<WorkItem> items = under_way.items;
  for (WorkItem& item : items) item.workload = under_way.workload;
  sim.loop_->Adopt(items, sim.clock_.Monotonic());
  sim.queue_.push_back(under_way);
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->trials(), 40);
  EXPECT_TRUE(sim.AllDistinct());
}

// Whose first measurement fell into noise, and others were faster meanwhile.
TEST(JobLoop, TheDefaultRacesAgainstNobody) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 60;
  const std::string standard = Text(DefaultChoice(sim.tasks_[0].workload, *ParseTarget(ToyTarget()))->config);
  sim.drift_ = [&](const WorkItem& item) { return item.config == standard && !item.again ? 2.0 : 1.0; };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  int seen = 0;
  for (const Work& work : sim.WorksOf(WorkKind::kBatch)) {
    const bool has = std::ranges::any_of(work.items, [&](const WorkItem& item) { return item.config == standard; });
    seen += has;
    EXPECT_EQ(work.incumbent_s == 0, has);
    EXPECT_EQ(work.items.front().config == standard, has);
  }
  EXPECT_EQ(seen, 2);
}

TEST(JobLoop, WhatWasPutByHandIsTriedFirstAndItsTimesAreNotBelieved) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 40;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  std::vector<Record> put = sim.Records({.purpose = "search"});
  for (Record& r : put) {
    r.origin = "put";
    r.job = 0;
    for (double& cost : r.costs_s) cost /= 10;
  }
  Record illegal = put[0];
  illegal.config = "no=1";
  illegal.costs_s = {1e-9};
  put.push_back(illegal);
  sim.KnowOnly(put);
  sim.Begin();
  EXPECT_EQ(sim.loop_->task(0).best_s, 0);
  ASSERT_TRUE(sim.Run());
  const Work first = sim.WorksOf(WorkKind::kBatch).at(0);
  EXPECT_EQ(first.incumbent_s, 0);
  put.pop_back();
  for (const WorkItem& item : first.items) EXPECT_NE(item.config, illegal.config);
  const auto fastest = std::ranges::min_element(put, {}, [](const Record& r) { return MedianCost(r); });
  const bool is_default = first.items.at(0).config == fastest->config;
  EXPECT_EQ(first.items.at(is_default ? 0 : 1).config, fastest->config);
  EXPECT_TRUE(sim.AllDistinct());
  EXPECT_GE(sim.loop_->task(0).best_s, MedianCost(*fastest) * 10 * 0.999);
}

TEST(JobLoop, TheTimeBudgetEndsTheSearchAndClosingIsShort) {
  Simulation sim(ThreeTasks());
  sim.spec_.time_budget = absl::Seconds(20);
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok());
  EXPECT_GT(sim.loop_->trials(), 150);  // ten a second
  EXPECT_LE(sim.loop_->trials(), 205);
  EXPECT_LE(sim.clock_.Monotonic(), absl::Seconds(20 + 15));
}

TEST(JobLoop, AModelCheckThatNeverAnswersDoesNotHoldTheJob) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 50;
  sim.Begin();
  ASSERT_TRUE(sim.RunUntil(Phase::kModelCheck));
  sim.queue_.clear();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok());
  EXPECT_EQ(sim.loop_->tuned_s(), 0);
}

TEST(JobLoop, TheSameSeedAndResultsGiveTheSameCourse) {
  std::vector<std::string> courses[2];
  for (auto& course : courses) {
    Simulation sim(ThreeTasks());
    sim.spec_.trials = 90;
    sim.spec_.seed = 7;
    sim.Begin();
    ASSERT_TRUE(sim.Run());
    course = sim.measured_;
  }
  EXPECT_EQ(courses[0], courses[1]);
}

class FailingTuner : public Tuner {
 public:
  absl::StatusOr<std::vector<Proposal>> Propose(int) override { return absl::InternalError("no ideas"); }
  absl::Status Observe(std::span<const Observation>) override { return absl::OkStatus(); }
};

TEST(JobLoop, ATunerThatFailsEndsTheSearchWithItsReason) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 10;
  sim.options_.make_tuner = [](const TunerContext&) -> absl::StatusOr<std::unique_ptr<Tuner>> {
    return std::make_unique<FailingTuner>();
  };
  sim.Begin();
  EXPECT_EQ(sim.loop_->Search(sim.clock_.Monotonic(), sim).message(), "no ideas");
}

std::set<std::string> ConfigsOf(const Work& work) {
  std::set<std::string> configs;
  for (const WorkItem& item : work.items) configs.insert(item.config);
  return configs;
}

TEST(JobLoop, WhatWasBestForOtherTasksIsTriedFirst) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 8;
  sim.options_.make_tuner = FindTuner("xgb")->make;
  Record record;
  record.workload = Text(ToyWorkload("z", 400));
  record.template_name = "toy.grid";
  record.template_version = FindTemplate("toy.grid")->version;
  record.config = "row=37,column=9";  // among the last by draft
  record.costs_s = {1e-3, 1e-3, 1e-3};
  sim.others_.push_back(record);
  record.config = "row=38,column=9";
  record.costs_s = {1e-4, 1e-4, 1e-4};
  record.template_version -= 1;
  sim.others_.push_back(record);
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const std::set<std::string> first = ConfigsOf(sim.works_.front());
  EXPECT_TRUE(first.contains("row=37,column=9"));
  EXPECT_FALSE(first.contains("row=38,column=9")) << "another version's";
}

TEST(JobLoop, TasksTeachOneAnother) {
  Simulation sim({{ToyWorkload("a", 400), 1}, {ToyWorkload("b", 400), 1}});
  sim.spec_.trials = 32;
  sim.options_.make_tuner = FindTuner("xgb")->make;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const Work &first = sim.works_[0], &second = sim.works_[1];
  ASSERT_NE(first.workload, second.workload);
  const auto cost = [&](const WorkItem& item) { return ToyCost(sim.workloads_.at(first.workload), item.config); };
  const auto best = std::min_element(first.items.begin(), first.items.end(),
                                     [&](const WorkItem& a, const WorkItem& b) { return cost(a) < cost(b); });
  EXPECT_TRUE(ConfigsOf(second).contains(best->config)) << "the other's best is tried in the first batch";
}

TEST(JobLoop, OperatorsByThemselvesEndWithTheirLastTrial) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 60;
  sim.spec_.workloads = {"any"};
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok());
  EXPECT_EQ(sim.loop_->trials(), 60);
  EXPECT_TRUE(sim.WorksOf(WorkKind::kFinals).empty());
  EXPECT_TRUE(sim.WorksOf(WorkKind::kModel).empty());
}

TEST(JobLoop, AGraphWithoutTasksIsMeasuredAndDone) {
  Simulation sim({});
  sim.spec_.trials = 10;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok());
  EXPECT_EQ(sim.WorksOf(WorkKind::kModel).size(), 1u);
}

TEST(JobLoop, MoreWorkersThanTasksHaveSeveralBatchesOfATaskUnderWay) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 1000;
  sim.Begin();
  const auto fill = [&](int slots) {
    while (sim.loop_->NeedsSearch(slots, false)) {
      ASSERT_TRUE(sim.loop_->Search(sim.clock_.Monotonic(), sim, slots).ok());
    }
  };
  fill(2);
  EXPECT_EQ(sim.queue_.size(), 2u);
  fill(6);
  EXPECT_EQ(sim.queue_.size(), 3u) << "a batch a task, while there are no more workers than tasks";
  fill(32);
  EXPECT_GE(sim.queue_.size(), 16u) << "a batch a worker";
  std::set<std::string> distinct;
  size_t items = 0;
  for (const Work& work : sim.queue_) {
    for (const WorkItem& item : work.items) distinct.insert(work.workload + item.config);
    items += work.items.size();
  }
  EXPECT_EQ(distinct.size(), items) << "nothing is proposed twice, however blindly";
}

TEST(JobLoop, TheTimeForFinalsAndTheModelRunsFromWhenAWorkerHasThem) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 40;
  sim.Begin();
  for (const Phase phase : {Phase::kFinals, Phase::kModelCheck}) {
    ASSERT_TRUE(sim.RunUntil(phase));
    sim.granted_at_ = absl::InfiniteDuration();  // another job's work goes first
    for (int i = 0; i < 10; ++i) {
      sim.clock_.Advance(absl::Minutes(1));
      sim.loop_->Advance(sim.clock_.Monotonic(), sim);
      ASSERT_EQ(sim.loop_->phase(), phase);
      ASSERT_GT(sim.loop_->NextDeadline(), sim.clock_.Monotonic());
    }
    sim.granted_at_ = sim.clock_.Monotonic();
    sim.clock_.Advance(absl::Seconds(59));
    sim.loop_->Advance(sim.clock_.Monotonic(), sim);
    ASSERT_EQ(sim.loop_->phase(), phase);
    sim.clock_.Advance(absl::Seconds(2));
    sim.loop_->Advance(sim.clock_.Monotonic(), sim);
    ASSERT_NE(sim.loop_->phase(), phase);
  }
  EXPECT_EQ(sim.loop_->phase(), Phase::kOver);
}

TEST(JobLoop, ATaskThatDoesNotFitTheDeviceEndsWithItsFirstBatchAndTheOthersGoOn) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 60;
  sim.Begin();
  const std::string workload = sim.loop_->task(0).workload;
  int unfit = 0;
  sim.outcome_ = [&](const WorkItem&) {
    const bool too_large = sim.works_.back().workload == workload;
    unfit += too_large ? 1 : 0;
    return too_large ? Outcome::kUnfit : Outcome::kOk;
  };
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->task(0).why_done, "unfit");
  EXPECT_LE(unfit, 16) << "a batch";
  EXPECT_EQ(sim.loop_->trials(), 60);
  EXPECT_TRUE(sim.loop_->verdict().ok());
}

}  // namespace
}  // namespace temper
