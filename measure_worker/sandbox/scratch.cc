#include "measure_worker/sandbox/scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "temper-scratch-";
constexpr int kMostFiles = 10'000;
constexpr int64_t kBlock = 512;  // what stat counts in

// Whether the folder that `fd` holds is the one at the path.
bool Holds(int fd, const std::string& path) {
  struct stat held {
  }, there{};
  return fstat(fd, &held) == 0 && lstat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino;
}

// Takes the folder, if nobody else has it. -1: somebody has, or it is not there any more.
int Lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && Holds(fd, path)) return fd;
  close(fd);
  return -1;
}

// As remove_all, also where a folder was made that may not be entered.
void RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return;
  fs::permissions(path, fs::perms::owner_all, error);
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !it->is_symlink(ignored))
      fs::permissions(it->path(), fs::perms::owner_all, ignored);
  }
  fs::remove_all(path, error);
}

}  // namespace

absl::StatusOr<Scratch> Scratch::Make(uid_t owner) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return absl::UnavailableError(absl::StrCat("no folder for temporary files: ", error.message()));
  for (;;) {
    std::string path = (parent / absl::StrCat(kPrefix, "XXXXXX")).string();
    if (mkdtemp(path.data()) == nullptr)
      return absl::UnavailableError(absl::StrCat("cannot make a folder ", path, ": ", strerror(errno)));
    const int lock = Lock(path);
    if (lock < 0) continue;  // swept away between the two
    Scratch made(std::move(path), lock);
    if (owner != geteuid() && fchown(lock, owner, owner) != 0)
      return absl::UnavailableError(absl::StrCat("cannot give away ", made.path_, ": ", strerror(errno)));
    return made;
  }
}

Scratch::Scratch(Scratch&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::exchange(other.lock_, -1)) {}

Scratch::~Scratch() {
  if (lock_ < 0) return;
  RemoveTree(path_);
  close(lock_);
}

bool Scratch::IsThere() const { return Holds(lock_, path_); }

bool Scratch::HoldsMoreThan(int64_t bytes) const {
  std::error_code error;
  int files = 0;
  int64_t taken = 0;
  for (fs::recursive_directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    struct stat file {};
    if (lstat(it->path().c_str(), &file) == 0) taken += file.st_blocks * kBlock;
    if (++files > kMostFiles || taken > bytes) return true;
  }
  return false;
}

int SweepScratch() {
  std::error_code error;
  int swept = 0;
  for (fs::directory_iterator it(fs::temp_directory_path(error), error), end; !error && it != end;
       it.increment(error)) {
    if (!it->path().filename().string().starts_with(kPrefix)) continue;
    const int lock = Lock(it->path().string());
    if (lock < 0) continue;
    RemoveTree(it->path().string());
    close(lock);
    std::error_code ignored;
    swept += !fs::exists(it->path(), ignored);
  }
  return swept;
}

}  // namespace temper::worker
