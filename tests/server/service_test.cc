// Jobs, workers and clients of the whole server in this process, over a socket.
#include "compiler/graph/extract.h"
#include "compiler/graph/graph_json.h"
#include "tests/server/service_fixture.h"

namespace temper {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(ServiceTest, AJobRunsFromSubmissionToItsEndAndItsRecordsAreServed) {
  for (const bool shares_cores : {false, true}) {
    AutoWorker worker(address_, kKey, absl::StrCat("w", shares_cores), shares_cores);
    const auto job = client_->SubmitJob(Request());
    ASSERT_TRUE(job.ok()) << job.status();
    const v1::JobEvent end = Watch(*job);
    EXPECT_EQ(end.state(), "done");
    EXPECT_EQ(end.reason(), "");
    EXPECT_EQ(end.trials(), 40);
    EXPECT_EQ(end.outcomes().at("ok"), 40);
    EXPECT_DOUBLE_EQ(end.untuned_ms(), 2);
    EXPECT_DOUBLE_EQ(end.tuned_ms(), 1);
    EXPECT_FALSE(end.kept_default());
    ASSERT_EQ(tasks_.size(), 2u);
    int trials = 0;
    for (const auto& [index, task] : tasks_) {
      trials += task.trials();
      EXPECT_TRUE(task.done());
      EXPECT_GT(task.default_s(), 0);
      EXPECT_LE(task.best_s(), task.default_s());
      const BestQuery query{.workload = task.workload(), .target = ToyTarget(), .device_key = kKey};
      const auto best = client_->QueryBest(std::vector<BestQuery>{query});
      ASSERT_TRUE(best.ok() && (*best)[0].has_value());
      EXPECT_EQ((*best)[0]->record.config, task.config());
    }
    EXPECT_EQ(trials, 40);
    EXPECT_THAT(Records({.purpose = "search", .job = *job}), SizeIs(40));
    const auto jobs = client_->ListJobs();
    ASSERT_TRUE(jobs.ok());
    EXPECT_EQ(jobs->at(0).state(), "done");
    EXPECT_DOUBLE_EQ(jobs->at(0).best_ms(), 1);
    EXPECT_THAT(store_.GetJob(*job)->summary, HasSubstr("\"trials\":40"));
  }
  // The second job repeated nothing of the first.
  std::set<std::string> distinct;
  for (const Record& record : Records({.purpose = "search"})) distinct.insert(record.workload + record.config);
  EXPECT_EQ(distinct.size(), 80u);
}

TEST_F(ServiceTest, OperatorsByThemselvesAreMeasuredWithoutAModel) {
  AutoWorker worker(address_, kKey, "w");
  v1::SubmitJobRequest request = Request();
  request.clear_graph_json();
  request.set_trials(0);
  request.set_trials_per_task(12);
  request.set_no_booster(true);
  for (const char* name : {"x", "y"}) request.add_workloads(Text(ToyWorkload(name, 100)));
  const auto job = client_->SubmitJob(request);
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::JobEvent end = Watch(*job);
  EXPECT_EQ(end.state(), "done");
  EXPECT_EQ(end.untuned_ms(), 0);
  EXPECT_EQ(tasks_.size(), 2u);
  EXPECT_THAT(Records({.workload = Text(ToyWorkload("y", 100)), .purpose = "search"}), SizeIs(testing::Ge(12u)));
  EXPECT_THAT(Records({.purpose = "final"}), SizeIs(0));
  EXPECT_THAT(store_.GetJob(*job)->spec, HasSubstr("\"booster\":false"));
  request.add_workloads("no workload");
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitJob(request).status()));
}

TEST_F(ServiceTest, AJobWaitsForItsDeviceAndAWaitingSyncGetsItsGrantByEvent) {
  const auto job = client_->SubmitJob(Request());
  ASSERT_TRUE(job.ok());
  std::string seen;
  const absl::Status watched = client_->WatchJob(*job, [&](const v1::JobEvent& event) {
    seen = event.state();
    return seen != "waiting_for_device";
  });
  EXPECT_TRUE(absl::IsCancelled(watched));
  EXPECT_EQ(seen, "waiting_for_device");
  EXPECT_EQ(client_->ListJobs()->at(0).state(), "waiting_for_device");
  AutoWorker worker(address_, kKey, "late");
  EXPECT_EQ(Watch(*job).state(), "done");
}

