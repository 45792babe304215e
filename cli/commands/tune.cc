#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/local_fleet.h"
#include "cli/report/progress.h"
#include "cli/report/tune_report.h"
#include "compiler/graph/graph_json.h"
#include "proto/convert.h"
#include "tuner_server/search/tuner.h"

namespace temper {
namespace {

// Of a job that has no other limit.
constexpr char kUsualMinGain[] = "0.5%";
constexpr char kNoJobYet[] = "interrupted: there is no job yet";
constexpr char kPerhapsAJob[] = "interrupted: the server may have the job already, see `temper jobs`";
constexpr absl::Duration kLookAgain = absl::Milliseconds(250);  // for a worker of the key

struct TuneOptions {
  ModelOptions model;
  RecordOptions records;
  std::string tuner = "xgb", time_budget, wait_for_device = "30s", json, cores, min_gain;
  int priority = 0;
  int trials = 0, trials_per_task = 0, early_stopping = 0, early_stopping_model = 0;
  uint64_t seed = 0;
  bool revalidate = false, no_booster = false, events = false;
};

// A gain of nothing is no limit, and of all is none.
absl::StatusOr<double> ParseGain(const std::string& text) {
  const absl::StatusOr<double> gain = ParseShare("--min-gain", text);
  if (!gain.ok() || (*gain > 0 && *gain < 1)) return gain;
  return absl::InvalidArgumentError(absl::StrCat("--min-gain ", text, ": expected a share between 0% and 100%"));
}

absl::StatusOr<v1::SubmitJobRequest> Request(const TuneOptions& o, bool local) {
  v1::SubmitJobRequest request;
  request.set_device_key(o.records.device);
  request.set_tuner(o.tuner);
  request.set_trials(o.trials);
  request.set_trials_per_task(o.trials_per_task);
  request.set_early_stopping(o.early_stopping);
  request.set_early_stopping_model(o.early_stopping_model);
  request.set_seed(o.seed);
  request.set_priority(o.priority);
  request.set_close_with_command(local);
  request.set_revalidate(o.revalidate);
  request.set_no_booster(o.no_booster);
  absl::Duration budget = absl::ZeroDuration(), wait;
  if (!o.time_budget.empty() && (!absl::ParseDuration(o.time_budget, &budget) || budget <= absl::ZeroDuration() ||
                                 budget == absl::InfiniteDuration())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--time-budget ", o.time_budget, ": expected a time such as 90s or 5m"));
  }
  if (!absl::ParseDuration(o.wait_for_device, &wait) || wait < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--wait-for-device ", o.wait_for_device, ": expected a time such as 30s"));
  }
  const bool limited = budget > absl::ZeroDuration() || o.trials > 0 || o.trials_per_task > 0 || o.early_stopping > 0 ||
                       o.early_stopping_model > 0 || o.revalidate;
  if (!o.min_gain.empty() || !limited) {
    TEMPER_ASSIGN_OR_RETURN(const double min_gain, ParseGain(o.min_gain.empty() ? kUsualMinGain : o.min_gain));
    request.set_min_gain(min_gain);
  }
  if (budget > absl::ZeroDuration())
    request.set_time_budget_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(budget)));  // 0 is no limit
  request.set_wait_for_device_ms(absl::ToInt64Milliseconds(wait));
  return request;
}

// Whether a server that answered before, and does not any more, is back in time.
bool Returns(TunerClient& client, const StopSignal& stop) {
  for (const absl::Time give_up = absl::Now() + kServerPatience; !stop.cancelled() && absl::Now() < give_up;) {
    if (client.WaitUntilReady(kLookAgain).ok()) return true;
  }
  return false;
}

