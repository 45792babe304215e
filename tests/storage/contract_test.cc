// What store.h promises, asked of every implementation.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "tests/storage/testing.h"

namespace temper {
namespace {

struct StoreKind {
  const char* name;
  std::unique_ptr<Store> (*make)(const TempFolder&);
};

std::unique_ptr<Store> MakeSqlite(const TempFolder& folder) {
  auto store = OpenSqliteStore(folder.File("records.db"), OpenMode::kReadWrite);
  EXPECT_TRUE(store.ok()) << store.status();
  return std::move(*store);
}

class StoreContract : public testing::TestWithParam<StoreKind> {
 protected:
  StoreContract() : store_(GetParam().make(folder_)) {}

  int64_t Add(const Record& r) {
    const auto ids = store_->Append({&r, 1});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? ids->front() : -1;
  }
  absl::Status Try(const Record& r) { return store_->Append({&r, 1}).status(); }
  std::optional<BestAnswer> Best(const BestQuery& query) {
    auto answer = store_->Best(query);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : std::nullopt;
  }
  // "level config", or "nothing".
  std::string BestText(const BestQuery& query) {
    const auto answer = Best(query);
    return answer.has_value() ? answer->level + " " + answer->record.config : "nothing";
  }

  TempFolder folder_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreContract, GivesBackEveryFieldOfARecord) {
  Record r = GoodRecord();
  r.costs_s = {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308};
  r.cache_policy = "flushed";
  r.purpose = "canary";
  r.id = Add(r);
  const std::vector<Record> found = All(*store_);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(Line(found[0]), Line(r));
  EXPECT_EQ(found[0].costs_s, r.costs_s) << "samples are kept to the last bit";
}

TEST_P(StoreContract, KeepsAFailureWithItsClassAndText) {
  Record r = Failure("wrong_answer", std::string("first line\nzero \0 and \xff bytes", 29));
  r.id = Add(r);
  const std::vector<Record> found = All(*store_, {.outcome = "wrong_answer"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].error, r.error);
  EXPECT_TRUE(found[0].costs_s.empty());
}

TEST_P(StoreContract, CutsALongErrorBetweenCharacters) {
  std::string error;
  while (error.size() < 2000) error += "\u20ac";  // three bytes, which do not divide 1024
  Add(Failure("build_failed", error));
  const std::string kept = All(*store_)[0].error;
  EXPECT_EQ(kept.size(), 1023u);
  EXPECT_EQ(kept, error.substr(0, 1023));
}

TEST_P(StoreContract, RefusesWhatIsNoRecord) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<Record> bad;
  for (double cost : {0.0, -1e-4, std::nan(""), inf}) bad.push_back(WithCosts(GoodRecord(), {1e-4, cost}));
  bad.push_back(WithCosts(GoodRecord(), {}));
  const auto broken = [&](auto change) {
    Record r = GoodRecord();
    change(r);
    bad.push_back(r);
  };
  broken([](Record& r) { r.outcome = "great"; });
  broken([](Record& r) { r.purpose = "fun"; });
  broken([](Record& r) { r.cache_policy = "hot"; });
  broken([](Record& r) { r.threads = 0; });
  broken([](Record& r) { r.workload = ""; });
  broken([](Record& r) { r.target = ""; });
  for (const Record& r : bad) EXPECT_TRUE(absl::IsInvalidArgument(Try(r))) << Line(r);
  EXPECT_TRUE(All(*store_).empty());
}

TEST_P(StoreContract, AppendsAllOrNothing) {
  std::vector<Record> records(3, GoodRecord());
  records[2].outcome = "great";
  EXPECT_FALSE(store_->Append(records).ok());
  EXPECT_TRUE(All(*store_).empty());
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "nothing");
}

TEST_P(StoreContract, GivesRisingIdsInTheOrderOfTheRecords) {
  std::vector<Record> records(3, GoodRecord());
  for (int i = 0; i < 3; ++i) records[i].config = "n=" + std::to_string(i);
  const auto ids = store_->Append(records);
  ASSERT_TRUE(ids.ok());
  ASSERT_EQ(ids->size(), 3u);
  EXPECT_TRUE(std::is_sorted(ids->begin(), ids->end()));
  const std::vector<Record> found = All(*store_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(found[i].id, (*ids)[i]);
    EXPECT_EQ(found[i].config, records[i].config);
  }
  EXPECT_TRUE(store_->Append({}).ok()) << "nothing to append is no error";
}

