// A folder of snapshots of one database: one file each, named by when it was taken, the oldest dropped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"

namespace temper {

struct SnapshotOptions {
  std::string directory;  // has to be there; other files in it are left alone
  int keep = 7;           // at least 1
  absl::Duration every = absl::Hours(6);
};

// Its own thread may take snapshots while others ask for the newest.
class Snapshots {
 public:
  // `database`: the file, which others may write meanwhile. kInvalidArgument: none, no such folder, or nothing
  // to keep.
  static absl::StatusOr<Snapshots> Open(std::string database, SnapshotOptions options, const Clock& clock);

  // Takes one, then drops what is beyond `keep`. A snapshot that fails drops nothing.
  absl::Status Take();
  // By the names of the files that are there, so it holds after a restart too.
  std::optional<absl::Time> Newest() const;
  // Of the newest one. Zero where the wall clock went back since. nullopt: there is none.
  std::optional<absl::Duration> Age() const;
  std::vector<std::string> Files() const;  // paths, oldest first

 private:
  Snapshots(std::string database, SnapshotOptions options, const Clock& clock);
  std::string PathAt(absl::Time time) const;

  std::string database_, stem_;
  SnapshotOptions options_;
  const Clock* clock_;
};

}  // namespace temper
