// Holds a file for one writer on this machine. The kernel drops the lock with the process, so nothing stale remains;
// the file itself stays, with the last holder's process id in it.
#pragma once

#include <memory>
#include <string>

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
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  int fd_;
  int database_fd_ = -1;
};

}  // namespace temper
