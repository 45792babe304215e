// The constants of a workload in the layout that some kernels want, and the copies through which timed calls rotate.
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
  std::unique_ptr<Block> copies;               // null: there is one copy only; all constants of one are side by side
  size_t in_copy = 0;                          // constants of one copy
  Arguments first;                             // by input, where candidates are checked; null where it is no constant
  std::vector<Arguments> args;  // by copy, then by input; null where there are no copies and it is not packed
  int64_t bytes = 0;
  size_t next = 0;  // the copy that the next call reads, whoever's it is: none finds what another just read

  // Copies that other candidates' have pushed out of the shared cache since they were last read come back to it, the
  // next one first; else a candidate's time would depend on who came before it. Those that it can not hold come from
  // memory anyway.
  void Fetch(Device& device) const;
};

// Those of `state` that go with the kernel. Packing a large constant takes longer than a call, and candidates agree on
// few layouts: the latest are kept in `state.constants`. kDataLoss: packing wrote where it must not.
absl::StatusOr<std::shared_ptr<PackedConstants>> FindConstants(WorkloadState& state, const LoadedKernel& kernel,
                                                               const CachePlan& cache);

}  // namespace temper::worker