TEST_P(StoreContract, ScansByEachField) {
  Add(GoodRecord());
  const auto only = [&](auto change, const RecordFilter& filter) {
    Record r = GoodRecord();
    change(r);
    const int64_t id = Add(r);
    const std::vector<Record> found = All(*store_, filter);
    EXPECT_EQ(found.size(), 1u);
    if (!found.empty()) {
      EXPECT_EQ(found[0].id, id);
    }
  };
  only([](Record& r) { r.workload = "w"; }, {.workload = "w"});
  only([](Record& r) { r.anchor = "a"; }, {.anchor = "a"});
  only([](Record& r) { r.target = "t"; }, {.target = "t"});
  only([](Record& r) { r.device_key = "d"; }, {.device_key = "d"});
  only([](Record& r) { r.template_name = "x"; }, {.template_name = "x"});
  only([](Record& r) { r.purpose = "final"; }, {.purpose = "final"});
  only([](Record& r) { r.outcome = "raced_out"; }, {.outcome = "raced_out"});
  only([](Record& r) { r.job = 99; }, {.job = 99});
  EXPECT_EQ(All(*store_).size(), 9u);
  EXPECT_TRUE(All(*store_, {.workload = "w", .anchor = "a"}).empty()) << "all fields must fit at once";
}

TEST_P(StoreContract, ScansInPages) {
  for (int i = 0; i < 5; ++i) Add(GoodRecord());
  std::vector<int64_t> seen;
  RecordFilter page{.limit = 2};
  while (true) {
    const std::vector<Record> found = All(*store_, page);
    if (found.empty()) break;
    EXPECT_LE(found.size(), 2u);
    for (const Record& r : found) seen.push_back(r.id);
    page.after_id = found.back().id;
  }
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_P(StoreContract, ScansTheNewestFirst) {
  std::vector<int64_t> ids;
  for (int i = 0; i < 5; ++i) {
    Record r = GoodRecord();
    if (i == 3) r.template_name = "another";
    const int64_t id = Add(r);
    if (i != 3) ids.insert(ids.begin(), id);
  }
  const auto scanned = [&](RecordFilter filter) {
    std::vector<int64_t> found;
    filter.template_name = GoodRecord().template_name;
    filter.newest_first = true;
    for (const Record& r : All(*store_, filter)) found.push_back(r.id);
    return found;
  };
  EXPECT_EQ(scanned({}), ids);
  EXPECT_EQ(scanned({.limit = 2}), (std::vector<int64_t>{ids[0], ids[1]})) << "a limit keeps the newest";
  EXPECT_EQ(scanned({.after_id = ids[2]}), (std::vector<int64_t>{ids[0], ids[1]}));
}

TEST_P(StoreContract, LetsAVisitorUseTheStore) {
  Add(GoodRecord());
  int visits = 0;
  ASSERT_TRUE(store_
                  ->Scan({},
                         [&](const Record&) {
                           ++visits;
                           Add(GoodRecord());
                           EXPECT_TRUE(Best(QueryFor(GoodRecord())).has_value());
                         })
                  .ok());
  EXPECT_EQ(visits, 1) << "a scan shows the state it began with";
  EXPECT_EQ(All(*store_).size(), 2u);
}

TEST_P(StoreContract, CallsBestWhatHasTheSmallestMedian) {
  Record lucky = WithCosts(GoodRecord(), {1e-6, 5e-4, 5e-4});
  lucky.config = "lucky";
  Record steady = WithCosts(GoodRecord(), {3e-4, 3e-4, 3e-4, 3e-4});
  steady.config = "steady";
  Add(lucky);
  Add(steady);
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact steady");
}

TEST_P(StoreContract, KeepsTheOlderOfEquals) {
  const int64_t first = Add(GoodRecord());
  Add(GoodRecord());
  EXPECT_EQ(Best(QueryFor(GoodRecord()))->record.id, first);
}

TEST_P(StoreContract, NeverCallsBestWhatMayNotBe) {
  Add(Failure("run_crashed", "signal 11"));
  Add(WithCosts(GoodRecord(), {1e-9, 1e-9}));  // provisional, but with two samples only
  Record raced = WithCosts(GoodRecord(), {1e-9, 1e-9, 1e-9});
  raced.outcome = "raced_out";
  Add(raced);
  Record canary = WithCosts(GoodRecord(), {1e-9, 1e-9, 1e-9});
  canary.purpose = "canary";
  Add(canary);
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "nothing");
  EXPECT_TRUE(AllBest(*store_).empty());
}

