#include "storage/sqlite/database.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

constexpr uintmax_t kReserve = 64 << 20;  // bytes

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
    TEMPER_RETURN_IF_ERROR(database->lock_->HoldDatabase(path));
    database->writer_ =
        std::make_unique<Writer>(std::move(connection), *database->lock_, [path] { return CheckAgain(path); });
    return database;
  }
  TEMPER_ASSIGN_OR_RETURN(const Access access, ReaderAccess(path));
  std::unique_ptr<Database> database(new Database(path, access));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, database->Borrow());
  TEMPER_RETURN_IF_ERROR(CheckReadable(path, *connection, CheckDepth::kBounded));
  database->idle_.push_back(std::move(connection));
  return database;
}

absl::Status Database::HasRoomForMore() const {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(std::filesystem::path(path_).parent_path(), error);
  const bool tells_nothing = error || space.capacity < 4 * kReserve;  // or has no room for a reserve
  if (tells_nothing || space.available >= kReserve) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path_, ": the disk is nearly full, and the last ", kReserve >> 20,
                   " MiB are for jobs that are there already; free some space and run again"));
}

absl::Status Database::Health() const { return writer_ == nullptr ? absl::OkStatus() : writer_->Broken(); }

absl::Status Database::Write(size_t weight, std::function<absl::Status(Connection&)> change) {
  if (writer_ == nullptr) return absl::FailedPreconditionError(absl::StrCat(path_, ": opened for reading only"));
  return writer_->Run(weight, std::move(change));
}

absl::Status Database::Read(const std::function<absl::Status(Connection&)>& read) {
  const absl::Status status = ReadOnce(read);
  if (writer_ != nullptr) writer_->BreakIf(status);
  return status;
}

absl::Status Database::ReadOnce(const std::function<absl::Status(Connection&)>& read) {
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