TEST_F(ServiceTest, AKeyThatNobodyServesFailsTheJobAndSaysSo) {
  AutoWorker worker(address_, "another key", "w");
  v1::SubmitJobRequest request = Request();
  request.set_wait_for_device_ms(0);
  const auto job = client_->SubmitJob(request);
  ASSERT_TRUE(job.ok());
  const v1::JobEvent end = Watch(*job);
  EXPECT_EQ(end.state(), "failed");
  EXPECT_EQ(end.reason(), "no worker serves device key 'toy-device'");
  EXPECT_EQ(store_.GetJob(*job)->state, "failed");
}

TEST_F(ServiceTest, AWorkerThatDiesWithALeaseIsReplacedAndTheJobGoesOn) {
  const auto job = client_->SubmitJob(Request());
  ASSERT_TRUE(job.ok());
  {
    WorkerCalls dying(address_);
    dying.Register(kKey, "dying");
    const v1::Lease lease = dying.Take();
    ASSERT_TRUE(lease.has_batch());
    // Its connection breaks while a call waits: of two, the one that the other has ended is answered, the other waits.
    grpc::ClientContext contexts[2];
    std::promise<int> answered;
    std::atomic<bool> first = true;
    std::vector<std::thread> calls;
    for (int i = 0; i < 2; ++i) {
      SetDeadline(contexts[i]);
      calls.emplace_back([&, i] {
        v1::SyncReply reply;
        dying.Sync(contexts[i], {lease.lease()}, 0, 20'000, reply);
        if (first.exchange(false)) answered.set_value(i);
      });
    }
    contexts[1 - answered.get_future().get()].TryCancel();
    for (std::thread& call : calls) call.join();
  }
  AutoWorker worker(address_, kKey, "successor");
  const v1::JobEvent end = Watch(*job);
  EXPECT_EQ(end.state(), "done");
  EXPECT_EQ(end.trials(), 40);
}

TEST_F(ServiceTest, ResultsAreAcknowledgedOnceStoredAndASecondTimeAlike) {
  ASSERT_TRUE(client_->SubmitJob(Request()).ok());
  WorkerCalls worker(address_);
  worker.Register(kKey, "w");
  const v1::SubmitResultsRequest results = Measure(worker.Take());
  ASSERT_GT(results.results_size(), 0);
  store_.full = true;
  v1::SubmitResultsReply reply;
  const grpc::Status refused = worker.Submit(results, reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("the disk is full"));
  EXPECT_THAT(Records(), SizeIs(0));
  store_.full = false;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(worker.Submit(results, reply).ok());
    EXPECT_EQ(reply.acked_size(), results.results_size());
    EXPECT_THAT(reply.acked(), ::testing::Each(true));
    EXPECT_THAT(Records(), SizeIs(results.results_size()));
  }
  v1::SubmitResultsRequest altered = results;
  altered.mutable_results(0)->set_costs_s(0, 1e-9);
  ASSERT_TRUE(worker.Submit(altered, reply).ok());
  EXPECT_FALSE(reply.acked(0));
  EXPECT_THAT(Records(), SizeIs(results.results_size()));
}

// What a server before this one stored is in the store, and nowhere else.
TEST_F(ServiceTest, TheNextServerRefusesWhatContradictsARecordAndWhatItKnowsNothingOf) {
  ASSERT_TRUE(client_->SubmitJob(Request()).ok());
  WorkerCalls worker(address_);
  worker.Register(kKey, "w");
  const v1::SubmitResultsRequest results = Measure(worker.Take());
  ASSERT_GT(results.results_size(), 2);
  v1::SubmitResultsReply reply;
  ASSERT_TRUE(worker.Submit(results, reply).ok());
  server_->Shutdown();
  StartServer();
  v1::SubmitResultsRequest again = results;
  again.mutable_results(0)->set_costs_s(0, 1e-9);                                       // altered
  again.mutable_results(1)->set_candidate(results.results(1).candidate() + (1 << 30));  // of no work
  ASSERT_TRUE(worker.Submit(again, reply).ok());
  ASSERT_EQ(reply.acked_size(), results.results_size());
  EXPECT_FALSE(reply.acked(0));
  EXPECT_FALSE(reply.acked(1));
  for (int i = 2; i < reply.acked_size(); ++i) EXPECT_TRUE(reply.acked(i)) << "the same is acknowledged again";
  EXPECT_THAT(Records(), SizeIs(results.results_size()));
  EXPECT_THAT(server_->core().metrics().Text(), HasSubstr("temper_failures_total{class=\"conflicting_result\"} 1\n"));
}

