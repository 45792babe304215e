// bench_scaling: how much faster one job's search is with more workers, and what that costs its result. Real server and
// search; workers whose trials take a fixed time. The space is made up: what the draft expects, times a factor for each
// knob's value that only trials can tell.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "base/temporary_directory.h"
#include "bench/service/sleeping_worker.h"
#include "bench/service/target.h"
#include "client/tuner_client.h"
#include "compiler/ops/template.h"
#include "tests/chaos/process.h"

namespace temper::bench {
namespace {

struct Options {
  std::vector<int> workers = {1, 8, 64};
  int trials = 200, tasks = 20;  // trials a worker
  double trial_ms = 100;
  std::string tuner = "xgb";
  uint64_t seed = 1;
};

// From 0 to 1, by the text alone.
double Share(const std::string& text) {
  return static_cast<double>(StableHash(text) >> 11) / static_cast<double>(uint64_t{1} << 53);
}

double MadeUpSeconds(const v1::Batch& batch, const v1::CandidateSpec& candidate) {
  const absl::StatusOr<Workload> workload = ParseWorkload(batch.workload());
  const absl::StatusOr<Target> target = ParseTarget(batch.target());
  const absl::StatusOr<Config> config = ParseConfig(candidate.config());
  const TemplateDef* def = FindTemplate(candidate.template_name());
  if (!workload.ok() || !target.ok() || !config.ok() || def == nullptr) return 1;
  double seconds = def->footprint(*workload, *config, *target).draft_s;
  for (const absl::string_view knob : absl::StrSplit(candidate.config(), ',')) {
    seconds *= 0.8 + 0.4 * Share(absl::StrCat(batch.workload(), candidate.template_name(), knob));
  }
  return seconds;
}

v1::SubmitJobRequest JobOf(const Options& options, int trials) {
  v1::SubmitJobRequest request;
  request.set_model("scaling");
  request.set_device_key(kNullKey);
  request.set_tuner(options.tuner);
  request.set_no_booster(true);
  request.set_wait_for_device_ms(60'000);
  request.set_trials(trials);
  request.set_seed(options.seed);
  for (int i = 0; i < options.tasks; ++i) {
    // Convolutions, whose spaces no number of trials here exhausts.
    const int k = 64 + 32 * i;
    request.add_workloads(
        absl::StrCat("(f32[1,64,28,28]@0231, const f32[", k,
                     ",64,3,3]) conv2d(0,1; dilations=[1,1] group=1 pads=[1,1,1,1] strides=[1,1]) -> f32[1,", k,
                     ",28,28]@0231; ", "anchor=0"));
  }
  return request;
}

struct Run {
  int trials = 0, refused = 0;
  double seconds = 0;       // from the first trial's beginning to the last one's end
  double best_s = 0;        // of all tasks together
  double server_cores = 0;  // on average
};

absl::StatusOr<Run> Search(const Options& options, int workers, int trials, absl::Duration trial) {
  TEMPER_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Make());
  ServerProcess server;
  TEMPER_RETURN_IF_ERROR(server.Start({.db = folder.path() + "/records.db"}));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<TunerClient> client, TunerClient::Connect(server.address()));
  std::vector<std::unique_ptr<SleepingWorker>> fleet;
  for (int i = 0; i < workers; ++i) {
    fleet.push_back(std::make_unique<SleepingWorker>(server.address(), absl::StrCat("w", i), trial, MadeUpSeconds));
  }
  const double cpu = server.CpuSeconds();
  TEMPER_ASSIGN_OR_RETURN(const int64_t job, client->SubmitJob(JobOf(options, trials)));
  std::map<int, double> best_s;  // by task
  std::string state, reason;
  TEMPER_RETURN_IF_ERROR(client->WatchJob(job, [&](const v1::JobEvent& event) {
    for (const v1::TaskProgress& task : event.tasks()) best_s[task.task()] = task.best_s();
    state = event.state();
    reason = event.reason();
    return true;
  }));
  if (state != "done") return absl::InternalError(absl::StrCat("the job is ", state, ": ", reason));
  Run run;
  absl::Time first = absl::InfiniteFuture(), last = absl::InfinitePast();
  for (const auto& worker : fleet) {
    const SleepingWorker::Work work = worker->work();
    run.trials += work.trials;
    run.refused += work.refused;
    first = std::min(first, work.first);
    last = std::max(last, work.last);
  }
  run.seconds = absl::ToDoubleSeconds(last - first);
  run.server_cores = (server.CpuSeconds() - cpu) / run.seconds;
  for (const auto& [task, seconds] : best_s) run.best_s += seconds;
  fleet.clear();
  server.KillAndWait();
  return run;
}

absl::Status Compare(const Options& options) {
  std::printf("%8s %8s %9s %9s %9s %9s %13s %8s\n", "workers", "trials", "seconds", "trials/s", "of linear", "best ms",
              "by one worker", "cores");
  double one = 0;  // trials a second of the first row's workers, for each of them
  for (const int workers : options.workers) {
    const int trials = options.trials * workers;
    TEMPER_ASSIGN_OR_RETURN(const Run run, Search(options, workers, trials, absl::Milliseconds(options.trial_ms)));
    // The same number of trials by one worker, whose batches come one after another; how long a trial takes changes
    // nothing of what it finds.
    TEMPER_ASSIGN_OR_RETURN(const Run alone, Search(options, 1, trials, absl::ZeroDuration()));
    const double rate = run.trials / run.seconds;
    if (one == 0) one = rate / workers;
    std::printf("%8d %8d %9.1f %9.1f %9.3f %9.3f %13.3f %8.2f\n", workers, run.trials, run.seconds, rate,
                rate / workers / one, run.best_s * 1e3, alone.best_s * 1e3, run.server_cores);
    std::fflush(stdout);
    if (run.refused + alone.refused > 0) return absl::InternalError("results were refused");
  }
  std::printf("\nbars: at least 0.9 of linear; best within 3 %% of what one worker finds by as many trials\n");
  return absl::OkStatus();
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  temper::bench::Options options;
  CLI::App app("One job's search over more and more workers.", "bench_scaling");
  app.add_option("--workers", options.workers, "How many, one row each")->delimiter(',')->capture_default_str();
  app.add_option("--trials", options.trials, "For each worker")->capture_default_str();
  app.add_option("--tasks", options.tasks, "Of the job")->capture_default_str();
  app.add_option("--trial-ms", options.trial_ms, "What a trial takes")->capture_default_str();
  app.add_option("--tuner", options.tuner)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const absl::Status ran = temper::bench::Compare(options); !ran.ok()) {
    std::fprintf(stderr, "bench_scaling: %s\n", std::string(ran.message()).c_str());
    return 1;
  }
  return 0;
}
