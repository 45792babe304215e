#include "tuner_server/operations/pages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "tuner_server/operations/process.h"

namespace temper {
namespace {

// States of which there is none now are 0, not absent: an alert on "no idle worker" has to see that.
std::map<std::string, double> ByState(const std::map<std::string, int64_t>& counts,
                                      std::initializer_list<const char*> states) {
  std::map<std::string, double> all;
  for (const char* state : states) all[state] = 0;
  for (const auto& [state, count] : counts) all[state] = static_cast<double>(count);
  return all;
}

void SetGauges(const PageSources& sources) {
  Metrics& metrics = *sources.metrics;
  const FleetStatus status = sources.status();
  std::map<std::string, double> pending;
  for (const auto& [key, load] : status.keys) pending[key] = static_cast<double>(load.pending);
  metrics.SetAll(Metric::kPendingCandidates, pending);
  for (const auto& [failure, total] : status.failures) {
    metrics.Raise(Metric::kFailures, failure, static_cast<double>(total));
  }
  metrics.Set(Metric::kLeases, static_cast<double>(status.leases));
  metrics.SetAll(Metric::kWorkers, ByState(status.workers, {"idle", "measuring", "lost", "version_mismatch",
                                                            "target_mismatch", "drained", "pending"}));
  metrics.SetAll(Metric::kJobs,
                 ByState(status.jobs, {"queued", "running", "done", "failed", "cancelled", "abandoned"}));
  metrics.Set(Metric::kParkedCalls, static_cast<double>(status.parked_calls));
  metrics.Set(Metric::kTickAge, absl::ToDoubleSeconds(status.tick_age));
  const std::optional<absl::Duration> snapshot = sources.snapshot_age();
  metrics.Set(Metric::kSnapshotAge, snapshot.has_value() ? absl::ToDoubleSeconds(*snapshot) : -1);
  const ProcessUse use = ReadProcessUse();
  metrics.Set(Metric::kDescriptors, static_cast<double>(use.descriptors));
  metrics.Set(Metric::kDescriptorLimit, static_cast<double>(use.descriptor_limit));
  metrics.Set(Metric::kResidentBytes, static_cast<double>(use.resident_bytes));
  metrics.SetAll(Metric::kBuildInfo, {{TemperVersion(), 1}});
}

HttpReply Verdict(const std::string& trouble) {
  if (trouble.empty()) return {.body = "ok\n"};
  return {.code = 503, .body = trouble + "\n"};
}

std::string WhyNotLive(const FleetStatus& status) {
  if (status.tick_age <= kLongestTickAge) return "";
  return absl::StrCat("the server did not look at its leases for ", absl::ToInt64Seconds(status.tick_age), " s");
}

std::string WhyNotReady(const FleetStatus& status) {
  if (status.stopping) return "the server is shutting down";
  if (!status.store_ok) return "the last results could not be stored";
  return WhyNotLive(status);
}

HttpReply Pending(const FleetStatus& status, const HttpRequest& request) {
  const auto key = request.query.find("key");
  if (key == request.query.end()) return {.code = 400, .body = "/pending wants a device key: /pending?key=K\n"};
  int64_t pending = 0;
  if (const auto load = status.keys.find(key->second); load != status.keys.end()) {
    pending = std::max(
        {load->second.pending + load->second.leased, load->second.jobs, static_cast<int64_t>(load->second.awaited)});
  }
  const nlohmann::ordered_json reply{{"key", key->second}, {"pending", pending}};
  return {.type = "application/json",
          .body = reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

}  // namespace

std::vector<HttpRoute> OperationsPages(PageSources sources) {
  return {
      {"/metrics",
       [sources](const HttpRequest&) {
         SetGauges(sources);
         return HttpReply{.type = "text/plain; version=0.0.4; charset=utf-8", .body = sources.metrics->Text()};
       }},
      {"/healthz", [sources](const HttpRequest&) { return Verdict(WhyNotLive(sources.status())); }},
      {"/readyz", [sources](const HttpRequest&) { return Verdict(WhyNotReady(sources.status())); }},
      {"/pending", [sources](const HttpRequest& request) { return Pending(sources.status(), request); }},
  };
}

}  // namespace temper
