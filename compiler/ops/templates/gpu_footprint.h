// What a config does to a GPU, and the draft of its seconds.
#pragma once

#include "compiler/ops/footprint.h"
#include "compiler/target/gpu_registers.h"
#include "compiler/target/target.h"

namespace temper {

// Terms of the draft. GpuSchema names them, and what they mean together on the target. Of the whole kernel where
// nothing else is said.
struct GpuFootprint {
  double flops = 0;             // useful floating-point operations
  double padded_flops = 0;      // executed, tails and padding included
  double instructions = 0;      // of threads, that do no arithmetic
  double memory_traffic = 0;    // bytes that come from memory, or go there
  double cache_traffic = 0;     // bytes that groups ask of the cache in front of it, where these are more
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
  double shared_traffic = 0;    // bytes that shared memory could give in the turns that it takes
  double barriers = 0;          // that a group comes to
  double in_flight_bytes = 16;  // that a thread asks of memory before it waits
  double round_trips = 1;       // times that a group asks memory for what it then waits for,
  double trips_ahead = 0;       // so many of them before it needs what it asks for
  double wait_cycles = 0;       // that a group waits beside that, for what few of its threads do, or lanes in turn
  // Not of the schema: where tensor cores do the arithmetic, the multiply-adds that a unit's make in a cycle, and a
  // lane's share of those that one instruction makes.
  double tensor_fmas = 0;
  double lane_fmas = 1;
};
inline constexpr int kGpuFeatureVersion = 4;  // of GpuSchema
const FootprintSchema& GpuSchema();

// So many registers that they keep no group away which the unit has room for, of so many threads.
double FreeRegisters(int64_t threads, const GpuTarget& t);
// What ptxas gives a thread where code has use for `wanted`: where that is more than a little, it gives as many as keep
// no group away that the unit has room for.
double GivenRegisters(double wanted, int64_t threads, const GpuTarget& t);
// Units of the target, or a usual number where only its warps are known.
int NominalUnits(const GpuTarget& t);
// Threads in whole warps.
int64_t WarpThreads(int64_t threads, const GpuTarget& t);

// Groups that a unit has at once.
double GroupsOfUnit(const GpuFootprint& f, const GpuTarget& t);

// Products of matrices by groups that each have a tile of the result.
struct TiledProduct {
  double batch, row_tiles, column_tiles;     // row tiles of a column follow one another, then columns, then the batch
  double tile_row_bytes, tile_column_bytes;  // of an operand, for a tile; without what its neighbours see too
};
// Bytes of the operands that come from memory: of the groups that are there at once, each row and each column of tiles
// asks once; what does not fit the cache comes again with the next groups. `f` has the groups and what they need.
double OperandTraffic(const TiledProduct& p, const GpuFootprint& f, const GpuTarget& t);

// Turns of shared memory's banks for one instruction by which each lane of a warp reads `words` of 32 bits (1, 2 or 4),
// so many lanes from places of their own, `stride` words apart, and the others from the same places.
double BankTurns(double words, double lanes, double stride);

inline constexpr double kNominalGhz = 1.5;  // of the draft's seconds

// The values that GpuSchema names, and the draft: what the unit with most groups takes for them. So many at a time take
// what the busiest of its parts needs for them all (issue and arithmetic, the cache, memory, shared memory), and what
// is left of one group's waits (for memory, at barriers) where the work of the others is too little to hide them.
Footprint UnderGpuSchema(const GpuFootprint& f, const GpuTarget& t);

}  // namespace temper
