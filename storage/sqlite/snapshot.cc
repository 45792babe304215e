#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "storage/sqlite/open.h"
#include "storage/store.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

absl::Status NotWritten(const std::string& path, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot write the snapshot ", path, ": ", why));
}

absl::Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return synced ? absl::OkStatus() : NotWritten(path, std::strerror(error));
}

absl::Status CopyInto(const std::string& from, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(const Access access, ReaderAccess(from));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, OpenReader(from, access));
  TEMPER_RETURN_IF_ERROR(CheckReadable(from, *connection));
  TEMPER_ASSIGN_OR_RETURN(Query query, connection->Prepare("VACUUM INTO ?"));
  query.Bind(std::string_view(to));
  if (const absl::Status copied = query.Run(); !copied.ok()) return NotWritten(to, copied.message());
  return Sync(to);
}

}  // namespace

absl::Status SnapshotSqliteStore(const std::string& given, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(const std::string from, ResolvePath(given));
  std::error_code error;
  if (fs::exists(to, error)) {
    return absl::AlreadyExistsError(absl::StrCat(to, ": is there already; remove it or name another file"));
  }
  const std::string partial = absl::StrCat(to, ".", getpid());
  absl::Status copied = CopyInto(from, partial);
  if (copied.ok()) {
    fs::rename(partial, to, error);
    if (error) copied = NotWritten(to, error.message());
  }
  if (!copied.ok()) {
    fs::remove(partial, error);
    return copied;
  }
  return Sync(fs::absolute(to).parent_path().string());
}

}  // namespace temper