TEST_P(StoreContract, PutsAFinalBeforeAnyProvisional) {
  Record final = WithCosts(GoodRecord(), {4e-4});
  final.purpose = "final";
  final.config = "final";
  Add(GoodRecord());
  Add(final);
  Add(WithCosts(GoodRecord(), {1e-9, 1e-9, 1e-9}));
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact final");
  final.config = "faster final";
  final.costs_s = {3.9e-4};
  Add(final);
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact faster final");
}

TEST_P(StoreContract, ARevalidationRetiresWhatIsOlder) {
  const auto named = [](const char* config, double cost, const char* purpose) {
    Record r = WithCosts(GoodRecord(), {cost, cost, cost});
    r.config = config;
    r.purpose = purpose;
    return r;
  };
  Add(named("lucky", 1e-5, "final"));
  Add(named("steady", 2e-5, "final"));
  // The same config, measured again: its older time no longer counts, others' do.
  Add(named("lucky", 3e-5, "revalidate"));
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact steady");
  // Another code generator: none of the older times count, not even of configs that were not measured again.
  Record again = named("lucky", 9e-5, "revalidate");
  again.codegen_id = "2.1.19";
  Add(again);
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact lucky");
  // One that failed retires nothing; one of another device neither, nor one that is older.
  Record failed = again, elsewhere = again, older = again;
  failed.outcome = "run_crashed";
  failed.costs_s.clear();
  elsewhere.device_key = "server";
  older.time_unix_ms -= 1;
  for (Record* r : {&failed, &elsewhere, &older}) {
    r->codegen_id = "3.1.19";
    r->costs_s.assign(r->costs_s.size(), 9e-4);
    Add(*r);
  }
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact lucky");
  // What comes later is as good as ever.
  Record later = named("later", 8e-5, "final");
  Add(later);
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact later");
}

TEST_P(StoreContract, AnswersOnTheNearestLevel) {
  // From the farthest to the nearest, each slower than the one before: nearness goes before speed.
  Record kin = WithCosts(GoodRecord(), {1e-6, 1e-6, 1e-6});
  kin.workload = "same anchor, other epilogue";
  kin.config = "kin";
  Record elsewhere = WithCosts(GoodRecord(), {1e-5, 1e-5, 1e-5});
  elsewhere.device_key = "server";
  elsewhere.fingerprint = "Other CPU";
  elsewhere.config = "elsewhere";
  Record sibling = WithCosts(GoodRecord(), {1e-4, 1e-4, 1e-4});
  sibling.fingerprint = "Third CPU";
  sibling.config = "sibling";
  Record threads = WithCosts(GoodRecord(), {1e-3, 1e-3, 1e-3});
  threads.threads = 1;
  threads.device_key = "other name";
  threads.config = "one thread";
  Record own = WithCosts(GoodRecord(), {1e-2, 1e-2, 1e-2});
  own.config = "own";
  const BestQuery query = QueryFor(GoodRecord());
  EXPECT_EQ(BestText(query), "nothing");
  Add(kin);
  EXPECT_EQ(BestText(query), "borrowed kin");
  Add(threads);
  EXPECT_EQ(BestText(query), "target one thread");
  Add(elsewhere);
  EXPECT_EQ(BestText(query), "target elsewhere");
  Add(sibling);
  EXPECT_EQ(BestText(query), "key sibling");
  Add(own);
  EXPECT_EQ(BestText(query), "exact own");

  BestQuery other = query;
  other.target = "llvm -mcpu=nehalem";
  EXPECT_EQ(BestText(other), "nothing") << "code for another target never serves";
  other = query;
  other.fingerprint = "";
  EXPECT_EQ(BestText(other), "key sibling") << "who does not know the device asks by key";
  other.device_key = "";
  EXPECT_EQ(BestText(other), "target elsewhere");
}

