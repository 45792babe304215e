// The whole server in this process, over a socket, with workers that measure by formula: what its tests share.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "client/tuner_client.h"
#include "compiler/graph/graph_json.h"
#include "compiler/graph/pipeline.h"
#include "proto/convert.h"
#include "temper/v1/tuning.grpc.pb.h"
#include "temper/v1/worker.grpc.pb.h"
#include "tests/server/fallible_store.h"
#include "tests/server/toys.h"
#include "tuner_server/service/server.h"

namespace temper {

inline constexpr char kKey[] = "toy-device";
inline constexpr absl::Duration kPatience = absl::Seconds(60);  // for what should take milliseconds

inline void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kPatience));
}

// One worker's calls, by hand.
class WorkerCalls {
 public:
  explicit WorkerCalls(const std::string& address)
      : stub_(v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {}

  void Register(const std::string& key, const std::string& name, bool shares_cores = false) {
    v1::RegisterRequest request;
    request.set_device_key(key);
    request.set_fingerprint("toy");
    request.set_target(ToyTarget());
    request.set_codegen_id("c1");
    request.set_name(name);
    request.set_threads(1);
    request.set_slots(1);
    request.set_shares_server_cores(shares_cores);
    request.set_wire_version(kWireVersion);
    grpc::ClientContext context;
    SetDeadline(context);
    v1::RegisterReply reply;
    const grpc::Status status = stub_->Register(&context, request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.lease_ms(), 60'000);
    session_ = reply.session();
  }

  grpc::Status Sync(grpc::ClientContext& context, const std::vector<int64_t>& held, int free_slots, int wait_ms,
                    v1::SyncReply& reply) {
    v1::SyncRequest request;
    request.set_session(session_);
    request.mutable_leases()->Add(held.begin(), held.end());
    request.set_free_slots(free_slots);
    request.set_wait_ms(wait_ms);
    return stub_->Sync(&context, request, &reply);
  }

  // Waits for a lease.
  v1::Lease Take() {
    v1::SyncReply reply;
    for (const absl::Time give_up = absl::Now() + kPatience; absl::Now() < give_up && reply.grants_size() == 0;) {
      grpc::ClientContext call;
      SetDeadline(call);
      if (!Sync(call, {}, 1, 20'000, reply).ok()) break;
    }
    return reply.grants_size() == 0 ? v1::Lease() : reply.grants(0);
  }

  grpc::Status Submit(const v1::SubmitResultsRequest& results, v1::SubmitResultsReply& reply) {
    grpc::ClientContext context;
    SetDeadline(context);
    return stub_->SubmitResults(&context, results, &reply);
  }

  v1::WorkerService::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::string session_;
};

inline v1::SubmitResultsRequest Measure(const v1::Lease& lease) {
  v1::SubmitResultsRequest results;
  if (lease.has_model()) {
    v1::ModelResult* result = results.add_models();
    result->set_lease(lease.lease());
    result->set_outcome("ok");
    for (int i = 0; i < 3; ++i) result->add_untuned_s(2e-3);
    for (int i = 0; i < 3; ++i) result->add_tuned_s(1e-3);
    return results;
  }
  std::vector<v1::Batch> batches(lease.finals().tasks().begin(), lease.finals().tasks().end());
  if (lease.has_batch()) batches.push_back(lease.batch());
  for (const v1::Batch& batch : batches) {
    const Workload workload = *ParseWorkload(batch.workload());
    for (const v1::CandidateSpec& candidate : batch.candidates()) {
      v1::CandidateResult* result = results.add_results();
      result->set_lease(lease.lease());
      result->set_candidate(candidate.candidate());
      result->set_attempt(candidate.attempt());
      result->set_outcome("ok");
      for (int i = 0; i < 3; ++i) result->add_costs_s(ToyCost(workload, candidate.config()));
    }
  }
  return results;
}

// Measures until it is destroyed.
class AutoWorker {
 public:
  // `change`: what is done to results before they are handed in.
  AutoWorker(const std::string& address, const std::string& key, const std::string& name, bool shares_cores = false,
             std::function<void(v1::SubmitResultsRequest&)> change = {})
      : calls_(address), change_(std::move(change)) {
    calls_.Register(key, name, shares_cores);
    thread_ = std::thread([this] { Run(); });
  }
  ~AutoWorker() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      if (waiting_ != nullptr) waiting_->TryCancel();
    }
    thread_.join();
  }

 private:
  void Run() {
    while (true) {
      grpc::ClientContext context;
      SetDeadline(context);
      {
        std::lock_guard lock(mutex_);
        if (stopping_) return;
        waiting_ = &context;
      }
      v1::SyncReply reply;
      const grpc::Status status = calls_.Sync(context, {}, 1, 20'000, reply);
      {
        std::lock_guard lock(mutex_);
        waiting_ = nullptr;
      }
      if (!status.ok()) return;
      for (const v1::Lease& lease : reply.grants()) {
        v1::SubmitResultsRequest results = Measure(lease);
        if (change_) change_(results);
        v1::SubmitResultsReply acks;
        if (!calls_.Submit(results, acks).ok()) return;
      }
    }
  }

  WorkerCalls calls_;
  const std::function<void(v1::SubmitResultsRequest&)> change_;
  std::mutex mutex_;
  bool stopping_ = false;
  grpc::ClientContext* waiting_ = nullptr;
  std::thread thread_;
};

inline std::string ToyGraph() {
  Graph graph;
  graph.name = "toy-model";
  const ValueId input = graph.AddValue({.name = "x", .type = {DType::kF32, {4}, {}}});
  graph.inputs = {input};
  ValueId last = input;
  for (const char* name : {"a", "b", "a"}) {
    Attrs attrs = ToyWorkload(name, 100).calls[0].attrs;
    last = *graph.AddNode("toy", attrs, {last});
  }
  graph.outputs = {last};
  EXPECT_TRUE(Optimize(graph, Target{}).ok());
  return ToJson(graph);
}

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/temper-service-", getpid());
    address_ = absl::StrCat("unix:", directory_, ".socket");
    StartServer();
  }

  void StartServer() {
    ServerOptions options;
    options.listen = address_;
    options.core.store_patience = store_patience_;
    options.core.longest_poll = longest_poll_;
    options.core.dispatch.broken_grace = absl::Milliseconds(50);
    options.core.orphan_grace = absl::Milliseconds(50);
    auto server = Server::Start(store_, Clock::System(), options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client = TunerClient::Connect(address_, {.call_timeout = kPatience, .connect_timeout = kPatience});
    ASSERT_TRUE(client.ok());
    client_ = *std::move(client);
  }

  v1::SubmitJobRequest Request(int trials = 40) {
    v1::SubmitJobRequest request;
    request.set_model("toy-model");
    request.set_graph_json(ToyGraph());
    request.set_device_key(kKey);
    request.set_tuner("random");
    request.set_trials(trials);
    request.set_wait_for_device_ms(60'000);
    return request;
  }

  // The job's last event; `tasks` as they were told last.
  v1::JobEvent Watch(int64_t job) {
    v1::JobEvent last;
    const absl::Status status = client_->WatchJob(job, [&](const v1::JobEvent& event) {
      for (const v1::TaskProgress& task : event.tasks()) tasks_[task.task()] = task;
      states_.push_back(event.state());
      last = event;
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return last;
  }

  std::vector<Record> Records(const RecordFilter& filter = {}) {
    std::vector<Record> records;
    EXPECT_TRUE(store_.Scan(filter, [&](const Record& r) { records.push_back(r); }).ok());
    return records;
  }

  std::string directory_, address_;
  absl::Duration store_patience_ = kPatience, longest_poll_ = CoreOptions().longest_poll;
  FallibleStore store_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<TunerClient> client_;
  std::map<int, v1::TaskProgress> tasks_;
  std::vector<std::string> states_;
};

}  // namespace temper
