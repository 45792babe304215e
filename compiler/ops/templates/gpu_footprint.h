// What a config does to a GPU, and the draft of its seconds.
#pragma once

#include "compiler/ops/footprint.h"
#include "compiler/target/target.h"

namespace temper {

// Terms of the draft. GpuSchema names them, and what they mean together on the target.
struct GpuFootprint {
  double flops = 0;             // useful floating-point operations
  double padded_flops = 0;      // executed, tails and padding included
  double memory_traffic = 0;    // bytes that groups ask of memory, and of the cache in front of it
  double compulsory_bytes = 0;  // that move at least once
  double coalescing = 1;        // of the bytes that come with what warps ask, the part that is used
  double vector_lanes = 1;      // elements of one access to memory
  double group_threads = 1;     // threads of a group
  double groups = 1;            // of the largest launch
  double launches = 1;
  double accumulators = 1;      // results of a thread that do not wait for each other
  double reduction = 1;         // steps of the loop that makes them
  double registers = 16;        // of 32 bits, of a thread; what ptxas should say
  double shared_bytes = 0;      // of a group
  double shared_traffic = 0;    // bytes that threads ask of shared memory over the whole kernel
  double barriers = 0;          // that a group comes to
  double in_flight_bytes = 16;  // that a thread asks of memory before it waits
  // Not of the schema: times as fast as multiply-adds of f32, where instructions of warps do the arithmetic.
  double arithmetic_speed = 1;
  // Not of the schema: cycles that a group waits for what few of its threads do, or lanes one after another, beside its
  // barriers.
  double wait_cycles = 0;
};
inline constexpr int kGpuFeatureVersion = 2;  // of GpuSchema
const FootprintSchema& GpuSchema();

// What every GPU has for a unit, whatever the target.
inline constexpr int64_t kUnitRegisters = 64 << 10;
// The most that a thread can have, of a group of so many threads.
int64_t MostRegisters(int64_t threads);
// So many that they keep no group away which the unit has room for, of so many threads.
double FreeRegisters(int64_t threads, const GpuTarget& t);
// What ptxas gives a thread where code has use for `wanted`: where that is more than a little, it gives as many as keep
// no group away that the unit has room for.
double GivenRegisters(double wanted, int64_t threads, const GpuTarget& t);
// Units of the target, or a usual number where only its warps are known.
int NominalUnits(const GpuTarget& t);
// Threads in whole warps.
int64_t WarpThreads(int64_t threads, const GpuTarget& t);

// Traffic of `asked` bytes, of which all but the compulsory ones come from a cache that is so many times as fast.
double CachedTraffic(double asked, double compulsory, double cache_speed);
inline constexpr double kGroupsCacheSpeed = 3;  // of the one that has what several groups ask for

// The values that GpuSchema names, and the draft: the slowest of arithmetic, memory and shared memory on the unit with
// most groups, each as fast as the threads that are there keep it busy.
Footprint UnderGpuSchema(const GpuFootprint& f, const GpuTarget& t);

}  // namespace temper
