// Older files brought up to date, copies and restores: whenever the process dies, a file is the old one or the new one.
#include <sqlite3.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "gmock/gmock.h"
#include "storage/migrations/migrations.h"
#include "storage/sqlite/open.h"
#include "tests/storage/fault_vfs.h"
#include "tests/storage/files.h"
#include "tests/storage/testing.h"

namespace temper {
namespace {

using testing::HasSubstr;

constexpr int kOldRecords = 40;

// A file of version 2, as the Temper that knew no other left it.
void MakeSchema2(const std::string& path) {
  std::string sql = absl::StrCat("PRAGMA application_id = ", kApplicationId, ";", std::string(Migrations()[0]), ";",
                                 std::string(Migrations()[1]), "; PRAGMA user_version = 2; PRAGMA journal_mode = WAL;");
  const std::string workload = GoodRecord().workload;
  absl::StrAppend(&sql, "INSERT INTO workload VALUES (1, '", HashText(StableHash(workload)), "', '", workload, "');",
                  "INSERT INTO anchor VALUES (1, '", GoodRecord().anchor, "');", "INSERT INTO target VALUES (1, '",
                  GoodRecord().target, "');", "INSERT INTO device VALUES (1, 'laptop', 'Some CPU, 2 cores');");
  for (int i = 1; i <= kOldRecords; ++i) {
    absl::StrAppend(&sql, "INSERT INTO record VALUES (", i, ", 1, 1, 1, 1, 2, 'model', 'matmul.packed', 1, 'config", i,
                    "', '1.1.19', 'search', 'ok', '', '[0.", i, ",0.", i, ",0.", i, "]', 0.", i, ", 'xgb', 3, ", i,
                    ");");
  }
  absl::StrAppend(
      &sql, "INSERT INTO best VALUES (1, 1, 1, 1, 2, 'matmul.packed', 1, 0, 0.1, 1);",
      "INSERT INTO job VALUES (3, 'm', 'llvm', 'laptop', 'xgb', '1.1.19', '{\"trials\": 5}', 'done', 'why', "
      "'{\"tasks\": []}', 5, 1.5, 1, 2, 'hash', 'tuned'); INSERT INTO job VALUES (4, 'n', 'llvm', 'laptop', "
      "'xgb', '1.1.19', '{}', 'running', '', '', 0, 0, 1, 2, '', '');");
  RunSql(path, sql);
}

// The first column of the first row, read without our code.
std::string Ask(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  std::string answer = "none";
  sqlite3_open(path.c_str(), &db);
  sqlite3_exec(
      db, sql.c_str(),
      [](void* out, int, char** row, char**) {
        *static_cast<std::string*>(out) = row[0] == nullptr ? "NULL" : row[0];
        return 0;
      },
      &answer, nullptr);
  sqlite3_close(db);
  return answer;
}

// What a file of one version says of itself; two that say the same are one version, nothing of another mixed in.
std::string Schema(const std::string& path) {
  return Ask(path, "PRAGMA user_version") + " " +
         Ask(path, "SELECT group_concat(sql, char(10)) FROM (SELECT sql FROM sqlite_master ORDER BY name)");
}

class UpgradeTest : public testing::Test {
 protected:
  UpgradeTest() {
    MakeSchema2(old_);
    MakeSchema2(path_);
    const auto store = OpenStore(folder_.File("new.db"));
    EXPECT_TRUE(store.ok()) << store.status();
  }
  void ExpectOldData(const std::string& path) {
    EXPECT_EQ(Schema(path), Schema(old_));
    EXPECT_EQ(Ask(path, "SELECT count(*) FROM record"), std::to_string(kOldRecords));
    EXPECT_EQ(Ask(path, "PRAGMA integrity_check"), "ok");
  }
  void ExpectAllData(const std::string& path) {
    const auto store = OpenStore(path);
    ASSERT_TRUE(store.ok()) << store.status();
    const std::vector<Record> records = All(**store);
    ASSERT_EQ(records.size(), static_cast<size_t>(kOldRecords));
    EXPECT_EQ(records[4].config, "config5");
    EXPECT_EQ(records[4].origin, "measured");
    EXPECT_EQ(records[4].candidate, 0);
    // Those whose samples are above as a store writes them: 0.1, not 0.10.
    const auto again = (*store)->Import(std::span(records).first(9));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, std::vector<int64_t>(9, 0)) << "each is known for what it is";
    BestQuery query = QueryFor(GoodRecord());
    EXPECT_EQ((*store)->Best(query)->value().record.config, "config1");
    // Its default was measured before there was an index to find it by.
    query.default_template = "matmul.packed";
    query.default_config = "config10";
    EXPECT_FALSE((*store)->Best(query)->has_value());
    const auto job = (*store)->GetJob(3);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(std::tie(job->spec, job->summary, job->request, job->state, job->reason, job->build_with, job->owner),
              std::make_tuple("{\"trials\": 5}", "{\"tasks\": []}", "", "done", "why", "tuned", ""));
    EXPECT_EQ((*store)->Jobs({.state = "running"})->at(0).id, 4);
    EXPECT_EQ((*store)->LatestVerdict("hash", "llvm", "")->value().id, 3);
  }

