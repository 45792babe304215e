// The records' home. One contract suite (tests/storage) runs on every implementation.
//
// Thread-safe. Append returns once the rows are durable. Best changes in the same transaction as the rows that change
// it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "storage/record.h"

namespace temper {

struct RecordFilter {  // empty fields match all
  std::string workload, anchor, target, device_key, template_name, purpose, outcome;
  int64_t job = 0;
  int64_t after_id = 0;       // cursor: ids above
  int64_t limit = 0;          // 0: all
  bool newest_first = false;  // else in id order
};

struct BestQuery {
  std::string workload, anchor, target, device_key, fingerprint;
  int threads = 0;
  std::vector<std::pair<std::string, int>> templates;  // names and versions this build allows; empty: all
  // What would be used without records. With it, a provisional best that does not beat the default's own measurement
  // on the same device by kProvisionalMargin is none. Empty: that is not asked.
  std::string default_template, default_config;
};
struct BestAnswer {
  Record record;
  std::string level;  // "exact" (fingerprint and threads), "key", "target", "borrowed" (same anchor, other epilogue)
};

class Store {
 public:
  virtual ~Store() = default;

  // Refuses (kInvalidArgument) outcomes, purposes and cache policies unknown, records without workload or target, ok
  // records without samples, and samples non-finite or non-positive. Errors are cut to 1 KiB. All or nothing. Returns
  // the ids.
  virtual absl::StatusOr<std::vector<int64_t>> Append(std::span<const Record> records) = 0;
  // Append for records from elsewhere: job numbers are dropped, and those whose SameTrial is there already are passed
  // over (id 0).
  virtual absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) = 0;
  // As of the call; `visit` may use the store.
  virtual absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) = 0;
  // The fastest by median among ok records of purpose search (three samples or more), final or revalidate, a final
  // or a revalidation before any provisional; none that failed later in the same place, and none that a later
  // revalidation retires, which it does with what another code generator made of that workload there and with older
  // times of its own config; levels tried in the order of BestAnswer::level (borrowed ones from the nearest device
  // first). nullopt: nothing known. kInvalidArgument: no workload or no target.
  virtual absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& query) = 0;
  // The best per (workload, target, device key), each as Best would give it at level key; of these, those that the
  // filter matches, in its order.
  virtual absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) = 0;

  virtual absl::StatusOr<int64_t> CreateJob(const JobRow& job) = 0;
  virtual absl::Status UpdateJob(const JobRow& job) = 0;  // by id; kNotFound
  virtual absl::StatusOr<JobRow> GetJob(int64_t id) = 0;
  virtual absl::StatusOr<std::vector<JobRow>> Jobs() = 0;  // newest first
  // The newest job of this model on this target (and device key, unless empty) that says what to build with.
  virtual absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                              const std::string& device_key) = 0;
};

enum class OpenMode { kReadWrite, kReadOnly };
// One process may hold a file for writing (kFailedPrecondition names the holder); any number may read meanwhile.
// Errors, one line each: no such file (read-only), not a database of ours, corrupt, from a newer version, read-only
// folder, disk full, locked.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, OpenMode mode);
std::unique_ptr<Store> NewMemoryStore();
// One file with what the database holds at this moment, whoever writes it meanwhile. `to` is there whole or not at all;
// kAlreadyExists: it is there already.
absl::Status SnapshotSqliteStore(const std::string& from, const std::string& to);

// One JSON object a line, the form of `db export` and `db list --json`. Ids and job numbers are those of the store it
// came from; an import drops them. kInvalidArgument names the field.
std::string ToJsonLine(const Record& r);
absl::StatusOr<Record> RecordFromJsonLine(std::string_view line);

}  // namespace temper