TEST_F(ServiceTest, ARequestThatIsSentAgainIsTheSameJobAlsoAtTheNextServer) {
  v1::SubmitJobRequest request = Request();
  request.set_request_id("r1");
  const int64_t job = *client_->SubmitJob(request);
  EXPECT_EQ(*client_->SubmitJob(request), job);
  EXPECT_NE(*client_->SubmitJob(Request()), job) << "another request";
  const auto stranger = *TunerClient::Connect(address_, {.call_timeout = kPatience, .identity = "somebody else"});
  EXPECT_NE(*stranger->SubmitJob(request), job) << "another's request";
  server_->Shutdown();
  StartServer();
  EXPECT_EQ(*client_->SubmitJob(request), job);
  EXPECT_THAT(*client_->ListJobs(), SizeIs(3));
}

TEST_F(ServiceTest, ASubmissionOutlastsItsServer) {
  ASSERT_TRUE(client_->ListJobs().ok());
  const auto client = *TunerClient::Connect(address_, {.call_timeout = kPatience});
  ASSERT_TRUE(client->ListJobs().ok());
  server_->Shutdown();
  std::promise<void> begun;
  auto job = std::async(std::launch::async, [&] {
    begun.set_value();
    return client->SubmitJob(Request());
  });
  begun.get_future().wait();
  StartServer();
  const absl::StatusOr<int64_t> submitted = job.get();
  EXPECT_TRUE(submitted.ok()) << submitted.status();
}

// Its deadline is half a minute away.
TEST_F(ServiceTest, ASubmissionIsInterruptedThoughTheServerDoesNotAnswer) {
  std::promise<void> creating, answer;
  store_.before_create = [&, goes_on = answer.get_future().share()] {
    creating.set_value();
    goes_on.wait();
  };
  StopSignal stop;
  const auto client = *TunerClient::Connect(address_, {.call_timeout = kPatience});
  auto submitted = std::async(std::launch::async, [&] { return client->SubmitJob(Request(), kPatience, &stop); });
  creating.get_future().wait();
  stop.Cancel();
  EXPECT_TRUE(absl::IsCancelled(submitted.get().status()));
  answer.set_value();
}

TEST_F(ServiceTest, AJobFailsWhenNothingCanBeStoredForLong) {
  server_.reset();
  store_patience_ = absl::ZeroDuration();
  StartServer();
  const auto job = client_->SubmitJob(Request());
  ASSERT_TRUE(job.ok());
  WorkerCalls worker(address_);
  worker.Register(kKey, "w");
  const v1::SubmitResultsRequest results = Measure(worker.Take());
  store_.full = true;
  v1::SubmitResultsReply reply;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(worker.Submit(results, reply).ok());
  const v1::JobEvent end = Watch(*job);
  EXPECT_EQ(end.state(), "failed");
  EXPECT_THAT(end.reason(), HasSubstr("the disk is full"));
  store_.full = false;
  EXPECT_TRUE(worker.Submit(results, reply).ok()) << "the worker still has them, and now they are kept";
  EXPECT_THAT(Records(), SizeIs(results.results_size()));
}

TEST_F(ServiceTest, UnsoundSamplesAreNotBelieved) {
  ASSERT_TRUE(client_->SubmitJob(Request()).ok());
  WorkerCalls worker(address_);
  worker.Register(kKey, "w");
  v1::SubmitResultsRequest results = Measure(worker.Take());
  results.mutable_results(0)->set_costs_s(0, 0);
  v1::SubmitResultsReply reply;
  ASSERT_TRUE(worker.Submit(results, reply).ok());
  // It is tried again, alone.
  EXPECT_THAT(Records(), SizeIs(results.results_size() - 1));
  const v1::Lease again = worker.Take();
  EXPECT_THAT(again.batch().candidates(), SizeIs(1));
  EXPECT_EQ(again.batch().candidates(0).candidate(), results.results(0).candidate());
  EXPECT_EQ(again.batch().candidates(0).attempt(), 2);
}

