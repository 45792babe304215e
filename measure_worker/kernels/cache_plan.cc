#include "measure_worker/kernels/cache_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

constexpr int64_t kMaxRotatedBytes = 128 << 20;
constexpr int64_t kMaxCopies = 2048;

}  // namespace

absl::StatusOr<CachePlan> MakeCachePlan(std::string_view policy, const Caches& caches, int64_t model_bytes) {
  CachePlan plan;
  if (policy == "model") {
    // Twice a cache, and nothing is left in it of what was read a round ago.
    const int64_t wanted = std::max(2 * caches.own, std::min(model_bytes, 2 * caches.shared));
    plan.rotated_bytes = std::min(kMaxRotatedBytes, wanted);
    plan.handed_over = caches.several;
    plan.shared_bytes = caches.shared;
  } else if (policy == "warm") {
    plan.policy = CachePlan::Policy::kWarm;
  } else if (policy == "flushed") {
    plan.policy = CachePlan::Policy::kFlushed;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("no cache policy '", std::string(policy), "': model, warm or flushed"));
  }
  return plan;
}

int64_t CountCopies(const CachePlan& plan, int64_t constant_bytes) {
  if (plan.policy != CachePlan::Policy::kModel || constant_bytes == 0) return 1;
  if (constant_bytes >= plan.rotated_bytes) return 1;  // no core's cache keeps them from one call to the next
  return std::clamp<int64_t>((plan.rotated_bytes + constant_bytes - 1) / constant_bytes, 2, kMaxCopies);
}

}  // namespace temper::worker
