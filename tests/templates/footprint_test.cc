// What footprints and the draft know of caches, on workloads where it shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "compiler/ops/templates/gemm_tile.h"
#include "compiler/ops/templates/templates.h"

namespace temper {
namespace {

CpuTarget Machine() {
  CpuTarget t = *ParseTarget("llvm:skylake-avx512")->cpu();
  t.l1_bytes = 32 << 10;
  t.l2_bytes = 1 << 20;
  t.l3_bytes = 32 << 20;
  t.threads = 1;
  return t;
}

Workload Dense(int64_t m, int64_t k, int64_t n) {
  return *ParseWorkload(
      absl::StrCat("(f32[", m, ",", k, "], const f32[", k, ",", n, "]) matmul(0,1) -> f32[", m, ",", n, "]; anchor=0"));
}

CpuFootprint Of(const Workload& w, int64_t mr, int64_t nv, int64_t blocks, const CpuTarget& t) {
  return MatmulPacked().footprint(
      w, *ParseConfig(absl::StrCat("mr=", mr, ",nv=", nv, ",blocks=", blocks, ",ku=1,pack=1")), t);
}

// L2 traffic for each multiply-add.
double Refetch(int64_t k, int64_t mr, const CpuTarget& t) {
  const Workload w = Dense(840, k, 256);
  return Of(w, mr, 2, 2, t).l2_traffic / Flops(w);
}

TEST(Footprint, RowsAPowerOfTwoApartCrowdEachOtherOutOfL1) {
  const CpuTarget t = Machine();
  // 1024 floats apart all rows share one set of eight lines; a few floats more and they spread.
  EXPECT_LT(Refetch(1024, 7, t), 1.2 * Refetch(1040, 7, t));
  EXPECT_GT(Refetch(1024, 8, t), 2 * Refetch(1040, 8, t));
  // Half as far apart they share two sets.
  EXPECT_LT(Refetch(512, 14, t), 1.2 * Refetch(520, 14, t));
  // Twelve ways hold eleven rows beside the panel.
  CpuTarget larger = t;
  larger.l1_bytes = 48 << 10;
  EXPECT_LT(Refetch(1024, 10, larger), 1.2 * Refetch(1040, 10, larger));
}

TEST(Footprint, ConvolutionsKnowTheirRowsDistance) {
  const CpuTarget t = Machine();
  const auto refetch = [&](int channels, int stride) {
    const int out = 28 / stride;
    const Workload w =
        *ParseWorkload(absl::StrCat("(f32[1,", channels, ",28,28]@0231, const f32[128,", channels,
                                    ",1,1]) conv2d(0,1; dilations=[1,1] group=1 pads=[0,0,0,0] strides=[", stride, ",",
                                    stride, "]) -> f32[1,128,", out, ",", out, "]@0231; anchor=0"));
    return Conv2dDirect().footprint(w, *ParseConfig("mr=14,nv=2,blocks=1,ku=1,pack=1"), t).l2_traffic / Flops(w);
  };
  EXPECT_LT(refetch(512, 1), 1.2 * refetch(520, 1));
  EXPECT_GT(refetch(512, 2), 2 * refetch(520, 2));
}

// The config of the least draft, with all threads alike.
Config Favourite(const Workload& w, const CpuTarget& t) {
  const CpuTemplate packed = MatmulPacked();
  const std::vector<Config> all = packed.space(w, t).Enumerate(1 << 14);
  return *std::ranges::min_element(all, {},
                                   [&](const Config& c) { return DraftSeconds(packed.footprint(w, c, t), t); });
}

TEST(Footprint, TilesInSixteenRegistersCopyRowsThatCollideAndUnrollTheReduction) {
  CpuTarget t = Machine();
  EXPECT_FALSE(Favourite(Dense(128, 3072, 768), t).Has("ca"));
  const CpuTarget wide = t;
  t = *ParseTarget("llvm:haswell")->cpu();
  t.l1_bytes = wide.l1_bytes, t.l2_bytes = wide.l2_bytes, t.l3_bytes = wide.l3_bytes, t.threads = wide.threads;
  EXPECT_EQ(Favourite(Dense(128, 3072, 768), t)["ca"], 1);
  EXPECT_FALSE(Favourite(Dense(128, 768, 3072), t).Has("ca"));  // rows 3 KiB apart
  // A copy of A costs more than it saves where few columns use it.
  EXPECT_EQ(Favourite(Dense(128, 1024, 16), t)["ca"], 0);
  for (int64_t k : {768, 3072}) EXPECT_GT(Favourite(Dense(128, k, 768), t)["ku"], 1) << k;
}

Workload PaddedConv(int64_t c, int64_t size, int64_t filters) {
  const std::string out = absl::StrCat("f32[1,", filters, ",", size, ",", size, "]@0231");
  return *ParseWorkload(absl::StrCat("(f32[1,", c, ",", size, ",", size, "]@0231, const f32[", filters, ",", c,
                                     ",3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> ",
                                     out, "; anchor=0"));
}

TEST(Footprint, TilesOfWholePixelsAreWorthMoreWhereStoresAreMostOfIt) {
  const CpuTarget t = Machine();
  const CpuTemplate rows = Conv2dRows();
  const auto best = [&](const Workload& w, bool whole) {
    double seconds = 1;
    for (const Config& c : rows.space(w, t).Enumerate(4096)) {
      if ((c["nv"] * t.lanes() == 64) == whole) seconds = std::min(seconds, DraftSeconds(rows.footprint(w, c, t), t));
    }
    return seconds;
  };
  const auto worth = [&](int64_t size) {
    const Workload w = PaddedConv(3, size, 64);
    return best(w, false) / best(w, true);
  };
  EXPECT_GT(worth(224), 1);
  EXPECT_GT(worth(224), 1.05 * worth(56));  // L2 holds the output
}

TEST(Footprint, TheDefaultTileAvoidsCrowding) {
  const CpuTarget t = Machine();
  const absl::StatusOr<Choice> spread = DefaultChoice(Dense(196, 1040, 32), Target{.device = t});
  const absl::StatusOr<Choice> crowded = DefaultChoice(Dense(196, 1024, 32), Target{.device = t});
  ASSERT_TRUE(spread.ok() && crowded.ok());
  EXPECT_GE(spread->config["mr"], 8);
  EXPECT_LE(crowded->config["mr"], 7);
}

TEST(Footprint, HalfVectorsWhereTheyRunAtFullRateAndFewerLanesIdle) {
  CpuTarget double_pumped = Machine();
  double_pumped.cpu = "znver4";
  const auto lanes = [](int64_t columns, const CpuTarget& t) {
    const absl::StatusOr<Choice> choice = DefaultChoice(Dense(3136, 144, columns), Target{.device = t});
    EXPECT_TRUE(choice.ok()) << choice.status();
    return choice->config.Has("vl") ? choice->config["vl"] : 0;
  };
  EXPECT_EQ(lanes(24, double_pumped), 8);
  EXPECT_EQ(lanes(24, Machine()), 16);
  EXPECT_EQ(lanes(32, double_pumped), 0);    // nothing to save
  EXPECT_EQ(lanes(1000, double_pumped), 0);  // not worth a knob
}

TEST(Footprint, TilesOfOneVectorAreAsGoodWhereElementsForAllLanesLoadTwiceAsFast) {
  const Workload w = Dense(196, 576, 64);
  const auto worth = [&](const CpuTarget& t) {
    return DraftSeconds(Of(w, 14, 1, 1, t), t) / DraftSeconds(Of(w, 14, 2, 1, t), t);
  };
  CpuTarget double_pumped = Machine();
  double_pumped.cpu = "znver4";
  EXPECT_LT(worth(double_pumped), 1.03);
  EXPECT_GT(worth(Machine()), 1.2);
}

TEST(Footprint, OneAccumulatorIsSummedInParts) {
  const absl::StatusOr<Choice> choice = DefaultChoice(Dense(1, 4096, 16), Target{.device = Machine()});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->config["ku"], 4);
}

TEST(Footprint, TheSlowestThreadDecides) {
  // Three blocks of one row tile: with two threads, one of them has two.
  const Workload w = Dense(1, 2048, 768);
  CpuTarget t = Machine();
  t.threads = 2;
  const double three = DraftSeconds(Of(w, 1, 2, 3, t), t), four = DraftSeconds(Of(w, 1, 2, 4, t), t);
  EXPECT_GT(three, 1.2 * four);
}

TEST(Footprint, WhatL3HoldsIsReadAgainFromThere) {
  // Two megabytes of B, read once for each chunk of rows.
  const Workload w = Dense(840, 1040, 512);
  CpuTarget with = Machine(), without = with;
  without.l3_bytes = 0;
  const CpuFootprint held = Of(w, 14, 2, 1, with), fetched = Of(w, 14, 2, 1, without);
  EXPECT_EQ(held.memory_traffic, CompulsoryBytes(w));
  EXPECT_EQ(fetched.memory_traffic, fetched.l3_traffic);
  EXPECT_EQ(held.l3_traffic, fetched.l3_traffic);
  EXPECT_GT(held.l3_traffic, CompulsoryBytes(w) + 4 * 4 * 1040 * 512);
  EXPECT_GT(DraftSeconds(fetched, with), DraftSeconds(held, with));
}

TEST(Footprint, AnInputThatL3DoesNotHoldComesForEachBlockWhereBIsTheLarger) {
  const CpuTarget t = Machine();
  const Workload wide = Dense(10000, 1040, 12288), tall = Dense(20000, 1040, 512);
  const double a = 4.0 * 10000 * 1040;
  EXPECT_EQ(Of(wide, 14, 2, 16, t).memory_traffic - Of(wide, 14, 2, 8, t).memory_traffic, 8 * a);
  // All blocks pass by a chunk of rows before the next one comes.
  EXPECT_EQ(Of(tall, 14, 2, 4, t).memory_traffic, CompulsoryBytes(tall));
}

TEST(Footprint, ALastTileOfFewRowsWaits) {
  // 49 rows in tiles of eight leave one row over, in tiles of seven none.
  const Workload w = Dense(49, 520, 2048);
  const CpuFootprint even = Of(w, 7, 2, 1, Machine()), uneven = Of(w, 8, 2, 1, Machine());
  EXPECT_EQ(even.last_rows, 0);
  EXPECT_EQ(uneven.last_rows, 1);
  EXPECT_EQ(uneven.last_part, 1.0 / 49);
  CpuFootprint as_if_even = uneven;
  as_if_even.last_rows = 0;
  EXPECT_GT(DraftSeconds(uneven, Machine()), 1.02 * DraftSeconds(as_if_even, Machine()));
}

TEST(Footprint, PanelsStayForAChunkOfRowTiles) {
  // A panel of 128 steps stays in L1, one of 1024 comes anew for each row tile.
  const auto streams = [](int64_t k) {
    const Workload w = Dense(1400, k, 2048);
    const double b = 4.0 * static_cast<double>(k) * 2048;
    return Of(w, 7, 2, 1, Machine()).l2_traffic / b;
  };
  EXPECT_LT(streams(120), 100);
  EXPECT_GT(streams(1040), 200);
}

TEST(Footprint, ChunksOfRowsLeaveThreadsEvenShares) {
  Rng rng(5);
  for (int i = 0; i < 200; ++i) {
    const Workload w = Dense(1 + rng.Below(900), 16 + rng.Below(600), 256);
    CpuTarget t = Machine();
    t.threads = static_cast<int>(1 + rng.Below(48));
    const int64_t rows = w.output().shape[0], mr = std::min<int64_t>(rows, 1 + rng.Below(14));
    const int64_t blocks = int64_t{1} << rng.Below(3);
    const double tiles = static_cast<double>(CeilDiv(rows, mr) * blocks);
    // A last tile that lacks rows counts for half of what it lacks.
    const double all = static_cast<double>((rows + CeilDiv(rows, mr) * mr) / 2 * blocks);
    const double finest = std::ceil(tiles / t.threads) * static_cast<double>(mr) * t.threads / all;
    SCOPED_TRACE(absl::StrCat(Text(w), " mr=", mr, " blocks=", blocks, " threads=", t.threads));
    const CpuFootprint f = Of(w, mr, 2, blocks, t);
    EXPECT_GE(f.chunk_imbalance, 1);
    EXPECT_LE(f.chunk_imbalance, 1.02 * finest);
    EXPECT_LE(f.parallel_chunks, tiles);
  }
}

TEST(Footprint, TheThreadWithAllWholeTilesHasMost) {
  CpuTarget t = Machine();
  t.threads = 2;
  // 13, 13 and 13 rows and 10, which take as long as 11.
  EXPECT_DOUBLE_EQ(Of(Dense(49, 960, 320), 13, 2, 1, t).chunk_imbalance, 26.0 / 25);
  EXPECT_DOUBLE_EQ(Of(Dense(49, 960, 320), 13, 2, 2, t).chunk_imbalance, 1);
}

TEST(Footprint, AThreadIsLateThatHandsNothingOver) {
  CpuTarget t = Machine();
  t.threads = 2;
  CpuFootprint f = Of(Dense(196, 576, 96), 7, 3, 1, t);
  const auto seconds = [&](double chunks) {
    f.parallel_chunks = chunks;
    return DraftSeconds(f, t);
  };
  EXPECT_GT(seconds(2), 1.01 * seconds(4));
  EXPECT_GT(seconds(4), seconds(8));
  EXPECT_LT(seconds(8), seconds(64));  // which are taken one by one
}

TEST(Footprint, ThreadsHaveRowsOfTheirOwnWhereFiltersAreSmall) {
  CpuTarget t = Machine();
  t.threads = 2;
  const auto by_columns = [&](const Workload& w) {
    const Config c = *ParseConfig("mr=7,nv=2,blocks=2,ku=1,pack=1");
    return GemmTile(w, MatmulView(w), c, t).blocks_outside;
  };
  EXPECT_FALSE(by_columns(Dense(196, 96, 576)));
  EXPECT_FALSE(by_columns(Dense(576, 96, 196)));
  EXPECT_TRUE(by_columns(Dense(49, 512, 2048)));  // 4 MiB to both threads
  EXPECT_TRUE(by_columns(Dense(4, 64, 1024)));    // little comes from the other core
  t.threads = 1;
  EXPECT_TRUE(by_columns(Dense(196, 96, 576)));
}

Config WinogradConfig(int64_t m, int64_t mr, int64_t mt, int64_t blocks) {
  return *ParseConfig(absl::StrCat("m=", m, ",mr=", mr, ",nv=1,mt=", mt, ",blocks=", blocks, ",ku=1"));
}

TEST(Footprint, WinogradKnowsWhatTheThreadWithMostTilesHas) {
  Rng rng(11);
  for (int i = 0; i < 300; ++i) {
    const int64_t size = 4 + rng.Below(40), m = rng.Below(2) == 0 ? 2 : 4, mr = 1 + rng.Below(12);
    const int64_t mt = 1 + rng.Below(6), blocks = int64_t{1} << rng.Below(3);
    CpuTarget t = Machine();
    t.threads = static_cast<int>(1 + rng.Below(9));
    const Workload w = PaddedConv(16, size, 64);
    SCOPED_TRACE(absl::StrCat(Text(w), " m=", m, " mr=", mr, " mt=", mt, " blocks=", blocks, " threads=", t.threads));
    const int64_t tiles = CeilDiv(size, m) * CeilDiv(size, m), block_tiles = std::min(mt * mr, tiles);
    // Each thread's row tiles, chunk by chunk.
    const int64_t chunks = CeilDiv(tiles, block_tiles) * blocks;
    std::vector<int64_t> mine(static_cast<size_t>(t.threads));
    int64_t all = 0;
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = c / blocks * block_tiles, rows = CeilDiv(std::min(block_tiles, tiles - first), mr);
      const int64_t even = chunks / t.threads, rest = chunks % t.threads;
      const int64_t thread = c < rest * (even + 1) ? c / (even + 1) : rest + (c - rest * (even + 1)) / even;
      mine[static_cast<size_t>(thread)] += rows;
      all += rows;
    }
    const double most = static_cast<double>(*std::ranges::max_element(mine) * t.threads) / static_cast<double>(all);
    EXPECT_NEAR(Conv2dWinograd().footprint(w, WinogradConfig(m, mr, mt, blocks), t).chunk_imbalance, most, 1e-9);
  }
}

