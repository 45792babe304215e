#include "storage/check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace temper {
namespace {

constexpr std::string_view kPurposes[] = {"search", "final", "canary", "revalidate"};
constexpr std::string_view kCachePolicies[] = {"model", "warm", "flushed"};
constexpr std::string_view kOrigins[] = {"measured", "put", "trusted"};
constexpr std::string_view kJobStates[] = {"queued", "running", "done", "failed", "cancelled", "abandoned"};
constexpr std::string_view kDeviceStates[] = {"approved", "pending", "revoked"};
constexpr std::string_view kVerdicts[] = {"", "tuned", "default"};
constexpr size_t kQuotedBytes = 64;  // of a value that is refused

// Gathers the first thing that is wrong with a row.
class Checker {
 public:
  explicit Checker(const char* what) : what_(what) {}

  void Text(const char* name, std::string_view value, size_t most) {
    if (value.size() > most) Refuse(name, " has ", value.size(), " bytes, at most ", most, " are taken");
    if (!IsUtf8(value)) Refuse(name, " is no UTF-8 text");
  }
  void Required(const char* name, std::string_view value, size_t most) {
    if (value.empty()) Refuse("no ", name);
    Text(name, value, most);
  }
  template <size_t n>
  void OneOf(const char* name, const std::string_view (&known)[n], std::string_view value) {
    if (std::find(std::begin(known), std::end(known), value) != std::end(known)) return;
    Refuse("unknown ", name, " '", std::string(CutUtf8(ToUtf8(value), kQuotedBytes)), "'");
  }
  void Between(const char* name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) Refuse(name, " is ", value, ", not between ", least, " and ", most);
  }
  template <typename... Parts>
  void Refuse(const Parts&... parts) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(what_, " refused: ", parts...));
  }
  const absl::Status& status() const { return status_; }

 private:
  const char* const what_;
  absl::Status status_;
};

}  // namespace

absl::Status CheckJobState(std::string_view state) {
  if (std::find(std::begin(kJobStates), std::end(kJobStates), state) != std::end(kJobStates)) return absl::OkStatus();
  std::string names;
  for (const std::string_view name : kJobStates) absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(name));
  return absl::InvalidArgumentError(absl::StrCat("no job is kept in such a state; states are: ", names));
}

bool IsTime(double seconds) { return seconds >= kMinSeconds && seconds <= kMaxSeconds; }

absl::Status CheckRecord(const Record& r) {
  Checker check("record");
  check.Required("workload", r.workload, kMaxWorkloadBytes);
  check.Text("anchor", r.anchor, kMaxWorkloadBytes);
  check.Required("target", r.target, kMaxTargetBytes);
  check.Text("device key", r.device_key, kMaxDeviceKeyBytes);
  check.Text("fingerprint", r.fingerprint, kMaxFingerprintBytes);
  check.Text("template", r.template_name, kMaxTemplateBytes);
  check.Text("config", r.config, kMaxConfigBytes);
  check.Text("codegen id", r.codegen_id, kMaxCodegenIdBytes);
  check.Text("tuner", r.tuner, kMaxTunerBytes);
  check.OneOf("purpose", kPurposes, r.purpose);
  check.OneOf("cache policy", kCachePolicies, r.cache_policy);
  check.OneOf("origin", kOrigins, r.origin);
  check.Between("threads", r.threads, 1, kMaxThreads);
  check.Between("template version", r.template_version, 0, INT32_MAX);
  check.Between("job", r.job, 0, INT64_MAX);
  check.Between("time", r.time_unix_ms, 0, kMaxUnixMs);
  check.Between("candidate", r.candidate, 0, INT64_MAX);
  check.Between("attempt", r.attempt, 0, INT32_MAX);
  if (r.costs_s.size() > kMaxSamples) check.Refuse(r.costs_s.size(), " samples, at most ", kMaxSamples, " are taken");
  if (r.ok() && r.costs_s.empty()) check.Refuse("outcome ok without a sample");
  for (const double cost : r.costs_s) {
    if (!IsTime(cost)) check.Refuse("a sample is ", cost, ", not a time from ", kMinSeconds, " to ", kMaxSeconds, " s");
  }
  return check.status();
}

absl::Status CheckJob(const JobRow& job) {
  Checker check("job");
  check.Text("model", job.model, kMaxModelBytes);
  check.Text("target", job.target, kMaxTargetBytes);
  check.Text("device key", job.device_key, kMaxDeviceKeyBytes);
  check.Text("tuner", job.tuner, kMaxTunerBytes);
  check.Text("codegen id", job.codegen_id, kMaxCodegenIdBytes);
  check.Text("owner", job.owner, kMaxOwnerBytes);
  check.Text("model hash", job.model_hash, kMaxModelHashBytes);
  check.Text("spec", job.spec, kMaxSpecBytes);
  check.Text("summary", job.summary, kMaxSummaryBytes);
  check.OneOf("state", kJobStates, job.state);
  check.OneOf("verdict", kVerdicts, job.build_with);
  check.Between("trials", job.trials, 0, INT64_MAX);
  check.Between("creation", job.created_unix_ms, 0, kMaxUnixMs);
  check.Between("update", job.updated_unix_ms, 0, kMaxUnixMs);
  if (!std::isfinite(job.best_ms) || job.best_ms < 0) check.Refuse("best time is ", job.best_ms);
  if (job.request.size() > kMaxRequestBytes) check.Refuse("its request has ", job.request.size(), " bytes");
  return check.status();
}

absl::Status CheckLease(const LeaseRow& lease) {
  Checker check("lease");
  check.Text("instance", lease.instance, kMaxInstanceBytes);
  check.Between("grant", lease.granted_unix_ms, 0, kMaxUnixMs);
  if (lease.work.size() > kMaxWorkBytes) check.Refuse("its work has ", lease.work.size(), " bytes");
  return check.status();
}

absl::Status CheckToken(const TokenRow& token) {
  Checker check("token");
  check.Required("id", token.id, kMaxAccessBytes);
  check.Required("hash", token.hash, kMaxAccessBytes);
  check.Text("owner", token.owner, kMaxOwnerBytes);
  check.Text("scopes", token.scopes, kMaxAccessBytes);
  check.Text("keys", token.keys, kMaxAccessBytes);
  return check.status();
}

absl::Status CheckCertificate(const CertificateRow& certificate) {
  Checker check("certificate");
  check.Required("serial", certificate.serial, kMaxAccessBytes);
  check.Text("keys", certificate.keys, kMaxAccessBytes);
  return check.status();
}

absl::Status CheckDevice(const DeviceRow& device) {
  Checker check("device");
  check.Required("key", device.key, kMaxDeviceKeyBytes);
  check.Text("fingerprint", device.fingerprint, kMaxFingerprintBytes);
  check.OneOf("state", kDeviceStates, device.state);
  return check.status();
}

AuditRow KeptAudit(const AuditRow& row) {
  return {row.id,
          row.time_unix_ms,
          KeptError(row.principal),
          KeptError(row.call),
          KeptError(row.subject),
          KeptError(row.verdict),
          KeptError(row.detail)};
}

std::string KeptError(std::string_view error) {
  // A few bytes more, so that a character cut off at their end lies behind the limit.
  return std::string(CutUtf8(ToUtf8(error.substr(0, kMaxErrorBytes + 4)), kMaxErrorBytes));
}

}  // namespace temper
