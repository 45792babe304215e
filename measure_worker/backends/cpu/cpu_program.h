// One candidate on the CPU: its code, its packed constants, its scratch.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "compiler/ops/template.h"
#include "compiler/runtime/thread_pool.h"
#include "measure_worker/backend.h"
#include "measure_worker/backends/cpu/code.h"
#include "measure_worker/backends/cpu/guarded_buffer.h"

namespace temper::worker {

// How the caches are found by each call.
struct CachePlan {
  enum class Policy { kModel, kWarm, kFlushed } policy = Policy::kModel;
  int64_t rotated_bytes = 0;  // kModel: constants rotate through copies of so many bytes in all; larger ones need none
  int64_t shared_bytes = 0;   // kModel: so much comes back to the shared cache after another's turn
  int64_t flush_bytes = 0;    // kFlushed: touched between calls

  bool operator==(const CachePlan&) const = default;
};
// The constants of a workload in the layout that some kernels want, and the copies through which they rotate; none of
// it can be written.
struct PackedConstants {
  explicit PackedConstants(std::shared_ptr<SpareBuffers> spare) : spare(std::move(spare)) {}
  PackedConstants(const PackedConstants&) = delete;
  ~PackedConstants() {
    for (GuardedBuffer& buffer : packed) spare->Give(std::move(buffer));
    spare->Give(std::move(copies));
  }

  std::shared_ptr<SpareBuffers> spare;  // where the buffers come from and go to
  // By input: how it is packed, null where it is taken as it is.
  std::vector<std::shared_ptr<const Code>> packs;
  CachePlan cache;
  std::vector<GuardedBuffer> packed;
  GuardedBuffer copies;
  std::vector<void*> first;              // by input, where candidates are checked; null where it is no constant
  std::vector<std::vector<void*>> args;  // by copy, then by input; null where there are no copies and it is not packed
  int64_t bytes = 0;
  size_t next = 0;  // the copy that the next call reads, whoever's it is: none finds what another just read
};

constexpr int64_t kMostSpareBytes = 192 << 20;

// What all candidates of a workload share. Arrays are in physical order.
struct WorkloadState {
  Workload workload;
  std::vector<NDArray> inputs;  // as drawn; large constants are only in `operands`, read-only, for all uses
  NDArray reference;
  // The inputs again, where the kernels are checked: they do not leave them unseen; and where they are timed.
  std::vector<GuardedBuffer> operands;
  GuardedBuffer output;
  Arena arena;
  std::vector<char*> timed_operands;
  char* timed_output = nullptr;
  // Of whoever is timed, behind the arrays; mapped and touched before, or the first call would pay for that.
  Arena scratch_arena;
  char* timed_scratch = nullptr;
  int64_t scratch_bytes = 0;
  const Program* last_writer = nullptr;               // of `timed_output`
  const PackedConstants* latest_constants = nullptr;  // that a call read
  int64_t bytes = 0;
  std::shared_ptr<SpareBuffers> spare;                    // for constants and scratch; other workloads' too
  std::list<std::shared_ptr<PackedConstants>> constants;  // the latest used first; only of the latest workload

  // `timed_scratch` may move.
  absl::Status ProvideScratch(int64_t bytes);
  // kDataLoss: the operand is no longer what was drawn.
  absl::Status CheckOperand(size_t i) const;
};
// `spare`: null for buffers of its own.
absl::StatusOr<std::shared_ptr<WorkloadState>> MakeWorkloadState(const Workload& w, uint64_t seed,
                                                                 std::shared_ptr<SpareBuffers> spare = nullptr);

absl::StatusOr<CachePlan> MakeCachePlan(std::string_view policy, const CpuTarget& t);
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