TEST_P(StoreContract, BorrowsFromTheNearestDevice) {
  Record near = GoodRecord();
  near.workload = "other epilogue";
  near.config = "near";
  Record far = WithCosts(near, {1e-9, 1e-9, 1e-9});
  far.fingerprint = "Other CPU";
  far.device_key = "far";
  far.config = "far";
  Add(far);
  Add(near);
  BestQuery query = QueryFor(GoodRecord());
  EXPECT_EQ(BestText(query), "borrowed near");
  query.anchor = "";
  EXPECT_EQ(BestText(query), "nothing");
}

TEST_P(StoreContract, ServesOnlyTheTemplatesAllowed) {
  Record old = GoodRecord();
  old.config = "old";
  Record winograd = WithCosts(GoodRecord(), {1e-5, 1e-5, 1e-5});
  winograd.template_name = "conv2d.winograd";
  winograd.config = "winograd";
  Add(old);
  Add(winograd);
  BestQuery query = QueryFor(GoodRecord());
  EXPECT_EQ(BestText(query), "exact winograd");
  query.templates = {{"matmul.packed", 1}};
  EXPECT_EQ(BestText(query), "exact old");
  query.templates = {{"matmul.packed", 2}, {"conv2d.winograd", 3}};
  EXPECT_EQ(BestText(query), "nothing") << "another version of a template is another template";
}

TEST_P(StoreContract, RefusesToGuessATargetOrAWorkload) {
  BestQuery query = QueryFor(GoodRecord());
  query.target = "";
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Best(query).status()));
  query = QueryFor(GoodRecord());
  query.workload = "";
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Best(query).status()));
}

TEST_P(StoreContract, ListsTheBestOfEachWorkloadTargetAndKey) {
  Record slow = WithCosts(GoodRecord(), {1e-2, 1e-2, 1e-2});
  slow.fingerprint = "Other CPU of the same key";
  slow.config = "slow";
  Record other = GoodRecord();
  other.device_key = "server";
  other.config = "other";
  Record second = GoodRecord();
  second.workload = "second";
  second.config = "second";
  Add(slow);
  Add(second);
  Add(other);
  Add(GoodRecord());
  std::vector<std::string> configs;
  for (const Record& r : AllBest(*store_)) configs.push_back(r.config);
  EXPECT_EQ(configs, (std::vector<std::string>{"second", "other", GoodRecord().config})) << "by id";
  EXPECT_EQ(AllBest(*store_, {.device_key = "server"}).size(), 1u);
  EXPECT_EQ(AllBest(*store_, {.workload = "second"}).size(), 1u);
  EXPECT_EQ(AllBest(*store_, {.limit = 2}).size(), 2u);
  EXPECT_TRUE(AllBest(*store_, {.template_name = "conv2d.direct"}).empty());
}

TEST_P(StoreContract, AProvisionalBestMustBeatTheDefaultByAMargin) {
  BestQuery query = QueryFor(GoodRecord());
  query.default_template = GoodRecord().template_name;
  query.default_config = "default";
  Record close = WithCosts(GoodRecord(), {0.95e-3, 0.95e-3, 0.95e-3});
  close.config = "close";
  Add(close);
  EXPECT_EQ(BestText(query), "exact close") << "the default was not measured";
  Record standard = WithCosts(GoodRecord(), {1e-3, 1e-3, 1e-3});
  standard.config = "default";
  Record elsewhere = standard;
  elsewhere.device_key = elsewhere.fingerprint = "elsewhere";
  Add(elsewhere);
  EXPECT_EQ(BestText(query), "exact close") << "nor is it known on this device";
  Add(standard);
  EXPECT_EQ(BestText(query), "nothing");
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact close") << "who names no default is told what is fastest";
  Record clear = WithCosts(close, {0.9e-3, 0.9e-3, 0.9e-3});
  clear.config = "clear";
  Add(clear);
  EXPECT_EQ(BestText(query), "exact clear");
  Record final = WithCosts(close, {0.99e-3});
  final.purpose = "final";
  final.config = "final";
  Add(final);
  EXPECT_EQ(BestText(query), "exact final") << "finals were held beside the default";
}

