// What only a file can suffer: being damaged, shared, somebody else's, from the future, cut off, or on a full disk.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <regex>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "storage/migrations/migrations.h"
#include "storage/sqlite/lock_file.h"
#include "storage/sqlite/open.h"
#include "storage/sqlite/writer.h"
#include "tests/storage/files.h"
#include "tests/storage/testing.h"

namespace temper {
namespace {

using testing::HasSubstr;

class SqliteStoreTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open(OpenMode mode = OpenMode::kReadWrite) {
    auto store = OpenStore(path_, mode);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? std::move(*store) : nullptr;
  }
  // A closed file with `count` records in it.
  void Fill(int count) {
    const std::unique_ptr<Store> store = Open();
    const std::vector<Record> records(count, GoodRecord());
    ASSERT_TRUE(store->Append(records).ok());
  }
  // Both modes refuse with `code` and one line that names the file and has `text`; the file stays as it is.
  void ExpectRefused(absl::StatusCode code, const std::string& text) {
    const std::string before = Bytes(path_);
    for (OpenMode mode : {OpenMode::kReadWrite, OpenMode::kReadOnly}) {
      const absl::Status status = OpenStore(path_, mode).status();
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()),
                  testing::AllOf(HasSubstr(path_), HasSubstr(text), testing::Not(HasSubstr("\n"))));
      EXPECT_EQ(Bytes(path_), before) << "the file was touched";
    }
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("records.db");
};

TEST_F(SqliteStoreTest, SchemaIsTheOneDocumented) {
  Fill(1);
  std::vector<std::string> actual;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open_v2(path_.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  sqlite3_exec(
      db, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL",
      [](void* out, int, char** row, char**) {
        static_cast<std::vector<std::string>*>(out)->push_back(row[0]);
        return 0;
      },
      &actual, nullptr);
  sqlite3_close(db);

  const std::string doc = Bytes(std::string(TEMPER_SOURCE_DIR) + "/docs/store-schema.md");
  std::vector<std::string> documented;
  const std::string open = "```sql schema\n", close = "```";
  for (size_t at = doc.find(open); at != std::string::npos; at = doc.find(open, at)) {
    at += open.size();
    std::stringstream block(doc.substr(at, doc.find(close, at) - at));
    for (std::string statement; std::getline(block, statement, ';');) {
      const size_t start = statement.find_first_not_of(" \n");
      if (start != std::string::npos) documented.push_back(statement.substr(start));
    }
  }
  std::sort(actual.begin(), actual.end());
  std::sort(documented.begin(), documented.end());
  EXPECT_EQ(documented, actual);
  EXPECT_THAT(doc, HasSubstr("`user_version` " + std::to_string(Migrations().size())));
}

// Else it would read all trials of the config for each that comes.
TEST_F(SqliteStoreTest, AnImportFindsATrialByItsHash) {
  const Record r = GoodRecord();
  ASSERT_NE(Open()->Import({&r, 1})->front(), 0);
  ASSERT_EQ(Open()->Import({&r, 1})->front(), 0);
  RunSql(path_, "UPDATE record SET trial_hash = trial_hash + 1");
  EXPECT_NE(Open()->Import({&r, 1})->front(), 0) << "the first one was met without its hash";
}

TEST_F(SqliteStoreTest, WhatHasNoTimesSaysNothing) {
  Fill(3);
  for (const std::string costs : {"[]", "[0]", "[-1,1]", "[nan]", "[inf]", "[1e999]", "", "["}) {
    SCOPED_TRACE(costs);
    RunSql(path_, "UPDATE record SET costs_s = '" + costs + "'");
    const auto store = Open();
    EXPECT_FALSE(store->Best(QueryFor(GoodRecord()))->has_value());
    EXPECT_TRUE(store->ScanBest({}, [](const Record&) { ADD_FAILURE(); }).ok());
    for (const Record& r : All(*store)) {
      EXPECT_EQ(r.outcome, Outcome::kInfrastructure);
      EXPECT_EQ(r.error, "the record is damaged: its samples are no times");
    }
  }
}

TEST_F(SqliteStoreTest, RefusesWhatOnlyLooksLikeATable) {
  Fill(3);
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) EXPECT_TRUE(OpenStore(path_, mode).ok());
  for (const std::string sql :
       {"CREATE VIEW more AS SELECT 1", "CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM record; END",
        "CREATE TRIGGER trial AFTER INSERT ON record BEGIN DELETE FROM record; END",
        "ALTER TABLE job RENAME TO jobs; CREATE VIEW job AS SELECT * FROM jobs"}) {
    SCOPED_TRACE(sql);
    const std::string other = folder_.File("other.db");
    std::filesystem::copy_file(path_, other, std::filesystem::copy_options::overwrite_existing);
    RunSql(other, sql);
    for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite})
      EXPECT_THAT(std::string(OpenStore(other, mode).status().message()),
                  testing::HasSubstr("it has views or triggers"));
    EXPECT_FALSE(RestoreStore(other, folder_.File("restored.db")).ok());
  }
}

