// The finals of a job: who is in them, and what they decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/best.h"
#include "tests/server/simulation.h"

namespace temper {
namespace {

TEST(Finals, RevalidatesTheBestOfAnyVersionAndTheDefaultWithoutASearch) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 60;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  std::vector<Record> old;
  ASSERT_TRUE(sim.store_->Scan({}, [&](const Record& r) { old.push_back(r); }).ok());
  std::map<std::string, std::set<std::pair<double, std::string>>> ranked;  // by workload: median and config
  std::map<std::string, std::string> defaults;
  for (const Task& task : sim.tasks_)
    defaults[Text(task.workload)] = Text(DefaultChoice(task.workload, *ParseTarget(ToyTarget()))->config);
  for (Record& record : old) {
    record.template_version = FindTemplate(record.template_name)->version + 1;
    if (record.ok() && record.config != defaults.at(record.workload))
      ranked[record.workload].emplace(MedianCost(record), record.config);
  }
  Record illegal = old[0];
  illegal.config = "no=1";
  illegal.costs_s = {1e-9, 1e-9, 1e-9};
  old.push_back(illegal);
  sim.store_ = *OpenStore("memory:");
  ASSERT_TRUE(sim.store_->Append(old).ok());
  sim.works_.clear();
  sim.spec_.trials = 0;
  sim.spec_.revalidate = true;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_TRUE(sim.loop_->verdict().ok()) << sim.loop_->verdict();
  EXPECT_TRUE(sim.WorksOf(WorkKind::kBatch).empty());
  const std::vector<Work> again = sim.WorksOf(WorkKind::kFinals);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0].revalidate);
  for (const WorkItem& item : again[0].items)
    EXPECT_EQ(item.template_version, FindTemplate(item.template_name)->version);
  const auto finalists = sim.Finalists();
  ASSERT_EQ(finalists.size(), 3u);
  for (const auto& [workload, configs] : finalists) {
    std::vector<std::string> wanted{defaults.at(workload)};
    for (const auto& [cost, config] : ranked.at(workload)) {
      if (wanted.size() < 4) wanted.push_back(config);
    }
    EXPECT_EQ(configs, wanted);
  }
  EXPECT_EQ(sim.WorksOf(WorkKind::kModel).size(), 1u);
}

TEST(Finals, WithoutRecordsThereIsNothingToRevalidate) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 0;
  sim.spec_.revalidate = true;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->verdict().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(sim.works_.empty());
}

TEST(Finals, FinalsCompareContendersWithTheDefaultAndTheLowestMedianWins) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 100;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const std::vector<Work> finals = sim.WorksOf(WorkKind::kFinals);
  ASSERT_EQ(finals.size(), 1u);
  EXPECT_EQ(*finals[0].model.graph_json, "{}");
  EXPECT_GT(finals[0].model.rounds, 3);
  EXPECT_EQ(finals[0].items.size(), 4u);
  const auto choice = DefaultChoice(sim.tasks_[0].workload, *ParseTarget(ToyTarget()));
  EXPECT_EQ(finals[0].items[0].config, Text(choice->config));
  EXPECT_EQ(finals[0].items[0].workload, Text(sim.tasks_[0].workload));
  EXPECT_EQ(finals[0].items[0].anchor, AnchorText(sim.tasks_[0].workload));
  const Work model = sim.WorksOf(WorkKind::kModel).at(0);
  ASSERT_EQ(model.model.picks.size(), 1u);
  EXPECT_EQ(model.model.picks[0].config, sim.loop_->task(0).config);
  EXPECT_EQ(model.model.picks[0].workload, Text(sim.tasks_[0].workload));
}

// What a first job found, whose finals' times are so many times those of the search.
struct Found {
  double search_s;
  std::string config;
};
Found TuneOnce(Simulation& sim, double in_the_model) {
  sim.spec_.trials = 40;
  sim.in_the_model_ = in_the_model;
  sim.Begin();
  EXPECT_TRUE(sim.Run());
  return {sim.loop_->task(0).best_s / in_the_model, sim.loop_->task(0).config};
}

void BeginAnother(Simulation& sim) {
  sim.works_.clear();
  sim.spec_.id = 2;
  sim.spec_.trials = 200;
  sim.Begin();
}

