// Spaces that others measured: their files, and tuners that know nothing but knobs.
#include "bench/search/measured_space.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/search/replay.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

constexpr const char* kSpaceHead =
    R"({"device_name": "d", "kernel_name": "k", "tune_params_keys": ["x", "name", "one"],
        "tune_params": {"x": [8, 16, 32], "name": ["a", "b"], "one": [7]}, "cache": {)";

std::string Entry(int x, const std::string& name, const std::string& rest) {
  return absl::StrCat("\"", x, ",", name, ",7\": {\"x\": ", x, ", \"name\": \"", name, "\", \"one\": 7", rest, "}");
}
absl::StatusOr<MeasuredSpace> ParsedSpace(const std::string& entries, const std::string& tail = "}}") {
  return ParseMeasuredSpace("toy", kSpaceHead + entries + tail);
}
std::string Refusal(const std::string& text) {
  const auto space = ParseMeasuredSpace("toy", text);
  EXPECT_TRUE(absl::IsInvalidArgument(space.status())) << text;
  const std::string message(space.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(MeasuredSpace, IsRead) {
  const auto space =
      ParsedSpace(Entry(8, "a", R"(, "time": 2.0, "times": [1.9, 2.1])") + "," + Entry(32, "b", R"(, "time": 0.5)"));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->cost_s.size(), 2u);
  EXPECT_EQ(space->best_s, 0.5e-3);
  const ConfigSpace configs = space->Configs();
  EXPECT_EQ(configs.product_size(), 6);
  const std::vector<Config> legal = configs.Enumerate(100);
  ASSERT_EQ(legal.size(), 2u) << "what was not measured is not legal";
  EXPECT_EQ(Text(legal[0]), "x=8,name=0,one=7") << "names have positions";
  EXPECT_EQ(Text(legal[1]), "x=32,name=1,one=7");
  for (const Config& c : legal) EXPECT_EQ(space->IndexOf(c), *configs.IndexOf(c));
  EXPECT_EQ(space->cost_s.at(space->IndexOf(legal[0])), 2e-3);
}

TEST(MeasuredSpace, WhateverHasNoTimeFailed) {
  const std::vector<std::string> failures = {R"(, "time": "CompilationFailedConfig")",
                                             R"(, "time": NaN)",
                                             R"(, "time": Infinity)",
                                             R"(, "time": null)",
                                             R"(, "time": 0)",
                                             ""};
  for (const std::string& failure : failures) {
    const auto space =
        ParsedSpace(Entry(8, "a", failure) + "," + Entry(16, "a", R"(, "time": 1, "note": "NaN \"NaN")"));
    ASSERT_TRUE(space.ok()) << failure << " " << space.status();
    EXPECT_EQ(std::ranges::count_if(space->cost_s, [](const auto& c) { return std::isinf(c.second); }), 1) << failure;
    EXPECT_EQ(space->best_s, 1e-3);
  }
}

TEST(MeasuredSpace, AFileThatWasNotClosedIsFine) {
  const auto space = ParsedSpace(Entry(8, "a", R"(, "time": 2)") + ",\n", "");
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->cost_s.size(), 1u);
}

TEST(MeasuredSpace, RefusesWhatIsNoSpaceInOneLine) {
  EXPECT_NE(Refusal("").find("no cache file"), std::string::npos);
  EXPECT_NE(Refusal("nonsense").find("no cache file"), std::string::npos);
  EXPECT_NE(Refusal("{}").find("no cache file"), std::string::npos);
  EXPECT_EQ(Refusal(std::string(kSpaceHead) + "}}"), "no config has a time");
  EXPECT_EQ(Refusal(kSpaceHead + Entry(8, "a", R"(, "time": NaN)") + "}}"), "no config has a time");
  EXPECT_EQ(Refusal(kSpaceHead + Entry(9, "a", R"(, "time": 1)") + "}}"), "config 9,a,7: no such value of knob 'x'");
  EXPECT_EQ(Refusal(R"({"tune_params_keys": ["x"], "tune_params": {"x": []}, "cache": {}})"), "knob 'x' has no values");
  EXPECT_EQ(Refusal(R"({"tune_params_keys": ["x"], "tune_params": {"x": [1, 1]}, "cache": {}})"),
            "knob 'x' has a value twice");
}

TEST(MeasuredSpace, FilesAreReadAndMissingOnesNamed) {
  EXPECT_TRUE(absl::IsNotFound(ReadMeasuredSpace("/nowhere/space.json").status()));
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "file.json";
  std::ofstream(path) << kSpaceHead << Entry(8, "a", R"(, "time": 2)") << "}}";
  const auto space = ReadMeasuredSpace(path);
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->name, "file");
  std::ofstream(path) << "nonsense";
  EXPECT_EQ(ReadMeasuredSpace(path).status().message().substr(0, path.string().size()), path.string());
}

