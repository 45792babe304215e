// What the GPUs' draft and schema say: orders that must hold, whatever its rates are.
#include "compiler/ops/templates/gpu_footprint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/conformance/shapes.h"
#include "tests/templates/check_gpu.h"

namespace temper {
namespace {

GpuTarget Gpu() { return ParseTarget("cuda -arch=sm_80 -local=49152 -wg=1024 -warp=32 -units=100")->gpu()[0]; }
double Draft(const GpuFootprint& f) { return UnderGpuSchema(f, Gpu()).draft_s; }

GpuFootprint Busy() {
  GpuFootprint f;
  f.flops = f.padded_flops = 1e10;
  f.compulsory_bytes = f.memory_traffic = 1e8;
  f.group_threads = 256;
  f.groups = 1000;
  f.accumulators = 16;
  f.registers = 64;
  f.shared_bytes = 16 << 10;
  f.shared_traffic = 1e9;
  return f;
}

TEST(GpuFootprint, TheSchemaHasAValueForEachName) {
  const Footprint f = UnderGpuSchema(Busy(), Gpu());
  EXPECT_EQ(f.values.size(), GpuSchema().names.size());
  EXPECT_EQ(std::set<std::string_view>(GpuSchema().names.begin(), GpuSchema().names.end()).size(), f.values.size());
  for (const double value : f.values) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(f["groups_of_unit"], 4) << "registers for four groups of 256 threads";
  EXPECT_EQ(f["occupancy"], 0.5);
  EXPECT_EQ(f["waves"], 2.5);
  EXPECT_EQ(f["balance"], 1);
}

TEST(GpuFootprint, MoreWorkTakesLonger) {
  const double base = Draft(Busy());
  for (double GpuFootprint::*more : {&GpuFootprint::padded_flops, &GpuFootprint::memory_traffic,
                                     &GpuFootprint::launches, &GpuFootprint::shared_traffic, &GpuFootprint::barriers}) {
    GpuFootprint f = Busy();
    f.*more = std::max(1000.0, 10 * f.*more);
    EXPECT_GT(Draft(f), base);
  }
}

TEST(GpuFootprint, WhatKeepsUnitsIdleTakesLonger) {
  GpuFootprint few = Busy();
  few.groups = 101;  // the second wave is one group
  GpuFootprint enough = Busy();
  enough.groups = 100;
  EXPECT_GT(Draft(few), 1.5 * Draft(enough));
  GpuFootprint many_registers = Busy();
  many_registers.registers = 255;
  many_registers.accumulators = 1;
  GpuFootprint few_registers = many_registers;
  few_registers.registers = 32;
  EXPECT_GT(Draft(many_registers), Draft(few_registers)) << "too few threads to wait with";
  GpuFootprint scattered = Busy();
  scattered.memory_traffic = 1e10;
  const double together = Draft(scattered);
  scattered.coalescing = 0.125;
  EXPECT_GT(Draft(scattered), 4 * together);
  GpuFootprint part_of_warp = Busy();
  part_of_warp.group_threads = 33;
  GpuFootprint warps = Busy();
  warps.group_threads = 64;
  EXPECT_GT(Draft(part_of_warp), 1.5 * Draft(warps));
}

TEST(GpuFootprint, WhatIsAskedForAheadIsNotWaitedFor) {
  GpuFootprint waits = Busy();
  waits.groups = 50;
  waits.round_trips = 5000;
  GpuFootprint ahead = waits;
  ahead.trips_ahead = 1;
  GpuFootprint further = waits;
  further.trips_ahead = 3;
  EXPECT_GT(Draft(waits), Draft(ahead));
  EXPECT_GT(Draft(ahead), Draft(further));
  GpuFootprint many = Busy(), many_wait = Busy();
  many.groups = many_wait.groups = 8000;
  many_wait.round_trips = 5;
  EXPECT_LT(Draft(many_wait), 1.1 * Draft(many)) << "groups beside each other hide each other's waits";
}

TEST(GpuFootprint, InstructionsTakeTurnsThatArithmeticHasNoUseFor) {
  GpuTarget half = Gpu(), whole = Gpu();
  half.unit_fmas = 64;
  whole.unit_fmas = 128;
  GpuFootprint f = Busy();
  f.memory_traffic = f.shared_traffic = 0;
  GpuFootprint more = f;
  more.instructions = 0.4 * f.padded_flops / 2;
  const auto draft = [](const GpuFootprint& footprint, const GpuTarget& t) {
    return UnderGpuSchema(footprint, t).draft_s;
  };
  EXPECT_LT(draft(more, half), 1.01 * draft(f, half)) << "every other turn is free";
  EXPECT_GT(draft(more, whole), 1.2 * draft(f, whole));
}

TEST(GpuFootprint, TensorCoresWorkBesideOtherInstructionsButNotForNothing) {
  GpuFootprint f = Busy();
  f.memory_traffic = f.shared_traffic = 0;
  f.lane_fmas = 64;
  f.tensor_fmas = 1024;
  GpuFootprint half = f, more = f, most = f;
  half.tensor_fmas = 512;
  EXPECT_GT(Draft(half), 1.8 * Draft(f));
  more.instructions = f.padded_flops / 2 / f.lane_fmas;  // as many as those that multiply
  most.instructions = 20 * more.instructions;
  EXPECT_GT(Draft(more), 1.01 * Draft(f));
  EXPECT_LT(Draft(more), 1.2 * Draft(f));
  EXPECT_GT(Draft(most), 2 * Draft(f)) << "there they bound it";
}

TEST(GpuFootprint, AUnitHasNoMoreGroupsThanItsArchitectureSays) {
  GpuFootprint f = Busy();
  f.group_threads = 32;
  f.registers = 32;
  f.shared_bytes = 0;
  for (const auto& [arch, groups] : {std::pair("sm_80", 32), {"sm_75", 16}, {"sm_89", 24}}) {
    const Target t = *ParseTarget(std::string("cuda:") + arch);
    EXPECT_EQ(GroupsOfUnit(f, *t.gpu()), groups) << arch;
  }
  f.shared_bytes = 32 << 10;
  EXPECT_EQ(GroupsOfUnit(f, *ParseTarget("cuda:sm_75")->gpu()), 2);
  EXPECT_EQ(GroupsOfUnit(f, *ParseTarget("cuda:sm_80")->gpu()), 4) << "each group costs 1 KiB more than it asks for";
}

// Lane by lane and bank by bank.
double CountedTurns(int words, int lanes, int stride) {
  const int part = 32 / words;
  int turns = 0;
  for (int first = 0; first < 32; first += part) {
    std::set<int> banks[32];
    for (int lane = first; lane < first + part; ++lane) {
      for (int i = 0; i < words; ++i) {
        const int word = lane % lanes * stride + i;
        banks[word % 32].insert(word);
      }
    }
    size_t most = 0;
    for (const std::set<int>& bank : banks) most = std::max(most, bank.size());
    turns += static_cast<int>(most);
  }
  return turns;
}

TEST(GpuFootprint, BanksTakeTheTurnsThatAreCounted) {
  for (const int words : {1, 2, 4}) {
    for (int lanes = 32 / words; lanes <= 32; lanes *= 2) {
      for (int stride = words; stride <= 64; stride *= 2)
        EXPECT_EQ(BankTurns(words, lanes, stride), CountedTurns(words, lanes, stride))
            << words << " words, " << lanes << " lanes, " << stride << " apart";
    }
    EXPECT_LE(BankTurns(words, 1, words), 2) << "all the same";
  }
}

TEST(GpuFootprint, OperandsComeAgainWhereTheCacheDoesNotKeepThem) {
  GpuTarget t = Gpu();
  GpuFootprint f = Busy();
  f.groups = 64 * 64;
  constexpr double kTile = 1 << 20;
  const TiledProduct p = {1, 64, 64, kTile, kTile};
  t.l2_bytes = int64_t{1} << 30;
  EXPECT_EQ(OperandTraffic(p, f, t), 128 * kTile);
  t.l2_bytes = 1 << 20;
  const double again = OperandTraffic(p, f, t);
  EXPECT_GT(again, 128 * kTile);
  EXPECT_LT(again, 64 * 64 * 2 * kTile) << "groups that are there at once share";
  t.compute_units = 1;
  EXPECT_GT(OperandTraffic(p, f, t), again) << "fewer of them share less";
  double last = OperandTraffic(p, f, t);
  for (const int64_t mib : {40, 50, 60, 70, 80, 90, 100, 106, 107, 120}) {
    t.l2_bytes = mib << 20;
    const double traffic = OperandTraffic(p, f, t);
    EXPECT_LE(traffic, last) << mib;
    EXPECT_GT(traffic, 0.5 * last) << "a little more cache does not keep it all at once: " << mib;
    last = traffic;
  }
  EXPECT_EQ(last, 128 * kTile);
}

// A config is refused by what its footprint says, and the launch asks for what the code says.
TEST(GpuFootprint, SharedMemoryIsExactlyWhatLaunchesAskFor) {
  constexpr int kConfigs = 6;
  const Target target = ParseTarget("cuda:sm_90").value();
  for (const conformance::Shape& shape : conformance::kShapes) {
    const TemplateDef& def = *FindTemplate(shape.template_name);
    const Workload w = ParseWorkload(std::string(shape.workload)).value();
    if (!def.name.starts_with("gpu.") || !def.matches(w, target)) continue;
    for (const Config& config : def.space(w, target).Enumerate(kConfigs, 7)) {
      SCOPED_TRACE(absl::StrCat(std::string(def.name), " ", Text(config), " ", Text(w)));
      const absl::StatusOr<Kernel> kernel = def.build(w, config, target);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      EXPECT_EQ(def.footprint(w, config, target)["shared_bytes"], static_cast<double>(MostSharedBytes(*kernel)));
    }
  }
}

}  // namespace
}  // namespace temper
