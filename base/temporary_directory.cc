#include "base/temporary_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace temper {

namespace fs = std::filesystem;

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Make() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string path = (parent / "temper-XXXXXX").string();
  if (error) return absl::UnavailableError(absl::StrCat("no folder for temporary files: ", error.message()));
  if (mkdtemp(path.data()) == nullptr)
    return absl::UnavailableError(absl::StrCat("cannot make a folder ", path, ": ", strerror(errno)));
  TemporaryDirectory made;
  made.path_ = std::move(path);
  return made;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace temper
