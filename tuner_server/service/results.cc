#include "tuner_server/service/results.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "compiler/target/target.h"
#include "storage/check.h"

namespace temper {
namespace {

bool Sound(const std::vector<double>& samples) { return !samples.empty() && std::ranges::all_of(samples, IsTime); }

// Raced out is a measurement like any other, with too few samples to ever be best.
Outcome KeptOutcome(Outcome outcome) { return outcome == Outcome::kRacedOut ? Outcome::kOk : outcome; }

// What a worker says went wrong, as it is kept, logged and shown: one line, and nothing that a terminal obeys.
std::string OneLine(std::string error) {
  std::ranges::replace_if(
      error, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return std::string(CutUtf8(Escaped(error), kMaxErrorBytes));
}

}  // namespace

absl::Status CheckWorker(const WorkerInfo& info) {
  if (info.device_key.empty()) return absl::InvalidArgumentError("a worker needs a device key");
  if (info.slots < 1 || info.slots > kMostSlots) {
    return absl::InvalidArgumentError(absl::StrCat("a worker has 1 to ", kMostSlots, " slots, not ", info.slots));
  }
  TEMPER_RETURN_IF_ERROR(ParseTarget(info.target).status());
  Record record;
  record.workload = "any";
  record.target = info.target;
  record.device_key = info.device_key;
  record.fingerprint = info.fingerprint;
  record.threads = info.threads;
  record.codegen_id = info.codegen_id;
  record.costs_s = {1};
  return CheckRecord(record);
}

ItemResult Checked(ItemResult result) {
  if (result.model) {
    ModelResult& model = *result.model;
    const bool sound = Sound(model.untuned_s) && Sound(model.tuned_s) && std::isfinite(model.relative_error);
    if (IsMeasured(model.outcome) && !sound) {
      model = {.error = Explained(model.outcome, "told without sound samples")};
    } else if (!IsMeasured(model.outcome)) {
      model = {.outcome = model.outcome, .error = std::move(model.error)};
    }
    model.error = OneLine(std::move(model.error));
    return result;
  }
  TrialResult& trial = result.trial;
  if (!std::isfinite(trial.drift) || trial.drift < 0) trial.drift = 0;
  if (IsMeasured(trial.outcome) && !Sound(trial.costs_s)) {
    trial.error = Explained(trial.outcome, "told without sound samples");
    trial.outcome = Outcome::kInfrastructure;
  }
  if (!IsMeasured(trial.outcome)) trial.costs_s.clear();
  trial.error = OneLine(std::move(trial.error));
  return result;
}

bool IsRecordOf(const Record& record, const TrialResult& result) {
  return record.outcome == KeptOutcome(result.outcome) && record.costs_s == result.costs_s &&
         record.error == KeptError(result.error);
}

Record MakeRecord(const Work& work, const WorkItem& item, const WorkerInfo& worker, const TrialResult& result,
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
  record.outcome = KeptOutcome(result.outcome);
  record.error = result.error;
  record.costs_s = result.costs_s;
  record.tuner = work.tuner;
  record.job = work.job;
  record.time_unix_ms = absl::ToUnixMillis(wall);
  record.candidate = item.id;
  record.attempt = item.attempt;
  return record;
}

}  // namespace temper
