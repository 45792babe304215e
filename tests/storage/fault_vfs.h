// A disk that fails, for SQLite: a VFS over the default one, and in its place while it lives. It knows of each file
// what a disk would still hold after a loss of power, makes calls fail, and kills the process at a call. One at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"

struct sqlite3_vfs;

namespace temper {

// The calls that change files, and reading.
enum class DiskCall { kWrite, kSync, kTruncate, kDelete, kRead };

class FaultVfs {
 public:
  explicit FaultVfs(uint64_t seed);  // of what is lost and torn
  ~FaultVfs();                       // after all that use it are closed
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;

  // Names of files, without their folder, with what a disk holds of them when power is lost now: all that was synced,
  // and of later writes any part, in units of sectors.
  using Image = std::map<std::string, std::string>;
  Image LosePower();
  // Calls `tell` with such an image, from whatever thread is writing, before one in `every` of the calls that change
  // files.
  void LosePowerNowAndThen(int64_t every, std::function<void(Image)> tell);

  // The nth `call` from now on, and `lasting` - 1 after it, fail with this error of the system. A write that fails
  // leaves its first half behind; after a failed sync, only a part of what was to be synced is on the disk, and nobody
  // tries again to bring the rest there.
  void Fail(DiskCall call, int64_t nth, int system_error, int64_t lasting = 1);
  bool Failed() const;  // one did
  // Kills this process with SIGKILL in the nth call from now on that changes files.
  void KillAt(int64_t nth);
  int64_t Changes() const;  // calls that changed files so far

  // For the functions that SQLite calls.
  struct File;
  int Before(DiskCall call, File* file);  // a result code of SQLite's, SQLITE_OK to go on
  File* Find(const std::string& path, bool created);
  void Wrote(File& file, int64_t offset, std::string bytes);
  void Truncated(File& file, int64_t size);
  void Synced(File& file, bool failed);
  void Deleted(const std::string& path, bool synced);
  sqlite3_vfs* below() const { return below_; }

 private:
  Image LosePowerLocked();

  sqlite3_vfs* const below_;
  std::unique_ptr<sqlite3_vfs> vfs_;
  mutable std::recursive_mutex mutex_;
  Rng rng_;
  std::map<std::string, std::unique_ptr<File>> files_;
  int64_t changes_ = 0, kill_at_ = 0, power_every_ = 0;
  std::function<void(Image)> tell_;
  struct Fault {
    DiskCall call;
    int64_t left, lasting;
    int system_error;
  };
  std::optional<Fault> fault_;
  bool failed_ = false;
};

}  // namespace temper
