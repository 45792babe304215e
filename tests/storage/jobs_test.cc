// What store.h and access.h promise of jobs, leases and rights, asked of every implementation.
#include <atomic>
#include <limits>
#include <thread>

#include "tests/storage/contract.h"

namespace temper {
namespace {

JobRow GoodJob() {
  JobRow job;
  job.model = "resnet18.onnx";
  job.target = "llvm";
  job.device_key = "laptop";
  job.tuner = "xgb";
  job.codegen_id = "1.1.19";
  job.owner = "ada";
  job.priority = -3;
  job.spec = R"({"trials": 500})";
  job.request = std::string("\0\xff request", 10);
  job.created_unix_ms = 1;
  return job;
}

std::vector<int64_t> Ids(const absl::StatusOr<std::vector<JobRow>>& jobs) {
  EXPECT_TRUE(jobs.ok()) << jobs.status();
  std::vector<int64_t> ids;
  for (const JobRow& job : *jobs) ids.push_back(job.id);
  return ids;
}

std::vector<int64_t> Ids(const absl::StatusOr<std::vector<LeaseRow>>& leases) {
  EXPECT_TRUE(leases.ok()) << leases.status();
  std::vector<int64_t> ids;
  for (const LeaseRow& lease : *leases) ids.push_back(lease.id);
  return ids;
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
  JobRow job = GoodJob();
  const auto first = store_->CreateJob(job);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = store_->CreateJob(job);
  ASSERT_TRUE(second.ok());
  EXPECT_GT(*second, *first);
  const auto fields = [](const JobRow& j) {
    return std::tie(j.id, j.model, j.target, j.device_key, j.tuner, j.codegen_id, j.owner, j.priority, j.spec, j.state,
                    j.reason, j.summary, j.trials, j.best_ms, j.created_unix_ms, j.updated_unix_ms, j.model_hash,
                    j.build_with, j.request);
  };
  job.id = *first;
  EXPECT_EQ(fields(*store_->GetJob(*first)), fields(job));

  JobRow changed = job;
  changed.state = "running";
  changed.priority = 4;                 // which does not count: another one may have been set meanwhile
  changed.request = changed.spec = "";  // whoever updates a job need not hold what it was asked for
  ASSERT_TRUE(store_->UpdateJob(changed).ok());
  EXPECT_EQ(store_->GetJob(*first)->request, job.request);
  EXPECT_EQ(store_->GetJob(*first)->spec, job.spec);
  EXPECT_EQ(store_->GetJob(*first)->priority, -3);
  changed.priority = -3;

  changed.state = "failed";
  changed.reason = "no worker";
  changed.summary = "{}";
  changed.trials = 12;
  changed.best_ms = 3.25;
  changed.model_hash = "0123456789abcdef";
  changed.build_with = "default";
  changed.updated_unix_ms = 2;
  ASSERT_TRUE(store_->UpdateJob(changed).ok());
  const auto read = store_->GetJob(*first);
  ASSERT_TRUE(read.ok());
  changed.spec = job.spec;
  EXPECT_EQ(fields(*read), fields(changed)) << "and without its request, now that it is over";
  EXPECT_EQ(store_->GetJob(*second)->state, "queued");
  EXPECT_EQ(store_->GetJob(*second)->request, job.request);
}

TEST_P(StoreContract, SetsThePrioritiesOfJobsThatGoOn) {
  std::vector<int64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*store_->CreateJob(GoodJob()));
  JobRow over = *store_->GetJob(ids[2]);
  over.state = "done";
  ASSERT_TRUE(store_->UpdateJob(over).ok());
  const std::vector<JobPriority> changes = {{ids[0], 7}, {ids[0], 5}, {ids[2], 9}, {ids[2] + 1, 9}};
  ASSERT_TRUE(store_->Commit({.priorities = changes}).ok());
  EXPECT_EQ(store_->GetJob(ids[0])->priority, 5);
  EXPECT_EQ(store_->GetJob(ids[1])->priority, -3);
  EXPECT_EQ(store_->GetJob(ids[2])->priority, -3) << "it is over";
  EXPECT_EQ(store_->Jobs({})->back().priority, 5);
}

TEST_P(StoreContract, ListsJobsInPagesTheNewestFirst) {
  std::vector<int64_t> ids;
  for (int i = 0; i < 6; ++i) {
    JobRow job = GoodJob();
    job.summary = "{}";
    if (i % 2 == 1) job.state = "done";
    if (i >= 4) job.device_key = "server";
    ids.insert(ids.begin(), *store_->CreateJob(job));
  }
  EXPECT_EQ(Ids(store_->Jobs({})), ids);
  EXPECT_EQ(Ids(store_->Jobs({.limit = 2})), (std::vector<int64_t>{ids[0], ids[1]}));
  EXPECT_EQ(Ids(store_->Jobs({.before_id = ids[1], .limit = 2})), (std::vector<int64_t>{ids[2], ids[3]}));
  EXPECT_EQ(Ids(store_->Jobs({.before_id = ids[5]})), std::vector<int64_t>());
  EXPECT_EQ(Ids(store_->Jobs({.state = "done"})), (std::vector<int64_t>{ids[0], ids[2], ids[4]}));
  EXPECT_EQ(Ids(store_->Jobs({.state = "queued", .device_key = "server"})), std::vector<int64_t>{ids[1]});
  const JobRow listed = store_->Jobs({})->at(1);
  EXPECT_EQ(listed.owner, "ada");
  EXPECT_EQ(listed.priority, -3);
  EXPECT_EQ(listed.spec + listed.summary + listed.request, "") << "what is long is not listed";
}

TEST_P(StoreContract, RefusesJobsUnknownOrUnsound) {
  JobRow job;
  job.id = 4;
  EXPECT_TRUE(absl::IsNotFound(store_->UpdateJob(job)));
  EXPECT_TRUE(absl::IsNotFound(store_->GetJob(4).status()));
  const auto refused = [&](auto change) {
    JobRow bad = GoodJob();
    change(bad);
    return absl::IsInvalidArgument(store_->CreateJob(bad).status());
  };
  EXPECT_TRUE(refused([](JobRow& j) { j.state = "thinking"; }));
  EXPECT_TRUE(refused([](JobRow& j) { j.build_with = "luck"; }));
  EXPECT_TRUE(refused([](JobRow& j) { j.best_ms = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](JobRow& j) { j.best_ms = std::numeric_limits<double>::infinity(); }));
  EXPECT_TRUE(refused([](JobRow& j) { j.best_ms = -1; }));
  EXPECT_TRUE(refused([](JobRow& j) { j.trials = -1; }));
  EXPECT_TRUE(refused([](JobRow& j) { j.model = std::string(257, 'm'); }));
  EXPECT_TRUE(refused([](JobRow& j) { j.owner = "\xff"; }));
  EXPECT_TRUE(Ids(store_->Jobs({})).empty());
  JobRow odd = GoodJob();
  odd.state = "failed";
  odd.reason = std::string(2000, '\xff');
  const auto id = store_->CreateJob(odd);
  ASSERT_TRUE(id.ok()) << "how a job ended is not lost for what was said of it: " << id.status();
  EXPECT_EQ(store_->GetJob(*id)->reason, std::string(1024, '?'));
}

TEST_P(StoreContract, LeasesAreKeptUntilTheyAreClosedOrTheirJobIsOver) {
  JobRow job = GoodJob();
  job.id = *store_->CreateJob(job);
  const int64_t other = *store_->CreateJob(job);
  const std::string work("\0 work", 6);
  const std::vector<LeaseRow> granted = {
      {INT64_MAX, "instance", job.id, work, 5}, {7, "", job.id, "", 0}, {8, "", other, "", 0}, {9, "", 999, "", 0}};
  Record r = GoodRecord();
  ASSERT_TRUE(store_->Commit({.records = {&r, 1}, .granted = granted}).ok());
  EXPECT_EQ(Ids(store_->Leases()), (std::vector<int64_t>{7, 8, INT64_MAX})) << "none of a job that is unknown";
  const LeaseRow kept = store_->Leases()->back();
  EXPECT_EQ(std::tie(kept.instance, kept.job, kept.work, kept.granted_unix_ms),
            std::tie(granted[0].instance, job.id, work, granted[0].granted_unix_ms));
  const int64_t closed[] = {INT64_MAX, 12345};
  const LeaseRow again{7, "another", job.id, "", 0};
  ASSERT_TRUE(store_->Commit({.records = {&r, 1}, .granted = {&again, 1}, .closed = closed}).ok());
  EXPECT_EQ(All(*store_).size(), 2u);
  EXPECT_EQ(Ids(store_->Leases()), (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(store_->Leases()->front().instance, "another");

  job.state = "done";
  ASSERT_TRUE(store_->UpdateJob(job).ok());
  EXPECT_EQ(Ids(store_->Leases()), std::vector<int64_t>{8});
  ASSERT_TRUE(store_->Commit({.granted = {&again, 1}}).ok());
  EXPECT_EQ(Ids(store_->Leases()), std::vector<int64_t>{8}) << "none of a job that is over";
}

TEST_P(StoreContract, CommitsAllOrNothing) {
  JobRow job = GoodJob();
  const LeaseRow lease{1, "\xff", *store_->CreateJob(job), "", 0};
  Record r = GoodRecord();
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Commit({.records = {&r, 1}, .granted = {&lease, 1}}).status()));
  EXPECT_TRUE(All(*store_).empty());
  EXPECT_TRUE(Ids(store_->Leases()).empty());
}

TEST_P(StoreContract, PrunesWhatIsNotNeeded) {
  const auto add_job = [&](const char* state, const char* model_hash, const char* verdict) {
    JobRow job = GoodJob();
    job.state = state;
    job.model_hash = model_hash;
    job.build_with = verdict;
    return *store_->CreateJob(job);
  };
  const int64_t running = add_job("running", "a", "");
  add_job("done", "a", "tuned");
  const int64_t verdict = add_job("done", "a", "default");
  add_job("failed", "a", "");
  const int64_t newest = add_job("done", "b", "");
  std::vector<int64_t> records;
  for (int i = 0; i < 10; ++i) {
    Record r = GoodRecord();
    r.config = "config" + std::to_string(i);
    r.costs_s = {1e-3 * (10 - i), 1e-3 * (10 - i), 1e-3 * (10 - i)};
    if (i == 0) r.costs_s = {1e-6, 1e-6, 1e-6};
    if (i == 1) r.job = running;
    records.push_back(Add(r));
  }
  Record other_task = GoodRecord();
  other_task.workload = "another";
  records.push_back(Add(other_task));
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(store_->access().AppendAudit({0, i * 10, "", "", "", "", ""}).ok());

  const auto counts = [&](PruneOptions options) {
    const auto pruned = store_->Prune(options);
    EXPECT_TRUE(pruned.ok()) << pruned.status();
    return std::make_tuple(pruned->records, pruned->jobs, pruned->audit);
  };
  EXPECT_EQ(counts({}), std::make_tuple(0, 0, 0)) << "off unless asked for";
  PruneOptions options{.keep_records = 3, .keep_jobs = 1, .audit_before_unix_ms = 1000, .dry_run = true};
  EXPECT_EQ(counts(options), std::make_tuple(5, 2, 3));
  EXPECT_EQ(All(*store_).size(), 11u) << "only counted";
  options.dry_run = false;
  EXPECT_EQ(counts(options), std::make_tuple(5, 2, 3));
  std::vector<int64_t> left;
  for (const Record& r : All(*store_)) left.push_back(r.id);
  EXPECT_EQ(left, (std::vector<int64_t>{records[0], records[1], records[7], records[8], records[9], records[10]}))
      << "the best, one of a job that runs, the newest, and all of a small task";
  EXPECT_EQ(BestText(QueryFor(GoodRecord())), "exact config0");
  EXPECT_EQ(Ids(store_->Jobs({})), (std::vector<int64_t>{newest, verdict, running}));
  EXPECT_EQ(store_->access().Audit(0, 9)->size(), 1u);
  EXPECT_EQ(counts(options), std::make_tuple(0, 0, 0)) << "all at once";
  EXPECT_GT(Add(GoodRecord()), records.back()) << "ids are not used again";
  EXPECT_GT(add_job("queued", "", ""), newest);
}

TEST_P(StoreContract, KeepsTokensAndSpendsThemOnce) {
  AccessStore& access = store_->access();
  TokenRow token{"id", "hash", "ada", "read,submit", "laptop", 1, 2, false};
  ASSERT_TRUE(access.PutToken(token).ok());
  ASSERT_TRUE(access.PutToken({"join", "h", "", "join", "", 0, 0, false}).ok());
  token.scopes = "read";
  ASSERT_TRUE(access.PutToken(token).ok());
  const auto fields = [](const TokenRow& t) {
    return std::tie(t.id, t.hash, t.owner, t.scopes, t.keys, t.created_unix_ms, t.expires_unix_ms, t.revoked);
  };
  ASSERT_EQ(access.Tokens()->size(), 2u);
  EXPECT_EQ(fields(access.Tokens()->at(0)), fields(token));
  EXPECT_TRUE(absl::IsNotFound(access.SpendToken("none")));
  std::atomic<int> spent = 0;
  std::vector<std::thread> guests;
  for (int i = 0; i < 8; ++i) {
    guests.emplace_back([&] {
      const absl::Status status = access.SpendToken("join");
      EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
      spent += status.ok();
    });
  }
  for (std::thread& guest : guests) guest.join();
  EXPECT_EQ(spent, 1);
  EXPECT_TRUE(access.Tokens()->at(1).revoked);
  EXPECT_TRUE(absl::IsInvalidArgument(access.PutToken({"", "hash"})));
}

TEST_P(StoreContract, KeepsCertificatesAndDevices) {
  AccessStore& access = store_->access();
  ASSERT_TRUE(access.PutCertificate({"02", "laptop,server", 3, 4, false}).ok());
  ASSERT_TRUE(access.PutCertificate({"01", "", 0, 0, false}).ok());
  ASSERT_TRUE(access.PutCertificate({"01", "", 0, 0, true}).ok());
  const std::vector<CertificateRow> certificates = *access.Certificates();
  ASSERT_EQ(certificates.size(), 2u);
  EXPECT_TRUE(certificates[0].revoked);
  EXPECT_EQ(std::tie(certificates[1].serial, certificates[1].keys), std::make_tuple("02", "laptop,server"));
  EXPECT_EQ(certificates[1].created_unix_ms + certificates[1].expires_unix_ms, 7);

  ASSERT_TRUE(access.PutDevice({"laptop", "Some CPU", "pending", 1}).ok());
  ASSERT_TRUE(access.PutDevice({"laptop", "Other CPU", "pending", 1}).ok());
  ASSERT_TRUE(access.PutDevice({"laptop", "Some CPU", "approved", 2}).ok());
  const std::vector<DeviceRow> devices = *access.Devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].state, "pending");
  EXPECT_EQ(devices[1].state, "approved");
  EXPECT_EQ(devices[1].updated_unix_ms, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(access.PutDevice({"laptop", "Some CPU", "liked", 2})));
}

TEST_P(StoreContract, AuditsWhateverIsSaid) {
  AccessStore& access = store_->access();
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(access.AppendAudit({0, i, "ada", "CancelJob", "job " + std::to_string(i), "denied", "\xff"}).ok());
  }
  const auto page = access.Audit(0, 2);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->size(), 2u);
  EXPECT_EQ(page->at(0).subject, "job 5");
  EXPECT_EQ(page->at(0).detail, "?") << "nobody escapes the audit by odd bytes";
  const std::vector<AuditRow> next = *access.Audit(page->back().id, 100);
  ASSERT_EQ(next.size(), 3u);
  EXPECT_EQ(next[0].subject, "job 3");
  EXPECT_EQ(next[2].time_unix_ms, 1);
}

}  // namespace
}  // namespace temper
