#include "compiler/ops/templates/gpu_footprint.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/division.h"

namespace temper {
namespace {

// Nominal rates of one unit, beside those that the target has. Only their ratios matter: the draft orders candidates,
// it promises no seconds.
constexpr double kSchedulers = 4;           // that issue an instruction of a warp in each cycle
constexpr double kWarp = 32;                // lanes that an instruction is for
constexpr double kArithmeticLatency = 4;    // cycles until a result can be used
constexpr double kMostIndependent = 8;      // instructions of a warp that are on their way
constexpr double kProductWarps = 5;         // whose products keep the tensor cores of all schedulers busy
constexpr double kFirstProduct = 100;       // cycles of a step until its first matrices are loaded and multiplied
constexpr double kCacheBytesPerCycle = 32;  // of the cache in front of memory
constexpr double kMemoryShare = 0.85;       // of memory's bandwidth that is reached
constexpr double kMemoryLatency = 500;      // cycles
constexpr double kBeginCycles = 700;        // until a group's first results, beside its work
constexpr double kLastShare = 0.5;          // of its time alone that a last group takes beside the others' ends
constexpr double kBarrierCycles = 20, kBarrierThreads = 16;  // of a group that a cycle more brings
constexpr double kAccessShare = 0.15;                        // of a memory access's time, its instruction's own
constexpr double kBeside = 0.3;              // of what does not bound a group's time, what is not hidden
constexpr double kReservedShared = 1 << 10;  // of each group, where a unit has more than a group may ask for
constexpr double kLaunchSeconds = 3e-6;
constexpr int kUsualUnits = 64;  // where warps are known, and nothing else

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
    const double unit = static_cast<double>(std::max(t.unit_shared_bytes, t.shared_bytes));
    const double reserved = std::min(kReservedShared, unit - static_cast<double>(t.shared_bytes));
    const double room =
        std::min({static_cast<double>(t.unit_groups), std::floor(t.unit_threads / threads_of_group),
                  std::floor(static_cast<double>(kUnitRegisters) / (threads_of_group * std::max(16.0, f.registers))),
                  f.shared_bytes > 0 ? std::floor(unit / (f.shared_bytes + reserved)) : t.unit_groups});
    groups_of_unit = std::max(1.0, room);
    occupancy = std::min(1.0, groups_of_unit * threads_of_group / t.unit_threads);
    waves = f.groups / (groups_of_unit * NominalUnits(t));
    most = std::ceil(f.groups / NominalUnits(t));
    threads = std::min(groups_of_unit, most) * f.group_threads;
  }
};

// Cycles of a unit for one group, by the part of it that is busy.
struct GroupCycles {
  double arithmetic, issue, memory, shared;  // where other groups keep the unit busy meanwhile
  double alone;                              // where there is no other group
  double waits;                              // of these, without work for any part

  GroupCycles(const GpuFootprint& f, const GpuTarget& t, const Residence& r) {
    const double groups = std::max(1.0, f.groups);
    // Lanes of a warp that no thread uses take their turn like the others.
    const double warp_threads = static_cast<double>(WarpThreads(static_cast<int64_t>(f.group_threads), t));
    const double idle = warp_threads / f.group_threads, warps = std::ceil(warp_threads / kWarp);
    const bool matrices = f.tensor_fmas > 0;
    const double fmas = idle * f.padded_flops / 2 / groups;
    const double made = fmas / (matrices ? f.tensor_fmas : t.unit_fmas);
    const double issued = (fmas / f.lane_fmas + idle * f.instructions / groups) / (kSchedulers * kWarp);
    // Tensor cores work beside who issues. A thread's multiply-adds each take a turn of theirs.
    arithmetic = matrices ? made : std::max(made, issued);
    issue = matrices ? issued : 0;
    shared = f.shared_traffic / groups / t.unit_bank_bytes;
    const double access = (1 + kAccessShare / f.vector_lanes) / f.coalescing / groups;
    const double cache = std::max(f.cache_traffic, f.memory_traffic) * access / kCacheBytesPerCycle;
    const double memory_bytes = kMemoryShare * t.unit_memory_bytes;
    const double flight = std::min(1.0, r.threads * f.in_flight_bytes / (kMemoryLatency * t.unit_memory_bytes));
    // Few groups have the bandwidth of all units.
    const double sharing = std::min(1.0, groups / NominalUnits(t));
    memory = std::max(cache, f.memory_traffic * access / memory_bytes * sharing) / flight;
    // By itself, a warp waits for its own results, and few warps leave schedulers without work.
    const double own = std::min(1.0, warps / kSchedulers);
    const double pace =
        std::min(own, warps / kSchedulers * std::min(f.accumulators, kMostIndependent) / kArithmeticLatency);
    const double steps = std::max(1.0, f.round_trips);
    const double products = made / std::min(1.0, warps / kProductWarps) + steps * kFirstProduct;
    const double work = std::max({matrices ? products : made / own, issued / pace, shared, cache});
    // So many trips are under way at once. A step takes what its work does, or its part of a trip, which is the latency
    // and the way of all that it brings.
    const double way = kMemoryLatency + cache / steps;
    const double trip = f.trips_ahead == 0 ? kMemoryLatency : std::max(0.0, way / f.trips_ahead - work / steps);
    alone = work + (f.round_trips - 1) * trip + f.barriers * (kBarrierCycles + f.group_threads / kBarrierThreads) +
            f.wait_cycles + kBeginCycles;
    waits = alone - std::max({made, issued, shared, cache});
  }
};

