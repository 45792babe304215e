#include "tuner_server/operations/retention.h"

#include "base/log.h"

namespace temper {

absl::Status DropOld(Store& store, const RetentionOptions& options, absl::Time now) {
  PruneOptions prune{.keep_records = options.keep_records, .keep_jobs = options.keep_jobs};
  if (options.keep_audit != absl::InfiniteDuration()) {
    prune.audit_before_unix_ms = absl::ToUnixMillis(now - options.keep_audit);
  }
  TEMPER_ASSIGN_OR_RETURN(const Pruned gone, store.Prune(prune));
  spdlog::info("dropped what is old: {} records, {} jobs, {} lines of the audit", gone.records, gone.jobs, gone.audit);
  return absl::OkStatus();
}

}  // namespace temper
