#include "compiler/schedule/config_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

ConfigSpace TileSpace() {
  ConfigSpace space;
  space.Add("mr", {1, 2, 4, 8});
  space.Add("nr", {8, 16});
  space.Add("unroll", {1, 2, 4});
  space.Require("register tile is too large", [](const Config& c) { return c["mr"] * c["nr"] <= 64; });
  space.Require("unrolling a single row is useless", [](const Config& c) { return c["mr"] > 1 || c["unroll"] == 1; });
  return space;
}

TEST(Config, TextRoundTrips) {
  const Config c({{"mr", 14}, {"nr", 32}, {"shift", -1}});
  EXPECT_EQ(Text(c), "mr=14,nr=32,shift=-1");
  EXPECT_EQ(*ParseConfig(Text(c)), c);
  EXPECT_EQ(Text(Config()), "");
  EXPECT_EQ(*ParseConfig(""), Config());
}

TEST(Config, ParseNamesWhatItRefuses) {
  EXPECT_THAT(ParseConfig("mr=14,nr").status().message(), HasSubstr("'nr' is not NAME=INTEGER"));
  EXPECT_THAT(ParseConfig("mr=x").status().message(), HasSubstr("'mr=x' is not NAME=INTEGER"));
  EXPECT_THAT(ParseConfig("=3").status().message(), HasSubstr("'=3' is not NAME=INTEGER"));
  EXPECT_THAT(ParseConfig("mr=1,").status().message(), HasSubstr("is not NAME=INTEGER"));
  EXPECT_THAT(ParseConfig("mr=1,mr=2").status().message(), HasSubstr("knob 'mr' twice"));
}

TEST(Config, KnowsItsKnobs) {
  const Config c({{"mr", 14}});
  EXPECT_EQ(c["mr"], 14);
  EXPECT_TRUE(c.Has("mr"));
  EXPECT_FALSE(c.Has("nr"));
  EXPECT_DEATH(static_cast<void>(c["nr"]), "");
}

TEST(ConfigSpace, IndexAndConfigAreInverse) {
  const ConfigSpace space = TileSpace();
  ASSERT_EQ(space.product_size(), 24);
  for (int64_t i = 0; i < space.product_size(); ++i) EXPECT_EQ(*space.IndexOf(space.At(i)), i);
  EXPECT_EQ(Text(space.At(0)), "mr=1,nr=8,unroll=1");
  EXPECT_EQ(Text(space.At(1)), "mr=1,nr=8,unroll=2");
  EXPECT_EQ(Text(space.At(23)), "mr=8,nr=16,unroll=4");
}

TEST(ConfigSpace, CheckSaysWhyNot) {
  const ConfigSpace space = TileSpace();
  EXPECT_TRUE(space.Check(*ParseConfig("mr=4,nr=16,unroll=2")).ok());
  EXPECT_THAT(space.Check(*ParseConfig("mr=8,nr=16,unroll=1")).message(), HasSubstr("register tile is too large"));
  EXPECT_THAT(space.Check(*ParseConfig("mr=1,nr=8,unroll=2")).message(), HasSubstr("useless"));
  EXPECT_THAT(space.Check(*ParseConfig("mr=3,nr=8,unroll=1")).message(), HasSubstr("3 is no value of knob 'mr'"));
  EXPECT_THAT(space.Check(*ParseConfig("mr=1,nr=8")).message(), HasSubstr("lacks knob 'unroll'"));
  EXPECT_THAT(space.Check(*ParseConfig("mr=1,nr=8,unroll=1,k=2")).message(), HasSubstr("no knob is named 'k'"));
}

TEST(ConfigSpace, EnumerateGivesEveryLegalConfigOnce) {
  const ConfigSpace space = TileSpace();
  std::set<std::string> found;
  for (const Config& c : space.Enumerate(24)) {
    EXPECT_TRUE(space.Check(c).ok()) << Text(c);
    EXPECT_TRUE(found.insert(Text(c)).second) << Text(c);
  }
  int64_t legal = 0;
  for (int64_t i = 0; i < space.product_size(); ++i) legal += space.Check(space.At(i)).ok();
  EXPECT_EQ(static_cast<int64_t>(found.size()), legal);
}

