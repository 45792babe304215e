// The records' home. One contract suite (tests/storage) runs on every implementation.
//
// Thread-safe. Writes return once they are durable. Best changes in the same transaction as the rows that change it.
//
// Errors of all operations, one line each: kInvalidArgument: what was given is refused (check.h), and nothing was
// changed; kNotFound; kFailedPrecondition: opened for reading only; kResourceExhausted: the disk is full, which may
// pass; kUnavailable: another program locks the file, which may pass; kDataLoss: the disk or the file is broken. After
// a write that ended in kDataLoss the store writes nothing more and answers every write with it: what is acknowledged
// is kept, and the process had better end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "storage/access.h"
#include "storage/overview.h"
#include "storage/record.h"

namespace temper {

struct RecordFilter {  // empty fields match all
  std::string workload, anchor, target, device_key, template_name, purpose;
  std::optional<Outcome> outcome;
  std::optional<bool> put;  // by hand, or not; nullopt: both
  int64_t job = 0;
  int64_t after_id = 0;       // cursor: ids above it
  int64_t before_id = 0;      // cursor: ids below it; 0: all
  int64_t limit = 0;          // 0: all
  bool newest_first = false;  // else in id order
  int64_t candidate = 0;      // with its attempt: the one execution's; 0: all
  int attempt = 0;
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

struct JobFilter {        // empty fields match all
  int64_t before_id = 0;  // cursor: ids below it; 0: all
  int64_t limit = 0;      // 0: all
  std::string state, device_key;
};

// What becomes durable together, or not at all.
struct Changes {
  std::span<const Record> records;
  std::span<const LeaseRow> granted;  // one with a known id replaces it; those of jobs unknown or final are passed over
  std::span<const int64_t> closed;    // ids of leases; unknown ones are passed over
  std::span<const JobPriority> priorities = {};  // in this order; those of jobs unknown or final are passed over

  size_t size() const { return records.size() + granted.size() + closed.size() + priorities.size(); }
};

// What may go. 0 everywhere: nothing. What is still needed stays: what serves builds, and what may deny it to serve
// them (best.h); what a job that is not final knows; verdicts on models; the newest row of each kind.
struct PruneOptions {
  int64_t keep_records = 0;          // the newest of each workload and target; 0: all
  int64_t keep_jobs = 0;             // the newest; 0: all
  int64_t audit_before_unix_ms = 0;  // older ones go
  bool dry_run = false;              // counts only
};
struct Pruned {
  int64_t records = 0, jobs = 0, audit = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // Refuses what check.h refuses. Errors are cut to kMaxErrorBytes. Returns the ids of the records; 0: its execution
  // has a record already, and this one is passed over.
  virtual absl::StatusOr<std::vector<int64_t>> Commit(const Changes& changes) = 0;
  absl::StatusOr<std::vector<int64_t>> Append(std::span<const Record> records) { return Commit({.records = records}); }
  // Append for records from elsewhere: job numbers and executions are dropped, and those whose SameTrial is there
  // already are passed over (id 0), unless it was put and this one was not. Many are no one transaction: where the
  // store fails, some may be there, which another try passes over.
  virtual absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) = 0;
  // As of the call; `visit` may use the store.
  virtual absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) = 0;
  virtual absl::StatusOr<int64_t> HighestCandidate() = 0;  // of all records; 0: none is of an execution
  // The record that serves the query by the rule of best.h. nullopt: nothing known. kInvalidArgument: no workload or no
  // target.
  virtual absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& query) = 0;
  // The best per (workload, target, device key), each as Best would give it at level key; of these, those that the
  // filter matches, in its order.
  virtual absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) = 0;

  virtual absl::StatusOr<int64_t> CreateJob(const JobRow& job) = 0;
  // By id; kNotFound. All but its spec and its request, which are as they were created, and its priority, which Commit
  // changes. In a final state its request is emptied and its leases are closed.
  virtual absl::Status UpdateJob(const JobRow& job) = 0;
  virtual absl::StatusOr<JobRow> GetJob(int64_t id) = 0;
  // Newest first, without specs, summaries and requests.
  virtual absl::StatusOr<std::vector<JobRow>> Jobs(const JobFilter& filter) = 0;
  // The newest job of this model on this target (and device key, unless empty) that says what to build with.
  virtual absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                              const std::string& device_key) = 0;
  virtual absl::StatusOr<std::vector<LeaseRow>> Leases() = 0;  // all that are open, by id

  // In many small transactions, so that others write meanwhile; ends with the first that fails.
  virtual absl::StatusOr<Pruned> Prune(const PruneOptions& options) = 0;

  // kDataLoss: it is damaged, as a read or a write has found, and takes no writes any more.
  virtual absl::Status Health() const { return absl::OkStatus(); }

  // Of the same database; they live as long as the store.
  virtual AccessStore& access() = 0;
  virtual Overview& overview() = 0;
};

enum class OpenMode { kReadWrite, kReadOnly };
// The store that `url` names: "memory:" (gone with the process), or "sqlite:PATH" or just a PATH, which is made if need
// be. One process may hold a file for writing (kFailedPrecondition names the holder); any number may read meanwhile.
// Errors, one line each: no such file (read-only), not a database of ours, corrupt, from a newer version, read-only
// folder, disk full, locked, no such kind of store.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& url, OpenMode mode = OpenMode::kReadWrite);
// One file with what the database of `from`, a url too, holds at this moment, whoever writes it meanwhile. `to` is
// there whole or not at all; kAlreadyExists: it is there already.
absl::Status SnapshotStore(const std::string& from, const std::string& to);
// Puts the snapshot `from`, a file that is checked from end to end, in the place of `to`, a path. Returns where what
// was there is kept: TO.before-restore, or with a number behind it, where that is there already; empty: nothing was
// there. Old or new, never mixed. kFailedPrecondition: a process writes `to`.
absl::StatusOr<std::string> RestoreStore(const std::string& from, const std::string& to);

// One JSON object a line, the form of `db export` and `db list --json`. Ids, job numbers and executions are those of
// the store it came from; an import drops them. kInvalidArgument names the field.
inline constexpr size_t kMaxJsonLineBytes = 1 << 20;  // more than any record that a store takes becomes
std::string ToJsonLine(const Record& r);
absl::StatusOr<Record> RecordFromJsonLine(std::string_view line);

}  // namespace temper
