// The commands of `temper db` that need no measurement.
#include <sqlite3.h>

#include "tests/chaos/process.h"
#include "tests/cli/cli_fixture.h"
#include "tests/storage/testing.h"

namespace temper::cli_test {
namespace {

class DbTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    db_ = dir_ + "/records.db";
    const auto store = OpenStore(db_);
    ASSERT_TRUE(store.ok()) << store.status();
    std::vector<Record> records(10, GoodRecord());
    // Far behind the first, which is the best: what is near a provisional best is kept, lest it was the default's.
    std::fill(records.begin() + 1, records.end(), WithCosts(GoodRecord(), {1e-2, 1e-2, 1e-2}));
    records[3] = Failure(Outcome::kBuildFailed, "no");
    for (size_t i = 0; i < records.size(); ++i) records[i].config = "config" + std::to_string(i);
    ASSERT_TRUE((*store)->Append(records).ok());
  }
  static void RunSql(const std::string& path, const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  // The manual's commands from this line on, to the end of their block.
  static std::string ManualsBlock(const std::string& begin) {
    std::ifstream manual(std::string(TEMPER_SOURCE_DIR) + "/docs/operations.md");
    const std::string text((std::istreambuf_iterator<char>(manual)), std::istreambuf_iterator<char>());
    const size_t at = text.find(begin);
    EXPECT_NE(at, std::string::npos) << begin;
    return text.substr(at, text.find("```", at) - at);
  }
  size_t Count(const std::string& options = "") {
    return Temper("db list --json --db " + db_ + " " + options).Lines().size();
  }
  static bool IsOneLine(const Result& result) {
    return result.code == 1 && std::count(result.out.begin(), result.out.end(), '\n') == 1;
  }

  std::string db_;
};

TEST_F(DbTest, ListsByOutcomeAndNamesThoseThatThereAre) {
  EXPECT_EQ(Count("--outcome build_failed"), 1u);
  EXPECT_EQ(Count("--outcome ok"), 9u);
  const Result refused = Temper("db list --db " + db_ + " --outcome great");
  EXPECT_TRUE(IsOneLine(refused)) << refused.out;
  EXPECT_NE(refused.out.find("no outcome 'great'; there are: ok, "), std::string::npos) << refused.out;
}

TEST_F(DbTest, SaysForProgramsWhatWasMerged) {
  for (const int added : {10, 0}) {
    const Result merged = Temper("db merge " + db_ + " --json --db " + dir_ + "/other.db");
    ASSERT_EQ(merged.Lines().size(), 1u) << merged.out;
    EXPECT_EQ(merged.Lines()[0], nlohmann::json({{"added", added}, {"known", 10 - added}}));
  }
}

TEST_F(DbTest, ARecordThatNoneMayBeIsNotMergedAndIsNamed) {
  RunSql(db_, "UPDATE record SET template_version = -1 WHERE id = 4");
  const Result refused = Temper("db merge " + db_ + " --db " + dir_ + "/other.db");
  EXPECT_TRUE(IsOneLine(refused)) << refused.out;
  EXPECT_NE(refused.out.find(db_ + ": record 4: "), std::string::npos) << refused.out;
  EXPECT_EQ(Temper("db list --json --db " + dir_ + "/other.db").Lines().size(), 0u);
}

// As docs/operations.md says.
TEST_F(DbTest, WhatIsLeftOfADamagedDatabaseIsSavedByTheShellOfSqlite) {
  if (std::system("sqlite3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no sqlite3";
  const std::string damaged = dir_ + "/damaged.db", saved = dir_ + "/saved.db";
  {
    std::vector<Record> many(2000, GoodRecord());
    for (size_t i = 0; i < many.size(); ++i) many[i].config = "many" + std::to_string(i);
    ASSERT_TRUE((*OpenStore(damaged))->Append(many).ok());
  }
  constexpr int kPage = 4096;
  const auto page = static_cast<std::streamoff>(fs::file_size(damaged) / kPage / 2);
  std::fstream(damaged, std::ios::in | std::ios::out | std::ios::binary).seekp(page * kPage)
      << std::string(kPage, '\xa5');
  const std::string block = ManualsBlock("sqlite3 damaged.db .dump");
  EXPECT_TRUE(IsOneLine(Temper("db list --db " + damaged)));
  ASSERT_EQ(std::system(("cd " + dir_ + " && PATH=" + kBin + ":$PATH && " + block + " > /dev/null 2>&1").c_str()), 0);
  const size_t kept = Temper("db list --json --db " + saved).Lines().size();
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(Count(), 10 + kept) << "beside those that were there";
}

TEST_F(DbTest, PrunesOnlyWhatItIsTold) {
  EXPECT_TRUE(IsOneLine(Temper("db prune --db " + db_)));
  EXPECT_EQ(Temper("db prune --keep-records 2 --dry-run --db " + db_).out,
            "would remove 7 records, 0 jobs, 0 lines of the audit\n");
  EXPECT_EQ(Count(), 10u);
  EXPECT_EQ(Temper("db prune --keep-records 2 --db " + db_).out, "removed 7 records, 0 jobs, 0 lines of the audit\n");
  EXPECT_EQ(Count(), 3u) << "the best is the oldest";
  EXPECT_EQ(Temper("db best --json --db " + db_).Lines().at(0)["config"], "config0");
}

TEST_F(DbTest, AServersRecordsAreListedAndItsBestShown) {
  const std::vector<nlohmann::json> all = Temper("db list --json --db " + db_).Lines(),
                                    best = Temper("db best --json --db " + db_).Lines();
  ServerProcess server;
  ASSERT_TRUE(server.Start({.db = db_}).ok()) << server.Errors();
  const std::string there = " --json --server " + server.address();
  EXPECT_EQ(Temper("db list" + there).Lines(), all);
  // The server of the environment goes before its database, and behind what the command says.
  const std::string environment = "TEMPER_SERVER=" + server.address() + " TEMPER_DB=" + dir_ + "/none.db ";
  EXPECT_EQ(Temper("db list --json", environment).Lines(), all);
  EXPECT_TRUE(IsOneLine(Temper("db list --json --db " + dir_ + "/none.db", environment)));
  EXPECT_EQ(Temper("db list --outcome build_failed" + there).Lines().size(), 1u);
  EXPECT_EQ(Temper("db best" + there).Lines(), best);
  EXPECT_EQ(best.size(), 1u);

  // By hand, and a hundred times as fast: they count on an admin's word alone.
  std::vector<Record> faster(1, WithCosts(GoodRecord(), {1e-5, 1e-5, 1e-5}));
  faster[0].config = "faster";
  std::ofstream(dir_ + "/faster.jsonl") << ToJsonLine(faster[0]) << "\n";
  EXPECT_EQ(Temper("db import " + dir_ + "/faster.jsonl" + there).code, 0);
  EXPECT_EQ(Temper("db best" + there).Lines(), best);
  EXPECT_EQ(Temper("db import --trusted " + dir_ + "/faster.jsonl" + there).code, 0);
  EXPECT_EQ(Temper("db best" + there).Lines().at(0)["config"], "faster");
  EXPECT_TRUE(IsOneLine(Temper("db import --trusted " + dir_ + "/faster.jsonl --db " + dir_ + "/other.db")));
}

TEST_F(DbTest, AnImportOfWhatCanNotBeReadToItsEndFails) {
  const Result folder = Temper("db import " + dir_ + " --db " + db_);
  EXPECT_EQ(folder.code, 1);
  EXPECT_TRUE(IsOneLine(folder)) << folder.out;
  EXPECT_NE(folder.out.find("cannot read " + dir_), std::string::npos) << folder.out;
  const Result endless = Temper("db import /dev/zero --db " + db_);
  EXPECT_EQ(endless.code, 1);
  EXPECT_NE(endless.out.find("/dev/zero:1: not a record: the line is longer than 1 MiB"), std::string::npos)
      << endless.out;
  EXPECT_EQ(Count(), 10u);
}

// What has no newline at its end, has empty lines, or a line of the greatest length is read all the same.
TEST_F(DbTest, AnImportReadsEveryLine) {
  const std::string file = dir_ + "/lines.jsonl", fill(1 << 20, ' ');
  Record r = GoodRecord();
  std::ofstream out(file);
  for (const char* end : {"\n\n", "\n", ""}) {
    r.config += "x";
    std::string line = ToJsonLine(r);
    out << line << fill.substr(line.size()) << end;
  }
  out.close();
  EXPECT_EQ(Temper("db import " + file + " --db " + dir_ + "/lines.db").out, "3 records added\n");
}

TEST_F(DbTest, AValueThatNoRecordMayHaveIsNamedByItsLine) {
  const std::string file = dir_ + "/values.jsonl";
  Record bad = GoodRecord();
  bad.threads = 0;
  std::ofstream(file) << ToJsonLine(GoodRecord()) << "\n" << ToJsonLine(bad) << "\n";
  const Result refused = Temper("db import " + file + " --db " + dir_ + "/values.db");
  EXPECT_TRUE(IsOneLine(refused)) << refused.out;
  EXPECT_NE(refused.out.find(file + ":2: "), std::string::npos) << refused.out;
}

TEST_F(DbTest, AnExportSaysHowMuchItWroteAndInPlaceOfWhat) {
  const std::string file = dir_ + "/records.jsonl", written = file + ": 10 records";
  EXPECT_EQ(Temper("db export " + file + " --db " + db_).out, written + "\n");
  EXPECT_EQ(Temper("db export " + file + " --db " + db_).out, written + ", in the place of what it held\n");
}

TEST_F(DbTest, RestoresASnapshot) {
  const std::string copy = dir_ + "/copy.db";
  ASSERT_EQ(Temper("db export --snapshot " + copy + " --db " + db_).code, 0);
  ASSERT_EQ(Temper("db prune --keep-records 1 --db " + db_).code, 0);
  EXPECT_TRUE(IsOneLine(Temper("db restore " + dir_ + "/none.db --db " + db_)));
  const Result restored = Temper("db restore " + copy + " --db " + db_);
  EXPECT_EQ(restored.code, 0) << restored.out;
  EXPECT_EQ(Count(), 10u);
  EXPECT_NE(restored.out.find(db_ + ".before-restore"), std::string::npos) << restored.out;
  db_ += ".before-restore";
  EXPECT_EQ(Count(), 2u);
  const Result made = Temper("db restore " + copy + " --db " + dir_ + "/new.db");
  EXPECT_EQ(made.out, dir_ + "/new.db is what " + copy + " held\n");
}

}  // namespace
}  // namespace temper::cli_test
