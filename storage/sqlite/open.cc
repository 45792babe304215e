#include "storage/sqlite/open.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "storage/migrations/migrations.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

// The fields of a database's first bytes that are looked at before SQLite may touch the file
// (sqlite.org/fileformat2.html).
constexpr int kHeaderBytes = 100;
constexpr std::string_view kMagic("SQLite format 3\0", 16);
// A full check reads every page: worth it where it takes a fraction of a second.
constexpr uintmax_t kCheckedBytes = 32 << 20;

int64_t SchemaVersion() { return static_cast<int64_t>(Migrations().size()); }

absl::Status NotOurs(const std::string& path, const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": not a database of Temper's (", what, "); give another --db"));
}

absl::Status TooNew(const std::string& path, int64_t version) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": written by a newer Temper (schema ", version,
                                                    ", this one knows ", SchemaVersion(),
                                                    "); use that Temper or give another --db"));
}

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": the database is damaged (", what,
                                          "); restore a copy, or save what is left with: sqlite3 FILE .recover"));
}

bool NotEmpty(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return !error && size > 0;
}

// Looks at the header without SQLite, which would recover logs and make files beside. An empty file passes.
absl::Status CheckHeader(const std::string& path) {
  std::array<unsigned char, kHeaderBytes> header;
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::PermissionDeniedError(absl::StrCat(path, ": can not be read (", std::strerror(errno), ")"));
  file.read(reinterpret_cast<char*>(header.data()), kHeaderBytes);
  const std::streamsize got = file.gcount();
  if (got == 0) return absl::OkStatus();
  if (NotEmpty(path + "-journal")) return absl::OkStatus();  // its creation was cut short: SQLite will undo it first
  if (got < kHeaderBytes || std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0)
    return NotOurs(path, "no SQLite file");
  const auto big_endian = [&](int at) {
    return int64_t{header[at]} << 24 | header[at + 1] << 16 | header[at + 2] << 8 | header[at + 3];
  };
  if (big_endian(68) != kApplicationId) return NotOurs(path, "another program's SQLite file");
  if (big_endian(60) > SchemaVersion()) return TooNew(path, big_endian(60));
  const int64_t raw_page = header[16] << 8 | header[17];
  const uintmax_t expected = static_cast<uintmax_t>(big_endian(28)) * (raw_page == 1 ? 65536 : raw_page);
  // With a log, the rest may still be in it.
  if (!NotEmpty(path + "-wal") && fs::file_size(path) < expected)
    return Damaged(path, "the end of the file is missing");
  return absl::OkStatus();
}

absl::Status QuickCheck(const std::string& path, Connection& connection) {
  std::error_code error;
  if (fs::file_size(path, error) > kCheckedBytes || error) return absl::OkStatus();
  TEMPER_ASSIGN_OR_RETURN(Query query, connection.Prepare("PRAGMA quick_check(1)"));
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  const std::string verdict = row ? query.Text(0) : "no answer";
  if (verdict == "ok") return absl::OkStatus();
  // Findings may have a headline that says "*** in database main ***".
  const size_t headline = verdict.rfind("***\n");
  const std::string finding = headline == std::string::npos ? verdict : verdict.substr(headline + 4);
  return Damaged(path, finding.substr(0, finding.find('\n')));
}

absl::Status Migrate(Connection& connection, int64_t version) {
  for (; version < SchemaVersion(); ++version) {
    const std::string step =
        absl::StrCat("BEGIN IMMEDIATE; PRAGMA application_id = ", kApplicationId, ";",
                     std::string(Migrations()[version]), "; PRAGMA user_version = ", version + 1, "; COMMIT");
    if (absl::Status status = connection.Exec(step.c_str()); !status.ok()) {
      if (connection.InTransaction()) connection.Exec("ROLLBACK").IgnoreError();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status UseLog(const std::string& path, Connection& connection) {
  TEMPER_ASSIGN_OR_RETURN(Query query, connection.Prepare("PRAGMA journal_mode = WAL"));
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (row && query.Text(0) == "wal") return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": its file system can not share memory; put the database on a disk of this machine"));
}

}  // namespace

absl::StatusOr<std::string> ResolvePath(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) return absl::NotFoundError(absl::StrCat(path, ": no such file (", error.message(), ")"));
  if (fs::is_directory(resolved, error))
    return absl::FailedPreconditionError(absl::StrCat(path, ": is a folder; name a file in it"));
  if (!fs::is_directory(resolved.parent_path(), error)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such folder; make it, or give another --db"));
  }
  return resolved.string();
}

absl::StatusOr<std::unique_ptr<Connection>> OpenWriter(const std::string& path) {
  if (fs::exists(path)) TEMPER_RETURN_IF_ERROR(CheckHeader(path));
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Connection::Open(path, Access::kCreate));
  TEMPER_ASSIGN_OR_RETURN(const int64_t version, connection->Int("PRAGMA user_version"));
  if (version > SchemaVersion()) return TooNew(path, version);
  TEMPER_ASSIGN_OR_RETURN(const int64_t application, connection->Int("PRAGMA application_id"));
  TEMPER_ASSIGN_OR_RETURN(const int64_t objects, connection->Int("SELECT count(*) FROM sqlite_master"));
  if (application != kApplicationId && objects > 0) return NotOurs(path, "another program's SQLite file");
  TEMPER_RETURN_IF_ERROR(QuickCheck(path, *connection));
  // A new file gets its schema before the log, so that its header says whose it is from the first commit on.
  TEMPER_RETURN_IF_ERROR(connection->Exec("PRAGMA synchronous = FULL"));
  TEMPER_RETURN_IF_ERROR(Migrate(*connection, version));
  TEMPER_RETURN_IF_ERROR(UseLog(path, *connection));
  // KiB of pages, which the system caches too: a writer mostly appends.
  TEMPER_RETURN_IF_ERROR(connection->Exec("PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -512"));
  connection->CheckpointOnClose(true);
  return connection;
}

absl::StatusOr<Access> ReaderAccess(const std::string& path) {
  if (!fs::exists(path))
    return absl::NotFoundError(absl::StrCat(path, ": no such file; tune something first, or give another --db"));
  if (!NotEmpty(path)) return NotOurs(path, "the file is empty");
  TEMPER_RETURN_IF_ERROR(CheckHeader(path));
  const std::string folder = fs::path(path).parent_path().string();
  const bool writable = faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) == 0;
  return writable || NotEmpty(path + "-wal") ? Access::kReadOnly : Access::kImmutable;
}

absl::StatusOr<std::unique_ptr<Connection>> OpenReader(const std::string& path, Access access) {
  return Connection::Open(path, access);
}

absl::Status CheckReadable(const std::string& path, Connection& connection) {
  const absl::StatusOr<int64_t> version = connection.Int("PRAGMA user_version");
  if (!version.ok() && absl::IsFailedPrecondition(version.status()) && NotEmpty(path + "-wal")) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": its folder can not be written and its log (", path,
                                                      "-wal) is unfinished; copy both to a folder of yours"));
  }
  TEMPER_RETURN_IF_ERROR(version.status());
  if (*version > SchemaVersion()) return TooNew(path, *version);
  if (*version < SchemaVersion()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": of an older Temper (schema ", *version,
                                                      ", this one reads ", SchemaVersion(),
                                                      "); run `temper tune` on it once, which brings it up to date"));
  }
  return QuickCheck(path, connection);
}

}  // namespace temper
