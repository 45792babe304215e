// One SQLite connection and its prepared statements. SQLite's result codes become statuses here and nowhere else.
// Not thread-safe: a connection is used by one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/time/time.h"
#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace temper {

class Connection;

// A statement being run: bind from 1, step, read columns from 0. Goes back to its connection when it dies.
class Query {
 public:
  Query(Connection& connection, sqlite3_stmt* statement) : connection_(&connection), statement_(statement) {}
  ~Query();
  Query(Query&& other) noexcept;
  Query& operator=(Query&&) = delete;

  Query& Bind(int64_t value);  // the next parameter
  Query& Bind(double value);
  Query& Bind(std::string_view value);  // copied
  Query& BindBytes(std::string_view bytes);
  Query& BindNull();
  absl::StatusOr<bool> Step();  // true: there is a row
  absl::Status Run();           // steps to the end, ignoring rows

  int64_t Int(int column) const;
  double Real(int column) const;
  std::string_view View(int column) const;  // a text or bytes; until the next step
  std::string Text(int column) const { return std::string(View(column)); }

 private:
  Connection* connection_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
  int bind_error_ = 0;
};

// The first bytes of a file, or less where it is shorter. Read as SQLite reads: whoever else closes a file that SQLite
// has open in the same process drops all its locks.
absl::StatusOr<std::string> ReadStart(const std::string& path, int bytes);

enum class Access { kCreate, kReadOnly, kImmutable };

class Connection {
 public:
  // `path` is also what errors name. Settings that guard the file are made here; journal mode is open.cc's.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& path, Access access);
  ~Connection();

  absl::StatusOr<Query> Prepare(std::string_view sql);  // compiled once a connection; not twice at a time
  absl::Status Exec(const char* sql);                   // any number of statements, without parameters
  absl::StatusOr<int64_t> Int(std::string_view sql);    // the first column of the first row
  int64_t LastInsertId() const;
  bool Changed() const;  // the last INSERT, UPDATE or DELETE did something
  bool InTransaction() const;
  // The first thing that is wrong with `table` (empty: with the whole file), or "". An empty answer says little when
  // the limit passed first.
  absl::StatusOr<std::string> FirstFault(std::string_view table, absl::Duration limit);
  // Statements end with an error once so much time has passed from now; zero: none does.
  void LimitTime(absl::Duration limit);
  void CheckpointOnClose(bool on);
  // Moves a log that has grown long into the file, as far as readers allow. Nothing else does but the writer's close:
  // an error here says that the file is broken, which a commit that went well does not.
  absl::Status ShortenLog();
  // Moves all of the log into the file and leaves it empty; waits for readers as long as for locks. kUnavailable: some
  // read on.
  absl::Status EmptyLog();
  absl::Status Error(int code) const;  // a result code of this connection, as one clear line

 private:
  Connection(std::string path, sqlite3* db) : path_(std::move(path)), db_(db) {}

  std::string path_;
  sqlite3* db_;
  int log_pages_ = 0;
  std::chrono::steady_clock::time_point until_;  // LimitTime
  // Found by the text without a copy of it.
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, sqlite3_stmt*, TextHash, std::equal_to<>> statements_;
};

}  // namespace temper
