// The features say what they should, and the model learns what the draft does not know.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "compiler/ops/templates/cpu_footprint.h"
#include "cost_model/cost_model.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

constexpr double kFailed = std::numeric_limits<double>::infinity();

CpuFootprint RandomFootprint(Rng& rng) {
  CpuFootprint f;
  f.flops = 1e8;
  f.padded_flops = f.flops * (1 + rng.Uniform());
  f.vector_lanes = 8;
  f.tile_rows = static_cast<double>(1 + rng.Below(14));
  f.tile_columns = 8 << rng.Below(3);
  f.tile_registers = f.tile_rows * f.tile_columns / 8 + 3;
  f.reduction = static_cast<double>(32 << rng.Below(5));
  f.loads_per_fma = 1 / f.tile_rows + 8 / f.tile_columns;
  f.l1_bytes = 4096 << rng.Below(6);
  f.l2_bytes = 65536 << rng.Below(6);
  f.l2_traffic = 1e7 * (1 + rng.Uniform());
  f.memory_traffic = 1e6 * (1 + rng.Uniform());
  f.compulsory_bytes = 1e6;
  f.parallel_chunks = static_cast<double>(1 + rng.Below(64));
  return f;
}

// What the draft does not know of this made-up machine: it dislikes one size of working set and loves another.
double Residual(const CpuFootprint& f) {
  return (f.l1_bytes > 40000 ? 1.2 : 0) + (f.reduction == 128 ? -0.7 : 0) + 0.04 * f.tile_rows;
}

// A candidate as the tests speak of it.
struct Sample {
  std::vector<float> features;
  double draft_s;
  double cost_s;
};
Sample SampleOf(const CpuFootprint& f, const CpuTarget& target, double slower) {
  const Footprint footprint = UnderCpuSchema(f, target);
  const double draft_s = footprint.draft_s;
  Sample sample{std::vector<float>(FeatureCount(CpuSchema())), draft_s, draft_s * slower};
  Features(footprint, draft_s, sample.features);
  return sample;
}
std::vector<float> FeaturesOf(const CpuFootprint& f, const CpuTarget& target) {
  return SampleOf(f, target, 1).features;
}

Rows RowsOf(std::span<const Sample> samples) {
  Rows rows{samples.empty() ? FeatureCount(CpuSchema()) : samples[0].features.size()};
  for (const Sample& s : samples) {
    rows.features.insert(rows.features.end(), s.features.begin(), s.features.end());
    rows.draft_s.push_back(s.draft_s);
  }
  return rows;
}
absl::Status Fit(CostModel& model, std::span<const Sample> samples, std::span<const int> groups) {
  std::vector<double> costs;
  for (const Sample& s : samples) costs.push_back(s.cost_s);
  return model.Fit(RowsOf(samples), costs, groups);
}

struct Data {
  std::vector<Sample> samples;
  std::vector<int> groups;
};
Data MakeData(uint64_t seed, int count, int group = 0, double factor = 1) {
  Rng rng(seed);
  const CpuTarget target;
  Data data;
  for (int i = 0; i < count; ++i) {
    const CpuFootprint f = RandomFootprint(rng);
    data.samples.push_back(SampleOf(f, target, factor * std::exp(Residual(f))));
    data.groups.push_back(group);
  }
  return data;
}

std::vector<float> Scores(CostModel& model, std::span<const Sample> samples) {
  auto scores = model.Score(RowsOf(samples));
  EXPECT_TRUE(scores.ok()) << scores.status();
  return scores.ok() ? *scores : std::vector<float>(samples.size());
}

// Those of the draft alone.
std::vector<float> DraftScores(std::span<const Sample> samples) {
  std::vector<float> scores;
  for (const Sample& sample : samples) scores.push_back(static_cast<float>(-std::log(sample.draft_s)));
  return scores;
}

// The share of pairs, at least 5 % apart, that the scores order rightly.
double PairsRight(const std::vector<Sample>& samples, const std::vector<float>& scores) {
  double right = 0, all = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t j = 0; j < samples.size(); ++j) {
      if (samples[i].cost_s * 1.05 >= samples[j].cost_s) continue;
      ++all;
      right += scores[i] > scores[j];
    }
  }
  return right / all;
}

TEST(Features, HaveOneNameEach) {
  const auto names = FeatureNames(CpuSchema());
  EXPECT_EQ(names.size(), FeatureCount(CpuSchema()));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  Rng rng(1);
  EXPECT_EQ(FeaturesOf(RandomFootprint(rng), CpuTarget{}).size(), names.size());
}

TEST(Features, AreFiniteEvenForAnEmptyFootprint) {
  for (float value : FeaturesOf(CpuFootprint{}, CpuTarget{})) EXPECT_TRUE(std::isfinite(value));
}

TEST(Features, GrowWithWhatTheyName) {
  CpuFootprint small, large;
  large.l1_bytes = 1 << 20;
  const std::vector<float> a = FeaturesOf(small, CpuTarget{}), b = FeaturesOf(large, CpuTarget{});
  std::set<std::string> changed;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) changed.insert(FeatureNames(CpuSchema())[i]);
  }
  EXPECT_EQ(changed, (std::set<std::string>{"l1_bytes", "l1_used"}));
}

