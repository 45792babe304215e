// How long a server keeps what piles up. Without limits it keeps all.
#pragma once

#include "absl/time/time.h"
#include "base/status.h"
#include "storage/store.h"

namespace temper {

struct RetentionOptions {
  int64_t keep_records = 0;                              // the newest of each workload and target; 0: all
  int64_t keep_jobs = 0;                                 // the newest; 0: all
  absl::Duration keep_audit = absl::InfiniteDuration();  // older lines of the audit go
  bool KeepsAll() const { return keep_records == 0 && keep_jobs == 0 && keep_audit == absl::InfiniteDuration(); }
};

// Drops what is beyond the limits, as far as Store::Prune lets it go, and logs how much that was.
absl::Status DropOld(Store& store, const RetentionOptions& options, absl::Time now);

}  // namespace temper