// Constraints that ask for some knobs, in any order, for a few only sometimes, and for all of them by their list, by a
// copy or by a comparison.
TEST(ConfigSpace, EnumerateGivesJustWhatIsAllowedInTheOrderOfIndices) {
  Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    ConfigSpace space;
    const int64_t knobs = rng.Below(5);
    for (int64_t k = 0; k < knobs; ++k) {
      std::vector<int64_t> values(static_cast<size_t>(1 + rng.Below(4)));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i);
      space.Add(absl::StrCat("k", k), values);
    }
    for (int64_t n = knobs > 0 ? rng.Below(4) : 0; n-- > 0;) {
      const std::string a = absl::StrCat("k", rng.Below(knobs)), b = absl::StrCat("k", rng.Below(knobs));
      const int64_t least = rng.Below(3);
      const int64_t way = rng.Below(7);
      if (way == 0) {
        space.Require("by list", [least](const Config& c) { return c.values().back().second <= least; });
      } else if (way == 1) {
        space.Require("of a copy", [=](const Config& c) { return Config(c)[b] <= least; });
      } else if (way == 2) {
        space.Require("the last one",
                      [last = space.At(space.product_size() - 1)](const Config& c) { return c != last; });
      } else {
        space.Require("by name", [=](const Config& c) { return c[a] < least || c[b] >= least || c.Has("none"); });
      }
    }
    std::vector<Config> wanted;
    for (int64_t i = 0; i < space.product_size(); ++i) {
      if (space.Allows(space.At(i))) wanted.push_back(space.At(i));
    }
    EXPECT_EQ(space.Enumerate(1 << 10), wanted) << round;
  }
}

TEST(ConfigSpace, EnumeratePassesOverWhatIsRefusedWhateverLaterKnobsAre) {
  ConfigSpace space;
  for (const char* knob : {"a", "b", "c", "d"}) space.Add(knob, {0, 1, 2, 3, 4, 5, 6, 7});
  int asked = 0;
  space.Require("only one of a and b in each eight", [&asked](const Config& c) {
    ++asked;
    return c["a"] == c["b"];
  });
  EXPECT_EQ(space.Enumerate(4096).size(), 8u * 64);
  EXPECT_EQ(asked, 8 * 64 + 56) << "each a and b that differ once, whatever c and d are";
}

TEST(ConfigSpace, SamplesAreLegalDistinctAndSeeded) {
  ConfigSpace space = TileSpace();
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 1000; ++i) many.push_back(i);
  space.Add("x", many);
  space.Add("y", many);
  const std::vector<Config> sample = space.Enumerate(100, 7);
  EXPECT_EQ(sample.size(), 100u);
  std::set<std::string> distinct;
  for (const Config& c : sample) {
    EXPECT_TRUE(space.Check(c).ok());
    distinct.insert(Text(c));
  }
  EXPECT_EQ(distinct.size(), 100u);
  EXPECT_EQ(space.Enumerate(100, 7), sample);
  EXPECT_NE(space.Enumerate(100, 8), sample);
}

TEST(ConfigSpace, CountTellsWhatEachConstraintRefused) {
  const ConfigSpace space = TileSpace();
  const ConfigSpace::Size size = space.Count();
  ASSERT_EQ(size.refused.size(), 2u);
  EXPECT_EQ(size.refused[0], std::make_pair(std::string("register tile is too large"), int64_t{3}));
  EXPECT_EQ(size.refused[1].second, 4);
  EXPECT_EQ(size.legal, 17);
  const ConfigSpace::Size scaled = space.Count(8);
  EXPECT_LE(scaled.legal, 24);
  EXPECT_GT(scaled.legal, 0);
}

}  // namespace
}  // namespace temper
