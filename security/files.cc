#include "security/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/secure_random.h"

namespace temper {
namespace {

constexpr size_t kLargestFile = 64 << 10;

absl::Status Errno(const char* doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", doing, " ", path));
}

absl::Status WriteAll(int fd, const std::string& path, const std::string& content) {
  for (size_t done = 0; done < content.size();) {
    const ssize_t wrote = write(fd, content.data() + done, content.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Errno("write", path);
    done += static_cast<size_t>(wrote);
  }
  if (fsync(fd) != 0) return Errno("write", path);
  return absl::OkStatus();
}

// A rename is durable only when its folder is.
absl::Status SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Errno("open", folder);
  const absl::Cleanup close_it = [fd] { close(fd); };
  return fsync(fd) == 0 ? absl::OkStatus() : Errno("write", folder);
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, const std::string& content, Secrecy secrecy, Existing existing) {
  const std::string draft = absl::StrCat(path, ".", SecureHex());
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Errno("make", path);
  const absl::Cleanup remove_draft = [&] { unlink(draft.c_str()); };
  absl::Status status = WriteAll(fd, path, content);
  if (status.ok() && secrecy == Secrecy::kPublic && fchmod(fd, 0644) != 0) status = Errno("make", path);
  close(fd);
  TEMPER_RETURN_IF_ERROR(status);
  if (existing == Existing::kReplace) {
    if (rename(draft.c_str(), path.c_str()) != 0) return Errno("write", path);
  } else if (link(draft.c_str(), path.c_str()) != 0) {
    if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " is there already"));
    return Errno("make", path);
  }
  return SyncFolderOf(path);
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, Secrecy secrecy) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Errno("read", path);
  const absl::Cleanup close_it = [fd] { close(fd); };
  struct stat about {};
  if (fstat(fd, &about) != 0) return Errno("read", path);
  const mode_t others = about.st_uid == geteuid() ? 077 : 007;
  if (secrecy == Secrecy::kPrivate && (about.st_mode & others) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s holds a secret, but its mode %04o lets other users at it; run: chmod 600 %s", path,
                        about.st_mode & 07777, path));
  }
  std::string content(kLargestFile + 1, '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = read(fd, content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Errno("read", path);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kLargestFile) return absl::InvalidArgumentError(absl::StrCat(path, " is larger than 64 KiB"));
  content.resize(size);
  return content;
}

}  // namespace temper