TEST_F(SqliteStoreTest, IsHeldUnderEachOfItsNames) {
  Fill(1);
  const auto store = Open();
  const std::string other = folder_.File("other.db");
  std::filesystem::create_hard_link(path_, other);
  EXPECT_EQ(InChild([&] { return absl::IsFailedPrecondition(OpenStore(other).status()) ? 0 : 1; }), 0);
}

// As somebody leaves them who edits a database by hand.
TEST_F(SqliteStoreTest, PruningFindsBestsAgainThatTheRuleWouldNotName) {
  Fill(3);
  RunSql(path_,
         "UPDATE best SET record_id = (SELECT min(id) FROM record); "
         "UPDATE record SET costs_s = '[9,9,9]', median_s = 9, purpose = 'search' WHERE id = 1");
  const auto store = Open();
  EXPECT_EQ(store->Best(QueryFor(GoodRecord()))->value().record.id, 1);
  const auto pruned = store->Prune({.keep_records = 1});
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->records, 1);
  EXPECT_NE(store->Best(QueryFor(GoodRecord()))->value().record.id, 1);
}

TEST_F(SqliteStoreTest, MarksTheFileAsOursAndKeepsALog) {
  const std::unique_ptr<Store> store = Open();
  const auto reader = OpenReader(path_, Access::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(*(*reader)->Int("PRAGMA application_id"), kApplicationId);
  EXPECT_EQ(*(*reader)->Int("PRAGMA user_version"), static_cast<int64_t>(Migrations().size()));
  auto mode = (*reader)->Prepare("PRAGMA journal_mode");
  ASSERT_TRUE(mode.ok() && mode->Step().ok());
  EXPECT_EQ(mode->Text(0), "wal");
}

TEST_F(SqliteStoreTest, GuardsItsConnections) {
  const auto writer = OpenWriter(path_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::pair<const char*, int64_t> settings[] = {{"PRAGMA synchronous", 2},
                                                      {"PRAGMA foreign_keys", 1},
                                                      {"PRAGMA busy_timeout", 5000},
                                                      {"PRAGMA trusted_schema", 0},
                                                      {"PRAGMA cell_size_check", 1}};
  for (const auto& [pragma, value] : settings) EXPECT_EQ(*(*writer)->Int(pragma), value) << pragma;
}

TEST_F(SqliteStoreTest, AStatementEndsWhenItsTimeIsOver) {
  Fill(1);
  const auto db = *Connection::Open(path_, Access::kReadOnly);
  constexpr char kEndless[] = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
  db->LimitTime(absl::Milliseconds(1));
  EXPECT_FALSE(db->Int(kEndless).ok());
  db->LimitTime(absl::ZeroDuration());
  EXPECT_EQ(db->Int("SELECT count(*) FROM record").value(), 1);
}

TEST_F(SqliteStoreTest, GoesOnAfterReopening) {
  Fill(3);
  const std::unique_ptr<Store> store = Open();
  EXPECT_EQ(All(*store).size(), 3u);
  ASSERT_TRUE(store->Append(std::vector<Record>(1, GoodRecord())).ok());
  EXPECT_EQ(All(*store).back().id, 4);
  EXPECT_EQ((*store->Best(QueryFor(GoodRecord())))->level, "exact");
}

TEST_F(SqliteStoreTest, LeavesOneFileBehindWhenClosed) {
  Fill(3);
  EXPECT_FALSE(std::filesystem::exists(path_ + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "-shm"));
}

TEST_F(SqliteStoreTest, RefusesASecondWriterAndNamesTheFirst) {
  const std::unique_ptr<Store> first = Open();
  const absl::Status again = OpenStore(path_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("process " + std::to_string(getpid())));
  std::filesystem::create_symlink(path_, folder_.File("alias.db"));
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenStore(folder_.File("alias.db")).status())) << "by another name";
}

