// A folder that goes away with the object.
#pragma once

#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/status.h"

namespace temper {

class TemporaryDirectory {
 public:
  // In TMPDIR, or /tmp. kUnavailable: it can not be made. Removes those there whose processes were killed.
  static absl::StatusOr<TemporaryDirectory> Make();
  TemporaryDirectory() = default;  // none
  TemporaryDirectory(TemporaryDirectory&& other) noexcept { *this = std::move(other); }
  TemporaryDirectory& operator=(TemporaryDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(lock_, other.lock_);
    return *this;
  }
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor lock_;  // of the folder, as long as its process lives
};

}  // namespace temper
