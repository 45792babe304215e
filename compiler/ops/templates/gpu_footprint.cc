#include "compiler/ops/templates/gpu_footprint.h"

#include <algorithm>
#include <cmath>

#include "base/division.h"

namespace temper {
namespace {

// Nominal rates and sizes of one unit. Only their ratios matter: the draft orders candidates, it promises no seconds.
constexpr double kHz = 1.5e9;
constexpr double kFmasPerCycle = 128;
constexpr double kArithmeticInFlight = 512;  // multiply-adds that keep them busy
constexpr double kMemoryBytesPerCycle = 14;
constexpr double kMemoryInFlight = 7000;  // bytes
constexpr double kSharedBytesPerCycle = 128;
constexpr double kUnitGroups = 32, kUnitShared = 96 << 10;
constexpr double kBarrierCycles = 20, kBarrierThreads = 16;  // of a group that a cycle more brings
constexpr double kAccessShare = 0.15;                        // of a memory access's time, its instruction's own
constexpr double kLaunchSeconds = 3e-6;
constexpr int64_t kRegistersAtOnce = 8;  // that a thread is given
constexpr int kUsualUnits = 64;          // where warps are known, and nothing else

double Ratio(double a, double b) { return a / std::max(1.0, b); }

// What the target makes of the terms.
struct Residence {
  double groups_of_unit;  // that are there at once
  double occupancy;       // their threads, of those that a unit can have
  double waves;           // until all groups were there
  double most;            // groups of the unit with most
  double threads;         // that are there at once on that unit

