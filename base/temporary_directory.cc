#include "base/temporary_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace temper {

namespace fs = std::filesystem;

namespace {

constexpr char kRandom[] = "XXXXXX";

// Of this start of this machine: others may share the folder, and not see who holds what.
std::string Prefix() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return absl::StrCat("temper-run-", boot.substr(0, boot.find('-')), "-");
}

// The folder, locked; not valid: another process has it, or it is gone.
Descriptor Lock(const fs::path& folder) {
  Descriptor lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat held = {};
  const bool mine = lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && fstat(lock.get(), &held) == 0;
  return mine && held.st_nlink > 0 && held.st_uid == geteuid() ? std::move(lock) : Descriptor();
}

// Those in `parent` that nobody holds any more.
void SweepDead(const fs::path& parent, const std::string& prefix) {
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix) || name.size() != prefix.size() + std::strlen(kRandom)) continue;
    std::error_code ignored;
    if (const Descriptor lock = Lock(at->path()); lock.valid()) fs::remove_all(at->path(), ignored);
  }
}

}  // namespace

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Make() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return absl::UnavailableError(absl::StrCat("no folder for temporary files: ", error.message()));
  const std::string prefix = Prefix();
  SweepDead(parent, prefix);
  TemporaryDirectory made;
  do {
    made.path_ = (parent / absl::StrCat(prefix, kRandom)).string();
    if (mkdtemp(made.path_.data()) == nullptr) {
      const std::string path = std::exchange(made.path_, "");
      return absl::UnavailableError(absl::StrCat("cannot make a folder ", path, ": ", strerror(errno)));
    }
    made.lock_ = Lock(made.path_);
    // Somebody may have swept what was only just made. One that can not be locked is as good, but stays when killed.
  } while (!made.lock_.valid() && !fs::exists(made.path_, error));
  return made;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace temper
