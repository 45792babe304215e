#include "tests/chaos/fleet_fixture.h"

#include <cstdlib>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/graph/graph_json.h"
#include "compiler/graph/pipeline.h"

namespace temper {

bool Soaking() { return std::getenv("TEMPER_SOAK") != nullptr; }

void FleetTest::SetUp() {
  auto dir = TemporaryDirectory::Make();
  ASSERT_TRUE(dir.ok()) << dir.status();
  dir_ = *std::move(dir);
  options_.db = Path("records.db");
  options_.listen = "unix:" + Path("server");
  ledger_ = std::make_unique<Ledger>(Path("ledger"));
}

void FleetTest::StartServer(std::vector<std::string> environment) {
  ServerProcessOptions options = options_;
  options.environment = std::move(environment);
  const absl::Status started = server_.Start(options);
  ASSERT_TRUE(started.ok()) << started;
  options_.listen = server_.address();
}

std::unique_ptr<TunerClient> FleetTest::Client(absl::Duration call_timeout) const {
  auto client = TunerClient::Connect(options_.listen, {.call_timeout = call_timeout, .connect_timeout = call_timeout});
  return client.ok() ? *std::move(client) : nullptr;
}

std::unique_ptr<FakeWorker> FleetTest::Worker(const std::string& name, absl::Duration trial) {
  return std::make_unique<FakeWorker>(FakeWorkerOptions{
      .address = options_.listen, .key = kKey, .name = name, .trial = trial, .ledger = ledger_.get()});
}

v1::SubmitJobRequest FleetTest::OperatorsJob(int operators, int trials_each) {
  v1::SubmitJobRequest request;
  request.set_model("operators");
  request.set_device_key(kKey);
  request.set_tuner("random");
  request.set_no_booster(true);
  request.set_trials_per_task(trials_each);
  request.set_wait_for_device_ms(absl::ToInt64Milliseconds(kPatience));
  for (int i = 0; i < operators; ++i) {
    const int columns = 48 + 16 * operators_++;
    request.add_workloads(
        absl::StrCat("(f32[37,64], const f32[64,", columns, "]) matmul(0,1) -> f32[37,", columns, "]; anchor=0"));
  }
  return request;
}

v1::SubmitJobRequest FleetTest::ModelJob(int trials) {
  Graph graph;
  graph.name = "product";
  const ValueId input = graph.AddValue({.name = "x", .type = {DType::kF32, {37, 64}, {}}});
  const ValueId other = graph.AddValue({.name = "y", .type = {DType::kF32, {64, 48}, {}}});
  graph.inputs = {input, other};
  graph.outputs = {*graph.AddNode("matmul", {}, {input, other})};
  EXPECT_TRUE(Optimize(graph, Target{}).ok());
  v1::SubmitJobRequest request = OperatorsJob(0, 0);
  request.set_model(graph.name);
  request.set_graph_json(ToJson(graph));
  request.set_trials(trials);
  return request;
}

int64_t FleetTest::Submit(const v1::SubmitJobRequest& request) {
  const auto job = Client()->SubmitJob(request);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(0);
}

std::string FleetTest::AwaitEnd(int64_t job) {
  const auto client = Client();
  std::string state;
  Eventually([&] {
    const auto jobs = client->ListJobs();
    if (!jobs.ok()) return false;
    for (const v1::JobSummary& row : *jobs) {
      if (row.job() == job) state = row.state();
    }
    return IsFinalJobState(state);
  });
  return state;
}

std::string FleetTest::Situation() const {
  const auto client = Client(absl::Seconds(2));
  std::string text;
  if (const auto jobs = client->ListJobs(); jobs.ok()) {
    for (const v1::JobSummary& job : *jobs) absl::StrAppend(&text, job.ShortDebugString(), "\n");
  }
  if (const auto devices = client->ListDevices(); devices.ok()) {
    for (const v1::Device& device : *devices) absl::StrAppend(&text, device.ShortDebugString(), "\n");
  }
  return text;
}

void FleetTest::ExpectPromises(bool late) {
  const auto store = OpenStore(options_.db, OpenMode::kReadOnly);
  ASSERT_TRUE(store.ok()) << store.status();
  std::map<double, int> records;  // by what tells executions apart
  std::set<std::pair<int64_t, int>> executions;
  std::set<int64_t> settled;  // candidates
  ASSERT_TRUE((*store)
                  ->Scan({},
                         [&](const Record& record) {
                           if (record.fingerprint == kFakeFingerprint) {
                             EXPECT_EQ(++records[record.costs_s.at(0)], 1) << "P3: an execution has two records";
                           }
                           settled.insert(record.candidate);
                           if (record.candidate == 0) return;
                           EXPECT_TRUE(executions.insert({record.candidate, record.attempt}).second) << "P3";
                         })
                  .ok());
  for (const Ledger::Execution& execution : ledger_->acknowledged()) {
    if (late && settled.contains(execution.candidate)) continue;
    EXPECT_EQ(records[execution.seconds], 1)
        << "P1: lost candidate " << execution.candidate << " of job " << execution.job;
  }
  const auto jobs = (*store)->Jobs({});
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  for (const JobRow& job : *jobs)
    EXPECT_TRUE(IsFinalJobState(job.state)) << "P2: job " << job.id << " is " << job.state;
}

}  // namespace temper
