// Does it search well? On a made-up machine, whose fastest config is known by looking at all of them.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <set>

#include "gtest/gtest.h"
#include "tests/search/toy.h"

namespace temper {
namespace {

class Quality : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterToys(); }
};

// The fastest seen, after each trial.
std::vector<double> BestSoFar(std::string_view tuner_name, const TunerContext& context, int trials, int machine = 0) {
  auto tuner = FindTuner(tuner_name)->make(context);
  EXPECT_TRUE(tuner.ok()) << tuner.status();
  std::vector<double> best;
  double now = std::numeric_limits<double>::infinity();
  while (static_cast<int>(best.size()) < trials) {
    const auto proposed = (*tuner)->Propose(16);
    EXPECT_TRUE(proposed.ok()) << proposed.status();
    std::vector<Observation> results;
    for (const Proposal& c : *proposed) {
      results.push_back({c, true, ToyCost(context, c, machine)});
      now = std::min(now, results.back().cost_s);
      best.push_back(now);
    }
    EXPECT_TRUE((*tuner)->Observe(results).ok());
    if (results.empty()) break;
  }
  return best;
}

double Optimum(const TunerContext& context, int machine = 0) {
  double best = std::numeric_limits<double>::infinity();
  for (const TemplateDef* def : TemplatesFor(context.workload, context.target)) {
    for (const Config& config : def->space(context.workload, context.target).Enumerate(1 << 20)) {
      best = std::min(best, ToyCost(context, {std::string(def->name), config}, machine));
    }
  }
  return best;
}

// Geometric means of best seen / best there is, over machines and seeds, after 16, 64 and 128 trials of 95,000.
std::vector<double> MeanRatios(std::string_view tuner) {
  constexpr int kSeeds = 2;
  std::vector<double> mean(3);
  for (int machine = 0; machine < kToyMachines; ++machine) {
    const double optimum = Optimum(ToyContext("gemm"), machine);
    for (int seed = 0; seed < kSeeds; ++seed) {
      const std::vector<double> best = BestSoFar(tuner, ToyContext("gemm", seed), 128, machine);
      int i = 0;
      for (int trials : {16, 64, 128}) mean[i++] += std::log(best[trials - 1] / optimum) / (kToyMachines * kSeeds);
    }
  }
  for (double& m : mean) m = std::exp(m);
  return mean;
}

TEST_F(Quality, XgbComesNearTheFastestAndRandomDoesNot) {
  const std::vector<double> xgb = MeanRatios("xgb"), random = MeanRatios("random");
  std::cout << "over the optimum after 16, 64, 128 trials: xgb " << xgb[0] << " " << xgb[1] << " " << xgb[2]
            << ", random " << random[0] << " " << random[1] << " " << random[2] << "\n";
  EXPECT_LT(xgb[2], 1.2);
  EXPECT_LT(xgb[2] / random[2], 0.8);
  EXPECT_LT(xgb[1], random[2]) << "half the trials do more";
}

TEST_F(Quality, TheFirstBatchIsAsGoodAsTheDraft) {
  const double optimum = Optimum(ToyContext("gemm"), kTrueToDraft);
  for (int seed = 0; seed < 3; ++seed)
    EXPECT_LT(BestSoFar("xgb", ToyContext("gemm", seed), 16, kTrueToDraft).back() / optimum, 1.01);
}

TEST_F(Quality, XgbFindsTheBetterTemplate) {
  const double optimum = Optimum(ToyContext("two"));
  for (int seed = 0; seed < 3; ++seed) {
    EXPECT_LT(BestSoFar("xgb", ToyContext("two", seed), 64).back() / optimum, 1.1) << "seed " << seed;
  }
}