TEST(Footprint, WinogradReadsFiltersAnewForEachBlockOfTilesUnlessL2KeepsThem) {
  const auto streams = [](int64_t channels, int64_t mt) {
    const Workload w = PaddedConv(channels, 56, 64);
    const double filter = 4.0 * 36 * 64 * static_cast<double>(channels);
    return Conv2dWinograd().footprint(w, WinogradConfig(4, 7, mt, 1), Machine()).l3_traffic / filter;
  };
  const double once = streams(32, 1);
  EXPECT_EQ(streams(256, 1), 28 * once);  // of 196 tiles
  EXPECT_EQ(streams(256, 2), 14 * once);
}

TEST(Footprint, LargerFiltersOfWinogradComeFromMemoryInsteadOfTheGivenOnes) {
  const Workload w = PaddedConv(64, 28, 64);
  const auto traffic = [&](int64_t m) {
    return Conv2dWinograd().footprint(w, WinogradConfig(m, 7, 1, 1), Machine()).memory_traffic;
  };
  const double activations = 2 * 4.0 * 28 * 28 * 64, filter = 4.0 * 64 * 64;
  EXPECT_EQ(traffic(2), activations + 16 * filter);
  EXPECT_EQ(traffic(4), activations + 36 * filter);
}

TEST(Footprint, APanelThatTilesUseInTurnComesBesideTheFirstAlone) {
  // Sixteen tiles, for which 0.6 MB of filters come.
  const Workload w = PaddedConv(64, 14, 64);
  const CpuFootprint once = Conv2dWinograd().footprint(w, WinogradConfig(4, 8, 1, 1), Machine());
  const CpuFootprint twice = Conv2dWinograd().footprint(w, WinogradConfig(4, 8, 2, 1), Machine());
  EXPECT_EQ(once.panel_turns, 1);
  EXPECT_EQ(twice.panel_turns, 2);
  EXPECT_EQ(once.panel_traffic, 4.0 * 36 * 64 * 64);
}