  const TempFolder folder_;
  const std::string old_ = folder_.File("old.db"), path_ = folder_.File("records.db");
};

TEST_F(UpgradeTest, KeepsAllThatASchema2FileHas) {
  ExpectAllData(path_);
  EXPECT_EQ(Schema(path_), Schema(folder_.File("new.db")));
  ExpectOldData(path_ + ".before-5");
  const std::string kept = Bytes(path_ + ".before-5");
  ExpectAllData(path_);
  EXPECT_EQ(Bytes(path_ + ".before-5"), kept) << "once";
}

// Job 3 measured a final that was faster, job 4 one that was measured later.
TEST_F(UpgradeTest, BestsAreThoseOfTodaysRule) {
  for (const auto& [id, job, seconds] : {std::tuple{41, 3, "0.01"}, std::tuple{42, 4, "0.02"}}) {
    RunSql(
        path_,
        absl::StrCat("INSERT INTO record VALUES (", id, ", 1, 1, 1, 1, 2, 'model', 'matmul.packed', 1, 'final", id,
                     "', '1.1.19', 'final', 'ok', '', '[", seconds, "]', ", seconds, ", 'xgb', ", job, ", ", id, ");"));
  }
  RunSql(path_, "UPDATE best SET confirmed = 1, median_s = 0.01, record_id = 41;");
  const auto store = OpenStore(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Best(QueryFor(GoodRecord()))->value().record.config, "final42");
}

TEST_F(UpgradeTest, ANewFileIsNotCopied) { EXPECT_FALSE(std::filesystem::exists(folder_.File("new.db.before-5"))); }

// Row 30 of the matrix.
TEST_F(UpgradeTest, KilledAtAnyCallTheFileIsOldOrNew) {
  const std::string new_schema = Schema(folder_.File("new.db")), old_schema = Schema(old_);
  int killed = 0, found_old = 0;
  for (int64_t nth = 1;; nth += 1 + nth / 20) {
    SCOPED_TRACE(nth);
    const TempFolder folder;
    const std::string path = folder.File("records.db");
    std::filesystem::copy_file(old_, path);
    const int died = InChild([&] {
      FaultVfs disk(nth);
      disk.KillAt(nth);
      return OpenStore(path).ok() ? 0 : 1;
    });
    const std::string schema = Schema(path);
    found_old += schema == old_schema;
    EXPECT_TRUE(schema == old_schema || schema == new_schema) << schema;
    if (std::filesystem::exists(path + ".before-5")) ExpectOldData(path + ".before-5");
    ExpectAllData(path);
    ExpectOldData(path + ".before-5");
    EXPECT_FALSE(std::filesystem::exists(path + ".before-5.temper-partial"));
    if (died == 0) break;
    EXPECT_EQ(died, 128 + SIGKILL);
    ++killed;
  }
  EXPECT_GT(killed, 20);
  EXPECT_GT(found_old, 10);
}

TEST_F(UpgradeTest, WhenPowerIsLostTheFileIsOldOrNew) {
  std::vector<FaultVfs::Image> images;
  {
    FaultVfs disk(1);
    disk.LosePowerNowAndThen(4, [&](FaultVfs::Image image) { images.push_back(std::move(image)); });
    ASSERT_TRUE(OpenStore(path_).ok());
  }
  EXPECT_GT(images.size(), 10u);
  for (const FaultVfs::Image& image : images) {
    const TempFolder folder;
    for (const auto& [name, content] : image) {
      if (name.starts_with("records.db")) Overwrite(folder.File(name), content);
    }
    ExpectAllData(folder.File("records.db"));
  }
}

TEST_F(UpgradeTest, WithoutRoomForTheCopyItRefusesInOneLine) {
  const std::string before = Bytes(path_);
  EXPECT_EQ(InChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit small{40 << 10, RLIM_INFINITY};
              if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 1;
              const absl::Status status = OpenStore(path_).status();
              if (!absl::IsResourceExhausted(status)) return 2;
              const std::string line(status.message());
              if (line.find(path_) == std::string::npos || line.find('\n') != std::string::npos) return 3;
              return line.find("not brought up to date") == std::string::npos ? 4 : 0;
            }),
            0);
  EXPECT_EQ(Bytes(path_), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".before-5"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".before-5.temper-partial"));
  ExpectAllData(path_);
}

