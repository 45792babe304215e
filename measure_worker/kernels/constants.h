// The constants of a workload in the layout that some kernels want, and what stands in for them in timed calls: these
// rotate through so many places that caches hold as little of the constants as in the model.
#pragma once

#include <memory>
#include <vector>

#include "measure_worker/device.h"
#include "measure_worker/kernels/cache_plan.h"
#include "measure_worker/kernels/code_cache.h"

namespace temper::worker {

struct WorkloadState;

// None of it can be written.
struct PackedConstants {
  // By input: how it is packed, null where it is taken as it is.
  std::vector<std::shared_ptr<const Code>> packs;
  CachePlan cache;
  std::vector<std::unique_ptr<Block>> packed;  // by input; null where it is not packed
  int64_t packed_bytes = 0;
  Arguments first;  // by input, where candidates are checked; null where it is no constant
  // By input, where answers count; null where it is not packed.
  Arguments real;
  std::unique_ptr<Block> stand_ins;  // null: there are none; those of one call are side by side
  size_t in_call = 0;                // stand-ins of one call
  int64_t call_bytes = 0;            // their room
  // By place in the rotation, then by input; null as in `real`. Of what is no float, the values matter: no stand-ins.
  std::vector<Arguments> timed;

  // Where whoever reads stand-ins next goes on, by place; and that somebody went on to `next`.
  size_t Next(const Device& device) const;
  void SetNext(Device& device, size_t next) const;
  // What other candidates' have pushed out of the shared cache since it was last read comes back to it, the next place
  // first; else a candidate's time would depend on who came before it. What it can not hold comes from memory anyway.
  void Fetch(Device& device) const;
};

// Those of `state` that go with the kernel. Packing a large constant takes longer than a call, and candidates agree on
// few layouts: the latest are kept in `state.constants`. kDataLoss: packing wrote where it must not.
absl::StatusOr<std::shared_ptr<PackedConstants>> FindConstants(WorkloadState& state, const LoadedKernel& kernel,
                                                               const CachePlan& cache);

}  // namespace temper::worker