TEST_F(Quality, ADraftThatIsWrongAboutItsBestIsSoonOverruled) {
  // What the draft likes best is three times as slow as it says.
  const TunerContext context = ToyContext("small");
  const auto cost_s = [&](const Proposal& c) {
    return ToyCost(context, c) * (c.config["a"] + c.config["b"] <= 10 ? 3 : 1);
  };
  double optimum = std::numeric_limits<double>::infinity();
  for (const Config& config : FindTemplate("toy.small")->space(context.workload, context.target).Enumerate(1 << 20))
    optimum = std::min(optimum, cost_s({"toy.small", config}));
  for (int seed = 0; seed < 3; ++seed) {
    auto tuner = FindTuner("xgb")->make(ToyContext("small", seed));
    double best = std::numeric_limits<double>::infinity();
    for (int batch = 0; batch < 2; ++batch) {
      const auto proposed = (*tuner)->Propose(16);
      ASSERT_TRUE(proposed.ok());
      std::vector<Observation> results;
      for (const Proposal& c : *proposed) {
        results.push_back({c, true, cost_s(c)});
        best = std::min(best, results.back().cost_s);
      }
      ASSERT_TRUE((*tuner)->Observe(results).ok());
      EXPECT_LT(best / optimum, batch == 0 ? 1.6 : 1.2) << "batch " << batch << " of seed " << seed;
    }
  }
}

TEST_F(Quality, TheFirstBatchShowsEveryTemplate) {
  for (const char* name : {"xgb", "xgb-rank", "droplet"}) {
    auto tuner = FindTuner(name)->make(ToyContext("two"));
    const auto proposed = (*tuner)->Propose(4);
    ASSERT_TRUE(proposed.ok());
    std::set<std::string> shown;
    for (const Proposal& c : *proposed) shown.insert(c.template_name);
    EXPECT_EQ(shown.size(), 2u) << name;
  }
}

// The median of a batch that the tuner proposes now; `results` are what it will be told.
double NextBatch(Tuner& tuner, const TunerContext& context, std::vector<Observation>& results) {
  const auto batch = tuner.Propose(16);
  EXPECT_TRUE(batch.ok() && !batch->empty()) << batch.status();
  results.clear();
  std::vector<double> costs;
  for (const Proposal& c : *batch) {
    costs.push_back(ToyCost(context, c));
    results.push_back({c, true, costs.back()});
  }
  std::sort(costs.begin(), costs.end());
  return costs[costs.size() / 2];
}

TEST_F(Quality, ResumingIsAsGoodAsGoingOn) {
  constexpr int kSeeds = 4;
  double began = 0, went_on = 0, resumed = 0;  // logarithms, added up
  for (int seed = 0; seed < kSeeds; ++seed) {
    const TunerContext context = ToyContext("gemm", seed);
    auto first = FindTuner("xgb")->make(context), second = FindTuner("xgb")->make(context);
    std::vector<Observation> results, records;
    for (int i = 0; i < 4; ++i) {
      const double median_s = NextBatch(**first, context, results);
      if (i == 0) began += std::log(median_s);
      ASSERT_TRUE((*first)->Observe(results).ok());
      records.insert(records.end(), results.begin(), results.end());
    }
    ASSERT_TRUE((*second)->Observe(records).ok());
    went_on += std::log(NextBatch(**first, context, results));
    resumed += std::log(NextBatch(**second, context, results));
  }
  EXPECT_LT(std::exp((resumed - went_on) / kSeeds), 1.3);
  EXPECT_LT(std::exp((resumed - began) / kSeeds), 0.8) << "it knows at once where to look";
}

TEST_F(Quality, TheFirstBatchIsNotOneThingSixteenTimes) {
  const TunerContext context = ToyContext("gemm");
  auto tuner = FindTuner("xgb")->make(context);
  const auto batch = (*tuner)->Propose(16);
  ASSERT_TRUE(batch.ok());
  ASSERT_EQ(batch->size(), 16u);
  int near = 0;
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < i; ++j) {
      int differing = 0;
      for (size_t k = 0; k < (*batch)[i].config.values().size(); ++k) {
        differing += (*batch)[i].config.values()[k] != (*batch)[j].config.values()[k];
      }
      near += differing < 2;
    }
  }
  EXPECT_EQ(near, 0);
}

}  // namespace
}  // namespace temper
