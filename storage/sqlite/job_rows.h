// The SQL of jobs and leases. Writes are to be called inside a transaction.
#pragma once

#include <optional>
#include <vector>

#include "storage/sqlite/connection.h"
#include "storage/store.h"

namespace temper::rows {

absl::StatusOr<int64_t> InsertJob(Connection& db, const JobRow& job);
absl::Status UpdateJob(Connection& db, const JobRow& job);
absl::StatusOr<JobRow> GetJob(Connection& db, int64_t id);
absl::StatusOr<std::vector<JobRow>> Jobs(Connection& db, const JobFilter& filter);
absl::StatusOr<std::optional<JobRow>> LatestVerdict(Connection& db, std::string_view model_hash,
                                                    std::string_view target, std::string_view device_key);

absl::Status SetPriority(Connection& db, const JobPriority& change);  // nothing, if the job is unknown or final
absl::Status GrantLease(Connection& db, const LeaseRow& lease);       // nothing, if its job is unknown or final
absl::Status CloseLease(Connection& db, int64_t id);
absl::StatusOr<std::vector<LeaseRow>> Leases(Connection& db);

}  // namespace temper::rows
