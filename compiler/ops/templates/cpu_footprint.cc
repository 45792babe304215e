#include "compiler/ops/templates/cpu_footprint.h"

#include <algorithm>
#include <cmath>

namespace temper {
namespace {

// Nominal rates of one core. Only their ratios matter: the draft orders candidates, it promises no seconds.
constexpr double kHz = 3e9;
constexpr double kFmaLatency = 5;  // cycles, with what scheduling adds; fewer accumulators than latency * rate wait
constexpr double kWindow = 256;    // instructions in flight
constexpr double kL2BytesPerCycle = 24;
constexpr double kL3BytesPerCycle = 24;  // with prefetchers ahead of what streams
constexpr double kMemoryBytesPerSecond = 20e9;
constexpr double kCopyBytesPerSecond = 30e9;
constexpr double kPrologueOps = 1.5;     // a cycle, of those that make an operand
constexpr double kTileCycles = 12;       // address arithmetic, loop set-up
constexpr double kLate = 0.04;           // of a share that is one chunk: what it is late by, as it hands nothing over
constexpr double kEnoughChunks = 4;      // of a share: with more, it is late by no less
constexpr double kMostTaken = 16;        // parts of a share that are taken one by one
constexpr double kTakeSeconds = 1.5e-7;  // to take half of what is left of a share, and begin it
constexpr double kLaunchSeconds = 1e-6;  // of threads that share a region, whom one chunk alone leaves asleep

// The largest, and somewhat more where others come close.
double SoftMax(double a, double b, double c) {
  const auto sixth = [](double x) { return x * x * x * x * x * x; };
  return std::pow(sixth(a) + sixth(b) + sixth(c), 1.0 / 6);
}

// What one core does in a cycle. Loads are nominally 2, but tiles that live off them never get there.
struct Rates {
  double fmas = 2;  // vector multiply-adds
  double vectors = 1.5, broadcasts = 1.5;
  double turn = 0;  // cycles for each turn of the loop over a tile's steps, beside what it does for the tile
};
// Multiply-adds are those of LLVM's models of these CPUs, and the rest is estimated: none of them was measured.
Rates RatesOfArm(const CpuTarget& t) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, t.cpu) != names.end();
  };
  if (is({"cortex-a35", "cortex-a53", "cortex-a55", "cortex-a510"})) return {1, 0.5, 1, 1};  // in order
  if (is({"cortex-a57", "cortex-a72", "cortex-a73"})) return {1, 1, 1, 1};
  if (is({"neoverse-v1", "neoverse-v2", "neoverse-v3", "apple-m1"})) return {4, 2.5, 2.5, 1};
  return {2, 1.5, 1.5, 1};
}

// Of the products of bf16 that an instruction makes, a core does as many in a cycle as of the others of f32, or a
// quarter: AMD's, or Intel's (0.57 to 0.14 ns on a Sapphire Rapids).
double Bf16Fmas(double fmas, const CpuTarget& t) { return t.cpu.starts_with("znver") ? fmas : fmas / 4; }

// A step of a tile in sixteen registers is short: the loop's own instructions, five to ten, are a third of it where a
// neighbour on the same core has its share of the decoders. So it is on Intel's cores with more registers. Zen 4 does
// with vectors of 512 bits what takes two of 256; an element for all lanes is a load like any other.
Rates RatesOf(double lanes, const CpuTarget& t) {
  if (t.arch() == CpuArch::kArm) return RatesOfArm(t);
  if (t.cpu == "znver4" && !t.Has("avxvnni") && lanes > 8) return {1, 1, 2, 0};
  return {2, 1.5, 1.5, t.vector_registers <= 16 || !t.cpu.starts_with("znver") ? 1.0 : 0};
}

// --- the schema: another meaning of a line, or a new one, raises kFeatureVersion ---

