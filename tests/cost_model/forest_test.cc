// The forest adds up what XGBoost predicts.
#include "cost_model/xgboost/forest.h"

#include <xgboost/c_api.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomRows(Rng& rng, size_t count, size_t width) {
  std::vector<float> rows(count * width);
  for (float& value : rows) value = rng.Below(5) == 0 ? kMissing : static_cast<float>(rng.Below(40)) / 4;
  return rows;
}

TEST(Forest, PredictsAsXgboostDoes) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Rng rng(seed);
    const size_t width = 1 + static_cast<size_t>(rng.Below(9)), count = 3 + static_cast<size_t>(rng.Below(300));
    const std::vector<float> rows = RandomRows(rng, count, width);
    std::vector<float> labels(count);
    for (float& label : labels) label = static_cast<float>(rng.Uniform());
    DMatrixHandle train = nullptr, asked = nullptr;
    BoosterHandle booster = nullptr;
    ASSERT_EQ(XGDMatrixCreateFromMat(rows.data(), count, width, kMissing, &train), 0);
    ASSERT_EQ(XGDMatrixSetFloatInfo(train, "label", labels.data(), count), 0);
    ASSERT_EQ(XGBoosterCreate(&train, 1, &booster), 0);
    const std::string depth = absl::StrCat(seed % 8);
    for (auto [name, value] : {std::pair{"base_score", "0"},
                               {"tree_method", seed % 2 == 0 ? "hist" : "exact"},
                               {"max_depth", depth.c_str()},
                               {"gamma", "1e-3"},
                               {"nthread", "1"},
                               {"verbosity", "0"}})
      ASSERT_EQ(XGBoosterSetParam(booster, name, value), 0);
    for (int round = 0; round < 1 + static_cast<int>(seed) * 3; ++round)
      ASSERT_EQ(XGBoosterUpdateOneIter(booster, round, train), 0);
    const std::vector<float> fresh = RandomRows(rng, 500, width);
    ASSERT_EQ(XGDMatrixCreateFromMat(fresh.data(), 500, width, kMissing, &asked), 0);
    bst_ulong length = 0;
    const float* wanted = nullptr;
    ASSERT_EQ(XGBoosterPredict(booster, asked, 0, 0, 0, &length, &wanted), 0);
    bst_ulong bytes = 0;
    const char* saved = nullptr;
    ASSERT_EQ(XGBoosterSaveModelToBuffer(booster, R"({"format":"ubj"})", &bytes, &saved), 0);
    const auto forest = Forest::FromUbj({saved, bytes}, width);
    ASSERT_TRUE(forest.ok()) << forest.status();
    std::vector<float> scores(500, 0.0f);
    forest->AddTo(fresh, width, scores);
    for (size_t i = 0; i < scores.size(); ++i) ASSERT_FLOAT_EQ(scores[i], wanted[i]) << "seed " << seed;
    XGDMatrixFree(train);
    XGDMatrixFree(asked);
    XGBoosterFree(booster);
  }
}

TEST(Forest, IsScaled) {
  auto forest = Forest::FromText("0<1 =2 =4\n=1\n", 1);
  ASSERT_TRUE(forest.ok()) << forest.status();
  forest->Scale(0.5f);
  std::vector<float> scores = {0, 10};
  forest->AddTo(std::vector<float>{0.5f, 1}, 1, scores);
  EXPECT_EQ(scores, (std::vector<float>{1.5f, 12.5f}));
}

TEST(Forest, OfNoTreesAddsNothing) {
  std::vector<float> scores = {1, 2};
  Forest().AddTo(std::vector<float>{0, 0}, 1, scores);
  EXPECT_EQ(scores, (std::vector<float>{1, 2}));
}

TEST(Forest, RefusesWhatIsNoModel) {
  for (const char* model : {"", "{}", "not at all"}) EXPECT_FALSE(Forest::FromUbj(model, 1).ok()) << model;
}

TEST(Forest, RefusesTreesThatAreNone) {
  const nlohmann::json sound = {{"left_children", {1.0, -1.0, -1.0}},
                                {"right_children", {2.0, -1.0, -1.0}},
                                {"split_indices", {3, 0, 0}},
                                {"split_conditions", {0.5, 1.0, 2.0}},
                                {"default_left", {0, 0, 0}}};
  const auto is_taken = [](const nlohmann::json& tree, size_t width) {
    const std::vector<uint8_t> model = nlohmann::json::to_ubjson(tree);
    return Forest::FromUbj({reinterpret_cast<const char*>(model.data()), model.size()}, width).ok();
  };
  EXPECT_TRUE(is_taken(sound, 4));
  EXPECT_FALSE(is_taken(sound, 3));
  const auto with = [&](const char* list, double value) {
    nlohmann::json tree = sound;
    tree[list][0] = value;
    return tree;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const double child : {kNan, 0.0, 0.5, 3.0, kInfinity}) {
    EXPECT_FALSE(is_taken(with("right_children", child), 4)) << child;
    EXPECT_FALSE(is_taken(with("left_children", child), 4)) << child;
  }
  for (const double feature : {kNan, -1.0, 65536.0, 65539.0, kInfinity})
    EXPECT_FALSE(is_taken(with("split_indices", feature), 1 << 20)) << feature;
  EXPECT_TRUE(is_taken(with("split_indices", 65535), 1 << 20));
  for (const double condition : {kNan, 1e300}) EXPECT_FALSE(is_taken(with("split_conditions", condition), 4));
}

}  // namespace
}  // namespace temper
