// One candidate on the CPU: its code, its packed constants, its scratch.
#pragma once

#include <memory>
#include <vector>

#include "compiler/ops/template.h"
#include "compiler/runtime/thread_pool.h"
#include "measure_worker/backend.h"
#include "measure_worker/backends/cpu/code.h"
#include "measure_worker/backends/cpu/guarded_buffer.h"

namespace temper::worker {

// What all candidates of a workload share. Arrays are in physical order.
struct WorkloadState {
  Workload workload;
  std::vector<NDArray> inputs;  // as drawn
  NDArray reference;
  std::vector<GuardedBuffer> operands;  // the inputs again, where the kernels read them
  GuardedBuffer output;
  const Program* last_writer = nullptr;  // of `output`
  int64_t bytes = 0;

  // kDataLoss: an operand is no longer what was drawn.
  absl::Status CheckOperands() const;
};
absl::StatusOr<std::shared_ptr<WorkloadState>> MakeWorkloadState(const Workload& w, uint64_t seed);

// How the caches are found by each call.
struct CachePlan {
  enum class Policy { kModel, kWarm, kFlushed } policy = Policy::kModel;
  int64_t rotated_bytes = 0;  // kModel: constants rotate through copies of so many bytes in all
  int64_t flush_bytes = 0;    // kFlushed: touched between calls
};
absl::StatusOr<CachePlan> MakeCachePlan(std::string_view policy, const Target& t);
// Copies through which constants of `constant_bytes` rotate.
int64_t CountCopies(const CachePlan& plan, int64_t constant_bytes);

// A kernel's code: the main function and, for each input, how it is packed (null: it is not). Thread-safe.
struct LoadedKernel {
  std::shared_ptr<const Code> main;
  std::vector<std::shared_ptr<const Code>> packs;
};
absl::StatusOr<LoadedKernel> Load(const Kernel& kernel, const Target& t);

std::unique_ptr<Program> NewCpuProgram(LoadedKernel code, std::shared_ptr<WorkloadState> state, CachePlan cache,
                                       std::shared_ptr<temper_pool> pool);

}  // namespace temper::worker