struct Field {
  std::string_view name;
  double CpuFootprint::*value;
};
constexpr Field kFields[] = {
    {"flops", &CpuFootprint::flops},
    {"padded_flops", &CpuFootprint::padded_flops},
    {"vector_lanes", &CpuFootprint::vector_lanes},
    {"tile_rows", &CpuFootprint::tile_rows},
    {"tile_columns", &CpuFootprint::tile_columns},
    {"tile_registers", &CpuFootprint::tile_registers},
    {"reduction", &CpuFootprint::reduction},
    {"loads_per_fma", &CpuFootprint::loads_per_fma},
    {"l1_bytes", &CpuFootprint::l1_bytes},
    {"l2_bytes", &CpuFootprint::l2_bytes},
    {"l2_traffic", &CpuFootprint::l2_traffic},
    {"l3_traffic", &CpuFootprint::l3_traffic},
    {"memory_traffic", &CpuFootprint::memory_traffic},
    {"compulsory_bytes", &CpuFootprint::compulsory_bytes},
    {"parallel_chunks", &CpuFootprint::parallel_chunks},
    {"chunk_imbalance", &CpuFootprint::chunk_imbalance},
    {"copies_bytes", &CpuFootprint::copies_bytes},
    {"code_ops", &CpuFootprint::code_ops},
    {"innermost_stride", &CpuFootprint::innermost_stride},
};

double Ratio(double a, double b) { return a / std::max(1.0, b); }

// What these numbers mean together, and on this machine.
struct Derived {
  std::string_view name;
  double (*value)(const CpuFootprint&, const CpuTarget&);
};
using F = CpuFootprint;
using T = CpuTarget;
constexpr Derived kDerived[] = {
    {"waste", [](const F& f, const T&) { return Ratio(f.padded_flops, f.flops); }},
    {"intensity", [](const F& f, const T&) { return Ratio(f.flops, f.compulsory_bytes); }},
    {"padding", [](const F& f, const T&) { return Ratio(f.padded_flops, f.flops); }},
    {"lanes_used", [](const F& f, const T& t) { return Ratio(f.vector_lanes, t.lanes()); }},
    {"registers_used", [](const F& f, const T& t) { return Ratio(f.tile_registers, t.vector_registers); }},
    {"l1_used", [](const F& f, const T& t) { return Ratio(f.l1_bytes, static_cast<double>(t.l1_bytes)); }},
    {"l2_used", [](const F& f, const T& t) { return Ratio(f.l2_bytes, static_cast<double>(t.l2_bytes)); }},
    {"l2_refetch", [](const F& f, const T&) { return Ratio(f.l2_traffic, f.compulsory_bytes); }},
    {"l3_refetch",
     [](const F& f, const T&) { return Ratio(std::max(f.l3_traffic, f.memory_traffic), f.compulsory_bytes); }},
    {"memory_refetch", [](const F& f, const T&) { return Ratio(f.memory_traffic, f.compulsory_bytes); }},
    {"copies_share", [](const F& f, const T&) { return Ratio(f.copies_bytes, f.compulsory_bytes); }},
    {"flops_per_l2_byte", [](const F& f, const T&) { return Ratio(f.flops, f.l2_traffic); }},
    {"flops_per_memory_byte", [](const F& f, const T&) { return Ratio(f.flops, f.memory_traffic); }},
    {"chunks_per_thread", [](const F& f, const T& t) { return Ratio(f.parallel_chunks, t.threads); }},
    {"accumulators", [](const F& f, const T&) { return Ratio(f.tile_rows * f.tile_columns, f.vector_lanes); }},
    {"tile_aspect", [](const F& f, const T&) { return Ratio(f.tile_columns, f.tile_rows); }},
};

}  // namespace

const FootprintSchema& CpuSchema() {
  static const FootprintSchema schema = [] {
    FootprintSchema s{"cpu", kFeatureVersion, {}};
    for (const Field& field : kFields) s.names.push_back(field.name);
    for (const Derived& derived : kDerived) s.names.push_back(derived.name);
    return s;
  }();
  return schema;
}

Footprint UnderCpuSchema(const CpuFootprint& f, const CpuTarget& t) {
  Footprint result{&CpuSchema(), {}, DraftSeconds(f, t)};
  result.values.reserve(std::size(kFields) + std::size(kDerived));
  for (const Field& field : kFields) result.values.push_back(f.*field.value);
  for (const Derived& derived : kDerived) result.values.push_back(derived.value(f, t));
  return result;
}