TEST_P(StoreContract, WhatFailsLaterIsBestNoLonger) {
  const auto config = [](Record r, const std::string& name, double seconds) {
    r.config = name;
    if (r.ok()) r.costs_s = {seconds, seconds, seconds};
    return r;
  };
  Record final = config(GoodRecord(), "wrong", 1e-4);
  final.purpose = "final";
  Add(config(GoodRecord(), "third", 3e-4));
  Add(config(GoodRecord(), "wrong", 0.9e-4));
  Add(config(GoodRecord(), "second", 2e-4));
  Add(final);
  const BestQuery query = QueryFor(GoodRecord());
  EXPECT_EQ(BestText(query), "exact wrong");
  Add(config(Failure("infrastructure", "the worker's own"), "wrong", 0));
  EXPECT_EQ(BestText(query), "exact wrong");
  Record elsewhere = config(Failure("wrong_answer", "there"), "wrong", 0);
  elsewhere.fingerprint = "Other CPU";
  Add(elsewhere);
  EXPECT_EQ(BestText(query), "exact wrong");
  Add(config(Failure("wrong_answer", "output 0"), "wrong", 0));
  EXPECT_EQ(BestText(query), "exact second");
  EXPECT_EQ(AllBest(*store_).at(0).config, "second");
  Add(config(Failure("run_crashed", "SIGSEGV"), "second", 0));
  EXPECT_EQ(BestText(query), "exact third") << "and what failed before does not come back";
  Add(config(Failure("run_timeout", "still running"), "third", 0));
  EXPECT_EQ(BestText(query), "nothing");
  Add(config(GoodRecord(), "third", 3e-4));
  EXPECT_EQ(BestText(query), "exact third") << "measured again, it may";
}

TEST_P(StoreContract, ADefaultMayBeBestByAnyLead) {
  Record standard = GoodRecord();
  BestQuery query = QueryFor(standard);
  query.default_template = standard.template_name;
  query.default_config = standard.config;
  Add(standard);
  Add(standard);
  EXPECT_EQ(BestText(query), "exact " + standard.config);
}

