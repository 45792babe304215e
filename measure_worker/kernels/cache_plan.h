// How the caches are found by each call of a kernel that is timed.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "measure_worker/device.h"

namespace temper::worker {

struct CachePlan {
  enum class Policy { kModel, kWarm, kFlushed } policy = Policy::kModel;
  int64_t rotated_bytes = 0;  // kModel: constants rotate through copies of so many bytes in all; larger ones need none
  bool handed_over = false;   // kModel: other kernels wrote activations before each call, each core a part
  int64_t shared_bytes = 0;   // kModel: so much comes back to the shared cache after another's turn

  bool operator==(const CachePlan&) const = default;
};
// `policy`: "model", "warm", "flushed" (Device::Evict before each call). `model_bytes`: of the constants of the model
// that the kernel is of. Between two calls of a kernel the model reads the others, and those that do not fit the shared
// cache come from memory. 0: not known, as if they fit.
absl::StatusOr<CachePlan> MakeCachePlan(std::string_view policy, const Caches& caches, int64_t model_bytes = 0);
// Copies through which constants of `constant_bytes` rotate.
int64_t CountCopies(const CachePlan& plan, int64_t constant_bytes);

}  // namespace temper::worker