// In the model kernels take longer than in the search, or shorter. Who races, races against times of the search.
TEST(Finals, ALaterSearchDoesNotCompareItsTimesWithThoseOfFinals) {
  for (const double in_the_model : {0.4, 2.5}) {
    Simulation sim({{ToyWorkload("a", 400), 1}});
    const auto [found, winner] = TuneOnce(sim, in_the_model);
    BeginAnother(sim);
    EXPECT_DOUBLE_EQ(sim.loop_->task(0).best_s, found);
    ASSERT_TRUE(sim.Run());
    for (const Work& work : sim.WorksOf(WorkKind::kBatch)) EXPECT_LE(work.incumbent_s, found);
    EXPECT_DOUBLE_EQ(sim.WorksOf(WorkKind::kBatch).at(0).incumbent_s, found);
    const std::vector<std::string> finalists = sim.Finalists().begin()->second;
    EXPECT_EQ(finalists.at(1), winner) << "it has to win again";
    EXPECT_LT(sim.loop_->task(0).best_s, found * in_the_model);
  }
}

// As a prune leaves them: finals are the newest.
TEST(Finals, WhereOnlyFinalsAreKnownTheSearchMeasuresThemAgain) {
  for (const double in_the_model : {0.4, 2.5}) {
    Simulation sim({{ToyWorkload("a", 400), 1}});
    const auto [found, winner] = TuneOnce(sim, in_the_model);
    sim.KnowOnly(sim.Records({.purpose = "final"}));
    BeginAnother(sim);
    ASSERT_TRUE(sim.RunUntil(Phase::kFinals));
    EXPECT_GT(sim.loop_->task(0).default_s, 0);
    EXPECT_EQ(sim.Measured(sim.WorksOf(WorkKind::kBatch).at(0).workload), 200);
    EXPECT_TRUE(sim.AllDistinct());
    EXPECT_LT(sim.loop_->task(0).best_s, found);
    ASSERT_TRUE(sim.Run());
    const std::vector<std::string> finalists = sim.Finalists().begin()->second;
    EXPECT_EQ(finalists.at(1), winner);
    EXPECT_LT(sim.loop_->task(0).best_s, found * in_the_model) << "what is new is in the finals too";
  }
}

TEST(Finals, TheDefaultStaysWhereFinalsSaySo) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 50;
  sim.Begin();
  // What the search found does not hold: in the finals all are as slow as the default.
  ASSERT_TRUE(sim.RunUntil(Phase::kFinals));
  const Work finals = sim.queue_.front();
  sim.queue_.pop_front();
  for (const WorkItem& item : finals.items) {
    sim.loop_->OnResult({.item = item.id, .trial = {.outcome = Outcome::kOk, .costs_s = {1e-3, 1e-3, 1e-3}}},
                        sim.clock_.Monotonic());
  }
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->task(0).config, finals.items[0].config);
  ASSERT_EQ(sim.WorksOf(WorkKind::kModel).at(0).model.picks.size(), 1u);
  EXPECT_EQ(sim.WorksOf(WorkKind::kModel).at(0).model.picks[0].config, finals.items[0].config);
}

TEST(Finals, WithoutFinalsOnlyAClearLeadIsUsed) {
  for (const double other : {0.95e-3, 0.5e-3}) {
    Simulation sim({{ToyWorkload("a", 400), 1}});
    sim.spec_.trials = 50;
    const std::string standard = Text(DefaultChoice(sim.tasks_[0].workload, *ParseTarget(ToyTarget()))->config);
    sim.cost_ = [&](const Workload&, const std::string& config) { return config == standard ? 1e-3 : other; };
    sim.Begin();
    ASSERT_TRUE(sim.RunUntil(Phase::kFinals));
    sim.queue_.clear();  // nobody answers
    ASSERT_TRUE(sim.Run());
    const bool clear = other * kProvisionalMargin < 1e-3;
    ASSERT_EQ(sim.WorksOf(WorkKind::kModel).at(0).model.picks.size(), 1u);
    EXPECT_EQ(sim.WorksOf(WorkKind::kModel).at(0).model.picks[0].config != standard, clear);
    EXPECT_EQ(sim.WorksOf(WorkKind::kModel).at(0).model.picks[0].seconds, sim.loop_->task(0).best_s);
    EXPECT_EQ(sim.loop_->task(0).config != standard, clear);
    EXPECT_EQ(sim.loop_->task(0).best_s, clear ? other : 1e-3);
  }
}

TEST(Finals, AnEarlierFinalGoesBeforeWhatNoFinalSaw) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 50;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const std::string confirmed = sim.loop_->task(0).config;
  const double confirmed_s = sim.loop_->task(0).best_s;
  // All that is new is a little faster, and nobody answers to the finals.
  sim.cost_ = [&](const Workload&, const std::string&) { return 0.99 * confirmed_s; };
  sim.Begin();
  ASSERT_TRUE(sim.RunUntil(Phase::kFinals));
  ASSERT_FALSE(sim.queue_.empty());
  sim.queue_.clear();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->task(0).config, confirmed);
}

