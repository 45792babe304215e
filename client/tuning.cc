#include "include/temper/tuning.h"

#include "absl/time/time.h"
#include "base/state_directory.h"
#include "base/statistics.h"
#include "client/tuner_client.h"
#include "security/identity.h"
#include "security/token.h"

namespace temper {
namespace {

// Where our statuses become what a program's author expects.
void Must(const absl::Status& status) {
  if (!status.ok()) throw TuningError(std::string(status.message()));
}
template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

std::unique_ptr<TunerClient> Dial(const TuningServer& server) {
  ClientOptions options;
  options.call_timeout = absl::Seconds(server.timeout_s);
  options.authority = server.authority;
  options.identity = ClientIdentity(StateDirectory());
  if (!server.token_file.empty()) options.token = Must(ReadTokenFile(server.token_file));
  return Must(TunerClient::Connect(server.address, options));
}

TuningJob JobOf(const v1::JobSummary& summary) {
  TuningJob job;
  job.id = summary.job();
  job.model = summary.model();
  job.device = summary.device_key();
  job.owner = summary.owner();
  job.state = summary.state();
  job.reason = summary.reason();
  job.trials = summary.trials();
  job.best_ms = summary.best_ms();
  job.priority = summary.priority();
  return job;
}

}  // namespace

struct TuningClient::Impl {
  std::unique_ptr<TunerClient> client;
};

TuningClient::TuningClient(const TuningServer& server) : impl_(new Impl{Dial(server)}) {}
TuningClient::~TuningClient() = default;

std::vector<TuningDevice> TuningClient::Devices() {
  std::vector<TuningDevice> devices;
  for (const v1::Device& d : Must(impl_->client->ListDevices()))
    devices.push_back({d.key(), d.name(), d.fingerprint(), d.target(), d.state(), d.reason()});
  return devices;
}

std::vector<TuningJob> TuningClient::Jobs(int64_t most) {
  std::vector<TuningJob> jobs;
  for (const v1::JobSummary& summary : Must(impl_->client->ListJobs(most))) jobs.push_back(JobOf(summary));
  return jobs;
}

TuningJob TuningClient::Job(int64_t job) { return JobOf(Must(impl_->client->GetJob(job))); }

int64_t TuningClient::Submit(const std::string& device, const std::vector<std::string>& workloads,
                             const TuningLimits& limits) {
  v1::SubmitJobRequest request;
  request.set_model("operators");
  request.set_device_key(device);
  for (const std::string& workload : workloads) request.add_workloads(workload);
  request.set_tuner(limits.tuner);
  request.set_trials(limits.trials);
  request.set_trials_per_task(limits.trials_per_task);
  request.set_time_budget_ms(absl::ToInt64Milliseconds(absl::Seconds(limits.time_budget_s)));
  request.set_min_gain(limits.min_gain);
  request.set_wait_for_device_ms(absl::ToInt64Milliseconds(absl::Seconds(limits.wait_for_device_s)));
  request.set_seed(limits.seed);
  request.set_priority(limits.priority);
  return Must(impl_->client->SubmitJob(request));
}

TuningJob TuningClient::Watch(int64_t job, const std::function<bool(const TuningJob&)>& on_change) {
  TuningJob seen = Job(job);
  bool wanted = true;
  const absl::Status watched = impl_->client->WatchJob(job, [&](const v1::JobEvent& event) {
    seen.state = event.state();
    seen.reason = event.reason();
    seen.trials = event.trials();
    if (event.tuned_ms() > 0) seen.best_ms = event.tuned_ms();
    wanted = on_change == nullptr || on_change(seen);
    return wanted;
  });
  if (wanted) Must(watched);  // else it ended because nobody listened
  return seen;
}

void TuningClient::Cancel(int64_t job) { Must(impl_->client->CancelJob(job)); }
void TuningClient::SetPriority(int64_t job, int priority) { Must(impl_->client->SetPriority(job, priority)); }

std::vector<TunedConfig> TuningClient::Best(const std::string& workload, const std::string& device) {
  std::vector<TunedConfig> configs;
  RecordFilter filter;
  filter.workload = workload;
  filter.device_key = device;
  Must(impl_->client->ExportRecords(filter, true, [&](const Record& r) {
    configs.push_back({r.workload, r.target, r.device_key, r.template_name, r.config, Median(r.costs_s)});
    return true;
  }));
  return configs;
}

}  // namespace temper
