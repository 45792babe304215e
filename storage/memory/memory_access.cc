#include "storage/memory/memory_access.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "storage/check.h"

namespace temper {
namespace {

template <typename Map>
auto Values(const Map& map) {
  std::vector<typename Map::mapped_type> values;
  for (const auto& [key, value] : map) values.push_back(value);
  return values;
}

}  // namespace

absl::Status MemoryAccess::PutToken(const TokenRow& token) {
  TEMPER_RETURN_IF_ERROR(CheckToken(token));
  std::lock_guard lock(mutex_);
  tokens_[token.id] = token;
  return absl::OkStatus();
}

absl::Status MemoryAccess::SpendToken(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return absl::NotFoundError(absl::StrCat("no token ", id));
  if (found->second.revoked) return absl::FailedPreconditionError(absl::StrCat("token ", id, " was used or revoked"));
  found->second.revoked = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenRow>> MemoryAccess::Tokens() {
  std::lock_guard lock(mutex_);
  return Values(tokens_);
}

absl::Status MemoryAccess::PutCertificate(const CertificateRow& certificate) {
  TEMPER_RETURN_IF_ERROR(CheckCertificate(certificate));
  std::lock_guard lock(mutex_);
  certificates_[certificate.serial] = certificate;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CertificateRow>> MemoryAccess::Certificates() {
  std::lock_guard lock(mutex_);
  return Values(certificates_);
}

absl::Status MemoryAccess::PutDevice(const DeviceRow& device) {
  TEMPER_RETURN_IF_ERROR(CheckDevice(device));
  std::lock_guard lock(mutex_);
  devices_[{device.key, device.fingerprint}] = device;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceRow>> MemoryAccess::Devices() {
  std::lock_guard lock(mutex_);
  return Values(devices_);
}

absl::Status MemoryAccess::AppendAudit(const AuditRow& row) {
  std::lock_guard lock(mutex_);
  const int64_t last = audit_.empty() ? 0 : audit_.back().id;
  audit_.push_back(KeptAudit(row));
  audit_.back().id = last + 1;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<AuditRow>> MemoryAccess::Audit(int64_t before, int64_t limit) {
  std::lock_guard lock(mutex_);
  std::vector<AuditRow> rows;
  for (auto row = audit_.rbegin(); row != audit_.rend() && static_cast<int64_t>(rows.size()) < limit; ++row) {
    if (before == 0 || row->id < before) rows.push_back(*row);
  }
  return rows;
}

int64_t MemoryAccess::PruneAudit(int64_t before_unix_ms, bool dry_run) {
  std::lock_guard lock(mutex_);
  if (audit_.empty()) return 0;
  const int64_t newest = audit_.back().id;
  const auto goes = [&](const AuditRow& row) { return row.time_unix_ms < before_unix_ms && row.id != newest; };
  const int64_t count = std::count_if(audit_.begin(), audit_.end(), goes);
  if (!dry_run) std::erase_if(audit_, goes);
  return count;
}

}  // namespace temper