TEST(Features, KnowTheTarget) {
  Rng rng(3);
  const CpuFootprint f = RandomFootprint(rng);
  CpuTarget large;
  large.l1_bytes *= 4;
  EXPECT_NE(FeaturesOf(f, CpuTarget{}), FeaturesOf(f, large));
}

TEST(XgboostModel, BeforeAnyFitIsTheDraft) {
  const Data data = MakeData(1, 30);
  EXPECT_EQ(Scores(*NewXgboostModel(0), data.samples), DraftScores(data.samples));
}

TEST(XgboostModel, LearnsWhatTheDraftDoesNotKnow) {
  const Data train = MakeData(1, 200), held_out = MakeData(2, 200);
  const auto model = NewXgboostModel(0);
  ASSERT_TRUE(Fit(*model, train.samples, train.groups).ok());
  const double learned = PairsRight(held_out.samples, Scores(*model, held_out.samples));
  const double drafted = PairsRight(held_out.samples, DraftScores(held_out.samples));
  EXPECT_LT(drafted, 0.85);
  EXPECT_GT(learned, 0.93);
}

TEST(XgboostModel, ScoresAreMinusTheLogarithmOfSeconds) {
  const Data train = MakeData(1, 300), held_out = MakeData(2, 100);
  const auto model = NewXgboostModel(0);
  ASSERT_TRUE(Fit(*model, train.samples, train.groups).ok());
  const std::vector<float> scores = Scores(*model, held_out.samples);
  double error = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    error += std::abs(std::log(held_out.samples[i].cost_s) + scores[i]) / scores.size();
  EXPECT_LT(error, 0.15);
}

TEST(XgboostModel, FromManySamplesKeepsWhatTellsMost) {
  const Data held_out = MakeData(2, 200);
  const auto first = NewXgboostModel(0), kept = NewXgboostModel(0);
  Data train;
  for (uint64_t seed = 10; seed < 16; ++seed) {
    const Data more = MakeData(seed, 300);
    train.samples.insert(train.samples.end(), more.samples.begin(), more.samples.end());
    if (seed == 10) {
      ASSERT_TRUE(Fit(*first, train.samples, std::vector<int>(train.samples.size(), 0)).ok());
    }
    if (train.samples.size() <= kMostFitted) continue;
    std::vector<double> costs;
    for (const Sample& s : train.samples) costs.push_back(s.cost_s);
    std::vector<Sample> worth;
    for (const size_t i : WorthKeeping(costs)) worth.push_back(train.samples[i]);
    EXPECT_EQ(worth.front().cost_s, *std::min_element(costs.begin(), costs.end()));
    train.samples = worth;
    EXPECT_LE(train.samples.size(), kMostFitted);
  }
  ASSERT_TRUE(Fit(*kept, train.samples, std::vector<int>(train.samples.size(), 0)).ok());
  const double right = PairsRight(held_out.samples, Scores(*kept, held_out.samples));
  EXPECT_GT(right, 0.93);
  EXPECT_GT(right, PairsRight(held_out.samples, Scores(*first, held_out.samples)) - 0.02);
}

TEST(XgboostModel, RanksToo) {
  const Data train = MakeData(1, 200), held_out = MakeData(2, 200);
  const auto model = NewXgboostModel(0, Objective::kRank);
  EXPECT_EQ(Scores(*model, held_out.samples), DraftScores(held_out.samples)) << "not yet fitted";
  ASSERT_TRUE(Fit(*model, train.samples, train.groups).ok());
  EXPECT_GT(PairsRight(held_out.samples, Scores(*model, held_out.samples)), 0.9);
}

TEST(XgboostModel, ComparesWithinATaskOnly) {
  // The same machine, but the second task's drafts are all ten times too low: no reason to think its configs worse.
  Data train = MakeData(1, 150);
  const Data slow = MakeData(4, 150, 1, 10.0), held_out = MakeData(2, 200);
  train.samples.insert(train.samples.end(), slow.samples.begin(), slow.samples.end());
  train.groups.insert(train.groups.end(), slow.groups.begin(), slow.groups.end());
  const auto apart = NewXgboostModel(0), mixed = NewXgboostModel(0);
  ASSERT_TRUE(Fit(*apart, train.samples, train.groups).ok());
  ASSERT_TRUE(Fit(*mixed, train.samples, std::vector<int>(train.groups.size(), 0)).ok());
  const double kept_apart = PairsRight(held_out.samples, Scores(*apart, held_out.samples));
  EXPECT_GT(kept_apart, 0.93);
  EXPECT_GT(kept_apart, PairsRight(held_out.samples, Scores(*mixed, held_out.samples)));
}