// What the key's devices are, which the graph has to be optimised for. Waits for the first one, and takes that off the
// time that the job will wait.
absl::StatusOr<Target> AwaitDevice(TunerClient& client, const std::string& key, StopSignal& stop,
                                   v1::SubmitJobRequest* request) {
  const absl::Duration start = Clock::System().Monotonic(),
                       patience = absl::Milliseconds(request->wait_for_device_ms());
  absl::Duration answered = -absl::InfiniteDuration();  // when it did last
  for (bool told = false;;) {
    const absl::StatusOr<std::string> text = TargetOfKey(client, key, /*awaits=*/true, &stop);
    const absl::Duration now = Clock::System().Monotonic(), waited = now - start;
    if (absl::IsUnavailable(text.status()) && now - answered < kServerPatience && Returns(client, stop)) {
      absl::SleepFor(kLookAgain);
      continue;
    }
    if (stop.cancelled()) return absl::CancelledError(kNoJobYet);
    TEMPER_RETURN_IF_ERROR(text.status());
    answered = now;
    if (!text->empty()) {
      request->set_wait_for_device_ms(absl::ToInt64Milliseconds(std::max(absl::ZeroDuration(), patience - waited)));
      return ParseTarget(*text);
    }
    if (waited >= patience) return absl::UnavailableError(absl::StrCat("no worker serves device key '", key, "'"));
    if (!std::exchange(told, true))
      std::fprintf(stderr, "waiting for a worker that serves device key '%s'\n", key.c_str());
    absl::SleepFor(std::min(kLookAgain, patience - waited));
  }
}