TEST_P(StoreContract, ImportsEachTrialOnce) {
  std::vector<Record> records(3, GoodRecord());
  records[1].config = "other";
  records[2] = Failure("build_failed", std::string(2000, 'x'));
  records[2].config = "broken";
  for (Record& r : records) r.job = 5;
  const auto first = store_->Import(records);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(std::count(first->begin(), first->end(), 0), 0);
  for (const Record& r : All(*store_)) EXPECT_EQ(r.job, 0) << "jobs are those of another store";
  for (Record& r : records) r.job = 6;
  records.push_back(GoodRecord());
  records.back().time_unix_ms += 1;
  records.push_back(records.back());
  const auto second = store_->Import(records);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((std::vector<int64_t>{second->begin(), second->begin() + 3}), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_GT((*second)[3], first->back());
  EXPECT_EQ((*second)[4], 0) << "twice in one import";
  EXPECT_EQ(All(*store_).size(), 4u);
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact " + GoodRecord().config);
  records[0].outcome = "great";
  records[1].time_unix_ms = 1;
  EXPECT_FALSE(store_->Import(records).ok());
  EXPECT_EQ(All(*store_).size(), 4u) << "all or nothing";
}

TEST_P(StoreContract, TheNewestVerdictOnAModelCounts) {
  const auto verdict = [&](const std::string& device_key) -> std::string {
    const auto job = store_->LatestVerdict("m", "t", device_key);
    EXPECT_TRUE(job.ok()) << job.status();
    return job->has_value() ? (*job)->build_with : "none";
  };
  const auto add = [&](const std::string& model, const std::string& target, const std::string& key,
                       const std::string& build_with) {
    JobRow job;
    job.model_hash = model;
    job.target = target;
    job.device_key = key;
    job.build_with = build_with;
    EXPECT_TRUE(store_->CreateJob(job).ok());
  };
  EXPECT_EQ(verdict(""), "none");
  add("m", "t", "a", "default");
  add("m", "t", "a", "");  // not measured: says nothing
  add("m", "other target", "a", "tuned");
  add("other model", "t", "a", "tuned");
  EXPECT_EQ(verdict("a"), "default");
  EXPECT_EQ(verdict(""), "default");
  EXPECT_EQ(verdict("b"), "none");
  add("m", "t", "b", "tuned");
  EXPECT_EQ(verdict("a"), "default");
  EXPECT_EQ(verdict("b"), "tuned");
  EXPECT_EQ(verdict(""), "tuned");
}

TEST_P(StoreContract, TakesJobsThroughTheirStates) {
  JobRow job;
  job.model = "resnet18.onnx";
  job.target = "llvm";
  job.device_key = "laptop";
  job.tuner = "xgb";
  job.codegen_id = "1.1.19";
  job.spec = R"({"trials": 500})";
  job.created_unix_ms = 1;
  const auto first = store_->CreateJob(job);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = store_->CreateJob(job);
  ASSERT_TRUE(second.ok());
  EXPECT_GT(*second, *first);
  job.id = *first;
  job.state = "failed";
  job.reason = "no worker";
  job.summary = "{}";
  job.trials = 12;
  job.best_ms = 3.25;
  job.model_hash = "0123456789abcdef";
  job.build_with = "default";
  job.updated_unix_ms = 2;
  ASSERT_TRUE(store_->UpdateJob(job).ok());
  const auto read = store_->GetJob(*first);
  ASSERT_TRUE(read.ok());
  const auto fields = [](const JobRow& j) {
    return std::tie(j.id, j.model, j.target, j.device_key, j.tuner, j.codegen_id, j.spec, j.state, j.reason, j.summary,
                    j.trials, j.best_ms, j.created_unix_ms, j.updated_unix_ms, j.model_hash, j.build_with);
  };
  EXPECT_EQ(fields(*read), fields(job));
  EXPECT_EQ(store_->GetJob(*second)->state, "queued");
  const auto jobs = store_->Jobs();
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].id, *second) << "newest first";
}

TEST_P(StoreContract, RefusesJobsUnknownOrInNoState) {
  JobRow job;
  job.id = 4;
  EXPECT_TRUE(absl::IsNotFound(store_->UpdateJob(job)));
  EXPECT_TRUE(absl::IsNotFound(store_->GetJob(4).status()));
  job.state = "thinking";
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CreateJob(job).status()));
  job.state = "done";
  job.build_with = "luck";
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CreateJob(job).status()));
}

TEST_P(StoreContract, SurvivesManyThreadsAtOnce) {
  constexpr int kThreads = 8, kEach = 40;
  std::vector<std::vector<int64_t>> ids(kThreads);
  std::atomic<int> empty_answers = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Record r = WithCosts(GoodRecord(), std::vector<double>(3, 1e-3 / (1 + t * kEach + i)));
        r.config = std::to_string(t * kEach + i);
        ids[t].push_back(Add(r));
        if (!Best(QueryFor(r)).has_value()) ++empty_answers;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(empty_answers, 0) << "a best is seen as soon as its record is acknowledged";
  std::set<int64_t> distinct;
  for (const auto& mine : ids) distinct.insert(mine.begin(), mine.end());
  EXPECT_EQ(distinct.size(), static_cast<size_t>(kThreads * kEach));
  EXPECT_EQ(All(*store_).size(), static_cast<size_t>(kThreads * kEach));
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact " + std::to_string(kThreads * kEach - 1));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract,
                         testing::Values(StoreKind{"sqlite", MakeSqlite},
                                         StoreKind{"memory", [](const TempFolder&) { return NewMemoryStore(); }}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace temper
