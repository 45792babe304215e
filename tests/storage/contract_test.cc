// What store.h promises, asked of every implementation.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "tests/storage/contract.h"

namespace temper {
namespace {

TEST_P(StoreContract, GivesBackEveryFieldOfARecord) {
  Record r = GoodRecord();
  r.costs_s = {0.1, 1.0 / 3, 1e-9, 999999999.9999999};
  r.cache_policy = "flushed";
  r.purpose = "canary";
  r.candidate = INT64_MAX;
  r.attempt = 3;
  r.origin = "trusted";
  r.id = Add(r);
  const std::vector<Record> found = All(*store_);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(Line(found[0]), Line(r));
  EXPECT_EQ(found[0].costs_s, r.costs_s) << "samples are kept to the last bit";
}

TEST_P(StoreContract, KeepsAFailureWithItsClassAndText) {
  Record r = Failure(Outcome::kWrongAnswer, std::string("first line\nzero \0 and \xff bytes", 29));
  r.id = Add(r);
  const std::vector<Record> found = All(*store_, {.outcome = Outcome::kWrongAnswer});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].error, std::string("first line\nzero \0 and ? bytes", 29)) << "what a dying child wrote, as text";
  EXPECT_TRUE(found[0].costs_s.empty());
}

TEST_P(StoreContract, CutsALongErrorBetweenCharacters) {
  std::string error;
  while (error.size() < 2000) error += "\u20ac";  // three bytes, which do not divide 1024
  Add(Failure(Outcome::kBuildFailed, error));
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
  broken([](Record& r) { r.purpose = "fun"; });
  broken([](Record& r) { r.cache_policy = "hot"; });
  broken([](Record& r) { r.origin = "heard of"; });
  broken([](Record& r) { r.threads = 0; });
  broken([](Record& r) { r.threads = 4097; });
  broken([](Record& r) { r.workload = ""; });
  broken([](Record& r) { r.target = ""; });
  broken([](Record& r) { r.job = -1; });
  broken([](Record& r) { r.candidate = -1; });
  broken([](Record& r) { r.time_unix_ms = INT64_MAX; });
  broken([](Record& r) { r.costs_s.resize(1025, 1e-4); });
  // Each text: too long by one byte, and no text.
  const std::pair<std::string Record::*, size_t> texts[] = {
      {&Record::workload, 64 << 10}, {&Record::anchor, 64 << 10},     {&Record::target, 4 << 10},
      {&Record::device_key, 128},    {&Record::fingerprint, 1 << 10}, {&Record::template_name, 128},
      {&Record::config, 4 << 10},    {&Record::codegen_id, 128},      {&Record::tuner, 64}};
  for (const auto& [text, most] : texts) {
    broken([&](Record& r) { r.*text = std::string(most + 1, 'x'); });
    broken([&](Record& r) { r.*text = "\xff"; });
  }
  for (const Record& r : bad) EXPECT_TRUE(absl::IsInvalidArgument(Try(r))) << Line(r);
  EXPECT_TRUE(All(*store_).empty());
  Record largest = GoodRecord();
  for (const auto& [text, most] : texts) largest.*text = std::string(most, 'x');
  largest.costs_s.resize(1024, 1e-4);
  largest.threads = 4096;
  largest.id = Add(largest);
  EXPECT_EQ(Line(All(*store_).at(0)), Line(largest)) << "what just fits is kept";
}

TEST_P(StoreContract, OneExecutionIsOneRecord) {
  Record r = GoodRecord();
  r.candidate = 5;
  r.attempt = 1;
  const int64_t first = Add(r);
  EXPECT_GT(first, 0);
  Record again = r;
  again.config = "another answer";
  again.costs_s = {1e-9, 1e-9, 1e-9};
  EXPECT_EQ(Add(again), 0);
  r.attempt = 2;
  std::vector<Record> group = {again, r, r};
  const auto ids = store_->Append(group);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ((*ids)[0], 0);
  EXPECT_GT((*ids)[1], first);
  EXPECT_EQ((*ids)[2], 0) << "twice in one group";
  EXPECT_EQ(All(*store_).size(), 2u);
  ASSERT_EQ(All(*store_, {.candidate = 5, .attempt = 2}).size(), 1u);
  EXPECT_EQ(All(*store_, {.candidate = 5, .attempt = 2})[0].id, (*ids)[1]);
  EXPECT_EQ(All(*store_, {.candidate = 5, .attempt = 3}).size(), 0u);
  EXPECT_EQ(BestText(QueryFor(r)), "exact " + r.config) << "what was passed over is no best either";
  r.candidate = r.attempt = 0;
  EXPECT_GT(Add(r), 0);
  EXPECT_GT(Add(r), 0) << "what no fleet measured is never the same";
}

