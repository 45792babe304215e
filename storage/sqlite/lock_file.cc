#include "storage/sqlite/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace temper {
namespace {

std::string HolderOf(int fd) {
  char text[32] = {};
  const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
  const std::string pid(absl::StripAsciiWhitespace(absl::string_view(text, n > 0 ? n : 0)));
  return pid.empty() ? "another process" : absl::StrCat("process ", pid);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LockFile>> LockFile::Take(const std::string& database) {
  const std::string path = database + ".lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    return absl::PermissionDeniedError(absl::StrCat(database, ": its folder can not be written (", std::strerror(errno),
                                                    "); give another --db or mend its permissions"));
  }
  std::unique_ptr<LockFile> lock(new LockFile(fd));
  // A lock of the open file, not of the process: a second open in the same process is refused too.
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(fd, F_OFD_SETLK, &whole) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return absl::UnavailableError(absl::StrCat(path, ": can not be locked (", std::strerror(errno),
                                                 "); put the database on a disk of this machine"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        database, ": ", HolderOf(fd),
        " is writing it; wait for its end if it tunes, go through it by --server if it serves, or give another --db"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": can not be written (", std::strerror(errno), "); free some space and run again"));
  }
  return lock;
}

absl::Status LockFile::HoldDatabase(const std::string& database) {
  database_fd_ = open(database.c_str(), O_RDONLY | O_CLOEXEC);
  if (database_fd_ < 0) return absl::UnavailableError(absl::StrCat(database, ": ", std::strerror(errno)));
  for (const char* suffix : {"", "-wal"}) {
    const std::string path = database + suffix;
    if (const std::optional<FileId> id = IdOf(path)) held_.push_back({path, *id});
  }
  // Not by fcntl, by which SQLite locks parts of it.
  if (flock(database_fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(database, ": another process is writing it under another name; end that one, or give another --db"));
}

std::optional<LockFile::FileId> LockFile::IdOf(const std::string& path) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) return std::nullopt;
  return FileId(file.st_dev, file.st_ino);
}

absl::Status LockFile::CheckDatabase() const {
  for (const Held& held : held_) {
    if (IdOf(held.path) == held.id) continue;
    return absl::DataLossError(absl::StrCat(
        held.path, ": was moved, removed or replaced while it was written; put it back, or give another --db"));
  }
  return absl::OkStatus();
}

std::vector<LockFile::FileState> LockFile::States() const {
  std::vector<FileState> states(held_.size());
  for (size_t i = 0; i < held_.size(); ++i) {
    struct stat file;
    if (stat(held_[i].path.c_str(), &file) != 0) continue;
    states[i] = {file.st_size, file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec};
  }
  return states;
}

LockFile::~LockFile() {
  if (database_fd_ >= 0) close(database_fd_);
  close(fd_);
}

}  // namespace temper
