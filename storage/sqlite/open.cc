#include "storage/sqlite/open.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "storage/migrations/migrations.h"
#include "storage/sqlite/best_rows.h"
#include "storage/sqlite/snapshot.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

// The fields of a database's first bytes that are looked at before SQLite may touch the file
// (sqlite.org/fileformat2.html).
constexpr size_t kHeaderBytes = 100;
constexpr std::string_view kMagic("SQLite format 3\0", 16);
// A full check reads every page. Larger files are checked as far as this time allows.
constexpr uintmax_t kCheckedBytes = 32 << 20;
constexpr absl::Duration kCheckTime = absl::Milliseconds(500);

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
                                          "); restore a copy, or save what is left: docs/operations.md, Restore"));
}

bool NotEmpty(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return !error && size > 0;
}

// Looks at the header before SQLite does, which would recover logs and make files beside. An empty file passes.
absl::Status CheckHeader(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0)
    return absl::PermissionDeniedError(absl::StrCat(path, ": can not be read (", std::strerror(errno), ")"));
  TEMPER_ASSIGN_OR_RETURN(const std::string start, ReadStart(path, kHeaderBytes));
  const size_t got = start.size();
  const auto* header = reinterpret_cast<const unsigned char*>(start.data());
  if (got == 0) return absl::OkStatus();
  if (NotEmpty(path + "-journal")) return absl::OkStatus();  // its creation was cut short: SQLite will undo it first
  if (got < kHeaderBytes || !start.starts_with(kMagic)) return NotOurs(path, "no SQLite file");
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

// Tables of ours are tables: what else can be made to look like one may compute for ever, and change what is written.
// The view `trial` is for people, and nothing here reads it.
absl::Status CheckTables(const std::string& path, Connection& connection) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t others,
                          connection.Int("SELECT count(*) FROM sqlite_master WHERE (type NOT IN ('table', 'index') "
                                         "AND NOT (type = 'view' AND name = 'trial')) OR sql LIKE 'CREATE VIRTUAL%'"));
  return others == 0 ? absl::OkStatus() : NotOurs(path, "it has views or triggers");
}

absl::Status CheckPages(const std::string& path, Connection& connection, CheckDepth depth) {
  std::error_code error;
  const bool small = fs::file_size(path, error) <= kCheckedBytes || error;
  if (small || depth == CheckDepth::kWhole) {
    TEMPER_ASSIGN_OR_RETURN(const std::string fault, connection.FirstFault("", absl::Hours(24)));
    return fault.empty() ? absl::OkStatus() : Damaged(path, fault);
  }
  std::vector<std::string> tables;
  {
    TEMPER_ASSIGN_OR_RETURN(Query query, connection.Prepare("SELECT name FROM sqlite_master WHERE type = 'table' "
                                                            "ORDER BY name = 'record', rootpage"));
    while (true) {
      TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      tables.push_back(query.Text(0));
    }
  }
  const absl::Time end = absl::Now() + kCheckTime;
  for (const std::string& table : tables) {
    if (absl::Now() >= end) break;
    TEMPER_ASSIGN_OR_RETURN(const std::string fault, connection.FirstFault(table, end - absl::Now()));
    if (!fault.empty()) return Damaged(path, fault);
  }
  return absl::OkStatus();
}

// All steps in one transaction: the file is of the old version or of the new one.
absl::Status Migrate(const std::string& path, Connection& connection, int64_t version) {
  if (version == SchemaVersion()) return absl::OkStatus();
  if (version > 0) {
    const absl::Status kept = CopyDatabase(connection, absl::StrCat(path, ".before-", SchemaVersion()));
    if (!kept.ok()) {
      return absl::Status(
          kept.code(), absl::StrCat(path, ": not brought up to date, as it can not be copied first: ", kept.message()));
    }
  }
  std::string steps = absl::StrCat("BEGIN IMMEDIATE; PRAGMA application_id = ", kApplicationId, ";");
  for (const std::string_view step : Migrations().subspan(version)) absl::StrAppend(&steps, std::string(step), ";");
  absl::StrAppend(&steps, "PRAGMA user_version = ", SchemaVersion());
  absl::Status status = connection.Exec(steps.c_str());
  if (status.ok()) status = rows::BestKeeper(connection).FindAllAgain();
  if (status.ok()) status = connection.Exec("COMMIT");
  if (!status.ok() && connection.InTransaction()) connection.Exec("ROLLBACK").IgnoreError();
  return status;
}

absl::Status UseLog(const std::string& path, Connection& connection) {
  TEMPER_ASSIGN_OR_RETURN(Query query, connection.Prepare("PRAGMA journal_mode = WAL"));
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  const bool uses_log = row && query.View(0) == "wal";
  TEMPER_RETURN_IF_ERROR(query.Run());  // what it answered holds only when this, its commit, went well
  if (uses_log) return connection.Int("PRAGMA user_version").status();  // which makes the log's file
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
  if (fs::exists(resolved, error) && !fs::is_regular_file(resolved, error))
    return absl::FailedPreconditionError(absl::StrCat(path, ": is no regular file; give another --db"));
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
  TEMPER_RETURN_IF_ERROR(CheckTables(path, *connection));
  TEMPER_RETURN_IF_ERROR(CheckPages(path, *connection, CheckDepth::kBounded));
  // A new file gets its schema before the log, so that its header says whose it is from the first commit on. Until it
  // has the log, deletions are synced too: a journal that a loss of power brought back would undo what came later.
  TEMPER_RETURN_IF_ERROR(connection->Exec("PRAGMA synchronous = EXTRA"));
  TEMPER_RETURN_IF_ERROR(Migrate(path, *connection, version));
  TEMPER_RETURN_IF_ERROR(UseLog(path, *connection));
  TEMPER_RETURN_IF_ERROR(connection->Exec("PRAGMA synchronous = FULL"));
  // The log is cut to 8 MiB once it starts anew: one that a slow reader made long does not stay so. In KiB of pages,
  // which the system caches too: a writer mostly appends.
  TEMPER_RETURN_IF_ERROR(connection->Exec("PRAGMA journal_size_limit = 8388608; PRAGMA cache_size = -512"));
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

absl::Status CheckAgain(const std::string& path) {
  // Its journal mode, which nobody can change while it is in use: a copy that was made for itself has no log.
  constexpr int kModeAt = 18;
  constexpr std::string_view kLogMode("\2\2");
  TEMPER_ASSIGN_OR_RETURN(const std::string start, ReadStart(path, kHeaderBytes));
  if (start.size() < kHeaderBytes || start.substr(kModeAt, kLogMode.size()) != kLogMode)
    return absl::DataLossError(
        absl::StrCat(path, ": was overwritten while it was in use; restore a copy, with the server stopped"));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, OpenReader(path, Access::kReadOnly));
  const absl::Status readable = CheckReadable(path, *connection, CheckDepth::kBounded);
  // Of another schema, or another program's.
  return absl::IsFailedPrecondition(readable) ? absl::DataLossError(readable.message()) : readable;
}

absl::Status CheckReadable(const std::string& path, Connection& connection, CheckDepth depth) {
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
  TEMPER_RETURN_IF_ERROR(CheckTables(path, connection));
  return CheckPages(path, connection, depth);
}

}  // namespace temper
