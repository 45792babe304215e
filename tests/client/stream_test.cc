// The client beside a server that streams what can not be read.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "client/tuner_client.h"
#include "proto/channel.h"
#include "temper/v1/tuning.grpc.pb.h"

namespace temper {
namespace {

constexpr char kBroken[] = "\xff\xfe";  // no UTF-8: the receiver can not parse it

// Streams two sound messages, then a broken one, and goes on until its client is gone.
class BrokenServer : public v1::TuningService::Service {
 public:
  BrokenServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~BrokenServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status ExportRecords(grpc::ServerContext* context, const v1::ExportRecordsRequest* request,
                             grpc::ServerWriter<v1::Record>* writer) override {
    v1::Record record;
    record.set_workload("w");
    record.set_target("t");
    record.set_threads(1);
    record.set_cache_policy("model");
    record.set_purpose("search");
    record.set_outcome("build_failed");
    for (int64_t id = 1; !context->IsCancelled(); ++id) {
      record.set_id(id);
      if (id == 3) record.set_error(kBroken);
      if (!writer->Write(record)) break;
      if (request->after_id() == kSound && id == 2) break;
    }
    return grpc::Status::OK;
  }

  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* writer) override {
    v1::JobEvent event;
    event.set_cursor(request->cursor() + 1);
    event.set_reason(kBroken);
    while (!context->IsCancelled() && writer->Write(event)) {
    }
    return grpc::Status::OK;
  }

  // Takes the call, and says nothing as long as its client is there.
  grpc::Status ListDevices(grpc::ServerContext* context, const v1::ListDevicesRequest*,
                           v1::ListDevicesReply*) override {
    called.set_value();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  }
  std::promise<void> called;

  static constexpr int64_t kSound = 7;  // asked for from this id on, the stream ends before it breaks

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class StreamTest : public ::testing::Test {
 protected:
  BrokenServer server_;
  std::unique_ptr<TunerClient> client_ =
      *TunerClient::Connect(server_.address(), {.connect_timeout = absl::Seconds(60)});
};

// It once waited for ever: the server went on, and nobody read.
TEST_F(StreamTest, AnExportThatCannotBeReadEnds) {
  int seen = 0;
  const absl::Status status = client_->ExportRecords({}, false, [&](const Record&) { return ++seen > 0; });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(seen, 2);
}

TEST_F(StreamTest, OneThatEndsIsWhole) {
  int seen = 0;
  const absl::Status status =
      client_->ExportRecords({.after_id = BrokenServer::kSound}, false, [&](const Record&) { return ++seen > 0; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, 2);
}

TEST_F(StreamTest, ADeafVisitorEndsIt) {
  int seen = 0;
  EXPECT_TRUE(absl::IsCancelled(client_->ExportRecords({}, false, [&](const Record&) { return ++seen < 1; })));
  EXPECT_EQ(seen, 1);
}

TEST_F(StreamTest, AWatchThatCannotBeReadEnds) {
  const absl::Status status = client_->WatchJob(1, [](const v1::JobEvent&) { return true; });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(StreamTest, ACallThatNobodyAnswersIsGivenUpWhenItIsToldTo) {
  StopSignal stop;
  auto devices = std::async(std::launch::async, [&] { return client_->ListDevices("key", &stop); });
  server_.called.get_future().wait();
  stop.Cancel();
  EXPECT_TRUE(absl::IsCancelled(devices.get().status()));
  EXPECT_TRUE(absl::IsCancelled(client_->ListDevices("key", &stop).status())) << "nor is it asked again";
}

// Anybody may send such a message, before it is known who he is: each would be a line of protobuf's own in a log.
TEST(ProtobufTest, WritesNothingToStderrOfWhatItCanNotRead) {
  LogLibrariesQuietly();
  testing::internal::CaptureStderr();
  v1::Record record;
  EXPECT_FALSE(record.ParseFromString("\x12\x02\xff\xfe"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace temper