absl::Status Write(const TuneReport& report, const std::string& path) {
  std::ofstream out(path);
  out << JsonText(report.Json(), 1) << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

// At once: a program waits for it.
void PrintLine(const nlohmann::ordered_json& json) {
  std::printf("%s\n", JsonText(json).c_str());
  std::fflush(stdout);
}

// Behind why a local run ended.
std::string WhatIsKept(const WatchedJob& view) {
  return view.latest.trials() == 0 ? "" : "; what was measured is kept, the same command goes on from there";
}

std::string HowToFollow(const TuneOptions& o, int64_t job) {
  const std::string which = absl::StrCat(job, " --server ", o.records.server);
  return absl::StrCat("`temper watch ", which, "` follows it, `temper cancel ", which, "` ends it");
}

// A local run ends, a server's job goes on: it is not done then.
absl::StatusOr<bool> Interrupted(const TuneOptions& o, TunerClient& client, int64_t job, const WatchedJob& view) {
  if (o.records.server.empty()) {
    (void)client.CancelJob(job);  // the server may be gone already; its records are safe either way
    return absl::CancelledError(absl::StrCat("interrupted", WhatIsKept(view)));
  }
  if (o.events) return false;
  std::printf("detached from job %lld; it goes on. %s\n", static_cast<long long>(job), HowToFollow(o, job).c_str());
  return false;
}

// A server's job does not need who watches it, nor, once it runs again, that the server was away.
absl::Status Lost(const TuneOptions& o, int64_t job, const absl::Status& watched) {
  const bool away = absl::IsUnavailable(watched) || absl::IsDeadlineExceeded(watched);
  if (o.records.server.empty() || !away) return watched;
  return absl::UnavailableError(
      absl::StrCat(watched.message(), " (job ", job, " goes on with the server: ", HowToFollow(o, job), ")"));
}

// Whether the job is done.
absl::StatusOr<bool> Tune(TuneOptions o) {
  const absl::Duration start = Clock::System().Monotonic();
  auto seconds = [&] { return absl::ToDoubleSeconds(Clock::System().Monotonic() - start); };
  StopSignal stop;
  Interrupts interrupts([&] { stop.Cancel(); });
  UseEnvironment(&o.records);
  const bool local = o.records.server.empty();
  if (!local && !o.records.target.empty())
    return absl::InvalidArgumentError("--target is for local runs: a server's workers say what theirs is");
  if (!local && !o.cores.empty())
    return absl::InvalidArgumentError("--cores is for local runs: a server's workers have cores of their own");
  if (o.records.device.empty()) {
    if (!local) return absl::InvalidArgumentError("--device KEY is needed with --server: `temper devices` lists them");
    o.records.device = kLocalDevice;
  }
  if (!o.json.empty() && !std::ofstream(o.json, std::ios::app))  // now, not after minutes of tuning
    return absl::UnavailableError(absl::StrCat("cannot write ", o.json));
  TEMPER_ASSIGN_OR_RETURN(v1::SubmitJobRequest request, Request(o, local));
  TEMPER_ASSIGN_OR_RETURN(Graph graph, ImportModel(o.model));
  const std::string name = graph.name;
  LocalFleet fleet;
  std::unique_ptr<TunerClient> client;
  Target target;
  if (local) {
    TEMPER_ASSIGN_OR_RETURN(target, StartLocal(o.records, o.cores, &fleet, &client, [&] { stop.Cancel(); }));
  } else {
    TEMPER_ASSIGN_OR_RETURN(client, ConnectTo<TunerClient>(o.records));
    TEMPER_ASSIGN_OR_RETURN(target, AwaitDevice(*client, o.records.device, stop, &request));
  }
  TEMPER_RETURN_IF_ERROR(OptimizeModel(o.model, target, graph));
  // The server may have gone while the model was optimised.
  if (!local && !Returns(*client, stop) && stop.cancelled()) return absl::CancelledError(kNoJobYet);
  request.set_model(NameForWire(name));
  request.set_graph_json(ToJson(graph));
  graph = Graph();                     // the weights are wanted no more
  if (request.time_budget_ms() > 0) {  // the budget runs from the start of the command
    request.set_time_budget_ms(std::max<int64_t>(1, request.time_budget_ms() - static_cast<int64_t>(seconds() * 1e3)));
  }
  const absl::StatusOr<int64_t> submitted =
      client->SubmitJob(request, local ? absl::ZeroDuration() : kServerPatience, &stop);
  if (interrupts.interrupted() && !submitted.ok()) return absl::CancelledError(local ? kNoJobYet : kPerhapsAJob);
  TEMPER_RETURN_IF_ERROR(submitted.status());
  const int64_t job = *submitted;

  WatchedJob view;
  Progress progress(stderr, isatty(STDERR_FILENO) != 0, local);
  absl::Status watched = client->WatchJob(
      job,
      [&](const v1::JobEvent& event) {
        view.Apply(event);
        if (o.events) {
          PrintLine(EventJson(view, job));
        } else {
          progress.Show(view, false);
        }
        return true;
      },
      local ? absl::Seconds(1) : kServerPatience, &stop);
  if (interrupts.interrupted()) return Interrupted(o, *client, job, view);
  if (const std::string broken = fleet.Broken(); !watched.ok() && !broken.empty()) {
    (void)client->CancelJob(job);
    return absl::AbortedError(absl::StrCat(broken, WhatIsKept(view)));
  }
  if (!watched.ok()) return Lost(o, job, watched);
  if (!o.events) progress.Show(view, true);
  client.reset();  // its connection first: the server waits for open ones
  fleet.worker.reset();
  fleet.server.reset();
  const TuneReport report{name, o.records.device, view, seconds()};
  if (!o.json.empty()) TEMPER_RETURN_IF_ERROR(Write(report, o.json));
  if (o.events) PrintLine({{"report", report.Json()}});
  if (view.latest.state() != "done") {
    return absl::AbortedError(
        absl::StrCat("job ", job, " ", view.latest.state(), ": ", view.latest.reason(),
                     view.latest.state() == "abandoned" ? "; tune again to go on from there" : ""));
  }
  if (!o.events) report.Print(stdout, o.revalidate);
  return true;
}

// One variant after another, each with an equal part of the time and of the trials. What variants have in common is
// measured once: later ones begin from the records of those before.
absl::Status TuneVariants(const TuneOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ModelVariant> variants, VariantsOf(o.model));
  const auto count = static_cast<int>(variants.size());
  absl::Duration budget = absl::ZeroDuration();
  const bool sound =
      o.time_budget.empty() || (absl::ParseDuration(o.time_budget, &budget) && budget > absl::ZeroDuration());
  if (count == 1 || !sound) return Tune(o).status();  // which says what it expects
  if (!o.json.empty() || o.events) {
    return absl::InvalidArgumentError(
        "--json and --events are for one length of each dimension: tune one variant after another");
  }
  for (int i = 0; i < count; ++i) {
    TuneOptions one = o;
    one.model = variants[static_cast<size_t>(i)].options;
    if (budget > absl::ZeroDuration()) one.time_budget = absl::FormatDuration(budget / count);
    if (o.trials > 0) one.trials = std::max(1, o.trials / count + (i < o.trials % count ? 1 : 0));  // 0 is no limit
    std::fprintf(stderr, "%s (variant %d of %d)\n", Escaped(variants[static_cast<size_t>(i)].name).c_str(), i + 1,
                 count);
    TEMPER_ASSIGN_OR_RETURN(const bool done, Tune(one));
    if (!done) return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

void AddTune(CLI::App& app, Action* action) {
  auto o = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "search the fastest config of every operator, by measurement");
  AddModelOptions(command, &o->model, "MODEL.onnx");
  AddRecordOptions(command, &o->records);
  command->add_option("--tuner", o->tuner, absl::StrCat("one of ", TunerNames()))->capture_default_str();
  command->add_option("--trials", o->trials, "new trials for the whole model; 0: no limit")->check(ZeroOrMore());
  command->add_option("--trials-per-task", o->trials_per_task, "most trials for each task; 0: no limit")
      ->check(ZeroOrMore());
  command
      ->add_option("--early-stopping", o->early_stopping,
                   "end a task after this many trials without a better one; 0: no limit")
      ->check(ZeroOrMore());
  command
      ->add_option("--early-stopping-model", o->early_stopping_model,
                   "end the search after this many trials that made the model no faster; 0: no limit")
      ->check(ZeroOrMore());
  command->add_option("--time-budget", o->time_budget,
                      "time from the start of the command to the last trial, such as 90s or 5m");
  command->add_option(
      "--min-gain", o->min_gain,
      absl::StrCat("end the search when less than this share of the model's time is still expected to be "
                   "gained, such as 1% or 0.01 (default: ",
                   kUsualMinGain, " if there is no other limit)"));
  command->add_option("--wait-for-device", o->wait_for_device, "how long to wait for a worker of that key")
      ->capture_default_str();
  command->add_option(
      "--target", o->records.target,
      "local runs: what to generate code for, such as llvm:haswell or cuda:sm_90, and so where to measure");
  command->add_option("--cores", o->cores,
                      "local runs: cores to measure on, such as cpu:0-1, or a GPU, such as cuda:1");
  command->add_flag("--revalidate", o->revalidate,
                    "measure the best records and the defaults again, without a search; use it after a new version of "
                    "Temper or of the machine");
  command->add_flag("--no-booster", o->no_booster,
                    "start from the draft only, without the boosters that come with Temper");
  command->add_option("--priority", o->priority, "with --server: from -10 to 10; higher goes first")
      ->check(CLI::Range(-10, 10));
  command->add_option("--seed", o->seed, "seed of the search");
  command->add_option("--json", o->json, "write a report to FILE");
  command->add_flag("--events", o->events,
                    "for programs: progress as JSON objects, one a line on standard output; the last has the report");
  command->footer(
      "Examples:\n  temper tune model.onnx --time-budget 2m\n  temper tune model.onnx --server tuner:9190 --device "
      "epyc-zen5 --trials 2000");
  command->callback([o, action] { *action = [o] { return TuneVariants(*o); }; });
}

}  // namespace temper