double DraftSeconds(const GpuFootprint& f, const GpuTarget& t) {
  const Residence r(f, t);
  const GroupCycles g(f, t, r);
  const double bound = std::max({g.arithmetic, g.issue, g.memory, g.shared});
  const double busy = bound + kBeside * (g.arithmetic + g.issue + g.memory + g.shared - bound);
  const double beside = std::min(r.groups_of_unit, r.most), rounds = std::floor(r.most / beside);
  const double rest = r.most - rounds * beside;
  // The others' work hides a group's waits, the better the more of it there is.
  const double others = (beside - 1) * busy;
  double cycles = rounds * (beside * busy + g.waits * g.waits / (g.waits + others));
  if (rest > 0) cycles += std::max(rest * busy, kLastShare * g.alone);
  return cycles / (kNominalGhz * 1e9) + f.launches * kLaunchSeconds;
}

// --- the schema: another meaning of a line, or a new one, raises kGpuFeatureVersion ---

struct Field {
  std::string_view name;
  double GpuFootprint::*value;
};
constexpr Field kFields[] = {
    {"flops", &GpuFootprint::flops},
    {"padded_flops", &GpuFootprint::padded_flops},
    {"instructions", &GpuFootprint::instructions},
    {"memory_traffic", &GpuFootprint::memory_traffic},
    {"cache_traffic", &GpuFootprint::cache_traffic},
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
    {"round_trips", &GpuFootprint::round_trips},
    {"trips_ahead", &GpuFootprint::trips_ahead},
    {"wait_cycles", &GpuFootprint::wait_cycles},
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

double FreeRegisters(int64_t threads, const GpuTarget& t) {
  const int64_t there =
      std::min<int64_t>(t.unit_threads, static_cast<int64_t>(t.unit_groups) * WarpThreads(threads, t));
  return static_cast<double>(kUnitRegisters / there / kRegistersAtOnce * kRegistersAtOnce);
}

double GivenRegisters(double wanted, int64_t threads, const GpuTarget& t) {
  constexpr double kLittle = 30, kMostUnasked = 60;
  if (wanted > kLittle) wanted = std::max(wanted, std::min(FreeRegisters(threads, t), kMostUnasked));
  return std::min(std::round(wanted), static_cast<double>(MostRegisters(threads)));
}

int64_t WarpThreads(int64_t threads, const GpuTarget& t) { return CeilDiv(threads, t.warp_width) * t.warp_width; }

double GroupsOfUnit(const GpuFootprint& f, const GpuTarget& t) { return Residence(f, t).groups_of_unit; }

double OperandTraffic(const TiledProduct& p, const GpuFootprint& f, const GpuTarget& t) {
  constexpr double kKept = 0.6;  // of the cache, that what comes again finds there
  const double rows = p.row_tiles * p.tile_row_bytes, columns = p.column_tiles * p.tile_column_bytes;
  const double once = p.batch * (rows + columns);
  // What is a little too much for the cache drives out a part of itself.
  const double missing = std::clamp(rows / (kKept * static_cast<double>(t.l2_bytes)) - 1, 0.0, 1.0);
  const double tiles = p.row_tiles * p.column_tiles;
  const double together = std::min(tiles, GroupsOfUnit(f, t) * NominalUnits(t));
  const double of_groups =
      std::min(p.row_tiles, together) * p.tile_row_bytes + std::ceil(together / p.row_tiles) * p.tile_column_bytes;
  return once + missing * std::max(0.0, p.batch * tiles / together * of_groups - once);
}

double BankTurns(double words, double lanes, double stride) {
  constexpr double kBanks = 32;
  // Lanes are served in as many parts as they read words, or fewer where they read the same.
  const double part = kBanks / words, apart = std::min(lanes, part);
  const double parts = lanes >= part ? words : words > 2 ? 2 : 1;
  const double between = static_cast<double>(std::gcd(static_cast<int64_t>(stride), static_cast<int64_t>(kBanks)));
  return parts * std::max(1.0, std::ceil(apart * between / kBanks));
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
