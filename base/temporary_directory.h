// A folder that goes away with the object.
#pragma once

#include <string>

#include "base/status.h"

namespace temper {

class TemporaryDirectory {
 public:
  // In TMPDIR, or /tmp. kUnavailable: it can not be made.
  static absl::StatusOr<TemporaryDirectory> Make();
  TemporaryDirectory() = default;  // none
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TemporaryDirectory& operator=(TemporaryDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace temper