TEST(Footprint, LargeFiltersOfWinogradAreWaitedForUnlessTheKernelTransformsThem) {
  // 9 MB transformed, 2.4 MB as they are given.
  const Workload w = PaddedConv(256, 14, 256);
  const CpuFootprint early = Conv2dWinograd().footprint(w, WinogradConfig(4, 8, 2, 2), Machine());
  const CpuFootprint late =
      Conv2dWinograd().footprint(w, *ParseConfig("m=4,mr=8,nv=2,mt=2,blocks=2,ku=1,late=64"), Machine());
  EXPECT_EQ(early.panel_traffic, 4.0 * 36 * 256 * 256);
  EXPECT_EQ(late.panel_traffic, 4.0 * 9 * 256 * 256);
  EXPECT_EQ(early.memory_traffic - late.memory_traffic, 4.0 * 27 * 256 * 256);
  CpuFootprint at_once = early;
  at_once.panel_turns = 1;
  EXPECT_GT(DraftSeconds(early, Machine()), 1.1 * DraftSeconds(at_once, Machine()));
  EXPECT_GT(DraftSeconds(early, Machine()), DraftSeconds(late, Machine()));
}

TEST(Footprint, FiltersOfWinogradThatStayInL1AreTransformedSooner) {
  // Four tiles, 9 MB of filters.
  const Workload w = PaddedConv(512, 7, 512);
  const auto of = [&](int64_t channels) {
    const std::string config = absl::StrCat("m=4,mr=4,nv=1,mt=1,blocks=2,ku=1,late=", channels);
    return Conv2dWinograd().footprint(w, *ParseConfig(config), Machine());
  };
  // Two of a point's six rows have 24 KB.
  EXPECT_LT(of(32).prologue_ops, of(64).prologue_ops);
  EXPECT_LT(of(32).l2_traffic, of(64).l2_traffic);
  EXPECT_EQ(of(32).memory_traffic, of(64).memory_traffic);
}

