#include "storage/sqlite/database.h"

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

absl::Status Run(Connection& connection, std::string_view sql) {
  TEMPER_ASSIGN_OR_RETURN(Query query, connection.Prepare(sql));
  return query.Run();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& given, OpenMode mode) {
  TEMPER_ASSIGN_OR_RETURN(const std::string path, ResolvePath(given));
  if (mode == OpenMode::kReadWrite) {
    std::unique_ptr<Database> database(new Database(path, Access::kReadOnly));
    TEMPER_ASSIGN_OR_RETURN(database->lock_, LockFile::Take(path));
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, OpenWriter(path));
    database->writer_ = std::make_unique<Writer>(std::move(connection));
    return database;
  }
  TEMPER_ASSIGN_OR_RETURN(const Access access, ReaderAccess(path));
  std::unique_ptr<Database> database(new Database(path, access));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, database->Borrow());
  TEMPER_RETURN_IF_ERROR(CheckReadable(path, *connection, CheckDepth::kBounded));
  database->idle_.push_back(std::move(connection));
  return database;
}

absl::Status Database::Write(size_t weight, std::function<absl::Status(Connection&)> change) {
  if (writer_ == nullptr) return absl::FailedPreconditionError(absl::StrCat(path_, ": opened for reading only"));
  return writer_->Run(weight, std::move(change));
}

absl::Status Database::Read(const std::function<absl::Status(Connection&)>& read) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Borrow());
  TEMPER_RETURN_IF_ERROR(Run(*connection, "BEGIN"));
  const absl::Status status = read(*connection);
  if (connection->InTransaction()) Run(*connection, "COMMIT").IgnoreError();  // nothing was written
  std::lock_guard lock(mutex_);
  if (status.ok() && idle_.size() < kIdleReaders) idle_.push_back(std::move(connection));
  return status;
}

absl::StatusOr<std::unique_ptr<Connection>> Database::Borrow() {
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

}  // namespace temper