class CopyTest : public testing::Test {
 protected:
  CopyTest() {
    const auto store = OpenStore(path_);
    EXPECT_TRUE(store.ok() && (*store)->Append(std::vector<Record>(30, GoodRecord())).ok());
  }
  size_t Count(const std::string& path) {
    const auto store = OpenStore(path, OpenMode::kReadOnly);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? All(**store).size() : 0;
  }

  const TempFolder folder_;
  const std::string path_ = folder_.File("records.db"), copy_ = folder_.File("copy.db");
};

TEST_F(CopyTest, KilledAtAnyCallASnapshotIsThereOrNot) {
  int killed = 0;
  for (int64_t nth = 1;; ++nth) {
    SCOPED_TRACE(nth);
    std::filesystem::remove(copy_);
    const int died = InChild([&] {
      FaultVfs disk(nth);
      disk.KillAt(nth);
      return SnapshotStore(path_, copy_).ok() ? 0 : 1;
    });
    EXPECT_EQ(Count(path_), 30u);
    EXPECT_EQ(std::filesystem::exists(copy_) ? Count(copy_) : 30, 30u);
    if (died == 0) break;
    EXPECT_EQ(died, 128 + SIGKILL);
    ++killed;
  }
  EXPECT_GT(killed, 5);
  for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_FALSE(file.path().string().ends_with("-partial")) << "what was cut short is swept up by the next";
}