TEST_F(SqliteStoreTest, LetsTheNextWriterInWhenTheFirstIsKilled) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto store = OpenStore(path_);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const absl::Status held = OpenStore(path_).status();
  EXPECT_THAT(std::string(held.message()), HasSubstr("process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_NE(Open(), nullptr);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(SqliteStoreTest, ReadersFollowAWriter) {
  const std::unique_ptr<Store> writer = Open();
  const std::unique_ptr<Store> reader = Open(OpenMode::kReadOnly);
  for (int i = 1; i <= 20; ++i) {
    ASSERT_TRUE(writer->Append(std::vector<Record>(1, GoodRecord())).ok());
    EXPECT_EQ(All(*reader).size(), static_cast<size_t>(i));
  }
  EXPECT_EQ((*reader->Best(QueryFor(GoodRecord())))->level, "exact");
}

TEST_F(SqliteStoreTest, ReadersDoNotWrite) {
  Fill(1);
  const std::unique_ptr<Store> reader = Open(OpenMode::kReadOnly);
  EXPECT_TRUE(absl::IsFailedPrecondition(reader->Append(std::vector<Record>(1, GoodRecord())).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(reader->CreateJob({}).status()));
  EXPECT_NE(Open(), nullptr) << "a reader holds nobody off";
}

TEST_F(SqliteStoreTest, SaysThatThereIsNoFile) {
  const absl::Status status = OpenStore(path_, OpenMode::kReadOnly).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".lock"));
  EXPECT_TRUE(absl::IsNotFound(OpenStore(folder_.File("no/such/records.db")).status()));
  EXPECT_THAT(std::string(OpenStore(folder_.path()).status().message()), HasSubstr("is a folder"));
}

TEST_F(SqliteStoreTest, TakesAnEmptyFileAsNewAndTellsReadersSo) {
  Overwrite(path_, "");
  EXPECT_THAT(std::string(OpenStore(path_, OpenMode::kReadOnly).status().message()), HasSubstr("empty"));
  EXPECT_NE(Open(), nullptr);
}

TEST_F(SqliteStoreTest, RefusesOtherFiles) {
  Overwrite(path_, std::string(5000, 'x'));
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "not a database of Temper's");
  Overwrite(path_, "short");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "not a database of Temper's");
  std::filesystem::remove(path_);
  RunSql(path_, "CREATE TABLE photos (name TEXT)");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "another program's");
}

// Who opened a pipe would wait for somebody at its other end, and hear no signal meanwhile.
TEST_F(SqliteStoreTest, RefusesWhatIsNoRegularFile) {
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (OpenMode mode : {OpenMode::kReadWrite, OpenMode::kReadOnly}) {
    for (const std::string& path : {pipe, std::string("/dev/null")}) {
      const absl::Status status = OpenStore(path, mode).status();
      EXPECT_EQ(status, absl::FailedPreconditionError(path + ": is no regular file; give another --db"));
    }
  }
}

TEST_F(SqliteStoreTest, RefusesANewerSchema) {
  Fill(2);
  RunSql(path_, "PRAGMA user_version = 99");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "newer Temper (schema 99");
}

TEST_F(SqliteStoreTest, RefusesANewerSchemaThatIsStillInTheLog) {
  Fill(2);
  ASSERT_EQ(InChild([&] {  // dies with the change in the log alone
              sqlite3* db = nullptr;
              sqlite3_open(path_.c_str(), &db);
              const int code = sqlite3_exec(db, "PRAGMA user_version = 99", nullptr, nullptr, nullptr);
              return code == SQLITE_OK ? 0 : 1;
            }),
            0);
  ASSERT_TRUE(std::filesystem::exists(path_ + "-wal"));
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "newer Temper (schema 99");
}

