// What people look at, of a store in memory: plain loops over all of it.
#pragma once

#include "storage/store.h"

namespace temper {

class MemoryOverview : public Overview {
 public:
  explicit MemoryOverview(Store& store) : store_(store) {}  // which outlives it

  absl::StatusOr<BestPage> Bests(const BestFilter& filter) override;
  absl::StatusOr<std::vector<ModelRow>> Models(int64_t limit) override;
  absl::StatusOr<JobCurve> Curve(int64_t job) override;
  absl::StatusOr<FailureRows> Failures(int64_t job, int64_t records, int64_t limit) override;

 private:
  Store& store_;
};

}  // namespace temper
