// What a config does to a CPU, and the draft of its seconds.
#pragma once

#include "compiler/ops/footprint.h"
#include "compiler/target/target.h"

namespace temper {

// Terms of the draft. CpuSchema names most of them, and their ratios to what the target has.
struct CpuFootprint {
  double flops = 0;                                            // useful floating-point operations
  double padded_flops = 0;                                     // executed, tails and padding included
  double vector_lanes = 1;                                     // lanes of the innermost vector
  double tile_rows = 1, tile_columns = 1, tile_registers = 0;  // register tile; columns in elements
  double reduction = 1;       // length of the innermost accumulation before results leave the registers
  double sums = 1;            // independent ones that each accumulator is in the end; known to the draft alone
  double crowding = 1;        // of cycles, where what a tile reads is pushed out of L1; known to the draft alone
  double turns = 0;           // of a loop, for each step of the accumulation; known to the draft alone
  double last_rows = 0;       // of the tile that ends the rows, if smaller; known to the draft alone
  double last_part = 0;       // of all multiply-adds, in such tiles; likewise
  bool of_bf16 = false;       // its multiply-adds are of pairs of bf16; known to the draft alone
  double matrix_cycles = 0;   // of products and sums by matrix tiles; 0: vectors make them; known to the draft alone
  double prologue_ops = 0;    // vector instructions that make an operand in cache; known to the draft alone
  double kept = 0;            // of memory_traffic, what L3 has from the kernel before; known to the draft alone
  double panel_traffic = 0;   // of memory_traffic, panels that nothing fetches ahead; likewise
  double panel_turns = 1;     // row tiles that use such a panel one by one, the first of which waits; likewise
  double loads_per_fma = 0;   // vector loads (or broadcasts) per vector multiply-add in the innermost loop
  double l1_bytes = 0;        // working set of the loop that should live in L1
  double l2_bytes = 0;        // working set of the loop that should live in L2
  double l2_traffic = 0;      // bytes fetched past L1 over the whole kernel
  double l3_traffic = 0;      // bytes fetched past L2 over the whole kernel; 0: no more than memory_traffic
  double memory_traffic = 0;  // bytes fetched past L3 over the whole kernel
  double compulsory_bytes = 0;
  double parallel_chunks = 1;   // units handed to threads
  double chunk_imbalance = 1;   // slowest thread's share over the mean, >= 1
  double copies_bytes = 0;      // padding and run-time packing: bytes written before the main loop
  double code_ops = 0;          // vector instructions in the unrolled body, edge tiles included
  double innermost_stride = 1;  // elements between successive lanes of the main load
};
inline constexpr int kFeatureVersion = 3;  // of CpuSchema
const FootprintSchema& CpuSchema();

// The roofline draft: seconds that this footprint should take on the target, from its nominal peak.
double DraftSeconds(const CpuFootprint& f, const CpuTarget& t);
// That constants of so many bytes take, read by all threads at once.
double SecondsFromMemory(double bytes, const CpuTarget& t);
// The values that CpuSchema names, and the draft.
Footprint UnderCpuSchema(const CpuFootprint& f, const CpuTarget& t);

}  // namespace temper