TEST_F(SqliteStoreTest, RefusesATruncatedFile) {
  Fill(200);
  const std::string whole = Bytes(path_);
  for (size_t size : {whole.size() - 1, whole.size() / 2, size_t{4096}, size_t{120}}) {
    Overwrite(path_, whole.substr(0, size));
    ExpectRefused(absl::StatusCode::kDataLoss, "damaged");
  }
}

TEST_F(SqliteStoreTest, RefusesADamagedFile) {
  Fill(200);
  std::string bytes = Bytes(path_);
  for (size_t page = 1; (page + 1) * 4096 <= bytes.size(); ++page) std::fill_n(bytes.begin() + page * 4096, 64, '\xAB');
  Overwrite(path_, bytes);
  ExpectRefused(absl::StatusCode::kDataLoss, "damaged");
}

TEST_F(SqliteStoreTest, EachDamagedPageIsFoundOrHarmless) {
  Fill(60);
  const std::string good = Bytes(path_);
  int refused = 0;
  for (size_t page = 1; (page + 1) * 4096 <= good.size(); ++page) {
    std::string bytes = good;
    std::fill_n(bytes.begin() + page * 4096, 8, '\xFF');
    Overwrite(path_, bytes);
    const absl::Status status = OpenStore(path_, OpenMode::kReadOnly).status();
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    refused += !status.ok();
  }
  EXPECT_GT(refused, 5);
}

TEST_F(SqliteStoreTest, NoAcknowledgedRecordIsLostToAKill) {
  for (int round = 0; round < 5; ++round) {
    int acks[2];
    ASSERT_EQ(pipe(acks), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto store = OpenStore(path_);
      if (!store.ok()) _exit(1);
      while (true) {
        const auto ids = (*store)->Append(std::vector<Record>(3, GoodRecord()));
        if (!ids.ok() || write(acks[1], &ids->back(), sizeof(int64_t)) != sizeof(int64_t)) _exit(1);
      }
    }
    int64_t acknowledged = 0;
    for (int i = 0; i < 10 + 7 * round; ++i) ASSERT_EQ(read(acks[0], &acknowledged, sizeof(acknowledged)), 8);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(acks[1]);
    for (int64_t id; read(acks[0], &id, sizeof(id)) == 8;) acknowledged = id;
    close(acks[0]);
    const std::unique_ptr<Store> store = Open();
    const std::vector<Record> found = All(*store);
    ASSERT_GE(found.back().id, acknowledged);
    EXPECT_EQ(found.size(), static_cast<size_t>(found.back().id)) << "without gaps";
    EXPECT_EQ(found.size() % 3, 0u) << "an append is there as a whole or not at all";
  }
}

TEST_F(SqliteStoreTest, AFullDiskIsNeverAcknowledgedAndIsRecoveredFrom) {
  EXPECT_EQ(InChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              auto store = OpenStore(path_);
              if (!store.ok()) return 1;
              const rlimit small{200 << 10, RLIM_INFINITY}, none{RLIM_INFINITY, RLIM_INFINITY};
              if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 2;
              size_t acknowledged = 0;
              absl::Status status;
              while (acknowledged < 100000) {
                status = (*store)->Append(std::vector<Record>(10, GoodRecord())).status();
                if (!status.ok()) break;
                acknowledged += 10;
              }
              if (status.ok() || status.message().find("records.db") == absl::string_view::npos) return 3;
              if (All(**store).size() != acknowledged) return 4;
              setrlimit(RLIMIT_FSIZE, &none);
              if (!(*store)->Append(std::vector<Record>(10, GoodRecord())).ok()) return 5;
              return All(**store).size() == acknowledged + 10 ? 0 : 6;
            }),
            0);
  EXPECT_NE(Open(), nullptr);
}

// As a user who may not write the folder (root may write any, so root becomes somebody else).
template <typename Body>
int AsReader(const TempFolder& folder, const Body& body) {
  chmod(folder.path().c_str(), 0555);
  const int code = InChild([&] {
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 100;
    return body();
  });
  chmod(folder.path().c_str(), 0755);
  return code;
}

