// Holds a file for one writer on this machine. The kernel drops the lock with the process, so nothing stale remains;
// the file itself stays, with the last holder's process id in it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace temper {

class LockFile {
 public:
  // kFailedPrecondition names the process that holds `database` for writing; kPermissionDenied: the folder takes no
  // file.
  static absl::StatusOr<std::unique_ptr<LockFile>> Take(const std::string& database);
  // Holds the file itself too, whatever other names it has, where its file system can. Call it once SQLite has the file
  // open, and destroy the lock after SQLite closed it: whoever closes a file drops what SQLite locked of it in the same
  // process. kFailedPrecondition: another process holds it.
  absl::Status HoldDatabase(const std::string& database);
  // kDataLoss: the file that is held, or SQLite's log of it, is not there by its name any more. What is written to it
  // goes away with the process, or is in a file that nobody looks at.
  absl::Status CheckDatabase() const;
  // What tells that the database or its log was written: as long as it stays, neither was. Reading changes nothing.
  struct FileState {
    int64_t bytes = -1, written_ns = 0;
    bool operator==(const FileState&) const = default;
  };
  std::vector<FileState> States() const;
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  using FileId = std::pair<dev_t, ino_t>;  // nobody else's while the file is open
  struct Held {
    std::string path;
    FileId id;
  };

  explicit LockFile(int fd) : fd_(fd) {}
  static std::optional<FileId> IdOf(const std::string& path);

  int fd_;
  int database_fd_ = -1;
  std::vector<Held> held_;  // the database and its log
};

}  // namespace temper
