// devices, jobs, watch, cancel: what a server says of its fleet.
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/report/progress.h"
#include "proto/convert.h"

namespace temper {
namespace {

const CLI::Range kJobNumber(int64_t{1}, std::numeric_limits<int64_t>::max() - 1, "a job's number");

struct FleetOptions {
  ConnectOptions connect;
  bool json = false;
  int64_t job = 0;
  int64_t limit = 100;
  std::string state;
  int priority = 0;
};

absl::Status Devices(const FleetOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, ConnectTo<TunerClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(std::vector<v1::Device> devices, client->ListDevices());
  if (!o.json) {
    std::printf("%-16s %-18s %-14s %8s %9s %7s %12s  %s\n", "key", "state", "lease", "trials", "failures", "canary",
                "last seen s", "fingerprint");
  }
  for (const v1::Device& d : devices) {
    if (o.json) {
      nlohmann::ordered_json line = {{"key", d.key()},
                                     {"fingerprint", d.fingerprint()},
                                     {"state", d.state()},
                                     {"reason", d.reason()},
                                     {"trials", d.trials()},
                                     {"failures", d.failures()},
                                     {"last_seen_s", d.last_seen_s()},
                                     {"target", d.target()},
                                     {"name", d.name()},
                                     {"job", d.lease_job()},
                                     {"lease_age_s", d.lease_age_s()},
                                     {"drift", d.drift()},
                                     {"sandbox", d.sandbox()}};
      std::printf("%s\n", JsonText(line).c_str());
    } else {
      const std::string reason = d.reason().empty() ? "" : " (" + d.reason() + ")";
      const std::string lease =
          d.lease_job() == 0 ? "-" : absl::StrFormat("job %d, %.0f s", d.lease_job(), d.lease_age_s());
      const std::string canary = d.drift() > 0 ? absl::StrFormat("%.2fx", d.drift()) : "-";
      std::printf("%-16s %-18s %-14s %8lld %9lld %7s %12.1f  %s%s\n", Escaped(d.key()).c_str(),
                  Escaped(d.state()).c_str(), lease.c_str(), static_cast<long long>(d.trials()),
                  static_cast<long long>(d.failures()), canary.c_str(), d.last_seen_s(),
                  Escaped(d.fingerprint()).c_str(), Escaped(reason).c_str());
    }
  }
  return absl::OkStatus();
}

absl::Status Jobs(const FleetOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, ConnectTo<TunerClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(std::vector<v1::JobSummary> jobs, client->ListJobs(o.limit, o.state));
  if (!o.json) std::printf("%6s %-24s %-16s %-20s %8s %10s\n", "job", "model", "device", "state", "trials", "best ms");
  for (const v1::JobSummary& j : jobs) {
    if (o.json) {
      nlohmann::ordered_json line = {{"job", j.job()},         {"model", j.model()},   {"device", j.device_key()},
                                     {"state", j.state()},     {"reason", j.reason()}, {"trials", j.trials()},
                                     {"best_ms", j.best_ms()}, {"owner", j.owner()},   {"priority", j.priority()}};
      std::printf("%s\n", JsonText(line).c_str());
    } else {
      const std::string reason = j.reason().empty() ? "" : "  " + j.reason();
      std::printf("%6lld %-24s %-16s %-20s %8lld %10.3f%s\n", static_cast<long long>(j.job()),
                  Escaped(j.model()).c_str(), Escaped(j.device_key()).c_str(), Escaped(j.state()).c_str(),
                  static_cast<long long>(j.trials()), j.best_ms(), Escaped(reason).c_str());
    }
  }
  return absl::OkStatus();
}

absl::Status Watch(const FleetOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, ConnectTo<TunerClient>(o.connect));
  WatchedJob view;
  Progress progress(stdout, isatty(STDOUT_FILENO) != 0, false);
  TEMPER_RETURN_IF_ERROR(client->WatchJob(o.job, [&](const v1::JobEvent& event) {
    view.Apply(event);
    progress.Show(view, false);
    return true;
  }));
  progress.Show(view, true);
  if (view.latest.state() == "done") return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("job ", o.job, " ", view.latest.state(), ": ", view.latest.reason()));
}

absl::Status Cancel(const FleetOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, ConnectTo<TunerClient>(o.connect));
  TEMPER_ASSIGN_OR_RETURN(const v1::JobSummary job, client->GetJob(o.job));
  if (IsFinalJobState(job.state()))
    return absl::FailedPreconditionError(absl::StrCat("job ", o.job, " is over: it was ", job.state(), " before"));
  TEMPER_RETURN_IF_ERROR(client->CancelJob(o.job));
  std::printf("job %lld is cancelled; its records stay\n", static_cast<long long>(o.job));
  return absl::OkStatus();
}

absl::Status Priority(const FleetOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, ConnectTo<TunerClient>(o.connect));
  TEMPER_RETURN_IF_ERROR(client->SetPriority(o.job, o.priority));
  std::printf("job %lld has priority %d\n", static_cast<long long>(o.job), o.priority);
  return absl::OkStatus();
}

CLI::App* Add(CLI::App& app, Action* action, const char* name, const char* help, const char* example,
              absl::Status (*run)(const FleetOptions&), const std::shared_ptr<FleetOptions>& o) {
  CLI::App* command = app.add_subcommand(name, help);
  AddConnectOptions(command, &o->connect);
  command->footer(absl::StrCat("Example:\n  temper ", example));
  command->callback([o, action, run] { *action = [o, run] { return run(*o); }; });
  return command;
}

}  // namespace

void AddDevices(CLI::App& app, Action* action) {
  auto o = std::make_shared<FleetOptions>();
  Add(app, action, "devices", "list the devices that a server knows", "devices --server tuner:9190", Devices, o)
      ->add_flag("--json", o->json, "one JSON object a line");
}

void AddJobs(CLI::App& app, Action* action) {
  auto o = std::make_shared<FleetOptions>();
  CLI::App* command =
      Add(app, action, "jobs", "list a server's jobs, newest first", "jobs --server tuner:9190", Jobs, o);
  command->add_flag("--json", o->json, "one JSON object a line");
  command->add_option("--limit", o->limit, "show this many of the newest jobs; 0: all")
      ->check(ZeroOrMore())
      ->capture_default_str();
  command->add_option("--state", o->state, "only jobs in this state; queued are those too that wait for a device")
      ->check(CLI::IsMember({"queued", "running", "done", "failed", "cancelled", "abandoned"}));
}

void AddWatch(CLI::App& app, Action* action) {
  auto o = std::make_shared<FleetOptions>();
  Add(app, action, "watch", "follow a job to its end", "watch 7 --server tuner:9190", Watch, o)
      ->add_option("job", o->job, "the job's number")
      ->required()
      ->check(kJobNumber);
}

void AddCancel(CLI::App& app, Action* action) {
  auto o = std::make_shared<FleetOptions>();
  Add(app, action, "cancel", "end a job; its records stay", "cancel 7 --server tuner:9190", Cancel, o)
      ->add_option("job", o->job, "the job's number")
      ->required()
      ->check(kJobNumber);
}

void AddPriority(CLI::App& app, Action* action) {
  auto o = std::make_shared<FleetOptions>();
  CLI::App* command =
      Add(app, action, "priority", "set how early a job's work goes", "priority 7 5 --server tuner:9190", Priority, o);
  command->add_option("job", o->job, "the job's number")->required()->check(kJobNumber);
  command->add_option("priority", o->priority, "from -10 to 10; higher goes first, 0 is the default")
      ->required()
      ->check(CLI::Range(-10, 10));
}

}  // namespace temper