TEST_F(ServiceTest, CancellingEndsAJobInAnyPhase) {
  const auto waiting = client_->SubmitJob(Request());
  ASSERT_TRUE(client_->CancelJob(*waiting).ok());
  EXPECT_EQ(Watch(*waiting).state(), "cancelled");

  const auto running = client_->SubmitJob(Request());
  WorkerCalls worker(address_);
  worker.Register(kKey, "w");
  const v1::Lease lease = worker.Take();
  ASSERT_TRUE(lease.has_batch());
  ASSERT_TRUE(client_->CancelJob(*running).ok());
  EXPECT_EQ(Watch(*running).state(), "cancelled");
  grpc::ClientContext context;
  SetDeadline(context);
  v1::SyncReply reply;
  ASSERT_TRUE(worker.Sync(context, {lease.lease()}, 0, 20'000, reply).ok());
  EXPECT_THAT(reply.cancels(), ::testing::ElementsAre(lease.lease()));

  EXPECT_TRUE(client_->CancelJob(*running).ok());  // over: nothing to do
  EXPECT_TRUE(absl::IsNotFound(client_->CancelJob(12345)));
}

TEST_F(ServiceTest, AJobOfACommandEndsWithItsWatcher) {
  v1::SubmitJobRequest request = Request();
  request.set_close_with_command(true);
  const auto job = client_->SubmitJob(request);
  EXPECT_TRUE(absl::IsCancelled(client_->WatchJob(*job, [](const v1::JobEvent&) { return false; })));
  // Whoever asks now watches it, but the command's watcher may be back only within its grace.
  for (const absl::Time give_up = absl::Now() + kPatience; absl::Now() < give_up;) {
    if (store_.GetJob(*job)->state == "cancelled") break;
    std::this_thread::yield();
  }
  EXPECT_EQ(store_.GetJob(*job)->state, "cancelled");
  EXPECT_EQ(Watch(*job).reason(), "its command is gone");
}

TEST_F(ServiceTest, AJobSurvivesItsServerAndSoDoesWhatAWorkerHoldsOfIt) {
  const auto job = client_->SubmitJob(Request());
  WorkerCalls worker(address_);
  worker.Register(kKey, "w");
  v1::SubmitResultsReply acks;
  v1::SubmitResultsRequest handed_in = Measure(worker.Take());
  ASSERT_TRUE(worker.Submit(handed_in, acks).ok());
  v1::SubmitResultsRequest late = Measure(worker.Take());
  // A watch goes on by itself at the next server.
  const auto watcher = TunerClient::Connect(address_);
  v1::JobEvent end;
  std::promise<void> watching;
  auto watched = std::async(std::launch::async, [&] {
    return (*watcher)->WatchJob(
        *job,
        [&](const v1::JobEvent& event) {
          if (end.state().empty()) watching.set_value();
          end = event;
          return true;
        },
        kPatience);
  });
  watching.get_future().wait();
  server_->Shutdown();
  EXPECT_FALSE(IsFinalJobState(store_.GetJob(*job)->state));
  StartServer();
  // The same result from before, once acknowledged and once not, counts once; and so does what was lost on its way.
  ASSERT_TRUE(worker.Submit(handed_in, acks).ok());
  ASSERT_TRUE(worker.Submit(late, acks).ok());
  EXPECT_THAT(acks.acked(), ::testing::Each(true));
  EXPECT_THAT(Records(), SizeIs(handed_in.results_size() + late.results_size()));
  AutoWorker successor(address_, kKey, "successor");
  EXPECT_TRUE(watched.get().ok());
  EXPECT_EQ(end.state(), "done");
  EXPECT_EQ(end.trials(), 40) << "in both lives together";
  EXPECT_EQ(Records({.purpose = "search", .job = *job}).size(), 40u);
  std::set<std::pair<int64_t, int>> executions;
  std::set<std::string> configs;
  for (const Record& record : Records({.purpose = "search"})) {
    executions.emplace(record.candidate, record.attempt);
    configs.insert(record.workload + record.config);
  }
  EXPECT_EQ(executions.size(), 40u);
  EXPECT_EQ(configs.size(), 40u) << "nothing was measured twice";
  EXPECT_EQ(store_.GetJob(*job)->request, "");
  EXPECT_THAT(*store_.Leases(), SizeIs(0));
}

TEST_F(ServiceTest, AJobOfACommandEndsWithTheServer) {
  v1::SubmitJobRequest request = Request();
  request.set_close_with_command(true);
  const auto job = client_->SubmitJob(request);
  server_->Shutdown();
  EXPECT_EQ(store_.GetJob(*job)->state, "abandoned");
  // One that was killed could not say so itself.
  JobRow left = *store_.GetJob(*job);
  left.state = "running";
  left.id = *store_.CreateJob(left);
  StartServer();
  EXPECT_EQ(store_.GetJob(left.id)->state, "abandoned");
  EXPECT_EQ(Watch(left.id).state(), "abandoned");
}

TEST_F(ServiceTest, AWatchIsTakenUpAtItsCursorAndTellsOnlyWhatChanged) {
  AutoWorker worker(address_, kKey, "w");
  const auto job = client_->SubmitJob(Request());
  const v1::JobEvent end = Watch(*job);
  auto stub = v1::TuningService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  for (const int64_t cursor : {end.cursor() - 1, int64_t{0}}) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::WatchJobRequest request;
    request.set_job(*job);
    request.set_cursor(cursor);
    auto reader = stub->WatchJob(&context, request);
    v1::JobEvent event;
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_EQ(event.state(), "done");
    EXPECT_EQ(event.tasks_size(), cursor == 0 ? 2 : 0);
    EXPECT_FALSE(reader->Read(&event));
    EXPECT_TRUE(reader->Finish().ok());
  }
  EXPECT_TRUE(absl::IsNotFound(client_->WatchJob(999, [](const v1::JobEvent&) { return true; })));
}

TEST_F(ServiceTest, TheLastJobThatMeasuredAModelSaysWhatToBuildItWith) {
  const auto graph = GraphFromJson(Request().graph_json());
  ASSERT_TRUE(graph.ok());
  const std::string model = ModelHash(*ExtractTasks(*graph));
  const auto ask = [&](const std::string& key) {
    const auto verdict = client_->QueryVerdict(model, ToyTarget(), key);
    EXPECT_TRUE(verdict.ok()) << verdict.status();
    return verdict.ok() ? *verdict : std::nullopt;
  };
  EXPECT_FALSE(ask(kKey).has_value());
  AutoWorker worker(address_, kKey, "w");
  const auto job = client_->SubmitJob(Request());
  EXPECT_EQ(Watch(*job).state(), "done");
  ASSERT_TRUE(ask(kKey).has_value());
  EXPECT_EQ(ask(kKey)->job, *job);
  EXPECT_EQ(ask(kKey)->build_with, "tuned");
  EXPECT_FALSE(ask("another key").has_value());
  JobRow slower = *store_.GetJob(*job);
  slower.build_with = "default";
  const auto later = store_.CreateJob(slower);
  EXPECT_EQ(ask("")->job, *later);
  EXPECT_EQ(ask("")->build_with, "default");
}

TEST_F(ServiceTest, RecordsGoInAndOutUnchanged) {
  std::vector<Record> records;
  for (int i = 0; i < 600; ++i) {
    Record record;
    record.workload = absl::StrCat("w", i);
    record.anchor = "a";
    record.target = ToyTarget();
    record.device_key = kKey;
    record.template_name = "toy.grid";
    record.config = absl::StrCat("x=", i);
    record.costs_s = {1e-3, 2e-3 + i, 3e-3};
    records.push_back(record);
  }
  const auto ids = client_->PutRecords(records);
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_EQ(ids->size(), records.size());
  std::vector<Record> back;
  const auto keep = [&](const Record& r) {
    back.push_back(r);
    return true;
  };
  ASSERT_TRUE(client_->ExportRecords({.after_id = (*ids)[99]}, false, keep).ok());
  ASSERT_EQ(back.size(), 500u);
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].id, (*ids)[i + 100]);
    EXPECT_EQ(back[i].workload, records[i + 100].workload);
    EXPECT_EQ(back[i].costs_s, records[i + 100].costs_s);
  }
  const auto again = client_->PutRecords(records);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(*again, ::testing::Each(0)) << "what is known already is not added";
  records.resize(1);
  records[0].purpose = "nonsense";
  EXPECT_TRUE(absl::IsInvalidArgument(client_->PutRecords(records).status()));
}

