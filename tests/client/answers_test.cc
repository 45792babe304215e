// The client beside a server whose answers are not to be believed.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <limits>

#include "client/admin_client.h"
#include "client/tuner_client.h"
#include "proto/limits.h"
#include "temper/v1/admin.grpc.pb.h"
#include "temper/v1/tuning.grpc.pb.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

class LyingTuning : public v1::TuningService::Service {
 public:
  double cost = 1;    // of each record
  std::string state;  // of a job
  bool forgets_id = false;
  int puts_taken = std::numeric_limits<int>::max();  // before the disk is full

  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*, v1::ListJobsReply* reply) override {
    v1::JobSummary& job = *reply->add_jobs();
    job.set_job(7);
    job.set_reason(std::string(1000, 'x'));
    reply->set_next_before(7);
    return grpc::Status::OK;
  }
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*, v1::ListDevicesReply* reply) override {
    reply->add_devices()->set_key("a");
    reply->set_next_after("a");
    return grpc::Status::OK;
  }
  grpc::Status QueryBest(grpc::ServerContext*, const v1::QueryBestRequest*, v1::QueryBestReply* reply) override {
    v1::BestAnswer& answer = *reply->add_answers();
    answer.set_found(true);
    answer.set_level("exact");
    *answer.mutable_record() = AnyRecord();
    return grpc::Status::OK;
  }
  grpc::Status PutRecords(grpc::ServerContext*, const v1::PutRecordsRequest* request,
                          v1::PutRecordsReply* reply) override {
    if (--puts_taken < 0) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the disk is full");
    for (int i = forgets_id ? 1 : 0; i < request->records_size(); ++i) reply->add_ids(i + 1);
    return grpc::Status::OK;
  }
  grpc::Status ExportRecords(grpc::ServerContext*, const v1::ExportRecordsRequest*,
                             grpc::ServerWriter<v1::Record>* writer) override {
    writer->Write(AnyRecord());
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::JobEvent>* writer) override {
    v1::JobEvent event;
    event.set_state(state);
    writer->Write(event);
    return grpc::Status::OK;
  }

 private:
  v1::Record AnyRecord() const {
    v1::Record record;
    record.set_id(1);
    record.set_workload("w");
    record.set_target("t");
    record.set_threads(1);
    record.set_cache_policy("model");
    record.set_purpose("search");
    record.set_outcome("ok");
    record.add_costs_s(cost);
    return record;
  }
};

class LyingAdmin : public v1::AdminService::Service {
 public:
  grpc::Status ListTokens(grpc::ServerContext*, const v1::ListTokensRequest*, v1::ListTokensReply* reply) override {
    reply->add_tokens()->set_id("1a");
    reply->set_next_after("1a");
    return grpc::Status::OK;
  }
  grpc::Status ListAudit(grpc::ServerContext*, const v1::ListAuditRequest*, v1::ListAuditReply* reply) override {
    reply->add_entries()->set_id(7);
    reply->set_next_before(7);
    return grpc::Status::OK;
  }
};

class AnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&tuning_);
    builder.RegisterService(&admin_);
    builder.SetDefaultCompressionAlgorithm(compression_);
    server_ = builder.BuildAndStart();
    client_ = *TunerClient::Connect(address(), {.connect_timeout = absl::Seconds(60)});
  }
  void TearDown() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  absl::Status Best() {
    const BestQuery query = {.workload = "w", .target = "t"};
    return client_->QueryBest(std::span(&query, 1)).status();
  }
  absl::Status Export() {
    return client_->ExportRecords({}, false, [](const Record&) { return true; });
  }

  grpc_compression_algorithm compression_ = GRPC_COMPRESS_NONE;
  int port_ = 0;
  LyingTuning tuning_;
  LyingAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<TunerClient> client_;
};

TEST_F(AnswersTest, AListWhosePagesRepeatEnds) {
  const auto same_page = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_EQ(status.message(), "the server's answer is refused: its next page is one before");
  };
  same_page(client_->ListJobs().status());
  same_page(client_->ListDevices().status());
  const auto admin = *AdminClient::Connect(address(), {.connect_timeout = absl::Seconds(60)});
  same_page(admin->ListTokens().status());
  same_page(admin->ListAudit(1000).status());
}

TEST_F(AnswersTest, ARecordThatWasMeasuredHasTimes) {
  EXPECT_TRUE(Best().ok());
  EXPECT_TRUE(Export().ok());
  for (const double cost : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    tuning_.cost = cost;
    EXPECT_TRUE(absl::IsDataLoss(Best())) << cost;
    EXPECT_TRUE(absl::IsDataLoss(Export())) << cost;
  }
}

TEST_F(AnswersTest, EachRecordThatIsPutHasAnId) {
  const std::vector<Record> records(3);
  EXPECT_EQ(client_->PutRecords(records)->size(), 3u);
  tuning_.forgets_id = true;
  EXPECT_TRUE(absl::IsDataLoss(client_->PutRecords(records).status()));
}

TEST_F(AnswersTest, AnImportThatStopsHalfwaySaysHowMuchIsThere) {
  const std::vector<Record> records(kMostRecords + 5);
  tuning_.puts_taken = 1;
  EXPECT_EQ(client_->PutRecords(records).status().message(),
            "the disk is full; 4096 of 4101 records are there by now: the same again adds the others");
  EXPECT_EQ(client_->PutRecords(records).status().message(), "the disk is full") << "none is";
}

TEST_F(AnswersTest, WhatAStreamSaysKeepsItsLimitsToo) {
  tuning_.state = "done";
  EXPECT_TRUE(client_->WatchJob(1, [](const v1::JobEvent&) { return true; }).ok());
  tuning_.state = "\x1b[2Jdone";
  int told = 0;
  const absl::Status status = client_->WatchJob(1, [&](const v1::JobEvent&) { return ++told > 0; });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("JobEvent.state"));
  EXPECT_EQ(told, 0);
}

TEST_F(AnswersTest, WhoHasAnsweredOnceIsNotSuspectedOfEncryption) {
  const auto stranger = *TunerClient::Connect(address());
  const auto watcher = *TunerClient::Connect(address());
  tuning_.state = "running";
  EXPECT_TRUE(absl::IsCancelled(watcher->WatchJob(1, [](const v1::JobEvent&) { return false; })));
  const auto caller = *TunerClient::Connect(address());
  EXPECT_TRUE(caller->PutRecords(std::vector<Record>(1)).ok());
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  EXPECT_THAT(std::string(stranger->GetJob(1).status().message()), HasSubstr("without encryption?"));
  for (const auto& known : {watcher.get(), caller.get()}) {
    const absl::Status gone = known->GetJob(1).status();
    EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
    EXPECT_THAT(std::string(gone.message()), HasSubstr("no answer from temper-server at " + address()));
    EXPECT_THAT(std::string(gone.message()), Not(HasSubstr("encryption")));
  }
  static_assert(kServerPatience >= absl::Seconds(60), "as long as a worker gets before its session ends");
}

class CompressedAnswersTest : public AnswersTest {
 protected:
  CompressedAnswersTest() { compression_ = GRPC_COMPRESS_GZIP; }
};

// A few bytes would become gigabytes before anybody looks at how many they are.
TEST_F(AnswersTest, AreRead) { EXPECT_EQ(client_->ListJobs(1)->at(0).reason().size(), 1000u); }
TEST_F(CompressedAnswersTest, AreNotUnpacked) { EXPECT_FALSE(client_->ListJobs(1).ok()); }

}  // namespace
}  // namespace temper
