// Searches repeated on a recorded space: what tuners are told, what they are scored by, and what the figures mean.
#include "bench/search/replay.h"

#include <cmath>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/search/toy.h"

namespace temper {
namespace {

class Replay : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterToys(); }
};

using PassCosts = std::function<std::vector<double>(const Proposal&)>;

// A recording of all of a toy workload's spaces.
std::string Recording(const std::string& spaces, const PassCosts& costs) {
  const TunerContext context = ToyContext(spaces);
  std::string text =
      absl::StrCat(R"({"workload":")", Text(context.workload), R"(","target":")", Text(context.target), "\"}\n");
  for (const TemplateDef* def : TemplatesFor(context.workload, context.target)) {
    for (const Config& config : def->space(context.workload, context.target).Enumerate(1 << 20)) {
      const std::vector<double> passes = costs({std::string(def->name), config});
      for (size_t pass = 0; pass < passes.size(); ++pass) {
        absl::StrAppend(&text, R"({"pass":)", pass, R"(,"template":")", std::string(def->name), R"(","config":")",
                        Text(config), R"(","cost_s":)", std::isinf(passes[pass]) ? "null" : absl::StrCat(passes[pass]),
                        "}\n");
      }
    }
  }
  return text;
}

absl::StatusOr<RecordedSpace> Parsed(const std::string& text) {
  std::istringstream in(text);
  return ParseSpace(in);
}

std::vector<double> Steady(double cost) { return {cost, cost, cost}; }
double Sum(const Proposal& c) { return static_cast<double>(c.config["a"] + c.config["b"]); }

TEST_F(Replay, ARecordingIsRead) {
  const auto space = Parsed(Recording("small", [](const Proposal& c) {
    return std::vector<double>{Sum(c), Sum(c) + 2, 3 * Sum(c)};
  }));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(Text(space->workload), Text(ToyWorkload("small")));
  EXPECT_EQ(space->costs.size(), 200u);
  const RecordedSpace::Costs& costs = space->costs.at({"toy.small", "a=2,b=3"});
  EXPECT_EQ(costs.told_s, 6);
  EXPECT_EQ(costs.scored_s, 15);
  EXPECT_EQ(space->best_s, 3) << "a=0,b=1";
}

TEST_F(Replay, RefusesWhatIsNoRecording) {
  const auto refused = [](const std::string& text) { return absl::IsInvalidArgument(Parsed(text).status()); };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("nonsense"));
  EXPECT_TRUE(refused(Recording("small", [](const Proposal&) { return std::vector<double>{1, 1}; }))) << "two passes";
  EXPECT_TRUE(refused(Recording("small", [](const Proposal&) { return Steady(INFINITY); }))) << "nothing works";
}

TEST_F(Replay, RegretIsNothingWhereAllWasTried) {
  const auto space = Parsed(Recording("small", [](const Proposal& c) { return Steady(Sum(c)); }));
  ASSERT_TRUE(space.ok());
  for (const TunerDef& tuner : AllTuners()) {
    const auto regrets = Regrets(*space, tuner, {.trials = 200, .seeds = 2});
    ASSERT_TRUE(regrets.ok()) << regrets.status();
    EXPECT_EQ(*regrets, std::vector<double>(2, 0.0)) << tuner.name;
  }
}

TEST_F(Replay, LuckIsNeitherMeritNorReference) {
  // What is told to be fastest is twice as slow in the third pass as the best of it, which was told to be slow.
  const auto space = Parsed(Recording("small", [](const Proposal& c) {
    if (Text(c.config) == "a=4,b=4") return std::vector<double>{0.5, 0.5, 2};
    return Text(c.config) == "a=1,b=1" ? std::vector<double>{3, 3, 1} : Steady(10);
  }));
  ASSERT_TRUE(space.ok());
  EXPECT_EQ(space->all_s, 2);
  EXPECT_EQ(RegretOfAll(*space), 1.0);
  for (bool told : {false, true}) {
    const auto all = Regrets(*space, *FindTuner("grid"), {.trials = 200, .seeds = 1, .told = told});
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(*all, std::vector<double>{0.0}) << "the search itself missed nothing";
  }
}

TEST_F(Replay, RegretIsLessThanNothingWhereNoiseChoseBetter) {
  auto space = Parsed(Recording("small", [](const Proposal& c) {
    return Text(c.config) == "a=4,b=4" ? std::vector<double>{4, 4, 2} : std::vector<double>{3, 3, 8};
  }));
  ASSERT_TRUE(space.ok());
  EXPECT_EQ(space->all_s, 8);
  // A search that meets nothing else that works.
  for (auto& [key, costs] : space->costs) costs.told_s = key.second == "a=4,b=4" ? 4 : INFINITY;
  const auto regrets = Regrets(*space, *FindTuner("grid"), {.trials = 200, .seeds = 1});
  ASSERT_TRUE(regrets.ok());
  EXPECT_EQ(*regrets, std::vector<double>{-0.75});
}

TEST_F(Replay, WhatFailsInTheThirdPassIsNobodysChoice) {
  const auto space = Parsed(Recording("small", [](const Proposal& c) {
    return Text(c.config) == "a=4,b=4" ? std::vector<double>{1, 1, INFINITY} : Steady(10 + Sum(c));
  }));
  ASSERT_TRUE(space.ok());
  EXPECT_EQ(space->all_s, 11);
}

TEST_F(Replay, TheFirstBatchIsTheSameForAll) {
  const auto space = Parsed(Recording("small", [](const Proposal& c) { return Steady(1 + 0.01 * Sum(c)); }));
  ASSERT_TRUE(space.ok());
  for (bool draft : {true, false}) {
    std::set<std::vector<double>> seen;
    for (const TunerDef& tuner : AllTuners()) {
      const auto regrets = Regrets(*space, tuner, {.trials = 16, .seeds = 3, .draft = draft});
      ASSERT_TRUE(regrets.ok());
      seen.insert(*regrets);
    }
    EXPECT_EQ(seen.size(), 1u);
  }
}

TEST_F(Replay, AConfigThatWasNotRecordedIsAnError) {
  auto space = Parsed(Recording("small", [](const Proposal& c) { return Steady(Sum(c)); }));
  ASSERT_TRUE(space.ok());
  space->costs.erase(space->costs.begin());
  EXPECT_TRUE(absl::IsNotFound(Regrets(*space, *FindTuner("grid"), {.trials = 200, .seeds = 1}).status()));
}

TEST(Figures, QuantilesInterpolate) {
  EXPECT_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({3, 1, 2, 4}, 0.5), 2.5);
  EXPECT_EQ(Quantile({3, 1, 2}, 1), 3);
  EXPECT_EQ(Quantile({3, 1, 2}, 0), 1);
}

TEST(Figures, PairsThatDifferAlikeHaveNoDoubt) {
  const PairedResult alike = PairedDifference({5, 7, 1}, {4, 6, 0});
  EXPECT_EQ(alike.mean, 1);
  EXPECT_EQ(alike.half_width, 0);
  const PairedResult unlike = PairedDifference({1, -1, 1, -1}, {0, 0, 0, 0});
  EXPECT_EQ(unlike.mean, 0);
  EXPECT_NEAR(unlike.half_width, 1.96 * std::sqrt(4.0 / 3 / 4), 1e-9);
}

}  // namespace
}  // namespace temper