TEST_F(ServiceTest, DevicesAreListedWithTheirState) {
  AutoWorker worker(address_, kKey, "w");
  const auto job = client_->SubmitJob(Request());
  Watch(*job);
  const auto devices = client_->ListDevices();
  ASSERT_TRUE(devices.ok());
  ASSERT_THAT(*devices, SizeIs(1));
  EXPECT_EQ(devices->at(0).key(), kKey);
  EXPECT_EQ(devices->at(0).state(), "idle");
  EXPECT_GE(devices->at(0).trials(), 40);
  EXPECT_EQ(devices->at(0).failures(), 0);
  EXPECT_EQ(devices->at(0).target(), ToyTarget());
}

TEST_F(ServiceTest, AWorkerOfAnEarlierWireIsRefusedByName) {
  v1::RegisterRequest request;  // all that such a worker says
  request.set_device_key(kKey);
  request.set_fingerprint("toy");
  request.set_target(ToyTarget());
  request.set_codegen_id("c0");
  request.set_name("old:1");
  request.set_threads(1);
  request.set_slots(2);
  WorkerCalls worker(address_);
  const auto answer = [&] {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::RegisterReply reply;
    return worker.stub().Register(&context, request, &reply);
  };
  for (const int version : {0, kOldestWireVersion - 1}) {
    request.set_wire_version(version);
    const grpc::Status refused = answer();
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(refused.error_message(),
              absl::StrCat("the worker old:1 speaks version ", version, " of the wire, and this server needs ",
                           kOldestWireVersion, ": update it"));
  }
  EXPECT_THAT(*client_->ListDevices(), SizeIs(0));
  request.set_wire_version(kOldestWireVersion);
  EXPECT_TRUE(answer().ok()) << "and the oldest that is served";
}

