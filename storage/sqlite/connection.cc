#include "storage/sqlite/connection.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/hash.h"

namespace temper {
namespace {

constexpr int kBusyTimeoutMs = 5000;
constexpr int kLongLogPages = 1000;

bool IsFullDisk(int system_error) { return system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG; }

absl::Status ToStatus(const std::string& path, int code, const char* message, int system_error) {
  const std::string cause = system_error != 0 ? std::strerror(system_error) : message;
  int primary = code & 0xFF;
  if (primary == SQLITE_IOERR && IsFullDisk(system_error)) primary = SQLITE_FULL;
  if (code == SQLITE_IOERR_NOMEM || (primary == SQLITE_IOERR && system_error == ENOMEM)) primary = SQLITE_NOMEM;
  switch (primary) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(absl::StrCat(path, ": the disk is full; free some space and run again"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(path, ": the database is damaged (", message,
                                              "); restore a copy, or save what is left: docs/operations.md, Restore"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(path, ": locked by another program for more than ",
                                                 kBusyTimeoutMs / 1000, " s; close that program and run again"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::PermissionDeniedError(
          absl::StrCat(path, ": may not be written (", cause, "); give another --db or mend its permissions"));
    case SQLITE_CANTOPEN:
      return absl::FailedPreconditionError(absl::StrCat(path, ": can not be opened (", cause, ")"));
    case SQLITE_IOERR:
      return absl::DataLossError(
          absl::StrCat(path, ": reading or writing failed (", cause, "); check the disk and run again"));
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(absl::StrCat(path, ": out of memory"));
    case SQLITE_CONSTRAINT:
      return absl::FailedPreconditionError(absl::StrCat(path, ": its rows do not fit together (", message,
                                                        "), as when some were edited by hand; restore a copy"));
    default:
      return absl::InternalError(absl::StrCat(path, ": SQLite: ", message));
  }
}

std::string Uri(const std::string& path, Access access) {
  std::string uri = "file:";
  for (unsigned char c : path) {
    if (c == '%' || c == '?' || c == '#')
      absl::StrAppendFormat(&uri, "%%%02x", c);
    else
      uri.push_back(static_cast<char>(c));
  }
  return access == Access::kImmutable ? uri + "?immutable=1" : uri;
}

// stable_hash(text): what migrations need to fill columns that hold hashes. The schema itself does not use it, so that
// any SQLite may read and write the file.
void HashValue(sqlite3_context* context, int, sqlite3_value** values) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(values[0]));
  const std::string_view bytes(text == nullptr ? "" : text, sqlite3_value_bytes(values[0]));
  sqlite3_result_int64(context, static_cast<int64_t>(StableHash(bytes)));
}

// Why the last read or write of a file failed, which is mostly the log's matter: SQLite itself forgets it.
int SystemError(sqlite3* db) {
  int error = sqlite3_system_errno(db);
  for (const int which : {SQLITE_FCNTL_JOURNAL_POINTER, SQLITE_FCNTL_FILE_POINTER}) {
    sqlite3_file* file = nullptr;
    if (error != 0 || sqlite3_file_control(db, "main", which, &file) != SQLITE_OK) continue;
    if (file != nullptr && file->pMethods != nullptr)
      file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error);
  }
  return error;
}

int NoteLogPages(void* log_pages, sqlite3*, const char*, int pages) {
  *static_cast<int*>(log_pages) = pages;
  return SQLITE_OK;
}

// Interrupts what `db` is doing when the time is over.
class Deadline {
 public:
  Deadline(sqlite3* db, absl::Duration limit)
      : thread_([this, db, limit] {
          std::unique_lock lock(mutex_);
          if (wake_.wait_for(lock, absl::ToChronoMilliseconds(limit), [this] { return done_; })) return;
          passed_ = true;
          // Again, since it does nothing before the statement begins.
          do sqlite3_interrupt(db);
          while (!wake_.wait_for(lock, kBetweenInterrupts, [this] { return done_; }));
        }) {}
  ~Deadline() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  bool passed() const { return passed_; }