  Residence(const GpuFootprint& f, const GpuTarget& t) {
    const double threads_of_group = static_cast<double>(WarpThreads(static_cast<int64_t>(f.group_threads), t));
    const double shared = std::max(kUnitShared, static_cast<double>(t.shared_bytes));
    const double room =
        std::min({kUnitGroups, t.unit_threads / threads_of_group,
                  static_cast<double>(kUnitRegisters) / (threads_of_group * std::max(16.0, f.registers)),
                  f.shared_bytes > 0 ? shared / f.shared_bytes : kUnitGroups});
    groups_of_unit = std::max(1.0, std::floor(room));
    occupancy = std::min(1.0, groups_of_unit * threads_of_group / t.unit_threads);
    waves = f.groups / (groups_of_unit * NominalUnits(t));
    most = std::ceil(f.groups / NominalUnits(t));
    threads = std::min(groups_of_unit, most) * f.group_threads;
  }
};

double DraftSeconds(const GpuFootprint& f, const GpuTarget& t) {
  const Residence r(f, t);
  const double groups = std::max(1.0, f.groups);
  // Lanes of a warp that no thread uses take their turn like the others.
  const double idle = static_cast<double>(WarpThreads(static_cast<int64_t>(f.group_threads), t)) / f.group_threads;
  const auto cycles = [&](double work, double rate, double in_flight, double enough) {
    return work / groups * r.most / (rate * std::min(1.0, in_flight / enough));
  };
  const double arithmetic = idle * cycles(f.padded_flops / 2, kFmasPerCycle * f.arithmetic_speed,
                                          r.threads * std::min(f.accumulators, 8.0), kArithmeticInFlight);
  const double memory =
      (1 + kAccessShare / f.vector_lanes) *
      cycles(f.memory_traffic / f.coalescing, kMemoryBytesPerCycle, r.threads * f.in_flight_bytes, kMemoryInFlight);
  const double shared = cycles(f.shared_traffic, kSharedBytesPerCycle, r.threads, 256);
  const double bound = std::max({arithmetic, memory, shared});
  const double beside = arithmetic + memory + shared - bound;
  // Groups beside each other on a unit hide each other's waits at barriers.
  const double waits =
      (f.barriers * (kBarrierCycles + f.group_threads / kBarrierThreads) + f.wait_cycles) * r.most / r.groups_of_unit;
  return (bound + 0.2 * beside + waits) / kHz + f.launches * kLaunchSeconds;
}

// --- the schema: another meaning of a line, or a new one, raises kGpuFeatureVersion ---

struct Field {
  std::string_view name;
  double GpuFootprint::*value;
};
constexpr Field kFields[] = {
    {"flops", &GpuFootprint::flops},
    {"padded_flops", &GpuFootprint::padded_flops},
    {"memory_traffic", &GpuFootprint::memory_traffic},
    {"compulsory_bytes", &GpuFootprint::compulsory_bytes},
    {"coalescing", &GpuFootprint::coalescing},
    {"vector_lanes", &GpuFootprint::vector_lanes},
    {"group_threads", &GpuFootprint::group_threads},
    {"groups", &GpuFootprint::groups},
    {"launches", &GpuFootprint::launches},
    {"accumulators", &GpuFootprint::accumulators},
    {"reduction", &GpuFootprint::reduction},
    {"registers", &GpuFootprint::registers},
    {"shared_bytes", &GpuFootprint::shared_bytes},
    {"shared_traffic", &GpuFootprint::shared_traffic},
    {"barriers", &GpuFootprint::barriers},
    {"in_flight_bytes", &GpuFootprint::in_flight_bytes},
};

struct Derived {
  std::string_view name;
  double (*value)(const GpuFootprint&, const GpuTarget&);
};
using F = GpuFootprint;
using T = GpuTarget;
constexpr Derived kDerived[] = {
    {"waste", [](const F& f, const T&) { return Ratio(f.padded_flops, f.flops); }},
    {"intensity", [](const F& f, const T&) { return Ratio(f.flops, f.compulsory_bytes); }},
    {"memory_refetch", [](const F& f, const T&) { return Ratio(f.memory_traffic, f.compulsory_bytes); }},
    {"flops_per_memory_byte", [](const F& f, const T&) { return Ratio(f.flops, f.memory_traffic); }},
    {"flops_per_shared_byte", [](const F& f, const T&) { return Ratio(f.flops, f.shared_traffic); }},
    {"shared_used", [](const F& f, const T& t) { return Ratio(f.shared_bytes, static_cast<double>(t.shared_bytes)); }},
    {"threads_used", [](const F& f, const T& t) { return Ratio(f.group_threads, t.group_threads); }},
    {"registers_used",
     [](const F& f, const T&) { return Ratio(f.registers * f.group_threads, static_cast<double>(kUnitRegisters)); }},
    {"groups_of_unit", [](const F& f, const T& t) { return Residence(f, t).groups_of_unit; }},
    {"occupancy", [](const F& f, const T& t) { return Residence(f, t).occupancy; }},
    {"waves", [](const F& f, const T& t) { return Residence(f, t).waves; }},
    // Of the units' time until the last group is done, what the average unit has groups for.
    {"balance", [](const F& f, const T& t) { return f.groups / (Residence(f, t).most * NominalUnits(t)); }},
};

}  // namespace

int NominalUnits(const GpuTarget& t) {
  return t.compute_units == 1 && t.warp_width > 1 ? kUsualUnits : t.compute_units;
}

int64_t MostRegisters(int64_t threads) {
  constexpr int64_t kOfThread = 255;
  return std::min(kOfThread, kUnitRegisters / threads / kRegistersAtOnce * kRegistersAtOnce);
}

double FreeRegisters(int64_t threads, const GpuTarget& t) {
  const int64_t there = std::min<int64_t>(t.unit_threads, static_cast<int64_t>(kUnitGroups) * WarpThreads(threads, t));
  return static_cast<double>(kUnitRegisters / there / kRegistersAtOnce * kRegistersAtOnce);
}

double GivenRegisters(double wanted, int64_t threads, const GpuTarget& t) {
  constexpr double kLittle = 30, kMostUnasked = 60;
  if (wanted > kLittle) wanted = std::max(wanted, std::min(FreeRegisters(threads, t), kMostUnasked));
  return std::min(std::round(wanted), static_cast<double>(MostRegisters(threads)));
}

int64_t WarpThreads(int64_t threads, const GpuTarget& t) { return CeilDiv(threads, t.warp_width) * t.warp_width; }

double CachedTraffic(double asked, double compulsory, double cache_speed) {
  return compulsory + std::max(0.0, asked - compulsory) / cache_speed;
}

const FootprintSchema& GpuSchema() {
  static const FootprintSchema schema = [] {
    FootprintSchema s{"gpu", kGpuFeatureVersion, {}};
    for (const Field& field : kFields) s.names.push_back(field.name);
    for (const Derived& derived : kDerived) s.names.push_back(derived.name);
    return s;
  }();
  return schema;
}

Footprint UnderGpuSchema(const GpuFootprint& f, const GpuTarget& t) {
  Footprint result{&GpuSchema(), {}, DraftSeconds(f, t)};
  result.values.reserve(std::size(kFields) + std::size(kDerived));
  for (const Field& field : kFields) result.values.push_back(f.*field.value);
  for (const Derived& derived : kDerived) result.values.push_back(derived.value(f, t));
  return result;
}

}  // namespace temper