TEST_F(CopyTest, TwoDoNotWriteOneSnapshotAtATime) {
  int held[2], release[2];
  ASSERT_TRUE(pipe(held) == 0 && pipe(release) == 0);
  const pid_t child = fork();
  if (child == 0) {
    // Holds what a process holds that writes this snapshot.
    const int fd = open((copy_ + ".temper-partial").c_str(), O_RDWR | O_CREAT, 0666);
    struct flock first_byte = {};
    first_byte.l_type = F_WRLCK;
    first_byte.l_len = 1;
    char byte = 'x';
    const bool ok = fcntl(fd, F_OFD_SETLK, &first_byte) == 0 && write(held[1], &byte, 1) == 1;
    _exit(ok && read(release[0], &byte, 1) == 1 ? 0 : 1);
  }
  char byte = 'x';
  ASSERT_EQ(read(held[0], &byte, 1), 1);
  EXPECT_TRUE(absl::IsUnavailable(SnapshotStore(path_, copy_)));
  EXPECT_TRUE(std::filesystem::exists(copy_ + ".temper-partial")) << "it is not ours to remove";
  ASSERT_EQ(write(release[1], &byte, 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(SnapshotStore(path_, copy_).ok());
}

// Closing a file that SQLite has open drops the process's locks on it; without them another process that closes the
// database last, as it believes, removes the log from under the writer.
TEST_F(CopyTest, ASnapshotBesideTheWriterLeavesItsLocksAlone) {
  int go[2], done[2];
  ASSERT_TRUE(pipe(go) == 0 && pipe(done) == 0);
  // Forked before the writer is there, so that it inherits none of what SQLite knows of the writer's locks.
  const pid_t stranger = fork();
  if (stranger == 0) {
    char byte = 'x';
    const bool told = read(go[0], &byte, 1) == 1 && Ask(path_, "SELECT count(*) FROM record") == "31";
    _exit(told && write(done[1], &byte, 1) == 1 ? 0 : 1);
  }
  close(done[1]);
  EXPECT_EQ(InChild([&] {
              auto store = OpenStore(path_);
              if (!store.ok() || !(*store)->Append(std::vector<Record>(1, GoodRecord())).ok()) return 1;
              if (!SnapshotStore(path_, copy_).ok() || !OpenStore(path_, OpenMode::kReadOnly).ok()) return 2;
              char byte = 'x';
              if (write(go[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) return 3;
              if (!(*store)->Append(std::vector<Record>(1, GoodRecord())).ok()) return 4;
              _exit(0);  // dies with what it wrote last in the log alone
              return 5;
            }),
            0);
  waitpid(stranger, nullptr, 0);
  for (const int fd : {go[0], go[1], done[0]}) close(fd);
  EXPECT_EQ(Count(path_), 32u);
  EXPECT_EQ(Count(copy_), 31u);
}

TEST_F(CopyTest, ARestoreTakesThePlaceOfWhatIsThere) {
  ASSERT_TRUE(SnapshotStore(path_, copy_).ok());
  {
    const auto store = OpenStore(path_);
    ASSERT_TRUE((*store)->Append(std::vector<Record>(5, GoodRecord())).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(RestoreStore(copy_, path_).status())) << "not under a server's feet";
  }
  EXPECT_EQ(*RestoreStore(copy_, path_), path_ + ".before-restore");
  EXPECT_EQ(Count(path_), 30u);
  EXPECT_EQ(Count(path_ + ".before-restore"), 35u);
  EXPECT_TRUE(std::filesystem::exists(copy_));
  EXPECT_EQ(*RestoreStore(copy_, path_), path_ + ".before-restore-2");
  EXPECT_EQ(Count(path_ + ".before-restore"), 35u) << "what an earlier one kept stays";
  EXPECT_EQ(*RestoreStore(copy_, folder_.File("elsewhere.db")), "");
  EXPECT_EQ(Count(folder_.File("elsewhere.db")), 30u);
}

TEST_F(CopyTest, ARestoreMendsADamagedFileWithALog) {
  ASSERT_TRUE(SnapshotStore(path_, copy_).ok());
  ASSERT_EQ(InChild([&] {
              auto store = OpenStore(path_);
              _exit(store.ok() && (*store)->Append(std::vector<Record>(5, GoodRecord())).ok() ? 0 : 1);
              return 1;
            }),
            0);
  ASSERT_GT(std::filesystem::file_size(path_ + "-wal"), 0u);
  Overwrite(path_, std::string(5000, 'x'));
  ASSERT_TRUE(RestoreStore(copy_, path_).ok());
  EXPECT_EQ(Count(path_), 30u) << "and the old log is not read into it";
  EXPECT_EQ(Bytes(path_ + ".before-restore"), std::string(5000, 'x'));
}

TEST_F(CopyTest, ARestoreFromWhatIsNoSnapshotChangesNothing) {
  std::string damaged = Bytes(path_);
  for (size_t page = 1; (page + 1) * 4096 <= damaged.size(); ++page) damaged.replace(page * 4096, 64, 64, '\xAB');
  Overwrite(copy_, damaged);
  const std::string before = Bytes(path_);
  EXPECT_TRUE(absl::IsDataLoss(RestoreStore(copy_, path_).status()));
  EXPECT_TRUE(absl::IsNotFound(RestoreStore(folder_.File("none.db"), path_).status()));
  EXPECT_EQ(Bytes(path_), before);
}

TEST_F(CopyTest, KilledAtAnyCallARestoreIsOldOrNew) {
  ASSERT_TRUE(SnapshotStore(path_, copy_).ok());
  {
    const auto store = OpenStore(path_);
    ASSERT_TRUE((*store)->Append(std::vector<Record>(5, GoodRecord())).ok());
  }
  const std::string old_file = Bytes(path_);
  std::set<size_t> found;
  for (int64_t nth = 1;; ++nth) {
    SCOPED_TRACE(nth);
    Overwrite(path_, old_file);
    const int died = InChild([&] {
      FaultVfs disk(nth);
      disk.KillAt(nth);
      return RestoreStore(copy_, path_).ok() ? 0 : 1;
    });
    const size_t count = Count(path_);
    EXPECT_TRUE(count == 35 || count == 30) << count;
    found.insert(count);
    if (died == 0) break;
    EXPECT_EQ(died, 128 + SIGKILL);
  }
  EXPECT_EQ(found, (std::set<size_t>{30, 35}));
}

// Row 28: what is too large to be looked at as a whole.
TEST_F(CopyTest, ALargeFileIsCheckedAsFarAsTimeAllows) {
  RunSql(path_,
         "INSERT INTO job VALUES (1, '', '', '', '', '', '', 0, 'queued', '', 0, 0, '', '', 0, 0);"
         "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) "
         "INSERT INTO lease SELECT i, '', 1, zeroblob(1048576), 0 FROM n; PRAGMA wal_checkpoint(TRUNCATE)");
  ASSERT_GT(std::filesystem::file_size(path_), 32u << 20);
  EXPECT_EQ(Count(path_), 30u);
  const std::string good = Bytes(path_);
  for (const char* table : {"workload", "record", "best", "job", "audit"}) {
    SCOPED_TRACE(table);
    std::string bytes = good;
    const int64_t root =
        std::stoll(Ask(path_, absl::StrCat("SELECT rootpage FROM sqlite_master WHERE name = '", table, "'")));
    bytes.replace((root - 1) * 4096, 64, 64, '\xAB');
    Overwrite(path_, bytes);
    EXPECT_TRUE(absl::IsDataLoss(OpenStore(path_).status()));
    EXPECT_TRUE(absl::IsDataLoss(OpenStore(path_, OpenMode::kReadOnly).status()));
    EXPECT_EQ(Bytes(path_), bytes) << "the file was touched";
    Overwrite(path_, good);
  }
}

}  // namespace
}  // namespace temper
