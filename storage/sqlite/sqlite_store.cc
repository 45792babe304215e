#include "storage/sqlite/sqlite_store.h"

#include <algorithm>

#include "storage/check.h"
#include "storage/sqlite/access.h"
#include "storage/sqlite/best_rows.h"
#include "storage/sqlite/database.h"
#include "storage/sqlite/job_rows.h"
#include "storage/sqlite/overview.h"
#include "storage/sqlite/prune.h"
#include "storage/sqlite/record_rows.h"

namespace temper {
namespace {

constexpr size_t kImportedAtOnce = 64;  // records, so that those of workers come between

// Adds the records of one transaction.
class Appending {
 public:
  explicit Appending(Connection& db) : db_(db), bests_(db) {}  // inside the transaction

  // Its id, or 0: its execution has a record already. `r` outlives this.
  absl::StatusOr<int64_t> Add(const Record& r) {
    TEMPER_RETURN_IF_ERROR(Intern(r));
    TEMPER_ASSIGN_OR_RETURN(const int64_t id, rows::InsertRecord(db_, keys_, r));
    if (id != 0) TEMPER_RETURN_IF_ERROR(bests_.Added(keys_, r, id));
    return id;
  }
  // Likewise, or 0: its trial is there.
  absl::StatusOr<int64_t> AddNew(const Record& r) {
    TEMPER_RETURN_IF_ERROR(Intern(r));
    TEMPER_ASSIGN_OR_RETURN(const bool known, rows::Knows(db_, keys_, r));
    if (known) return 0;
    return Add(r);
  }
  absl::Status Finish() { return bests_.Finish(); }

 private:
  absl::Status Intern(const Record& r) {
    // Records of one batch come together and differ in little.
    if (last_ == nullptr || !rows::SameKeys(*last_, r)) {
      TEMPER_ASSIGN_OR_RETURN(keys_, rows::InternKeys(db_, r));
    }
    last_ = &r;
    return absl::OkStatus();
  }

  Connection& db_;
  rows::BestKeeper bests_;
  const Record* last_ = nullptr;
  rows::Keys keys_ = {};
};

class SqliteStore : public Store {
 public:
  explicit SqliteStore(std::unique_ptr<Database> database)
      : database_(std::move(database)), access_(*database_), overview_(*database_) {}

  absl::Status Health() const override { return database_->Health(); }

  absl::StatusOr<std::vector<int64_t>> Commit(const Changes& changes) override {
    for (const Record& r : changes.records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    for (const LeaseRow& lease : changes.granted) TEMPER_RETURN_IF_ERROR(CheckLease(lease));
    std::vector<int64_t> ids;
    TEMPER_RETURN_IF_ERROR(database_->Write(changes.size(), [&](Connection& db) -> absl::Status {
      ids.clear();
      Appending appending(db);
      for (const Record& r : changes.records) {
        TEMPER_ASSIGN_OR_RETURN(ids.emplace_back(), appending.Add(r));
      }
      TEMPER_RETURN_IF_ERROR(appending.Finish());
      for (const LeaseRow& lease : changes.granted) TEMPER_RETURN_IF_ERROR(rows::GrantLease(db, lease));
      for (const int64_t id : changes.closed) TEMPER_RETURN_IF_ERROR(rows::CloseLease(db, id));
      for (const JobPriority& change : changes.priorities) TEMPER_RETURN_IF_ERROR(rows::SetPriority(db, change));
      return absl::OkStatus();
    }));
    return ids;
  }

  absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) override {
    for (const Record& r : records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    TEMPER_RETURN_IF_ERROR(database_->HasRoomForMore());
    std::vector<Record> own(records.begin(), records.end());
    for (Record& r : own) r.job = r.candidate = r.attempt = 0;
    std::vector<int64_t> ids(own.size());
    for (size_t begin = 0; begin < own.size(); begin += kImportedAtOnce) {
      const size_t end = std::min(own.size(), begin + kImportedAtOnce);
      TEMPER_RETURN_IF_ERROR(database_->Write(end - begin, [&](Connection& db) -> absl::Status {
        Appending appending(db);
        for (size_t i = begin; i < end; ++i) {
          TEMPER_ASSIGN_OR_RETURN(ids[i], appending.AddNew(own[i]));
        }
        return appending.Finish();
      }));
    }
    return ids;
  }

  absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    return database_->Read([&](Connection& db) { return rows::Scan(db, filter, visit); });
  }

  absl::StatusOr<int64_t> HighestCandidate() override {
    return database_->Get<int64_t>([](Connection& db) { return rows::HighestCandidate(db); });
  }

  absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& query) override {
    return database_->Get<std::optional<BestAnswer>>([&](Connection& db) { return rows::Best(db, query); });
  }

  absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    return database_->Read([&](Connection& db) { return rows::ScanBest(db, filter, visit); });
  }

  absl::StatusOr<int64_t> CreateJob(const JobRow& job) override {
    TEMPER_RETURN_IF_ERROR(CheckJob(job));
    TEMPER_RETURN_IF_ERROR(database_->HasRoomForMore());
    int64_t id = 0;
    TEMPER_RETURN_IF_ERROR(database_->Write(1, [&](Connection& db) -> absl::Status {
      TEMPER_ASSIGN_OR_RETURN(id, rows::InsertJob(db, job));
      return absl::OkStatus();
    }));
    return id;
  }

  absl::Status UpdateJob(const JobRow& job) override {
    TEMPER_RETURN_IF_ERROR(CheckJob(job));
    return database_->Write(1, [&](Connection& db) { return rows::UpdateJob(db, job); });
  }

  absl::StatusOr<JobRow> GetJob(int64_t id) override {
    return database_->Get<JobRow>([&](Connection& db) { return rows::GetJob(db, id); });
  }

  absl::StatusOr<std::vector<JobRow>> Jobs(const JobFilter& filter) override {
    return database_->Get<std::vector<JobRow>>([&](Connection& db) { return rows::Jobs(db, filter); });
  }

  absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                      const std::string& device_key) override {
    return database_->Get<std::optional<JobRow>>(
        [&](Connection& db) { return rows::LatestVerdict(db, model_hash, target, device_key); });
  }

  absl::StatusOr<std::vector<LeaseRow>> Leases() override {
    return database_->Get<std::vector<LeaseRow>>([](Connection& db) { return rows::Leases(db); });
  }

  absl::StatusOr<Pruned> Prune(const PruneOptions& options) override { return PruneDatabase(*database_, options); }

  AccessStore& access() override { return access_; }
  Overview& overview() override { return overview_; }

 private:
  const std::unique_ptr<Database> database_;
  SqliteAccess access_;
  SqliteOverview overview_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, OpenMode mode) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(path, mode));
  return std::make_unique<SqliteStore>(std::move(database));
}

}  // namespace temper
