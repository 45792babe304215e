#include "storage/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "storage/check.h"

namespace temper {
namespace {

constexpr std::string_view kOutcomes[] = {
    "ok",          "illegal_config", "build_failed", "build_timeout", "wrong_answer",
    "run_crashed", "run_timeout",    "raced_out",    "infrastructure"};
constexpr std::string_view kPurposes[] = {"search", "final", "canary", "revalidate"};
constexpr std::string_view kCachePolicies[] = {"model", "warm", "flushed"};
constexpr std::string_view kJobStates[] = {"queued", "running", "done", "failed", "cancelled", "abandoned"};
constexpr std::string_view kVerdicts[] = {"", "tuned", "default"};

template <size_t n>
bool OneOf(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

absl::Status Refuse(const char* what, const std::string& value) {
  return absl::InvalidArgumentError(absl::StrCat("record refused: ", what, " '", value, "'"));
}

}  // namespace

double MedianCost(const Record& r) {
  if (!r.ok() || r.costs_s.empty()) return std::numeric_limits<double>::infinity();
  std::vector<double> sorted = r.costs_s;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

bool SameTrial(const Record& a, const Record& b) {
  const auto fields = [](const Record& r) {
    return std::tie(r.workload, r.anchor, r.target, r.device_key, r.fingerprint, r.threads, r.cache_policy,
                    r.template_name, r.template_version, r.config, r.codegen_id, r.purpose, r.outcome, r.costs_s,
                    r.tuner, r.time_unix_ms);
  };
  return fields(a) == fields(b) && KeptError(a) == KeptError(b);
}

bool IsOutcome(std::string_view name) { return OneOf(kOutcomes, name); }

absl::Status CheckRecord(const Record& r) {
  if (r.workload.empty() || r.target.empty())
    return absl::InvalidArgumentError("record refused: no workload or no target");
  if (!IsOutcome(r.outcome)) return Refuse("unknown outcome", r.outcome);
  if (!OneOf(kPurposes, r.purpose)) return Refuse("unknown purpose", r.purpose);
  if (!OneOf(kCachePolicies, r.cache_policy)) return Refuse("unknown cache policy", r.cache_policy);
  if (r.threads < 1) return Refuse("threads must be at least 1, not", absl::StrCat(r.threads));
  if (r.ok() && r.costs_s.empty()) return Refuse("outcome ok without a sample, config", r.config);
  for (double cost : r.costs_s) {
    if (!std::isfinite(cost) || cost <= 0)
      return Refuse("a sample must be a finite positive time, not", absl::StrCat(cost));
  }
  return absl::OkStatus();
}

absl::Status CheckJob(const JobRow& job) {
  if (!OneOf(kJobStates, job.state))
    return absl::InvalidArgumentError(absl::StrCat("job refused: unknown state '", job.state, "'"));
  if (!OneOf(kVerdicts, job.build_with))
    return absl::InvalidArgumentError(absl::StrCat("job refused: unknown verdict '", job.build_with, "'"));
  return absl::OkStatus();
}

bool MayBeBest(const Record& r) {
  if (!r.ok()) return false;
  if (r.purpose == "search") return r.costs_s.size() >= kProvisionalSamples;
  return IsConfirmed(r);
}

bool IsConfirmed(const Record& r) { return r.purpose == "final" || r.purpose == "revalidate"; }

bool Retires(const Record& later, const Record& r) {
  if (later.purpose != "revalidate" || !later.ok() || later.id <= r.id || later.time_unix_ms < r.time_unix_ms)
    return false;
  if (later.workload != r.workload || later.target != r.target || later.device_key != r.device_key ||
      later.threads != r.threads)
    return false;
  return later.codegen_id != r.codegen_id || (later.template_name == r.template_name &&
                                              later.template_version == r.template_version && later.config == r.config);
}

bool Refutes(const Record& r) { return !r.ok() && r.outcome != "raced_out" && r.outcome != "infrastructure"; }

std::string_view KeptError(const Record& r) {
  std::string_view error = r.error;
  if (error.size() <= kMaxErrorBytes) return error;
  size_t end = kMaxErrorBytes;
  while (end > 0 && (static_cast<unsigned char>(error[end]) & 0xC0) == 0x80) --end;  // never inside a character
  return error.substr(0, end);
}

}  // namespace temper