TEST(XgboostModel, PutsWhatFailsBehindWhatWorks) {
  Rng rng(1);
  const CpuTarget target;
  const auto fails = [](const CpuFootprint& f) { return f.tile_registers > 16; };
  Data data;
  for (int i = 0; i < 200; ++i) {
    const CpuFootprint f = RandomFootprint(rng);
    data.samples.push_back(SampleOf(f, target, fails(f) ? kFailed : 1));
  }
  const auto model = NewXgboostModel(0);
  ASSERT_TRUE(Fit(*model, data.samples, std::vector<int>(data.samples.size(), 0)).ok());
  double worst_working = kFailed, best_failing = -kFailed;
  for (int i = 0; i < 100; ++i) {
    const CpuFootprint f = RandomFootprint(rng);
    const Sample sample = SampleOf(f, target, 1);
    const double score = Scores(*model, {&sample, 1})[0];
    if (fails(f))
      best_failing = std::max(best_failing, score);
    else
      worst_working = std::min(worst_working, score);
  }
  EXPECT_GT(worst_working, best_failing);
}

TEST(XgboostModel, KeepsTheDraftsOrderWhereNothingWorked) {
  Data data = MakeData(1, 40);
  for (Sample& sample : data.samples) sample.cost_s = kFailed;
  const auto model = NewXgboostModel(0);
  ASSERT_TRUE(Fit(*model, data.samples, data.groups).ok());
  const Data other = MakeData(2, 40);
  const std::vector<float> scores = Scores(*model, other.samples);
  for (size_t i = 1; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i] > scores[0], other.samples[i].draft_s < other.samples[0].draft_s);
  }
}

TEST(XgboostModel, IsFittedOnTheLastSamplesAlone) {
  const Data train = MakeData(1, 120), other = MakeData(3, 90), held_out = MakeData(2, 50);
  const auto once = NewXgboostModel(5), again = NewXgboostModel(5);
  ASSERT_TRUE(Fit(*once, train.samples, train.groups).ok());
  ASSERT_TRUE(Fit(*again, other.samples, other.groups).ok());
  EXPECT_NE(Scores(*once, held_out.samples), Scores(*again, held_out.samples));
  ASSERT_TRUE(Fit(*again, train.samples, train.groups).ok());
  EXPECT_EQ(Scores(*once, held_out.samples), Scores(*again, held_out.samples));
}

TEST(XgboostModel, TakesMissingValues) {
  Data train = MakeData(1, 60);
  for (size_t i = 0; i < train.samples.size(); i += 2) train.samples[i].features.back() = std::nanf("");
  const auto model = NewXgboostModel(0);
  ASSERT_TRUE(Fit(*model, train.samples, train.groups).ok());
  for (float score : Scores(*model, train.samples)) EXPECT_TRUE(std::isfinite(score));
}

TEST(CostModels, RefuseWhatIsNoSample) {
  for (const auto& make : {+[] { return NewXgboostModel(0); }, +[] { return NewXgboostModel(0, Objective::kRank); }}) {
    const Data good = MakeData(1, 20);
    const auto refuses = [&](auto change) {
      const auto model = make();
      Data bad = good;
      change(bad);
      return absl::IsInvalidArgument(Fit(*model, bad.samples, bad.groups));
    };
    EXPECT_TRUE(refuses([](Data& d) { d.samples[3].features.pop_back(); }));
    EXPECT_TRUE(refuses([](Data& d) { d.samples[3].cost_s = std::nan(""); }));
    EXPECT_TRUE(refuses([](Data& d) { d.samples[3].cost_s = 0; }));
    EXPECT_TRUE(refuses([](Data& d) { d.samples[3].draft_s = -1; }));
    EXPECT_TRUE(refuses([](Data& d) { d.samples[3].draft_s = kFailed; }));
    EXPECT_TRUE(refuses([](Data& d) { d.groups.pop_back(); }));
    const auto model = make();
    EXPECT_TRUE(Fit(*model, {}, {}).ok());
    EXPECT_TRUE(Fit(*model, good.samples, good.groups).ok());
    EXPECT_TRUE(Scores(*model, {}).empty());
    Sample short_row = good.samples[0];
    short_row.features.pop_back();
    const Sample mixed[] = {good.samples[0], short_row};
    EXPECT_TRUE(absl::IsInvalidArgument(model->Score(RowsOf(mixed)).status()));
  }
}

// What the draft says that features do not: by how much scores differ where only drafts do.
double WhatTheDraftAdds(int samples) {
  const auto model = NewXgboostModel(1);
  const Data data = MakeData(5, samples);
  EXPECT_TRUE(Fit(*model, data.samples, data.groups).ok());
  Sample slow = MakeData(6, 1).samples[0];
  Sample fast = slow;
  fast.draft_s /= 2;
  const std::vector<float> scores = Scores(*model, std::vector<Sample>{fast, slow});
  return scores[0] - scores[1];
}

TEST(Model, BelievesTheDraftLessTheMoreItHasSeen) {
  EXPECT_NEAR(WhatTheDraftAdds(0), std::log(2), 1e-3);
  EXPECT_NEAR(WhatTheDraftAdds(16), std::log(2) / 2, 1e-3);
  EXPECT_LT(WhatTheDraftAdds(128), 0.01);
}

}  // namespace
}  // namespace temper
