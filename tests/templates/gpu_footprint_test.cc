// What the GPUs' draft and schema say: orders that must hold, whatever its rates are.
#include "compiler/ops/templates/gpu_footprint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

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

}  // namespace
}  // namespace temper
