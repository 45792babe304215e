#include <mutex>

#include "absl/strings/str_cat.h"
#include "storage/check.h"
#include "storage/sqlite/lock_file.h"
#include "storage/sqlite/open.h"
#include "storage/sqlite/rows.h"
#include "storage/sqlite/writer.h"
#include "storage/store.h"

namespace temper {
namespace {

// Reading connections, lent to one caller at a time. As many as ever read at once, and kept up to a few.
class Readers {
 public:
  Readers(std::string path, Access access) : path_(std::move(path)), access_(access) {}

  // `read` sees one state of the database from its first statement to its last.
  absl::Status With(const std::function<absl::Status(Connection&)>& read) {
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Borrow());
    const absl::Status status = Snapshot(*connection, read);
    std::lock_guard lock(mutex_);
    if (status.ok() && idle_.size() < kIdle) idle_.push_back(std::move(connection));
    return status;
  }

 private:
  static constexpr size_t kIdle = 8;

  absl::StatusOr<std::unique_ptr<Connection>> Borrow() {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Connection> connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return OpenReader(path_, access_);
  }

  static absl::Status Snapshot(Connection& connection, const std::function<absl::Status(Connection&)>& read) {
    TEMPER_RETURN_IF_ERROR(connection.Exec("BEGIN"));
    const absl::Status status = read(connection);
    if (connection.InTransaction()) connection.Exec("COMMIT").IgnoreError();  // nothing was written
    return status;
  }

  const std::string path_;
  const Access access_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

class SqliteStore : public Store {
 public:
  SqliteStore(std::string path, Access access, std::unique_ptr<LockFile> lock, std::unique_ptr<Writer> writer)
      : path_(path), lock_(std::move(lock)), writer_(std::move(writer)), readers_(std::move(path), access) {}

  absl::StatusOr<std::vector<int64_t>> Append(std::span<const Record> records) override {
    for (const Record& r : records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    std::vector<int64_t> ids;
    TEMPER_RETURN_IF_ERROR(Write(records.size(), [&](Connection& db) {
      ids.clear();
      for (const Record& r : records) {
        TEMPER_ASSIGN_OR_RETURN(const int64_t id, rows::InsertRecord(db, r));
        ids.push_back(id);
      }
      return absl::OkStatus();
    }));
    return ids;
  }

  absl::StatusOr<std::vector<int64_t>> Import(std::span<const Record> records) override {
    for (const Record& r : records) TEMPER_RETURN_IF_ERROR(CheckRecord(r));
    std::vector<int64_t> ids;
    TEMPER_RETURN_IF_ERROR(Write(records.size(), [&](Connection& db) -> absl::Status {
      ids.clear();
      for (Record r : records) {
        TEMPER_ASSIGN_OR_RETURN(const bool known, rows::Knows(db, r));
        r.job = 0;
        int64_t id = 0;
        if (!known) {
          TEMPER_ASSIGN_OR_RETURN(id, rows::InsertRecord(db, r));
        }
        ids.push_back(id);
      }
      return absl::OkStatus();
    }));
    return ids;
  }

  absl::Status Scan(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    return readers_.With([&](Connection& db) { return rows::Scan(db, filter, visit); });
  }

  absl::StatusOr<std::optional<BestAnswer>> Best(const BestQuery& query) override {
    return Read<std::optional<BestAnswer>>([&](Connection& db) { return rows::Best(db, query); });
  }

  absl::Status ScanBest(const RecordFilter& filter, const std::function<void(const Record&)>& visit) override {
    return readers_.With([&](Connection& db) { return rows::ScanBest(db, filter, visit); });
  }

  absl::StatusOr<int64_t> CreateJob(const JobRow& job) override {
    TEMPER_RETURN_IF_ERROR(CheckJob(job));
    int64_t id = 0;
    TEMPER_RETURN_IF_ERROR(Write(1, [&](Connection& db) -> absl::Status {
      TEMPER_ASSIGN_OR_RETURN(id, rows::InsertJob(db, job));
      return absl::OkStatus();
    }));
    return id;
  }

  absl::Status UpdateJob(const JobRow& job) override {
    TEMPER_RETURN_IF_ERROR(CheckJob(job));
    return Write(1, [&](Connection& db) { return rows::UpdateJob(db, job); });
  }

  absl::StatusOr<JobRow> GetJob(int64_t id) override {
    return Read<JobRow>([&](Connection& db) { return rows::GetJob(db, id); });
  }

  absl::StatusOr<std::vector<JobRow>> Jobs() override {
    return Read<std::vector<JobRow>>([](Connection& db) { return rows::Jobs(db); });
  }

  absl::StatusOr<std::optional<JobRow>> LatestVerdict(const std::string& model_hash, const std::string& target,
                                                      const std::string& device_key) override {
    return Read<std::optional<JobRow>>(
        [&](Connection& db) { return rows::LatestVerdict(db, model_hash, target, device_key); });
  }

 private:
  absl::Status Write(size_t weight, std::function<absl::Status(Connection&)> change) {
    if (writer_ == nullptr) return absl::FailedPreconditionError(absl::StrCat(path_, ": opened for reading only"));
    return writer_->Run(weight, std::move(change));
  }

  template <typename T>
  absl::StatusOr<T> Read(const std::function<absl::StatusOr<T>(Connection&)>& read) {
    T result;
    TEMPER_RETURN_IF_ERROR(readers_.With([&](Connection& db) -> absl::Status {
      TEMPER_ASSIGN_OR_RETURN(result, read(db));
      return absl::OkStatus();
    }));
    return result;
  }

  const std::string path_;
  // In this order, so that readers close first, the writer then empties the log, and the lock goes last.
  std::unique_ptr<LockFile> lock_;
  std::unique_ptr<Writer> writer_;
  Readers readers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& given, OpenMode mode) {
  TEMPER_ASSIGN_OR_RETURN(const std::string path, ResolvePath(given));
  if (mode == OpenMode::kReadWrite) {
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<LockFile> lock, LockFile::Take(path));
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, OpenWriter(path));
    auto writer = std::make_unique<Writer>(std::move(connection));
    return std::make_unique<SqliteStore>(path, Access::kReadOnly, std::move(lock), std::move(writer));
  }
  TEMPER_ASSIGN_OR_RETURN(const Access access, ReaderAccess(path));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, OpenReader(path, access));
  TEMPER_RETURN_IF_ERROR(CheckReadable(path, *connection));
  return std::make_unique<SqliteStore>(path, access, nullptr, nullptr);
}

}  // namespace temper
