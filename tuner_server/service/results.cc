#include "tuner_server/service/results.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

constexpr size_t kLongestError = 1024;

}  // namespace

ItemResult Checked(ItemResult result) {
  const auto sound = [](const std::vector<double>& samples) {
    return !samples.empty() &&
           std::all_of(samples.begin(), samples.end(), [](double s) { return std::isfinite(s) && s > 0; });
  };
  const bool measured = result.outcome == "ok" || result.outcome == "raced_out";
  if (!ParseOutcome(result.outcome).has_value() || (measured && !sound(result.costs_s))) {
    result.error = absl::StrCat("the worker answered '", result.outcome, "' without sound samples");
    result.outcome = "infrastructure";
  }
  if (result.outcome != "ok" && result.outcome != "raced_out") result.costs_s.clear();
  if (result.error.size() > kLongestError) result.error.resize(kLongestError);
  return result;
}

Record MakeRecord(const Work& work, const WorkItem& item, const WorkerInfo& worker, const ItemResult& result,
                  absl::Time wall) {
  Record record;
  const bool is_final = work.kind == WorkKind::kFinals;
  record.workload = is_final ? item.workload : work.workload;
  record.anchor = is_final ? item.anchor : work.anchor;
  record.target = work.target;
  record.device_key = work.device_key;
  record.fingerprint = worker.fingerprint;
  record.threads = worker.threads;
  record.cache_policy = work.plan.cache_policy;
  record.template_name = item.template_name;
  record.template_version = item.template_version;
  record.config = item.config;
  record.codegen_id = work.codegen_id;
  record.purpose = !is_final ? "search" : work.revalidate ? "revalidate" : "final";
  if (MeasuredInNoise(work.kind, item, result)) record.purpose = "canary";
  // Raced out is a measurement like any other, with too few samples to ever be best.
  record.outcome = ParseOutcome(result.outcome).value_or(Outcome::kInfrastructure);
  if (record.outcome == Outcome::kRacedOut) record.outcome = Outcome::kOk;
  record.error = result.error;
  record.costs_s = result.costs_s;
  record.tuner = work.tuner;
  record.job = work.job;
  record.time_unix_ms = absl::ToUnixMillis(wall);
  return record;
}

}  // namespace temper
