// What other tasks taught: it is used, it helps with a neighbour's shape, and it breaks no promise.
#include "tuner_server/search/experience.h"

#include <cmath>
#include <iostream>
#include <limits>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/search/contract.h"
#include "tests/search/toy.h"

namespace temper {
namespace {

using testing::IsEmpty;

class ExperienceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterToys(); }
};

// The toy workload in another size.
Workload Sized(const std::string& spaces, int64_t size) {
  Workload w = ToyWorkload(spaces);
  w.inputs[0].type.shape = w.calls[0].type.shape = {size};
  return w;
}

// The machine's cost, and a tenth that depends on the size: neighbours are alike, not the same.
double Cost(const TunerContext& context, const Proposal& c, int machine) {
  const uint64_t odd = StableHash(Text(c.config) + std::to_string(context.workload.inputs[0].type.shape[0]));
  return ToyCost(context, c, machine) * (1 + 0.1 * static_cast<double>(odd % 1000) / 1000);
}

struct PlayedSearch {
  std::vector<Observation> results;
  std::vector<double> best;  // so far
};
PlayedSearch Searched(const TunerContext& context, int trials, int machine) {
  PlayedSearch search;
  auto tuner = FindTuner("xgb")->make(context);
  EXPECT_TRUE(tuner.ok());
  double best = std::numeric_limits<double>::infinity();
  while (static_cast<int>(search.best.size()) < trials) {
    const auto batch = (*tuner)->Propose(8);
    EXPECT_TRUE(batch.ok() && !batch->empty());
    std::vector<Observation> results;
    for (const Proposal& c : *batch) {
      results.push_back({c, true, Cost(context, c, machine)});
      best = std::min(best, results.back().cost_s);
      search.best.push_back(best);
    }
    EXPECT_TRUE((*tuner)->Observe(results).ok());
    search.results.insert(search.results.end(), results.begin(), results.end());
  }
  return search;
}

TunerContext Context(int64_t size, uint64_t seed) {
  TunerContext context = ToyContext("gemm", seed);
  context.workload = Sized("gemm", size);
  return context;
}

TEST_F(ExperienceTest, ANeighboursRecordsFindTheBestSooner) {
  double cold = 0, warm = 0, boosted = 0;  // logarithms, after the first batch of 8
  for (int machine = 0; machine < kToyMachines; ++machine) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const PlayedSearch neighbour = Searched(Context(8, seed + 100), 96, machine);
      const auto seeds_too = std::make_shared<Experience>(Context(8, 0).target, std::vector<Booster>());
      seeds_too->Add(Sized("gemm", 8), neighbour.results);
      ASSERT_TRUE(seeds_too->Refit().ok());
      ASSERT_FALSE(seeds_too->boosters()->empty());
      const auto boosters_alone = std::make_shared<Experience>(Context(8, 0).target, *seeds_too->boosters());
      TunerContext context = Context(10, seed);
      const PlayedSearch long_search = Searched(context, 96, machine);
      const double reference = std::log(long_search.best.back());
      cold += std::log(long_search.best[7]) - reference;
      context.experience = boosters_alone;
      boosted += std::log(Searched(context, 8, machine).best[7]) - reference;
      context.experience = seeds_too;
      warm += std::log(Searched(context, 8, machine).best[7]) - reference;
    }
  }
  const double runs = 3 * kToyMachines;
  std::cout << "over the best of 96 trials, after 8: cold " << std::exp(cold / runs) << ", boosters "
            << std::exp(boosted / runs) << ", and seeds " << std::exp(warm / runs) << "\n";
  EXPECT_LT(boosted, 0.75 * cold);
  EXPECT_LT(warm, 0.5 * cold);
}

TEST_F(ExperienceTest, SeedsAreTheBestOfTheNearestAndNotTheTasksOwn) {
  Experience experience(ToyContext("small").target, {});
  const auto config = [](int64_t a, int64_t b) { return Proposal{"toy.small", Config({{"a", a}, {"b", b}})}; };
  const auto add = [&](int64_t size, const Proposal& best, const Proposal& other) {
    const Observation results[] = {{other, true, 2e-3}, {best, true, 1e-3}, {config(0, 2), false, 0}};
    experience.Add(Sized("small", size), results);
  };
  add(4, config(1, 1), config(9, 1));
  add(100, config(3, 1), config(9, 1));
  add(5, config(2, 3), config(9, 1));
  add(6, config(2, 3), config(9, 1));
  const Observation failure[] = {{config(9, 1), false, 0}};
  experience.Add(Sized("small", 4), failure);
  experience.Add(Sized("small", 7), failure);
  EXPECT_EQ(experience.Seeds(Sized("small", 4)), (std::vector<Proposal>{config(2, 3), config(3, 1)}));
  EXPECT_EQ(experience.Seeds(Sized("small", 90)), (std::vector<Proposal>{config(3, 1), config(2, 3), config(1, 1)}));
}