TEST_F(SqliteStoreTest, ReadsFromAFolderThatCanNotBeWritten) {
  Fill(4);
  EXPECT_EQ(AsReader(folder_,
                     [&] {
                       auto store = OpenStore(path_, OpenMode::kReadOnly);
                       if (!store.ok()) return 1;
                       if (All(**store).size() != 4) return 2;
                       return (*store)->Best(QueryFor(GoodRecord()))->has_value() ? 0 : 3;
                     }),
            0);
  EXPECT_EQ(AsReader(folder_,
                     [&] {
                       const absl::Status status = OpenStore(folder_.File("new.db")).status();
                       return absl::IsPermissionDenied(status) ? 0 : 1;
                     }),
            0)
      << "and says that it can not be written";
}

TEST_F(SqliteStoreTest, TellsAReaderOfAnUnfinishedLogItMayNotTouch) {
  Fill(1);
  ASSERT_EQ(InChild([&] {  // dies without closing: the log stays
              auto store = OpenStore(path_);
              _exit(store.ok() && (*store)->Append(std::vector<Record>(1, GoodRecord())).ok() ? 0 : 1);
              return 1;
            }),
            0);
  ASSERT_GT(std::filesystem::file_size(path_ + "-wal"), 0u);
  std::filesystem::remove(path_ + "-shm");
  EXPECT_EQ(AsReader(folder_,
                     [&] {
                       const absl::Status status = OpenStore(path_, OpenMode::kReadOnly).status();
                       if (status.ok()) return 1;
                       return status.message().find("copy both") != absl::string_view::npos ? 0 : 2;
                     }),
            0);
  EXPECT_EQ(All(*Open(OpenMode::kReadOnly)).size(), 2u) << "who may write the folder reads it all";
}

TEST_F(SqliteStoreTest, BringsAFileOfTheFirstVersionUpToDate) {
  RunSql(path_, "PRAGMA application_id = " + std::to_string(kApplicationId) + ";" + std::string(Migrations()[0]) +
                    "; PRAGMA user_version = 1; INSERT INTO job VALUES (3, 'm', 't', 'd', 'xgb', 'c', '{}', 'done', "
                    "'', '{}', 5, 1.5, 1, 2)");
  const absl::Status read = OpenStore(path_, OpenMode::kReadOnly).status();
  EXPECT_THAT(std::string(read.message()), HasSubstr("of an older Temper"));
  const std::unique_ptr<Store> store = Open();
  const auto job = store->GetJob(3);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->trials, 5);
  EXPECT_EQ(job->model_hash, "");
  EXPECT_FALSE(store->LatestVerdict("", "t", "d")->has_value()) << "it said nothing of this";
}

TEST_F(SqliteStoreTest, ASnapshotIsOneFileWithWhatAWriterHasCommitted) {
  const std::unique_ptr<Store> writer = Open();
  ASSERT_TRUE(writer->Append(std::vector<Record>(20, GoodRecord())).ok());
  const std::string copy = folder_.File("copy.db");
  ASSERT_TRUE(SnapshotStore(path_, copy).ok());
  ASSERT_TRUE(writer->Append(std::vector<Record>(1, GoodRecord())).ok());
  auto reader = OpenStore(copy, OpenMode::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(All(**reader).size(), 20u);
  EXPECT_TRUE((*reader)->Best(QueryFor(GoodRecord()))->has_value());
  EXPECT_FALSE(std::filesystem::exists(copy + "-wal"));
  reader->reset();
  EXPECT_TRUE(OpenStore(copy).ok()) << "it is a database like any other";

  const std::string before = Bytes(copy);
  EXPECT_TRUE(absl::IsAlreadyExists(SnapshotStore(path_, copy)));
  EXPECT_EQ(Bytes(copy), before);
  EXPECT_TRUE(absl::IsNotFound(SnapshotStore(folder_.File("none.db"), folder_.File("x.db"))));
  EXPECT_FALSE(SnapshotStore(path_, folder_.File("no/such/copy.db")).ok());
}

TEST_F(SqliteStoreTest, ASnapshotThatDoesNotFitLeavesNothingBehind) {
  Fill(2000);
  EXPECT_EQ(InChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit small{50 << 10, RLIM_INFINITY};
              if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 1;
              return SnapshotStore(path_, folder_.File("copy.db")).ok() ? 2 : 0;
            }),
            0);
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(file.path().string().find("copy"), std::string::npos) << file.path();
  }
}