// A broad slope whose foot is 40 % above the optimum, which lies at the other end of the space behind a ridge; a third
// of what lies between fails.
MeasuredSpace Deceptive() {
  MeasuredSpace space;
  space.name = "deceptive";
  space.knobs = {{"a", {1, 2, 4, 8, 16, 32, 64, 128}},
                 {"b", {1, 2, 4, 8, 16, 32}},
                 {"c", {0, 1, 2, 3, 4, 5}},
                 {"d", {0, 1}},
                 {"e", {1, 2, 4, 8}},
                 {"f", {7}}};
  const ConfigSpace all = [&] {
    ConfigSpace product;
    for (const Knob& knob : space.knobs) product.Add(knob.name, knob.values);
    product.Require("too many", [](const Config& c) { return c["a"] * c["b"] <= 1024; });
    return product;
  }();
  space.best_s = INFINITY;
  for (const Config& c : all.Enumerate(1 << 20)) {
    const double a = std::log2(c["a"]), b = std::log2(c["b"]), e = std::log2(c["e"]), k = static_cast<double>(c["c"]);
    const double slope = 1.4 + 0.2 * a + 0.3 * b + 0.2 * k + 0.3 * static_cast<double>(c["d"]);
    const double hidden = 1 + 0.15 * std::abs(a - 6) + 0.2 * std::abs(b - 3) + 0.1 * std::abs(k - 4) +
                          (c["d"] == 0 ? 1.0 : 0.0) + 0.1 * std::abs(e - 2);
    const bool fails = a > 2 && a < 5 && (c["c"] + c["e"]) % 3 == 0;
    const double cost_s = fails ? INFINITY : std::min(slope, hidden) * 1e-3;
    space.cost_s[space.IndexOf(c)] = cost_s;
    space.best_s = std::min(space.best_s, cost_s);
  }
  return space;
}

TEST(MeasuredSpace, TheProcessLeavesTheFirstGoodRegionAndChanceDoesNot) {
  const auto space = std::make_shared<const MeasuredSpace>(Deceptive());
  TunerContext context = RegisterMeasuredSpace(space);
  const auto medians = [&](std::string_view tuner) {
    std::vector<double> after_64, after_128;
    for (context.seed = 0; context.seed < 5; ++context.seed) {
      const auto ratios = SearchMeasuredSpace(*space, *FindTuner(tuner), context, {64, 128}, 8);
      EXPECT_TRUE(ratios.ok()) << ratios.status();
      after_64.push_back((*ratios)[0]);
      after_128.push_back((*ratios)[1]);
    }
    return std::pair(Quantile(after_64, 0.5), Quantile(after_128, 0.5));
  };
  const auto [gp_64, gp_128] = medians("gp");
  const auto [random_64, random_128] = medians("random");
  EXPECT_LT(gp_64, 1.15);
  EXPECT_LT(gp_128, 1.01);
  EXPECT_GT(random_128, 1.1) << "else the space shows nothing";
  EXPECT_LT(gp_64, random_64);
}

TEST(MeasuredSpace, ASearchEndsWhereAllWasTried) {
  MeasuredSpace tiny;
  tiny.name = "tiny";
  tiny.knobs = {{"x", {1, 2, 3, 4, 5}}, {"y", {0, 1, 2, 3}}};
  for (int64_t i = 0; i < 20; i += 2) tiny.cost_s[i] = i == 10 ? 1 : i == 12 ? 2 : INFINITY;
  tiny.best_s = 1;
  const auto space = std::make_shared<const MeasuredSpace>(std::move(tiny));
  const TunerContext context = RegisterMeasuredSpace(space);
  for (const TunerDef& tuner : AllTuners()) {
    const auto ratios = SearchMeasuredSpace(*space, tuner, context, {10, 64}, 8);
    ASSERT_TRUE(ratios.ok()) << tuner.name << ratios.status();
    EXPECT_EQ(*ratios, (std::vector<double>{1, 1})) << tuner.name;
  }
}

}  // namespace
}  // namespace temper
