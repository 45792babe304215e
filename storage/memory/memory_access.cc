#include "storage/memory/memory_access.h"

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
  audit_.push_back(KeptAudit(row));
  audit_.back().id = static_cast<int64_t>(audit_.size());
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

}  // namespace temper
