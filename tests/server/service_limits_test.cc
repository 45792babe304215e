// What comes over the wire is limited and harms nobody else; what is listed comes in pages.
#include <grpcpp/generic/generic_stub.h>

#include "base/utf8.h"
#include "proto/channel.h"
#include "tests/server/service_fixture.h"
#include "tuner_server/service/tuning_service.h"

namespace temper {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Cut at a byte, the error was no text any more; the job's summary threw, and the server was gone.
TEST_F(ServiceTest, AnErrorThatIsCutInsideACharacterHarmsNobody) {
  std::string error = "\x1b[2J two\nlines " + std::string(1000, 'x');
  for (int i = 0; i < 100; ++i) error += "\u00fc";
  AutoWorker worker(address_, kKey, "w", false, [&](v1::SubmitResultsRequest& results) {
    if (results.results_size() > 0) {
      v1::CandidateResult& first = *results.mutable_results(0);
      first.set_outcome("build_failed");
      first.set_error(error);
      first.clear_costs_s();
    }
    for (v1::ModelResult& result : *results.mutable_models()) {
      result.set_outcome("run_crashed");
      result.set_error(error);
    }
  });
  const auto job = client_->SubmitJob(Request());
  ASSERT_TRUE(job.ok()) << job.status();
  Watch(*job);
  EXPECT_THAT(store_.GetJob(*job)->summary, HasSubstr("xxx"));
  int failed = 0;
  const auto count = [&](const Record& r) {
    EXPECT_TRUE(IsUtf8(r.error));
    EXPECT_THAT(r.error, ::testing::StartsWith("\\x1b[2J two lines xxx"));
    EXPECT_LE(r.error.size(), 1024u);
    return ++failed > 0;
  };
  EXPECT_TRUE(client_->ExportRecords({.outcome = Outcome::kBuildFailed}, false, count).ok());
  EXPECT_GT(failed, 0);
  EXPECT_TRUE(client_->ListDevices().ok());
  EXPECT_TRUE(client_->ListJobs().ok());
}

// Such a worker once failed every job of the server.
TEST_F(ServiceTest, AWorkerWithoutThreadsIsRefused) {
  v1::RegisterRequest request;
  request.set_device_key(kKey);
  request.set_target(ToyTarget());
  request.set_slots(1);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::RegisterReply reply;
  const grpc::Status status = WorkerCalls(address_).stub().Register(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("RegisterRequest.threads is 0"));
}

// Queries of the best that hang, until they are let go, on the threads that serve clients.
class HeldQueries {
 public:
  // Before the store has calls.
  explicit HeldQueries(FallibleStore& store) {
    store.before_best = [open = gate_.get_future().share()] { open.wait(); };
  }
  void Ask(const std::string& address) {
    stub_ = v1::TuningService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    v1::QueryBestRequest query;
    query.add_queries()->set_workload("w");
    query.mutable_queries(0)->set_target("t");
    for (int i = 0; i < kQueries; ++i) {
      SetDeadline(contexts_[i]);
      calls_.push_back(stub_->AsyncQueryBest(&contexts_[i], query, &queue_));
      calls_.back()->Finish(&replies_[i], &statuses_[i], nullptr);
    }
  }
  void LetGo() {
    gate_.set_value();
    void* tag;
    bool ok;
    for (int i = 0; i < kQueries; ++i) queue_.Next(&tag, &ok);
    for (const grpc::Status& status : statuses_) EXPECT_TRUE(status.ok()) << status.error_message();
  }

