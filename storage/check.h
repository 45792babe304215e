// What every store refuses. Callers that gather rows from several sources sift them by these before they append, so
// that one bad row costs nobody else anything: what is refused here is kInvalidArgument, and no store fails for it
// later.
#pragma once

#include <string_view>

#include "base/status.h"
#include "storage/access.h"
#include "storage/record.h"

namespace temper {

// The limits of one field, in bytes where it is a text. Texts are UTF-8, numbers finite. What does not fit is refused,
// but errors and reasons are made to fit (KeptError): how a trial or a job ended is not lost for what it said.
inline constexpr size_t kMaxWorkloadBytes = 64 << 10;  // and anchors
inline constexpr size_t kMaxTargetBytes = 4 << 10;
inline constexpr size_t kMaxDeviceKeyBytes = 128;
inline constexpr size_t kMaxFingerprintBytes = 1 << 10;
inline constexpr size_t kMaxTemplateBytes = 128;
inline constexpr size_t kMaxConfigBytes = 4 << 10;
inline constexpr size_t kMaxCodegenIdBytes = 128;
inline constexpr size_t kMaxTunerBytes = 64;
inline constexpr size_t kMaxErrorBytes = 1 << 10;  // and a job's reason
inline constexpr size_t kMaxSamples = 1024;
inline constexpr double kMinSeconds = 1e-9;  // of a sample: nothing is called and has ended in a few cycles
inline constexpr double kMaxSeconds = 1e9;   // of a sample: 30 years
inline constexpr int kMaxThreads = 4096;
inline constexpr int64_t kMaxUnixMs = 253'402'300'799'999;  // the last of the year 9999
inline constexpr size_t kMaxModelBytes = 256;               // of its name
inline constexpr size_t kMaxOwnerBytes = 256;
inline constexpr size_t kMaxModelHashBytes = 64;
inline constexpr size_t kMaxSpecBytes = 64 << 10;
inline constexpr size_t kMaxSummaryBytes = 16 << 20;
inline constexpr size_t kMaxRequestBytes = 64 << 20;
inline constexpr size_t kMaxInstanceBytes = 128;
inline constexpr size_t kMaxWorkBytes = 16 << 20;
inline constexpr size_t kMaxAccessBytes = 4 << 10;  // of each text about rights

absl::Status CheckJobState(std::string_view state);  // of a row: whatever a job does while it runs, it is "running"
bool IsTime(double seconds);                         // as a sample may be: from kMinSeconds to kMaxSeconds
absl::Status CheckRecord(const Record& r);
absl::Status CheckJob(const JobRow& job);
absl::Status CheckLease(const LeaseRow& lease);
absl::Status CheckToken(const TokenRow& token);
absl::Status CheckCertificate(const CertificateRow& certificate);
absl::Status CheckDevice(const DeviceRow& device);  // by its state too
// Each text as KeptError keeps it: nobody escapes the audit by odd bytes.
AuditRow KeptAudit(const AuditRow& row);
std::string KeptError(std::string_view error);  // UTF-8, at most kMaxErrorBytes, cut between characters

}  // namespace temper