TEST_F(SqliteStoreTest, PathsMayHaveAnyCharacter) {
  const std::string odd = folder_.File("a b?mode=memory#%41.db");
  { ASSERT_TRUE(OpenStore(odd).ok()); }
  EXPECT_TRUE(std::filesystem::exists(odd));
  EXPECT_TRUE(OpenStore(odd, OpenMode::kReadOnly).ok());
}

// Somebody tidies up under a running server: what it acknowledged from then on would be gone with its end.
TEST_F(SqliteStoreTest, AcknowledgesNothingOnceTheFileIsGoneFromItsPlace) {
  namespace fs = std::filesystem;
  const std::string moved = folder_.File("moved.db");
  const auto expect_refused = [&](const std::function<void()>& take_away, const std::string& name) {
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Append(std::vector<Record>(1, GoodRecord())).ok());
    take_away();
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = store->Append(std::vector<Record>(1, GoodRecord())).status();
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(name + ": was moved, removed or replaced"));
    }
  };
  expect_refused([&] { fs::rename(path_, moved); }, path_);
  EXPECT_EQ(All(**OpenStore(moved, OpenMode::kReadOnly)).size(), 1u) << "what was acknowledged went along";
  EXPECT_TRUE(All(*Open()).empty()) << "and no log of it is taken for a new file's";
  expect_refused(
      [&] {
        fs::copy_file(path_, folder_.File("copy.db"));
        fs::rename(folder_.File("copy.db"), path_);
      },
      path_);
  expect_refused([&] { fs::remove(path_); }, path_);
  expect_refused([&] { fs::remove(path_ + "-wal"); }, path_ + "-wal");  // of a file that is new
  EXPECT_EQ(All(*Open()).size(), 1u);
}

// In place, where the file keeps its name and its number.
TEST_F(SqliteStoreTest, AcknowledgesNothingIntoAFileThatAnotherOverwrote) {
  namespace fs = std::filesystem;
  const auto write_all = [](const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::in | std::ios::out | std::ios::trunc) << bytes;
  };
  const auto spoil = [&](const std::string& path, size_t from) {
    std::string bytes = Bytes(path);
    for (size_t at = from; at < bytes.size(); at += 512) bytes.replace(at, 64, std::string(64, '\xa5'));
    write_all(path, bytes);
    // Dates of files may be as coarse as a few milliseconds, within which the store has just written.
    fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  };
  const std::pair<const char*, std::function<void()>> deeds[] = {
      {"a snapshot over it", [&] { write_all(path_, Bytes(folder_.File("snapshot.db"))); }},
      {"cut off", [&] { fs::resize_file(path_, 4096); }},
      {"emptied", [&] { fs::resize_file(path_, 0); }},
      {"pages", [&] { spoil(path_, 8192); }},
      {"header", [&] { write_all(path_, std::string(200, 'x') + Bytes(path_).substr(200)); }},
      {"its log", [&] { spoil(path_ + "-wal", 4096); }},
      {"its log cut off", [&] { fs::resize_file(path_ + "-wal", 0); }}};
  for (const auto& [name, deed] : deeds) {
    SCOPED_TRACE(name);
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path_ + suffix);
    fs::remove(folder_.File("snapshot.db"));
    Fill(300);
    const std::unique_ptr<Store> store = Open();
    ASSERT_TRUE(store->Append(std::vector<Record>(300, GoodRecord())).ok());
    ASSERT_TRUE(SnapshotStore(path_, folder_.File("snapshot.db")).ok());
    ASSERT_TRUE(store->Append(std::vector<Record>(1, GoodRecord())).ok());
    EXPECT_TRUE(store->Health().ok());
    deed();
    const absl::Status status = store->Append(std::vector<Record>(1, GoodRecord())).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    EXPECT_EQ(store->Health(), status);
  }
}

