// What all candidates of a workload share: what goes in, what has to come out, and the memory for both.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "compiler/ops/workload.h"
#include "measure_worker/device.h"
#include "measure_worker/kernels/constants.h"

namespace temper::worker {

// Arrays are in physical order. Not thread-safe; must not outlive the device.
struct WorkloadState {
  Device* device = nullptr;
  Workload workload;
  std::vector<NDArray> inputs;  // as drawn; large constants are only in `operands`, read-only, for all uses
  NDArray reference;
  // Where floats become steps: what the least and the greatest element may be. Empty elsewhere.
  NDArray least, most;
  // The inputs again, where the kernels are checked: they do not leave them unseen.
  std::vector<std::unique_ptr<Block>> operands;
  std::unique_ptr<Block> output;
  // Those that are not only in `operands`, and the output, where kernels are timed.
  std::unique_ptr<Block> timed;
  std::vector<size_t> in_timed;  // by input
  // Of whoever is timed, behind the arrays; mapped and touched before, or the first call would pay for that.
  std::unique_ptr<Block> scratch;
  const void* last_writer = nullptr;                  // the program that wrote the timed output last
  const PackedConstants* latest_constants = nullptr;  // that a call read
  int64_t bytes = 0;
  std::list<std::shared_ptr<PackedConstants>> constants;  // the latest used first; only of the latest workload

  bool IsKeptOnce(size_t input) const { return inputs[input].data() == nullptr; }
  void* TimedOperand(size_t input) const {
    return IsKeptOnce(input) ? operands[input]->address(0) : timed->address(in_timed[input]);
  }
  size_t timed_output() const { return timed->arrays() - 1; }
  void* timed_scratch() const { return scratch == nullptr ? nullptr : scratch->address(0); }

  // Layouts that nobody uses are given back.
  void ForgetConstants() {
    constants.clear();
    latest_constants = nullptr;
  }
  // `timed_scratch` may move.
  absl::Status ProvideScratch(int64_t bytes);
  // kDataLoss: the operand was no longer what was drawn. It is again: the next candidate is not to blame.
  absl::Status CheckOperand(size_t i);
  // kDataLoss: the array is not the reference. `tolerance` as CheckOutput has it.
  absl::Status CheckAnswer(const Block& block, size_t array, double tolerance) const;
};

// kResourceExhausted: the workload does not fit the device; nothing has been allocated then.
absl::StatusOr<std::shared_ptr<WorkloadState>> MakeWorkloadState(Device& device, const Workload& w, uint64_t seed);

}  // namespace temper::worker