TEST_P(StoreContract, TheHighestCandidateIsFoundBehindAnyNumberOfOtherRecords) {
  EXPECT_EQ(*store_->HighestCandidate(), 0);
  EXPECT_GT(Add(GoodRecord()), 0);
  EXPECT_EQ(*store_->HighestCandidate(), 0);
  Record r = GoodRecord();
  for (const int64_t candidate : {5, 1'000'000, 7}) {
    r.candidate = candidate;
    EXPECT_GT(Add(r), 0);
  }
  ASSERT_TRUE(store_->Append(std::vector<Record>(100, GoodRecord())).ok());
  EXPECT_EQ(*store_->HighestCandidate(), 1'000'000);
}

TEST_P(StoreContract, AppendsAllOrNothing) {
  std::vector<Record> records(3, GoodRecord());
  records[2].purpose = "fun";
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
  only([](Record& r) { r.outcome = Outcome::kRacedOut; }, {.outcome = Outcome::kRacedOut});
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
  EXPECT_EQ(scanned({.before_id = ids[1], .limit = 1}), std::vector<int64_t>{ids[2]}) << "page by page";
  EXPECT_EQ(scanned({.before_id = ids[3]}), std::vector<int64_t>());
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
  Add(Failure(Outcome::kRunCrashed, "signal 11"));
  Add(WithCosts(GoodRecord(), {1e-9, 1e-9}));  // provisional, but with two samples only
  Record raced = WithCosts(GoodRecord(), {1e-9, 1e-9, 1e-9});
  raced.outcome = Outcome::kRacedOut;
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
  failed.outcome = Outcome::kRunCrashed;
  failed.costs_s.clear();
  elsewhere.device_key = "server";
  older.time_unix_ms -= 1;
  older.job = 0;  // from another store: only its time tells how old it is
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

// Of finals, only those of one job compare.
TEST_P(StoreContract, TheFinalsOfTheJobThatMeasuredLastStand) {
  const auto final = [](const char* config, double cost, int64_t job) {
    Record r = WithCosts(GoodRecord(), {cost, cost, cost});
    r.config = config;
    r.purpose = "final";
    r.job = job;
    return r;
  };
  Record of_another_template = final("lucky", 1e-5, 1);
  of_another_template.template_name = "another";
  Add(of_another_template);
  Add(final("default", 3e-5, 1));
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact lucky");
  Add(final("default", 6e-5, 2));
  Add(final("steady", 5e-5, 2));
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact steady");
  // Those of another device or code generator, and what comes from another store, decide nothing here.
  Record elsewhere = final("elsewhere", 9e-5, 3), other = elsewhere, imported = elsewhere;
  elsewhere.device_key = "another";
  elsewhere.config = "of another key";
  other.codegen_id = "another";
  imported.job = 0;
  for (const Record& r : {elsewhere, other, imported}) Add(r);
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact steady");
  // The last ones fail: what they decided stands.
  for (const char* config : {"default", "steady", "elsewhere"}) {
    Record failure = Failure(Outcome::kWrongAnswer, "now");
    failure.config = config;
    Add(failure);
  }
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact of another key");
}

TEST_P(StoreContract, ARevalidationRetiresWhatAWrongClockDatedIntoTheFuture) {
  Record lucky = WithCosts(GoodRecord(), {1e-5, 1e-5, 1e-5});
  lucky.purpose = "final";
  lucky.time_unix_ms += 86'400'000;
  Add(lucky);
  Record again = WithCosts(GoodRecord(), {9e-5, 9e-5, 9e-5});
  again.purpose = "revalidate";
  again.codegen_id = "2.1.19";
  const int64_t id = Add(again);
  EXPECT_EQ(Best(QueryFor(lucky))->record.id, id);
}

TEST_P(StoreContract, WhatWasPutNeverOutranksWhatWasMeasured) {
  Record put = WithCosts(GoodRecord(), {1e-9, 1e-9, 1e-9});
  put.config = "put";
  put.origin = "put";
  put.purpose = "final";
  Record kin = GoodRecord(), elsewhere = GoodRecord();
  kin.workload = "same anchor, other epilogue";
  kin.config = "kin";
  elsewhere.fingerprint = elsewhere.device_key = "elsewhere";
  elsewhere.config = "elsewhere";
  const BestQuery query = QueryFor(put);
  Add(put);
  EXPECT_EQ(BestText(query), "exact put") << "better than nothing";
  Add(kin);
  EXPECT_EQ(BestText(query), "borrowed kin");
  Add(elsewhere);
  EXPECT_EQ(BestText(query), "target elsewhere");
  Add(GoodRecord());
  EXPECT_EQ(BestText(query), "exact " + GoodRecord().config);
  EXPECT_EQ(AllBest(*store_, {.workload = put.workload, .device_key = put.device_key}).at(0).config,
            GoodRecord().config);
  put.origin = "trusted";
  Add(put);
  EXPECT_EQ(BestText(query), "exact put") << "an admin says so";
}

TEST_P(StoreContract, WhatWasPutIsToldFromTheRest) {
  Record put = GoodRecord();
  put.origin = "put";
  Add(put);
  const auto count = [&](const RecordFilter& filter) {
    int scanned = 0, best = 0;
    EXPECT_TRUE(store_->Scan(filter, [&](const Record&) { ++scanned; }).ok());
    EXPECT_TRUE(store_->ScanBest(filter, [&](const Record&) { ++best; }).ok());
    return std::pair(scanned, best);
  };
  EXPECT_EQ(count({}), std::pair(1, 1));
  EXPECT_EQ(count({.put = false}), std::pair(0, 0));
  EXPECT_EQ(count({.put = true}), std::pair(1, 1));
  put.origin = "trusted";
  Add(put);
  EXPECT_EQ(count({.put = false}), std::pair(1, 1));
}

TEST_P(StoreContract, WhatWasPutSpeaksAgainstNothingThatWasMeasured) {
  Add(GoodRecord());
  const BestQuery query = QueryFor(GoodRecord());
  Record failure = Failure(Outcome::kWrongAnswer, "says somebody");
  failure.origin = "put";
  Add(failure);
  EXPECT_EQ(BestText(query), "exact " + GoodRecord().config);
  Record revalidation = WithCosts(GoodRecord(), {1, 1, 1});
  revalidation.purpose = "revalidate";
  revalidation.codegen_id = "other";
  revalidation.config = "put";
  revalidation.origin = "put";
  Add(revalidation);
  EXPECT_EQ(BestText(query), "exact " + GoodRecord().config);
  Record standard = WithCosts(GoodRecord(), {1e-9});
  standard.config = "default";
  standard.origin = "put";
  Add(standard);
  BestQuery lead = query;
  lead.default_template = standard.template_name;
  lead.default_config = "default";
  EXPECT_EQ(BestText(lead), "exact " + GoodRecord().config);
  // Against what was put it does.
  Add(Failure(Outcome::kWrongAnswer, "measured"));
  EXPECT_EQ(BestText(query), "exact put");
  Record refuted = failure;
  refuted.config = "put";
  Add(refuted);
  EXPECT_EQ(BestText(query), "nothing");
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
  const std::vector<Record> bests = AllBest(*store_);
  EXPECT_EQ(AllBest(*store_, {.after_id = bests[0].id, .limit = 1}).at(0).id, bests[1].id) << "page by page";
  EXPECT_EQ(AllBest(*store_, {.before_id = bests[2].id, .newest_first = true}).at(0).id, bests[1].id);
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
  Add(config(Failure(Outcome::kInfrastructure, "the worker's own"), "wrong", 0));
  EXPECT_EQ(BestText(query), "exact wrong");
  Record elsewhere = config(Failure(Outcome::kWrongAnswer, "there"), "wrong", 0);
  elsewhere.fingerprint = "Other CPU";
  Add(elsewhere);
  EXPECT_EQ(BestText(query), "exact wrong");
  Add(config(Failure(Outcome::kWrongAnswer, "output 0"), "wrong", 0));
  EXPECT_EQ(BestText(query), "exact second");
  EXPECT_EQ(AllBest(*store_).at(0).config, "second");
  Add(config(Failure(Outcome::kRunCrashed, "SIGSEGV"), "second", 0));
  EXPECT_EQ(BestText(query), "exact third") << "and what failed before does not come back";
  Add(config(Failure(Outcome::kRunTimeout, "still running"), "third", 0));
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
  records[2] = Failure(Outcome::kBuildFailed, std::string(2000, 'x'));
  records[2].config = "broken";
  for (Record& r : records) r.job = r.candidate = r.attempt = 5;
  const auto first = store_->Import(records);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(std::count(first->begin(), first->end(), 0), 0);
  for (const Record& r : All(*store_))
    EXPECT_EQ(r.job + r.candidate + r.attempt, 0) << "jobs and executions are those of another store";
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
  records[0].purpose = "fun";
  records[1].time_unix_ms = 1;
  EXPECT_FALSE(store_->Import(records).ok());
  EXPECT_EQ(All(*store_).size(), 4u) << "all or nothing";
}

TEST_P(StoreContract, ALargeImportIsLikeManySmallOnes) {
  std::vector<Record> records(200, GoodRecord());
  for (size_t i = 0; i < records.size(); ++i) records[i].tuner = absl::StrCat("t", i % 150);
  const auto ids = store_->Import(records);
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_EQ(ids->size(), records.size());
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ((*ids)[i] == 0, i >= 150) << i;
  EXPECT_EQ(All(*store_).size(), 150u);
}

TEST_P(StoreContract, AnImportRaisesWhatWasPut) {
  Record r = GoodRecord();
  const auto imported = [&](const char* origin) {
    r.origin = origin;
    const auto ids = store_->Import({&r, 1});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids->front() != 0;
  };
  EXPECT_TRUE(imported("put"));
  EXPECT_FALSE(imported("put"));
  EXPECT_TRUE(imported("trusted")) << "else an admin could not vouch for it";
  EXPECT_FALSE(imported("measured"));
  EXPECT_FALSE(imported("put"));
  EXPECT_EQ(Best(QueryFor(r))->record.origin, "trusted");
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

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract, testing::ValuesIn(kStoreKinds),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace temper