// Of a core that makes all tiles in vector registers.
static double VectorCycles(const CpuFootprint& f, const CpuTarget& t) {
  const double vectors = f.tile_columns / f.vector_lanes, accumulators = std::max(1.0, f.tile_rows * vectors);
  const double reduction = std::max(1.0, f.reduction);
  Rates rates = RatesOf(f.vector_lanes, t);
  if (f.of_bf16) rates.fmas = Bf16Fmas(rates.fmas, t);
  const double fma_vectors = f.padded_flops / 2 / f.vector_lanes;
  const double tiles = std::max(1.0, fma_vectors / accumulators / reduction);
  // Cycles for each multiply-add of the innermost reduction over a tile: bound by multiply-adds, by loads, or by
  // latency, where those that come close to the largest get in its way.
  const auto fma_cycles = [&](double count, double loads_per_fma, double rows) {
    // The next tile's multiply-adds, where there is one, fill what the last of a short one wait for.
    const double alone = 1 - (1 - 1 / tiles) * std::min(1.0, kWindow / (count * (reduction + 3)));
    const double whole = std::min(loads_per_fma, 1 / rows);  // all rows share a vector of columns
    return SoftMax(1 / rates.fmas, whole / rates.vectors + (loads_per_fma - whole) / rates.broadcasts,
                   kFmaLatency * alone / f.sums / count);
  };
  double each = fma_cycles(accumulators, f.loads_per_fma, f.tile_rows);
  if (f.last_rows > 0) {
    const double last = f.last_rows * vectors;
    each += f.last_part * (fma_cycles(last, (f.last_rows + vectors) / last, f.last_rows) - each);
  }
  // Entering and leaving a tile: the more accumulators, the less of it runs beside its neighbours.
  const double edges = kTileCycles + 0.1 * accumulators * accumulators;
  const double cycles = fma_vectors * each * std::sqrt(std::max(1.0, f.innermost_stride)) + tiles * edges;
  return (cycles + fma_vectors / accumulators * f.turns * rates.turn) * f.crowding;
}

double SecondsFromMemory(double bytes, const CpuTarget& t) {
  return bytes / kMemoryBytesPerSecond / std::max(1, t.threads);
}

double DraftSeconds(const CpuFootprint& f, const CpuTarget& t) {
  const double chunks = std::max(1.0, f.parallel_chunks / std::max(1, t.threads));
  const double late = t.threads > 1 ? kLate / std::min(chunks, kEnoughChunks) : 0;
  // Of the thread with the most to do, whom the others wait for.
  const double share = f.chunk_imbalance / std::max(1, t.threads);
  double cycles = f.matrix_cycles > 0 ? f.matrix_cycles : VectorCycles(f, t);
  cycles += f.prologue_ops / kPrologueOps;
  // Code past the micro-op caches and the L1 instruction cache is fetched again and again.
  if (f.code_ops > 512) cycles *= 1 + 0.1 * std::log2(f.code_ops / 512);
  const double compute_s = cycles / kHz * share * (1 + late);
  const double l2_s = f.l2_traffic / (kL2BytesPerCycle * kHz) * share;
  const double l3_s = f.l3_traffic / (kL3BytesPerCycle * kHz) * share;
  const double memory_s = (f.memory_traffic - f.kept) / kMemoryBytesPerSecond * share;
  const double copies_s = f.copies_bytes / kCopyBytesPerSecond / std::max(1, t.threads);
  // Where tiles use a panel in turn, it comes during the first one's work, and the others' has nothing beside it.
  const double panels_s = f.panel_traffic / kMemoryBytesPerSecond * share;
  const double in_turn_s = panels_s + compute_s * (1 - 1 / f.panel_turns);
  const double bound = std::max({compute_s, l2_s, l3_s, memory_s, in_turn_s});
  // The memory system works beside the arithmetic, L2 wholly, what lies behind it not perfectly.
  const double beside = compute_s + l3_s + memory_s - std::max({compute_s, l3_s, memory_s});
  const int launches = (f.copies_bytes > 0 ? 1 : 0) + (f.parallel_chunks > 1 ? 1 : 0);
  const double takes_s = t.threads > 1 ? kTakeSeconds * std::log2(std::min(chunks, kMostTaken)) : 0;
  return bound + 0.1 * beside + copies_s + kLaunchSeconds * launches + takes_s;
}

}  // namespace temper
