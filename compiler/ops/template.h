// Templates: how a workload may be scheduled. A template is a tensor program for the workload *and* a schedule for
// it, with knobs. Several templates may fit one operator (direct, Winograd): they are alternatives that tuning
// chooses between. Registered in ops/registry.cc, in order of preference when nothing is known.
#pragma once

#include "compiler/ops/op.h"
#include "compiler/schedule/config_space.h"
#include "compiler/target/target.h"

namespace temper {

// A workload made ready for codegen.
struct Kernel {
  ir::Func main;  // lowered; parameters: one per workload input (constant ones in packed form), then the output
  // For inputs that are packed: how. A lowered function (original physical buffer) -> (packed buffer), run once per
  // constant when the package is made, and outside the clock when a candidate is timed. Empty Func (no params): as it
  // is.
  std::vector<ir::Func> packs;
};

// What a config does to the machine, in closed form (no nest is built): features of the cost model, terms of the
// draft and reasons for pruning. Names are stable; kFeatureVersion rises when a meaning changes.
struct Footprint {
  double flops = 0;                                            // useful floating-point operations
  double padded_flops = 0;                                     // executed, tails and padding included
  double vector_lanes = 1;                                     // lanes of the innermost vector
  double tile_rows = 1, tile_columns = 1, tile_registers = 0;  // register tile; columns in elements
  double reduction = 1;       // length of the innermost accumulation before results leave the registers
  double sums = 1;            // independent ones that each accumulator is in the end; known to the draft alone
  double last_rows = 0;       // of the tile that ends the rows, if smaller; known to the draft alone
  double last_part = 0;       // of all multiply-adds, in such tiles; likewise
  double prologue_ops = 0;    // vector instructions that make an operand in cache; known to the draft alone
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
inline constexpr int kFeatureVersion = 3;
// Field names and values in a fixed order, for the model and for `explain`.
std::span<const std::string_view> FootprintNames();
std::vector<double> FootprintValues(const Footprint& f);

struct TemplateDef {
  std::string_view name;  // "conv2d.direct", "matmul.packed", "default"
  int version;            // rises when the same config means code of another speed: records of it no longer hold
  std::function<bool(const Workload&)> matches;
  std::function<ConfigSpace(const Workload&, const Target&)> space;
  std::function<absl::StatusOr<Kernel>(const Workload&, const Config&, const Target&)> build;
  std::function<Footprint(const Workload&, const Config&, const Target&)> footprint;
};

std::span<const TemplateDef> AllTemplates();
std::vector<const TemplateDef*> TemplatesFor(
    const Workload& w);                  // in order; the last is always "default", which fits everything but opaque
bool HasOwnTemplate(const Workload& w);  // another than "default"
const TemplateDef* FindTemplate(std::string_view name);
// For operators written outside the tree (examples/custom_operator.cc). Call before any other use; not thread-safe.
void RegisterOp(OpDef op);
void RegisterTemplate(TemplateDef def);  // goes before the built-in ones

// The roofline draft: seconds that this footprint should take on the target, from its nominal peak. Orders the first
// batch of a search and picks default configs.
double DraftSeconds(const Footprint& f, const Target& t);
// The best legal config by draft among at most `limit` looked at; deterministic.
struct Choice {
  const TemplateDef* def;
  Config config;
};
absl::StatusOr<Choice> DefaultChoice(const Workload& w, const Target& t, int64_t limit = 4096);

// Builds a kernel by template name, checking name, version and config first: the way of every candidate.
absl::StatusOr<Kernel> BuildKernel(const Workload& w, std::string_view template_name, const Config& c, const Target& t);

}  // namespace temper