 private:
  static constexpr int kQueries = 40;
  std::promise<void> gate_;
  std::unique_ptr<v1::TuningService::Stub> stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext contexts_[kQueries];
  v1::QueryBestReply replies_[kQueries];
  grpc::Status statuses_[kQueries];
  std::vector<std::unique_ptr<grpc::ClientAsyncResponseReader<v1::QueryBestReply>>> calls_;
};

TEST_F(ServiceTest, SlowQueriesDelayNoWorker) {
  HeldQueries queries(store_);
  queries.Ask(address_);
  WorkerCalls worker(address_);
  worker.Register(kKey, "w");
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::SyncReply reply;
    const grpc::Status status = worker.Sync(context, {}, 1, 0, reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  queries.LetGo();
}

TEST_F(ServiceTest, AJobThatIsYetToComeIsNobodysToCancel) {
  HeldQueries queries(store_);
  const auto as = [&](const std::string& identity) {
    return *TunerClient::Connect(address_, {.call_timeout = kPatience, .identity = identity});
  };
  const auto owner = as("owner"), stranger = as("stranger");
  const auto before = owner->SubmitJob(Request());
  ASSERT_TRUE(before.ok()) << before.status();
  queries.Ask(address_);  // so that what is judged now is done later
  auto cancelled = std::async(std::launch::async, [&] { return stranger->CancelJob(*before + 1); });
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(stranger->ListDevices().ok());  // by then it has arrived
  const auto job = owner->SubmitJob(Request());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(*job, *before + 1);
  queries.LetGo();
  EXPECT_FALSE(cancelled.get().ok());
  EXPECT_FALSE(IsFinalJobState(owner->GetJob(*job)->state()));
  EXPECT_TRUE(owner->CancelJob(*job).ok());
}

TEST_F(ServiceTest, RequestsKeepTheirLimitsInEveryCall) {
  auto stub = v1::TuningService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  v1::QueryBestRequest many;
  for (int i = 0; i < 65; ++i) many.add_queries();
  grpc::ClientContext context;
  SetDeadline(context);
  v1::QueryBestReply answers;
  EXPECT_EQ(stub->QueryBest(&context, many, &answers).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  v1::SubmitJobRequest request = Request();
  request.set_model(std::string(5 << 20, 'x'));
  EXPECT_THAT(std::string(client_->SubmitJob(request).status().message()), HasSubstr("SubmitJobRequest.model"));
  EXPECT_THAT(*client_->ListJobs(), SizeIs(0));

  grpc::ClientContext endless;
  auto records = stub->ExportRecords(&endless, {});
  v1::Record record;
  EXPECT_FALSE(records->Read(&record));
  EXPECT_EQ(records->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << "it has no deadline";
  EXPECT_THAT(server_->core().metrics().Text(),
              AllOf(HasSubstr("temper_rejected_messages_total{reason=\"no_deadline\"} 1\n"),
                    HasSubstr("temper_rejected_messages_total{reason=\"bad_field\"} 2\n")));
}

TEST_F(ServiceTest, WhatIsNoMessageIsRefusedAndCounted) {
  grpc::GenericStub stub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  for (const char* method : {"/temper.v1.TuningService/ListJobs", "/temper.v1.TuningService/WatchJob",
                             "/temper.v1.WorkerService/Sync", "/temper.v1.AdminService/AddToken"}) {
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Slice slice("\xff\xff\xff");
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer reply;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_FALSE(status.ok()) << method;
  }
  EXPECT_THAT(server_->core().metrics().Text(), HasSubstr("temper_rejected_messages_total{reason=\"unreadable\"} 4\n"));
}

// A few bytes would become a gigabyte, before anybody is asked who calls.
TEST_F(ServiceTest, WhatIsCompressedIsNotUnpacked) {
  auto stub = v1::TuningService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    SetDeadline(context);
    context.set_compression_algorithm(algorithm);
    v1::QueryBestRequest request;
    request.add_queries()->set_workload(std::string(10'000, 'w'));
    v1::QueryBestReply reply;
    EXPECT_EQ(stub->QueryBest(&context, request, &reply).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
}

// Exports that nobody reads, of one caller.
class UnreadExports {
 public:
  UnreadExports(const std::string& address, FallibleStore& store, std::string identity = "")
      : identity_(std::move(identity)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // what it takes in before somebody reads stays small
    stub_ =
        v1::TuningService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    std::vector<Record> records(64);
    for (Record& r : records) {
      r.workload = std::string(60'000, 'w');
      r.target = "t";
      r.costs_s = {1};
    }
    EXPECT_TRUE(store.Append(records).ok());
  }
  // Whether the first record came.
  bool Begin() {
    contexts_.push_back(std::make_unique<grpc::ClientContext>());
    SetDeadline(*contexts_.back());
    if (!identity_.empty()) contexts_.back()->AddMetadata(kIdentityKey, identity_);
    readers_.push_back(stub_->ExportRecords(contexts_.back().get(), {}));
    v1::Record record;
    return readers_.back()->Read(&record);
  }
  grpc::Status Finish() { return readers_.back()->Finish(); }

 private:
  const std::string identity_;
  std::unique_ptr<v1::TuningService::Stub> stub_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Record>>> readers_;
};

TEST_F(ServiceTest, OneCallersExportsLeaveRoomForThoseOfOthers) {
  UnreadExports exports(address_, store_, "one");
  for (size_t i = 0; i < TuningServiceImpl::kMostExports / 2; ++i) EXPECT_TRUE(exports.Begin());
  EXPECT_FALSE(exports.Begin());
  EXPECT_EQ(exports.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto other = *TunerClient::Connect(address_, {.call_timeout = kPatience, .identity = "other"});
  EXPECT_TRUE(other->ExportRecords({}, false, [](const Record&) { return true; }).ok());
}

TEST_F(ServiceTest, AnExportThatNobodyReadsEnds) {
  longest_poll_ = absl::Milliseconds(100);
  client_.reset();
  server_.reset();
  StartServer();
  UnreadExports exports(address_, store_);
  for (size_t i = 0; i < TuningServiceImpl::kMostExports; ++i) EXPECT_TRUE(exports.Begin());
  absl::Status exported;
  const absl::Time give_up = absl::Now() + kPatience;
  do {
    exported = client_->ExportRecords({}, false, [](const Record&) { return true; });
  } while (!exported.ok() && absl::Now() < give_up);
  EXPECT_TRUE(exported.ok()) << exported;
}

TEST_F(ServiceTest, JobsAreListedPageByPage) {
  constexpr int kJobs = 2100;
  for (int i = 0; i < kJobs; ++i) {
    JobRow row;
    row.model = absl::StrCat("m", i);
    row.state = i % 3 == 0 ? "failed" : "done";
    ASSERT_TRUE(store_.CreateJob(row).ok());
  }
  const auto all = client_->ListJobs();
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_THAT(*all, SizeIs(kJobs));
  EXPECT_EQ(all->front().model(), absl::StrCat("m", kJobs - 1));
  for (size_t i = 1; i < all->size(); ++i) EXPECT_LT((*all)[i].job(), (*all)[i - 1].job());
  EXPECT_THAT(*client_->ListJobs(10), SizeIs(10));
  EXPECT_THAT(*client_->ListJobs(0, "failed"), SizeIs(kJobs / 3));
  EXPECT_THAT(*client_->ListJobs(3, "failed"), SizeIs(3));
  const int64_t job = (*all)[1000].job();
  EXPECT_EQ(client_->GetJob(job)->model(), (*all)[1000].model());
  EXPECT_TRUE(absl::IsNotFound(client_->GetJob(all->front().job() + 1).status()));
}

TEST_F(ServiceTest, DevicesAreListedPageByPage) {
  WorkerCalls workers[] = {WorkerCalls(address_), WorkerCalls(address_), WorkerCalls(address_)};
  for (WorkerCalls& worker : workers) worker.Register(kKey, absl::StrCat("w", &worker - workers));
  auto stub = v1::TuningService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  std::set<std::string> keys;
  v1::ListDevicesRequest request;
  request.set_limit(1);
  int pages = 0, devices = 0;
  do {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::ListDevicesReply reply;
    ASSERT_TRUE(stub->ListDevices(&context, request, &reply).ok());
    request.set_after(reply.next_after());
    devices += reply.devices_size();
    ASSERT_LE(++pages, 3);
  } while (!request.after().empty());
  EXPECT_EQ(devices, 3);
}

TEST_F(ServiceTest, ClientsSeeDevicesInTheOrderOfTheirNumbers) {
  const std::pair<const char*, const char*> devices[] = {{"d-10", "w"}, {"d-2", "w10"}, {"d-9", "w"}, {"d-2", "w9"}};
  for (const auto& [key, name] : devices) WorkerCalls(address_).Register(key, name);
  std::vector<std::string> listed;
  const auto answer = client_->ListDevices();
  ASSERT_TRUE(answer.ok()) << answer.status();
  for (const v1::Device& device : *answer) listed.push_back(absl::StrCat(device.key(), " ", device.name()));
  EXPECT_THAT(listed, testing::ElementsAre("d-2 w9", "d-2 w10", "d-9 w", "d-10 w"));
}

TEST_F(ServiceTest, ExportsAreFilteredAndMayBeTheBestAlone) {
  std::vector<Record> records(4);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].workload = i < 3 ? "w1" : "w2";
    records[i].target = "t";
    records[i].device_key = kKey;
    records[i].config = absl::StrCat("c=", i);
    records[i].costs_s = std::vector<double>(3, 1.0 + static_cast<double>(i));
  }
  records[2].outcome = Outcome::kBuildFailed;
  records[2].costs_s.clear();
  ASSERT_TRUE(store_.Append(records).ok());
  const auto configs = [&](const RecordFilter& filter, bool best) {
    std::vector<std::string> found;
    const absl::Status status = client_->ExportRecords(filter, best, [&](const Record& r) {
      found.push_back(r.config);
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return found;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(configs({}, false), ElementsAre("c=0", "c=1", "c=2", "c=3"));
  EXPECT_THAT(configs({.outcome = Outcome::kBuildFailed}, false), ElementsAre("c=2"));
  EXPECT_THAT(configs({.workload = "w2"}, false), ElementsAre("c=3"));
  EXPECT_THAT(configs({}, true), ElementsAre("c=0", "c=3"));
  EXPECT_THAT(configs({.device_key = "none"}, true), ElementsAre());
  int seen = 0;
  EXPECT_TRUE(absl::IsCancelled(client_->ExportRecords({}, false, [&](const Record&) { return ++seen < 2; })));
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace temper