TEST(Footprint, WinogradReadsItsInputAgainForEachPanelWhereL1DoesNotKeepIt) {
  // A point's share of sixteen tiles is 16 or 32 KB.
  const auto traffic = [](int64_t channels) {
    const Workload w = PaddedConv(channels, 14, 256);
    return Conv2dWinograd().footprint(w, WinogradConfig(4, 16, 1, 1), Machine()).l2_traffic /
           static_cast<double>(channels);
  };
  EXPECT_GT(traffic(512), 3 * traffic(256));
}

TEST(Footprint, SeparableConvolutionsCountWhatTheDepthwisePartLoads) {
  const Workload w = *ParseWorkload(
      "(f32[1,96,14,14]@0231, const f32[96,1,3,3], const f32[96,96,1,1]) conv2d(0,1; dilations=[1,1] group=96 "
      "pads=[1,1,1,1] strides=[1,1]) -> f32[1,96,14,14]@0231; conv2d(3,2; dilations=[1,1] group=1 pads=[0,0,0,0] "
      "strides=[1,1]) -> f32[1,96,14,14]@0231; anchor=1");
  const auto seconds = [&](int64_t th, int64_t tw) {
    const Config c = *ParseConfig(absl::StrCat("th=", th, ",tw=", tw, ",cv=1,mr=7,nv=2"));
    return DraftSeconds(SeparableConv2d().footprint(w, c, Machine()), Machine());
  };
  EXPECT_GT(seconds(2, 1), 1.05 * seconds(2, 2));
  EXPECT_GT(seconds(2, 2), 1.02 * seconds(2, 7));
}

}  // namespace
}  // namespace temper