TEST(Finals, AllTasksAreInTheFinalsButFewerContendersOfSmallOnes) {
  Simulation sim(
      {{ToyWorkload("big", 400, 1e-2), 1}, {ToyWorkload("small", 400, 1e-4), 1}, {ToyWorkload("none", 400, 1e-8), 1}});
  sim.spec_.trials = 150;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const auto finalists = sim.Finalists();
  EXPECT_EQ(finalists.at(Text(sim.tasks_[0].workload)).size(), 4u);
  EXPECT_EQ(finalists.at(Text(sim.tasks_[1].workload)).size(), 2u);
  EXPECT_EQ(finalists.at(Text(sim.tasks_[2].workload)).size(), 1u) << "there is nothing to gain";
  EXPECT_TRUE(sim.loop_->task(0).config != finalists.at(Text(sim.tasks_[0].workload))[0]);
}

TEST(Finals, OfALongModelFewerContenders) {
  Simulation sim({{ToyWorkload("long", 400), 1}});
  sim.spec_.trials = 50;
  sim.cost_ = [](const Workload&, const std::string&) { return 0.2; };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.Finalists().begin()->second.size(), 3u);
}

int KnobsThatDiffer(const std::string& a, const std::string& b) {
  const auto left = ParseConfig(a), right = ParseConfig(b);
  return ((*left)["row"] != (*right)["row"]) + ((*left)["column"] != (*right)["column"]);
}

TEST(Finals, ContendersDifferInMoreThanOneKnobWhereTheyCan) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 300;
  const std::string standard = Text(DefaultChoice(sim.tasks_[0].workload, *ParseTarget(ToyTarget()))->config);
  sim.cost_ = [&](const Workload&, const std::string& config) {
    const auto knobs = ParseConfig(config);
    return config == standard ? 1e-3 : 0.9e-3 + 1e-6 * (*knobs)["row"] + 2e-6 * (*knobs)["column"];
  };
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const std::vector<std::string> configs = sim.Finalists().begin()->second;
  ASSERT_EQ(configs.size(), 4u);
  for (size_t i = 1; i < configs.size(); ++i) {
    for (size_t k = 1; k < i; ++k) EXPECT_EQ(KnobsThatDiffer(configs[i], configs[k]), 2) << configs[i] << configs[k];
  }
}

TEST(Finals, WhoWonEarlierFinalsHasToWinAgain) {
  Simulation sim({{ToyWorkload("a", 400), 1}});
  sim.spec_.trials = 50;
  sim.Begin();
  ASSERT_TRUE(sim.Run());
  const std::string winner = sim.loop_->task(0).config;
  sim.works_.clear();
  // What the search finds now looks faster, but is not in the model.
  const double won_s = sim.loop_->task(0).best_s;
  sim.cost_ = [&](const Workload&, const std::string&) { return 0.5 * won_s; };
  sim.Begin();
  ASSERT_TRUE(sim.RunUntil(Phase::kFinals));
  const Work finals = sim.queue_.front();
  sim.queue_.pop_front();
  EXPECT_EQ(finals.items.at(1).config, winner);
  for (const WorkItem& item : finals.items) {
    const double cost = item.config == winner ? won_s : 2 * won_s;
    sim.loop_->OnResult({.item = item.id, .trial = {.outcome = Outcome::kOk, .costs_s = {cost, cost, cost}}},
                        sim.clock_.Monotonic());
  }
  ASSERT_TRUE(sim.Run());
  EXPECT_EQ(sim.loop_->task(0).config, winner);
}

TEST(Finals, FinalsThatDoNotAnswerAreWithdrawn) {
  Simulation sim(ThreeTasks());
  sim.spec_.trials = 50;
  sim.Begin();
  ASSERT_TRUE(sim.RunUntil(Phase::kFinals));
  sim.queue_.clear();
  const absl::Duration finals_began = sim.clock_.Monotonic();
  ASSERT_TRUE(sim.Run());
  EXPECT_GT(sim.withdrawn_, 0);
  EXPECT_GE(sim.clock_.Monotonic() - finals_began, sim.options_.model_patience);
  EXPECT_FALSE(sim.loop_->warnings().empty());
  EXPECT_DOUBLE_EQ(sim.loop_->tuned_s(), 1);
}

}  // namespace
}  // namespace temper
