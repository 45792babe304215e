// The footprint's names, and the draft: what a kernel should take, from closed forms alone.
#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/ops/template.h"

namespace temper {
namespace {

// Nominal rates of one core. Only their ratios matter: the draft orders candidates, it promises no seconds.
constexpr double kHz = 3e9;
constexpr double kFmasPerCycle = 2;     // vector multiply-adds
constexpr double kLoadsPerCycle = 1.5;  // nominally 2, but tiles that live off loads never get there
constexpr double kFmaLatency = 4;       // cycles; fewer independent accumulators than latency * rate wait
constexpr double kL2BytesPerCycle = 32;
constexpr double kL3BytesPerCycle = 20;
constexpr double kMemoryBytesPerSecond = 12e9;
constexpr double kTileCycles = 30;       // entering and leaving a tile: address arithmetic, loop set-up
constexpr double kLaunchSeconds = 2e-6;  // one parallel region

}  // namespace

std::span<const std::string_view> FootprintNames() {
  static constexpr std::array<std::string_view, 21> kNames = {
      "flops",           "padded_flops", "vector_lanes",   "tile_rows",        "tile_columns",
      "tile_registers",  "reduction",    "loads_per_fma",  "l1_bytes",         "l2_bytes",
      "l2_traffic",      "l3_traffic",   "memory_traffic", "compulsory_bytes", "parallel_chunks",
      "chunk_imbalance", "copies_bytes", "code_ops",       "innermost_stride", "waste",
      "intensity"};
  return kNames;
}

std::vector<double> FootprintValues(const Footprint& f) {
  return {f.flops,
          f.padded_flops,
          f.vector_lanes,
          f.tile_rows,
          f.tile_columns,
          f.tile_registers,
          f.reduction,
          f.loads_per_fma,
          f.l1_bytes,
          f.l2_bytes,
          f.l2_traffic,
          f.l3_traffic,
          f.memory_traffic,
          f.compulsory_bytes,
          f.parallel_chunks,
          f.chunk_imbalance,
          f.copies_bytes,
          f.code_ops,
          f.innermost_stride,
          f.padded_flops / std::max(1.0, f.flops),
          f.flops / std::max(1.0, f.compulsory_bytes)};
}

double DraftSeconds(const Footprint& f, const Target& t) {
  const double threads = std::max(1, t.threads);
  const double workers = std::min(threads, f.parallel_chunks);
  const double accumulators = std::max(1.0, f.tile_rows * f.tile_columns / f.vector_lanes);
  // Cycles of one step of the innermost reduction over the tile: bound by multiply-adds, by loads, or by latency.
  const double step =
      std::max({accumulators / kFmasPerCycle, accumulators * f.loads_per_fma / kLoadsPerCycle, kFmaLatency});
  const double fma_vectors = f.padded_flops / 2 / f.vector_lanes;
  const double stores = 2 * accumulators + kTileCycles;
  const double tiles = fma_vectors / accumulators / std::max(1.0, f.reduction);
  double cycles = fma_vectors / accumulators * step * std::sqrt(std::max(1.0, f.innermost_stride)) + tiles * stores;
  // Code past the micro-op caches and the L1 instruction cache is fetched again and again.
  if (f.code_ops > 512) cycles *= 1 + 0.1 * std::log2(f.code_ops / 512);
  const double compute_s = cycles / kHz * f.chunk_imbalance / threads;
  const double l2_s = f.l2_traffic / (kL2BytesPerCycle * kHz) / workers;
  const double l3_s = f.l3_traffic / (kL3BytesPerCycle * kHz) / workers;
  const double memory_s = f.memory_traffic / kMemoryBytesPerSecond / workers;
  const double copies_s = f.copies_bytes / (4 * kMemoryBytesPerSecond) / threads;
  // The memory system works beside the arithmetic, though not perfectly.
  const double bound = std::max({compute_s, l2_s, l3_s, memory_s});
  return bound + 0.15 * (compute_s + l2_s + l3_s + memory_s - bound) + copies_s +
         kLaunchSeconds * (f.copies_bytes > 0 ? 2 : 1);
}

}  // namespace temper