TEST_F(ServiceTest, BadRequestsAreRefusedInOneLine) {
  v1::SubmitJobRequest request = Request();
  request.set_graph_json("{\"broken\"");
  EXPECT_FALSE(client_->SubmitJob(request).ok());
  request = Request();
  request.set_tuner("oracle");
  EXPECT_THAT(std::string(client_->SubmitJob(request).status().message()), HasSubstr("no tuner 'oracle'"));
  request = Request();
  request.set_trials(0);
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitJob(request).status()));
  request.set_min_gain(1.5);
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitJob(request).status()));
  EXPECT_THAT(*client_->ListJobs(), SizeIs(0));

  auto stub = v1::TuningService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext endless;
  v1::ListJobsReply reply;
  EXPECT_EQ(stub->ListJobs(&endless, {}, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  grpc::ClientContext context;
  SetDeadline(context);
  v1::SubmitResultsRequest large;
  large.add_results()->set_error(std::string(2 << 20, 'x'));
  v1::SubmitResultsReply acks;
  EXPECT_EQ(WorkerCalls(address_).stub().SubmitResults(&context, large, &acks).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServiceTest, AServerThatIsNotThereIsNamed) {
  const auto client = TunerClient::Connect("127.0.0.1:1");
  ASSERT_TRUE(client.ok());
  const absl::Status status = (*client)->ListJobs().status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1"));
}

TEST(ServerAddress, LoopbackAndSocketsOnlyUnlessToldOtherwise) {
  for (const char* fine : {"127.0.0.1:9190", "127.0.0.1:0", "localhost:1", "[::1]:80", "unix:/run/x.sock"}) {
    EXPECT_TRUE(CheckListenAddress({.listen = fine}).ok()) << fine;
  }
  for (const char* open : {"0.0.0.0:9190", "[::]:9190", "192.168.0.1:1", "example.org:1"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckListenAddress({.listen = open}))) << open;
    EXPECT_TRUE(CheckListenAddress({.listen = open, .insecure = true}).ok()) << open;
    EXPECT_TRUE(CheckListenAddress({.listen = open, .directory = "d"}).ok()) << open;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(CheckListenAddress({.listen = "9190", .insecure = true})));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckListenAddress({.listen = "[::]:1", .insecure = true, .directory = "d"})));
}

TEST(ServerAddress, APortIsChosenAndNotSharedWithASecondServer) {
  const std::unique_ptr<Store> store = *OpenStore("memory:");
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  const auto first = Server::Start(*store, Clock::System(), options);
  ASSERT_TRUE(first.ok());
  EXPECT_NE((*first)->address(), options.listen);
  options.listen = (*first)->address();
  const auto second = Server::Start(*store, Clock::System(), options);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
}

}  // namespace
}  // namespace temper