 private:
  static constexpr std::chrono::milliseconds kBetweenInterrupts{5};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::atomic<bool> passed_ = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::string> ReadStart(const std::string& path, int bytes) {
  sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
  const char* name = sqlite3_create_filename(path.c_str(), "", "", 0, nullptr);
  std::vector<char> room(vfs->szOsFile);
  auto* file = reinterpret_cast<sqlite3_file*>(room.data());
  file->pMethods = nullptr;
  int code = vfs->xOpen(vfs, name, file, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, nullptr);
  const int system_error = errno;
  sqlite3_int64 size = 0;
  std::string start;
  if (code == SQLITE_OK) code = file->pMethods->xFileSize(file, &size);
  if (code == SQLITE_OK) {
    start.resize(std::min<sqlite3_int64>(bytes, size));
    if (size > 0) code = file->pMethods->xRead(file, start.data(), static_cast<int>(start.size()), 0);
  }
  if (file->pMethods != nullptr) file->pMethods->xClose(file);
  sqlite3_free_filename(name);
  if (code != SQLITE_OK) return ToStatus(path, code, sqlite3_errstr(code), system_error);
  return start;
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Query::Query(Query&& other) noexcept
    : connection_(other.connection_),
      statement_(other.statement_),
      bound_(other.bound_),
      bind_error_(other.bind_error_) {
  other.statement_ = nullptr;
}

Query& Query::Bind(int64_t value) {
  bind_error_ |= sqlite3_bind_int64(statement_, ++bound_, value);
  return *this;
}

Query& Query::Bind(double value) {
  bind_error_ |= sqlite3_bind_double(statement_, ++bound_, value);
  return *this;
}

Query& Query::Bind(std::string_view value) {
  bind_error_ |= sqlite3_bind_text64(statement_, ++bound_, value.data() == nullptr ? "" : value.data(), value.size(),
                                     SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Query& Query::BindBytes(std::string_view bytes) {
  // A null pointer would bind NULL.
  bind_error_ |= sqlite3_bind_blob64(statement_, ++bound_, bytes.data() == nullptr ? "" : bytes.data(), bytes.size(),
                                     SQLITE_TRANSIENT);
  return *this;
}

Query& Query::BindNull() {
  bind_error_ |= sqlite3_bind_null(statement_, ++bound_);
  return *this;
}

absl::StatusOr<bool> Query::Step() {
  if (bind_error_ != SQLITE_OK)
    return absl::InternalError("a value could not be bound: too large, or no such parameter");
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return connection_->Error(code);
}

absl::Status Query::Run() {
  while (true) {
    TEMPER_ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return absl::OkStatus();
  }
}

int64_t Query::Int(int column) const { return sqlite3_column_int64(statement_, column); }
double Query::Real(int column) const { return sqlite3_column_double(statement_, column); }
std::string_view Query::View(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return bytes == nullptr ? "" : std::string_view(bytes, sqlite3_column_bytes(statement_, column));
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const std::string& path, Access access) {
  const int mode = access == Access::kCreate ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  sqlite3* db = nullptr;
  const int code =
      sqlite3_open_v2(Uri(path, access).c_str(), &db, mode | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  if (db == nullptr) return absl::ResourceExhaustedError(absl::StrCat(path, ": out of memory"));
  std::unique_ptr<Connection> connection(new Connection(path, db));
  if (code != SQLITE_OK) return connection->Error(code);
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, kBusyTimeoutMs);
  // SQLite before 3.51.3 may damage a log that two connections checkpoint at once, so only the healthy writer's close
  // does.
  connection->CheckpointOnClose(false);
  sqlite3_wal_hook(db, NoteLogPages, &connection->log_pages_);  // instead of checkpoints inside of commits
  sqlite3_create_function_v2(db, "stable_hash", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
                             HashValue, nullptr, nullptr, nullptr);
  TEMPER_RETURN_IF_ERROR(
      connection->Exec("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON"));
  return connection;
}

Connection::~Connection() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(db_);
}

absl::StatusOr<Query> Connection::Prepare(std::string_view sql) {
  if (const auto known = statements_.find(sql); known != statements_.end()) return Query(*this, known->second);
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  statements_.emplace(sql, statement);
  return Query(*this, statement);
}

absl::Status Connection::Exec(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<int64_t> Connection::Int(std::string_view sql) {
  TEMPER_ASSIGN_OR_RETURN(Query query, Prepare(sql));
  TEMPER_ASSIGN_OR_RETURN(const bool row, query.Step());
  return row ? query.Int(0) : 0;
}

absl::StatusOr<std::string> Connection::FirstFault(std::string_view table, absl::Duration limit) {
  const Deadline deadline(db_, limit);
  const std::string sql = absl::StrCat("PRAGMA quick_check(", table.empty() ? "1" : std::string(table), ")");
  TEMPER_ASSIGN_OR_RETURN(Query query, Prepare(sql));
  const absl::StatusOr<bool> row = query.Step();
  if (deadline.passed()) return "";
  TEMPER_RETURN_IF_ERROR(row.status());
  const std::string verdict = *row ? query.Text(0) : "no answer";
  if (verdict == "ok") return "";
  // Findings may have a headline that says "*** in database main ***".
  const size_t headline = verdict.rfind("***\n");
  const std::string finding = headline == std::string::npos ? verdict : verdict.substr(headline + 4);
  return finding.substr(0, finding.find('\n'));
}

int64_t Connection::LastInsertId() const { return sqlite3_last_insert_rowid(db_); }
bool Connection::Changed() const { return sqlite3_changes64(db_) > 0; }
bool Connection::InTransaction() const { return sqlite3_get_autocommit(db_) == 0; }

void Connection::LimitTime(absl::Duration limit) {
  constexpr int kSteps = 10'000;  // of SQLite's machine, between two looks at the clock
  until_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limit);
  const auto is_past = [](void* until) {
    return std::chrono::steady_clock::now() >= *static_cast<std::chrono::steady_clock::time_point*>(until) ? 1 : 0;
  };
  sqlite3_progress_handler(db_, limit > absl::ZeroDuration() ? kSteps : 0, is_past, &until_);
}

void Connection::CheckpointOnClose(bool on) {
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
}

absl::Status Connection::ShortenLog() {
  if (log_pages_ < kLongLogPages) return absl::OkStatus();
  log_pages_ = 0;
  const int code = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  return code == SQLITE_OK || code == SQLITE_BUSY ? absl::OkStatus() : Error(code);
}

absl::Status Connection::EmptyLog() {
  const int code = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::Status Connection::Error(int code) const {
  const int primary = code & 0xFF;
  const bool from_system = primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_READONLY;
  return ToStatus(path_, code, sqlite3_errmsg(db_), from_system ? SystemError(db_) : 0);
}

}  // namespace temper
