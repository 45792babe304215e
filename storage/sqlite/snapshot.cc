#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "storage/sqlite/open.h"
#include "storage/sqlite/sqlite_store.h"

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
  return synced ? absl::OkStatus() : absl::UnavailableError(std::strerror(error));
}

absl::StatusOr<std::unique_ptr<Connection>> OpenSource(const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const Access access, ReaderAccess(path));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, OpenReader(path, access));
  TEMPER_RETURN_IF_ERROR(CheckReadable(path, *connection));
  return connection;
}

absl::Status CopyInto(Connection& source, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(Query query, source.Prepare("VACUUM INTO ?"));
  query.Bind(std::string_view(to));
  TEMPER_RETURN_IF_ERROR(query.Run());
  return Sync(to);
}

}  // namespace

absl::Status SnapshotSqliteStore(const std::string& given, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(const std::string from, ResolvePath(given));
  std::error_code error;
  if (fs::exists(to, error)) {
    return absl::AlreadyExistsError(absl::StrCat(to, ": is there already; remove it or name another file"));
  }
  const std::string folder = fs::absolute(to).parent_path().string();
  if (access(folder.c_str(), W_OK) != 0) return NotWritten(to, std::strerror(errno));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> source, OpenSource(from));
  const std::string partial = absl::StrCat(to, ".", getpid());
  absl::Status copied = CopyInto(*source, partial);
  if (copied.ok()) {
    fs::rename(partial, to, error);
    if (error) copied = absl::UnavailableError(error.message());
  }
  if (copied.ok()) copied = Sync(folder);
  if (copied.ok()) return absl::OkStatus();
  fs::remove(partial, error);
  return NotWritten(to, absl::StripPrefix(copied.message(), from + ": "));
}

}  // namespace temper