TEST_F(ExperienceTest, SeedsComeInTheFirstBatchWhereTheyAreLegal) {
  const auto experience = std::make_shared<Experience>(ToyContext("small").target, std::vector<Booster>());
  const Proposal legal{"toy.small", Config({{"a", 14}, {"b", 20}})};  // the last by draft
  const Proposal illegal{"toy.small", Config({{"a", 1}, {"b", 2}})}, unknown{"toy.small", Config({{"a", 99}})};
  int64_t size = 5;
  for (const Proposal& c : {legal, illegal, unknown}) {
    const Observation result[] = {{c, true, 1e-3}};
    if (c == unknown) continue;
    experience->Add(Sized("small", size++), result);
  }
  TunerContext context = ToyContext("small");
  context.experience = experience;
  const auto batch = (*FindTuner("xgb")->make(context))->Propose(4);
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(*batch, testing::Contains(legal));
  context.draft = false;
  const auto blind = (*FindTuner("xgb")->make(context))->Propose(4);
  EXPECT_THAT(*blind, testing::Not(testing::Contains(legal))) << "nothing is known without the draft";
}

TEST_F(ExperienceTest, TrainsAgainWhenThereIsTwiceAsMuch) {
  Experience experience(Context(8, 0).target, {});
  const PlayedSearch search = Searched(Context(8, 0), 128, 0);
  const std::span results(search.results);
  const Boosters none = experience.boosters();
  experience.Add(Sized("gemm", 8), results.first(16));
  ASSERT_TRUE(experience.Refit().ok());
  EXPECT_EQ(experience.boosters(), none) << "too little to learn from";
  experience.Add(Sized("gemm", 8), results.subspan(16, 48));
  ASSERT_TRUE(experience.Refit().ok());
  const Boosters first = experience.boosters();
  EXPECT_EQ(first->size(), 1u);
  experience.Add(Sized("gemm", 8), results.subspan(64, 8));
  ASSERT_TRUE(experience.Refit().ok());
  EXPECT_EQ(experience.boosters(), first);
  experience.Add(Sized("gemm", 8), results.subspan(72));
  ASSERT_TRUE(experience.Refit().ok());
  EXPECT_NE(experience.boosters(), first);
}

TEST_F(ExperienceTest, UsesShippedBoostersOfItsTargetAndTemplatesOnly) {
  Experience experience(Context(8, 0).target, {});
  experience.Add(Sized("gemm", 8), Searched(Context(8, 0), 64, 0).results);
  ASSERT_TRUE(experience.Refit().ok());
  const Booster sound = experience.boosters()->at(0);
  Booster old = sound, foreign = sound, gone = sound;
  old.template_version = 99;
  foreign.isa = "avx512";
  gone.template_name = "toy.gone";
  const Experience warmed(Context(8, 0).target, {old, foreign, gone, sound});
  EXPECT_EQ(warmed.boosters()->size(), 1u);
}

std::shared_ptr<const Experience> LongExperience() {
  static const std::shared_ptr<const Experience> kept = [] {
    auto experience = std::make_shared<Experience>(Context(8, 0).target, std::vector<Booster>());
    for (const char* spaces : {"gemm", "two", "small"}) {
      TunerContext context = ToyContext(spaces, 7);
      context.workload = Sized(spaces, 8);
      experience->Add(context.workload, Searched(context, 64, 0).results);
    }
    EXPECT_TRUE(experience->Refit().ok());
    return experience;
  }();
  return kept;
}

TEST_F(ExperienceTest, TunersThatHaveOneKeepTheContract) {
  EXPECT_EQ(LongExperience()->boosters()->size(), 2u);
  const TunerDef warm[] = {{"xgb",
                            [](const TunerContext& c) {
                              TunerContext context = c;
                              context.experience = LongExperience();
                              return FindTuner("xgb")->make(context);
                            }},
                           {"xgb-rank", [](const TunerContext& c) {
                              TunerContext context = c;
                              context.experience = LongExperience();
                              return FindTuner("xgb-rank")->make(context);
                            }}};
  for (const TunerDef& def : warm) EXPECT_THAT(Breaches(def), IsEmpty()) << def.name;
}

}  // namespace
}  // namespace temper
