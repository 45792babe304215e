// The folder for a measuring child's temporary files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace temper::worker {

// Goes with the object, whatever the child left in it. Held by a lock, which a process that is killed lets go of.
class Scratch {
 public:
  // In the folder for temporary files. Its owner is `owner`.
  static absl::StatusOr<Scratch> Make(uid_t owner);
  Scratch(Scratch&& other) noexcept;
  Scratch(const Scratch&) = delete;
  ~Scratch();

  const std::string& path() const { return path_; }
  // Whether it is there still: what cleans the folder of temporary files may have taken it.
  bool IsThere() const;
  // Whether the files take more than `bytes`, or are more than can be counted at once.
  bool HoldsMoreThan(int64_t bytes) const;

 private:
  Scratch(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;
};

// Removes the folders of workers that were killed. Returns how many.
int SweepScratch();

}  // namespace temper::worker
