// The SQL: what each operation of the store says to a connection. Writes are to be called inside a transaction.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "storage/sqlite/connection.h"
#include "storage/store.h"

namespace temper::rows {

absl::StatusOr<int64_t> InsertRecord(Connection& db, const Record& r);  // and `best`, where this record changes it
absl::StatusOr<bool> Knows(Connection& db, const Record& r);            // its SameTrial is there
absl::Status Scan(Connection& db, const RecordFilter& filter, const std::function<void(const Record&)>& visit);
absl::StatusOr<std::optional<BestAnswer>> Best(Connection& db, const BestQuery& query);
absl::Status ScanBest(Connection& db, const RecordFilter& filter, const std::function<void(const Record&)>& visit);

absl::StatusOr<int64_t> InsertJob(Connection& db, const JobRow& job);
absl::Status UpdateJob(Connection& db, const JobRow& job);
absl::StatusOr<JobRow> GetJob(Connection& db, int64_t id);
absl::StatusOr<std::vector<JobRow>> Jobs(Connection& db);
absl::StatusOr<std::optional<JobRow>> LatestVerdict(Connection& db, std::string_view model_hash,
                                                    std::string_view target, std::string_view device_key);

}  // namespace temper::rows
