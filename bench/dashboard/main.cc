// A server with much to show, for bench/dashboard/browse.py.
//   bench_dashboard FILE [--records N] [--jobs N] [--devices N] [--http HOST:PORT]
// Fills FILE once: jobs of 1,000 trials each, 25 tasks a job, a tenth of the trials failures. Then it serves the
// dashboard beside so many workers, prints its address, and ends with its stdin.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/rng.h"
#include "proto/convert.h"
#include "tuner_server/dashboard/dashboard.h"
#include "tuner_server/operations/operations.h"
#include "tuner_server/service/server.h"

namespace temper {
namespace {

constexpr int64_t kTrialsAJob = 1000, kTasksAJob = 25, kModels = 40, kChunk = 4000;
constexpr char kTarget[] = "llvm -mcpu=x86-64-v4 -threads=16";

struct Options {
  std::string file, http = "127.0.0.1:0";
  int64_t records = 1'000'000, jobs = 1000, devices = 200;
};

std::string Anchor(int64_t model, int64_t task) {
  const int64_t channels = 16 * (task + 1), size = 8 + model;
  return absl::StrCat("(f32[1,", channels, ",", size, ",", size, "], const f32[", channels, ",", channels,
                      ",3,3]) conv2d(0,1; group=1 pads=[1,1,1,1]) -> f32[1,", channels, ",", size, ",", size, "]");
}
std::string Workload(int64_t model, int64_t task) {
  const int64_t channels = 16 * (task + 1), size = 8 + model;
  return absl::StrCat(Anchor(model, task), "; relu(2) -> f32[1,", channels, ",", size, ",", size, "]; anchor=0");
}
std::string KeyOf(int64_t job, const Options& options) { return absl::StrCat("device-", job % options.devices); }

Record RecordAt(int64_t index, const Options& options) {
  const int64_t job = index / kTrialsAJob % options.jobs + 1, trial = index % kTrialsAJob, task = trial % kTasksAJob;
  Rng rng(index);
  Record r;
  r.workload = Workload(job % kModels, task);
  r.anchor = Anchor(job % kModels, task);
  r.target = kTarget;
  r.device_key = KeyOf(job, options);
  r.fingerprint = absl::StrCat("CPU of ", r.device_key, ", 16 cores");
  r.threads = 16;
  r.template_name = "conv2d.rows";
  r.config = absl::StrCat("mr=6,nr=", trial, ",kc=", index % 512);
  r.codegen_id = "7.3.19";
  r.tuner = "xgb";
  r.job = job;
  r.time_unix_ms = 1'760'000'000'000 + index * 20;
  r.candidate = index + 1;
  r.attempt = 1;
  if (rng.Below(10) == 0) {
    r.outcome = trial % 2 == 0 ? Outcome::kRunTimeout : Outcome::kBuildFailed;
    r.error = absl::StrCat(trial % 3 == 0 ? "longer than " : "no room for ", trial, " bytes");
    return r;
  }
  const double seconds = 1e-4 * (1 + 4 * rng.Uniform() / (1 + static_cast<double>(trial) / 100));
  for (int i = 0; i < 3; ++i) r.costs_s.push_back(seconds * (1 + 0.01 * rng.Uniform()));
  return r;
}

absl::Status FillRecords(Store& store, const Options& options) {
  int64_t have = 0;
  TEMPER_RETURN_IF_ERROR(store.Scan({.limit = 1, .newest_first = true}, [&](const Record& r) { have = r.id; }));
  while (have < options.records) {
    std::vector<Record> chunk;
    while (have < options.records && static_cast<int64_t>(chunk.size()) < kChunk)
      chunk.push_back(RecordAt(have++, options));
    TEMPER_RETURN_IF_ERROR(store.Append(chunk).status());
    if (have % (25 * kChunk) == 0) std::fprintf(stderr, "%lld records\n", static_cast<long long>(have));
  }
  return absl::OkStatus();
}

absl::Status FillJobs(Store& store, const Options& options) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> newest, store.Jobs({.limit = 1}));
  for (int64_t id = newest.empty() ? 1 : newest[0].id + 1; id <= options.jobs; ++id) {
    nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
    for (int64_t task = 0; task < kTasksAJob; ++task) {
      tasks.push_back({{"workload", Workload(id % kModels, task)},
                       {"weight", 1 + task % 3},
                       {"alternative", false},
                       {"trials", kTrialsAJob / kTasksAJob},
                       {"failures", {{"run_timeout", 2}}},
                       {"untuned_ms", 0.4},
                       {"best_ms", 0.1 + 0.01 * static_cast<double>(task)},
                       {"template", "conv2d.rows"},
                       {"config", "mr=6,nr=16,kc=64"},
                       {"why_done", "trials"}});
    }
    const nlohmann::ordered_json summary = {{"seconds", 600}, {"untuned_ms", 20}, {"tuned_ms", 7}, {"tasks", tasks}};
    JobRow job;
    job.model = absl::StrCat("model-", id % kModels, ".onnx");
    job.target = kTarget;
    job.device_key = KeyOf(id, options);
    job.tuner = "xgb";
    job.owner = absl::StrCat("user-", id % 7);
    job.state = id % 9 == 0 ? "failed" : "done";
    job.reason = id % 9 == 0 ? "no worker serves this device key" : "";
    job.trials = kTrialsAJob;
    job.best_ms = 7;
    job.model_hash = absl::StrCat("hash-", id % kModels);
    job.build_with = "tuned";
    job.created_unix_ms = job.updated_unix_ms = 1'760'000'000'000 + id * 1000;
    job.summary = summary.dump();
    TEMPER_RETURN_IF_ERROR(store.CreateJob(job).status());
  }
  return absl::OkStatus();
}

absl::Status Serve(Store& store, const Options& options) {
  ServerOptions server_options;
  server_options.listen = "127.0.0.1:0";
  server_options.core.dispatch.session_timeout = absl::Hours(24);  // the workers say nothing
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(store, Clock::System(), server_options));
  for (int64_t i = 0; i < options.devices; ++i) {
    const std::string key = absl::StrCat("device-", i);
    TEMPER_RETURN_IF_ERROR(server->core()
                               .Register({.device_key = key,
                                          .fingerprint = absl::StrCat("CPU of ", key, ", 16 cores"),
                                          .target = kTarget,
                                          .codegen_id = "7.3.19",
                                          .name = absl::StrCat("host-", i, "/4711"),
                                          .instance = key,
                                          .wire_version = kWireVersion})
                               .status());
  }
  Dashboard dashboard(server->core(), server->gate(), {});
  OperationsOptions operations;
  operations.http = options.http;
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Operations> pages,
                          Operations::Start(
                              operations, options.file, store, server->core().metrics(),
                              [&server] { return server->core().Status(); }, Clock::System(), dashboard.Routes()));
  std::printf("pages at http://%s\n", pages->http_address().c_str());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, OpenStore(options.file));
  TEMPER_RETURN_IF_ERROR(FillJobs(*store, options));
  TEMPER_RETURN_IF_ERROR(FillRecords(*store, options));
  return Serve(*store, options);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  CLI::App app("Serves the dashboard of a server with much to show.", "bench_dashboard");
  temper::Options options;
  app.add_option("FILE", options.file, "The database; filled once")->required();
  app.add_option("--records", options.records)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--jobs", options.jobs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--devices", options.devices)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--http", options.http)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  temper::SetUpLogging(false);
  const absl::Status status = temper::Run(options);
  if (!status.ok()) std::fprintf(stderr, "bench_dashboard: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
