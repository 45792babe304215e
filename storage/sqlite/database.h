// A database file in use: the one connection that writes, where this process holds the file for writing, and as many
// that read as are reading at once. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/sqlite/lock_file.h"
#include "storage/sqlite/open.h"
#include "storage/sqlite/writer.h"
#include "storage/store.h"

namespace temper {

class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, OpenMode mode);

  // kResourceExhausted: the disk is so full that the rest of it is for what is under way already.
  absl::Status HasRoomForMore() const;
  absl::Status Health() const;  // see Store
  // See Writer::Run. kFailedPrecondition: opened for reading only.
  absl::Status Write(size_t weight, std::function<absl::Status(Connection&)> change);
  // `read` sees one state of the database from its first statement to its last. Once one was answered kDataLoss,
  // nothing is written any more.
  absl::Status Read(const std::function<absl::Status(Connection&)>& read);
  template <typename T>
  absl::StatusOr<T> Get(const std::function<absl::StatusOr<T>(Connection&)>& get) {
    T result;
    TEMPER_RETURN_IF_ERROR(Read([&](Connection& db) -> absl::Status {
      TEMPER_ASSIGN_OR_RETURN(result, get(db));
      return absl::OkStatus();
    }));
    return result;
  }

 private:
  static constexpr size_t kIdleReaders = 8;  // kept; more are opened while more read

  Database(std::string path, Access access) : path_(std::move(path)), access_(access) {}
  absl::Status ReadOnce(const std::function<absl::Status(Connection&)>& read);
  absl::StatusOr<std::unique_ptr<Connection>> Borrow();

  const std::string path_;
  const Access access_;  // of readers
  // In this order, so that readers close first, the writer then empties the log, and the lock goes last.
  std::unique_ptr<LockFile> lock_;
  std::unique_ptr<Writer> writer_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace temper
