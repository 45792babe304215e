#include "storage/sqlite/snapshot.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "storage/sqlite/lock_file.h"
#include "storage/sqlite/open.h"
#include "storage/sqlite/sqlite_store.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

// A copy that is being written has this at the end of its name, and a journal of SQLite's beside it.
constexpr char kPartial[] = ".temper-partial", kJournal[] = "-journal";

std::string FolderOf(const std::string& path) { return fs::absolute(path).parent_path().string(); }

absl::Status NotWritten(const std::string& path, const std::string& why, absl::StatusCode code) {
  return absl::Status(code, absl::StrCat("cannot write ", path, ": ", why));
}

absl::Status NotWritten(const std::string& path) {
  return NotWritten(path, std::strerror(errno), absl::StatusCode::kUnavailable);
}

absl::Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return synced ? absl::OkStatus() : NotWritten(path);
}

// An empty file that this process alone writes, gone with it unless it was published. Its lock, of its first byte, is
// one that SQLite does not use; the kernel drops it with the process, which tells a copy that was cut short from one
// that is being written.
class PartialFile {
 public:
  static absl::StatusOr<std::unique_ptr<PartialFile>> Make(const std::string& path) {
    const int fd = TryLock(path, O_CREAT);
    if (fd < 0 && errno == EAGAIN)
      return NotWritten(path, "another process is writing it", absl::StatusCode::kUnavailable);
    if (fd < 0) return NotWritten(path);
    std::unique_ptr<PartialFile> file(new PartialFile(path, fd));
    if (ftruncate(fd, 0) != 0) return NotWritten(path);
    return file;
  }
  ~PartialFile() {
    if (!published_) unlink(path_.c_str());
    close(fd_);
  }
  const std::string& path() const { return path_; }

  absl::Status PublishAs(const std::string& to) {
    TEMPER_RETURN_IF_ERROR(Sync(path_));
    if (rename(path_.c_str(), to.c_str()) != 0) return NotWritten(to);
    published_ = true;
    return Sync(FolderOf(to));
  }

  // Removes what processes left in `folder` that died while they wrote a copy.
  static void Sweep(const std::string& folder) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string path = entry.path().string();
      if (!path.ends_with(kPartial)) continue;
      const int fd = TryLock(path, 0);
      if (fd < 0) continue;
      unlink((path + kJournal).c_str());  // first: without the copy nothing would tell whose it was
      unlink(path.c_str());
      close(fd);
    }
  }

 private:
  PartialFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  // -1 with EAGAIN: somebody else has it.
  static int TryLock(const std::string& path, int flags) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0666);
    if (fd < 0) return -1;
    struct flock first_byte = {};
    first_byte.l_type = F_WRLCK;
    first_byte.l_whence = SEEK_SET;
    first_byte.l_len = 1;
    if (fcntl(fd, F_OFD_SETLK, &first_byte) == 0) return fd;
    const int error = errno == EACCES ? EAGAIN : errno;
    close(fd);
    errno = error;
    return -1;
  }

  const std::string path_;
  const int fd_;
  bool published_ = false;
};

absl::StatusOr<std::unique_ptr<Connection>> OpenSource(const std::string& path, CheckDepth depth) {
  TEMPER_ASSIGN_OR_RETURN(const Access access, ReaderAccess(path));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, OpenReader(path, access));
  TEMPER_RETURN_IF_ERROR(CheckReadable(path, *connection, depth));
  return connection;
}

absl::StatusOr<std::unique_ptr<PartialFile>> WritePartial(Connection& source, const std::string& to) {
  PartialFile::Sweep(FolderOf(to));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<PartialFile> partial, PartialFile::Make(to + kPartial));
  TEMPER_ASSIGN_OR_RETURN(Query query, source.Prepare("VACUUM INTO ?"));
  query.Bind(std::string_view(partial->path()));
  if (const absl::Status copied = query.Run(); !copied.ok())
    return NotWritten(to, std::string(copied.message()), copied.code());
  return partial;
}

// Moves what the log holds into the file, where the file is sound enough for that, so that it is one file.
void EmptyLog(const std::string& path) {
  const auto connection = Connection::Open(path, Access::kCreate);
  if (connection.ok()) (*connection)->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  if (connection.ok()) (*connection)->CheckpointOnClose(true);
}

// A name for what is replaced that nothing replaced earlier has.
std::string FreeNameFor(const std::string& path) {
  for (int i = 1;; ++i) {
    const std::string name = absl::StrCat(path, ".before-restore", i == 1 ? "" : absl::StrCat("-", i));
    std::error_code ignored;
    if (!fs::exists(name, ignored) && !fs::exists(name + "-wal", ignored)) return name;
  }
}

// Gives the file and its log a second name each.
absl::Status KeepAs(const std::string& path, const std::string& kept) {
  for (const char* part : {"", "-wal"}) {
    std::error_code ignored;
    if (!fs::exists(path + part, ignored)) continue;
    if (link((path + part).c_str(), (kept + part).c_str()) != 0) return NotWritten(kept + part);
  }
  return Sync(FolderOf(path));
}

}  // namespace

absl::Status CopyDatabase(Connection& source, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<PartialFile> partial, WritePartial(source, to));
  return partial->PublishAs(to);
}

absl::Status SnapshotSqliteStore(const std::string& given, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(const std::string from, ResolvePath(given));
  std::error_code error;
  if (fs::exists(to, error)) {
    return absl::AlreadyExistsError(absl::StrCat(to, ": is there already; remove it or name another file"));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> source, OpenSource(from, CheckDepth::kBounded));
  return CopyDatabase(*source, to);
}

absl::StatusOr<std::string> RestoreSqliteStore(const std::string& given_from, const std::string& given_to) {
  TEMPER_ASSIGN_OR_RETURN(const std::string from, ResolvePath(given_from));
  TEMPER_ASSIGN_OR_RETURN(const std::string to, ResolvePath(given_to));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<LockFile> lock, LockFile::Take(to));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> source, OpenSource(from, CheckDepth::kWhole));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<PartialFile> partial, WritePartial(*source, to));
  std::error_code error;
  std::string kept;
  if (fs::exists(to, error)) {
    EmptyLog(to);
    kept = FreeNameFor(to);
    TEMPER_RETURN_IF_ERROR(KeepAs(to, kept));
  }
  // A log that is still there belongs to a file that can not be read anyway; the new file must not meet it.
  unlink((to + "-wal").c_str());
  unlink((to + "-shm").c_str());
  TEMPER_RETURN_IF_ERROR(partial->PublishAs(to));
  return kept;
}

}  // namespace temper
