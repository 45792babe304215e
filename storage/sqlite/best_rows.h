// The table `best`: an index of the standing bests, one a workload, target, device, number of threads and version of a
// template. Which they are, best.h says; here they are found and kept.
#pragma once

#include <optional>
#include <set>
#include <tuple>

#include "storage/best.h"
#include "storage/sqlite/connection.h"
#include "storage/sqlite/record_rows.h"

namespace temper::rows {

// Brings the table up to date with the records that one transaction adds.
class BestKeeper {
 public:
  explicit BestKeeper(Connection& db) : db_(db) {}  // `db` outlives it, and is inside the transaction
  // In the order in which they were inserted.
  absl::Status Added(const Keys& keys, const Record& r, int64_t id);
  absl::Status Finish();  // after the last

  using Place = std::tuple<int64_t, int64_t, int, std::string>;  // workload, target, threads, device key
  absl::Status FindAgain(const Place& place);
  absl::Status FindAllAgain();  // for a file whose bests were chosen by an earlier rule

 private:
  absl::StatusOr<bool> IsBest(const Keys& keys, const Record& r);
  absl::StatusOr<bool> OthersConfirmed(const Keys& keys, const Record& r);
  absl::Status Raise(const Keys& keys, const Record& r, const Rank& rank);
  absl::Status Set(const Keys& keys, const Record& r, const Rank& rank);

  Connection& db_;
  std::set<Place> to_find_again_;
};

absl::StatusOr<std::optional<BestAnswer>> Best(Connection& db, const BestQuery& query);
absl::Status ScanBest(Connection& db, const RecordFilter& filter, const Visitor& visit);

}  // namespace temper::rows
