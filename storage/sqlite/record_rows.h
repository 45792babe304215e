// The SQL of records. Writes are to be called inside a transaction.
#pragma once

#include <functional>

#include "storage/sqlite/connection.h"
#include "storage/store.h"

namespace temper::rows {

// The rows that hold a record's texts.
struct Keys {
  int64_t workload, anchor, target, device;
};
absl::StatusOr<Keys> InternKeys(Connection& db, const Record& r);
bool SameKeys(const Record& a, const Record& b);

// Its id; 0: its execution has a record already. What may be best is best_rows.h's matter.
absl::StatusOr<int64_t> InsertRecord(Connection& db, const Keys& keys, const Record& r);
absl::StatusOr<int64_t> HighestCandidate(Connection& db);  // 0: no record is of an execution
// Whether its SameTrial is there, and not just put where this one is not.
absl::StatusOr<bool> Knows(Connection& db, const Keys& keys, const Record& r);

using Visitor = std::function<void(const Record&)>;
absl::Status Scan(Connection& db, const RecordFilter& filter, const Visitor& visit);
// The record with this id, if the filter matches it. Whether it does.
absl::StatusOr<bool> VisitOne(Connection& db, int64_t id, const RecordFilter& filter, const Visitor& visit);
// Those of one place: all that the rule of best needs to say which of them stand.
absl::Status VisitPlace(Connection& db, int64_t workload, int64_t target, int threads, std::string_view device_key,
                        const Visitor& visit);
absl::Status VisitTask(Connection& db, int64_t workload, int64_t target, const Visitor& visit);
// Those of one config, whatever its template.
absl::Status VisitConfig(Connection& db, std::string_view workload, std::string_view target, std::string_view config,
                         const Visitor& visit);

}  // namespace temper::rows