TEST_F(SqliteStoreTest, GoesOnWhereAnotherReadsTheFileOrWritesItInSqlitesWay) {
  Fill(300);
  const std::unique_ptr<Store> store = Open();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  const auto run = [&](const char* sql) { EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK); };
  const std::pair<const char*, std::function<void()>> deeds[] = {
      {"reads", [&] { run("SELECT count(*) FROM record"); }},
      {"snapshot", [&] { EXPECT_TRUE(SnapshotStore(path_, folder_.File("snapshot.db")).ok()); }},
      {"vacuum into", [&] { run(("VACUUM INTO '" + folder_.File("into.db") + "'").c_str()); }},
      {"checkpoint", [&] { run("PRAGMA wal_checkpoint(TRUNCATE)"); }},
      {"writes", [&] { run("INSERT INTO anchor (text) VALUES ('by hand')"); }},
      {"vacuum", [&] { run("DELETE FROM record; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"); }},
      {"another date", [&] { std::filesystem::last_write_time(path_, {}); }}};
  for (const auto& [name, deed] : deeds) {
    SCOPED_TRACE(name);
    deed();
    for (int i = 0; i < 3; ++i) {
      const absl::Status status = store->Append(std::vector<Record>(10, GoodRecord())).status();
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(store->Health().ok());
  }
  sqlite3_close(db);
}

TEST_F(SqliteStoreTest, ALogThatASlowReaderMadeLongIsCutOnceHeIsDone) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Append(std::vector<Record>(1, GoodRecord())).ok());
  const auto log_bytes = [&] { return std::filesystem::file_size(path_ + "-wal"); };
  ASSERT_TRUE(store
                  ->Scan({},
                         [&](const Record& r) {
                           std::vector<Record> many(400, r);
                           for (size_t i = 0; i < many.size(); ++i)
                             many[i].workload = std::string(60'000, 'w') + std::to_string(i);
                           EXPECT_TRUE(store->Append(many).ok());
                         })
                  .ok());
  ASSERT_GT(log_bytes(), 20u << 20);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(store->Append(std::vector<Record>(1, GoodRecord())).ok());
  EXPECT_LE(log_bytes(), 9u << 20);
}

class WriterTest : public SqliteStoreTest {
 protected:
  WriterTest() {
    auto connection = OpenWriter(path_);
    EXPECT_TRUE(connection.ok()) << connection.status();
    writer_ = std::make_unique<Writer>(std::move(*connection), *lock_, absl::OkStatus);
  }
  static absl::Status AddAnchor(Connection& db, const std::string& text) {
    return db.Exec(("INSERT INTO anchor (text) VALUES ('" + text + "')").c_str());
  }
  int64_t CountAnchors() {
    int64_t count = -1;
    EXPECT_TRUE(writer_
                    ->Run(1,
                          [&](Connection& db) -> absl::Status {
                            TEMPER_ASSIGN_OR_RETURN(count, db.Int("SELECT count(*) FROM anchor"));
                            return absl::OkStatus();
                          })
                    .ok());
    return count;
  }

  std::unique_ptr<LockFile> lock_ = *LockFile::Take(path_);
  std::unique_ptr<Writer> writer_;
};

TEST_F(WriterTest, UndoesAChangeThatFails) {
  const absl::Status status = writer_->Run(1, [](Connection& db) -> absl::Status {
    TEMPER_RETURN_IF_ERROR(AddAnchor(db, "half"));
    return absl::InternalError("on purpose");
  });
  EXPECT_EQ(status.message(), "on purpose");
  EXPECT_EQ(CountAnchors(), 0);
}

TEST_F(WriterTest, AFailingNeighbourTakesNobodyWithIt) {
  // The writer is held in one change until the others have queued up behind it, so they form one group.
  std::promise<void> started, release;
  std::thread holder([&] {
    EXPECT_TRUE(writer_
                    ->Run(1,
                          [&](Connection&) {
                            started.set_value();
                            release.get_future().wait();
                            return absl::OkStatus();
                          })
                    .ok());
  });
  started.get_future().wait();
  std::vector<absl::Status> statuses(5);
  std::vector<std::thread> callers;
  for (int i = 0; i < 5; ++i) {
    callers.emplace_back([&, i] {
      statuses[i] = writer_->Run(
          1, [i](Connection& db) { return AddAnchor(db, i == 2 ? "it's no SQL" : "anchor" + std::to_string(i)); });
    });
  }
  while (writer_->Waiting() < callers.size()) std::this_thread::yield();
  release.set_value();
  holder.join();
  for (std::thread& caller : callers) caller.join();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(statuses[i].ok(), i != 2) << statuses[i];
  EXPECT_EQ(CountAnchors(), 4);
}

}  // namespace
}  // namespace temper
